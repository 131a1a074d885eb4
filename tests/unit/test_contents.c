/* SPDX-License-Identifier: MIT */
/** @file Contents sent and received in the order of streams, both ends in one process. */
#include "core_fixture.h"

#include <stdio.h>
#include <stdlib.h>

#include "staging.h"

TestSuite(contents, .init = core_start, .fini = core_finish, .timeout = 120);

#define MIB (UINT64_C(1) << 20)
/* Of 1 MiB pieces: more than there are slots, and a rest. */
#define MANY (MIB * 6 + 13)

static const gpuipc_transport ways[] = {GPUIPC_TRANSPORT_VMM, GPUIPC_TRANSPORT_HOST};

/* Two contexts, each with a connection to the other, a buffer and a stream. */
typedef struct ends {
    gpuipc_context *other;
    core_pair pair;
    gpuipc_buffer *from;
    gpuipc_buffer *into;
    CUstream sends;
    CUstream receives;
} ends;

static gpuipc_buffer *buffer_in(gpuipc_context *context, uint64_t bytes) {
    const gpuipc_buffer_config config = {.struct_size = sizeof(config), .bytes = bytes};
    gpuipc_buffer *made = NULL;
    check_ok(gpuipc_buffer_create(context, &config, &made));
    return made;
}

static bool is_entered;

