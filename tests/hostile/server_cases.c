/* SPDX-License-Identifier: MIT */
/** @file What clients ask a server for that they should not, and how they say it. */
#include <string.h>

#include "check.h"
#include "server_ground.h"

#define COUNT(table) (sizeof(table) / sizeof(*(table)))

static ticket decoded(const server_peer *self) {
    ticket of;
    check_ok(ticket_decode(&self->on->ticket, &of));
    return of;
}

static void ask_decoded(server_peer *self, wire_wish wish, const ticket *of) {
    gpuipc_ticket made;
    ticket_encode(of, &made);
    server_ask(self, wish, &made);
}

/* ---- tickets --------------------------------------------------------------------------------- */

static void wrong_secret(server_peer *self) {
    ticket of = decoded(self);
    of.secret[self->round % sizeof(of.secret)] ^= 1;
    ask_decoded(self, WIRE_OPEN, &of);
}

static void eight_wrong_secrets(server_peer *self) {
    for (unsigned i = 0; i < 8; i++) {
        wire_reply reply;
        wrong_secret(self);
        cr_assert(server_hear(self->raw, PATIENCE_MS, &reply));
        cr_assert_eq((int)reply.answer, (int)WIRE_UNKNOWN);
    }
}

static void share_of_nobody(server_peer *self) {
    static const uint32_t shares[] = {0x7FFFFFFF, UINT32_C(1) << 31, UINT32_MAX};
    ticket of = decoded(self);
    of.share = shares[self->round % COUNT(shares)];
    ask_decoded(self, WIRE_OPEN, &of);
}

static void another_server(server_peer *self) {
    ticket of = decoded(self);
    of.server_id[15] ^= 0x80;
    ask_decoded(self, WIRE_OPEN, &of);
}

static void revoked(server_peer *self) {
    server_ask(self, WIRE_OPEN, &self->on->revoked);
}

static void beyond_the_share(server_peer *self) {
    static const struct {
        uint64_t offset;
        uint64_t bytes;
    } ranges[] = {{SERVER_SHARED, 1}, {1, SERVER_SHARED},     {0, UINT64_C(1) << 31},
                  {0, UINT32_MAX},    {0, UINT64_C(1) << 63}, {UINT64_C(1) << 63, 1},
                  {1, UINT64_MAX - 1}};
    ticket of = decoded(self);
    of.offset = ranges[self->round % COUNT(ranges)].offset;
    of.bytes = ranges[self->round % COUNT(ranges)].bytes;
    ask_decoded(self, WIRE_OPEN, &of);
}

/* A ticket that no ticket_encode() would make: its check is right. */
static void send_made_up(server_peer *self, size_t at, uint8_t value) {
    gpuipc_ticket made = self->on->ticket;
    made.bytes[at] = value;
    server_ask(self, WIRE_OPEN, &made);
}

static void damaged(server_peer *self) {
    const size_t at = self->round % sizeof(self->on->ticket.bytes);
    send_made_up(self, at, (uint8_t)(self->on->ticket.bytes[at] ^ 1));
}

static void all_zero(server_peer *self) {
    const gpuipc_ticket zero = {.bytes = {0}};
    server_ask(self, WIRE_OPEN, &zero);
}

/* ---- wishes ---------------------------------------------------------------------------------- */

static void send_wish(server_peer *self, const wire_request *wish, const gpuipc_ticket *of) {
    uint8_t bytes[WIRE_REQUEST_BYTES];
    wire_request request = *wish;
    memcpy(request.ticket, of->bytes, sizeof(request.ticket));
    wire_encode_request(&request, bytes);
    server_send(self, WIRE_REQUEST, bytes, sizeof(bytes));
}

static void buffer_as_channel(server_peer *self) {
    const wire_request wish = {.wish = WIRE_SUBSCRIBE, .held = 1};
    send_wish(self, &wish, &self->on->ticket);
}

static void channel_as_buffer(server_peer *self) {
    server_ask(self, WIRE_OPEN, &self->on->channel);
}

static void too_many_held(server_peer *self) {
    static const uint32_t held[] = {0, 2, UINT32_C(1) << 31, UINT32_MAX};
    const wire_request wish = {.wish = WIRE_SUBSCRIBE, .held = held[self->round % COUNT(held)]};
    send_wish(self, &wish, &self->on->channel);
}

