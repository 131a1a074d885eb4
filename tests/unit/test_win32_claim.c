/* SPDX-License-Identifier: MIT */
/** @file What a peer says about handles, and what of it is believed: a number is taken only if it can
 *  be one that was sent, and of a packet that is refused nothing is closed. */
#include <string.h>

#include "check.h"
#include "leak_gate.h"
#include "win32_raw.h"
#include "win32_record.h"

TestSuite(win32_claim, .timeout = 60);

enum {
    SENT = 3 /* handles of a packet: the ledger's and two more */
};

/** A connection of the library's, and a raw peer that has put handles into this process. */
typedef struct claiming {
    leak_gate gate;
    os_connection *connection;
    HANDLE raw;
    os_handle objects[SENT]; /* the first is the ledger */
    _Atomic uint64_t *ledger;
    uint64_t values[SENT]; /* as the peer put them here */
    os_handle came[OS_PACKET_HANDLES_MAX];
    size_t count;
} claiming;

static void begin(claiming *self) {
    void *page;
    memset(self, 0, sizeof(*self));
    leak_gate_begin(&self->gate);
    self->raw = raw_pipe(false, &self->connection);
    for (size_t i = 0; i < SENT; i++) {
        check_ok(os_memory_create("test", 4096, &self->objects[i]));
        self->values[i] = raw_copy(self->objects[i]);
    }
    check_ok(os_memory_map(self->objects[0], 4096, true, &page));
    self->ledger = page;
}

/** How many handles of the object there are beside the test's own. */
static unsigned sent_of(const claiming *self, size_t index) {
    return raw_handles_of(self->objects[index].value) - 1;
}

static void end(claiming *self) {
    os_connection_destroy(self->connection);
    CloseHandle(self->raw);
    for (size_t i = 0; i < SENT; i++) {
        cr_assert_eq(sent_of(self, i), 0, "%zu", i);
        os_handle_close(&self->objects[i]);
    }
    os_memory_unmap((void *)self->ledger, 4096);
    cr_assert_eq(leak_gate_end(&self->gate), 0, "%s", self->gate.text);
}

static gpuipc_status receive(claiming *self, size_t capacity) {
    char bytes[64];
    size_t size;
    return os_connection_receive(self->connection, bytes, capacity, &size, self->came, &self->count,
                                 os_deadline_after(SOON_MS));
}

static gpuipc_status claim(claiming *self, bool has_ledger, uint64_t number, const uint64_t *values,
                           size_t count) {
    raw_frame frame;
    raw_frame_make(&frame, has_ledger, number, values, count);
    raw_write(self->raw, frame.bytes, frame.size);
    return receive(self, 64);
}

/** The peer takes back what was not taken: each is still open, and nothing else was closed. */
static void take_back(claiming *self) {
    for (size_t i = 0; i < SENT; i++) {
        cr_assert_eq(sent_of(self, i), 1, "%zu", i);
        raw_close_copy(self->values[i]);
    }
}

static void close_what_came(claiming *self) {
    os_pair_close_handles(self->came, self->count);
}

/** A packet is refused with this; then nothing more is taken, and nothing of it was closed. */
static void check_claim_refused(gpuipc_status expected, const char *text, bool has_ledger,
                                uint64_t number, const uint64_t *values, size_t count) {
    claiming self;
    begin(&self);
    uint64_t changed[SENT];
    memcpy(changed, self.values, sizeof(changed));
    for (size_t i = 0; values != NULL && i < count; i++) {
        changed[i] = values[i] != 0 ? values[i] : changed[i];
    }
    record_begin();
    check_refused(expected, text, claim(&self, has_ledger, number, changed, count));
    check_refused(GPUIPC_ERR_PROTOCOL, "an earlier packet",
                  claim(&self, true, 1, self.values, SENT));
    check_ok(claim(&self, false, 0, NULL, 0));
    record_end();
    cr_assert_eq(record_count(RECORD_CloseHandle) - record_count(RECORD_WriteFile), 0,
                 "something was closed"); /* each raw_write closes its own event */
    cr_assert_eq(*self.ledger, 0);
    take_back(&self);
    end(&self);
}

