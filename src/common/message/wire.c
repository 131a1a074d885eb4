/* SPDX-License-Identifier: MIT */
/** @file See wire.h. */
#include "message/wire.h"

#include <stdbool.h>
#include <string.h>

#include <gpuipc/gpuipc.h>

static const uint8_t magic[4] = {'G', 'I', 'P', 'C'};

/* Positions in the header; docs/wire-format.md has the table. */
enum {
    HEADER_MAGIC = 0,
    HEADER_MAJOR = 4,
    HEADER_MINOR = 6,
    HEADER_LENGTH = 8,
    HEADER_KIND = 12,
    HEADER_FLAGS = 14,
    HEADER_NUMBER = 16,
    HEADER_TOTAL_BYTES = 24,
    HEADER_TOTAL_BUFFERS = 28,
    HEADER_TOTAL_SEGMENTS = 32,
    HEADER_BYTES = 36,
    HEADER_BUFFERS = 40,
    HEADER_SEGMENTS = 42,
    HEADER_BUFFER_RECORD = 44,
    HEADER_SEGMENT_RECORD = 46
};

/* Positions in a buffer record. */
enum {
    BUFFER_EXPORTER = 0,
    BUFFER_ID = 16,
    BUFFER_DEVICE = 32,
    BUFFER_OFFSET = 48,
    BUFFER_SIZE = 56,
    BUFFER_SEGMENTS = 64,
    BUFFER_MEMORY = 68,
    BUFFER_HANDLE_TYPE = 70,
    BUFFER_ACCESS = 72,
    BUFFER_READY = 74,
    BUFFER_POINT_INDEX = 76,
    BUFFER_POINT_VALUE = 80,
    BUFFER_RESERVED = 88,
    BUFFER_EVENT_NAME = 96
};

/* Positions in a segment record. */
enum {
    SEGMENT_SIZE = 0,
    SEGMENT_NAMING = 8,
    SEGMENT_RESERVED = 10,
    SEGMENT_GROUP = 12,
    SEGMENT_NAME = 16
};

/* Positions in the bytes of contents. */
enum {
    CONTENTS_MEMORY = 0,
    CONTENTS_OFFSET = 8,
    CONTENTS_SIZE = 16,
    CONTENTS_NUMBER = 24
};

/* Positions in the bytes of a request, and of a reply. */
enum {
    REQUEST_WISH = 0,
    REQUEST_TICKET = 8,
    REPLY_ANSWER = 0,
    REPLY_RESERVED = 2,
    REPLY_ATTACHMENT = 4
};

static void put(uint8_t *at, uint64_t value, unsigned width) {
    for (unsigned i = 0; i < width; i++) {
        at[i] = (uint8_t)(value >> (8 * i));
    }
}

static uint64_t get(const uint8_t *at, unsigned width) {
    uint64_t value = 0;
    for (unsigned i = 0; i < width; i++) {
        value |= (uint64_t)at[i] << (8 * i);
    }
    return value;
}

static uint16_t get16(const uint8_t *at) {
    return (uint16_t)get(at, 2);
}

static uint32_t get32(const uint8_t *at) {
    return (uint32_t)get(at, 4);
}

size_t wire_packet_bytes(const wire_header *header) {
    return WIRE_HEADER_BYTES + (size_t)header->bytes + (size_t)header->buffers * WIRE_BUFFER_BYTES +
           (size_t)header->segments * WIRE_SEGMENT_BYTES;
}

void wire_encode_header(const wire_header *header, uint8_t *out) {
    memset(out, 0, WIRE_HEADER_BYTES);
    memcpy(out + HEADER_MAGIC, magic, sizeof(magic));
    put(out + HEADER_MAJOR, WIRE_MAJOR, 2);
    put(out + HEADER_MINOR, WIRE_MINOR, 2);
    put(out + HEADER_LENGTH, wire_packet_bytes(header), 4);
    put(out + HEADER_KIND, (uint64_t)header->kind, 2);
    put(out + HEADER_NUMBER, header->number, 8);
    put(out + HEADER_TOTAL_BYTES, header->total_bytes, 4);
    put(out + HEADER_TOTAL_BUFFERS, header->total_buffers, 4);
    put(out + HEADER_TOTAL_SEGMENTS, header->total_segments, 4);
    put(out + HEADER_BYTES, header->bytes, 4);
    put(out + HEADER_BUFFERS, header->buffers, 2);
    put(out + HEADER_SEGMENTS, header->segments, 2);
    put(out + HEADER_BUFFER_RECORD, WIRE_BUFFER_BYTES, 2);
    put(out + HEADER_SEGMENT_RECORD, WIRE_SEGMENT_BYTES, 2);
}

