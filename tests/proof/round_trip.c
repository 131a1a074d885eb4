/* SPDX-License-Identifier: MIT */
/**
 * @file decode(encode(x)) = x, of every record that travels and of tickets, for all x: ci/prove has clang compile this, and
 * demands that no call of differs() is left. It is a function that is nowhere, so that only a call that the compiler has
 * proven never to happen goes away. Nothing is run.
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/little_endian.h"
#include "base/status.h"

void differs(void);

/* The record of an error is no part of what is proven. */
#define status_fail(status, ...) (status)
/* Four bytes are 32 bits, of which the first proof below is. With it the compiler sees that a ticket's check comes back. */
#define little_endian_get(at, bytes)                                                               \
    __builtin_choose_expr((bytes) == 4, (uint32_t)little_endian_get(at, 4),                        \
                          little_endian_get(at, bytes))
#include "../../src/common/message/wire.c"
#include "../../src/common/ticket/ticket.c"

#define SAME(member)                                                                               \
    if (decoded.member != x.member) {                                                              \
        differs();                                                                                 \
    }
#define SAME_BYTES(member)                                                                         \
    for (size_t i = 0; i < sizeof(x.member); i++) {                                                \
        SAME(member[i])                                                                            \
    }
/* Of a list of fields (little_endian.h). */
#define SAME_FIELD(position, bits, member) SAME(member)
#define SAME_ARRAY(position, member)       SAME_BYTES(member)

#ifdef PLANTED /* a mistake, of which nothing is known: no proof can be left */
extern const uint8_t mistake;
#define ENCODED(at, position) ((at)[position] ^= mistake)
#else
#define ENCODED(at, position) ((void)0)
#endif

void proves_four_bytes(const uint8_t *at) {
    const uint64_t value = (little_endian_get)(at, 4);
    if (value != (uint32_t)value) {
        differs();
    }
}

void proves_header(const wire_header *of) {
    const wire_header x = *of;
    uint8_t bytes[WIRE_HEADER_BYTES];
    wire_packet packet;
    if (x.kind < WIRE_MESSAGE || x.kind > WIRE_CHANNEL || wire_packet_bytes(&x) > UINT32_MAX) {
        return; /* which no packet is: OS_PACKET_BYTES_MAX */
    }
    wire_encode_header(&x, bytes);
    ENCODED(bytes, 36);
    if (decode_header(bytes, wire_packet_bytes(&x), &packet) != GPUIPC_OK ||
        packet.buffer_record_bytes != WIRE_BUFFER_BYTES ||
        packet.segment_record_bytes != WIRE_SEGMENT_BYTES) {
        differs();
        return;
    }
    const wire_header decoded = packet.header;
    HEADER_FIELDS(SAME_FIELD, SAME_ARRAY)
}

static void buffer_with(const wire_buffer *of, uint16_t access) {
    wire_buffer x = *of;
    wire_buffer decoded;
    uint8_t bytes[WIRE_BUFFER_BYTES];
    const wire_packet packet = {.buffers = bytes, .buffer_record_bytes = WIRE_BUFFER_BYTES};
    x.access = access;
    if (check_buffer(&x) != GPUIPC_OK) {
        return;
    }
    wire_encode_buffer(&x, bytes);
    ENCODED(bytes, 0);
    if (wire_decode_buffer(&packet, 0, &decoded) != GPUIPC_OK) {
        differs();
        return;
    }
    BUFFER_FIELDS(SAME_FIELD, SAME_ARRAY)
}

void proves_buffer_to_read(const wire_buffer *of) {
    buffer_with(of, GPUIPC_ACCESS_READ);
}

void proves_buffer_to_write(const wire_buffer *of) {
    buffer_with(of, GPUIPC_ACCESS_READ_WRITE);
}

