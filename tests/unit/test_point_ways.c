/* SPDX-License-Identifier: MIT */
/** @file Points where streams have no 64-bit memory operations: host functions write, and the calling
 *  thread waits. Emulated machines of that kind. */
#include "core_fixture.h"
#include "cuda/context.h"
#include "sync/deferred.h"
#include "sync/point.h"

static context *ctx;
static gpuipc_context *made;

static void begin(void) {
    core_environment_set("GPUIPC_EMULATED_MACHINE", "stream-words=0");
    core_start_without_context();
    made = core_context_new();
    check_ok(context_acquire(made, &ctx));
}

static void finish(void) {
    context_unreference(ctx);
    (void)gpuipc_context_destroy(made);
    core_finish();
    core_environment_set("GPUIPC_EMULATED_MACHINE", NULL);
}

TestSuite(point_ways, .init = begin, .fini = finish, .timeout = 60);

static gpuipc_status write_one(const point_word *word, point_word *out_passage) {
    device_scope scope;
    check_ok(device_enter(ctx, 0, &scope));
    cr_assert_not(point_has_stream_waits(ctx));
    gpuipc_status status = point_write_async(word, 1, NULL, out_passage);
    device_leave(&scope);
    return status;
}

static void synchronize(void) {
    device_scope scope;
    check_ok(device_enter(ctx, 0, &scope));
    cr_assert_eq(ctx->driver.cuStreamSynchronize(NULL), CUDA_SUCCESS);
    device_leave(&scope);
}

static point_page *page_make(point_word *out_word) {
    const os_peer peer = {.process_id = os_process_id(), .process = {-1}};
    point_page *page;
    point_peer *other;
    check_ok(point_peer_new(ctx, &peer, NULL, &other));
    check_ok(point_page_create(ctx, other, &page));
    point_peer_unreference(other, false);
    const point at = {page, 0, 2};
    *out_word = point_ready_word(&at);
    return page;
}

Test(point_ways, a_host_function_writes) {
    point_word word;
    point_word passage;
    point_page *page = page_make(&word);
    core_set_stream_delay(50);
    check_ok(write_one(&word, &passage));
    point_page_unreference(page, false); /* the function is still to come */
    cr_assert_not_null(ctx->deferred->in_use.first);
    cr_assert_not(deferred_run(ctx->deferred));
    synchronize();
    cr_assert(point_is_reached(&passage));
    cr_assert(deferred_run(ctx->deferred));
}

/* A graph would call the function, and the mark would be made by no stream. */
Test(point_ways, a_mark_is_not_captured) {
    const gpuipc_buffer_config config = {.struct_size = sizeof(config), .bytes = 1};
    gpuipc_buffer *buffer;
    gpuipc_mark none;
    CUstream stream;
    core_enter_device(0);
    check_ok(gpuipc_buffer_create(made, &config, &buffer));
    cr_assert_eq(core_driver()->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    core_set_captured(true, stream);
    check_status(GPUIPC_ERR_NOT_SUPPORTED, gpuipc_buffer_mark(buffer, stream, &none));
    core_set_captured(false, NULL);
    cr_assert_eq(core_driver()->cuStreamDestroy(stream), CUDA_SUCCESS);
    check_ok(gpuipc_buffer_release(buffer));
}

Test(point_ways, a_host_function_that_is_refused) {
    point_word word;
    point_word passage;
    point_page *page = page_make(&word);
    core_set_failures("cuLaunchHostFunc:1=801");
    cr_assert_neq(write_one(&word, &passage), GPUIPC_OK);
    core_set_failures("");
    cr_assert_not(point_is_reached(&word));
    point_page_unreference(page, false);
    cr_assert_null(ctx->deferred->in_use.first);
}

Test(point_ways, without_host_functions_the_thread_waits) {
    point_word word;
    point_word passage;
    point_page *page = page_make(&word);
    ctx->driver.has_hostfunc = false;
    core_set_stream_delay(50);
    check_ok(write_one(&word, &passage));
    cr_assert(point_is_reached(&word));
    cr_assert(point_is_reached(&passage));
    core_set_failures("cuStreamSynchronize:1=999");
    check_status(GPUIPC_ERR_CUDA, write_one(&word, &passage));
    core_set_failures("");
    point_page_unreference(page, false);
}

/* ---- both ends of a hand-over ----------------------------------------------------------------- */

/* The host function marks the contents, and each call that would put a wait on a stream waits itself. */
Test(point_ways, calls_wait_where_streams_cannot) {
    const gpuipc_buffer_config config = {.struct_size = sizeof(config), .bytes = 4096};
    core_pair pair = {0};
    gpuipc_buffer *buffer;
    gpuipc_buffer *opened;
    uint32_t found = 0;
    core_pair_open(&pair, made, made);
    check_ok(gpuipc_buffer_create(made, &config, &buffer));
    core_set_stream_delay(100);
    check_ok(gpuipc_buffer_fill_async(buffer, 0, 4096, 6, 4, NULL));
    const gpuipc_outgoing message = {.struct_size = sizeof(message),
                                     .buffers = &buffer,
                                     .buffer_count = 1,
                                     .flags = GPUIPC_SEND_ASYNC};
    gpuipc_incoming arriving = {.struct_size = sizeof(arriving),
                                .buffers = &opened,
                                .buffer_capacity = 1,
                                .flags = GPUIPC_RECEIVE_ASYNC};
    check_ok(gpuipc_connection_send(pair.client, &message, SOON_MS));
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_connection_receive(pair.server, &arriving, 0));
    check_ok(gpuipc_connection_receive(pair.server, &arriving, SOON_MS));
    core_set_stream_delay(20);
    check_ok(gpuipc_buffer_read(opened, 0, &found, sizeof(found)));
    cr_assert_eq(found, 6);
    check_ok(gpuipc_buffer_return_async(opened, NULL));
    check_ok(gpuipc_buffer_await_returns_async(buffer, NULL));
    cr_assert(deferred_is_quiet());
    check_ok(gpuipc_buffer_await_returns(buffer, 0));
    check_ok(gpuipc_buffer_release(opened));
    check_ok(gpuipc_buffer_release(buffer));
    core_pair_close(&pair);
}