void wire_encode_buffer(const wire_buffer *record, uint8_t *out) {
    memset(out, 0, WIRE_BUFFER_BYTES);
    memcpy(out + BUFFER_EXPORTER, record->exporter_id, sizeof(record->exporter_id));
    put(out + BUFFER_ID, record->buffer_id, 8);
    memcpy(out + BUFFER_DEVICE, record->device_uuid, sizeof(record->device_uuid));
    put(out + BUFFER_OFFSET, record->offset, 8);
    put(out + BUFFER_SIZE, record->bytes, 8);
    put(out + BUFFER_SEGMENTS, record->segment_count, 4);
    put(out + BUFFER_MEMORY, record->memory, 2);
    put(out + BUFFER_HANDLE_TYPE, record->handle_type, 2);
    put(out + BUFFER_ACCESS, record->access, 2);
    put(out + BUFFER_READY, record->ready, 2);
    put(out + BUFFER_POINT_INDEX, record->point_index, 4);
    put(out + BUFFER_POINT_VALUE, record->point_value, 8);
    memcpy(out + BUFFER_EVENT_NAME, record->event_name, sizeof(record->event_name));
}

void wire_encode_segment(const segment_record *record, uint8_t *out) {
    memset(out, 0, WIRE_SEGMENT_BYTES);
    put(out + SEGMENT_SIZE, record->bytes, 8);
    put(out + SEGMENT_NAMING, record->naming, 2);
    put(out + SEGMENT_GROUP, record->group, 4);
    memcpy(out + SEGMENT_NAME, record->name, sizeof(record->name));
}

static gpuipc_status bad(const char *sentence) {
    return status_fail(GPUIPC_ERR_PROTOCOL, "%s", sentence);
}

/* Magic and version stand at the same place in every version there will ever be. */
static gpuipc_status check_version(const uint8_t *packet, size_t size) {
    if (size < HEADER_LENGTH || memcmp(packet + HEADER_MAGIC, magic, sizeof(magic)) != 0) {
        return bad("the packet does not begin like one of gpuipc");
    }
    unsigned major = get16(packet + HEADER_MAJOR);
    if (major != WIRE_MAJOR) {
        return status_fail(GPUIPC_ERR_VERSION,
                           "the peer speaks protocol version %u.%u, this side %d.%d", major,
                           (unsigned)get16(packet + HEADER_MINOR), WIRE_MAJOR, WIRE_MINOR);
    }
    return GPUIPC_OK;
}

static gpuipc_status decode_header(const uint8_t *packet, size_t size, wire_packet *out) {
    gpuipc_status status = check_version(packet, size);
    if (status != GPUIPC_OK) {
        return status;
    }
    if (size < WIRE_HEADER_BYTES || get32(packet + HEADER_LENGTH) != size) {
        return bad("the packet has not the length it says");
    }
    unsigned kind = get16(packet + HEADER_KIND);
    if (kind < WIRE_MESSAGE || kind > WIRE_REPLY || get16(packet + HEADER_FLAGS) != 0) {
        return bad("the packet is of a kind that this version does not know");
    }
    out->header = (wire_header){.kind = (wire_kind)kind,
                                .number = get(packet + HEADER_NUMBER, 8),
                                .total_bytes = get32(packet + HEADER_TOTAL_BYTES),
                                .total_buffers = get32(packet + HEADER_TOTAL_BUFFERS),
                                .total_segments = get32(packet + HEADER_TOTAL_SEGMENTS),
                                .bytes = get32(packet + HEADER_BYTES),
                                .buffers = get16(packet + HEADER_BUFFERS),
                                .segments = get16(packet + HEADER_SEGMENTS)};
    out->buffer_record_bytes = get16(packet + HEADER_BUFFER_RECORD);
    out->segment_record_bytes = get16(packet + HEADER_SEGMENT_RECORD);
    if (out->buffer_record_bytes < WIRE_BUFFER_BYTES ||
        out->segment_record_bytes < WIRE_SEGMENT_BYTES) {
        return bad("the records are shorter than this version has them");
    }
    return GPUIPC_OK;
}

static bool is_page(wire_kind kind) {
    return kind == WIRE_POINTS || kind == WIRE_RING;
}

/* How many handles a packet names: with one of points or words its page's, else one for each segment
 * that has not only a name. */
static size_t count_handles(const wire_packet *packet) {
    size_t count = is_page(packet->header.kind) ? 1 : 0;
    for (uint32_t i = 0; i < packet->header.segments; i++) {
        const uint8_t *at = packet->segments + (size_t)i * packet->segment_record_bytes;
        count += get16(at + SEGMENT_NAMING) != SEGMENT_NAMED_BY_NAME;
    }
    return count;
}

