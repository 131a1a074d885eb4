/* SPDX-License-Identifier: MIT */
/** @file See session.h: packets by the rules of docs/wire-format.md, of which the input breaks some. */
#include <stddef.h>
#include <string.h>

#include "base/little_endian.h"
#include "contents/contents_ring.h"
#include "session.h"

/* A packet by itself has so many of them. */
#define RECORDS_MAX 3u

/** A packet before it is bytes. */
typedef struct parts {
    wire_header header;
    uint8_t text[SESSION_MESSAGE_MAX]; /* its bytes */
    size_t text_size;
    wire_buffer buffer; /* each of them is so */
    segment_record segment;
    uint32_t records;
    wire_contents contents;
    wire_request request;
    wire_reply reply;
    bool is_next; /* it ends its message */
} parts;

typedef enum template {
    OF_BYTES,
    OF_A_BUFFER,
    OF_BUFFERS,
    OF_A_HALF,
    OF_CONTENTS,
    OF_A_RING,
    OF_POINTS,
    OF_WORDS,
    OF_A_READER,
    OF_A_WISH,
    OF_A_CHANNEL,
    OF_A_NAME,
    OF_A_GRANT,
    OF_A_REFUSAL,
    OF_A_POINT,
    OF_A_TICKET,
    HEARD,
    RAW,
    TEMPLATES
} template;

/* ---- by the rules ------------------------------------------------------------------------------ */

static void add_records(parts *to, uint32_t count) {
    to->records = count;
    to->header.total_buffers = count;
    to->header.total_segments = count;
    to->header.buffers = (uint16_t)count;
    to->header.segments = (uint16_t)count;
}

static void add_text(parts *to, const void *bytes, size_t size) {
    memcpy(to->text, bytes, size);
    to->text_size = size;
    to->header.bytes = (uint32_t)size;
    to->header.total_bytes = (uint32_t)size;
}

/* Of the program's own tickets, or the peer's. */
static gpuipc_ticket choose_ticket(uint8_t which) {
    const honest *program = &now.program;
    gpuipc_ticket chosen;
    if (which < program->ticket_count) {
        return program->tickets[which];
    }
    if (which % 2 == 0) {
        return program->channel_ticket;
    }
    hostile_ticket(&chosen);
    return chosen;
}

static void make_wish(parts *to, wire_wish wish, script *from) {
    const uint8_t of_channel = wish == WIRE_SUBSCRIBE ? SESSION_TICKETS : 0;
    const gpuipc_ticket of =
        choose_ticket((of_channel + script_byte(from)) % (SESSION_TICKETS + 2u));
    to->header.kind = WIRE_REQUEST;
    to->request.wish = (uint16_t)wish;
    to->request.held = wish == WIRE_SUBSCRIBE ? 1 : 0;
    if (wish == WIRE_NAME) {
        memcpy(to->request.ticket, SESSION_CHANNEL_NAME, sizeof(SESSION_CHANNEL_NAME));
    } else {
        memcpy(to->request.ticket, of.bytes, sizeof(of.bytes));
    }
    to->text_size = WIRE_REQUEST_BYTES;
}

static void make_reply(parts *to, wire_answer answer) {
    to->header.kind = WIRE_REPLY;
    to->reply.answer = (uint16_t)answer;
    to->text_size = WIRE_REPLY_BYTES;
    if (answer == WIRE_GRANTED) {
        add_records(to, 1);
    }
}

/* The answer to a name. */
static void attach_ticket(parts *to) {
    gpuipc_ticket attached;
    hostile_ticket(&attached);
    to->reply.attachment_bytes = sizeof(attached.bytes);
    memcpy(to->text + WIRE_REPLY_BYTES, attached.bytes, sizeof(attached.bytes));
    to->text_size += sizeof(attached.bytes);
}

static void make_contents(parts *to, segment_memory memory) {
    to->header.kind = WIRE_CONTENTS;
    to->contents = (wire_contents){.memory = (uint16_t)memory, .bytes = SESSION_SLOT_BYTES};
    to->buffer.memory = (uint16_t)memory;
    if (memory == SEGMENT_MEMORY_HOST) {
        to->buffer.offset = 0;
        to->buffer.bytes = CONTENTS_RING_BYTES;
        to->segment.bytes = CONTENTS_RING_BYTES;
    }
    to->text_size = WIRE_CONTENTS_BYTES;
    add_records(to, 1);
}

static void make_page(parts *to, wire_kind kind) {
    to->header = (wire_header){.kind = kind};
    to->is_next = false;
}

