/* SPDX-License-Identifier: MIT */
/** @file Memory that comes home to the process that made it and is sent on from there. */
#include "core_fixture.h"

#define BYTES (UINT64_C(1) << 20)

TestSuite(handover_home, .init = core_start, .fini = core_finish, .timeout = 60);

/* A buffer that is sent on by a process that had sent it to itself: the memory is the original's. */
static void check_sent_on(gpuipc_transport transport) {
    const gpuipc_buffer_config config = {
        .struct_size = sizeof(config), .transport = transport, .bytes = BYTES};
    const driver *drv = core_driver();
    CUdeviceptr base = 0;
    size_t bytes = 0;
    gpuipc_buffer *original = NULL;
    gpuipc_buffer *home = NULL;
    gpuipc_buffer *away = NULL;
    core_pair pair;
    core_pair other;
    gpuipc_status status = gpuipc_buffer_create(core_context, &config, &original);
    if (status == GPUIPC_ERR_NOT_SUPPORTED) {
        cr_skip_test("%s", gpuipc_error_get()->sentence);
    }
    check_ok(status);
    core_enter_device(0);
    core_pair_open(&other, core_context, core_context);
    core_pair_open(&pair, core_context, core_context);
    check_ok(core_send(pair.client, &original, 1));
    check_ok(core_receive(pair.server, &home, 1));
    cr_assert_eq(core_info(home).lent_count, 0);
    check_ok(core_send(other.client, &home, 1));
    cr_assert_eq(core_info(home).lent_count, 1);
    cr_assert_eq(core_info(original).lent_count, 2);
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_buffer_await_returns(home, 0));
    check_ok(gpuipc_buffer_release(home));
    cr_assert_eq(core_info(original).lent_count, 1);
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_buffer_await_returns(original, 0));
    const CUdeviceptr address = core_info(original).address;
    check_ok(gpuipc_buffer_release(original));
    cr_assert_eq(drv->cuMemGetAddressRange(&base, &bytes, address), CUDA_SUCCESS,
                 "the memory is gone");
    check_ok(core_receive(other.server, &away, 1));
    cr_assert_eq(core_info(away).address, address);
    check_ok(gpuipc_buffer_release(away));
    core_pair_close(&other);
    core_pair_close(&pair); /* core_finish() sees that the memory goes in the end */
}

Test(handover_home, memory_of_a_pool_stays_until_it_is_returned_by_who_got_it_last) {
    check_sent_on(GPUIPC_TRANSPORT_POOL);
}

Test(handover_home, memory_of_legacy_ipc_stays_until_it_is_returned_by_who_got_it_last) {
    check_sent_on(GPUIPC_TRANSPORT_LEGACY);
}

/* What came home was given back, and who has it from there has it still. */
Test(handover_home, what_was_sent_on_from_home_is_waited_for_when_all_else_is_returned) {
    const gpuipc_buffer_config config = {
        .struct_size = sizeof(config), .transport = GPUIPC_TRANSPORT_LEGACY, .bytes = BYTES};
    gpuipc_buffer *original = NULL;
    gpuipc_buffer *home = NULL;
    gpuipc_buffer *away[2] = {NULL, NULL};
    core_pair pair;
    core_pair other;
    check_ok(gpuipc_buffer_create(core_context, &config, &original));
    core_pair_open(&other, core_context, core_context);
    core_pair_open(&pair, core_context, core_context);
    check_ok(core_send(pair.client, &original, 1));
    check_ok(core_receive(pair.server, &home, 1));
    for (size_t i = 0; i < 2; i++) {
        check_ok(core_send(other.client, &home, 1));
        check_ok(core_receive(other.server, &away[i], 1));
    }
    check_ok(gpuipc_buffer_return_async(home, NULL));
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_buffer_await_returns(original, 0));
    for (size_t i = 0; i < 2; i++) {
        check_status(GPUIPC_ERR_TIMEOUT, gpuipc_buffer_await_returns(original, 0));
        check_ok(gpuipc_buffer_release(away[i]));
    }
    check_ok(gpuipc_buffer_await_returns(original, SOON_MS));
    check_ok(gpuipc_buffer_release(home));
    check_ok(gpuipc_buffer_release(original));
    core_pair_close(&other);
    core_pair_close(&pair);
}

/* Hand-overs are the original's, in whose context their points would have to be. */
Test(handover_home, what_came_home_to_another_context_is_not_sent_on_from_there) {
    const gpuipc_buffer_config config = {
        .struct_size = sizeof(config), .transport = GPUIPC_TRANSPORT_LEGACY, .bytes = BYTES};
    gpuipc_context *second = core_context_new();
    gpuipc_buffer *original = NULL;
    gpuipc_buffer *home = NULL;
    core_pair between;
    check_ok(gpuipc_buffer_create(core_context, &config, &original));
    core_pair_open(&between, second, core_context);
    check_ok(core_send(between.client, &original, 1));
    check_ok(core_receive(between.server, &home, 1));
    check_refused(GPUIPC_ERR_NOT_SHAREABLE, "another context", core_send(between.server, &home, 1));
    cr_assert_eq(core_info(home).lent_count, 0);
    check_ok(gpuipc_buffer_await_returns(home, 0));
    check_ok(gpuipc_buffer_release(home));
    check_ok(gpuipc_buffer_release(original));
    core_pair_close(&between);
    check_ok(gpuipc_context_destroy(second));
}
