/* SPDX-License-Identifier: MIT */
/**
 * @file The cases of test_process_bad_packet.c about what Linux's kernel does itself: the envelope that
 * brings handles, their numbers, and the ledger (docs/wire-format.md).
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <windows.h>

#include "check.h"
#include "raw_handle.h"
#include "victim.h"
#include "win32_raw_peer.h"

static victim_case in;

static void begin(void) {
    victim_case_begin(&in);
}

static void end(void) {
    victim_case_end(&in);
}

/* Makes the packet's frame, as the next one of this conversation. */
static raw_frame lend(const victim *one, raw_packet *packet) {
    raw_frame frame;
    raw_packet_encode(packet);
    cr_assert(raw_peer_lend(one->raw, packet->bytes, sizeof(packet->bytes), packet->handles,
                            packet->handle_count, &frame));
    return frame;
}

static void send_frame(const victim *one, const raw_frame *frame) {
    static unsigned char message[RAW_FRAME_BYTES_MAX];
    size_t size = raw_frame_encode(frame, message);
    cr_assert_neq(size, 0);
    cr_assert(raw_peer_write(one->raw, message, size));
}

/* The victim gets the first frame of a conversation as somebody has spoiled it. */
static void expect_frame_refused(const char *what, void (*spoil)(raw_frame *frame),
                                 gpuipc_status expected) {
    raw_packet packet = victim_case_packet(&in);
    victim one = victim_make(&in);
    raw_frame frame = lend(&one, &packet);
    spoil(&frame);
    send_frame(&one, &frame);
    victim_expect_end(&one, expected, what);
    raw_packet_close(&packet);
}

/* One byte that is not as it must be. */
typedef struct spoiled_byte {
    const char *what;
    size_t at;
    uint8_t value;
    gpuipc_status expected;
} spoiled_byte;

/* Of an envelope with number 1, the ledger, and one handle more. */
static const spoiled_byte spoiled_bytes[] = {
    {"the first letter of the magic", RAW_ENVELOPE_MAGIC, 'g', GPUIPC_ERR_PROTOCOL},
    {"the last letter of the magic", RAW_ENVELOPE_MAGIC + 3, 'C', GPUIPC_ERR_PROTOCOL},
    {"a later version", RAW_ENVELOPE_VERSION, 2, GPUIPC_ERR_VERSION},
    {"no version", RAW_ENVELOPE_VERSION, 0, GPUIPC_ERR_VERSION},
    {"a version of two bytes", RAW_ENVELOPE_VERSION + 1, 1, GPUIPC_ERR_VERSION},
    {"no ledger", RAW_ENVELOPE_FLAGS, 0, GPUIPC_ERR_PROTOCOL},
    {"an unknown flag", RAW_ENVELOPE_FLAGS, 3, GPUIPC_ERR_PROTOCOL},
    {"the last flag", RAW_ENVELOPE_FLAGS + 1, 0x80, GPUIPC_ERR_PROTOCOL},
    {"no handles but a ledger", RAW_ENVELOPE_HANDLES, 0, GPUIPC_ERR_PROTOCOL},
    {"the ledger alone", RAW_ENVELOPE_HANDLES, 1, GPUIPC_ERR_PROTOCOL},
    {"more handles than there are", RAW_ENVELOPE_HANDLES, 3, GPUIPC_ERR_PROTOCOL},
    {"more handles than there may be", RAW_ENVELOPE_HANDLES, 255, GPUIPC_ERR_HANDLE_COUNT},
    {"handles without end", RAW_ENVELOPE_HANDLES + 3, 0x80, GPUIPC_ERR_HANDLE_COUNT},
    {"fewer bytes than there are", RAW_ENVELOPE_BYTES, (RAW_END & 0xFF) - 1, GPUIPC_ERR_PROTOCOL},
    {"more bytes than there are", RAW_ENVELOPE_BYTES, (RAW_END & 0xFF) + 1, GPUIPC_ERR_PROTOCOL},
    {"no bytes", RAW_ENVELOPE_BYTES, 0, GPUIPC_ERR_PROTOCOL},
    {"bytes without end", RAW_ENVELOPE_BYTES + 3, 0xFF, GPUIPC_ERR_PROTOCOL},
    {"no number", RAW_ENVELOPE_NUMBER, 0, GPUIPC_ERR_PROTOCOL},
    {"the number of a later packet", RAW_ENVELOPE_NUMBER, 2, GPUIPC_ERR_PROTOCOL},
    {"a number without end", RAW_ENVELOPE_NUMBER + 7, 0x80, GPUIPC_ERR_PROTOCOL}};

