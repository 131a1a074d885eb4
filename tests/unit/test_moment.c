/* SPDX-License-Identifier: MIT */
/** @file Buffers, connections and drivers, while something happens or fails between two steps of a call. */
#include <string.h>

#include "base/status.h"
#include "core_fixture.h"
#include "memory/buffer.h"
#include "moment.h"
#include "stream_gate.h"

TestSuite(moment, .init = core_start, .fini = core_finish, .timeout = 60);

static gpuipc_buffer *buffer_handle;
static CUstream stream;

static gpuipc_status fails(void) {
    return status_fail(GPUIPC_ERR_OUT_OF_MEMORY, "there is none");
}

static void make_stream(void) {
    core_need_emulated();
    core_enter_device(0);
    cr_assert_eq(core_driver()->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
}

static void end_stream(void) {
    cr_assert_eq(core_driver()->cuStreamDestroy(stream), CUDA_SUCCESS);
}

/* ---- buffers ------------------------------------------------------------------------------------- */

static gpuipc_status release_buffer(void) {
    check_ok(gpuipc_buffer_release(buffer_handle));
    return GPUIPC_OK;
}

Test(moment, a_buffer_released_meanwhile_is_not_released_behind_a_stream) {
    make_stream();
    buffer_handle = core_buffer(core_unit, 0);
    moment_at(MOMENT_PASSING, 1, release_buffer);
    check_status(GPUIPC_ERR_RELEASED, gpuipc_buffer_release_async(buffer_handle, stream));
    moment_over();
    end_stream();
}

Test(moment, a_buffer_released_meanwhile_is_not_found) {
    gpuipc_buffer *found = NULL;
    uint64_t offset = 7;
    core_need_emulated();
    buffer_handle = core_buffer(core_unit, 0);
    const uint64_t address = gpuipc_buffer_address(buffer_handle);
    moment_at(MOMENT_HOLD, 1, release_buffer);
    check_refused(GPUIPC_ERR_NOT_FOUND, "no buffer that this context made or opened",
                  gpuipc_buffer_find(core_context, address, &found, &offset));
    moment_over();
    cr_assert(found == NULL && offset == 7);
}

static buffer *in_release;

/* Another thread has taken the handle away, and is about to give up what it stood for. */
static gpuipc_status release_half(void) {
    check_ok(buffer_take_hold(buffer_handle, &in_release));
    return GPUIPC_OK;
}

static gpuipc_status release_half_and_fail(void) {
    moment_at(MOMENT_PUBLISH, 1, fails);
    return release_half();
}

/* It is there still: who finds it has a handle of his own. */
Test(moment, a_buffer_that_is_just_released_is_found_under_another_handle) {
    gpuipc_buffer *found = NULL;
    uint64_t offset = 7;
    core_need_emulated();
    for (int i = 0; i < 2; i++) {
        buffer_handle = core_buffer(core_unit, 0);
        const uint64_t address = gpuipc_buffer_address(buffer_handle);
        moment_at(MOMENT_HOLD, 1, i == 0 ? release_half : release_half_and_fail);
        check_status(i == 0 ? GPUIPC_OK : GPUIPC_ERR_OUT_OF_MEMORY,
                     gpuipc_buffer_find(core_context, address, &found, &offset));
        moment_over();
        buffer_unreference_handle(in_release);
        cr_assert_eq(offset, 0);
        if (i == 0) {
            cr_assert_neq(found, buffer_handle);
            cr_assert_eq(gpuipc_buffer_address(found), address);
            check_ok(gpuipc_buffer_release(found));
        }
    }
}

static gpuipc_status opens_and_fails(void) {
    stream_gate_open();
    return fails();
}

/* Nobody could look when the stream has passed, so the call waits for it. */
Test(moment, a_return_that_nobody_can_watch_is_waited_for) {
    core_pair pair;
    gpuipc_buffer *opened;
    gpuipc_context *other = core_context_new();
    const gpuipc_buffer_config config = {
        .struct_size = sizeof(config), .transport = GPUIPC_TRANSPORT_LEGACY, .bytes = core_unit};
    core_need_emulated();
    stream_gate_make();
    stream = stream_gate_stream();
    core_pair_open(&pair, core_context, other);
    check_ok(gpuipc_buffer_create(core_context, &config, &buffer_handle));
    check_ok(core_send(pair.server, &buffer_handle, 1));
    check_ok(core_receive(pair.client, &opened, 1));
    stream_gate_close(stream);
    core_set_failures("");
    moment_at(MOMENT_WATCH_BACK, 1, opens_and_fails);
    check_ok(gpuipc_buffer_return_async(opened, stream));
    moment_over();
    cr_assert_eq(core_calls("cuStreamSynchronize"), 1);
    cr_assert_eq(core_driver()->cuStreamQuery(stream), CUDA_SUCCESS);
    check_ok(gpuipc_buffer_release(opened));
    check_ok(gpuipc_buffer_release(buffer_handle));
    core_pair_close(&pair);
    check_ok(gpuipc_context_destroy(other));
    stream_gate_stream_end(stream);
    stream_gate_end();
}

/* ---- connections --------------------------------------------------------------------------------- */

Test(moment, a_message_whose_buffers_do_not_all_get_handles_gives_none) {
    core_pair pair;
    gpuipc_buffer *sent[2];
    gpuipc_buffer *opened[2] = {NULL, NULL};
    core_need_emulated();
    core_pair_open(&pair, core_context, core_context);
    for (unsigned i = 0; i < 2; i++) {
        sent[i] = core_buffer(core_unit, 0);
    }
    for (unsigned nth = 1; nth <= 2; nth++) {
        check_ok(core_send(pair.client, sent, 2));
        moment_at(MOMENT_PUBLISH, nth, fails);
        check_refused(GPUIPC_ERR_OUT_OF_MEMORY, "there is none",
                      core_receive(pair.server, opened, 2));
        moment_over();
        cr_assert(opened[0] == NULL && opened[1] == NULL);
        check_ok(gpuipc_buffer_await_returns(sent[0], SOON_MS));
        check_ok(gpuipc_buffer_await_returns(sent[1], SOON_MS));
    }
    check_ok(core_send(pair.client, sent, 2));
    check_ok(core_receive(pair.server, opened, 2));
    for (unsigned i = 0; i < 2; i++) {
        check_ok(gpuipc_buffer_release(opened[i]));
        check_ok(gpuipc_buffer_release(sent[i]));
    }
    core_pair_close(&pair);
}

/* As a pipe of Windows tells it: what that end had not taken in nobody returns. */
Test(moment, an_end_that_was_closed_first_has_what_it_took_in_and_no_more) {
    core_pair pair;
    core_need_emulated();
    core_pair_open(&pair, core_context, core_context);
    buffer_handle = core_buffer(core_unit, 0);
    check_ok(core_send(pair.server, &buffer_handle, 1));
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_buffer_await_returns(buffer_handle, 0));
    moment_at(MOMENT_END, 1, fails);
    check_ok(gpuipc_connection_close(pair.server));
    moment_over();
    pair.server = NULL;
    check_ok(gpuipc_buffer_await_returns(buffer_handle, 0));
    check_ok(gpuipc_buffer_release(buffer_handle));
    core_pair_close(&pair);
}

