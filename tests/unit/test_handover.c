/* SPDX-License-Identifier: MIT */
/** @file Buffers that are handed over while their contents are still being made, and given back while they
 *  are still being read. Both ends are in this process, each with a stream of its own. */
#include <stdio.h>
#include <string.h>

#include "core_fixture.h"
#include "memory/buffer.h"
#include "message/connection.h"

static core_pair pair;
static gpuipc_buffer *sent;
static gpuipc_buffer *seen; /* where the consumer copies what it got */
static CUstream producer;
static CUstream consumer;
static _Atomic uint64_t *gate; /* streams wait behind it */
static CUdeviceptr gate_address;

static bool has_words(void) {
    const driver *drv = core_driver();
    int can = 0;
    return drv->has_word &&
           drv->cuDeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 0) ==
               CUDA_SUCCESS &&
           can != 0;
}

static void begin(void) {
    core_start();
    const driver *drv = core_driver();
    void *memory;
    core_enter_device(0);
    if (!has_words()) {
        cr_skip_test("the device has no 64-bit stream memory operations");
    }
    cr_assert_eq(drv->cuStreamCreate(&producer, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    cr_assert_eq(drv->cuStreamCreate(&consumer, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    cr_assert_eq(
        drv->cuMemHostAlloc(&memory, 4096, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP),
        CUDA_SUCCESS);
    cr_assert_eq(drv->cuMemHostGetDevicePointer(&gate_address, memory, 0), CUDA_SUCCESS);
    gate = memory;
    atomic_store(gate, 0);
    core_pair_open(&pair, core_context, core_context);
    sent = core_buffer(core_unit, 0);
    seen = core_buffer(core_unit, 0);
}

static void finish(void) {
    const driver *drv = core_driver();
    (void)gpuipc_buffer_release(sent);
    (void)gpuipc_buffer_release(seen);
    core_pair_close(&pair);
    (void)drv->cuStreamDestroy(producer);
    (void)drv->cuStreamDestroy(consumer);
    (void)drv->cuMemFreeHost((void *)gate);
    core_finish();
}

TestSuite(handover, .init = begin, .fini = finish, .timeout = 60);

/* What is put on the stream from now on waits until gate_open(). */
static void gate_close(CUstream stream) {
    atomic_store(gate, 0);
    cr_assert_eq(core_driver()->cuStreamWaitValue64(stream, gate_address, 1, 0), CUDA_SUCCESS);
}

static void gate_open(void) {
    atomic_store(gate, 1);
}

static void synchronize(CUstream stream) {
    cr_assert_eq(core_driver()->cuStreamSynchronize(stream), CUDA_SUCCESS);
}

static void check_waits(CUstream stream) {
    cr_assert_eq(core_driver()->cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
}

static gpuipc_status send_with(uint32_t flags, gpuipc_stream stream) {
    const gpuipc_outgoing message = {.struct_size = sizeof(message),
                                     .buffers = &sent,
                                     .buffer_count = 1,
                                     .flags = flags,
                                     .stream = stream};
    return gpuipc_connection_send(pair.client, &message, SOON_MS);
}

static gpuipc_status receive_with(uint32_t flags, int timeout_ms, gpuipc_buffer **out_buffer) {
    gpuipc_incoming message = {.struct_size = sizeof(message),
                               .buffers = out_buffer,
                               .buffer_capacity = 1,
                               .flags = flags,
                               .stream = consumer};
    return gpuipc_connection_receive(pair.server, &message, timeout_ms);
}

static void fill(uint32_t value) {
    check_ok(gpuipc_buffer_fill_async(sent, 0, core_unit, value, 4, producer));
}

static void check_seen(uint32_t value) {
    uint32_t found = 0;
    check_ok(gpuipc_buffer_read(seen, 16, &found, sizeof(found)));
    cr_assert_eq(found, value, "%u, not %u", found, value);
}

Test(handover, contents_that_come_late_are_seen_by_the_stream) {
    gpuipc_buffer *opened;
    gate_close(producer);
    fill(7);
    if (core_is_emulated) {
        core_set_failures(""); /* counts anew */
    }
    check_ok(send_with(GPUIPC_SEND_ASYNC, producer));
    check_ok(receive_with(GPUIPC_RECEIVE_ASYNC, SOON_MS, &opened));
    check_ok(gpuipc_buffer_copy_async(seen, 0, opened, 0, core_unit, consumer));
    if (core_is_emulated) {
        cr_assert_eq(core_calls("cuStreamSynchronize"), 0);
        cr_assert_eq(core_calls("cuEventSynchronize"), 0);
        cr_assert_eq(core_calls("cuCtxSynchronize"), 0);
    }
    check_waits(consumer);
    gate_open();
    synchronize(consumer);
    check_seen(7);
    cr_assert_eq(core_info(opened).is_lost, 0);
    check_ok(gpuipc_buffer_release(opened));
}

Test(handover, a_call_that_is_not_asynchronous_waits) {
    gpuipc_buffer *opened;
    gate_close(producer);
    fill(8);
    check_ok(send_with(GPUIPC_SEND_ASYNC, producer));
    check_status(GPUIPC_ERR_TIMEOUT, receive_with(0, 0, &opened));
    check_status(GPUIPC_ERR_TIMEOUT, receive_with(0, 20, &opened));
    gate_open();
    check_ok(receive_with(0, SOON_MS, &opened));
    check_ok(gpuipc_buffer_copy_async(seen, 0, opened, 0, core_unit, consumer));
    synchronize(consumer);
    check_seen(8);
    check_ok(gpuipc_buffer_release(opened));
}

Test(handover, nothing_is_waited_for_where_the_contents_are_there) {
    gpuipc_buffer *opened;
    fill(9);
    check_ok(send_with(GPUIPC_SEND_ASYNC, producer));
    synchronize(producer);
    if (core_is_emulated) {
        core_set_failures("");
    }
    check_ok(receive_with(GPUIPC_RECEIVE_ASYNC, SOON_MS, &opened));
    if (core_is_emulated) {
        cr_assert_eq(core_calls("cuStreamBatchMemOp"), 0);
    }
    check_ok(gpuipc_buffer_release(opened));
}

/* The default streams of both devices may make the contents of either buffer. */
Test(handover, the_default_streams_of_several_devices_are_all_waited_for) {
    core_need_devices(2);
    const gpuipc_buffer_config config = {
        .struct_size = sizeof(config), .device = GPUIPC_DEVICE(1), .bytes = core_unit};
    gpuipc_buffer *buffers[2] = {sent, NULL};
    gpuipc_buffer *opened[2];
    check_ok(gpuipc_buffer_create(core_context, &config, &buffers[1]));
    check_ok(gpuipc_buffer_fill_async(buffers[1], 0, core_unit, 1, 4, NULL));
    device_scope scope;
    context *ctx;
    check_ok(context_acquire(core_context, &ctx));
    check_ok(device_enter(ctx, 1, &scope));
    synchronize(NULL);
    gate_close(NULL);
    device_leave(&scope);
    const gpuipc_outgoing message = {.struct_size = sizeof(message),
                                     .buffers = buffers,
                                     .buffer_count = 2,
                                     .flags = GPUIPC_SEND_ASYNC};
    gpuipc_incoming arriving = {.struct_size = sizeof(arriving),
                                .buffers = opened,
                                .buffer_capacity = 2,
                                .flags = GPUIPC_RECEIVE_ASYNC,
                                .stream = consumer};
    check_ok(gpuipc_connection_send(pair.client, &message, SOON_MS));
    check_ok(gpuipc_connection_receive(pair.server, &arriving, SOON_MS));
    check_waits(consumer);
    synchronize(NULL); /* the first device's own work does not wait for the second's */
    gate_open();
    synchronize(consumer);
    for (int i = 0; i < 2; i++) {
        check_ok(gpuipc_buffer_release(opened[i]));
    }
    check_ok(gpuipc_buffer_release(buffers[1]));
    context_unreference(ctx);
}

/* ---- giving back --------------------------------------------------------------------------- */

static gpuipc_buffer *hand_over(void) {
    gpuipc_buffer *opened;
    check_ok(send_with(GPUIPC_SEND_READY, NULL));
    check_ok(receive_with(0, SOON_MS, &opened));
    cr_assert_eq(core_info(sent).lent_count, 1);
    return opened;
}

Test(handover, a_buffer_is_returned_when_the_stream_comes_to_it) {
    gpuipc_buffer *opened = hand_over();
    gate_close(consumer);
    check_ok(gpuipc_buffer_return_async(opened, consumer));
    check_refused(GPUIPC_ERR_TIMEOUT, "1 of the hand-overs", gpuipc_buffer_await_returns(sent, 0));
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_buffer_await_returns(sent, 20));
    gate_open();
    check_ok(gpuipc_buffer_await_returns(sent, SOON_MS));
    cr_assert_eq(core_info(sent).lent_count, 0);
    check_ok(gpuipc_buffer_release(opened));
}

Test(handover, a_stream_waits_until_a_buffer_is_returned) {
    gpuipc_buffer *opened = hand_over();
    gate_close(consumer);
    check_ok(gpuipc_buffer_copy_async(seen, 0, opened, 0, core_unit, consumer));
    check_ok(gpuipc_buffer_return_async(opened, consumer));
    check_ok(gpuipc_buffer_await_returns_async(sent, producer));
    fill(99);
    check_waits(producer);
    gate_open();
    synchronize(producer);
    synchronize(consumer);
    uint32_t found = 99;
    check_ok(gpuipc_buffer_read(seen, 0, &found, sizeof(found)));
    cr_assert_neq(found, 99, "the memory was written before it came back");
    check_ok(gpuipc_buffer_release(opened));
}

/* It is the exporter's again. */
Test(handover, what_was_returned_on_a_stream_is_used_no_more) {
    uint32_t found = 0;
    gpuipc_buffer *opened = hand_over();
    check_ok(gpuipc_buffer_read(opened, 0, &found, sizeof(found)));
    check_ok(gpuipc_buffer_return_async(opened, consumer));
    check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "returned",
                  gpuipc_buffer_read(opened, 0, &found, sizeof(found)));
    check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "returned",
                  gpuipc_buffer_write(opened, 0, &found, sizeof(found)));
    check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "returned",
                  gpuipc_buffer_fill_async(opened, 0, core_unit, 1, 4, consumer));
    check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "returned",
                  gpuipc_buffer_copy_async(seen, 0, opened, 0, core_unit, consumer));
    check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "returned",
                  gpuipc_buffer_copy_async(opened, 0, seen, 0, core_unit, consumer));
    check_ok(gpuipc_buffer_release(opened));
}

