/* SPDX-License-Identifier: MIT */
/** @file Contents sent and received in the order of streams, both ends in one process. */
#include "contents_ends.h"

TestSuite(contents, .init = core_start, .fini = core_finish, .timeout = 120);

Test(contents, every_size_arrives_where_it_belongs) {
    static const struct {
        uint64_t bytes;
        uint64_t from;
        uint64_t into;
    } rows[] = {
        {1, 0, 0},
        {1, CONTENTS_MANY - 1, 3},
        {4095, 1, 2},
        {CONTENTS_MIB, 5, 0},
        {CONTENTS_MIB + 1, 0, 7},
        {CONTENTS_MIB * 4, 0, 13},
        {CONTENTS_MIB * 5, 1, 1},
        {CONTENTS_MANY - 2, 1, 2},
        {CONTENTS_MANY, 0, 0},
    };
    contents_ends two;
    contents_ends_open(&two, CONTENTS_MANY);
    buffer_marks_write(two.from, 5);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]) * 2; i++) {
        const gpuipc_transport way = contents_ways[i % 2];
        const uint64_t bytes = rows[i / 2].bytes;
        check_ok(gpuipc_buffer_fill_async(two.into, 0, CONTENTS_MANY, 0xEE, 1, two.receives));
        check_ok(contents_send_range(&two, rows[i / 2].from, bytes, way));
        check_ok(contents_receive_range(&two, rows[i / 2].into, bytes, GPUIPC_TRANSPORT_DEFAULT));
        contents_both_pass(&two);
        buffer_marks_check(two.into, rows[i / 2].into, rows[i / 2].from, bytes, 5, 0xEE);
        cr_assert_eq(core_info(two.into).is_lost, 0);
    }
    contents_ends_close(&two);
}

Test(contents, large_pieces_go_round_the_ring) {
    const uint64_t bytes = CONTENTS_MIB * 70 + 5; /* nine of 8 MiB */
    contents_ends two;
    contents_ends_open(&two, bytes);
    buffer_marks_write(two.from, 5);
    check_ok(contents_send_range(&two, 0, bytes, GPUIPC_TRANSPORT_HOST));
    check_ok(contents_receive_range(&two, 0, bytes, GPUIPC_TRANSPORT_HOST));
    contents_both_pass(&two);
    buffer_marks_check(two.into, 0, 0, bytes, 5, 0);
    contents_ends_close(&two);
}

/* The range changes right before and right after it is sent, and so does that which receives. */
static void check_order(gpuipc_transport way) {
    contents_ends two;
    contents_ends_open(&two, CONTENTS_MANY);
    gpuipc_buffer *later = contents_buffer(two.other, CONTENTS_MANY);
    check_ok(gpuipc_buffer_fill_async(two.from, 0, CONTENTS_MANY, 1, 1, NULL));
    contents_check_value(two.from, 1);
    contents_set_delay(10);
    check_ok(gpuipc_buffer_fill_async(two.from, 0, CONTENTS_MANY, 2, 1, two.sends));
    check_ok(contents_send_range(&two, 0, CONTENTS_MANY, way));
    check_ok(gpuipc_buffer_fill_async(two.from, 0, CONTENTS_MANY, 3, 1, two.sends));
    check_ok(gpuipc_buffer_fill_async(two.into, 0, CONTENTS_MANY, 4, 1, two.receives));
    check_ok(contents_receive_range(&two, 0, CONTENTS_MANY, way));
    check_ok(gpuipc_buffer_copy_async(later, 0, two.into, 0, CONTENTS_MANY, two.receives));
    check_ok(gpuipc_buffer_fill_async(two.into, 0, CONTENTS_MANY, 5, 1, two.receives));
    contents_both_pass(&two);
    contents_set_delay(0);
    contents_check_value(later, 2);
    contents_check_value(two.into, 5);
    contents_check_value(two.from, 3);
    check_ok(gpuipc_buffer_release(later));
    contents_ends_close(&two);
}

Test(contents, order_is_kept_by_memory) {
    check_order(GPUIPC_TRANSPORT_VMM);
}

Test(contents, order_is_kept_through_the_ring) {
    check_order(GPUIPC_TRANSPORT_HOST);
}