static void delivery_that_there_is_not(server_peer *self) {
    const wire_request wish = {.wish = WIRE_SUBSCRIBE,
                               .delivery = self->round % 2 == 0 ? 255 : 0,
                               .first = self->round % 2 == 0 ? 0 : 255,
                               .held = 1};
    send_wish(self, &wish, &self->on->channel);
}

static void name_of_nothing(server_peer *self) {
    static const char *const names[] = {
        "", "nobody", "../../etc/passwd",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}; /* 64: without an end */
    const char *name = names[self->round % COUNT(names)];
    gpuipc_ticket as = {.bytes = {0}};
    memcpy(as.bytes, name, strlen(name));
    server_ask(self, WIRE_NAME, &as);
}

static void wish_that_there_is_not(server_peer *self) {
    static const uint16_t wishes[] = {0, 5, 0x8000, UINT16_MAX};
    const wire_request wish = {.wish = wishes[self->round % COUNT(wishes)]};
    send_wish(self, &wish, &self->on->ticket);
}

static void reserved_part(server_peer *self) {
    const wire_request wishes[] = {{.wish = WIRE_OPEN, .delivery = 1},
                                   {.wish = WIRE_OPEN, .first = 1},
                                   {.wish = WIRE_OPEN, .held = 1},
                                   {.wish = WIRE_CONFIRM, .held = 1},
                                   {.wish = WIRE_NAME, .held = 1}};
    send_wish(self, &wishes[self->round % COUNT(wishes)], &self->on->ticket);
}

/* Of what it never got, then of what it got: twice. */
static void confirms_what_it_has_not(server_peer *self) {
    server_ask(self, WIRE_CONFIRM, &self->on->ticket);
    server_ask(self, WIRE_CONFIRM, &self->on->revoked);
    server_ask(self, WIRE_CONFIRM, &self->on->channel);
}

static void confirms_twice(server_peer *self) {
    wire_reply reply;
    server_ask(self, WIRE_OPEN, &self->on->ticket);
    cr_assert(server_hear(self->raw, PATIENCE_MS, &reply));
    server_ask(self, WIRE_CONFIRM, &self->on->ticket);
    server_ask(self, WIRE_CONFIRM, &self->on->ticket);
}

/* ---- packets --------------------------------------------------------------------------------- */

static size_t encode_good(const server_peer *self,
                          uint8_t packet[WIRE_HEADER_BYTES + WIRE_REQUEST_BYTES]) {
    const wire_header header = {.kind = WIRE_REQUEST,
                                .number = self->next,
                                .total_bytes = WIRE_REQUEST_BYTES,
                                .bytes = WIRE_REQUEST_BYTES};
    wire_request request = {.wish = WIRE_OPEN};
    memcpy(request.ticket, self->on->ticket.bytes, sizeof(request.ticket));
    wire_encode_header(&header, packet);
    wire_encode_request(&request, packet + WIRE_HEADER_BYTES);
    return WIRE_HEADER_BYTES + WIRE_REQUEST_BYTES;
}

static void cut(server_peer *self) {
    uint8_t packet[WIRE_HEADER_BYTES + WIRE_REQUEST_BYTES];
    const size_t size = encode_good(self, packet);
    cr_assert(raw_send(self->raw, packet, self->round % size, NULL, 0));
}

static void put_byte(server_peer *self, size_t at, uint8_t value) {
    uint8_t packet[WIRE_HEADER_BYTES + WIRE_REQUEST_BYTES];
    const size_t size = encode_good(self, packet);
    packet[at] = value;
    cr_assert(raw_send(self->raw, packet, size, NULL, 0));
}

static void another_major_version(server_peer *self) {
    put_byte(self, RAW_MAJOR, WIRE_MAJOR + 1);
}
static void a_flag(server_peer *self) {
    put_byte(self, RAW_FLAGS, 1);
}
static void kind_that_there_is_not(server_peer *self) {
    put_byte(self, RAW_KIND, 8);
}
static void another_kind(server_peer *self) {
    static const uint8_t kinds[] = {WIRE_MESSAGE, WIRE_CONTENTS, WIRE_REPLY};
    put_byte(self, RAW_KIND, kinds[self->round % COUNT(kinds)]);
}
static void later_message(server_peer *self) {
    put_byte(self, RAW_KIND + 4, 1);
}
static void more_bytes_in_all(server_peer *self) {
    put_byte(self, RAW_TOTAL_BYTES + 3, 0x80);
}
static void too_short(server_peer *self) {
    uint8_t bytes[WIRE_REQUEST_BYTES] = {WIRE_OPEN};
    server_send(self, WIRE_REQUEST, bytes, self->round % sizeof(bytes));
}