void proves_segment(const segment_record *of) {
    const segment_record x = *of;
    segment_record decoded;
    uint8_t bytes[WIRE_SEGMENT_BYTES];
    const wire_packet packet = {.segments = bytes, .segment_record_bytes = WIRE_SEGMENT_BYTES};
    if (x.naming > SEGMENT_NAMED_BY_BOTH) {
        return;
    }
    wire_encode_segment(&x, bytes);
    ENCODED(bytes, 0);
    if (wire_decode_segment(&packet, 0, &decoded) != GPUIPC_OK) {
        differs();
        return;
    }
    SEGMENT_FIELDS(SAME_FIELD, SAME_ARRAY)
}

void proves_contents(const wire_contents *of) {
    const wire_contents x = *of;
    wire_contents decoded;
    uint8_t bytes[WIRE_CONTENTS_BYTES];
    if (x.memory < SEGMENT_MEMORY_VMM || x.memory > SEGMENT_MEMORY_FABRIC || x.bytes == 0 ||
        x.bytes > UINT64_MAX - x.offset ||
        (x.memory == SEGMENT_MEMORY_HOST ? x.offset : x.number) != 0) {
        return;
    }
    wire_encode_contents(&x, bytes);
    ENCODED(bytes, 16);
    if (wire_decode_contents(bytes, sizeof(bytes), &decoded) != GPUIPC_OK) {
        differs();
        return;
    }
    CONTENTS_FIELDS(SAME_FIELD, SAME_ARRAY)
}

static void request_of(const wire_request *of, uint16_t wish) {
    wire_request x = *of;
    wire_request decoded;
    uint8_t bytes[WIRE_REQUEST_BYTES];
    x.wish = wish;
    if (wish != WIRE_SUBSCRIBE) { /* of which these are, alone */
        x.delivery = 0;
        x.first = 0;
        x.held = 0;
    }
    if (x.delivery > GPUIPC_DELIVERY_NEWEST || x.first > GPUIPC_FIRST_OLDEST) {
        return;
    }
    wire_encode_request(&x, bytes);
    ENCODED(bytes, 8);
    if (wire_decode_request(bytes, sizeof(bytes), &decoded) != GPUIPC_OK) {
        differs();
        return;
    }
    REQUEST_FIELDS(SAME_FIELD, SAME_ARRAY)
}

void proves_request(const wire_request *of) {
    request_of(of, WIRE_OPEN);
    request_of(of, WIRE_CONFIRM);
    request_of(of, WIRE_SUBSCRIBE);
    request_of(of, WIRE_NAME);
}

static void reply_of(uint16_t answer, uint16_t flags) {
    /* Of the attachment the record has but the length, which is that of what came. */
    const wire_reply x = {.answer = answer, .flags = flags};
    wire_reply decoded;
    uint8_t bytes[WIRE_REPLY_BYTES];
    wire_encode_reply(&x, bytes);
    ENCODED(bytes, 2);
    if (wire_decode_reply(bytes, sizeof(bytes), &decoded) != GPUIPC_OK) {
        differs();
        return;
    }
    REPLY_FIELDS(SAME_FIELD, SAME_ARRAY)
}

void proves_reply(uint16_t answer) {
    reply_of(WIRE_GRANTED, 0);
    reply_of(WIRE_GRANTED, WIRE_REPLY_ONE_SHOT);
    reply_of(WIRE_GRANTED, WIRE_REPLY_WITHHELD);
    if (answer > WIRE_GRANTED && answer <= WIRE_TOO_MANY) {
        reply_of(answer, 0);
    }
}

void proves_ticket(const ticket *of) {
    const ticket x = *of;
    ticket decoded;
    gpuipc_ticket encoded;
    if (x.share == 0 || x.bytes == 0 || x.bytes > UINT64_MAX - x.offset) {
        return;
    }
    ticket_encode(&x, &encoded);
    ENCODED(encoded.bytes, 16);
    if (ticket_decode(&encoded, &decoded) != GPUIPC_OK) {
        differs();
        return;
    }
    TICKET_FIELDS(SAME_FIELD, SAME_ARRAY)
}
