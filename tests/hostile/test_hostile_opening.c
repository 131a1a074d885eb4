/* SPDX-License-Identifier: MIT */
/** @file Servers that do not keep to docs/wire-format.md, "Requests and replies": what a process is answered that opens one of
 *  their tickets. After each an honest server's ticket is opened. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "form.h"
#include "hostile.h"
#include "marks.h"
#include "os.h"
#include "raw_handle.h"
#include "ticket/ticket.h"

#define COUNT(table) (sizeof(table) / sizeof(*(table)))
#define SHORT_ROUNDS 2
#define FULL_ROUNDS  1000
#define REPLY_BYTES  (WIRE_HEADER_BYTES + WIRE_REPLY_BYTES + WIRE_BUFFER_BYTES + WIRE_SEGMENT_BYTES)
/* How long who opens waits where an answer never comes. */
#define ANSWER_NEVER_MS HOSTILE_SHORT_MS

/* Links to servers that have ended, and what was exported over them, are given up in steps, some with each ticket. */
#define SETTLED 16

struct opening_case;

/** The server's end, in a thread of its own. */
typedef struct opening_peer {
    raw_listener *listener;
    raw_peer *raw; /**< NULL when the act has closed it */
    const struct opening_case *of;
    unsigned round;
    raw_packet memory; /**< of which a reply is made */
    wire_header header;
    wire_reply reply;
    atomic_bool is_over;
} opening_peer;

typedef struct opening_case {
    const char *name;
    const char *rule;
    gpuipc_status expected;
    void (*act)(opening_peer *self); /**< the request has come */
    bool never_hears;                /**< the act comes when somebody has connected */
    bool never_answers;
    unsigned variants;
} opening_case;

static process_case at;
static gpuipc_buffer *buffer;
static partner honest;
static char honest_ticket[GPUIPC_TICKET_TEXT_SIZE];

/* ---- replies --------------------------------------------------------------------------------- */

/* @param with_memory: with the buffer, the record of which is as it is now */
static size_t encode(opening_peer *self, bool with_memory, uint8_t packet[REPLY_BYTES]) {
    uint8_t *to = packet + WIRE_HEADER_BYTES;
    self->header.buffers = with_memory ? 1 : 0;
    self->header.segments = with_memory ? 1 : 0;
    wire_encode_header(&self->header, packet);
    wire_encode_reply(&self->reply, to);
    wire_encode_buffer(&self->memory.buffer, to + WIRE_REPLY_BYTES);
    wire_encode_segment(&self->memory.segment, to + WIRE_REPLY_BYTES + WIRE_BUFFER_BYTES);
    return with_memory ? REPLY_BYTES : WIRE_HEADER_BYTES + WIRE_REPLY_BYTES;
}

static void send_bytes(opening_peer *self, const uint8_t *packet, size_t size, size_t handles) {
    (void)raw_send(self->raw, packet, size, self->memory.handles, handles);
}

static void send_grant(opening_peer *self) {
    uint8_t packet[REPLY_BYTES];
    self->header.total_buffers = 1;
    self->header.total_segments = 1;
    send_bytes(self, packet, encode(self, true, packet), self->memory.handle_count);
}

static void send_answer(opening_peer *self) {
    uint8_t packet[REPLY_BYTES];
    send_bytes(self, packet, encode(self, false, packet), 0);
}

/* ---- acts ------------------------------------------------------------------------------------ */

static void answers_nothing(opening_peer *self) {
    (void)self;
}

/* And listens no more, so that nobody is asked a second time. */
static void hangs_up(opening_peer *self) {
    raw_listener_close(self->listener);
    self->listener = NULL;
    raw_close(self->raw);
    self->raw = NULL;
}

static void refuses_with_a_buffer(opening_peer *self) {
    self->reply.answer = WIRE_UNKNOWN;
    send_grant(self);
}

static void grants_without_a_buffer(opening_peer *self) {
    send_answer(self);
}