/* A later minor version may append. */
static void longer(server_peer *self) {
    uint8_t bytes[WIRE_REQUEST_BYTES + 8];
    wire_request request = {.wish = WIRE_OPEN};
    memcpy(request.ticket, self->on->ticket.bytes, sizeof(request.ticket));
    memset(bytes, 0xAB, sizeof(bytes));
    wire_encode_request(&request, bytes);
    server_send(self, WIRE_REQUEST, bytes, sizeof(bytes));
}

/* The same bytes again: the number is over. */
static void replay(server_peer *self) {
    wire_reply reply;
    server_ask(self, WIRE_OPEN, &self->on->revoked);
    cr_assert(server_hear(self->raw, PATIENCE_MS, &reply));
    self->next = 0;
    server_ask(self, WIRE_OPEN, &self->on->revoked);
}

/* Memory, a page of points, of a ring, of a channel: none of it is let in. */
static void brings_a_page(server_peer *self) {
    static const wire_kind kinds[] = {WIRE_POINTS, WIRE_RING, WIRE_CHANNEL};
    uint8_t packet[WIRE_HEADER_BYTES];
    const wire_header header = {.kind = kinds[self->round % COUNT(kinds)]};
    raw_packet of;
    cr_assert(raw_packet_make(self->on->buffer, &of));
    wire_encode_header(&header, packet);
    cr_assert(raw_send(self->raw, packet, sizeof(packet), of.handles, 1));
    raw_packet_close(&of);
}

static void brings_memory(server_peer *self) {
    raw_packet of;
    cr_assert(raw_packet_make(self->on->buffer, &of));
    cr_assert(raw_packet_send(&of, self->raw));
    raw_packet_close(&of);
}

static void handles_with_a_request(server_peer *self) {
    static const size_t counts[] = {1, 2, 16, RAW_PACKET_HANDLES_MAX};
    uint8_t packet[WIRE_HEADER_BYTES + WIRE_REQUEST_BYTES];
    const size_t size = encode_good(self, packet);
    raw_packet of;
    cr_assert(raw_packet_make(self->on->buffer, &of));
    raw_packet_repeat_handle(&of, counts[self->round % COUNT(counts)]);
    cr_assert(raw_send(self->raw, packet, size, of.handles, of.handle_count));
    raw_packet_close(&of);
}

/* ---- how it behaves -------------------------------------------------------------------------- */

static void says_nothing(server_peer *self) {
    (void)self;
}

static void hangs_up(server_peer *self) {
    raw_close(self->raw);
    self->raw = NULL;
}

static void asks_and_hangs_up(server_peer *self) {
    server_ask(self, WIRE_OPEN, &self->on->ticket);
    hangs_up(self);
}

/* Many more than one user may have, who say nothing. The honest one has its place from before. */
static void floods_connections(server_peer *self) {
    for (size_t i = 0; i < COUNT(self->others); i++) {
        self->others[i] = raw_connect(self->on->at.directory, self->on->endpoint);
    }
}

/* All of them ask. */
static void floods_requests(server_peer *self) {
    floods_connections(self);
    raw_peer *own = self->raw;
    for (size_t i = 0; i < COUNT(self->others); i++) {
        self->raw = self->others[i];
        if (self->raw != NULL) {
            uint8_t packet[WIRE_HEADER_BYTES + WIRE_REQUEST_BYTES];
            const size_t size = encode_good(self, packet);
            (void)raw_send(self->raw, packet, size, NULL, 0); /* it may be refused by now */
        }
    }
    self->raw = own;
}

/* clang-format off */
#define ANSWERS(called, breaks, how, with, count) {.name = (called), .rule = (breaks), .act = (how), .end = SERVER_ANSWERS, .answer = (with), .variants = (count)}
#define GOES_ON(called, breaks, how) {.name = (called), .rule = (breaks), .act = (how), .end = SERVER_WAITS}
/* clang-format on */
#define REQUEST "Requests: "

