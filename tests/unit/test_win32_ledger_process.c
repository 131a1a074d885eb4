/* SPDX-License-Identifier: MIT */
/** @file Handles that go from one process to another, and what is left of them when one of the two
 *  dies. How many there are of an object, in all processes, the system says. */
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "child.h"
#include "leak_gate.h"
#include "thread_state.h"
#include "win32_raw.h"

TestSuite(win32_ledger_process, .timeout = 100);

/** A helper, and a connection to it. */
typedef struct conversation {
    leak_gate gate;
    os_pair pair;
    child_process *helper;
    os_connection *connection;
    os_handle object;
} conversation;

static void begin(conversation *self, const char *role) {
    char line[CHILD_LINE_MAX];
    memset(self, 0, sizeof(*self));
    leak_gate_begin(&self->gate);
    os_pair_listen(&self->pair);
    os_pair_make_handles(&self->object, 1);
    const char *const arguments[] = {role, self->pair.path, self->pair.name, NULL};
    check_ok(child_start("win32_peer_helper", arguments, NULL, &self->helper));
    cr_assert(child_expect_line(self->helper, "GPUIPC_OK", line, SOON_MS), "%s", line);
    check_ok(
        os_listener_accept(self->pair.listener, os_deadline_after(SOON_MS), &self->pair.server));
    self->connection = self->pair.server;
}

static void end(conversation *self) {
    child_destroy(self->helper);
    os_pair_close(&self->pair);
    cr_assert_eq(raw_handles_of(self->object.value), 1);
    os_handle_close(&self->object);
    cr_assert_eq(leak_gate_end(&self->gate), 0, "%s", self->gate.text);
}

static void order(conversation *self, const char *what, const char *answer) {
    char line[CHILD_LINE_MAX];
    check_ok(child_write_line(self->helper, what));
    cr_assert(child_expect_line(self->helper, answer, line, SOON_MS), "%s: %s", what, line);
}

static void kill_helper(conversation *self) {
    child_kill(self->helper);
    check_ok(child_wait(self->helper, SOON_MS, NULL));
}

/** Sends the object @p count times in one packet. */
static gpuipc_status send_object(conversation *self, size_t count) {
    os_handle handles[OS_PACKET_HANDLES_MAX];
    for (size_t i = 0; i < count; i++) {
        handles[i] = self->object;
    }
    return os_connection_send(self->connection, "x", 1, handles, count, os_deadline_after(SOON_MS));
}

/* ---- the receiver is another process ------------------------------------------------------- */

Test(win32_ledger_process, a_receiver_has_what_it_took_until_it_ends) {
    conversation self;
    begin(&self, "receive");
    check_ok(send_object(&self, 3));
    order(&self, "take", "3");
    cr_assert_eq(raw_handles_of(self.object.value), 4);
    order(&self, "close", "closed");
    check_status(GPUIPC_ERR_PEER_CLOSED, send_object(&self, 1));
    os_pair_close_server(&self.pair);
    cr_assert_eq(raw_handles_of(self.object.value), 4, "it was taken, and is the receiver's");
    kill_helper(&self);
    end(&self);
}

Test(win32_ledger_process, a_receiver_that_closes_without_reading_keeps_nothing) {
    conversation self;
    begin(&self, "receive");
    check_ok(send_object(&self, OS_PACKET_HANDLES_MAX));
    check_ok(send_object(&self, 1));
    cr_assert_eq(raw_handles_of(self.object.value), 1 + OS_PACKET_HANDLES_MAX + 1);
    order(&self, "close", "closed");
    cr_assert_eq(raw_handles_of(self.object.value), 1);
    end(&self);
}

Test(win32_ledger_process, a_receiver_that_dies_before_it_reads_keeps_nothing) {
    conversation self;
    begin(&self, "receive");
    check_ok(send_object(&self, 3));
    cr_assert_eq(raw_handles_of(self.object.value), 4);
    kill_helper(&self);
    cr_assert_eq(raw_handles_of(self.object.value), 1);
    check_status(GPUIPC_ERR_PEER_CLOSED, send_object(&self, 3));
    check_status(GPUIPC_ERR_PEER_CLOSED, send_object(&self, 3));
    end(&self);
}