/* Nothing is waited for in between; the contents_ways alternate. */
Test(contents, many_follow_one_another) {
    enum {
        COUNT = 6
    };
    contents_ends two;
    gpuipc_buffer *into[COUNT];
    contents_ends_open(&two, CONTENTS_MANY);
    gpuipc_buffer *first = two.into;
    contents_set_delay(1);
    for (uint32_t i = 0; i < COUNT; i++) {
        into[i] = contents_buffer(two.other, CONTENTS_MANY);
        check_ok(gpuipc_buffer_fill_async(two.from, 0, CONTENTS_MANY, 10 + i, 1, two.sends));
        check_ok(contents_send_range(&two, 0, CONTENTS_MANY,
                                     i % 3 == 1 ? GPUIPC_TRANSPORT_VMM : GPUIPC_TRANSPORT_HOST));
    }
    for (uint32_t i = 0; i < COUNT; i++) {
        two.into = into[i];
        check_ok(contents_receive_range(&two, 0, CONTENTS_MANY, GPUIPC_TRANSPORT_DEFAULT));
    }
    contents_both_pass(&two);
    contents_set_delay(0);
    for (uint32_t i = 0; i < COUNT; i++) {
        contents_check_value(into[i], (uint8_t)(10 + i));
        check_ok(gpuipc_buffer_release(into[i]));
    }
    two.into = first;
    contents_ends_close(&two);
}

Test(contents, of_another_size_are_dropped_and_both_streams_go_on) {
    contents_ends two;
    contents_ends_open(&two, CONTENTS_MANY);
    buffer_marks_write(two.from, 1);
    check_ok(gpuipc_buffer_fill_async(two.into, 0, CONTENTS_MANY, 7, 1, two.receives));
    for (size_t i = 0; i < 4; i++) {
        const uint64_t bytes = i < 2 ? CONTENTS_MANY - 1 : CONTENTS_MIB;
        check_ok(contents_send_range(&two, 0, CONTENTS_MANY, contents_ways[i % 2]));
        check_refused(GPUIPC_ERR_SIZE_MISMATCH, "dropped",
                      contents_receive_range(&two, 0, bytes, GPUIPC_TRANSPORT_DEFAULT));
        contents_both_pass(&two);
        contents_check_value(two.into, 7);
    }
    for (size_t i = 0; i < 2; i++) {
        check_ok(contents_send_range(&two, 0, CONTENTS_MANY, contents_ways[i]));
        check_ok(contents_receive_range(&two, 0, CONTENTS_MANY, contents_ways[i]));
        contents_both_pass(&two);
        buffer_marks_check(two.into, 0, 0, CONTENTS_MANY, 1, 0);
    }
    contents_ends_close(&two);
}

Test(contents, by_another_transport_are_dropped) {
    contents_ends two;
    contents_ends_open(&two, CONTENTS_MANY);
    buffer_marks_write(two.from, 1);
    for (size_t i = 0; i < 2; i++) {
        check_ok(contents_send_range(&two, 0, CONTENTS_MANY, contents_ways[i]));
        check_refused(GPUIPC_ERR_NO_TRANSPORT, i == 0 ? "come by vmm" : "come by host",
                      contents_receive_range(&two, 0, CONTENTS_MANY, contents_ways[1 - i]));
        contents_both_pass(&two);
        check_ok(contents_send_range(&two, 0, CONTENTS_MANY, contents_ways[i]));
        check_ok(contents_receive_range(&two, 0, CONTENTS_MANY, contents_ways[i]));
        contents_both_pass(&two);
        buffer_marks_check(two.into, 0, 0, CONTENTS_MANY, 1, 0);
    }
    contents_ends_close(&two);
}

Test(contents, and_messages_are_not_taken_for_each_other) {
    contents_ends two;
    gpuipc_buffer *opened = NULL;
    contents_ends_open(&two, CONTENTS_MANY);
    buffer_marks_write(two.from, 2);
    for (size_t i = 0; i < 2; i++) {
        check_ok(core_send(two.pair.server, &two.from, 1));
        check_ok(contents_send_range(&two, 0, CONTENTS_MANY, contents_ways[i]));
        check_ok(core_send(two.pair.server, &two.from, 1));
        check_refused(GPUIPC_ERR_OTHER_KIND, "a message comes next",
                      contents_receive_range(&two, 0, CONTENTS_MANY, GPUIPC_TRANSPORT_DEFAULT));
        check_ok(core_receive(two.pair.client, &opened, 1));
        check_ok(gpuipc_buffer_release(opened));
        check_refused(GPUIPC_ERR_OTHER_KIND, "contents come next",
                      core_receive(two.pair.client, &opened, 1));
        check_ok(contents_receive_range(&two, 0, CONTENTS_MANY, GPUIPC_TRANSPORT_DEFAULT));
        contents_both_pass(&two);
        buffer_marks_check(two.into, 0, 0, CONTENTS_MANY, 2, 0);
        check_ok(core_receive(two.pair.client, &opened, 1));
        check_ok(gpuipc_buffer_release(opened));
    }
    contents_ends_close(&two);
}