/* What a graph has recorded is done again whenever it runs, also when the words are long gone. */
Test(handover, a_stream_that_is_captured_takes_no_part) {
    core_need_emulated();
    gpuipc_buffer *opened = NULL;
    core_set_captured(true, producer);
    check_refused(GPUIPC_ERR_CUDA, "captured", send_with(GPUIPC_SEND_ASYNC, producer));
    core_set_captured(true, NULL);
    check_refused(GPUIPC_ERR_CUDA, "captured", send_with(GPUIPC_SEND_ASYNC, NULL));
    core_set_captured(false, NULL);
    check_ok(gpuipc_buffer_await_returns(sent, 0)); /* nothing has left */
    gate_close(producer);
    check_ok(send_with(GPUIPC_SEND_ASYNC, producer));
    core_set_captured(true, consumer);
    check_refused(GPUIPC_ERR_CUDA, "captured",
                  receive_with(GPUIPC_RECEIVE_ASYNC, SOON_MS, &opened));
    core_set_captured(false, NULL);
    check_ok(gpuipc_buffer_await_returns(sent, 0)); /* the message was used up */
    check_ok(send_with(GPUIPC_SEND_ASYNC, producer));
    check_ok(receive_with(GPUIPC_RECEIVE_ASYNC, SOON_MS, &opened));
    core_set_captured(true, consumer);
    check_refused(GPUIPC_ERR_CUDA, "captured", gpuipc_buffer_return_async(opened, consumer));
    core_set_captured(true, producer);
    check_refused(GPUIPC_ERR_CUDA, "captured", gpuipc_buffer_await_returns_async(sent, producer));
    core_set_captured(false, NULL);
    gate_open();
    check_ok(gpuipc_buffer_return_async(opened, consumer));
    check_ok(gpuipc_buffer_await_returns_async(sent, producer));
    synchronize(producer);
    check_ok(gpuipc_buffer_release(opened));
}

