/* SPDX-License-Identifier: MIT */
/** @file Waiting: time-outs are kept and lose nothing; one receiver at a time; closing wakes. */
#include <criterion/criterion.h>
#include <stdatomic.h>

#include "check.h"
#include "marks.h"
#include "partner.h"
#include "raw_packet.h"
#include "system.h"
#include "thread_state.h"

/* A wait of this long must not end earlier, nor much later: LATE_MS is what a busy machine may add. */
#define WAIT_MS 150
#define LATE_MS 5000

static process_case at;

static void begin(void) {
    process_case_begin(&at, NULL);
}

static void end(void) {
    process_case_end(&at);
}

TestSuite(wait, .timeout = 100);

static uint64_t started_ns;

static void watch_start(void) {
    started_ns = os_clock_ns();
}

static void watch_check(void) {
    uint64_t took_ms = (os_clock_ns() - started_ns) / 1000000;
    cr_assert(took_ms >= WAIT_MS && took_ms < WAIT_MS + LATE_MS, "took %u ms, not %d",
              (unsigned)took_ms, WAIT_MS);
}

static gpuipc_status receive_nothing(gpuipc_connection *from, int timeout_ms) {
    size_t count = 0;
    return process_case_receive(from, NULL, &count, NULL, timeout_ms);
}

Test(wait, accept_ends_in_time) {
    begin();
    gpuipc_connection *connection;
    watch_start();
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_listener_accept(at.listener, WAIT_MS, &connection));
    watch_check();
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_listener_accept(at.listener, 0, &connection));
    end();
}

Test(wait, open_ends_in_time) {
    begin();
    char name[UNIQUE_NAME_MAX];
    gpuipc_connection *connection;
    unique_name(name);
    watch_start();
    check_status(GPUIPC_ERR_NOT_FOUND,
                 gpuipc_connection_open(at.context, name, NULL, WAIT_MS, &connection));
    watch_check();
    end();
}

Test(wait, open_waits_for_a_listener_to_come) {
    begin();
    partner other;
    char name[UNIQUE_NAME_MAX];
    gpuipc_listener *listener;
    gpuipc_connection *connection;
    unique_name(name);
    partner_start(&other, &at, NULL, NULL);
    partner_tell(&other, "connect %s %d", name, PATIENCE_MS);
    check_ok(gpuipc_listener_open(at.context, name, NULL, &listener));
    check_ok(gpuipc_listener_accept(listener, PATIENCE_MS, &connection));
    partner_hear(&other, "GPUIPC_OK");
    check_ok(gpuipc_connection_close(connection));
    check_ok(gpuipc_listener_close(listener));
    partner_end(&other);
    end();
}

Test(wait, receive_ends_in_time) {
    begin();
    gpuipc_connection *near_end;
    gpuipc_connection *far_end;
    process_case_connect(&at, &near_end, &far_end);
    watch_start();
    check_status(GPUIPC_ERR_TIMEOUT, receive_nothing(near_end, WAIT_MS));
    watch_check();
    check_status(GPUIPC_ERR_TIMEOUT, receive_nothing(near_end, 0));
    check_ok(gpuipc_connection_close(near_end));
    check_ok(gpuipc_connection_close(far_end));
    end();
}

#define FILLER_BYTES 16000

/* Fills the connection until nothing more goes in. @return how many messages did */
static unsigned fill_connection(gpuipc_connection *to) {
    unsigned sent = 0;
    uint8_t bytes[FILLER_BYTES];
    gpuipc_outgoing message = {
        .struct_size = sizeof(message), .bytes = bytes, .bytes_size = sizeof(bytes)};
    marks_fill_bytes(bytes, sizeof(bytes));
    gpuipc_status status;
    while ((status = gpuipc_connection_send(to, &message, 0)) == GPUIPC_OK) {
        sent++;
    }
    cr_assert_eq(status, GPUIPC_ERR_TIMEOUT, "%s", gpuipc_status_name(status));
    cr_assert_gt(sent, 0);
    watch_start();
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_connection_send(to, &message, WAIT_MS));
    watch_check();
    return sent;
}

/* Receives so many of those messages. */
static void drain_connection(gpuipc_connection *from, unsigned messages) {
    for (unsigned i = 0; i < messages; i++) {
        size_t count = 0;
        size_t bytes = 0;
        check_ok(process_case_receive(from, NULL, &count, &bytes, PATIENCE_MS));
        cr_assert_eq(bytes, FILLER_BYTES);
        cr_assert_eq(marks_check_bytes(process_case_bytes(), bytes), bytes);
    }
}

