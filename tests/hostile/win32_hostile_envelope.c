/* SPDX-License-Identifier: MIT */
/** @file What Linux's kernel does itself, and a peer on Windows can do wrong: the envelope that brings handles, their
 *  numbers, and the ledger (docs/wire-format.md, "The envelope on Windows"). */
#include <windows.h>

#include "check.h"
#include "hostile.h"
#include "raw_handle.h"
#include "win32_raw_peer.h"

#define COUNT(table) (sizeof(table) / sizeof(*(table)))

/* The packet's frame, as the next one of this conversation. */
static raw_frame export(hostile_peer *self) {
    raw_frame frame;
    raw_packet_encode(&self->packet);
    cr_assert(raw_peer_export(self->raw, self->packet.bytes, sizeof(self->packet.bytes),
                              self->packet.handles, self->packet.handle_count, &frame));
    return frame;
}

static void send_frame(hostile_peer *self, const raw_frame *frame) {
    static unsigned char message[RAW_FRAME_BYTES_MAX];
    size_t size = raw_frame_encode(frame, message);
    cr_assert_neq(size, 0);
    cr_assert(raw_peer_write(self->raw, message, size));
}

/* ---- the envelope ---------------------------------------------------------------------------- */

/* Of an envelope with number 1, the ledger, and one handle more. */
static void spoil_byte(hostile_peer *self) {
    static unsigned char message[RAW_FRAME_BYTES_MAX];
    const raw_frame frame = export(self);
    size_t size = raw_frame_encode(&frame, message);
    cr_assert_neq(message[self->of->at], self->of->value);
    message[self->of->at] = self->of->value;
    cr_assert(raw_peer_write(self->raw, message, size));
}

#define LENGTHS (RAW_ENVELOPE_END + 2 * 8 + 1)

static void truncated(hostile_peer *self) {
    static unsigned char message[RAW_FRAME_BYTES_MAX];
    const raw_frame frame = export(self);
    const size_t size = self->round % LENGTHS;
    cr_assert_gt(raw_frame_encode(&frame, message), size);
    cr_assert(raw_peer_write(self->raw, message, size));
}

static void longer_than_any(hostile_peer *self) {
    static unsigned char bytes[RAW_FRAME_BYTES_MAX - 4096];
    raw_frame frame = export(self);
    frame.bytes = bytes;
    frame.size = sizeof(bytes);
    send_frame(self, &frame);
}

static void number_without_handles(hostile_peer *self) {
    raw_frame frame = export(self);
    frame.flags = 0;
    frame.count = 0;
    send_frame(self, &frame);
}

/* ---- handles --------------------------------------------------------------------------------- */

/* Numbers that no handle of this process has, or that the library has already: nothing is taken, so nothing of somebody
 * else's is closed. */
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

static void number_of_no_ledger(hostile_peer *self) {
    raw_frame frame = export(self);
    frame.values[0] = numbers[self->round % COUNT(numbers)];
    send_frame(self, &frame);
}

static void number_of_no_handle(hostile_peer *self) {
    raw_frame frame = export(self);
    frame.values[1] = numbers[self->round % COUNT(numbers)];
    send_frame(self, &frame);
}

static void same_handle_twice(hostile_peer *self) {
    raw_frame frame = export(self);
    frame.values[frame.count++] = frame.values[1];
    send_frame(self, &frame);
}

static void ledger_as_memory(hostile_peer *self) {
    raw_frame frame = export(self);
    frame.values[frame.count++] = frame.values[0];
    send_frame(self, &frame);
}

/* The system ignores the two lowest bits, so that these are the same handle's. */
static void other_number_of_a_handle(hostile_peer *self) {
    raw_frame frame = export(self);
    frame.values[1] |= 1 + self->round % 2;
    send_frame(self, &frame);
}

/* A handle that could not be closed is as good as one that is left behind. */
static void protected_from_being_closed(hostile_peer *self) {
    raw_frame frame = export(self);
    for (size_t i = 0; i < frame.count; i++) { /* the other end is this very process */
        const DWORD both = HANDLE_FLAG_INHERIT | HANDLE_FLAG_PROTECT_FROM_CLOSE;
        cr_assert(SetHandleInformation((HANDLE)(uintptr_t)frame.values[i], both, both));
    }
    send_frame(self, &frame);
}

/* ---- the ledger ------------------------------------------------------------------------------ */

/* It is refused, and is still its sender's to close. */
static void send_ledger(hostile_peer *self, intptr_t ledger) {
    raw_frame frame = export(self);
    cr_assert_neq(ledger, RAW_HANDLE_NONE);
    self->kept = ledger;
    frame.values[0] = (uint64_t)ledger; /* the other end is this very process */
    send_frame(self, &frame);
}

static void ledger_that_is_none(hostile_peer *self) {
    const int others = raw_handle_kinds - RAW_HANDLE_MEMORIES;
    send_ledger(self, raw_handle_open(RAW_HANDLE_MEMORIES + (int)self->round % others));
}

static void ledger_to_be_read_only(hostile_peer *self) {
    HANDLE readable;
    intptr_t memory = raw_handle_open(RAW_HANDLE_MEMORY);
    cr_assert(DuplicateHandle(GetCurrentProcess(), (HANDLE)memory, GetCurrentProcess(), &readable,
                              SECTION_MAP_READ | SECTION_QUERY, FALSE, 0));
    raw_handle_close(memory);
    send_ledger(self, (intptr_t)readable);
}

static void close_ledger(hostile_peer *self) {
    cr_assert(CloseHandle((HANDLE)self->kept), "the ledger was closed, which is its sender's");
}