/* What the driver says of it may mean that the wait for a capture is not wanted either. */
Test(handover, a_driver_that_does_not_say_whether_it_captures) {
    core_need_emulated();
    core_set_failures("cuStreamIsCapturing:1=906");
    check_status(GPUIPC_ERR_CUDA, send_with(GPUIPC_SEND_ASYNC, producer));
    core_set_failures("");
    check_ok(gpuipc_buffer_await_returns(sent, 0));
}

Test(handover, releasing_returns) {
    gpuipc_buffer *opened = hand_over();
    check_ok(gpuipc_buffer_release(opened));
    check_ok(gpuipc_buffer_await_returns(sent, 0));
    check_ok(gpuipc_buffer_await_returns_async(sent, producer)); /* there is nothing to wait for */
    synchronize(producer);
}

Test(handover, a_buffer_is_returned_once_and_only_where_it_was_received) {
    gpuipc_buffer *opened = hand_over();
    check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "not received",
                  gpuipc_buffer_return_async(sent, NULL));
    check_ok(gpuipc_buffer_return_async(opened, NULL));
    check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "already", gpuipc_buffer_return_async(opened, NULL));
    check_ok(gpuipc_buffer_await_returns(sent, SOON_MS));
    check_ok(gpuipc_buffer_release(opened));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_buffer_return_async(NULL, NULL));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_buffer_await_returns(NULL, 0));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_buffer_await_returns_async(NULL, NULL));
}

