/* SPDX-License-Identifier: MIT */
/** @file See wire.h. */
#include "message/wire.h"

#include <stdbool.h>
#include <string.h>

#include <gpuipc/gpuipc.h>

#include "base/little_endian.h"

static const uint8_t magic[4] = {'G', 'I', 'P', 'C'};

/* The fields of the records; docs/wire-format.md has the tables. */
/* clang-format off */
#define HEADER_FIELDS(NUMBER, BYTES) \
    NUMBER(12, 16, kind) \
    NUMBER(16, 64, number) \
    NUMBER(24, 32, total_bytes) \
    NUMBER(28, 32, total_buffers) \
    NUMBER(32, 32, total_segments) \
    NUMBER(36, 32, bytes) \
    NUMBER(40, 16, buffers) \
    NUMBER(42, 16, segments)

#define BUFFER_FIELDS(NUMBER, BYTES) \
    BYTES(0, exporter_id) \
    NUMBER(16, 64, buffer_id) \
    BYTES(32, device_uuid) \
    NUMBER(48, 64, offset) \
    NUMBER(56, 64, bytes) \
    NUMBER(64, 32, segment_count) \
    NUMBER(68, 16, memory) \
    NUMBER(70, 16, handle_type) \
    NUMBER(72, 16, access) \
    NUMBER(74, 16, ready) \
    NUMBER(76, 32, point_index) \
    NUMBER(80, 64, point_value)

#define SEGMENT_FIELDS(NUMBER, BYTES) \
    NUMBER(0, 64, bytes) \
    NUMBER(8, 16, naming) \
    NUMBER(12, 32, group) \
    BYTES(16, name)

#define CONTENTS_FIELDS(NUMBER, BYTES) \
    NUMBER(0, 16, memory) \
    NUMBER(8, 64, offset) \
    NUMBER(16, 64, bytes) \
    NUMBER(24, 64, number)

#define REQUEST_FIELDS(NUMBER, BYTES) \
    NUMBER(0, 16, wish) \
    NUMBER(2, 8, delivery) \
    NUMBER(3, 8, first) \
    NUMBER(4, 32, held) \
    BYTES(8, ticket)

#define REPLY_FIELDS(NUMBER, BYTES) \
    NUMBER(0, 16, answer) \
    NUMBER(2, 16, flags) \
    NUMBER(4, 32, attachment_bytes)
/* clang-format on */

/* Where else something is: in the header what describes the format itself, and of the records what is zero. */
enum {
    HEADER_MAGIC = 0,
    HEADER_MAJOR = 4,
    HEADER_MINOR = 6,
    HEADER_LENGTH = 8,
    HEADER_FLAGS = 14,
    HEADER_BUFFER_RECORD = 44,
    HEADER_SEGMENT_RECORD = 46,
    BUFFER_RESERVED = 88,
    SEGMENT_NAMING = 8,
    SEGMENT_RESERVED = 10
};

static uint16_t get16(const uint8_t *at) {
    return (uint16_t)little_endian_get(at, 2);
}

size_t wire_packet_bytes(const wire_header *header) {
    return WIRE_HEADER_BYTES + (size_t)header->bytes + (size_t)header->buffers * WIRE_BUFFER_BYTES +
           (size_t)header->segments * WIRE_SEGMENT_BYTES;
}

void wire_encode_header(const wire_header *record, uint8_t *at) {
    memset(at, 0, WIRE_HEADER_BYTES);
    memcpy(at + HEADER_MAGIC, magic, sizeof(magic));
    little_endian_put(at + HEADER_MAJOR, 2, WIRE_MAJOR);
    little_endian_put(at + HEADER_MINOR, 2, WIRE_MINOR);
    little_endian_put(at + HEADER_LENGTH, 4, wire_packet_bytes(record));
    FIELDS_PUT(HEADER_FIELDS)
    little_endian_put(at + HEADER_BUFFER_RECORD, 2, WIRE_BUFFER_BYTES);
    little_endian_put(at + HEADER_SEGMENT_RECORD, 2, WIRE_SEGMENT_BYTES);
}

void wire_encode_buffer(const wire_buffer *record, uint8_t *at) {
    memset(at, 0, WIRE_BUFFER_BYTES);
    FIELDS_PUT(BUFFER_FIELDS)
}

