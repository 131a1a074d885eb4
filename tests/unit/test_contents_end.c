/* SPDX-License-Identifier: MIT */
/** @file Calls that wait while they send or receive contents, and whose connection ends: they are told whether somebody here
 *  closed it, or the other direction broke it off. */
#include "contents/contents_pace.h"
#include "contents_ends.h"
#include "message/connection.h"
#include "stream_gate.h"

#define BYTES 4096u

TestSuite(contents_end, .init = core_start, .fini = core_finish, .timeout = 60);

/* ---- how it ends ------------------------------------------------------------------------------ */

static void close_end(gpuipc_connection **end) {
    check_ok(gpuipc_connection_close(*end));
    *end = NULL;
}

/* As the other direction does, when it has lost the thread. */
static void break_off(gpuipc_connection **end) {
    connection *self;
    check_ok(connection_acquire(*end, &self));
    connection_break(self);
    connection_unreference(self);
}

typedef struct ending {
    void (*end)(gpuipc_connection **end);
    gpuipc_status told;
} ending;

static const ending endings[2] = {{close_end, GPUIPC_ERR_RELEASED},
                                  {break_off, GPUIPC_ERR_CONNECTION_BROKEN}};

/* What nobody receives any more lets the streams go when both ends are closed. */
static void close_all(contents_ends *two) {
    if (two->pair.server != NULL) {
        close_end(&two->pair.server);
    }
    if (two->pair.client != NULL) {
        close_end(&two->pair.client);
    }
    contents_both_pass(two);
    contents_ends_close(two);
}

/* ---- calls ------------------------------------------------------------------------------------ */

typedef struct one_call {
    contents_ends *two;
    gpuipc_transport way;
} one_call;

static gpuipc_status send_one(void *argument) {
    const one_call *self = argument;
    return contents_send_range(self->two, 0, BYTES, self->way);
}

static gpuipc_status receive_one(void *argument) {
    const one_call *self = argument;
    return contents_receive_range(self->two, 0, BYTES, self->way);
}

static void check_sender_is_told(one_call *one, const ending *how) {
    core_waiter waiting;
    core_waiter_start(&waiting, send_one, one);
    how->end(&one->two->pair.server);
    check_status(how->told, core_waiter_end(&waiting));
}

/* ---- where they wait -------------------------------------------------------------------------- */

static void check_room_to_send(gpuipc_transport way, const ending *how) {
    contents_ends two;
    contents_ends_open(&two, BYTES);
    one_call one = {&two, way};
    for (unsigned sent = 0; sent < CONTENTS_PACE_MOST; sent++) {
        check_ok(send_one(&one));
    }
    check_sender_is_told(&one, how);
    close_all(&two);
}

Test(contents_end, who_waits_for_room_to_send_is_told) {
    for (size_t i = 0; i < 4; i++) {
        check_room_to_send(contents_ways[i % 2], &endings[i / 2]);
    }
}

/* The receiver's stream is late, and the last ones come over another of the sender's, which has room. */
static void check_room_to_receive(gpuipc_transport way, const ending *how) {
    contents_ends two;
    core_waiter waiting;
    contents_ends_open(&two, BYTES);
    one_call one = {&two, GPUIPC_TRANSPORT_VMM};
    const CUstream full = two.sends;
    stream_gate_close(two.receives);
    for (unsigned i = 0; i < CONTENTS_PACE_MOST; i++) {
        check_ok(send_one(&one));
        check_ok(receive_one(&one));
    }
    two.sends = stream_gate_stream();
    one.way = way;
    check_ok(send_one(&one));
    core_waiter_start(&waiting, receive_one, &one);
    how->end(&two.pair.client);
    check_status(how->told, core_waiter_end(&waiting));
    stream_gate_open();
    close_end(&two.pair.server);
    stream_gate_synchronize(full);
    stream_gate_stream_end(full);
    close_all(&two);
}

Test(contents_end, who_waits_for_room_to_receive_is_told) {
    stream_gate_make();
    for (size_t i = 0; i < 4; i++) {
        check_room_to_receive(contents_ways[i % 2], &endings[i / 2]);
    }
    stream_gate_end();
}

/* With the shortest packets, so that nothing longer finds room either. */
static void fill_the_way(gpuipc_connection *to) {
    const gpuipc_outgoing message = {.struct_size = sizeof(message)};
    gpuipc_status status = GPUIPC_OK;
    for (unsigned sent = 0; status == GPUIPC_OK && sent < 10000; sent++) {
        status = gpuipc_connection_send(to, &message, 0);
    }
    check_status(GPUIPC_ERR_TIMEOUT, status);
}

/* @param before how many go before: the first of a connection has the words of its ring sent in front of it */
static void check_way(gpuipc_transport by, unsigned before, const ending *how) {
    contents_ends two;
    contents_ends_open(&two, BYTES);
    one_call one = {&two, by};
    for (unsigned i = 0; i < before; i++) {
        check_ok(send_one(&one));
        check_ok(receive_one(&one));
    }
    fill_the_way(two.pair.server);
    check_sender_is_told(&one, how);
    close_all(&two);
}

Test(contents_end, who_waits_for_the_way_is_told) {
    for (unsigned i = 0; i < 8; i++) {
        check_way(contents_ways[i % 2], i / 4, &endings[i / 2 % 2]);
    }
}

/* ---- without stream memory operations ---------------------------------------------------------- */

static void start_without_words(void) {
    core_environment_set("GPUIPC_EMULATED_MACHINE", "stream-words=0");
    core_start();
}

TestSuite(contents_end_no_words, .init = start_without_words, .fini = core_finish, .timeout = 60);

/* The contents are the receiver's to take, and the call waits where a stream cannot. */
Test(contents_end_no_words, who_waits_for_the_return_is_told) {
    core_need_emulated();
    for (size_t i = 0; i < 2; i++) {
        contents_ends two;
        contents_ends_open(&two, BYTES);
        one_call one = {&two, GPUIPC_TRANSPORT_VMM};
        check_sender_is_told(&one, &endings[i]);
        close_all(&two);
    }
}