Test(moment, a_wait_handle_that_cannot_be_made_can_be_asked_for_again) {
    gpuipc_listener *listener;
    char name[UNIQUE_NAME_MAX];
    intptr_t native = -7;
    unique_name(name);
    check_ok(gpuipc_listener_open(core_context, name, NULL, &listener));
    moment_at(MOMENT_LISTENER, 1, fails);
    check_refused(GPUIPC_ERR_OUT_OF_MEMORY, "there is none",
                  gpuipc_listener_get_wait_handle(listener, &native));
    moment_over();
    cr_assert_eq(native, -7);
    check_ok(gpuipc_listener_get_wait_handle(listener, &native));
    cr_assert_neq(native, -7);
    check_ok(gpuipc_listener_close(listener));
}

/* ---- contexts ------------------------------------------------------------------------------------ */

/* Windows may deny the rights that handles are made with. */
Test(moment, a_context_that_cannot_be_made_is_no_answer_about_transports) {
    gpuipc_context *made = NULL;
    gpuipc_transport_info info = {.struct_size = sizeof(info)};
    const gpuipc_transport_pair pair = {.struct_size = sizeof(pair)};
    const gpuipc_context_config config = core_context_config();
    core_need_emulated();
    moment_at(MOMENT_ATTRIBUTES, 1, fails);
    check_refused(GPUIPC_ERR_OUT_OF_MEMORY, "there is none", gpuipc_context_create(&config, &made));
    moment_over();
    cr_assert_null(made);
    moment_at(MOMENT_FORK, 1, fails);
    check_refused(GPUIPC_ERR_OUT_OF_MEMORY, "there is none", gpuipc_context_create(&config, &made));
    moment_over();
    cr_assert_null(made);
    moment_at(MOMENT_ATTRIBUTES, 1, fails);
    check_refused(GPUIPC_ERR_OUT_OF_MEMORY, "there is none",
                  gpuipc_transport_query(NULL, GPUIPC_TRANSPORT_VMM, &pair, &info));
    moment_over();
    check_ok(gpuipc_transport_query(NULL, GPUIPC_TRANSPORT_VMM, &pair, &info));
}

static const char *path;

/* Another thread loads the same one, and is faster. */
static gpuipc_status load_first(void) {
    driver first;
    return driver_open(path, &first);
}

Test(moment, a_driver_that_two_threads_load_is_loaded_once) {
    driver second;
    driver third;
    char copy[512];
    core_need_emulated();
    (void)snprintf(copy, sizeof(copy), "%s", os_library_path(core_driver()->library));
    path = copy;
    moment_at(MOMENT_LIBRARY, 1, load_first);
    check_ok(driver_open(path, &second));
    moment_over();
    check_ok(driver_open(path, &third));
    cr_assert_eq(second.library, third.library);
}
