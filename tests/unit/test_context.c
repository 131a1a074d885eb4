/* SPDX-License-Identifier: MIT */
/** @file Contexts: made, looked at, given up. */
#include "core_fixture.h"

#include <stddef.h>
#include <string.h>

TestSuite(context, .init = core_start, .fini = core_finish, .timeout = 60);

Test(context, the_config_may_be_left_out) {
    gpuipc_context *context = NULL;
    check_ok(gpuipc_context_create(NULL, &context));
    uint32_t count = 0;
    check_ok(gpuipc_device_count(context, &count));
    cr_assert_eq(count, core_device_count);
    check_ok(gpuipc_context_destroy(context));
}

Test(context, wrong_configs_are_refused) {
    gpuipc_context *context = NULL;
    gpuipc_context_config config = core_context_config();
    config.struct_size = offsetof(gpuipc_context_config, max_kept_handles) - 1;
    check_status(GPUIPC_ERR_STRUCT_SIZE, gpuipc_context_create(&config, &context));
    config.struct_size = 0;
    check_status(GPUIPC_ERR_STRUCT_SIZE, gpuipc_context_create(&config, &context));
    config = core_context_config();
    config.flags = 0x80000000u;
    check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "0x80000000",
                  gpuipc_context_create(&config, &context));
    config.flags = GPUIPC_CONTEXT_SHARED_DIRECTORY | 8u;
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_context_create(&config, &context));
    config = core_context_config();
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_context_create(&config, NULL));
    cr_assert_null(context);
}

Test(context, a_longer_config_of_a_newer_program_is_read) {
    struct {
        gpuipc_context_config known;
        uint64_t newer;
    } config = {core_context_config(), 0};
    gpuipc_context *context = NULL;
    config.known.struct_size = sizeof(config);
    check_ok(gpuipc_context_create(&config.known, &context));
    check_ok(gpuipc_context_destroy(context));
    context = NULL;
    config.newer = 1;
    check_status(GPUIPC_ERR_STRUCT_SIZE, gpuipc_context_create(&config.known, &context));
    cr_assert_null(context);
}

/* What a context's log was told of hardware queues. */
static void count_queues(void *user_data, gpuipc_log_level level, const char *sentence) {
    if (strstr(sentence, "CUDA_DEVICE_MAX_CONNECTIONS") != NULL) {
        cr_assert_eq(level, GPUIPC_LOG_WARNING);
        cr_assert_not_null(strstr(sentence, "8 or more"), "%s", sentence);
        ++*(unsigned *)user_data;
    }
}

static unsigned warnings_with(const char *connections) {
    unsigned count = 0;
    gpuipc_context *context = NULL;
    gpuipc_context_config config = core_context_config();
    config.log = count_queues;
    config.log_user_data = &count;
    core_environment_set("CUDA_DEVICE_MAX_CONNECTIONS", connections);
    check_ok(gpuipc_context_create(&config, &context));
    check_ok(gpuipc_context_destroy(context));
    return count;
}

Test(context, one_hardware_queue_is_logged_once) {
    cr_assert_eq(warnings_with("1"), 1);
    cr_assert_eq(warnings_with("8"), 0);
    cr_assert_eq(warnings_with("32"), 0);
    cr_assert_eq(warnings_with(""), 0);
    cr_assert_eq(warnings_with(NULL), 0);
}

Test(context, every_context_has_an_instance_id_of_its_own) {
    gpuipc_context *other = core_context_new();
    gpuipc_context_info first = {.struct_size = sizeof(first)};
    gpuipc_context_info again = {.struct_size = sizeof(again)};
    gpuipc_context_info second = {.struct_size = sizeof(second)};
    static const uint8_t zeroes[16];
    check_ok(gpuipc_context_get_info(core_context, &first));
    check_ok(gpuipc_context_get_info(core_context, &again));
    check_ok(gpuipc_context_get_info(other, &second));
    cr_assert_eq(memcmp(&first, &again, sizeof(first)), 0);
    cr_assert_neq(memcmp(first.instance_id, second.instance_id, 16), 0);
    cr_assert_neq(memcmp(first.instance_id, zeroes, 16), 0);
    cr_assert_str_eq(first.driver_path, second.driver_path);
    cr_assert_geq(first.driver_version, 11040);
    cr_assert_geq(first.device_count, 1);
    check_ok(gpuipc_context_destroy(other));
}

Test(context, info_needs_a_struct_size) {
    gpuipc_context_info info = {.struct_size = offsetof(gpuipc_context_info, instance_id)};
    check_status(GPUIPC_ERR_STRUCT_SIZE, gpuipc_context_get_info(core_context, &info));
    cr_assert_eq(info.device_count, 0);
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_context_get_info(core_context, NULL));
}