Test(contents, bad_arguments_are_refused_before_anything_leaves) {
    contents_ends two;
    contents_ends_open(&two, CONTENTS_MANY);
    gpuipc_contents contents = {
        .struct_size = sizeof(contents), .buffer = two.from, .bytes = CONTENTS_MANY, .offset = 1};
    check_status(GPUIPC_ERR_OUT_OF_RANGE,
                 gpuipc_connection_send_contents(two.pair.server, &contents, 0));
    contents.offset = UINT64_MAX;
    check_status(GPUIPC_ERR_OUT_OF_RANGE,
                 gpuipc_connection_send_contents(two.pair.server, &contents, 0));
    contents.offset = 0;
    contents.bytes = 0;
    check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "bytes is 0",
                  gpuipc_connection_send_contents(two.pair.server, &contents, 0));
    contents.bytes = 8;
    contents.reserved = 1;
    check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "reserved",
                  gpuipc_connection_send_contents(two.pair.server, &contents, 0));
    contents.reserved = 0;
    contents.transport = (gpuipc_transport)77;
    check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "transport",
                  gpuipc_connection_send_contents(two.pair.server, &contents, 0));
    contents.transport = (gpuipc_transport)-1;
    check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "transport",
                  gpuipc_connection_send_contents(two.pair.server, &contents, 0));
    contents.buffer = two.into;
    check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "transport",
                  gpuipc_connection_receive_contents(two.pair.client, &contents, 0));
    contents.transport = (gpuipc_transport)77;
    check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "transport",
                  gpuipc_connection_receive_contents(two.pair.client, &contents, 0));
    contents.buffer = two.from;
    contents.transport = GPUIPC_TRANSPORT_LEGACY;
    check_refused(GPUIPC_ERR_NO_TRANSPORT, "go by vmm",
                  gpuipc_connection_send_contents(two.pair.server, &contents, 0));
    contents.transport = GPUIPC_TRANSPORT_DEFAULT;
    contents.buffer = two.into;
    check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "another context",
                  gpuipc_connection_send_contents(two.pair.server, &contents, 0));
    contents.buffer = NULL;
    check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "buffer is NULL",
                  gpuipc_connection_send_contents(two.pair.server, &contents, 0));
    check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "buffer is NULL",
                  gpuipc_connection_receive_contents(two.pair.client, &contents, 0));
    contents.struct_size = 3;
    check_status(GPUIPC_ERR_STRUCT_SIZE,
                 gpuipc_connection_send_contents(two.pair.server, &contents, 0));
    check_status(GPUIPC_ERR_STRUCT_SIZE,
                 gpuipc_connection_receive_contents(two.pair.client, &contents, 0));
    contents = (gpuipc_contents){.struct_size = sizeof(contents), .buffer = two.into, .bytes = 8};
    check_status(GPUIPC_ERR_TIMEOUT,
                 gpuipc_connection_receive_contents(two.pair.client, &contents, 0));
    contents_ends_close(&two);
}

/* A stream that is being captured would do it all again whenever its graph runs. */
Test(contents, do_not_go_by_a_stream_that_is_captured) {
    core_need_emulated();
    contents_ends two;
    contents_ends_open(&two, CONTENTS_MANY);
    buffer_marks_write(two.from, 5);
    for (size_t i = 0; i < 2; i++) {
        core_set_captured(true, two.sends);
        check_refused(GPUIPC_ERR_CUDA, "captured",
                      contents_send_range(&two, 0, CONTENTS_MANY, contents_ways[i]));
        core_set_captured(false, NULL);
        check_ok(contents_send_range(&two, 0, CONTENTS_MANY, contents_ways[i]));
        core_set_captured(true, two.receives);
        check_refused(GPUIPC_ERR_CUDA, "captured",
                      contents_receive_range(&two, 0, CONTENTS_MANY, contents_ways[i]));
        core_set_captured(false, NULL);
        check_ok(contents_receive_range(&two, 0, CONTENTS_MANY, contents_ways[i]));
        contents_both_pass(&two);
        buffer_marks_check(two.into, 0, 0, CONTENTS_MANY, 5, 0);
    }
    contents_ends_close(&two);
}