static void ends_open(ends *self, uint64_t bytes) {
    const driver *drv = core_driver();
    self->other = core_context_new();
    core_pair_open(&self->pair, core_context, self->other);
    self->from = buffer_in(core_context, bytes);
    self->into = buffer_in(self->other, bytes);
    if (!is_entered) {
        core_enter_device(0);
        is_entered = true;
    }
    cr_assert_eq(drv->cuStreamCreate(&self->sends, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    cr_assert_eq(drv->cuStreamCreate(&self->receives, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
}

static void ends_close(ends *self) {
    cr_assert_eq(core_driver()->cuStreamDestroy(self->sends), CUDA_SUCCESS);
    cr_assert_eq(core_driver()->cuStreamDestroy(self->receives), CUDA_SUCCESS);
    check_ok(gpuipc_buffer_release(self->into));
    check_ok(gpuipc_buffer_release(self->from));
    core_pair_close(&self->pair);
    check_ok(gpuipc_context_destroy(self->other));
}

static gpuipc_status send_range(ends *self, uint64_t offset, uint64_t bytes, gpuipc_transport way) {
    const gpuipc_contents contents = {.struct_size = sizeof(contents),
                                      .buffer = self->from,
                                      .offset = offset,
                                      .bytes = bytes,
                                      .stream = self->sends,
                                      .transport = way};
    return gpuipc_connection_send_contents(self->pair.server, &contents, SOON_MS);
}

static gpuipc_status receive_range(ends *self, uint64_t offset, uint64_t bytes,
                                   gpuipc_transport way) {
    const gpuipc_contents contents = {.struct_size = sizeof(contents),
                                      .buffer = self->into,
                                      .offset = offset,
                                      .bytes = bytes,
                                      .stream = self->receives,
                                      .transport = way};
    return gpuipc_connection_receive_contents(self->pair.client, &contents, SOON_MS);
}

static void both_pass(const ends *self) {
    cr_assert_eq(core_driver()->cuStreamSynchronize(self->sends), CUDA_SUCCESS);
    cr_assert_eq(core_driver()->cuStreamSynchronize(self->receives), CUDA_SUCCESS);
}

static void set_delay(unsigned milliseconds) {
    if (core_is_emulated) {
        core_set_stream_delay(milliseconds);
    }
}

static uint8_t byte_at(uint64_t at, unsigned seed) {
    return (uint8_t)(at * 7 + at / 251 + at / MIB * 31 + seed);
}

static void write_bytes(gpuipc_buffer *buffer, unsigned seed) {
    const uint64_t bytes = core_info(buffer).bytes;
    uint8_t *room = malloc(bytes);
    cr_assert_not_null(room);
    for (uint64_t i = 0; i < bytes; i++) {
        room[i] = byte_at(i, seed);
    }
    check_ok(gpuipc_buffer_write(buffer, 0, room, bytes));
    free(room);
}

/* What came is there, and nothing beside it was touched. */
static void check_bytes(gpuipc_buffer *buffer, uint64_t offset, uint64_t from, uint64_t bytes,
                        unsigned seed, uint8_t beside) {
    const uint64_t all = core_info(buffer).bytes;
    uint8_t *room = malloc(all);
    cr_assert_not_null(room);
    check_ok(gpuipc_buffer_read(buffer, 0, room, all));
    uint64_t wrong = 0;
    while (wrong < all && room[wrong] == (wrong >= offset && wrong - offset < bytes
                                              ? byte_at(wrong - offset + from, seed)
                                              : beside)) {
        wrong++;
    }
    cr_assert_eq(wrong, all, "byte %llu of %llu is %u", (unsigned long long)wrong,
                 (unsigned long long)all, wrong < all ? room[wrong] : 0u);
    free(room);
}

static void check_value(gpuipc_buffer *buffer, uint8_t value) {
    const uint64_t bytes = core_info(buffer).bytes;
    uint8_t *room = malloc(bytes);
    cr_assert_not_null(room);
    check_ok(gpuipc_buffer_read(buffer, 0, room, bytes));
    uint64_t wrong = 0;
    while (wrong < bytes && room[wrong] == value) {
        wrong++;
    }
    cr_assert_eq(wrong, bytes, "byte %llu is not %u", (unsigned long long)wrong, value);
    free(room);
}

Test(contents, every_size_arrives_where_it_belongs) {
    static const struct {
        uint64_t bytes;
        uint64_t from;
        uint64_t into;
    } rows[] = {
        {1, 0, 0},        {1, MANY - 1, 3}, {4095, 1, 2},     {MIB, 5, 0},  {MIB + 1, 0, 7},
        {MIB * 4, 0, 13}, {MIB * 5, 1, 1},  {MANY - 2, 1, 2}, {MANY, 0, 0},
    };
    ends two;
    ends_open(&two, MANY);
    write_bytes(two.from, 5);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]) * 2; i++) {
        const gpuipc_transport way = ways[i % 2];
        const uint64_t bytes = rows[i / 2].bytes;
        check_ok(gpuipc_buffer_fill_async(two.into, 0, MANY, 0xEE, 1, two.receives));
        check_ok(send_range(&two, rows[i / 2].from, bytes, way));
        check_ok(receive_range(&two, rows[i / 2].into, bytes, GPUIPC_TRANSPORT_DEFAULT));
        both_pass(&two);
        check_bytes(two.into, rows[i / 2].into, rows[i / 2].from, bytes, 5, 0xEE);
        cr_assert_eq(core_info(two.into).is_lost, 0);
    }
    ends_close(&two);
}

Test(contents, large_pieces_go_round_the_ring) {
    const uint64_t bytes = MIB * 70 + 5; /* nine of 8 MiB */
    ends two;
    ends_open(&two, bytes);
    write_bytes(two.from, 5);
    check_ok(send_range(&two, 0, bytes, GPUIPC_TRANSPORT_HOST));
    check_ok(receive_range(&two, 0, bytes, GPUIPC_TRANSPORT_HOST));
    both_pass(&two);
    check_bytes(two.into, 0, 0, bytes, 5, 0);
    ends_close(&two);
}

/* The range changes right before and right after it is sent, and so does that which receives. */
static void check_order(gpuipc_transport way) {
    ends two;
    ends_open(&two, MANY);
    gpuipc_buffer *later = buffer_in(two.other, MANY);
    check_ok(gpuipc_buffer_fill_async(two.from, 0, MANY, 1, 1, NULL));
    check_value(two.from, 1);
    set_delay(10);
    check_ok(gpuipc_buffer_fill_async(two.from, 0, MANY, 2, 1, two.sends));
    check_ok(send_range(&two, 0, MANY, way));
    check_ok(gpuipc_buffer_fill_async(two.from, 0, MANY, 3, 1, two.sends));
    check_ok(gpuipc_buffer_fill_async(two.into, 0, MANY, 4, 1, two.receives));
    check_ok(receive_range(&two, 0, MANY, way));
    check_ok(gpuipc_buffer_copy_async(later, 0, two.into, 0, MANY, two.receives));
    check_ok(gpuipc_buffer_fill_async(two.into, 0, MANY, 5, 1, two.receives));
    both_pass(&two);
    set_delay(0);
    check_value(later, 2);
    check_value(two.into, 5);
    check_value(two.from, 3);
    check_ok(gpuipc_buffer_release(later));
    ends_close(&two);
}

Test(contents, order_is_kept_by_memory) {
    check_order(GPUIPC_TRANSPORT_VMM);
}

Test(contents, order_is_kept_through_the_ring) {
    check_order(GPUIPC_TRANSPORT_HOST);
}

/* Nothing is waited for in between; the ways alternate. */
Test(contents, many_follow_one_another) {
    enum {
        COUNT = 6
    };
    ends two;
    gpuipc_buffer *into[COUNT];
    ends_open(&two, MANY);
    gpuipc_buffer *first = two.into;
    set_delay(1);
    for (uint32_t i = 0; i < COUNT; i++) {
        into[i] = buffer_in(two.other, MANY);
        check_ok(gpuipc_buffer_fill_async(two.from, 0, MANY, 10 + i, 1, two.sends));
        check_ok(
            send_range(&two, 0, MANY, i % 3 == 1 ? GPUIPC_TRANSPORT_VMM : GPUIPC_TRANSPORT_HOST));
    }
    for (uint32_t i = 0; i < COUNT; i++) {
        two.into = into[i];
        check_ok(receive_range(&two, 0, MANY, GPUIPC_TRANSPORT_DEFAULT));
    }
    both_pass(&two);
    set_delay(0);
    for (uint32_t i = 0; i < COUNT; i++) {
        check_value(into[i], (uint8_t)(10 + i));
        check_ok(gpuipc_buffer_release(into[i]));
    }
    two.into = first;
    ends_close(&two);
}

Test(contents, of_another_size_are_dropped_and_both_streams_go_on) {
    ends two;
    ends_open(&two, MANY);
    write_bytes(two.from, 1);
    check_ok(gpuipc_buffer_fill_async(two.into, 0, MANY, 7, 1, two.receives));
    for (size_t i = 0; i < 4; i++) {
        const uint64_t bytes = i < 2 ? MANY - 1 : MIB;
        check_ok(send_range(&two, 0, MANY, ways[i % 2]));
        check_refused(GPUIPC_ERR_SIZE_MISMATCH, "dropped",
                      receive_range(&two, 0, bytes, GPUIPC_TRANSPORT_DEFAULT));
        both_pass(&two);
        check_value(two.into, 7);
    }
    for (size_t i = 0; i < 2; i++) {
        check_ok(send_range(&two, 0, MANY, ways[i]));
        check_ok(receive_range(&two, 0, MANY, ways[i]));
        both_pass(&two);
        check_bytes(two.into, 0, 0, MANY, 1, 0);
    }
    ends_close(&two);
}

Test(contents, by_another_transport_are_dropped) {
    ends two;
    ends_open(&two, MANY);
    write_bytes(two.from, 1);
    for (size_t i = 0; i < 2; i++) {
        check_ok(send_range(&two, 0, MANY, ways[i]));
        check_refused(GPUIPC_ERR_NO_TRANSPORT, i == 0 ? "come by vmm" : "come by host",
                      receive_range(&two, 0, MANY, ways[1 - i]));
        both_pass(&two);
        check_ok(send_range(&two, 0, MANY, ways[i]));
        check_ok(receive_range(&two, 0, MANY, ways[i]));
        both_pass(&two);
        check_bytes(two.into, 0, 0, MANY, 1, 0);
    }
    ends_close(&two);
}

Test(contents, and_messages_are_not_taken_for_each_other) {
    ends two;
    gpuipc_buffer *opened = NULL;
    ends_open(&two, MANY);
    write_bytes(two.from, 2);
    for (size_t i = 0; i < 2; i++) {
        check_ok(core_send(two.pair.server, &two.from, 1));
        check_ok(send_range(&two, 0, MANY, ways[i]));
        check_ok(core_send(two.pair.server, &two.from, 1));
        check_refused(GPUIPC_ERR_OTHER_KIND, "a message comes next",
                      receive_range(&two, 0, MANY, GPUIPC_TRANSPORT_DEFAULT));
        check_ok(core_receive(two.pair.client, &opened, 1));
        check_ok(gpuipc_buffer_release(opened));
        check_refused(GPUIPC_ERR_OTHER_KIND, "contents come next",
                      core_receive(two.pair.client, &opened, 1));
        check_ok(receive_range(&two, 0, MANY, GPUIPC_TRANSPORT_DEFAULT));
        both_pass(&two);
        check_bytes(two.into, 0, 0, MANY, 2, 0);
        check_ok(core_receive(two.pair.client, &opened, 1));
        check_ok(gpuipc_buffer_release(opened));
    }
    ends_close(&two);
}

Test(contents, bad_arguments_are_refused_before_anything_leaves) {
    ends two;
    ends_open(&two, MANY);
    gpuipc_contents contents = {
        .struct_size = sizeof(contents), .buffer = two.from, .bytes = MANY, .offset = 1};
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
    contents.transport = GPUIPC_TRANSPORT_LEGACY;
    check_refused(GPUIPC_ERR_NO_TRANSPORT, "goes by vmm",
                  gpuipc_connection_send_contents(two.pair.server, &contents, 0));
    contents.transport = GPUIPC_TRANSPORT_DEFAULT;
    contents.buffer = two.into;
    check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "another context",
                  gpuipc_connection_send_contents(two.pair.server, &contents, 0));
    contents.struct_size = 3;
    check_status(GPUIPC_ERR_STRUCT_SIZE,
                 gpuipc_connection_send_contents(two.pair.server, &contents, 0));
    check_status(GPUIPC_ERR_STRUCT_SIZE,
                 gpuipc_connection_receive_contents(two.pair.client, &contents, 0));
    contents = (gpuipc_contents){.struct_size = sizeof(contents), .buffer = two.into, .bytes = 8};
    check_status(GPUIPC_ERR_TIMEOUT,
                 gpuipc_connection_receive_contents(two.pair.client, &contents, 0));
    ends_close(&two);
}

