/* SPDX-License-Identifier: MIT */
/** @file What a context keeps alive so that the next hand-over is fast, and how memory is laid out for its openers. */
#include <gpuipc/gpuipc_native.h>
#include <stdio.h>
#include <string.h>

#include "core_fixture.h"
#include "memory/keep_alive.h"
#include "message/connection.h"

#define MEBIBYTE (UINT64_C(1) << 20)

static core_pair pair;
static unsigned said;
static char last_said[512];

static void hear(void *user_data, gpuipc_log_level level, const char *sentence) {
    (void)user_data;
    said += level == GPUIPC_LOG_INFO;
    (void)snprintf(last_said, sizeof(last_said), "%s", sentence);
}

static void open_context(uint32_t flags) {
    gpuipc_context_config config = core_context_config();
    config.flags = flags;
    config.log = hear;
    core_open_context(&config);
    core_need_emulated();
    core_need_devices(2);
    core_pair_open(&pair, core_context, core_context);
    said = 0;
    core_set_failures("");
}

static void finish(void) {
    if (core_context != NULL) {
        core_set_failures("");
        core_pair_close(&pair);
    }
    core_finish();
}

TestSuite(keep_alive, .init = core_start_without_context, .fini = finish, .timeout = 60);

/* Sends and drops what came. */
static void hand_over(gpuipc_buffer *buffer) {
    gpuipc_buffer *opened;
    check_ok(core_send(pair.client, &buffer, 1));
    check_ok(core_receive(pair.server, &opened, 1));
    check_ok(gpuipc_buffer_release(opened));
}

Test(keep_alive, the_first_export_makes_one_handle_that_stays) {
    open_context(0);
    gpuipc_buffer *first = core_buffer(core_unit, 0);
    gpuipc_buffer *second = core_buffer(core_unit, 0);
    core_set_failures("");
    hand_over(first);
    cr_assert_eq(core_calls("cuMemCreate"), 1);
    cr_assert_eq(core_calls("cuMemExportToShareableHandle"), 2);
    core_set_failures("");
    hand_over(second);
    cr_assert_eq(core_calls("cuMemCreate"), 0);
    cr_assert_eq(core_calls("cuMemExportToShareableHandle"), 1);
    cr_assert_eq(core_calls("cuDevicePrimaryCtxRetain"), 0, "nothing here needs a CUDA context");
    check_ok(gpuipc_buffer_release(first));
    check_ok(gpuipc_buffer_release(second));
}

Test(keep_alive, so_does_the_first_native_export) {
    gpuipc_native_layout layout = {.struct_size = sizeof(layout)};
    gpuipc_native_segment exported;
    size_t count;
    open_context(0);
    gpuipc_buffer *buffer = core_buffer(core_unit, 0);
    core_set_failures("");
    for (unsigned i = 0; i < 2; i++) {
        os_handle handle;
        check_ok(gpuipc_native_export(buffer, &exported, 1, &layout, &count));
        check_ok(os_handle_adopt(exported.handle.value, &handle));
        os_handle_close(&handle);
        cr_assert_eq(core_calls("cuMemCreate"), 1);
    }
    check_ok(gpuipc_buffer_release(buffer));
}

Test(keep_alive, one_mapping_is_made_for_each_other_device) {
    open_context(0);
    gpuipc_buffer *first = core_buffer(core_unit, 0);
    gpuipc_buffer *second = core_buffer(core_unit, 0);
    core_set_failures("");
    check_ok(gpuipc_buffer_set_access(first, 0, GPUIPC_ACCESS_READ_WRITE));
    cr_assert_eq(core_calls("cuMemCreate"), 0, "the owner needs none");
    check_ok(gpuipc_buffer_set_access(first, 1, GPUIPC_ACCESS_READ));
    cr_assert_eq(core_calls("cuMemCreate"), 1);
    cr_assert_eq(core_calls("cuMemMap"), 1);
    cr_assert_eq(core_calls("cuMemSetAccess"), 3);
    core_set_failures("");
    check_ok(gpuipc_buffer_set_access(second, 1, GPUIPC_ACCESS_READ));
    cr_assert_eq(core_calls("cuMemCreate"), 0);
    cr_assert_eq(core_calls("cuMemSetAccess"), 1);
    cr_assert_eq(core_calls("cuDevicePrimaryCtxRetain"), 0);
    check_ok(gpuipc_buffer_release(first));
    check_ok(gpuipc_buffer_release(second));
}

Test(keep_alive, a_context_can_do_without) {
    open_context(GPUIPC_CONTEXT_NO_KEEP_ALIVE);
    gpuipc_buffer *buffer = core_buffer(core_unit, 0);
    core_set_failures("");
    hand_over(buffer);
    check_ok(gpuipc_buffer_set_access(buffer, 1, GPUIPC_ACCESS_READ));
    cr_assert_eq(core_calls("cuMemCreate"), 0);
    cr_assert_eq(core_calls("cuMemExportToShareableHandle"), 1);
    check_ok(gpuipc_buffer_release(buffer));
}