Test(win32_claim, what_was_sent_by_the_rules_is_taken_and_counted) {
    claiming self;
    begin(&self);
    check_ok(claim(&self, true, 1, self.values, SENT));
    cr_assert_eq(self.count, SENT - 1);
    cr_assert_eq(*self.ledger, 1);
    cr_assert_eq(sent_of(&self, 0), 0, "the ledger's handle is not needed any more");
    for (size_t i = 1; i < SENT; i++) {
        cr_assert_eq(self.came[i - 1].value, (intptr_t)self.values[i]);
        cr_assert_eq(sent_of(&self, i), 1);
    }
    close_what_came(&self);
    for (uint64_t number = 2; number < 5; number++) {
        self.values[1] = raw_copy(self.objects[1]);
        check_ok(claim(&self, false, 0, NULL, 0));
        check_ok(claim(&self, false, number, &self.values[1], 1));
        cr_assert_eq(self.count, 1);
        cr_assert_eq(*self.ledger, number);
        close_what_came(&self);
    }
    end(&self);
}

Test(win32_claim, a_value_that_can_be_no_handle_is_refused_wherever_it_stands) {
    /* 0 stands for "as it was" in check_claim_refused, and is tried below. */
    static const uint64_t values[] = {1,
                                      2,
                                      3,
                                      UINT64_MAX,
                                      UINT64_MAX - 1,
                                      UINT64_MAX - 3,
                                      UINT64_MAX - 11,
                                      UINT32_MAX,
                                      UINT32_MAX - 3,
                                      UINT64_C(0x80000000),
                                      UINT64_C(0x100000004),
                                      UINT64_C(0x8000000000000004),
                                      INT64_MAX - 3};
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        for (size_t at = 0; at < SENT; at++) {
            uint64_t changed[SENT] = {0};
            changed[at] = values[i];
            check_claim_refused(GPUIPC_ERR_PROTOCOL, "no handle's number", true, 1, changed, SENT);
        }
    }
}

Test(win32_claim, another_number_of_an_open_handle_is_refused) {
    static const uint64_t masks[] = {1, 2, 3, UINT64_C(1) << 32, UINT64_C(1) << 63};
    for (size_t i = 0; i < sizeof(masks) / sizeof(masks[0]); i++) {
        claiming self;
        begin(&self);
        uint64_t changed[SENT];
        memcpy(changed, self.values, sizeof(changed));
        changed[2] |= masks[i];
        check_refused(GPUIPC_ERR_PROTOCOL, "no handle's number",
                      claim(&self, true, 1, changed, SENT));
        take_back(&self);
        end(&self);
    }
}

Test(win32_claim, zero_is_no_handle) {
    for (size_t at = 0; at < SENT; at++) {
        claiming self;
        begin(&self);
        uint64_t changed[SENT];
        memcpy(changed, self.values, sizeof(changed));
        changed[at] = 0;
        check_refused(GPUIPC_ERR_PROTOCOL, "no handle's number",
                      claim(&self, true, 1, changed, SENT));
        take_back(&self);
        end(&self);
    }
}

Test(win32_claim, what_is_not_open_is_refused) {
    os_handle closed;
    check_ok(win32_event_make(&closed));
    const uint64_t values[] = {(uint64_t)closed.value + 40000, 0x7FFFFFFC, 0x00FFFFFC};
    os_handle_close(&closed);
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        const uint64_t changed[SENT] = {0, 0, values[i]};
        check_claim_refused(GPUIPC_ERR_PROTOCOL, "not open", true, 1, changed, SENT);
    }
}

Test(win32_claim, a_handle_of_the_librarys_own_is_refused_and_stays_open) {
    os_handle own;
    check_ok(win32_event_make(&own));
    for (size_t at = 0; at < SENT; at++) {
        uint64_t changed[SENT] = {0};
        changed[at] = (uint64_t)own.value;
        check_claim_refused(GPUIPC_ERR_PROTOCOL, "already", true, 1, changed, SENT);
        cr_assert(win32_handle_is_open(own.value));
    }
    os_handle_close(&own);
}