Test(bad_packet, one_byte_of_the_envelope_is_wrong, .timeout = 100) {
    begin();
    for (size_t i = 0; i < sizeof(spoiled_bytes) / sizeof(*spoiled_bytes); i++) {
        static unsigned char message[RAW_FRAME_BYTES_MAX];
        const spoiled_byte *by = &spoiled_bytes[i];
        raw_packet packet = victim_case_packet(&in);
        victim one = victim_make(&in);
        raw_frame frame = lend(&one, &packet);
        size_t size = raw_frame_encode(&frame, message);
        cr_assert_neq(message[by->at], by->value, "%s", by->what);
        message[by->at] = by->value;
        cr_assert(raw_peer_write(one.raw, message, size));
        victim_expect_end(&one, by->expected, by->what);
        raw_packet_close(&packet);
    }
    end();
}

Test(bad_packet, envelope_truncated_at_every_length, .timeout = 100) {
    begin();
    for (size_t size = 0; size <= RAW_ENVELOPE_END + 2 * 8; size++) {
        static unsigned char message[RAW_FRAME_BYTES_MAX];
        char what[64];
        raw_packet packet = victim_case_packet(&in);
        victim one = victim_make(&in);
        raw_frame frame = lend(&one, &packet);
        cr_assert_gt(raw_frame_encode(&frame, message), size);
        (void)snprintf(what, sizeof(what), "the first %zu bytes", size);
        cr_assert(raw_peer_write(one.raw, message, size), "%s", what);
        victim_expect_end(&one, GPUIPC_ERR_PROTOCOL, what);
        raw_packet_close(&packet);
    }
    end();
}

static void longer_than_any(raw_frame *frame) {
    static unsigned char bytes[RAW_FRAME_BYTES_MAX - 4096];
    frame->bytes = bytes;
    frame->size = sizeof(bytes);
}
static void number_without_handles(raw_frame *frame) {
    frame->flags = 0;
    frame->count = 0;
}

Test(bad_packet, envelope_that_cannot_be, .timeout = 100) {
    begin();
    expect_frame_refused("a longer packet than any", longer_than_any, GPUIPC_ERR_PROTOCOL);
    expect_frame_refused("a number without handles", number_without_handles, GPUIPC_ERR_PROTOCOL);
    end();
}

/* Numbers that no handle of this process has, or that the library has already: nothing is taken, so
 * nothing of somebody else's is closed. */
Test(bad_packet, numbers_that_are_no_handles, .timeout = 100) {
    begin();
    static const uint64_t numbers[] = {0,
                                       1,
                                       2,
                                       3,
                                       0x7FFFFFFC,
                                       0xFFFFFFFF,
                                       UINT64_MAX,
                                       UINT64_MAX - 1,
                                       -(UINT64_C(3)),
                                       -(UINT64_C(4)),
                                       -(UINT64_C(6)),
                                       -(UINT64_C(12)),
                                       UINT64_C(1) << 63};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
        for (size_t place = 0; place < 2; place++) { /* the ledger's, and the memory's */
            char what[64];
            raw_packet packet = victim_case_packet(&in);
            victim one = victim_make(&in);
            raw_frame frame = lend(&one, &packet);
            frame.values[place] = numbers[i];
            (void)snprintf(what, sizeof(what), "handle 0x%llx", (unsigned long long)numbers[i]);
            send_frame(&one, &frame);
            victim_expect_end(&one, GPUIPC_ERR_PROTOCOL, what);
            raw_packet_close(&packet);
        }
    }
    end();
}

static void same_handle_twice(raw_frame *frame) {
    frame->values[frame->count++] = frame->values[1];
}
static void ledger_once_more(raw_frame *frame) {
    frame->values[frame->count++] = frame->values[0];
}
/* The system ignores the two lowest bits, so that these are the same handle's. */
static void other_number_of_a_handle(raw_frame *frame) {
    frame->values[1] |= 1;
}
static void another_number_of_a_handle(raw_frame *frame) {
    frame->values[1] |= 2;
}

Test(bad_packet, handles_that_would_have_two_owners, .timeout = 100) {
    begin();
    expect_frame_refused("one handle twice", same_handle_twice, GPUIPC_ERR_PROTOCOL);
    expect_frame_refused("the ledger as memory", ledger_once_more, GPUIPC_ERR_PROTOCOL);
    expect_frame_refused("bit 0 set", other_number_of_a_handle, GPUIPC_ERR_PROTOCOL);
    expect_frame_refused("bit 1 set", another_number_of_a_handle, GPUIPC_ERR_PROTOCOL);
    end();
}

/* The ledger is refused, and is still its sender's to close. */
static void expect_ledger_refused(intptr_t ledger, const char *what, gpuipc_status expected) {
    raw_packet packet = victim_case_packet(&in);
    victim one = victim_make(&in);
    raw_frame frame = lend(&one, &packet);
    cr_assert_neq(ledger, RAW_HANDLE_NONE, "%s", what);
    frame.values[0] = (uint64_t)ledger; /* the other end is this very process */
    send_frame(&one, &frame);
    victim_expect_end(&one, expected, what);
    cr_assert(CloseHandle((HANDLE)ledger), "%s was closed", what);
    raw_packet_close(&packet);
}