/* A record of a failure before, which the calls below must leave as it is. */
static void fail_before(void) {
    uint32_t found;
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_device_find(core_context, NULL, &found));
}

static void check_told_once(const char *rule, const char *operation) {
    const gpuipc_error *error = gpuipc_error_get();
    cr_assert_eq(error->status, GPUIPC_ERR_INVALID_ARGUMENT, "%s", rule);
    cr_assert_str_eq(error->operation, "gpuipc_device_find", "%s", rule);
    cr_assert_eq(said, 1, "%s: %u", rule, said);
    cr_assert_not_null(strstr(last_said, operation), "%s: %s", rule, last_said);
}

static void close_context(void) {
    core_set_failures("");
    core_pair_close(&pair);
    check_ok(gpuipc_context_destroy(core_context));
    core_context = NULL;
}

Test(keep_alive, an_export_works_without_it) {
    static const char *const calls[] = {"cuMemCreate", "cuMemExportToShareableHandle"};
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        char rule[64];
        open_context(0);
        gpuipc_buffer *buffer = core_buffer(core_unit, 0);
        gpuipc_buffer *other = core_buffer(core_unit, 0);
        (void)snprintf(rule, sizeof(rule), "%s:1=999", calls[i]);
        fail_before();
        core_set_failures(rule);
        hand_over(buffer);
        check_told_once(rule, calls[i]);
        cr_assert_eq(core_calls("cuMemRelease"), (i == 1) + 1u, "and that of what was opened");
        core_set_failures("");
        hand_over(other);
        cr_assert_eq(core_calls("cuMemCreate"), 0, "it is not tried again");
        cr_assert_eq(said, 1);
        check_ok(gpuipc_buffer_release(buffer));
        check_ok(gpuipc_buffer_release(other));
        close_context();
    }
}

Test(keep_alive, access_is_given_without_it) {
    static const char *const calls[] = {"cuMemCreate", "cuMemAddressReserve", "cuMemMap",
                                        "cuMemSetAccess"};
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        char rule[64];
        open_context(0);
        gpuipc_buffer *buffer = core_buffer(core_unit, 0);
        (void)snprintf(rule, sizeof(rule), "%s:1=999", calls[i]);
        fail_before();
        core_set_failures(rule);
        check_ok(gpuipc_buffer_set_access(buffer, 1, GPUIPC_ACCESS_READ));
        check_told_once(rule, calls[i]);
        check_ok(gpuipc_buffer_set_access(buffer, 1, GPUIPC_ACCESS_READ_WRITE));
        cr_assert_eq(core_calls("cuMemCreate"), 1, "it is not tried again");
        cr_assert_eq(said, 1);
        check_ok(gpuipc_buffer_release(buffer));
        close_context();
    }
}

static void let_a_second_pass(keep_alive_try *next) {
    cr_assert_gt(atomic_load(next), os_clock_ns());
    atomic_store(next, 1);
}

Test(keep_alive, what_was_short_is_tried_again_later) {
    context *ctx;
    open_context(0);
    check_ok(context_acquire(core_context, &ctx));
    gpuipc_buffer *buffer = core_buffer(core_unit, 0);
    core_set_failures("cuMemCreate:1=2;cuMemCreate:2=2"); /* CUDA_ERROR_OUT_OF_MEMORY */
    for (int i = 0; i < 3; i++) {
        hand_over(buffer);
        cr_assert_eq(core_calls("cuMemCreate"), 1u + (i == 2));
        cr_assert_eq(said, 1);
        if (i == 1) {
            let_a_second_pass(&ctx->keep_alive->next_export);
        }
    }
    let_a_second_pass(&ctx->keep_alive->next_export);
    for (int i = 0; i < 2; i++) {
        hand_over(buffer);
        cr_assert_eq(core_calls("cuMemCreate"), 3, "now it is there");
    }
    said = 0;
    core_set_failures("cuMemCreate:1=2");
    for (int i = 0; i < 4; i++) {
        check_ok(gpuipc_buffer_set_access(
            buffer, 1, i % 2 == 0 ? GPUIPC_ACCESS_READ : GPUIPC_ACCESS_READ_WRITE));
        cr_assert_eq(core_calls("cuMemCreate"), 1u + (i >= 2));
        cr_assert_eq(said, 1);
        if (i == 1) {
            let_a_second_pass(&ctx->keep_alive->peers[1].next);
        }
    }
    check_ok(gpuipc_buffer_release(buffer));
    context_unreference(ctx);
}

static gpuipc_status set_access(void *argument) {
    return gpuipc_buffer_set_access(argument, 1, GPUIPC_ACCESS_READ_WRITE);
}

Test(keep_alive, many_threads_make_one) {
    enum {
        THREADS = 4
    };
    core_waiter waiters[THREADS];
    open_context(0);
    gpuipc_buffer *buffer = core_buffer(core_unit, 0);
    core_set_failures("cuMemCreate:1=delay50");
    for (size_t i = 0; i < THREADS; i++) {
        core_waiter_begin(&waiters[i], set_access, buffer);
    }
    for (size_t i = 0; i < THREADS; i++) {
        check_ok(core_waiter_end(&waiters[i]));
    }
    cr_assert_eq(core_calls("cuMemCreate"), 1);
    check_ok(gpuipc_buffer_release(buffer));
}