static void answer_that_there_is_not(opening_peer *self) {
    static const uint16_t answers[] = {WIRE_TOO_MANY + 1, 0x8000, UINT16_MAX};
    self->reply.answer = answers[self->round % COUNT(answers)];
    send_answer(self);
}

static void flag_that_there_is_not(opening_peer *self) {
    static const uint16_t flags[] = {4, 0x8000};
    self->reply.flags = flags[self->round % COUNT(flags)];
    send_grant(self);
}

static void refuses_with_a_flag(opening_peer *self) {
    static const uint16_t flags[] = {WIRE_REPLY_ONE_SHOT, WIRE_REPLY_WITHHELD};
    self->reply.answer = WIRE_REVOKED;
    self->reply.flags = flags[self->round % COUNT(flags)];
    send_answer(self);
}

static void attachment_that_is_not_there(opening_peer *self) {
    static const uint32_t sizes[] = {1, UINT32_C(1) << 31, UINT32_MAX};
    self->reply.attachment_bytes = sizes[self->round % COUNT(sizes)];
    send_grant(self);
}

static void too_many_bytes(opening_peer *self) {
    static const uint32_t totals[] = {GPUIPC_MESSAGE_BYTES_MAX + 1, UINT32_C(1) << 31, UINT32_MAX};
    self->header.total_bytes = totals[self->round % COUNT(totals)];
    send_grant(self);
}

static void two_buffers(opening_peer *self) {
    uint8_t packet[REPLY_BYTES];
    self->header.total_buffers = 2;
    self->header.total_segments = 2;
    send_bytes(self, packet, encode(self, true, packet), 1);
}

static void another_kind(opening_peer *self) {
    static const wire_kind kinds[] = {WIRE_MESSAGE, WIRE_CONTENTS, WIRE_REQUEST};
    self->header.kind = kinds[self->round % COUNT(kinds)];
    send_answer(self);
}

static void kind_that_there_is_not(opening_peer *self) {
    self->header.kind = (wire_kind)8;
    send_answer(self);
}

static void another_version(opening_peer *self) {
    uint8_t packet[REPLY_BYTES];
    const size_t size = encode(self, false, packet);
    packet[RAW_MAJOR] = WIRE_MAJOR + 1;
    send_bytes(self, packet, size, 0);
}

static void later_number(opening_peer *self) {
    self->header.number = 1;
    send_answer(self);
}

static void cut(opening_peer *self) {
    uint8_t packet[REPLY_BYTES];
    self->header.total_buffers = 1;
    self->header.total_segments = 1;
    (void)encode(self, true, packet);
    send_bytes(self, packet, self->round % REPLY_BYTES, 1);
}

static void no_handle(opening_peer *self) {
    self->memory.handle_count = 0;
    send_grant(self);
}

static void many_handles(opening_peer *self) {
    static const size_t counts[] = {2, 16, RAW_PACKET_HANDLES_MAX};
    raw_packet_repeat_handle(&self->memory, counts[self->round % COUNT(counts)]);
    send_grant(self);
}

static void no_memory(opening_peer *self) {
    raw_packet_replace_handle(&self->memory, raw_handle_open(RAW_HANDLE_MEMORY));
    send_grant(self);
}

static void memory_of_another_size(opening_peer *self) {
    static const uint64_t sizes[] = {UINT64_C(1) << 31, UINT32_MAX, UINT64_C(1) << 63,
                                     2 * MEBIBYTES_2};
    self->memory.segment.bytes = sizes[self->round % COUNT(sizes)];
    send_grant(self);
}

/* Less, or more, than was asked for, or elsewhere: all within the memory. */
static void another_range(opening_peer *self) {
    static const struct {
        uint64_t offset;
        uint64_t bytes;
    } ranges[] = {{0, 1}, {1, MEBIBYTES_2 - 1}, {MEBIBYTES_2 / 2, MEBIBYTES_2 / 2}};
    self->memory.buffer.offset = ranges[self->round % COUNT(ranges)].offset;
    self->memory.buffer.bytes = ranges[self->round % COUNT(ranges)].bytes;
    send_grant(self);
}

