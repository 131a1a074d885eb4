/* SPDX-License-Identifier: MIT */
/**
 * @file The packet's codec for Frama-C's WP: whatever the bytes of a packet and however many, nothing is read outside of
 * them, and nothing overflows. ci/prove runs it; it is never compiled.
 *
 * Each function of wire.c has its contract here, and is proven with no more of the others than their contracts. Of memcpy,
 * memcmp and memset the contracts are taken for granted. wire.c is a copy that ci/prove makes, in which take_packet()
 * stands for `*out_packet = decoded;`. A loop gets its invariant from the macro `for`.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/status.h"
#include "message/wire.h"

/* clang-format off */
/* The C library's, of bytes alone, which is what wire.c has. */
/*@ requires \valid_read(from + (0 .. count - 1));
    requires \valid(to + (0 .. count - 1));
    requires \separated(to + (0 .. count - 1), from + (0 .. count - 1));
    assigns to[0 .. count - 1]; */
void copy(uint8_t *to, const uint8_t *from, size_t count);
/*@ requires \valid(to + (0 .. count - 1));
    assigns to[0 .. count - 1]; */
void fill(uint8_t *to, int value, size_t count);
/*@ requires \valid_read(one + (0 .. count - 1));
    requires \valid_read(other + (0 .. count - 1));
    assigns \nothing; */
int compare(const uint8_t *one, const uint8_t *other, size_t count);
#define memcpy copy
#define memset fill
#define memcmp compare

/* The record of an error is no part of what is proven; what is told there is. */
#define status_fail(status, ...) (__VA_ARGS__, (status))

/* The loops in the order of the files. */
#define LOOP_OF(number) LOOP_##number
#define LOOP(number) LOOP_OF(number)
#define for LOOP(__COUNTER__) for
#define LOOP_0 /*@ loop invariant i <= bytes; loop assigns i, at[0 .. bytes - 1]; loop variant bytes - i; */
#define LOOP_1 /*@ loop invariant i <= bytes; loop assigns i, value; loop variant bytes - i; */
#define LOOP_2 /*@ loop invariant i <= packet->header.segments && count <= i + 1; loop invariant i < packet->header.segments ==> readable_record(packet->segments, i, packet->segment_record_bytes); loop assigns i, count; loop variant packet->header.segments - i; */

/*@ requires bytes <= 8;
    requires \valid(at + (0 .. bytes - 1));
    assigns at[0 .. bytes - 1]; */
static inline void little_endian_put(uint8_t *at, unsigned bytes, uint64_t value);
/*@ requires bytes <= 8;
    requires \valid_read(at + (0 .. bytes - 1));
    assigns \nothing; */
static inline uint64_t little_endian_get(const uint8_t *at, unsigned bytes);
#include "base/little_endian.h"

#define LENGTHS(p) ((p)->buffer_record_bytes >= WIRE_BUFFER_BYTES && (p)->buffer_record_bytes <= UINT16_MAX && \
      (p)->segment_record_bytes >= WIRE_SEGMENT_BYTES && (p)->segment_record_bytes <= UINT16_MAX)
#define BUFFERS_READABLE(p) readable_records((p)->buffers, (p)->header.buffers, (p)->buffer_record_bytes)
#define SEGMENTS_READABLE(p) readable_records((p)->segments, (p)->header.segments, (p)->segment_record_bytes)
/* The product is of two numbers of the peer's; that one record lies in all of them is proven once, in steps that have it
 * out of the prover's sight. */
/*@ predicate readable_record(uint8_t *at, integer i, integer bytes) =
      \valid_read(at + (i * bytes .. i * bytes + bytes - 1));
    predicate readable_records(uint8_t *at, integer n, integer bytes) =
      \valid_read(at + (0 .. n * bytes - 1));
    predicate within(integer i, integer n, integer bytes) = 0 <= i * bytes && i * bytes + bytes <= n * bytes;
    lemma is_within: \forall integer i, n, bytes; 0 <= i < n && 0 <= bytes ==> within(i, n, bytes);
    lemma within_is_readable: \forall uint8_t *at, integer i, n, bytes; within(i, n, bytes) &&
      readable_records(at, n, bytes) ==> readable_record(at, i, bytes);
    lemma one_of_them: \forall uint8_t *at, integer i, n, bytes; 0 <= i < n && 0 <= bytes &&
      readable_records(at, n, bytes) ==> readable_record(at, i, bytes); */

/*@ requires \valid_read(at + (0 .. 1)); assigns \nothing; */
static uint16_t get16(const uint8_t *at);
/*@ assigns \nothing; ensures \result == GPUIPC_ERR_PROTOCOL; */
static gpuipc_status bad(const char *sentence);
/*@ assigns \nothing; */
bool wire_is_page(wire_kind kind);
/*@ requires \valid_read(packet + (0 .. size - 1));
    assigns \nothing;
    ensures \result == GPUIPC_OK ==> size >= 8; */
static gpuipc_status check_version(const uint8_t *packet, size_t size);
/*@ requires \valid_read(at + (0 .. size - 1));
    requires \valid(out) && \separated(out, at + (0 .. size - 1));
    assigns out->header.kind, out->header.number, out->header.total_bytes, out->header.total_buffers,
      out->header.total_segments, out->header.bytes, out->header.buffers, out->header.segments, out->buffer_record_bytes, out->segment_record_bytes;
    ensures \result == GPUIPC_OK ==> LENGTHS(out) && size >= WIRE_HEADER_BYTES; */
static gpuipc_status decode_header(const uint8_t *at, size_t size, wire_packet *out);
/*@ requires \valid_read(packet) && LENGTHS(packet) && BUFFERS_READABLE(packet) && SEGMENTS_READABLE(packet);
    assigns \nothing; */