const server_case server_cases[] = {
    ANSWERS("a wrong secret", REQUEST "answer 4", wrong_secret, WIRE_UNKNOWN, 0),
    SERVER_HANGS_UP_CASE("eight wrong secrets",
                         REQUEST "who asks eight times for what is not there", eight_wrong_secrets,
                         TICKET_UNKNOWN, 0),
    ANSWERS("a share of nobody's", REQUEST "answer 4", share_of_nobody, WIRE_UNKNOWN, 3),
    ANSWERS("another server's ticket", REQUEST "answer 4", another_server, WIRE_UNKNOWN, 0),
    ANSWERS("a revoked ticket", REQUEST "answer 2", revoked, WIRE_REVOKED, 0),
    ANSWERS("a range beyond the share", REQUEST "answer 5", beyond_the_share, WIRE_OUT_OF_RANGE, 7),
    SERVER_HANGS_UP_CASE("a damaged ticket, each byte", "Tickets: check", damaged, TICKET_DAMAGED,
                         64),
    SERVER_HANGS_UP_CASE("a ticket of zeroes", "Tickets: check", all_zero, TICKET_DAMAGED, 0),
    ANSWERS("a buffer as a channel", REQUEST "answer 8", buffer_as_channel, WIRE_OTHER, 0),
    ANSWERS("a channel as a buffer", REQUEST "answer 8", channel_as_buffer, WIRE_OTHER, 0),
    ANSWERS("0, 2, 2^31, 2^32 - 1 frames at a time", REQUEST "answer 10", too_many_held,
            WIRE_TOO_MANY, 4),
    SERVER_HANGS_UP_CASE("a delivery, a first that there is not",
                         REQUEST "with wish 3: gpuipc_delivery", delivery_that_there_is_not,
                         PROTOCOL, 2),
    ANSWERS("names of nothing", REQUEST "wish 4, answer 4", name_of_nothing, WIRE_UNKNOWN, 4),
    SERVER_HANGS_UP_CASE("a wish that there is not", REQUEST "wish is 1 to 4",
                         wish_that_there_is_not, VERSION, 4),
    SERVER_HANGS_UP_CASE("something in a reserved part", REQUEST "else 0", reserved_part, PROTOCOL,
                         5),
    GOES_ON("a word that it has open what it has not", REQUEST "wish 2 has no reply",
            confirms_what_it_has_not),
    GOES_ON("the same word twice", REQUEST "wish 2 has no reply", confirms_twice),
    SERVER_HANGS_UP_CASE("cut at every length", "Packet: length must be what came", cut, PROTOCOL,
                         WIRE_HEADER_BYTES + WIRE_REQUEST_BYTES),
    SERVER_HANGS_UP_CASE("another major version", "Packet: major version", another_major_version,
                         VERSION, 0),
    SERVER_HANGS_UP_CASE("a flag", "Packet: flags are 0", a_flag, PROTOCOL, 0),
    SERVER_HANGS_UP_CASE("a kind that there is not", "Packet: kind is 1 to 7",
                         kind_that_there_is_not, PROTOCOL, 0),
    SERVER_HANGS_UP_CASE("a message, contents, a reply", REQUEST "the client sends requests only",
                         another_kind, PROTOCOL, 3),
    SERVER_HANGS_UP_CASE("a request is missing", "Packet: message number is the next",
                         later_message, PROTOCOL, 0),
    SERVER_HANGS_UP_CASE("a request twice", "Packet: message number is the next", replay, PROTOCOL,
                         0),
    SERVER_HANGS_UP_CASE("a request of 2^31 bytes", REQUEST "a request is one packet",
                         more_bytes_in_all, PROTOCOL, 0),
    SERVER_HANGS_UP_CASE("a request that is too short", REQUEST "72 bytes", too_short, PROTOCOL,
                         72),
    ANSWERS("a longer request, of a later minor version", "none: it is skipped", longer,
            WIRE_GRANTED, 0),
    SERVER_HANGS_UP_CASE("a page", REQUEST "the client sends requests only", brings_a_page,
                         PROTOCOL, 3),
    SERVER_HANGS_UP_CASE("memory", REQUEST "the client sends requests only", brings_memory,
                         PROTOCOL, 0),
    SERVER_HANGS_UP_CASE("1, 2, 16, 253 handles with a request",
                         "Packet: as many handles as segments name", handles_with_a_request,
                         HANDLE_COUNT, 4),
    GOES_ON("says nothing", "none: it keeps its place", says_nothing),
    GOES_ON("hangs up", "none: the end of the socket", hangs_up),
    GOES_ON("asks and hangs up", "none: the end of the socket", asks_and_hangs_up),
    GOES_ON("96 connections of a user who may have 24", REQUEST "answer 6", floods_connections),
    GOES_ON("96 connections that ask at once", REQUEST "answer 6", floods_requests)};

const size_t server_case_count = COUNT(server_cases);