/* A message that did not leave is lost to nobody: those before it arrive, and those after it too. */
Test(wait, send_ends_in_time_when_the_peer_does_not_read) {
    begin();
    gpuipc_connection *near_end;
    gpuipc_connection *far_end;
    size_t bytes;
    size_t count = 0;
    process_case_connect(&at, &near_end, &far_end);
    drain_connection(far_end, fill_connection(near_end));
    check_status(GPUIPC_ERR_TIMEOUT, receive_nothing(far_end, 0));
    check_ok(process_case_send(near_end, NULL, 0, 77));
    check_ok(process_case_receive(far_end, NULL, &count, &bytes, PATIENCE_MS));
    cr_assert_eq(bytes, 77);
    check_ok(gpuipc_connection_close(near_end));
    check_ok(gpuipc_connection_close(far_end));
    end();
}

/* Part of a message had left when time ran out: the receiver could make nothing of what follows. */
Test(wait, send_that_ends_in_the_middle_breaks_the_connection) {
    enum {
        SEGMENTS = 600
    };
    gpuipc_connection *near_end;
    gpuipc_connection *far_end;
    gpuipc_buffer_config config = {.struct_size = sizeof(config),
                                   .bytes = SEGMENTS * MEBIBYTES_2,
                                   .segment_bytes = MEBIBYTES_2};
    gpuipc_buffer *buffer;
    gpuipc_outgoing message = {
        .struct_size = sizeof(message), .buffers = &buffer, .buffer_count = 1};
    uint64_t limit = system_raise_handle_limit();
    if (limit < SEGMENTS + 100) {
        cr_skip_test("needs %d handles", SEGMENTS + 100);
    }
    begin();
    process_case_connect(&at, &near_end, &far_end);
    check_ok(gpuipc_buffer_create(at.context, &config, &buffer));
    /* The full connection gets room for one of the message's packets, which are three, after the small
     * one that brings the page of points. The first two (253 segments, with 80 bytes each, and on Windows
     * 8 more of each handle) are larger than one of those that made room and smaller than two: so two
     * of them have room for one at least, and for two at most. */
    unsigned sent = fill_connection(near_end);
    drain_connection(far_end, 2);
    check_status(GPUIPC_ERR_CONNECTION_BROKEN, gpuipc_connection_send(near_end, &message, WAIT_MS));
    check_status(GPUIPC_ERR_CONNECTION_BROKEN, gpuipc_connection_send(near_end, &message, 0));
    check_status(GPUIPC_ERR_CONNECTION_BROKEN, receive_nothing(near_end, 0));

    /* what was whole still arrives; then the peer sees the end, and no half message */
    drain_connection(far_end, sent - 2);
    check_status(GPUIPC_ERR_PEER_CLOSED, receive_nothing(far_end, PATIENCE_MS));
    check_ok(gpuipc_buffer_release(buffer));
    check_ok(gpuipc_connection_close(near_end));
    check_ok(gpuipc_connection_close(far_end));
    end();
}

/* The first half of a message is kept over a receive that timed out. */
Test(wait, nothing_is_lost_by_a_receive_that_timed_out) {
    begin();
    gpuipc_buffer *buffer = process_case_buffer(&at, 0, MEBIBYTES_2, 0, 1, 0);
    gpuipc_buffer *opened[2];
    raw_packet packet;
    size_t count = 2;
    size_t bytes;
    cr_assert(raw_packet_make(buffer, &packet));
    raw_peer *raw = raw_connect(at.directory, at.name);
    cr_assert_neq(raw, NULL);
    gpuipc_connection *connection = process_case_accept(&at);

    packet.header.total_buffers = 2;
    packet.header.total_segments = 2;
    packet.header.total_bytes = 2 * packet.header.bytes;
    cr_assert(raw_packet_send(&packet, raw));
    for (int i = 0; i < 3; i++) {
        check_status(GPUIPC_ERR_TIMEOUT, receive_nothing(connection, 10));
    }
    cr_assert(raw_packet_send(&packet, raw));
    /* too little room does not lose it either, and says how much is needed */
    count = 1;
    check_status(GPUIPC_ERR_TOO_SMALL,
                 process_case_receive(connection, opened, &count, NULL, PATIENCE_MS));
    count = 2;
    check_ok(process_case_receive(connection, opened, &count, &bytes, PATIENCE_MS));
    cr_assert_eq(count, 2);
    cr_assert_eq(bytes, 6);
    cr_assert_arr_eq(process_case_bytes(), "rawraw", 6);
    for (size_t i = 0; i < 2; i++) {
        check_ok(marks_check(opened[i], 1, 0));
        check_ok(gpuipc_buffer_release(opened[i]));
    }
    raw_packet_close(&packet);
    raw_close(raw);
    check_ok(gpuipc_buffer_release(buffer));
    check_ok(gpuipc_connection_close(connection));
    end();
}

