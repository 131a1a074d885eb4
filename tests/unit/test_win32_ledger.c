/* SPDX-License-Identifier: MIT */
/** @file Handles that were put into a receiver: whoever they are left to closes them, and nobody else
 *  does. How many there are of an object, in all processes, the system says. */
#include <stdatomic.h>
#include <string.h>

#include "check.h"
#include "leak_gate.h"
#include "thread_state.h"
#include "win32_raw.h"
#include "win32_record.h"

TestSuite(win32_ledger, .timeout = 100);

enum {
    OBJECTS = 3
};

/** A sender of the library's and a raw receiver, which does as the test wants. */
typedef struct exporting {
    leak_gate gate;
    os_connection *sender;
    HANDLE raw;
    os_handle objects[OBJECTS];
    unsigned char frame[WIN32_FRAME_BYTES_MAX];
    _Atomic uint64_t *ledger; /* as the receiver maps it; NULL: has not come */
} exporting;

static void begin(exporting *self) {
    memset(self, 0, sizeof(*self));
    leak_gate_begin(&self->gate);
    self->raw = raw_pipe(true, &self->sender);
    os_pair_make_handles(self->objects, OBJECTS);
}

/** How many handles of the object were exported to somebody. */
static unsigned exported_of(const exporting *self, size_t index) {
    return raw_handles_of(self->objects[index].value) - 1;
}

static void check_exported(const exporting *self, unsigned first, unsigned second, unsigned third) {
    cr_assert_eq(exported_of(self, 0), first);
    cr_assert_eq(exported_of(self, 1), second);
    cr_assert_eq(exported_of(self, 2), third);
}

static void end(exporting *self) {
    if (self->sender != NULL) {
        os_connection_destroy(self->sender);
    }
    if (self->raw != NULL) {
        CloseHandle(self->raw);
    }
    check_exported(self, 0, 0, 0);
    os_memory_unmap((void *)self->ledger, 4096);
    os_pair_close_handles(self->objects, OBJECTS);
    cr_assert_eq(leak_gate_end(&self->gate), 0, "%s", self->gate.text);
}

static void end_sender(exporting *self) {
    os_connection_destroy(self->sender);
    self->sender = NULL;
}

static void end_receiver(exporting *self) {
    CloseHandle(self->raw);
    self->raw = NULL;
}

static gpuipc_status send_first(exporting *self, size_t count) {
    return os_connection_send(self->sender, "hello", 5, self->objects, count,
                              os_deadline_after(SOON_MS));
}

/** The receiver reads a packet of @p count handles, and counts it if it is told to. */
static void take(exporting *self, size_t count, uint64_t counted) {
    void *page;
    cr_assert_gt(raw_read(self->raw, self->frame, sizeof(self->frame)), 0);
    const size_t surplus = raw_get(self->frame, RAW_AT_FLAGS, 2);
    cr_assert_eq(raw_get(self->frame, RAW_AT_HANDLES, 4), count + surplus);
    if (surplus != 0) {
        const uint64_t value = raw_get(self->frame, RAW_ENVELOPE, 8);
        check_ok(os_memory_map((os_handle){(intptr_t)value}, 4096, true, &page));
        raw_close_copy(value);
        self->ledger = page;
    }
    if (counted != 0) {
        atomic_store(self->ledger, counted);
    }
}

/** The receiver closes the @p index-th handle of the packet that it read last. */
static void close_taken(exporting *self, size_t index) {
    const size_t surplus = raw_get(self->frame, RAW_AT_FLAGS, 2);
    raw_close_copy(raw_get(self->frame, RAW_ENVELOPE + 8 * (surplus + index), 8));
}

/* ---- who closes ---------------------------------------------------------------------------- */