/* What is wrong with the caller's stream is found before the peer hears of contents. */
Test(contents, of_a_stream_that_cannot_be_left_do_not_end_the_connection) {
    core_need_emulated();
    static const char *const failures[] = {"cuStreamGetCtx:1=400", "cuEventRecord:1=400",
                                           "cuEventQuery:1=907"};
    contents_ends two;
    contents_ends_open(&two, CONTENTS_MANY);
    buffer_marks_write(two.from, 6);
    for (size_t i = 0; i < sizeof(failures) / sizeof(failures[0]); i++) {
        core_set_failures(failures[i]);
        cr_assert_neq(contents_send_range(&two, 0, CONTENTS_MANY, GPUIPC_TRANSPORT_HOST), GPUIPC_OK,
                      "%s", failures[i]);
        core_set_failures("");
    }
    check_ok(contents_send_range(&two, 0, CONTENTS_MANY, GPUIPC_TRANSPORT_HOST));
    check_ok(contents_receive_range(&two, 0, CONTENTS_MANY, GPUIPC_TRANSPORT_HOST));
    contents_both_pass(&two);
    buffer_marks_check(two.into, 0, 0, CONTENTS_MANY, 6, 0);
    contents_ends_close(&two);
}

/* The data is what it was when the connection ends while the streams are still at it. */
Test(contents, under_way_survive_the_end_of_the_connection) {
    for (size_t i = 0; i < 2; i++) {
        contents_ends two;
        contents_ends_open(&two, CONTENTS_MANY);
        buffer_marks_write(two.from, 3);
        contents_set_delay(5);
        check_ok(gpuipc_buffer_fill_async(two.into, 0, CONTENTS_MANY, 7, 1, two.receives));
        check_ok(contents_send_range(&two, 0, CONTENTS_MANY, contents_ways[i]));
        check_ok(contents_receive_range(&two, 0, CONTENTS_MANY, contents_ways[i]));
        core_pair_close(&two.pair);
        contents_both_pass(&two);
        contents_set_delay(0);
        buffer_marks_check(two.into, 0, 0, CONTENTS_MANY, 3, 0);
        cr_assert_eq(core_info(two.into).is_lost, 0);
        contents_ends_close(&two);
    }
}

/* A receiver that goes lets the sender's stream go on, whether it had looked or not. */
Test(contents, nobody_receives_let_the_sender_go_on) {
    for (size_t i = 0; i < 4; i++) {
        contents_ends two;
        contents_ends_open(&two, CONTENTS_MANY);
        if (i >= 2) { /* the ring and the points are known */
            check_ok(contents_send_range(&two, 0, CONTENTS_MANY, contents_ways[i % 2]));
            check_ok(contents_receive_range(&two, 0, CONTENTS_MANY, contents_ways[i % 2]));
        }
        check_ok(contents_send_range(&two, 0, CONTENTS_MANY, contents_ways[i % 2]));
        check_ok(gpuipc_connection_close(two.pair.client));
        two.pair.client = NULL;
        contents_both_pass(&two);
        contents_ends_close(&two);
    }
}

/* A buffer of the library's own, which is sent as a way itself when the transport is named. */
Test(contents, of_a_buffer_in_host_memory_go_by_default) {
    const gpuipc_buffer_config config = {
        .struct_size = sizeof(config), .transport = GPUIPC_TRANSPORT_HOST, .bytes = CONTENTS_MANY};
    contents_ends two;
    contents_ends_open(&two, CONTENTS_MANY);
    gpuipc_buffer *first = two.from;
    check_ok(gpuipc_buffer_create(core_context, &config, &two.from));
    for (uint8_t i = 1; i <= 2; i++) {
        check_ok(gpuipc_buffer_fill_async(two.from, 0, CONTENTS_MANY, i, 1, two.sends));
        check_ok(contents_send_range(&two, 0, CONTENTS_MANY, GPUIPC_TRANSPORT_DEFAULT));
        check_ok(contents_receive_range(&two, 0, CONTENTS_MANY, GPUIPC_TRANSPORT_DEFAULT));
        contents_both_pass(&two);
        contents_check_value(two.into, i);
    }
    check_ok(gpuipc_buffer_release(two.from));
    two.from = first;
    contents_ends_close(&two);
}