/* A thread that waits in a call, and what the call answered it. */
typedef struct waiter {
    gpuipc_connection *connection;
    gpuipc_listener *listener;
    atomic_uint_least64_t number;
    gpuipc_status status;
} waiter;

static void wait_in_receive(void *argument) {
    waiter *self = argument;
    atomic_store(&self->number, thread_state_own_number());
    self->status = receive_nothing(self->connection, PATIENCE_MS);
}

static void wait_in_accept(void *argument) {
    waiter *self = argument;
    gpuipc_connection *connection;
    atomic_store(&self->number, thread_state_own_number());
    self->status = gpuipc_listener_accept(self->listener, PATIENCE_MS, &connection);
}

/* Starts it and returns when it sleeps in its call: there is nothing else that it could wait for. */
static os_thread *start_waiter(waiter *self, void (*run)(void *)) {
    os_thread *thread;
    check_ok(os_thread_start(run, self, &thread));
    os_deadline deadline = os_deadline_after(PATIENCE_MS);
    while (atomic_load(&self->number) == 0) {
        cr_assert(!os_deadline_passed(deadline));
        os_sleep_ms(1);
    }
    cr_assert(thread_state_wait_asleep(atomic_load(&self->number), PATIENCE_MS));
    return thread;
}

Test(wait, one_receiver_at_a_time) {
    begin();
    gpuipc_connection *near_end;
    gpuipc_connection *far_end;
    process_case_connect(&at, &near_end, &far_end);
    waiter first = {.connection = near_end};
    os_thread *thread = start_waiter(&first, wait_in_receive);
    check_status(GPUIPC_ERR_BUSY, receive_nothing(near_end, 0));
    /* the other direction is free, and the first receiver gets what comes */
    check_ok(process_case_send(near_end, NULL, 0, 1));
    check_ok(process_case_send(far_end, NULL, 0, 1));
    os_thread_join(thread);
    check_ok(first.status);
    check_status(GPUIPC_ERR_TIMEOUT, receive_nothing(near_end, 0));
    check_ok(gpuipc_connection_close(near_end));
    check_ok(gpuipc_connection_close(far_end));
    end();
}

Test(wait, closing_wakes_the_receiver) {
    begin();
    gpuipc_connection *near_end;
    gpuipc_connection *far_end;
    process_case_connect(&at, &near_end, &far_end);
    waiter one = {.connection = near_end};
    os_thread *thread = start_waiter(&one, wait_in_receive);
    check_ok(gpuipc_connection_close(near_end));
    os_thread_join(thread);
    cr_assert_eq(one.status, GPUIPC_ERR_RELEASED, "%s", gpuipc_status_name(one.status));
    check_status(GPUIPC_ERR_RELEASED, receive_nothing(near_end, 0));
    check_status(GPUIPC_ERR_PEER_CLOSED, receive_nothing(far_end, PATIENCE_MS));
    check_ok(gpuipc_connection_close(far_end));
    end();
}

Test(wait, closing_wakes_everyone_in_accept) {
    begin();
    enum {
        WAITERS = 3
    };
    char name[UNIQUE_NAME_MAX];
    gpuipc_listener *listener;
    waiter waiters[WAITERS] = {0};
    os_thread *threads[WAITERS];
    unique_name(name);
    check_ok(gpuipc_listener_open(at.context, name, NULL, &listener));
    for (int i = 0; i < WAITERS; i++) {
        waiters[i].listener = listener;
        threads[i] = start_waiter(&waiters[i], wait_in_accept);
    }
    check_ok(gpuipc_listener_close(listener));
    for (int i = 0; i < WAITERS; i++) {
        os_thread_join(threads[i]);
        cr_assert_eq(waiters[i].status, GPUIPC_ERR_RELEASED, "%s",
                     gpuipc_status_name(waiters[i].status));
    }
    /* the name is free again */
    check_ok(gpuipc_listener_open(at.context, name, NULL, &listener));
    check_ok(gpuipc_listener_close(listener));
    end();
}