Test(bad_packet, ledger_that_is_none, .timeout = 100) {
    begin();
    for (int kind = RAW_HANDLE_MEMORIES; kind < raw_handle_kinds; kind++) {
        expect_ledger_refused(raw_handle_open(kind), raw_handle_kind_name(kind),
                              GPUIPC_ERR_PROTOCOL);
    }
    end();
}

/* What would have to be written to cannot be. */
Test(bad_packet, ledger_that_can_only_be_read, .timeout = 100) {
    begin();
    HANDLE readable;
    intptr_t memory = raw_handle_open(RAW_HANDLE_MEMORY);
    cr_assert(DuplicateHandle(GetCurrentProcess(), (HANDLE)memory, GetCurrentProcess(), &readable,
                              SECTION_MAP_READ | SECTION_QUERY, FALSE, 0));
    raw_handle_close(memory);
    expect_ledger_refused((intptr_t)readable, "a ledger to be read only", GPUIPC_ERR_PROTOCOL);
    end();
}

/* After a good packet: a second one that does not fit to it. */
static void expect_second_refused(const char *what, void (*spoil)(raw_frame *frame),
                                  gpuipc_status expected) {
    raw_packet packet = victim_case_packet(&in);
    victim one = victim_make(&in);
    cr_assert(raw_packet_send(&packet, one.raw));
    check_ok(victim_receive(&one));
    packet.header.number = 1;
    raw_packet_repeat_handle(&packet, 2);
    raw_frame frame = lend(&one, &packet);
    spoil(&frame);
    send_frame(&one, &frame);
    victim_expect_end(&one, expected, what);
    raw_packet_close(&packet);
}

static void second_ledger(raw_frame *frame) {
    frame->flags = RAW_ENVELOPE_LEDGER;
}
static void number_again(raw_frame *frame) {
    frame->number = 1;
}
static void number_left_out(raw_frame *frame) {
    frame->number = 3;
}

Test(bad_packet, envelope_that_does_not_fit_to_the_one_before, .timeout = 100) {
    begin();
    expect_second_refused("a second ledger", second_ledger, GPUIPC_ERR_PROTOCOL);
    expect_second_refused("the same number again", number_again, GPUIPC_ERR_PROTOCOL);
    expect_second_refused("a number left out", number_left_out, GPUIPC_ERR_PROTOCOL);
    end();
}

/* Not bad at all: the receiver counts what it takes, and nothing else. */
Test(bad_packet, the_ledger_says_what_was_taken, .timeout = 100) {
    begin();
    raw_packet packet = victim_case_packet(&in);
    victim one = victim_make(&in);
    for (uint64_t i = 0; i < 3; i++) {
        packet.header.number = i;
        cr_assert(raw_packet_send(&packet, one.raw));
        cr_assert_eq(raw_peer_taken(one.raw), i);
        check_ok(victim_receive(&one));
        cr_assert_eq(raw_peer_taken(one.raw), i + 1);
    }
    packet.header.number = 3;
    raw_frame frame = lend(&one, &packet);
    frame.number++;
    send_frame(&one, &frame);
    check_status(GPUIPC_ERR_PROTOCOL, victim_receive(&one));
    cr_assert_eq(raw_peer_taken(one.raw), 3);
    victim_close(&one);
    raw_packet_close(&packet);
    end();
}

/* A handle that could not be closed is as good as one that is left behind. */
Test(bad_packet, a_handle_that_is_protected_from_being_closed, .timeout = 100) {
    begin();
    raw_packet packet = victim_case_packet(&in);
    victim one = victim_make(&in);
    raw_frame frame = lend(&one, &packet);
    for (size_t i = 0; i < frame.count; i++) { /* the other end is this very process */
        const DWORD both = HANDLE_FLAG_INHERIT | HANDLE_FLAG_PROTECT_FROM_CLOSE;
        cr_assert(SetHandleInformation((HANDLE)(uintptr_t)frame.values[i], both, both));
    }
    send_frame(&one, &frame);
    check_ok(victim_receive(&one));
    victim_close(&one);
    raw_packet_close(&packet);
    end();
}

/* Nobody has received them: closing the receiver's end takes and closes them. */
Test(bad_packet, handles_on_their_way_when_the_receiver_closes, .timeout = 100) {
    enum {
        PACKETS = 5
    };
    begin();
    raw_packet packet = victim_case_packet(&in);
    victim one = victim_make(&in);
    for (uint64_t i = 0; i < PACKETS; i++) {
        packet.header.number = i;
        cr_assert(raw_packet_send(&packet, one.raw));
    }
    check_ok(gpuipc_connection_close(one.connection));
    cr_assert_eq(raw_peer_taken(one.raw), PACKETS);
    raw_close(one.raw);
    raw_packet_close(&packet);
    end();
}
