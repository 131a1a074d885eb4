/* SPDX-License-Identifier: MIT */
/** @file Contents that nobody takes: the calls keep to their time-outs, whatever room the driver has for waits. A peer that is
 *  another process and ends, or keeps to no rule: process.contents. */
#include "contents/contents_pace.h"
#include "contents_ends.h"
#include "copy/staging.h"
#include "stream_gate.h"

#define SMALL_BYTES 4096u
/* More than a side puts on its streams at once, and what finds room in slots. All of it is copied when the streams go on. */
#define LARGE_BYTES ((CONTENTS_PACE_MOST + STAGING_SLOTS + 2u) * STAGING_SLOT_BYTES)
#define SHORT_MS    20

TestSuite(contents_room, .init = core_start, .fini = core_finish, .timeout = 60);

typedef struct one_call {
    contents_ends *ends;
    uint64_t bytes;
    int timeout_ms;
    gpuipc_transport way;
} one_call;

static gpuipc_contents range_of(const one_call *self, gpuipc_buffer *buffer, CUstream stream) {
    return (gpuipc_contents){.struct_size = sizeof(gpuipc_contents),
                             .buffer = buffer,
                             .bytes = self->bytes,
                             .stream = stream,
                             .transport = self->way};
}

static gpuipc_status send_range(void *argument) {
    const one_call *self = argument;
    const gpuipc_contents contents = range_of(self, self->ends->from, self->ends->sends);
    return gpuipc_connection_send_contents(self->ends->pair.server, &contents, self->timeout_ms);
}

static gpuipc_status receive_range(void *argument) {
    const one_call *self = argument;
    const gpuipc_contents contents = range_of(self, self->ends->into, self->ends->receives);
    return gpuipc_connection_receive_contents(self->ends->pair.client, &contents, self->timeout_ms);
}

/* As many as go, and no more. */
static void fill(const one_call *one) {
    const os_deadline deadline = os_deadline_after(SOON_MS);
    for (unsigned sent = 0; sent < CONTENTS_PACE_MOST; sent++) {
        check_ok(send_range((void *)one));
    }
    check_status(GPUIPC_ERR_TIMEOUT, send_range((void *)one));
    cr_assert_not(os_deadline_passed(deadline));
}

static void take_all(const one_call *one) {
    for (unsigned taken = 0; taken < CONTENTS_PACE_MOST; taken++) {
        check_ok(receive_range((void *)one));
    }
}

static void check_came(const one_call *one, uint8_t value) {
    uint8_t room[SMALL_BYTES];
    contents_both_pass(one->ends);
    check_ok(gpuipc_buffer_read(one->ends->into, 0, room, sizeof(room)));
    for (size_t i = 0; i < sizeof(room); i++) {
        cr_assert_eq(room[i], value, "byte %zu is %u", i, room[i]);
    }
}

static void close_end(gpuipc_connection **end) {
    check_ok(gpuipc_connection_close(*end));
    *end = NULL;
}

/* Until both are closed what was sent may be received, and the sender's stream waits for that. */
static void close_both(contents_ends *self) {
    close_end(&self->pair.server);
    close_end(&self->pair.client);
    contents_both_pass(self);
}

static void check_nothing_is_lost(gpuipc_transport way) {
    contents_ends two;
    contents_ends_open(&two, SMALL_BYTES);
    const one_call one = {&two, SMALL_BYTES, SHORT_MS, way};
    for (uint8_t round = 1; round <= 3; round++) {
        check_ok(gpuipc_buffer_fill_async(two.from, 0, SMALL_BYTES, round, 1, two.sends));
        fill(&one);
        take_all(&one);
        check_came(&one, round);
    }
    contents_ends_close(&two);
}

Test(contents_room, a_time_out_loses_nothing) {
    for (size_t i = 0; i < 2; i++) {
        check_nothing_is_lost(contents_ways[i]);
    }
}

static void check_late_sender(gpuipc_transport way) {
    contents_ends two;
    contents_ends_open(&two, SMALL_BYTES);
    const one_call one = {&two, SMALL_BYTES, SHORT_MS, way};
    stream_gate_close(two.sends);
    fill(&one);
    take_all(&one);
    check_status(GPUIPC_ERR_TIMEOUT, send_range((void *)&one));
    stream_gate_open();
    contents_both_pass(&two);
    contents_ends_close(&two);
}