Test(win32_ledger, a_receiver_that_closes_without_reading_closes_what_lies_there_for_it) {
    leak_gate gate;
    os_pair pair;
    os_handle objects[2];
    leak_gate_begin(&gate);
    os_pair_open(&pair);
    os_pair_make_handles(objects, 2);
    for (int i = 0; i < 3; i++) {
        check_ok(os_connection_send(pair.client, "x", 1, objects, 2, os_deadline_after(0)));
    }
    cr_assert_eq(raw_handles_of(objects[0].value), 4);
    os_pair_close_server(&pair);
    cr_assert_eq(raw_handles_of(objects[0].value), 1);
    cr_assert_eq(raw_handles_of(objects[1].value), 1);
    check_status(GPUIPC_ERR_PEER_CLOSED,
                 os_connection_send(pair.client, "x", 1, objects, 2, os_deadline_after(0)));
    cr_assert_eq(raw_handles_of(objects[0].value), 1);
    os_pair_close_handles(objects, 2);
    os_pair_close(&pair);
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

Test(win32_ledger, what_a_receiver_left_without_counting_it_the_sender_closes_there) {
    exporting self;
    begin(&self);
    check_ok(send_first(&self, 3));
    check_ok(send_first(&self, 1));
    end_receiver(&self);
    check_exported(&self, 2, 1, 1);
    record_begin();
    end_sender(&self);
    record_end();
    check_exported(&self, 0, 0, 0);
    /* Only what was exported: the ledger and four handles, each once. */
    cr_assert_eq(record_count(RECORD_DuplicateHandle), 5);
    for (size_t i = 0; i < 5; i++) {
        const record_call *call = record_at(RECORD_DuplicateHandle, i);
        cr_assert_eq(call->arguments[2], (uint64_t)GetCurrentProcess());
        cr_assert_eq(call->arguments[6], DUPLICATE_SAME_ACCESS | DUPLICATE_CLOSE_SOURCE);
        cr_assert_not(record_has_failed(call));
    }
    cr_assert_eq(record_bad_closes(), 0);
    end(&self);
}

Test(win32_ledger, what_a_receiver_has_counted_is_its_own_also_after_its_end) {
    exporting self;
    begin(&self);
    check_ok(send_first(&self, 1));
    take(&self, 1, 1);
    end_receiver(&self);
    end_sender(&self);
    check_exported(&self, 1, 0, 0);
    close_taken(&self, 0);
    end(&self);
}

Test(win32_ledger, what_was_counted_stays_and_what_was_not_goes) {
    exporting self;
    begin(&self);
    check_ok(send_first(&self, 1));
    check_ok(send_first(&self, 2));
    check_ok(send_first(&self, 3));
    take(&self, 1, 0);
    close_taken(&self, 0); /* as a receiver does that has counted it */
    take(&self, 2, 2);
    end_receiver(&self);
    check_exported(&self, 2, 2, 1);
    end_sender(&self);
    check_exported(&self, 1, 1, 0);
    close_taken(&self, 0);
    close_taken(&self, 1);
    end(&self);
}

/* Its packets are still in the pipe, and it may read them. */
Test(win32_ledger, what_is_on_its_way_to_a_receiver_that_lives_is_left_to_it) {
    exporting self;
    begin(&self);
    check_ok(send_first(&self, 3));
    end_sender(&self);
    check_exported(&self, 1, 1, 1);
    take(&self, 3, 1);
    for (size_t i = 0; i < 3; i++) {
        close_taken(&self, i);
    }
    cr_assert_eq(raw_read(self.raw, self.frame, sizeof(self.frame)), 0);
    end(&self);
}

/* What is closed in a process that has taken it may be something else of that process's by then. */
Test(win32_ledger, what_a_receiver_may_have_closed_is_left_to_it) {
    exporting self;
    begin(&self);
    check_ok(send_first(&self, 3));
    record_begin();
    record_fail(RECORD_PeekNamedPipe, 0, ERROR_NO_SYSTEM_RESOURCES);
    cr_assert_not(os_connection_has_ended(self.sender));
    end_sender(&self);
    cr_assert_gt(record_count(RECORD_PeekNamedPipe), 1);
    record_end();
    check_exported(&self, 1, 1, 1);
    take(&self, 3, 1);
    for (size_t i = 0; i < 3; i++) {
        close_taken(&self, i);
    }
    end(&self);
}

Test(win32_ledger, a_receiver_that_counts_more_than_was_sent_harms_only_itself) {
    static const uint64_t lies[] = {3, 1000, UINT64_MAX};
    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        exporting self;
        begin(&self);
        check_ok(send_first(&self, 1));
        take(&self, 1, lies[i]);
        close_taken(&self, 0);
        check_ok(send_first(&self, 2));
        take(&self, 2, 0);
        cr_assert_eq(raw_get(self.frame, RAW_AT_NUMBER, 8), 2);
        atomic_store(self.ledger, 0);
        check_ok(send_first(&self, 3));
        take(&self, 3, lies[i]);
        end_receiver(&self);
        end_sender(&self);
        check_exported(&self, 2, 2, 1);
        for (size_t j = 0; j < 3; j++) {
            close_taken(&self, j);
        }
        /* The second packet's: they lie where the liar put them. */
        check_exported(&self, 1, 1, 0);
        os_pair_close_handles(self.objects, OBJECTS);
        os_memory_unmap((void *)self.ledger, 4096);
    }
}