/* What a kind has, beside what all have. */
static gpuipc_status check_kind(const wire_header *header) {
    if (is_page(header->kind) && (header->number != 0 || header->total_bytes != 0 ||
                                  header->total_buffers != 0 || header->total_segments != 0)) {
        return bad("a packet with a page carries something else as well");
    }
    if (header->kind == WIRE_REQUEST &&
        (header->bytes != header->total_bytes || header->total_buffers != 0 ||
         header->total_segments != 0)) {
        return bad("a request is in several packets, or carries buffers");
    }
    if (header->kind == WIRE_REPLY && header->total_buffers > 1) {
        return bad("a reply carries more than one buffer");
    }
    return GPUIPC_OK;
}

gpuipc_status wire_decode_packet(const uint8_t *packet, size_t size, size_t handle_count,
                                 wire_packet *out_packet) {
    wire_packet decoded = {0};
    gpuipc_status status = decode_header(packet, size, &decoded);
    if (status != GPUIPC_OK) {
        return status;
    }
    const wire_header *header = &decoded.header;
    /* none of the products can overflow 64 bits: 16 bits times 16 bits */
    uint64_t wanted = (uint64_t)WIRE_HEADER_BYTES + header->bytes +
                      (uint64_t)header->buffers * decoded.buffer_record_bytes +
                      (uint64_t)header->segments * decoded.segment_record_bytes;
    if (wanted != size) {
        return bad("the parts of the packet do not make its length");
    }
    if (header->bytes > header->total_bytes || header->buffers > header->total_buffers ||
        header->segments > header->total_segments) {
        return bad("the packet carries more than its message has");
    }
    if ((status = check_kind(header)) != GPUIPC_OK) {
        return status;
    }
    decoded.bytes = packet + WIRE_HEADER_BYTES;
    decoded.buffers = decoded.bytes + header->bytes;
    decoded.segments = decoded.buffers + (size_t)header->buffers * decoded.buffer_record_bytes;
    const size_t named = count_handles(&decoded);
    if (handle_count != named) {
        return status_fail(GPUIPC_ERR_HANDLE_COUNT, "%zu handles came with a packet that names %zu",
                           handle_count, named);
    }
    *out_packet = decoded;
    return GPUIPC_OK;
}

static gpuipc_status check_buffer(const wire_buffer *record) {
    if (record->memory < SEGMENT_MEMORY_VMM || record->memory > SEGMENT_MEMORY_FABRIC ||
        record->ready > WIRE_READY_EVENT) {
        return status_fail(GPUIPC_ERR_VERSION,
                           "the buffer is of a kind (memory %u, ready point %u) that this version "
                           "does not know",
                           (unsigned)record->memory, (unsigned)record->ready);
    }
    if (record->access != GPUIPC_ACCESS_READ && record->access != GPUIPC_ACCESS_READ_WRITE) {
        return bad("a buffer record offers no access that there is");
    }
    if (record->segment_count == 0 || record->bytes == 0 ||
        record->bytes > UINT64_MAX - record->offset) {
        return bad("a buffer record is empty or reaches beyond 64 bits");
    }
    if (record->ready == WIRE_READY_WORD && record->point_index == 0) {
        return bad("a buffer record has a ready point but does not say which");
    }
    return GPUIPC_OK;
}

gpuipc_status wire_decode_buffer(const wire_packet *packet, uint32_t index,
                                 wire_buffer *out_record) {
    const uint8_t *at = packet->buffers + (size_t)index * packet->buffer_record_bytes;
    wire_buffer record = {.buffer_id = get(at + BUFFER_ID, 8),
                          .offset = get(at + BUFFER_OFFSET, 8),
                          .bytes = get(at + BUFFER_SIZE, 8),
                          .segment_count = get32(at + BUFFER_SEGMENTS),
                          .memory = get16(at + BUFFER_MEMORY),
                          .handle_type = get16(at + BUFFER_HANDLE_TYPE),
                          .access = get16(at + BUFFER_ACCESS),
                          .ready = get16(at + BUFFER_READY),
                          .point_index = get32(at + BUFFER_POINT_INDEX),
                          .point_value = get(at + BUFFER_POINT_VALUE, 8)};
    memcpy(record.exporter_id, at + BUFFER_EXPORTER, sizeof(record.exporter_id));
    memcpy(record.device_uuid, at + BUFFER_DEVICE, sizeof(record.device_uuid));
    memcpy(record.event_name, at + BUFFER_EVENT_NAME, sizeof(record.event_name));
    if (get(at + BUFFER_RESERVED, 8) != 0) {
        return bad("the reserved part of a buffer record is not zero");
    }
    gpuipc_status status = check_buffer(&record);
    if (status == GPUIPC_OK) {
        *out_record = record;
    }
    return status;
}