/* The data is what it was when the connection ends while the streams are still at it. */
Test(contents, under_way_survive_the_end_of_the_connection) {
    for (size_t i = 0; i < 2; i++) {
        ends two;
        ends_open(&two, MANY);
        write_bytes(two.from, 3);
        set_delay(5);
        check_ok(gpuipc_buffer_fill_async(two.into, 0, MANY, 7, 1, two.receives));
        check_ok(send_range(&two, 0, MANY, ways[i]));
        check_ok(receive_range(&two, 0, MANY, ways[i]));
        core_pair_close(&two.pair);
        both_pass(&two);
        set_delay(0);
        check_bytes(two.into, 0, 0, MANY, 3, 0);
        cr_assert_eq(core_info(two.into).is_lost, 0);
        ends_close(&two);
    }
}

/* A receiver that goes lets the sender's stream go on, whether it had looked or not. */
Test(contents, nobody_receives_let_the_sender_go_on) {
    for (size_t i = 0; i < 4; i++) {
        ends two;
        ends_open(&two, MANY);
        if (i >= 2) { /* the ring and the points are known */
            check_ok(send_range(&two, 0, MANY, ways[i % 2]));
            check_ok(receive_range(&two, 0, MANY, ways[i % 2]));
        }
        check_ok(send_range(&two, 0, MANY, ways[i % 2]));
        check_ok(gpuipc_connection_close(two.pair.client));
        two.pair.client = NULL;
        both_pass(&two);
        ends_close(&two);
    }
}