Test(win32_ledger, what_was_taken_is_forgotten) {
    exporting self;
    begin(&self);
    for (uint64_t number = 1; number <= 50; number++) {
        check_ok(send_first(&self, 1));
        cr_assert_eq(self.sender->exporter.oldest->number, number);
        cr_assert_eq(self.sender->exporter.newest, self.sender->exporter.oldest);
        take(&self, 1, number);
        close_taken(&self, 0);
    }
    end(&self);
}

/* ---- what fails on the way ----------------------------------------------------------------- */

Test(win32_ledger, of_a_packet_that_cannot_be_written_no_handle_stays) {
    static const struct {
        DWORD error;
        gpuipc_status expected;
    } rows[] = {{ERROR_NO_SYSTEM_RESOURCES, GPUIPC_ERR_OUT_OF_MEMORY},
                {ERROR_NO_DATA, GPUIPC_ERR_PEER_CLOSED},
                {ERROR_ACCESS_DENIED, GPUIPC_ERR_OS}};
    exporting self;
    begin(&self);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        record_begin();
        record_fail(RECORD_WriteFile, 1, rows[i].error);
        check_status(rows[i].expected, send_first(&self, 3));
        cr_assert_eq(record_bad_closes(), 0);
        record_end();
        cr_assert_eq(gpuipc_error_get()->native_code, rows[i].error);
        check_exported(&self, 0, 0, 0);
        /* And the next one is counted as if there had been none. */
        check_ok(send_first(&self, 1));
        take(&self, 1, i + 1);
        cr_assert_eq(raw_get(self.frame, RAW_AT_NUMBER, 8), i + 1);
        cr_assert_eq(raw_get(self.frame, RAW_AT_FLAGS, 2), i == 0);
        close_taken(&self, 0);
    }
    end(&self);
}

Test(win32_ledger, of_handles_that_cannot_all_be_put_there_none_stays) {
    exporting self;
    begin(&self);
    for (size_t number = 1; number <= 4; number++) { /* the ledger's and three */
        record_begin();
        record_fail(RECORD_DuplicateHandle, number, ERROR_NOT_ENOUGH_QUOTA);
        check_status(GPUIPC_ERR_OUT_OF_MEMORY, send_first(&self, 3));
        cr_assert_eq(record_count(RECORD_WriteFile), 0);
        cr_assert_eq(record_bad_closes(), 0);
        record_end();
        check_exported(&self, 0, 0, 0);
    }
    check_ok(send_first(&self, 3));
    take(&self, 3, 1);
    for (size_t i = 0; i < 3; i++) {
        close_taken(&self, i);
    }
    end(&self);
}

Test(win32_ledger, of_handles_one_of_which_is_not_open_none_is_put_there) {
    exporting self;
    begin(&self);
    os_handle closed;
    check_ok(win32_event_make(&closed));
    const os_handle handles[] = {self.objects[0], self.objects[1], closed};
    os_handle_close(&closed);
    check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "not open",
                  os_connection_send(self.sender, "x", 1, handles, 3, os_deadline_after(SOON_MS)));
    check_exported(&self, 0, 0, 0);
    cr_assert_null(self.sender->exporter.page);
    end(&self);
}