Test(win32_claim, a_connections_own_handles_are_refused) {
    claiming self;
    begin(&self);
    const os_connection *connection = self.connection;
    const uint64_t changed[SENT] = {self.values[0], self.values[1],
                                    (uint64_t)connection->pipe.value};
    check_refused(GPUIPC_ERR_PROTOCOL, "already", claim(&self, true, 1, changed, SENT));
    check_ok(claim(&self, false, 0, NULL, 0)); /* by that very pipe */
    take_back(&self);
    end(&self);
}

Test(win32_claim, one_handle_is_not_taken_twice) {
    claiming self;
    begin(&self);
    const uint64_t twice[SENT] = {self.values[0], self.values[1], self.values[1]};
    check_refused(GPUIPC_ERR_PROTOCOL, "already", claim(&self, true, 1, twice, SENT));
    take_back(&self);
    end(&self);

    begin(&self);
    const uint64_t ledger_twice[SENT] = {self.values[0], self.values[1], self.values[0]};
    check_refused(GPUIPC_ERR_PROTOCOL, "already", claim(&self, true, 1, ledger_twice, SENT));
    take_back(&self);
    end(&self);

    /* Nor in another packet, while the library has it. */
    begin(&self);
    check_ok(claim(&self, true, 1, self.values, SENT));
    check_refused(GPUIPC_ERR_PROTOCOL, "already", claim(&self, false, 2, &self.values[1], 1));
    cr_assert_eq(*self.ledger, 1);
    close_what_came(&self);
    end(&self);
}

Test(win32_claim, packets_with_handles_are_counted_from_one_without_a_gap) {
    static const uint64_t wrong[] = {2, 3, UINT64_MAX, UINT64_C(1) << 32};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        check_claim_refused(GPUIPC_ERR_PROTOCOL, "numbered wrong", true, wrong[i], NULL, SENT);
    }
    static const uint64_t wrong_later[] = {1, 3, UINT64_MAX};
    for (size_t i = 0; i < sizeof(wrong_later) / sizeof(wrong_later[0]); i++) {
        claiming self;
        begin(&self);
        check_ok(claim(&self, true, 1, self.values, SENT - 1));
        check_refused(GPUIPC_ERR_PROTOCOL, "numbered wrong",
                      claim(&self, false, wrong_later[i], &self.values[2], 1));
        close_what_came(&self);
        cr_assert_eq(*self.ledger, 1);
        raw_close_copy(self.values[2]);
        end(&self);
    }
}

Test(win32_claim, the_ledger_comes_with_the_first_handles_and_only_then) {
    check_claim_refused(GPUIPC_ERR_PROTOCOL, "numbered wrong", false, 1, NULL, SENT);
    claiming self;
    begin(&self);
    check_ok(claim(&self, true, 1, self.values, SENT - 1));
    close_what_came(&self);
    self.values[0] = raw_copy(self.objects[0]);
    const uint64_t again[] = {self.values[0], self.values[2]};
    check_refused(GPUIPC_ERR_PROTOCOL, "numbered wrong", claim(&self, true, 2, again, 2));
    raw_close_copy(again[0]);
    raw_close_copy(again[1]);
    end(&self);
}

/** What cannot be a ledger: the first packet is refused with it, and nothing is closed. */
static void check_ledger_refused(HANDLE other, const char *what) {
    claiming self;
    begin(&self);
    const uint64_t changed[SENT] = {(uint64_t)other, self.values[1], self.values[2]};
    gpuipc_status status = claim(&self, true, 1, changed, SENT);
    cr_assert_eq(status, GPUIPC_ERR_PROTOCOL, "%s: %s, %s", what, gpuipc_status_name(status),
                 gpuipc_error_get()->sentence);
    raw_close_copy((uint64_t)other);
    take_back(&self);
    end(&self);
}