static void make(parts *to, template of, script *from) {
    static const char text[] = "hostile";
    switch (of) {
    case OF_A_BUFFER:
    case OF_BUFFERS:
        add_records(to, of == OF_BUFFERS ? RECORDS_MAX : 1);
        add_text(to, text, sizeof(text));
        break;
    case OF_A_HALF:
        add_records(to, 1);
        add_text(to, text, sizeof(text));
        to->header.total_buffers = 2;
        to->header.total_segments = 2;
        to->header.total_bytes = 2 * sizeof(text);
        to->is_next = script_byte(from) % 2 != 0;
        break;
    case OF_CONTENTS:
        make_contents(to, SEGMENT_MEMORY_VMM);
        break;
    case OF_A_RING:
        make_contents(to, SEGMENT_MEMORY_HOST);
        break;
    case OF_POINTS:
        hostile_writes_points();
        make_page(to, WIRE_POINTS);
        break;
    case OF_WORDS:
        make_page(to, WIRE_RING);
        break;
    case OF_A_READER:
        hostile_writes_channel();
        make_page(to, WIRE_CHANNEL);
        break;
    case OF_A_WISH:
        make_wish(to, script_byte(from) % 2 == 0 ? WIRE_OPEN : WIRE_CONFIRM, from);
        break;
    case OF_A_CHANNEL:
        make_wish(to, WIRE_SUBSCRIBE, from);
        break;
    case OF_A_NAME:
        make_wish(to, WIRE_NAME, from);
        break;
    case OF_A_GRANT:
        make_reply(to, WIRE_GRANTED);
        break;
    case OF_A_REFUSAL:
        make_reply(to, WIRE_UNKNOWN);
        break;
    case OF_A_POINT:
        add_records(to, 1);
        add_text(to, text, sizeof(text));
        to->buffer.point_index = 1;
        to->buffer.point_value = 2;
        to->buffer.ready = script_byte(from) % 2 != 0 ? WIRE_READY_WORD : WIRE_READY_NOW;
        break;
    case OF_A_TICKET:
        make_reply(to, WIRE_GRANTED);
        add_records(to, 0);
        attach_ticket(to);
        break;
    default:
        add_text(to, text, sizeof(text));
        break;
    }
}

/* ---- and not ----------------------------------------------------------------------------------- */

#define FIELD(place)                                                                               \
    { offsetof(parts, place), sizeof(((parts *)NULL)->place) }

/* The corpus names a field by its place: a field that the format no longer has is replaced, so that the others keep theirs. */
static const struct {
    size_t at;
    size_t size;
} fields[] = {
    FIELD(header.kind),          FIELD(header.number),          FIELD(header.total_bytes),
    FIELD(header.total_buffers), FIELD(header.total_segments),  FIELD(header.bytes),
    FIELD(header.buffers),       FIELD(header.segments),        FIELD(records),
    FIELD(buffer.exporter_id),   FIELD(buffer.buffer_id),       FIELD(buffer.device_uuid),
    FIELD(buffer.offset),        FIELD(buffer.bytes),           FIELD(buffer.segment_count),
    FIELD(buffer.memory),        FIELD(buffer.handle_type),     FIELD(buffer.access),
    FIELD(buffer.ready),         FIELD(buffer.point_index),     FIELD(buffer.point_value),
    FIELD(buffer.point_value),   FIELD(segment.bytes),          FIELD(segment.naming),
    FIELD(segment.group),        FIELD(segment.name),           FIELD(contents.memory),
    FIELD(contents.offset),      FIELD(contents.bytes),         FIELD(contents.number),
    FIELD(request.wish),         FIELD(request.delivery),       FIELD(request.first),
    FIELD(request.held),         FIELD(request.ticket),         FIELD(reply.answer),
    FIELD(reply.flags),          FIELD(reply.attachment_bytes), FIELD(text_size)};
#define FIELDS (sizeof(fields) / sizeof(*fields))

/* Of a field of bytes the first eight. */
static void spoil(parts *of, script *from) {
    const uint8_t which = script_byte(from) % FIELDS;
    const size_t size = fields[which].size < 8 ? fields[which].size : 8;
    uint8_t *at = (uint8_t *)of + fields[which].at;
    uint64_t value = 0;
    memcpy(&value, at, size);
    value = script_number(from, value);
    memcpy(at, &value, size);
}

/* ---- bytes ------------------------------------------------------------------------------------- */

static uint8_t bytes[WIRE_HEADER_BYTES + SESSION_MESSAGE_MAX +
                     RECORDS_MAX * (WIRE_BUFFER_BYTES + WIRE_SEGMENT_BYTES)];

/* Requests, replies and contents are as long as they are, unless the input has said otherwise. */
static void encode_text(parts *of) {
    if (of->header.kind == WIRE_REQUEST) {
        wire_encode_request(&of->request, of->text);
    } else if (of->header.kind == WIRE_REPLY) {
        wire_encode_reply(&of->reply, of->text);
    } else if (of->header.kind == WIRE_CONTENTS) {
        wire_encode_contents(&of->contents, of->text);
    }
    if (of->header.total_bytes == 0 && of->header.bytes == 0) {
        of->header.bytes = (uint32_t)of->text_size;
        of->header.total_bytes = (uint32_t)of->text_size;
    }
}

