/* SPDX-License-Identifier: MIT */
/** @file Ends that are closed while a thread of each waits in gpuipc_connection_send() behind contents that the other
 *  has not received: closing lets both go, as gpuipc_connection_close() promises. */
#include <stdatomic.h>

#include "contents_ends.h"

/* More than any call needs that is let go, and little enough that a whole run of failures ends. */
#define ENDS_MS 10000

TestSuite(close, .init = core_start, .fini = core_finish, .timeout = 60);

/* A thread that sends behind what the stream waits for. */
typedef struct sender {
    gpuipc_connection *by;
    gpuipc_buffer *sent;
    CUstream stream;
    uint32_t flags;
    atomic_bool is_over;
    core_waiter waiter;
} sender;

static gpuipc_status send_behind(void *argument) {
    sender *self = argument;
    const gpuipc_outgoing message = {.struct_size = sizeof(message),
                                     .buffers = &self->sent,
                                     .buffer_count = 1,
                                     .stream = self->stream};
    const gpuipc_status status = gpuipc_connection_send(self->by, &message, -1);
    atomic_store(&self->is_over, true);
    return status;
}

/* Sends contents that nobody receives, and then waits for them in a thread of its own. */
static void sender_start(sender *self, gpuipc_transport way) {
    const gpuipc_contents contents = {.struct_size = sizeof(contents),
                                      .buffer = self->sent,
                                      .bytes = CONTENTS_MANY,
                                      .stream = self->stream,
                                      .transport = way};
    check_ok(gpuipc_connection_send_contents(self->by, &contents, SOON_MS));
    atomic_init(&self->is_over, false);
    core_waiter_start(&self->waiter, send_behind, self);
    cr_assert_not(atomic_load(&self->is_over));
}

static void sender_check_end(sender *self, const char *who) {
    const os_deadline deadline = os_deadline_after(ENDS_MS);
    while (!atomic_load(&self->is_over)) {
        cr_assert_not(os_deadline_passed(deadline),
                      "%s is still in gpuipc_connection_send() after %d ms", who, ENDS_MS);
        os_sleep_ms(1);
    }
    const gpuipc_status status = core_waiter_end(&self->waiter);
    /* What its stream waited for is returned when the other end closes, which may be seen first; and a pipe of Windows may
     * still take the message then, and throw it away. */
    cr_assert(status == GPUIPC_ERR_RELEASED || status == GPUIPC_ERR_PEER_CLOSED ||
                  status == GPUIPC_OK,
              "%s: %s", who, gpuipc_status_name(status));
    cr_assert_eq(core_driver()->cuStreamSynchronize(self->stream), CUDA_SUCCESS);
}

static void check_both_end(gpuipc_transport way, gpuipc_transport back) {
    contents_ends two;
    contents_ends_open(&two, CONTENTS_MANY);
    sender there = {.by = two.pair.server, .sent = two.from, .stream = two.sends};
    sender here = {.by = two.pair.client, .sent = two.into, .stream = two.receives};
    sender_start(&there, way);
    sender_start(&here, back);
    check_ok(gpuipc_connection_close(two.pair.server));
    check_ok(gpuipc_connection_close(two.pair.client));
    two.pair.server = NULL;
    two.pair.client = NULL;
    sender_check_end(&there, "who closed first");
    sender_check_end(&here, "who closed second");
    contents_ends_close(&two);
}

Test(close, of_both_ends_lets_their_senders_go_by_memory) {
    check_both_end(GPUIPC_TRANSPORT_VMM, GPUIPC_TRANSPORT_VMM);
}

Test(close, of_both_ends_lets_their_senders_go_through_the_ring) {
    check_both_end(GPUIPC_TRANSPORT_HOST, GPUIPC_TRANSPORT_HOST);
}

Test(close, of_both_ends_lets_their_senders_go_by_either_way) {
    check_both_end(GPUIPC_TRANSPORT_VMM, GPUIPC_TRANSPORT_HOST);
}

/* The peer does not close: it is enough that this end does. */
Test(close, of_one_end_lets_its_sender_go_when_the_peer_is_silent) {
    for (size_t i = 0; i < 2; i++) {
        contents_ends two;
        contents_ends_open(&two, CONTENTS_MANY);
        sender there = {.by = two.pair.server, .sent = two.from, .stream = two.sends};
        sender_start(&there, contents_ways[i]);
        check_ok(gpuipc_connection_close(two.pair.server));
        two.pair.server = NULL;
        const os_deadline deadline = os_deadline_after(ENDS_MS);
        while (!atomic_load(&there.is_over)) {
            cr_assert_not(os_deadline_passed(deadline), "way %zu: still there after %d ms", i,
                          ENDS_MS);
            os_sleep_ms(1);
        }
        check_status(GPUIPC_ERR_RELEASED, core_waiter_end(&there.waiter));
        check_ok(gpuipc_connection_close(
            two.pair.client)); /* from here on the stream goes on, which needs its memory */
        two.pair.client = NULL;
        cr_assert_eq(core_driver()->cuStreamSynchronize(two.sends), CUDA_SUCCESS);
        contents_ends_close(&two);
    }
}