Test(handover, every_hand_over_is_awaited) {
    gpuipc_buffer *first = hand_over();
    gpuipc_buffer *second;
    check_ok(send_with(0, producer));
    check_ok(receive_with(0, SOON_MS, &second));
    cr_assert_eq(core_info(sent).lent_count, 2);
    check_ok(gpuipc_buffer_release(second));
    cr_assert_eq(core_info(sent).lent_count, 1);
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_buffer_await_returns(sent, 0));
    check_ok(gpuipc_buffer_release(first));
    check_ok(gpuipc_buffer_await_returns(sent, 0));
}

Test(handover, a_message_that_is_dropped_is_returned) {
    gpuipc_buffer *opened = NULL;
    core_need_emulated();
    gate_close(producer);
    check_ok(send_with(GPUIPC_SEND_ASYNC, producer));
    core_set_failures("cuStreamGetCtx:1=999");
    check_status(GPUIPC_ERR_CUDA, receive_with(GPUIPC_RECEIVE_ASYNC, SOON_MS, &opened));
    core_set_failures("");
    gate_open();
    synchronize(producer);
    cr_assert_eq(core_info(sent).lent_count, 0);
    check_status(GPUIPC_ERR_TIMEOUT, receive_with(0, 0, &opened));
}

Test(handover, what_was_never_received_is_returned_with_the_connection) {
    gpuipc_buffer *opened = hand_over();
    check_ok(send_with(GPUIPC_SEND_READY, NULL));
    cr_assert_eq(core_info(sent).lent_count, 2);
    check_ok(gpuipc_connection_close(pair.server));
    pair.server = NULL;
    cr_assert_eq(core_info(sent).lent_count, 1, "the one that is open stays lent");
    check_ok(gpuipc_buffer_release(opened));
    cr_assert_eq(core_info(sent).lent_count, 0);
}

Test(handover, a_buffer_outlives_its_connection_until_it_is_returned) {
    gpuipc_buffer *opened = hand_over();
    core_pair_close(&pair);
    pair = (core_pair){0};
    cr_assert_eq(core_info(sent).lent_count, 1);
    gate_close(consumer);
    check_ok(gpuipc_buffer_return_async(opened, consumer));
    check_ok(gpuipc_buffer_await_returns_async(sent, producer));
    check_waits(producer);
    gate_open();
    synchronize(producer);
    cr_assert_eq(core_info(sent).lent_count, 0);
    check_ok(gpuipc_buffer_release(opened));
}

/* ---- when something is missing ------------------------------------------------------------- */

Test(handover, flags_that_contradict_each_other) {
    check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "flags",
                  send_with(GPUIPC_SEND_READY | GPUIPC_SEND_ASYNC, producer));
}