/* ---- layout for openers ------------------------------------------------------------------ */

static gpuipc_status make(uint64_t bytes, uint64_t segment_bytes, const gpuipc_uuid *openers,
                          uint32_t count, gpuipc_buffer **out_buffer) {
    const gpuipc_buffer_config config = {.struct_size = sizeof(config),
                                         .bytes = bytes,
                                         .segment_bytes = segment_bytes,
                                         .openers = openers,
                                         .opener_count = count};
    return gpuipc_buffer_create(core_context, &config, out_buffer);
}

Test(keep_alive, memory_is_laid_out_for_the_devices_that_will_open_it) {
    gpuipc_device_info info[2] = {{.struct_size = sizeof(info[0])},
                                  {.struct_size = sizeof(info[1])}};
    gpuipc_uuid openers[2];
    open_context(0);
    for (uint32_t i = 0; i < 2; i++) {
        check_ok(gpuipc_device_get_info(core_context, i, &info[i]));
        openers[i] = info[i].uuid;
    }
    const struct {
        uint64_t bytes;
        uint64_t segment_bytes;
        const gpuipc_uuid *openers;
        uint32_t count;
        uint32_t segments;
    } rows[] = {
        {1024 * MEBIBYTE, 0, NULL, 0, 1},
        {1024 * MEBIBYTE, 0, &openers[0], 1, 1},
        {1024 * MEBIBYTE, 0, &openers[1], 1, 3},
        {1024 * MEBIBYTE, 0, openers, 2, 3},
        {1024 * MEBIBYTE, 512 * MEBIBYTE, openers, 2, 2},
        {512 * MEBIBYTE - core_unit, 0, openers, 2, 1},
        {510 * 5 * MEBIBYTE, 0, openers, 2, 5},
        {512 * MEBIBYTE - 1, 0, openers, 2, 2}, /* as it is rounded */
        {512 * MEBIBYTE + 1, 0, openers, 2, 2},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        gpuipc_buffer *buffer;
        check_ok(
            make(rows[i].bytes, rows[i].segment_bytes, rows[i].openers, rows[i].count, &buffer));
        cr_assert_eq(core_info(buffer).segment_count, rows[i].segments, "row %zu: %u", i,
                     core_info(buffer).segment_count);
        cr_assert_geq(core_info(buffer).allocated_bytes, rows[i].bytes);
        check_ok(gpuipc_buffer_release(buffer));
    }
}

Test(keep_alive, what_is_made_for_openers_has_its_handles_at_once) {
    static const char call[] = "cuMemExportToShareableHandle";
    gpuipc_device_info info = {.struct_size = sizeof(info)};
    gpuipc_buffer *buffer;
    open_context(GPUIPC_CONTEXT_NO_KEEP_ALIVE);
    check_ok(gpuipc_device_get_info(core_context, 0, &info));
    core_set_failures("");
    check_ok(make(3 * core_unit, core_unit, &info.uuid, 1, &buffer));
    cr_assert_eq(core_calls(call), 3);
    gpuipc_native_segment segments[3];
    gpuipc_native_layout layout = {.struct_size = sizeof(layout)};
    size_t count;
    check_ok(gpuipc_native_export(buffer, segments, 3, &layout, &count));
    cr_assert_eq(core_calls(call), 3, "none is made again");
    for (size_t i = 0; i < count; i++) {
        os_handle one;
        check_ok(os_handle_adopt(segments[i].handle.value, &one));
        os_handle_close(&one);
    }
    check_ok(gpuipc_buffer_release(buffer));
    /* What cannot be made ahead is left to the hand-over. */
    core_set_failures("cuMemExportToShareableHandle:1=304");
    check_ok(make(core_unit, core_unit, &info.uuid, 1, &buffer));
    check_ok(gpuipc_native_export(buffer, segments, 3, &layout, &count));
    os_handle one;
    check_ok(os_handle_adopt(segments[0].handle.value, &one));
    os_handle_close(&one);
    core_set_failures("");
    check_ok(gpuipc_buffer_release(buffer));
}

Test(keep_alive, openers_that_make_no_sense_are_refused) {
    gpuipc_buffer *buffer = NULL;
    open_context(0);
    gpuipc_buffer_config config = {
        .struct_size = sizeof(config), .bytes = core_unit, .opener_count = 1};
    check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "openers",
                  gpuipc_buffer_create(core_context, &config, &buffer));
    /* A program that was built before there were openers: what lies behind its struct is not looked at. */
    config.struct_size = offsetof(gpuipc_buffer_config, openers);
    config.opener_count = 1;
    check_ok(gpuipc_buffer_create(core_context, &config, &buffer));
    check_ok(gpuipc_buffer_release(buffer));
}