static void range_that_wraps(opening_peer *self) {
    self->memory.buffer.offset = UINT64_MAX;
    send_grant(self);
}

static void device_that_nobody_has(opening_peer *self) {
    memset(self->memory.buffer.device_uuid, 0x5A, sizeof(self->memory.buffer.device_uuid));
    send_grant(self);
}

static void channel_page(opening_peer *self) {
    uint8_t packet[WIRE_HEADER_BYTES];
    const wire_header header = {.kind = WIRE_CHANNEL};
    wire_encode_header(&header, packet);
    send_bytes(self, packet, sizeof(packet), 1);
}

static void no_page_of_points(opening_peer *self) {
    uint8_t packet[WIRE_HEADER_BYTES];
    const wire_header header = {.kind = WIRE_POINTS};
    wire_encode_header(&header, packet);
    send_bytes(self, packet, sizeof(packet), 1); /* a GPU's memory */
}

static void busy_unasked(opening_peer *self) {
    self->reply.answer = WIRE_BUSY;
    send_answer(self);
}

/* The bytes of a long attachment, one a packet: who asked waits as long as he said. */
static void dribbles(opening_peer *self) {
    uint8_t packet[WIRE_HEADER_BYTES + 1] = {0};
    const wire_header header = {
        .kind = WIRE_REPLY, .total_bytes = GPUIPC_MESSAGE_BYTES_MAX, .bytes = 1};
    wire_encode_header(&header, packet);
    while (!atomic_load(&self->is_over) && raw_send(self->raw, packet, sizeof(packet), NULL, 0)) {
        os_sleep_ms(1);
    }
}

/* clang-format off */
#define CASE(called, breaks, answer, how, count) {.name = (called), .rule = (breaks), .expected = GPUIPC_ERR_##answer, .act = (how), .variants = (count)}
/* clang-format on */
#define REPLY "Requests: "