Test(handover, flags_that_no_version_or_only_an_older_one_knows) {
    check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "0x4", send_with(0x4u, producer));
    check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "0x10", send_with(0x10u, producer));
}

/* Of messages with some bytes: the connection must be full before the stream's queue is, where a send would wait for room. */
Test(handover, a_send_that_times_out_takes_its_loan_back) {
    static const uint8_t bytes[4096];
    const gpuipc_outgoing message = {.struct_size = sizeof(message),
                                     .bytes = bytes,
                                     .bytes_size = sizeof(bytes),
                                     .buffers = &sent,
                                     .buffer_count = 1,
                                     .flags = GPUIPC_SEND_ASYNC,
                                     .stream = producer};
    gpuipc_status status;
    uint32_t sends = 0;
    gate_close(producer);
    while ((status = gpuipc_connection_send(pair.client, &message, 0)) == GPUIPC_OK) {
        sends++;
    }
    cr_assert_eq(status, GPUIPC_ERR_TIMEOUT, "%s", gpuipc_status_name(status));
    cr_assert_eq(core_info(sent).lent_count, sends);
    gate_open();
    synchronize(producer);
}

/* Hands over, gives back and takes back, until something fails. @return whether nothing did */
static bool go_round(const char *failure) {
    gpuipc_buffer *opened = NULL;
    bool whole = false;
    fill(3);
    core_set_failures(failure);
    if (send_with(GPUIPC_SEND_ASYNC, producer) == GPUIPC_OK &&
        receive_with(GPUIPC_RECEIVE_ASYNC, SOON_MS, &opened) == GPUIPC_OK) {
        whole = gpuipc_buffer_return_async(opened, consumer) == GPUIPC_OK &&
                gpuipc_buffer_await_returns_async(sent, producer) == GPUIPC_OK;
    } else {
        cr_assert_eq(core_info(sent).lent_count, 0, "%s", gpuipc_error_get()->sentence);
    }
    core_set_failures("");
    synchronize(producer);
    synchronize(consumer);
    check_ok(gpuipc_buffer_release(opened));
    cr_assert_eq(core_info(sent).lent_count, 0);
    return whole;
}

/* Each call that the round makes fails once: it fails whole, leaves nothing behind, and the next round is
 * as good as the first. */
Test(handover, calls_that_fail) {
    const char *const names[] = {"cuStreamGetCtx",    "cuCtxPushCurrent",
                                 "cuCtxGetCurrent",   "cuDeviceGetAttribute",
                                 "cuMemHostRegister", "cuMemHostGetDevicePointer",
                                 "cuStreamBatchMemOp"};
    core_need_emulated();
    core_set_stream_delay(3);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        unsigned failed = 0;
        for (unsigned n = 1; n <= 8; n++) {
            char failure[64];
            (void)snprintf(failure, sizeof(failure), "%s:%u=999", names[i], n);
            failed += !go_round(failure);
            core_pair_close(&pair);
            core_pair_open(&pair, core_context, core_context);
        }
        /* without that attribute other ways are gone */
        cr_assert(failed > 0 || strcmp(names[i], "cuDeviceGetAttribute") == 0, "%s", names[i]);
    }
    core_set_stream_delay(0);
}

static void make_on_second(gpuipc_buffer **out_buffer) {
    const gpuipc_buffer_config config = {
        .struct_size = sizeof(config), .device = GPUIPC_DEVICE(1), .bytes = core_unit};
    check_ok(gpuipc_buffer_create(core_context, &config, out_buffer));
}

/* Who releases a buffer has no work on it any more. */
static void synchronize_default_streams(void) {
    context *ctx;
    check_ok(context_acquire(core_context, &ctx));
    for (uint32_t i = 0; i < 2; i++) {
        device_scope scope;
        check_ok(device_enter(ctx, i, &scope));
        synchronize(NULL);
        device_leave(&scope);
    }
    context_unreference(ctx);
}