/* ---- the second packet ----------------------------------------------------------------------- */

static raw_frame export_second(hostile_peer *self) {
    hostile_send(self);
    self->packet.header.number = 1;
    raw_packet_repeat_handle(&self->packet, 2);
    return export(self);
}

static void second_ledger(hostile_peer *self) {
    raw_frame frame = export_second(self);
    frame.flags = RAW_ENVELOPE_LEDGER;
    send_frame(self, &frame);
}

static void number_again(hostile_peer *self) {
    raw_frame frame = export_second(self);
    frame.number = 1;
    send_frame(self, &frame);
}

static void number_left_out(hostile_peer *self) {
    raw_frame frame = export_second(self);
    frame.number = 3;
    send_frame(self, &frame);
}

#define ENVELOPE "The envelope on Windows: "
/* clang-format off */
#define BYTE(called, breaks, answer, place, becomes) {.name = (called), .rule = ENVELOPE breaks, .expected = GPUIPC_ERR_##answer, .act = spoil_byte, .at = (place), .value = (becomes)}
#define DOES(called, breaks, how, count) {.name = (called), .rule = ENVELOPE breaks, .expected = GPUIPC_ERR_PROTOCOL, .act = (how), .variants = (count)}
#define LEDGER(called, how, count) {.name = (called), .rule = ENVELOPE "the ledger is a section of one page", .expected = GPUIPC_ERR_PROTOCOL, .act = (how), .undo = close_ledger, .variants = (count)}
#define SECOND(called, breaks, how) {.name = (called), .rule = ENVELOPE breaks, .expected = GPUIPC_ERR_PROTOCOL, .act = (how), .first_is_good = true}
/* clang-format on */

static const hostile_case system_cases[] = {
    BYTE("the first letter of the magic", "magic", PROTOCOL, RAW_ENVELOPE_MAGIC, 'g'),
    BYTE("the last letter of the magic", "magic", PROTOCOL, RAW_ENVELOPE_MAGIC + 3, 'C'),
    BYTE("a later version", "another version ends the connection", VERSION, RAW_ENVELOPE_VERSION,
         2),
    BYTE("no version", "another version ends the connection", VERSION, RAW_ENVELOPE_VERSION, 0),
    BYTE("a version of two bytes", "another version ends the connection", VERSION,
         RAW_ENVELOPE_VERSION + 1, 1),
    BYTE("no ledger", "flags", PROTOCOL, RAW_ENVELOPE_FLAGS, 0),
    BYTE("an unknown flag", "flags", PROTOCOL, RAW_ENVELOPE_FLAGS, 3),
    BYTE("the last flag", "flags", PROTOCOL, RAW_ENVELOPE_FLAGS + 1, 0x80),
    BYTE("no handles but a ledger", "flags", PROTOCOL, RAW_ENVELOPE_HANDLES, 0),
    BYTE("the ledger alone", "flags", PROTOCOL, RAW_ENVELOPE_HANDLES, 1),
    BYTE("more handles than there are", "handles", PROTOCOL, RAW_ENVELOPE_HANDLES, 3),
    BYTE("more handles than there may be", "handles", HANDLE_COUNT, RAW_ENVELOPE_HANDLES, 255),
    BYTE("handles without end", "handles", HANDLE_COUNT, RAW_ENVELOPE_HANDLES + 3, 0x80),
    BYTE("fewer bytes than there are", "bytes", PROTOCOL, RAW_ENVELOPE_BYTES, (RAW_END & 0xFF) - 1),
    BYTE("more bytes than there are", "bytes", PROTOCOL, RAW_ENVELOPE_BYTES, (RAW_END & 0xFF) + 1),
    BYTE("no bytes", "bytes", PROTOCOL, RAW_ENVELOPE_BYTES, 0),
    BYTE("bytes without end", "bytes", PROTOCOL, RAW_ENVELOPE_BYTES + 3, 0xFF),
    BYTE("no number", "number", PROTOCOL, RAW_ENVELOPE_NUMBER, 0),
    BYTE("the number of a later packet", "number", PROTOCOL, RAW_ENVELOPE_NUMBER, 2),
    BYTE("a number without end", "number", PROTOCOL, RAW_ENVELOPE_NUMBER + 7, 0x80),
    DOES("cut at every length", "bytes", truncated, LENGTHS),
    DOES("a longer packet than any", "bytes", longer_than_any, 0),
    DOES("a number without handles", "number is 0 without handles", number_without_handles, 0),
    DOES("a ledger's number that is none", "handles", number_of_no_ledger, COUNT(numbers)),
    DOES("a number that is no handle's", "handles", number_of_no_handle, COUNT(numbers)),
    DOES("one handle twice", "handles", same_handle_twice, 0),
    DOES("the ledger as memory", "handles", ledger_as_memory, 0),
    DOES("another number of a handle", "handles", other_number_of_a_handle, 2),
    LEDGER("a ledger that is no memory", ledger_that_is_none, 9),
    LEDGER("a ledger that may only be read", ledger_to_be_read_only, 0),
    SECOND("a second ledger", "only in the first packet with handles", second_ledger),
    SECOND("the same number again", "number of this packet", number_again),
    SECOND("a number left out", "number of this packet", number_left_out),
    {.name = "handles that are protected from being closed",
     .rule = "none: they are taken as any",
     .expected = GPUIPC_ERR_TIMEOUT,
     .end = HOSTILE_WAITS,
     .act = protected_from_being_closed,
     .first_is_good = true}};

const hostile_cases hostile_system = {system_cases, COUNT(system_cases)};