void wire_encode_segment(const segment_record *record, uint8_t *at) {
    memset(at, 0, WIRE_SEGMENT_BYTES);
    FIELDS_PUT(SEGMENT_FIELDS)
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

static gpuipc_status decode_header(const uint8_t *at, size_t size, wire_packet *out) {
    wire_header *record = &out->header;
    gpuipc_status status = check_version(at, size);
    if (status != GPUIPC_OK) {
        return status;
    }
    if (size < WIRE_HEADER_BYTES || little_endian_get(at + HEADER_LENGTH, 4) != size) {
        return bad("the packet has not the length it says");
    }
    FIELDS_GET(HEADER_FIELDS)
    if (record->kind < WIRE_MESSAGE || record->kind > WIRE_CHANNEL ||
        get16(at + HEADER_FLAGS) != 0) {
        return bad("the packet is of a kind that this version does not know");
    }
    out->buffer_record_bytes = get16(at + HEADER_BUFFER_RECORD);
    out->segment_record_bytes = get16(at + HEADER_SEGMENT_RECORD);
    if (out->buffer_record_bytes < WIRE_BUFFER_BYTES ||
        out->segment_record_bytes < WIRE_SEGMENT_BYTES) {
        return bad("the records are shorter than this version has them");
    }
    return GPUIPC_OK;
}

bool wire_is_page(wire_kind kind) {
    return kind == WIRE_POINTS || kind == WIRE_RING || kind == WIRE_CHANNEL;
}

/* How many handles a packet names: with one of points or words its page's, else one for each segment
 * that has not only a name. */
static size_t count_handles(const wire_packet *packet) {
    size_t count = wire_is_page(packet->header.kind) ? 1 : 0;
    for (uint32_t i = 0; i < packet->header.segments; i++) {
        const uint8_t *at = packet->segments + (size_t)i * packet->segment_record_bytes;
        count += get16(at + SEGMENT_NAMING) != SEGMENT_NAMED_BY_NAME;
    }
    return count;
}

/* What a kind has, beside what all have. */
static gpuipc_status check_kind(const wire_header *header) {
    if (wire_is_page(header->kind) && (header->number != 0 || header->total_bytes != 0 ||
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
        record->ready > WIRE_READY_WORD) {
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
    wire_buffer decoded;
    wire_buffer *record = &decoded;
    FIELDS_GET(BUFFER_FIELDS)
    if (little_endian_get(at + BUFFER_RESERVED, 8) != 0) {
        return bad("the reserved part of a buffer record is not zero");
    }
    gpuipc_status status = check_buffer(record);
    if (status == GPUIPC_OK) {
        *out_record = decoded;
    }
    return status;
}

gpuipc_status wire_decode_segment(const wire_packet *packet, uint32_t index,
                                  segment_record *out_record) {
    const uint8_t *at = packet->segments + (size_t)index * packet->segment_record_bytes;
    segment_record decoded;
    segment_record *record = &decoded;
    FIELDS_GET(SEGMENT_FIELDS)
    if (get16(at + SEGMENT_RESERVED) != 0 || record->naming > SEGMENT_NAMED_BY_BOTH) {
        return bad("a segment record is named in a way that this version does not know");
    }
    *out_record = decoded;
    return GPUIPC_OK;
}

void wire_encode_contents(const wire_contents *record, uint8_t *at) {
    memset(at, 0, WIRE_CONTENTS_BYTES);
    FIELDS_PUT(CONTENTS_FIELDS)
}

gpuipc_status wire_decode_contents(const uint8_t *at, size_t size, wire_contents *out_record) {
    wire_contents decoded;
    wire_contents *record = &decoded;
    if (size < WIRE_CONTENTS_BYTES) { /* a later minor version may have more */
        return bad("the contents do not say how they come");
    }
    FIELDS_GET(CONTENTS_FIELDS)
    if (record->memory < SEGMENT_MEMORY_VMM || record->memory > SEGMENT_MEMORY_FABRIC) {
        return status_fail(GPUIPC_ERR_VERSION,
                           "the contents come in a way (%u) that this version does not know",
                           (unsigned)record->memory);
    }
    if (little_endian_get(at, 8) != record->memory || record->bytes == 0 ||
        record->bytes > UINT64_MAX - record->offset ||
        (record->memory == SEGMENT_MEMORY_HOST ? record->offset : record->number) != 0) {
        return bad("the contents are empty, reach beyond 64 bits, or have a reserved part");
    }
    *out_record = decoded;
    return GPUIPC_OK;
}

void wire_encode_request(const wire_request *record, uint8_t *at) {
    memset(at, 0, WIRE_REQUEST_BYTES);
    FIELDS_PUT(REQUEST_FIELDS)
}

gpuipc_status wire_decode_request(const uint8_t *at, size_t size, wire_request *out_record) {
    wire_request decoded;
    wire_request *record = &decoded;
    if (size < WIRE_REQUEST_BYTES) { /* a later minor version may have more */
        return bad("a request is shorter than this version has it");
    }
    FIELDS_GET(REQUEST_FIELDS)
    if (record->wish < WIRE_OPEN || record->wish > WIRE_NAME) {
        return status_fail(GPUIPC_ERR_VERSION,
                           "the request wants something (%u) that this version does not know",
                           (unsigned)record->wish);
    }
    if (record->wish != WIRE_SUBSCRIBE && little_endian_get(at, 8) != record->wish) {
        return bad("the reserved part of a request is not zero");
    }
    if (record->delivery > GPUIPC_DELIVERY_NEWEST || record->first > GPUIPC_FIRST_OLDEST) {
        return bad("a reader wants frames in a way that there is not");
    }
    *out_record = decoded;
    return GPUIPC_OK;
}

void wire_encode_reply(const wire_reply *record, uint8_t *at) {
    memset(at, 0, WIRE_REPLY_BYTES);
    FIELDS_PUT(REPLY_FIELDS)
}

gpuipc_status wire_decode_reply(const uint8_t *at, size_t size, wire_reply *out_record) {
    wire_reply decoded;
    wire_reply *record = &decoded;
    if (size < WIRE_REPLY_BYTES) {
        return bad("a reply is shorter than this version has it");
    }
    FIELDS_GET(REPLY_FIELDS)
    if (record->answer > WIRE_TOO_MANY) {
        return status_fail(GPUIPC_ERR_VERSION,
                           "the server answers something (%u) that this version does not know",
                           (unsigned)record->answer);
    }
    if (record->answer == WIRE_BUSY && size == WIRE_REPLY_BYTES) {
        *out_record = decoded;
        return GPUIPC_OK;
    }
    const bool is_granted = record->answer == WIRE_GRANTED;
    const uint16_t flags = is_granted ? WIRE_REPLY_ONE_SHOT | WIRE_REPLY_WITHHELD : 0;
    const bool may_attach = is_granted && (record->flags & WIRE_REPLY_WITHHELD) == 0;
    if ((record->flags & ~flags) != 0 || record->attachment_bytes != size - WIRE_REPLY_BYTES ||
        (!may_attach && record->attachment_bytes != 0)) {
        return bad("a reply has flags that mean nothing, or an attachment of another length than "
                   "it says");
    }
    *out_record = decoded;
    return GPUIPC_OK;
}