Test(contents, of_host_memory_go_through_the_ring) {
    const driver *drv = core_driver();
    ends two;
    void *host = NULL;
    gpuipc_buffer *wrapped = NULL;
    ends_open(&two, MANY);
    cr_assert_eq(drv->cuMemHostAlloc(&host, MANY, CU_MEMHOSTALLOC_PORTABLE), CUDA_SUCCESS);
    memset(host, 0x5A, MANY);
    check_ok(gpuipc_buffer_wrap(core_context, (uintptr_t)host, MANY, &wrapped));
    gpuipc_buffer *const from = two.from;
    two.from = wrapped;
    check_refused(GPUIPC_ERR_NO_TRANSPORT, "GPUIPC_TRANSPORT_HOST",
                  send_range(&two, 0, MANY, GPUIPC_TRANSPORT_DEFAULT));
    check_ok(send_range(&two, 0, MANY, GPUIPC_TRANSPORT_HOST));
    check_ok(receive_range(&two, 0, MANY, GPUIPC_TRANSPORT_DEFAULT));
    both_pass(&two);
    check_value(two.into, 0x5A);
    two.from = from;
    check_ok(gpuipc_buffer_release(wrapped));
    cr_assert_eq(drv->cuMemFreeHost(host), CUDA_SUCCESS);
    ends_close(&two);
}

/* ---- failures ----------------------------------------------------------------------------- */

/* Contents between new ends, with the Nth call of a function failing on whichever side makes it. Both
 * streams go on, and what has not come is not taken for what has. @return whether a call failed */