typedef struct sending {
    conversation *conversation;
    uint64_t thread;
    gpuipc_status status;
    char sentence[256];
} sending;

static void send_until_it_fails(void *argument) {
    sending *self = argument;
    do {
        self->status = send_object(self->conversation, 2);
    } while (self->status == GPUIPC_OK);
    snprintf(self->sentence, sizeof(self->sentence), "%s", gpuipc_error_get()->sentence);
}

Test(win32_ledger_process, a_receiver_that_dies_at_any_moment_is_a_closed_peer) {
    for (unsigned i = 0; i < 15; i++) {
        conversation self;
        sending own = {.conversation = &self};
        os_thread *thread;
        begin(&self, "receive");
        check_ok(os_thread_start(send_until_it_fails, &own, &thread));
        /* Not synchronisation: a moment that is another one each time. */
        os_sleep_ms(i);
        kill_helper(&self);
        os_thread_join(thread);
        cr_assert_eq(own.status, GPUIPC_ERR_PEER_CLOSED, "%s, %s", gpuipc_status_name(own.status),
                     own.sentence);
        end(&self);
    }
}

/* As of a sender that dies between the two: the receiver is left with one packet's handles. */
Test(win32_ledger_process, what_was_put_there_and_never_told_is_gone_with_the_receiver) {
    conversation self;
    os_handle handles[OS_PACKET_HANDLES_MAX];
    const os_peer *peer;
    win32_export *export;
    begin(&self, "receive");
    for (size_t i = 0; i < OS_PACKET_HANDLES_MAX; i++) {
        handles[i] = self.object;
    }
    check_ok(win32_connection_peer(self.connection, &peer));
    check_ok(win32_exporter_export(&self.connection->exporter, peer, handles, OS_PACKET_HANDLES_MAX,
                                   &export));
    cr_assert_eq(raw_handles_of(self.object.value), 1 + OS_PACKET_HANDLES_MAX);
    kill_helper(&self);
    cr_assert_eq(raw_handles_of(self.object.value), 1);
    win32_exporter_take_back(&self.connection->exporter, export);
    end(&self);
}

/* ---- the sender is another process --------------------------------------------------------- */

static gpuipc_status receive(conversation *self, os_handle *handles, size_t *out_count) {
    char byte;
    size_t size;
    return os_connection_receive(self->connection, &byte, 1, &size, handles, out_count,
                                 os_deadline_after(SOON_MS));
}

static void check_content(os_handle handle, uint64_t expected) {
    uint64_t number;
    void *address;
    check_ok(os_memory_map(handle, 4096, true, &address));
    memcpy(&number, address, sizeof(number));
    cr_assert_eq(number, expected);
    os_memory_unmap(address, 4096);
}

Test(win32_ledger_process, what_a_sender_wrote_before_it_died_arrives_and_works) {
    conversation self;
    os_handle came[OS_PACKET_HANDLES_MAX];
    size_t count = 0;
    begin(&self, "send");
    order(&self, "send 2", "GPUIPC_OK");
    order(&self, "send 253", "GPUIPC_OK");
    kill_helper(&self);
    static const size_t counts[] = {2, OS_PACKET_HANDLES_MAX};
    for (size_t i = 0; i < 2; i++) {
        check_ok(receive(&self, came, &count));
        cr_assert_eq(count, counts[i]);
        for (size_t j = 0; j < count; j++) {
            /* Nobody else is left who has it. */
            cr_assert_eq(raw_handles_of(came[j].value), 1);
            check_content(came[j], j + 1);
        }
        os_pair_close_handles(came, count);
    }
    check_status(GPUIPC_ERR_PEER_CLOSED, receive(&self, came, &count));
    end(&self);
}

Test(win32_ledger_process, what_a_dead_sender_wrote_is_closed_by_who_does_not_want_it) {
    conversation self;
    begin(&self, "send");
    order(&self, "send 3", "GPUIPC_OK");
    order(&self, "send 253", "GPUIPC_OK");
    kill_helper(&self);
    end(&self);
}