static const opening_case cases[] = {
    {.name = "answers nothing",
     .rule = "none: the deadline holds",
     .expected = GPUIPC_ERR_TIMEOUT,
     .act = answers_nothing,
     .never_answers = true},
    {.name = "one byte of an answer each millisecond",
     .rule = "none: the deadline holds",
     .expected = GPUIPC_ERR_TIMEOUT,
     .act = dribbles,
     .never_answers = true},
    {.name = "hangs up at once",
     .rule = "none: the end of the socket",
     .expected = GPUIPC_ERR_EXPORTER_GONE,
     .act = hangs_up,
     .never_hears = true},
    CASE("hangs up when it is asked", "none: the end of the socket", EXPORTER_GONE, hangs_up, 0),
    CASE("refuses, and sends a buffer", REPLY "no buffer unless granted", PROTOCOL,
         refuses_with_a_buffer, 0),
    CASE("grants, and sends no buffer", REPLY "one buffer when the answer is 0", PROTOCOL,
         grants_without_a_buffer, 0),
    CASE("an answer that there is not", REPLY "answer is 0 to 10", VERSION,
         answer_that_there_is_not, 3),
    CASE("a flag that there is not", REPLY "flags: others 0", PROTOCOL, flag_that_there_is_not, 2),
    CASE("refuses, and has a flag of what is granted", REPLY "flags: only where granted", PROTOCOL,
         refuses_with_a_flag, 2),
    CASE("an attachment of 1, 2^31, 2^32 - 1 bytes that is not there",
         REPLY "attachment: all that follows", PROTOCOL, attachment_that_is_not_there, 3),
    CASE("a reply of 2^31, 2^32 - 1 bytes", "Packet: total bytes at most 1,048,576", LIMIT,
         too_many_bytes, 3),
    CASE("two buffers", REPLY "a reply has one buffer", PROTOCOL, two_buffers, 0),
    CASE("a message, contents, a request", REPLY "one reply to each request", PROTOCOL,
         another_kind, 3),
    CASE("a kind that there is not", "Packet: kind is 1 to 7", PROTOCOL, kind_that_there_is_not, 0),
    CASE("another major version", "Packet: major version", VERSION, another_version, 0),
    CASE("a reply is missing", "Packet: message number is the next", PROTOCOL, later_number, 0),
    CASE("cut at every length", "Packet: length must be what came", PROTOCOL, cut, REPLY_BYTES),
    CASE("no handle", "Packet: as many handles as segments name", HANDLE_COUNT, no_handle, 0),
    CASE("2, 16, 253 handles", "Packet: as many handles as segments name", HANDLE_COUNT,
         many_handles, 3),
    CASE("no GPU memory", "What ends a connection: it costs the message", NOT_GPU_MEMORY, no_memory,
         0),
    CASE("memory of 2^31, 2^32 - 1, 2^63 bytes", "Segment record: size of the allocation",
         SIZE_MISMATCH, memory_of_another_size, 4),
    CASE("another range than was asked for",
         REPLY "the buffer of a reply is the range that was asked for", PROTOCOL, another_range, 3),
    CASE("a range that wraps", "Buffer record: offset + size must not pass 64 bits", PROTOCOL,
         range_that_wraps, 0),
    CASE("a device that nobody has", "What ends a connection: it costs the message",
         DEVICE_NOT_VISIBLE, device_that_nobody_has, 0),
    CASE("a channel's page unasked", REPLY "to who asks to read a channel", PROTOCOL, channel_page,
         0),
    CASE("a page of points that is none", "Points: shared memory of 106,496 bytes", PROTOCOL,
         no_page_of_points, 0),
    {.name = "too busy, before it was asked",
     .rule = "none: answer 6 comes unasked",
     .expected = GPUIPC_ERR_SERVER_BUSY,
     .act = busy_unasked,
     .never_hears = true}};

/* ---- rounds ---------------------------------------------------------------------------------- */

static void serve(void *argument) {
    opening_peer *self = argument;
    uint8_t request[WIRE_HEADER_BYTES + WIRE_REQUEST_BYTES];
    intptr_t handle;
    size_t count = 1;
    self->raw = raw_accept(self->listener, PATIENCE_MS);
    if (self->raw != NULL &&
        (self->of->never_hears ||
         raw_receive(self->raw, request, sizeof(request), &handle, &count, PATIENCE_MS) > 0)) {
        self->of->act(self);
    }
}

static gpuipc_ticket begin_peer(opening_peer *self, const opening_case *of, unsigned round) {
    ticket names = {.share = 1, .bytes = MEBIBYTES_2, .boot = ticket_boot(), .user = ticket_user()};
    char name[TICKET_ENDPOINT_SIZE];
    gpuipc_ticket made;
    memset(self, 0, sizeof(*self));
    check_ok(os_random(names.server_id, sizeof(names.server_id)));
    ticket_endpoint(names.server_id, name);
    ticket_encode(&names, &made);
    self->of = of;
    self->round = round;
    self->header = (wire_header){
        .kind = WIRE_REPLY, .total_bytes = WIRE_REPLY_BYTES, .bytes = WIRE_REPLY_BYTES};
    cr_assert(raw_packet_make(buffer, &self->memory));
    self->listener = raw_listen(at.directory, name);
    cr_assert_neq(self->listener, NULL);
    return made;
}

/* An answer that comes late is a hang; one that never does is ended by the test's own limit. */
static void check_answer(const opening_case *of, gpuipc_status got, uint64_t took_ms) {
    cr_assert_eq(got, of->expected, "\"%s\" (%s): %s (%s), not %s", of->name, of->rule,
                 gpuipc_status_name(got), got == GPUIPC_OK ? "" : gpuipc_error_get()->sentence,
                 gpuipc_status_name(of->expected));
    cr_assert_leq(took_ms, PATIENCE_MS, "\"%s\" (%s): it hangs, the answer took %llu ms", of->name,
                  of->rule, (unsigned long long)took_ms);
}