static bool transfer_fails(const char *name, unsigned number, gpuipc_transport way) {
    char failures[64];
    ends two;
    ends_open(&two, MANY);
    write_bytes(two.from, number);
    check_ok(gpuipc_buffer_fill_async(two.into, 0, MANY, 7, 1, two.receives));
    cr_assert_eq(core_driver()->cuStreamSynchronize(two.receives), CUDA_SUCCESS);
    gpuipc_contents contents = {.struct_size = sizeof(contents),
                                .buffer = two.from,
                                .bytes = MANY,
                                .stream = two.sends,
                                .transport = way};
    (void)snprintf(failures, sizeof(failures), "%s:%u=2", name, number);
    core_set_failures(failures);
    const gpuipc_status sent = gpuipc_connection_send_contents(two.pair.server, &contents, 0);
    contents.buffer = two.into;
    contents.stream = two.receives;
    const gpuipc_status came = gpuipc_connection_receive_contents(two.pair.client, &contents, 0);
    core_set_failures("");
    if (came != GPUIPC_OK) { /* the receiver goes, so that the sender need not wait for it */
        check_ok(gpuipc_connection_close(two.pair.client));
        two.pair.client = NULL;
    }
    both_pass(&two);
    if (sent == GPUIPC_OK && came == GPUIPC_OK) {
        check_bytes(two.into, 0, 0, MANY, number, 0);
    } else if (came == GPUIPC_OK && way == GPUIPC_TRANSPORT_HOST) {
        cr_assert_eq(core_info(two.into).is_lost, 1, "%s", failures);
    }
    ends_close(&two);
    return sent != GPUIPC_OK || came != GPUIPC_OK;
}

static void check_failures(gpuipc_transport way) {
    static const char *const names[] = {
        "cuStreamGetCtx",     "cuCtxPushCurrent", "cuThreadExchangeStreamCaptureMode",
        "cuMemHostRegister",  "cuStreamCreate",   "cuMemHostGetDevicePointer",
        "cuEventCreate",      "cuEventRecord",    "cuEventQuery",
        "cuStreamWaitEvent",  "cuMemcpyAsync",    "cuStreamWriteValue64",
        "cuStreamWaitValue64"};
    unsigned failed = 0;
    core_need_emulated();
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        unsigned quiet = 0;
        for (unsigned number = 1; quiet < 3; number += 1 + number / 8) {
            /* some failures are made up for, so the last call is where several in a row are */
            const bool fails = transfer_fails(names[i], number, way);
            quiet = fails ? 0 : quiet + 1;
            failed += fails;
        }
    }
    cr_assert(failed > 20, "only %u calls failed", failed);
}

Test(contents, every_call_may_fail_by_memory, .timeout = 240) {
    check_failures(GPUIPC_TRANSPORT_VMM);
}

Test(contents, every_call_may_fail_through_the_ring, .timeout = 240) {
    check_failures(GPUIPC_TRANSPORT_HOST);
}

/* ---- without stream memory operations ----------------------------------------------------- */

static void start_without_words(void) {
    core_environment_set("GPUIPC_EMULATED_MACHINE", "stream-words=0");
    core_start();
}

TestSuite(contents_no_words, .init = start_without_words, .fini = core_finish, .timeout = 120);

typedef struct sending {
    ends *of;
    gpuipc_transport way;
} sending;

static gpuipc_status send_in_thread(void *argument) {
    const sending *self = argument;
    return send_range(self->of, 0, MANY, self->way);
}

/* Calls wait where streams cannot. */
Test(contents_no_words, go_while_both_sides_are_in_their_calls) {
    ends two;
    ends_open(&two, MANY);
    write_bytes(two.from, 4);
    for (size_t i = 0; i < 4; i++) {
        core_waiter sender;
        sending argument = {&two, ways[i % 2]};
        set_delay(2);
        check_ok(gpuipc_buffer_fill_async(two.into, 0, MANY, 7, 1, two.receives));
        core_waiter_begin(&sender, send_in_thread, &argument);
        check_ok(receive_range(&two, 0, MANY, ways[i % 2]));
        check_ok(core_waiter_end(&sender));
        both_pass(&two);
        set_delay(0);
        check_bytes(two.into, 0, 0, MANY, 4, 0);
    }
    ends_close(&two);
}

Test(contents_no_words, are_not_waited_for_when_the_receiver_goes) {
    for (size_t i = 0; i < 2; i++) {
        ends two;
        core_waiter sender;
        ends_open(&two, MANY);
        sending argument = {&two, ways[i]};
        core_waiter_begin(&sender, send_in_thread, &argument);
        check_refused(GPUIPC_ERR_OTHER_KIND, "contents", core_receive(two.pair.client, NULL, 0));
        check_ok(gpuipc_connection_close(two.pair.client));
        two.pair.client = NULL;
        check_ok(core_waiter_end(&sender));
        both_pass(&two);
        ends_close(&two);
    }
}