/* Each call fails once: then nothing is sent. */
Test(handover, calls_that_fail_for_the_default_streams_of_several_devices) {
    const char *const names[] = {"cuCtxPushCurrent", "cuStreamCreate", "cuEventCreate",
                                 "cuEventRecord", "cuStreamWaitEvent"};
    gpuipc_buffer *buffers[2] = {sent, NULL};
    core_need_emulated();
    core_need_devices(2);
    make_on_second(&buffers[1]);
    const gpuipc_outgoing message = {.struct_size = sizeof(message),
                                     .buffers = buffers,
                                     .buffer_count = 2,
                                     .flags = GPUIPC_SEND_ASYNC};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        unsigned failed = 0;
        gpuipc_status status = GPUIPC_ERR_CUDA;
        for (unsigned n = 1; status != GPUIPC_OK; n++) {
            char failure[64];
            check_ok(gpuipc_buffer_fill_async(sent, 0, core_unit, 1, 4, NULL));
            check_ok(gpuipc_buffer_fill_async(buffers[1], 0, core_unit, 1, 4, NULL));
            (void)snprintf(failure, sizeof(failure), "%s:%u=999", names[i], n);
            core_set_failures(failure);
            status = gpuipc_connection_send(pair.client, &message, SOON_MS);
            core_set_failures("");
            cr_assert(status == GPUIPC_OK || status == GPUIPC_ERR_CUDA, "%s", failure);
            cr_assert_eq(core_info(sent).lent_count, status == GPUIPC_OK, "%s", failure);
            failed += status != GPUIPC_OK;
        }
        cr_assert_gt(failed, 0, "%s", names[i]);
        synchronize_default_streams();
        core_pair_close(&pair);
        core_pair_open(&pair, core_context, core_context);
    }
    check_ok(gpuipc_buffer_release(buffers[1]));
}

/* There is no work on the default stream of a device that nobody has used. */
Test(handover, a_buffer_of_a_device_that_nobody_has_used_is_ready) {
    gpuipc_buffer *far = NULL;
    gpuipc_buffer *opened = NULL;
    core_need_devices(2);
    make_on_second(&far);
    const gpuipc_outgoing message = {.struct_size = sizeof(message),
                                     .buffers = &far,
                                     .buffer_count = 1,
                                     .flags = GPUIPC_SEND_ASYNC};
    check_ok(gpuipc_connection_send(pair.client, &message, SOON_MS));
    check_ok(receive_with(0, 0, &opened));
    check_ok(gpuipc_buffer_release(opened));
    check_ok(gpuipc_buffer_release(far));
}

/* ---- three devices ------------------------------------------------------------------------- */

static void begin_of_three(void) {
    core_environment_set("GPUIPC_EMULATED_MACHINE", "devices=3;p2p=all");
    begin();
}

TestSuite(handover_three, .init = begin_of_three, .fini = finish, .timeout = 60);

/* The one between has no part in it. */
Test(handover_three, the_default_streams_of_some_devices_are_waited_for) {
    gpuipc_buffer *buffers[2] = {sent, NULL};
    gpuipc_buffer *opened[2];
    const gpuipc_buffer_config config = {
        .struct_size = sizeof(config), .device = GPUIPC_DEVICE(2), .bytes = core_unit};
    core_need_emulated();
    check_ok(gpuipc_buffer_create(core_context, &config, &buffers[1]));
    check_ok(gpuipc_buffer_fill_async(sent, 0, core_unit, 3, 4, NULL));
    check_ok(gpuipc_buffer_fill_async(buffers[1], 0, core_unit, 3, 4, NULL));
    const gpuipc_outgoing message = {.struct_size = sizeof(message),
                                     .buffers = buffers,
                                     .buffer_count = 2,
                                     .flags = GPUIPC_SEND_ASYNC};
    core_set_failures("");
    check_ok(gpuipc_connection_send(pair.client, &message, SOON_MS));
    cr_assert_eq(core_calls("cuStreamWaitEvent"), 2);
    check_ok(core_receive(pair.server, opened, 2));
    for (int i = 0; i < 2; i++) {
        uint32_t found = 0;
        check_ok(gpuipc_buffer_read(opened[i], 0, &found, sizeof(found)));
        cr_assert_eq(found, 3);
        check_ok(gpuipc_buffer_release(opened[i]));
    }
    check_ok(gpuipc_buffer_release(buffers[1]));
}