static size_t count_handles(const wire_packet *packet);
/*@ requires \valid_read(header); assigns \nothing; */
static gpuipc_status check_kind(const wire_header *header);
/*@ requires \valid_read(packet + (0 .. size - 1));
    requires \valid(out_packet) && \separated(out_packet, packet + (0 .. size - 1));
    assigns *out_packet;
    ensures \result == GPUIPC_OK ==> LENGTHS(out_packet) && BUFFERS_READABLE(out_packet) && SEGMENTS_READABLE(out_packet); */
gpuipc_status wire_decode_packet(const uint8_t *packet, size_t size, size_t handle_count,
                                 wire_packet *out_packet);
/*@ requires \valid_read(record); assigns \nothing; */
static gpuipc_status check_buffer(const wire_buffer *record);
/*@ requires \valid_read(packet) && LENGTHS(packet) && readable_record(packet->buffers, index, packet->buffer_record_bytes);
    requires \valid(out_record);
    assigns *out_record; */
gpuipc_status wire_decode_buffer(const wire_packet *packet, uint32_t index,
                                 wire_buffer *out_record);
/*@ requires \valid_read(packet) && LENGTHS(packet) && readable_record(packet->segments, index, packet->segment_record_bytes);
    requires \valid(out_record);
    assigns *out_record; */
gpuipc_status wire_decode_segment(const wire_packet *packet, uint32_t index,
                                  segment_record *out_record);
/*@ requires \valid_read(at + (0 .. size - 1)); requires \valid(out_record); assigns *out_record; */
gpuipc_status wire_decode_contents(const uint8_t *at, size_t size, wire_contents *out_record);
/*@ requires \valid_read(at + (0 .. size - 1)); requires \valid(out_record); assigns *out_record; */
gpuipc_status wire_decode_request(const uint8_t *at, size_t size, wire_request *out_record);
/*@ requires \valid_read(at + (0 .. size - 1)); requires \valid(out_record); assigns *out_record; */
gpuipc_status wire_decode_reply(const uint8_t *at, size_t size, wire_reply *out_record);

/*@ requires \valid_read(header); assigns \nothing; */
size_t wire_packet_bytes(const wire_header *header);
/*@ requires \valid_read(record) && \valid(at + (0 .. WIRE_HEADER_BYTES - 1));
    requires \separated(record, at + (0 .. WIRE_HEADER_BYTES - 1));
    assigns at[0 .. WIRE_HEADER_BYTES - 1]; */
void wire_encode_header(const wire_header *record, uint8_t *at);
/*@ requires \valid_read(record) && \valid(at + (0 .. WIRE_BUFFER_BYTES - 1));
    requires \separated(record, at + (0 .. WIRE_BUFFER_BYTES - 1));
    assigns at[0 .. WIRE_BUFFER_BYTES - 1]; */
void wire_encode_buffer(const wire_buffer *record, uint8_t *at);
/*@ requires \valid_read(record) && \valid(at + (0 .. WIRE_SEGMENT_BYTES - 1));
    requires \separated(record, at + (0 .. WIRE_SEGMENT_BYTES - 1));
    assigns at[0 .. WIRE_SEGMENT_BYTES - 1]; */
void wire_encode_segment(const segment_record *record, uint8_t *at);
/*@ requires \valid_read(record) && \valid(at + (0 .. WIRE_CONTENTS_BYTES - 1));
    requires \separated(record, at + (0 .. WIRE_CONTENTS_BYTES - 1));
    assigns at[0 .. WIRE_CONTENTS_BYTES - 1]; */
void wire_encode_contents(const wire_contents *record, uint8_t *at);
/*@ requires \valid_read(record) && \valid(at + (0 .. WIRE_REQUEST_BYTES - 1));
    requires \separated(record, at + (0 .. WIRE_REQUEST_BYTES - 1));
    assigns at[0 .. WIRE_REQUEST_BYTES - 1]; */
void wire_encode_request(const wire_request *record, uint8_t *at);
/*@ requires \valid_read(record) && \valid(at + (0 .. WIRE_REPLY_BYTES - 1));
    requires \separated(record, at + (0 .. WIRE_REPLY_BYTES - 1));
    assigns at[0 .. WIRE_REPLY_BYTES - 1]; */
void wire_encode_reply(const wire_reply *record, uint8_t *at);

/* Alone, since no prover follows the copy among all that wire_decode_packet() knows. */
/*@ requires \valid(to) && \valid_read(from) && \separated(to, from);
    assigns *to;
    ensures to->bytes == from->bytes && to->buffers == from->buffers && to->segments == from->segments &&
      to->header.buffers == from->header.buffers && to->header.segments == from->header.segments &&
      to->buffer_record_bytes == from->buffer_record_bytes && to->segment_record_bytes == from->segment_record_bytes; */
static void take_packet(wire_packet *to, const wire_packet *from) {
    *to = *from;
}

#include "message/wire.c"

/* All that is known is that the packet's bytes can be read. */
/*@ requires \valid_read(packet + (0 .. size - 1)); assigns \nothing; */
static void reads_any_packet(const uint8_t *packet, size_t size, size_t handle_count,
                             uint32_t index) {
    wire_packet decoded;
    wire_buffer buffer;
    segment_record segment;
    if (wire_decode_packet(packet, size, handle_count, &decoded) != GPUIPC_OK) {
        return;
    }
#ifdef PLANTED
    (void)wire_decode_buffer(&decoded, decoded.header.buffers, &buffer);
#endif
    if (index < decoded.header.buffers) {
        (void)wire_decode_buffer(&decoded, index, &buffer);
    }
    if (index < decoded.header.segments) {
        (void)wire_decode_segment(&decoded, index, &segment);
    }
}
/* clang-format on */