static void one_round(const opening_case *of, unsigned round) {
    static opening_peer peer;
    os_thread *thread;
    gpuipc_buffer *opened = NULL;
    const gpuipc_open_config config = {.struct_size = sizeof(config),
                                       .timeout_ms =
                                           of->never_answers ? ANSWER_NEVER_MS : PATIENCE_MS};
    const gpuipc_ticket hostile = begin_peer(&peer, of, round);
    check_ok(os_thread_start(serve, &peer, &thread));
    const uint64_t begun_ns = os_clock_ns();
    const gpuipc_status got = gpuipc_buffer_open(at.context, &hostile, &config, &opened);
    check_answer(of, got, (os_clock_ns() - begun_ns) / 1000000u);
    atomic_store(&peer.is_over, true);
    os_thread_join(thread);
    raw_close(peer.raw);
    if (peer.listener != NULL) {
        raw_listener_close(peer.listener);
    }
    raw_packet_close(&peer.memory);
}

static void open_honest(void) {
    gpuipc_buffer *opened = NULL;
    gpuipc_ticket of_honest;
    check_ok(gpuipc_ticket_from_text(honest_ticket, &of_honest));
    check_ok(gpuipc_buffer_open(at.context, &of_honest, NULL, &opened));
    check_ok(marks_check(opened, 1, 0));
    check_ok(gpuipc_buffer_release(opened));
}

/* The context keeps its connection to a server until somebody notices that it has gone. */
static void end_link(void) {
    gpuipc_buffer *opened = NULL;
    gpuipc_ticket of_honest;
    check_ok(gpuipc_ticket_from_text(honest_ticket, &of_honest));
    check_status(GPUIPC_ERR_EXPORTER_GONE,
                 gpuipc_buffer_open(at.context, &of_honest, NULL, &opened));
}

static void check_case(const opening_case *of) {
    leak_gate gate;
    const unsigned form = (unsigned)form_choose(SHORT_ROUNDS, FULL_ROUNDS);
    const unsigned rounds = of->variants > form ? of->variants : form;
    leak_gate_begin(&gate);
    for (unsigned round = 0; round < rounds; round++) {
        one_round(of, round);
        open_honest();
    }
    for (unsigned i = 0; i < SETTLED; i++) {
        open_honest();
    }
    cr_assert_eq(process_case_leaks(&at, &gate, BACK_MS), 0, "\"%s\" (%s): %s", of->name, of->rule,
                 gate.text);
}

static void begin(void) {
    process_case_begin(&at, NULL);
    buffer = process_case_buffer(&at, 0, MEBIBYTES_2, 0, 1, 0);
    partner_start(&honest, &at, NULL, NULL);
    partner_do(&honest, "GPUIPC_OK", "serve");
    partner_do(&honest, "GPUIPC_OK", "create 1 %llu 0 0", (unsigned long long)MEBIBYTES_2);
    partner_do(&honest, "GPUIPC_OK", "fill 1 0");
    partner_do(&honest, "GPUIPC_OK ", "share 0 0 0");
    const char *told = honest.answer + strlen("GPUIPC_OK ");
    cr_assert_lt(strlen(told), sizeof(honest_ticket));
    memcpy(honest_ticket, told, strlen(told) + 1);
    open_honest();
}

Test(opening, servers_by_the_protocol, .timeout = HOSTILE_TEST_S) {
    begin();
    for (size_t i = 0; i < COUNT(cases); i++) {
        check_case(&cases[i]);
    }
    partner_end(&honest);
    end_link();
    check_ok(gpuipc_buffer_release(buffer));
    process_case_end(&at);
}