Test(win32_ledger, into_a_full_pipe_no_handle_goes_that_comes_back) {
    static char bytes[OS_PACKET_BYTES_MAX];
    exporting self;
    unsigned sent = 0;
    begin(&self);
    while (os_connection_send(self.sender, bytes, sizeof(bytes), self.objects, 1,
                              os_deadline_after(20)) == GPUIPC_OK) {
        sent++;
    }
    cr_assert_eq(gpuipc_error_get()->status, GPUIPC_ERR_TIMEOUT);
    cr_assert_gt(sent, 0);
    check_exported(&self, sent, 0, 0);
    /* What has been sent comes whole; what was taken back does not come at all. */
    for (unsigned i = 0; i < sent; i++) {
        take(&self, 1, i + 1);
        cr_assert_eq(raw_get(self.frame, RAW_AT_NUMBER, 8), i + 1);
        close_taken(&self, 0);
    }
    check_ok(send_first(&self, 2));
    take(&self, 2, sent + 1);
    cr_assert_eq(raw_get(self.frame, RAW_AT_NUMBER, 8), sent + 1);
    cr_assert_eq(raw_get(self.frame, RAW_AT_BYTES, 4), 5);
    close_taken(&self, 0);
    close_taken(&self, 1);
    end(&self);
}

/* ---- a thread that waits in it ------------------------------------------------------------- */

typedef struct sending {
    exporting *exporting;
    atomic_ullong thread;
    gpuipc_status status;
} sending;

/* Small packets: Wine 8 ends a thread that is stopped, to be looked at, while it hands more than a
 * pipe takes at once (4096 bytes) to its server. */
static void send_until_it_fails(void *argument) {
    static char bytes[2000];
    sending *self = argument;
    atomic_store(&self->thread, thread_state_own_number());
    do {
        self->status = os_connection_send(self->exporting->sender, bytes, sizeof(bytes),
                                          self->exporting->objects, 2, os_deadline_after(-1));
    } while (self->status == GPUIPC_OK);
}

static void start_sending(sending *self, os_thread **out_thread) {
    const os_deadline deadline = os_deadline_after(SOON_MS);
    check_ok(os_thread_start(send_until_it_fails, self, out_thread));
    while (atomic_load(&self->thread) == 0) {
        cr_assert_not(os_deadline_passed(deadline));
        os_sleep_ms(1);
    }
    cr_assert(thread_state_wait_asleep(atomic_load(&self->thread), SOON_MS));
}

Test(win32_ledger, a_sender_that_is_interrupted_takes_its_packet_back) {
    exporting self;
    sending own = {.exporting = &self};
    os_thread *thread;
    begin(&self);
    start_sending(&own, &thread);
    os_connection_interrupt(self.sender);
    os_thread_join(thread);
    cr_assert_eq(own.status, GPUIPC_ERR_RELEASED);
    /* The receiver lives: what is in the pipe is its own, and nothing else is there. */
    unsigned sent = exported_of(&self, 0);
    cr_assert_gt(sent, 0);
    for (unsigned i = 0; i < sent; i++) {
        take(&self, 2, i + 1);
        close_taken(&self, 0);
        close_taken(&self, 1);
    }
    cr_assert_eq(raw_read(self.raw, self.frame, sizeof(self.frame)), 0);
    end(&self);
}

Test(win32_ledger, a_sender_that_waits_when_its_receiver_closes_takes_everything_back) {
    exporting self;
    sending own = {.exporting = &self};
    os_thread *thread;
    begin(&self);
    start_sending(&own, &thread);
    end_receiver(&self);
    os_thread_join(thread);
    cr_assert_eq(own.status, GPUIPC_ERR_PEER_CLOSED);
    end_sender(&self);
    check_exported(&self, 0, 0, 0);
    end(&self);
}