static size_t encode(parts *of) {
    uint8_t *to = bytes + WIRE_HEADER_BYTES;
    of->records %= RECORDS_MAX + 1;
    of->text_size %= SESSION_MESSAGE_MAX + 1;
    encode_text(of);
    wire_encode_header(&of->header, bytes);
    memcpy(to, of->text, of->text_size);
    to += of->text_size;
    for (uint32_t i = 0; i < of->records; i++, to += WIRE_BUFFER_BYTES) {
        wire_encode_buffer(&of->buffer, to);
    }
    for (uint32_t i = 0; i < of->records; i++, to += WIRE_SEGMENT_BYTES) {
        wire_encode_segment(&of->segment, to);
    }
    return (size_t)(to - bytes);
}

/* ---- descriptors ------------------------------------------------------------------------------- */

typedef struct bundle {
    int fds[OS_PACKET_HANDLES_MAX];
    size_t count;
    memory_flaw flaw;
} bundle;

static void fill(bundle *to, int fd, size_t count) {
    for (to->count = 0; to->count < count && to->count < OS_PACKET_HANDLES_MAX; to->count++) {
        to->fds[to->count] = fd;
    }
}

/* As many as the packet names, of what it says. */
static void add_right(bundle *to, const parts *of) {
    if (wire_is_page(of->header.kind)) {
        fill(to, hostile_descriptor(HOSTILE_PAGE), 1);
    } else if (of->segment.naming != SEGMENT_NAMED_BY_NAME) {
        const bool is_ring = of->buffer.memory == SEGMENT_MEMORY_HOST;
        fill(to, hostile_descriptor(is_ring ? HOSTILE_RING : HOSTILE_MEMORY), of->records);
    }
}

/* 0: nothing is changed. Else the kind, and bits 5 to 7: how many more; all three: the most there may be, or a flaw. */
static void spoil_bundle(bundle *self, script *from) {
    static const uint8_t more[] = {0, 1, 2, 5, 15, 100, 0, 0};
    const uint8_t how = script_byte(from);
    const uint8_t count = how >> 5;
    if (how == 0) {
        return;
    }
    if (count == 7) {
        fill(self, hostile_descriptor(how & 0x1F), OS_PACKET_HANDLES_MAX);
    } else if (count == 6) {
        self->flaw = how % 2 == 0 ? MEMORY_CUT : MEMORY_AT_LIMIT;
    } else {
        fill(self, hostile_descriptor(how & 0x1F),
             (self->count == 0 ? 1 : self->count) + more[count]);
    }
}

/* ---- sending ----------------------------------------------------------------------------------- */

/* What has come, once more, as another message: with the names and descriptors of living things. */
static void send_heard(script *from, hostile_end *by) {
    hostile_heard *heard = &now.peer.heard;
    const uint8_t place = script_byte(from);
    const uint8_t value = script_byte(from);
    if (heard->size < WIRE_HEADER_BYTES) {
        return;
    }
    little_endian_put(heard->bytes + 16, 8, by->next);
    by->next++;
    if (value != 0) {
        heard->bytes[(size_t)place * 2 % heard->size] = value;
    }
    (void)memory_send(by->os, heard->bytes, heard->size, heard->fds, heard->fd_count, MEMORY_WHOLE);
}

static void send_raw(script *from, hostile_end *by) {
    uint8_t raw[64];
    const size_t size = script_byte(from) % (sizeof(raw) + 1);
    bundle with = {.count = 0};
    for (size_t i = 0; i < size; i++) {
        raw[i] = script_byte(from);
    }
    spoil_bundle(&with, from);
    (void)memory_send(by->os, raw, size, with.fds, with.count, with.flaw);
}

/* Its first byte: the template, and in the upper bits how many of its fields are others. */
void packet_send(script *from, hostile_end *by) {
    static parts packet;
    const uint8_t shape = script_byte(from);
    const template of = (shape & 0x1Fu) % TEMPLATES;
    bundle with = {.count = 0};
    if (of == HEARD || of == RAW) {
        (of == HEARD ? send_heard : send_raw)(from, by);
        return;
    }
    memset(&packet, 0, sizeof(packet));
    packet.header = (wire_header){.kind = WIRE_MESSAGE, .number = by->next};
    packet.buffer = hostile_memory_of_all()->buffer;
    packet.segment = hostile_memory_of_all()->segment;
    packet.is_next = true;
    make(&packet, of, from);
    for (unsigned left = shape >> 5; left > 0; left--) {
        spoil(&packet, from);
    }
    by->next += packet.is_next;
    const size_t size = encode(&packet);
    add_right(&with, &packet);
    spoil_bundle(&with, from);
    (void)memory_send(by->os, bytes, size, with.fds, with.count, with.flaw);
}