Test(context, a_context_is_destroyed_once) {
    gpuipc_context *other = core_context_new();
    check_ok(gpuipc_context_destroy(other));
    check_status(GPUIPC_ERR_RELEASED, gpuipc_context_destroy(other));
    gpuipc_context_info info = {.struct_size = sizeof(info)};
    check_status(GPUIPC_ERR_RELEASED, gpuipc_context_get_info(other, &info));
    check_ok(gpuipc_context_destroy(NULL));
}

Test(context, what_was_made_of_it_outlives_it) {
    gpuipc_context *other = core_context_new();
    const gpuipc_buffer_config config = {.struct_size = sizeof(config), .bytes = core_unit};
    gpuipc_buffer *buffer;
    core_pair pair;
    check_ok(gpuipc_buffer_create(other, &config, &buffer));
    core_pair_open(&pair, other, other);
    check_ok(gpuipc_context_destroy(other));

    core_write_pattern(buffer, 1);
    gpuipc_buffer *opened;
    check_ok(core_send(pair.client, &buffer, 1));
    check_ok(core_receive(pair.server, &opened, 1));
    core_check_pattern(opened, 1);
    check_ok(gpuipc_buffer_release(opened));
    check_ok(gpuipc_buffer_release(buffer));
    core_pair_close(&pair);
}

Test(context, the_callers_current_context_stays) {
    CUcontext before = NULL;
    CUcontext after = NULL;
    const driver *drv = core_driver();
    const uint32_t last = core_device_count - 1;
    cr_assert_eq(drv->cuCtxGetCurrent(&before), CUDA_SUCCESS);
    cr_assert_null(before);
    gpuipc_buffer *buffer = core_buffer(core_unit, 0);
    core_write_pattern(buffer, 3);
    cr_assert_eq(drv->cuCtxGetCurrent(&after), CUDA_SUCCESS);
    cr_assert_null(after);

    core_enter_device((int)last);
    cr_assert_eq(drv->cuCtxGetCurrent(&before), CUDA_SUCCESS);
    cr_assert_not_null(before);
    core_pair pair;
    gpuipc_buffer *opened;
    core_pair_open(&pair, core_context, core_context);
    check_ok(core_send(pair.client, &buffer, 1));
    check_ok(core_receive(pair.server, &opened, 1));
    core_check_pattern(opened, 3);
    check_ok(gpuipc_buffer_fill_async(opened, 0, core_unit, 0, 4, NULL));
    check_status(GPUIPC_ERR_OUT_OF_RANGE, gpuipc_buffer_read(opened, core_unit, &after, 1));
    check_ok(gpuipc_buffer_release(opened));
    check_ok(gpuipc_buffer_release(buffer));
    cr_assert_eq(drv->cuCtxGetCurrent(&after), CUDA_SUCCESS);
    cr_assert_eq(after, before);
    core_pair_close(&pair);
}

Test(context, no_device_is_started_before_it_is_used) {
    unsigned flags = 0;
    int active = 1;
    const driver *drv = core_driver();
    cr_assert_eq(drv->cuDevicePrimaryCtxGetState(0, &flags, &active), CUDA_SUCCESS);
    cr_assert_eq(active, 0);
    gpuipc_buffer *buffer = core_buffer(core_unit, 0);
    core_write_pattern(buffer, 1);
    for (int i = 0; i < (int)core_device_count; i++) {
        cr_assert_eq(drv->cuDevicePrimaryCtxGetState(i, &flags, &active), CUDA_SUCCESS);
        cr_assert_eq(active, i == 0);
    }
    check_ok(gpuipc_buffer_release(buffer));
}

/* One that was computed, and is over, is not "for ever". */
Test(context, a_timeout_below_minus_one_is_refused) {
    const gpuipc_mark mark = {{0}};
    gpuipc_incoming in = GPUIPC_INCOMING_INIT;
    gpuipc_outgoing out = GPUIPC_OUTGOING_INIT;
    gpuipc_contents contents = GPUIPC_CONTENTS_INIT;
    gpuipc_connection *made = NULL;
#define REFUSED(call) check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "timeout_ms is -2", call)
    REFUSED(gpuipc_listener_accept(NULL, -2, &made));
    REFUSED(gpuipc_connection_open(core_context, "nobody", NULL, -2, &made));
    REFUSED(gpuipc_connection_send(NULL, &out, -2));
    REFUSED(gpuipc_connection_receive(NULL, &in, -2));
    REFUSED(gpuipc_connection_send_contents(NULL, &contents, -2));
    REFUSED(gpuipc_connection_receive_contents(NULL, &contents, -2));
    REFUSED(gpuipc_buffer_await_ready(NULL, -2));
    REFUSED(gpuipc_buffer_await_returns(NULL, -2));
    REFUSED(gpuipc_buffer_await_mark(NULL, &mark, -2));
    REFUSED(gpuipc_buffer_await_loan(NULL, &mark, -2));
    REFUSED(gpuipc_buffer_await_loan_async(NULL, &mark, NULL, -2));
    REFUSED(gpuipc_server_poll(NULL, -2));
#undef REFUSED
}