Test(contents, of_host_memory_go_through_the_ring) {
    const driver *drv = core_driver();
    contents_ends two;
    void *host = NULL;
    gpuipc_buffer *wrapped = NULL;
    contents_ends_open(&two, CONTENTS_MANY);
    cr_assert_eq(drv->cuMemHostAlloc(&host, CONTENTS_MANY, CU_MEMHOSTALLOC_PORTABLE), CUDA_SUCCESS);
    memset(host, 0x5A, CONTENTS_MANY);
    check_ok(gpuipc_buffer_wrap(core_context, (uintptr_t)host, CONTENTS_MANY, &wrapped));
    gpuipc_buffer *const from = two.from;
    two.from = wrapped;
    check_refused(GPUIPC_ERR_NO_TRANSPORT, "GPUIPC_TRANSPORT_HOST",
                  contents_send_range(&two, 0, CONTENTS_MANY, GPUIPC_TRANSPORT_DEFAULT));
    check_ok(contents_send_range(&two, 0, CONTENTS_MANY, GPUIPC_TRANSPORT_HOST));
    check_ok(contents_receive_range(&two, 0, CONTENTS_MANY, GPUIPC_TRANSPORT_DEFAULT));
    contents_both_pass(&two);
    contents_check_value(two.into, 0x5A);
    two.from = from;
    check_ok(gpuipc_buffer_release(wrapped));
    cr_assert_eq(drv->cuMemFreeHost(host), CUDA_SUCCESS);
    contents_ends_close(&two);
}

static gpuipc_status send_from(contents_ends *two, gpuipc_buffer *from, CUstream stream) {
    const gpuipc_contents contents = {.struct_size = sizeof(contents),
                                      .buffer = from,
                                      .bytes = CONTENTS_MIB,
                                      .stream = stream,
                                      .transport = GPUIPC_TRANSPORT_HOST};
    return gpuipc_connection_send_contents(two->pair.server, &contents, SOON_MS);
}

/* Each device has streams of its own, and what is sent later arrives later. */
Test(contents, of_two_devices_go_through_the_ring_in_order) {
    const driver *drv = core_driver();
    contents_ends two;
    CUcontext primary;
    CUcontext popped;
    CUstream stream;
    gpuipc_buffer *far = NULL;
    core_need_devices(2);
    contents_ends_open(&two, CONTENTS_MIB);
    const gpuipc_buffer_config config = {
        .struct_size = sizeof(config), .device = GPUIPC_DEVICE(1), .bytes = CONTENTS_MIB};
    check_ok(gpuipc_buffer_create(core_context, &config, &far));
    cr_assert_eq(drv->cuDevicePrimaryCtxRetain(&primary, 1), CUDA_SUCCESS);
    cr_assert_eq(drv->cuCtxPushCurrent(primary), CUDA_SUCCESS);
    cr_assert_eq(drv->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    for (uint8_t round = 1; round < 5; round++) {
        check_ok(gpuipc_buffer_fill_async(two.from, 0, CONTENTS_MIB, round, 1, two.sends));
        check_ok(gpuipc_buffer_fill_async(far, 0, CONTENTS_MIB, 100u + round, 1, stream));
        check_ok(send_from(&two, two.from, two.sends));
        check_ok(send_from(&two, far, stream));
        check_ok(contents_receive_range(&two, 0, CONTENTS_MIB, GPUIPC_TRANSPORT_HOST));
        cr_assert_eq(drv->cuStreamSynchronize(two.receives), CUDA_SUCCESS);
        contents_check_value(two.into, round);
        check_ok(contents_receive_range(&two, 0, CONTENTS_MIB, GPUIPC_TRANSPORT_HOST));
        cr_assert_eq(drv->cuStreamSynchronize(two.receives), CUDA_SUCCESS);
        contents_check_value(two.into, (uint8_t)(100 + round));
    }
    cr_assert_eq(drv->cuStreamSynchronize(stream), CUDA_SUCCESS);
    cr_assert_eq(drv->cuStreamDestroy(stream), CUDA_SUCCESS);
    cr_assert_eq(drv->cuCtxPopCurrent(&popped), CUDA_SUCCESS);
    cr_assert_eq(drv->cuDevicePrimaryCtxRelease(1), CUDA_SUCCESS);
    check_ok(gpuipc_buffer_release(far));
    contents_ends_close(&two);
}