Test(win32_ledger_process, a_sender_that_dies_before_it_writes_leaves_one_packets_handles) {
    conversation self;
    resource_list before;
    resource_list after;
    os_handle came[OS_PACKET_HANDLES_MAX];
    size_t count;
    begin(&self, "send");
    cr_assert(resource_list_handles(&before));
    order(&self, "export 253", "GPUIPC_OK");
    kill_helper(&self);
    check_status(GPUIPC_ERR_PEER_CLOSED, receive(&self, came, &count));
    cr_assert(resource_list_handles(&after));
    size_t left = 0;
    for (size_t i = 0; i < after.count; i++) {
        uint64_t value;
        if (resource_list_contains(&before, after.lines[i])) {
            continue;
        }
        cr_assert_eq(sscanf(after.lines[i], "handle %llu: Section", (unsigned long long *)&value),
                     1, "%s", after.lines[i]);
        raw_close_copy(value); /* so that the gate sees nothing else */
        left++;
    }
    cr_assert_eq(left, OS_PACKET_HANDLES_MAX + 1, "with the ledger's");
    resource_list_free(&before);
    resource_list_free(&after);
    end(&self);
}

/* ---- both ---------------------------------------------------------------------------------- */

enum {
    CONVERSED = 60 /* tests/unit/win32_peer_helper.c has the same */
};

static void speak(void *argument) {
    static char bytes[OS_PACKET_BYTES_MAX];
    sending *self = argument;
    const os_handle handles[] = {self->conversation->object, self->conversation->object};
    self->status = GPUIPC_OK;
    for (int i = 0; i < CONVERSED && self->status == GPUIPC_OK; i++) {
        self->status = os_connection_send(self->conversation->connection, bytes, sizeof(bytes),
                                          handles, 2, os_deadline_after(SOON_MS));
    }
}

/* Each packet fills half of the pipe, so that both wait for the other to read most of the time. */
Test(win32_ledger_process, both_send_handles_at_once_and_neither_keeps_the_other_waiting) {
    static char bytes[OS_PACKET_BYTES_MAX];
    conversation self;
    char line[CHILD_LINE_MAX];
    sending own = {.conversation = &self};
    os_thread *thread;
    begin(&self, "converse");
    check_ok(os_thread_start(speak, &own, &thread));
    for (int i = 0; i < CONVERSED; i++) {
        os_handle came[OS_PACKET_HANDLES_MAX];
        size_t size;
        size_t count = 0;
        check_ok(os_connection_receive(self.connection, bytes, sizeof(bytes), &size, came, &count,
                                       os_deadline_after(SOON_MS)));
        cr_assert_eq(size, sizeof(bytes));
        cr_assert_eq(count, 2);
        check_content(came[0], 1);
        check_content(came[1], 2);
        os_pair_close_handles(came, count);
    }
    os_thread_join(thread);
    check_ok(own.status);
    cr_assert(child_expect_line(self.helper, "GPUIPC_OK GPUIPC_OK", line, SOON_MS), "%s", line);
    end(&self);
}

static void fill(void *argument) {
    static char bytes[OS_PACKET_BYTES_MAX];
    sending *self = argument;
    do {
        self->status = os_connection_send(self->conversation->connection, bytes, sizeof(bytes),
                                          &self->conversation->object, 1, os_deadline_after(50));
    } while (self->status == GPUIPC_OK);
}

Test(win32_ledger_process, when_neither_reads_both_run_out_of_time_and_leave_nothing) {
    conversation ends[2];
    sending own[2];
    os_thread *threads[2];
    leak_gate gate;
    os_pair pair;
    leak_gate_begin(&gate);
    os_pair_open(&pair);
    os_connection *const connections[] = {pair.client, pair.server};
    for (size_t i = 0; i < 2; i++) {
        ends[i] = (conversation){.connection = connections[i]};
        os_pair_make_handles(&ends[i].object, 1);
        own[i] = (sending){.conversation = &ends[i]};
        check_ok(os_thread_start(fill, &own[i], &threads[i]));
    }
    for (size_t i = 0; i < 2; i++) {
        os_thread_join(threads[i]);
        cr_assert_eq(own[i].status, GPUIPC_ERR_TIMEOUT);
        cr_assert_gt(raw_handles_of(ends[i].object.value), 1);
    }
    os_pair_close(&pair);
    for (size_t i = 0; i < 2; i++) {
        cr_assert_eq(raw_handles_of(ends[i].object.value), 1);
        os_handle_close(&ends[i].object);
    }
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}