Test(win32_claim, a_ledger_is_a_section_that_can_be_written) {
    os_handle section;
    HANDLE copy;
    static const DWORD rights[] = {SECTION_MAP_READ | SECTION_QUERY,
                                   SECTION_MAP_READ | SECTION_MAP_WRITE, SECTION_QUERY};
    check_ledger_refused(CreateEventW(NULL, TRUE, FALSE, NULL), "an event");
    check_ledger_refused(OpenProcess(PROCESS_ALL_ACCESS, FALSE, GetCurrentProcessId()),
                         "a process");
    check_ledger_refused(
        CreateFileMappingW(INVALID_HANDLE_VALUE, NULL, PAGE_READWRITE | SEC_RESERVE, 0, 4096, NULL),
        "reserved memory");
    check_ok(os_memory_create("ledger", 4096, &section));
    for (size_t i = 0; i < sizeof(rights) / sizeof(rights[0]); i++) {
        cr_assert(DuplicateHandle(GetCurrentProcess(), win32_handle_native(section),
                                  GetCurrentProcess(), &copy, rights[i], FALSE, 0));
        check_ledger_refused(copy, "a section without the rights");
    }
    os_handle_close(&section);
}

/* What the peer set on a handle in this process does not hold for its new owner. */
Test(win32_claim, a_handle_that_came_is_not_inherited_and_can_be_closed) {
    claiming self;
    begin(&self);
    for (size_t i = 0; i < SENT; i++) {
        const DWORD flags = HANDLE_FLAG_INHERIT | HANDLE_FLAG_PROTECT_FROM_CLOSE;
        cr_assert(SetHandleInformation((HANDLE)self.values[i], flags, flags));
    }
    check_ok(claim(&self, true, 1, self.values, SENT));
    for (size_t i = 0; i < self.count; i++) {
        DWORD flags = ~0u;
        cr_assert(GetHandleInformation((HANDLE)self.came[i].value, &flags));
        cr_assert_eq(flags, 0);
    }
    close_what_came(&self);
    end(&self);
}

Test(win32_claim, handles_of_a_packet_that_is_too_long_are_taken_and_closed) {
    claiming self;
    raw_frame frame;
    begin(&self);
    raw_frame_make(&frame, true, 1, self.values, SENT);
    raw_write(self.raw, frame.bytes, frame.size);
    check_refused(GPUIPC_ERR_PROTOCOL, "longer", receive(&self, 4));
    cr_assert_eq(*self.ledger, 1);
    for (size_t i = 0; i < SENT; i++) {
        cr_assert_eq(sent_of(&self, i), 0);
    }
    end(&self);
}

Test(win32_claim, as_many_as_may_be_and_one_more) {
    static uint64_t values[OS_PACKET_HANDLES_MAX + 2];
    claiming self;
    begin(&self);
    values[0] = self.values[0];
    for (size_t i = 1; i < OS_PACKET_HANDLES_MAX + 2; i++) {
        values[i] = raw_copy(self.objects[1]);
    }
    check_ok(claim(&self, true, 1, values, OS_PACKET_HANDLES_MAX + 1));
    cr_assert_eq(self.count, OS_PACKET_HANDLES_MAX);
    close_what_came(&self);
    for (size_t i = 1; i < OS_PACKET_HANDLES_MAX + 1; i++) {
        values[i] = raw_copy(self.objects[1]);
    }
    /* Without a ledger it is one less. */
    check_status(GPUIPC_ERR_HANDLE_COUNT,
                 claim(&self, false, 2, values + 1, OS_PACKET_HANDLES_MAX + 1));
    for (size_t i = 1; i < OS_PACKET_HANDLES_MAX + 2; i++) {
        raw_close_copy(values[i]);
    }
    raw_close_copy(self.values[1]);
    raw_close_copy(self.values[2]);
    end(&self);
    for (size_t i = 0; i < OS_PACKET_HANDLES_MAX + 2; i++) {
        values[i] = 4;
    }
    begin(&self);
    check_status(GPUIPC_ERR_HANDLE_COUNT, claim(&self, true, 1, values, OS_PACKET_HANDLES_MAX + 2));
    take_back(&self);
    end(&self);
}