gpuipc_status wire_decode_segment(const wire_packet *packet, uint32_t index,
                                  segment_record *out_record) {
    const uint8_t *at = packet->segments + (size_t)index * packet->segment_record_bytes;
    segment_record record = {.bytes = get(at + SEGMENT_SIZE, 8),
                             .naming = get16(at + SEGMENT_NAMING),
                             .group = get32(at + SEGMENT_GROUP)};
    memcpy(record.name, at + SEGMENT_NAME, sizeof(record.name));
    if (get16(at + SEGMENT_RESERVED) != 0 || record.naming > SEGMENT_NAMED_BY_BOTH) {
        return bad("a segment record is named in a way that this version does not know");
    }
    *out_record = record;
    return GPUIPC_OK;
}

void wire_encode_contents(const wire_contents *record, uint8_t *out) {
    memset(out, 0, WIRE_CONTENTS_BYTES);
    put(out + CONTENTS_MEMORY, record->memory, 2);
    put(out + CONTENTS_OFFSET, record->offset, 8);
    put(out + CONTENTS_SIZE, record->bytes, 8);
    put(out + CONTENTS_NUMBER, record->number, 8);
}

gpuipc_status wire_decode_contents(const uint8_t *bytes, size_t size, wire_contents *out_record) {
    if (size < WIRE_CONTENTS_BYTES) { /* a later minor version may have more */
        return bad("the contents do not say how they come");
    }
    wire_contents record = {.memory = get16(bytes + CONTENTS_MEMORY),
                            .offset = get(bytes + CONTENTS_OFFSET, 8),
                            .bytes = get(bytes + CONTENTS_SIZE, 8),
                            .number = get(bytes + CONTENTS_NUMBER, 8)};
    if (record.memory < SEGMENT_MEMORY_VMM || record.memory > SEGMENT_MEMORY_FABRIC) {
        return status_fail(GPUIPC_ERR_VERSION,
                           "the contents come in a way (%u) that this version does not know",
                           (unsigned)record.memory);
    }
    if (get(bytes + CONTENTS_MEMORY, 8) != record.memory || record.bytes == 0 ||
        record.bytes > UINT64_MAX - record.offset ||
        (record.memory == SEGMENT_MEMORY_HOST ? record.offset : record.number) != 0) {
        return bad("the contents are empty, reach beyond 64 bits, or have a reserved part");
    }
    *out_record = record;
    return GPUIPC_OK;
}

void wire_encode_request(const wire_request *record, uint8_t *out) {
    memset(out, 0, WIRE_REQUEST_BYTES);
    put(out + REQUEST_WISH, record->wish, 2);
    memcpy(out + REQUEST_TICKET, record->ticket, sizeof(record->ticket));
}

gpuipc_status wire_decode_request(const uint8_t *bytes, size_t size, wire_request *out_record) {
    if (size < WIRE_REQUEST_BYTES) { /* a later minor version may have more */
        return bad("a request is shorter than this version has it");
    }
    wire_request record = {.wish = get16(bytes + REQUEST_WISH)};
    if (record.wish != WIRE_OPEN) {
        return status_fail(GPUIPC_ERR_VERSION,
                           "the request wants something (%u) that this version does not know",
                           (unsigned)record.wish);
    }
    if (get(bytes + REQUEST_WISH, 8) != record.wish) {
        return bad("the reserved part of a request is not zero");
    }
    memcpy(record.ticket, bytes + REQUEST_TICKET, sizeof(record.ticket));
    *out_record = record;
    return GPUIPC_OK;
}

void wire_encode_reply(const wire_reply *record, uint8_t *out) {
    memset(out, 0, WIRE_REPLY_BYTES);
    put(out + REPLY_ANSWER, record->answer, 2);
    put(out + REPLY_ATTACHMENT, record->attachment_bytes, 4);
}

gpuipc_status wire_decode_reply(const uint8_t *bytes, size_t size, wire_reply *out_record) {
    if (size < WIRE_REPLY_BYTES) {
        return bad("a reply is shorter than this version has it");
    }
    const wire_reply record = {.answer = get16(bytes + REPLY_ANSWER),
                               .attachment_bytes = get32(bytes + REPLY_ATTACHMENT)};
    if (record.answer > WIRE_FAILED) {
        return status_fail(GPUIPC_ERR_VERSION,
                           "the server answers something (%u) that this version does not know",
                           (unsigned)record.answer);
    }
    if (get16(bytes + REPLY_RESERVED) != 0 || record.attachment_bytes != size - WIRE_REPLY_BYTES ||
        (record.answer != WIRE_GRANTED && record.attachment_bytes != 0)) {
        return bad("a reply has a reserved part, or an attachment of another length than it says");
    }
    *out_record = record;
    return GPUIPC_OK;
}