Test(contents_room, the_streams_of_the_sender_are_late) {
    stream_gate_make();
    for (size_t i = 0; i < 2; i++) {
        check_late_sender(contents_ways[i]);
    }
    stream_gate_end();
}

/* The room is the stream's, whatever goes over it. */
Test(contents_room, of_a_stream_is_shared_by_many_connections) {
    contents_ends two;
    core_pair more[8];
    unsigned sent = 0;
    gpuipc_status status;
    contents_ends_open(&two, SMALL_BYTES);
    for (size_t i = 0; i < 8; i++) {
        core_pair_open(&more[i], core_context, two.other);
    }
    const one_call one = {&two, SMALL_BYTES, SHORT_MS, GPUIPC_TRANSPORT_VMM};
    const gpuipc_contents contents = range_of(&one, two.from, two.sends);
    while ((status = gpuipc_connection_send_contents(more[sent % 8].server, &contents,
                                                     one.timeout_ms)) == GPUIPC_OK) {
        sent++;
        cr_assert_leq(sent, CONTENTS_PACE_MOST);
    }
    check_status(GPUIPC_ERR_TIMEOUT, status);
    cr_assert_eq(sent, CONTENTS_PACE_MOST);
    for (size_t i = 0; i < 8; i++) {
        core_pair_close(&more[i]);
    }
    contents_both_pass(&two);
    contents_ends_close(&two);
}

/* What is late on one stream keeps nothing that goes on another one, out of the sender's memory. */
Test(contents_room, of_a_stream_is_not_taken_by_another_stream) {
    contents_ends two;
    stream_gate_make();
    contents_ends_open(&two, SMALL_BYTES);
    const one_call one = {&two, SMALL_BYTES, SOON_MS, GPUIPC_TRANSPORT_VMM};
    CUstream late[] = {stream_gate_stream(), stream_gate_stream()};
    const gpuipc_contents first = range_of(&one, two.from, late[0]);
    const gpuipc_contents first_in = range_of(&one, two.into, late[1]);
    stream_gate_close(late[0]);
    for (unsigned i = 0; i < CONTENTS_PACE_MOST; i++) {
        check_ok(gpuipc_connection_send_contents(two.pair.server, &first, one.timeout_ms));
        check_ok(gpuipc_connection_receive_contents(two.pair.client, &first_in, one.timeout_ms));
    }
    for (unsigned i = 0; i < CONTENTS_PACE_MOST + 1u; i++) {
        check_ok(send_range((void *)&one));
        check_ok(receive_range((void *)&one));
        contents_both_pass(&two);
    }
    stream_gate_check_waits(late[1]);
    stream_gate_open();
    for (size_t i = 0; i < 2; i++) {
        stream_gate_synchronize(late[i]);
        stream_gate_stream_end(late[i]);
    }
    contents_ends_close(&two);
    stream_gate_end();
}

/* In another thread than the one that closes. */
static void start_to_wait(core_waiter *waiting, one_call *one) {
    fill(one);
    one->timeout_ms = -1;
    core_waiter_start(waiting, send_range, one);
}

static void check_close(gpuipc_transport way) {
    contents_ends two;
    core_waiter waiting;
    contents_ends_open(&two, SMALL_BYTES);
    one_call one = {&two, SMALL_BYTES, SHORT_MS, way};
    start_to_wait(&waiting, &one);
    gpuipc_connection *sender = two.pair.server;
    check_ok(gpuipc_connection_close(sender));
    check_status(GPUIPC_ERR_RELEASED, core_waiter_end(&waiting));
    two.pair.server = NULL;
    close_end(&two.pair.client);
    contents_both_pass(&two);
    contents_ends_close(&two);
}

Test(contents_room, a_close_lets_the_call_go) {
    for (size_t i = 0; i < 2; i++) {
        check_close(contents_ways[i]);
    }
}

static void check_close_of_receiver(gpuipc_transport way) {
    contents_ends two;
    core_waiter waiting;
    contents_ends_open(&two, SMALL_BYTES);
    one_call one = {&two, SMALL_BYTES, SHORT_MS, way};
    start_to_wait(&waiting, &one);
    close_end(&two.pair.client);
    check_status(GPUIPC_ERR_PEER_CLOSED, core_waiter_end(&waiting));
    contents_both_pass(&two);
    contents_ends_close(&two);
}

Test(contents_room, a_close_of_the_receiver_lets_the_call_go) {
    for (size_t i = 0; i < 2; i++) {
        check_close_of_receiver(contents_ways[i]);
    }
}

/* Each piece of it is the same memory: what goes where is other tests' matter, and 1.6 GiB are not everywhere. */
typedef struct large_range {
    CUdeviceptr base;
    CUmemGenericAllocationHandle memory; /* of one piece */
} large_range;

static large_range large_range_make(void) {
    const driver *drv = core_driver();
    const CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = here};
    const CUmemAccessDesc access = {here, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    large_range made;
    cr_assert_eq(drv->cuMemAddressReserve(&made.base, LARGE_BYTES, 0, 0, 0), CUDA_SUCCESS);
    cr_assert_eq(drv->cuMemCreate(&made.memory, STAGING_SLOT_BYTES, &prop, 0), CUDA_SUCCESS);
    for (uint64_t at = 0; at < LARGE_BYTES; at += STAGING_SLOT_BYTES) {
        cr_assert_eq(drv->cuMemMap(made.base + at, STAGING_SLOT_BYTES, 0, made.memory, 0),
                     CUDA_SUCCESS);
    }
    cr_assert_eq(drv->cuMemSetAccess(made.base, LARGE_BYTES, &access, 1), CUDA_SUCCESS);
    return made;
}

static void large_range_end(const large_range *self) {
    const driver *drv = core_driver();
    for (uint64_t at = 0; at < LARGE_BYTES; at += STAGING_SLOT_BYTES) {
        cr_assert_eq(drv->cuMemUnmap(self->base + at, STAGING_SLOT_BYTES), CUDA_SUCCESS);
    }
    cr_assert_eq(drv->cuMemRelease(self->memory), CUDA_SUCCESS);
    cr_assert_eq(drv->cuMemAddressFree(self->base, LARGE_BYTES), CUDA_SUCCESS);
}

static void wrap_in_place_of(gpuipc_buffer **buffer, gpuipc_context *context,
                             const large_range *range) {
    check_ok(gpuipc_buffer_release(*buffer));
    check_ok(gpuipc_buffer_wrap(context, range->base, LARGE_BYTES, buffer));
}

/* Both ends have the same range. */
static large_range open_large(contents_ends *self) {
    contents_ends_open(self, SMALL_BYTES);
    const large_range range = large_range_make();
    wrap_in_place_of(&self->from, core_context, &range);
    wrap_in_place_of(&self->into, self->other, &range);
    return range;
}

static void close_large(contents_ends *self, const large_range *range) {
    contents_ends_close(self);
    large_range_end(range);
}

Test(contents_room, part_of_a_large_range_has_left) {
    contents_ends two;
    const large_range range = open_large(&two);
    const one_call one = {&two, LARGE_BYTES, SHORT_MS, GPUIPC_TRANSPORT_HOST};
    check_status(GPUIPC_ERR_CONNECTION_BROKEN, send_range((void *)&one));
    close_both(&two);
    close_large(&two, &range);
}

Test(contents_room, part_of_a_large_range_has_come) {
    contents_ends two;
    core_waiter sending;
    stream_gate_make();
    const large_range range = open_large(&two);
    one_call out = {&two, LARGE_BYTES, -1, GPUIPC_TRANSPORT_HOST};
    const one_call in = {&two, LARGE_BYTES, SHORT_MS, GPUIPC_TRANSPORT_HOST};
    stream_gate_close(two.sends);
    core_waiter_start(&sending, send_range, &out);
    gpuipc_status status;
    while ((status = receive_range((void *)&in)) == GPUIPC_ERR_TIMEOUT) {
        /* it has not come yet */
    }
    check_status(GPUIPC_ERR_CONNECTION_BROKEN, status);
    cr_assert(core_info(two.into).is_lost);
    stream_gate_open();
    (void)core_waiter_end(&sending); /* all of it left, or the receiver's end was seen */
    contents_both_pass(&two);
    close_large(&two, &range);
    stream_gate_end();
}
