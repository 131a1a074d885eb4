/* SPDX-License-Identifier: MIT */
/**
 * @file The bytes between two processes: docs/wire-format.md. Little-endian on every machine, encoded
 * and decoded field by field; no struct is ever cast to or from bytes.
 */
#ifndef GPUIPC_WIRE_H
#define GPUIPC_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "memory/segment_record.h"

#define WIRE_MAJOR          2
#define WIRE_MINOR          0
#define WIRE_HEADER_BYTES   48
#define WIRE_BUFFER_BYTES   96
#define WIRE_SEGMENT_BYTES  80
#define WIRE_CONTENTS_BYTES 32
#define WIRE_REQUEST_BYTES  72
#define WIRE_REPLY_BYTES    8

/** What a packet is. */
typedef enum wire_kind {
    WIRE_MESSAGE = 1,  /**< part of a message */
    WIRE_CONTENTS = 2, /**< likewise, but its buffer is only the way for the contents of another */
    WIRE_POINTS = 3,   /**< one handle: a page of the sender's ready and done points */
    WIRE_RING = 4,     /**< one handle: the page with the words of the sender's ring */
    WIRE_REQUEST = 5,  /**< like a message, without buffers: to a server */
    WIRE_REPLY = 6,    /**< like a message, with one buffer or none: from a server */
    WIRE_CHANNEL =
        7 /**< one handle: the page of a reader of a channel, whose slots the next reply has */
} wire_kind;

/** When the contents are valid. */
typedef enum wire_ready {
    WIRE_READY_NOW = 0, /**< before the record left */
    WIRE_READY_WORD = 1 /**< when the word of its point has the point's value */
} wire_ready;

/** Head of a packet: what the whole message has, and how much of it this packet carries. */
typedef struct wire_header {
    wire_kind kind;  /**< with WIRE_POINTS and WIRE_RING all that follows is 0 */
    uint64_t number; /**< of the message in this direction, from 0 */
    uint32_t total_bytes;
    uint32_t total_buffers;
    uint32_t total_segments;
    uint32_t bytes;
    uint16_t buffers;
    uint16_t segments; /**< as many handles come with the packet as these name */
} wire_header;

/** One buffer of a message. Its segments are the next segment_count of the message. */
typedef struct wire_buffer {
    uint8_t exporter_id[16];
    uint64_t buffer_id;
    uint8_t device_uuid[16];
    uint64_t offset;
    uint64_t bytes;
    uint32_t segment_count;
    uint16_t memory;      /**< segment_memory */
    uint16_t handle_type; /**< CUmemAllocationHandleType */
    uint16_t access;      /**< gpuipc_access, the most that the receiver may do */
    uint16_t ready;       /**< wire_ready */
    uint32_t point_index; /**< 1 + which point of the sender's pages is its own; 0: none */
    uint64_t point_value; /**< what the words of that point reach, ready and then done */
} wire_buffer;

/** The bytes of a message of the kind WIRE_CONTENTS: how contents come. */
typedef struct wire_contents {
    uint16_t
        memory; /**< segment_memory: HOST, through the ring; else out of the message's one buffer */
    uint64_t offset; /**< of the range in that buffer; 0 with HOST */
    uint64_t bytes;  /**< of the range, above 0 */
    uint64_t number; /**< of its first piece in the ring; 0 without HOST */
} wire_contents;

/** What a request wants. */
typedef enum wire_wish {
    WIRE_OPEN = 1,      /**< the range that a ticket stands for */
    WIRE_CONFIRM = 2,   /**< nothing: what a one-shot ticket gave is open, and there is no reply */
    WIRE_SUBSCRIBE = 3, /**< the channel that a ticket stands for */
    WIRE_NAME = 4       /**< the ticket of the channel of a name, which stands in its place */
} wire_wish;

/** What a server answers. */
typedef enum wire_answer {
    WIRE_GRANTED = 0, /**< one buffer comes with it, the range; of a name: the ticket is attached */
    WIRE_EXPIRED = 1,
    WIRE_REVOKED = 2,
    WIRE_USED_UP = 3,
    WIRE_UNKNOWN = 4,      /**< no such share, or another secret */
    WIRE_OUT_OF_RANGE = 5, /**< the ticket's range is not in the share's */
    WIRE_BUSY = 6,         /**< wire_busy; also unasked, before the server closes */
    WIRE_FAILED = 7,       /**< the server could not: its own log says why */
    WIRE_OTHER = 8,    /**< it is a channel's and a buffer was asked for, or the other way round */
    WIRE_FULL = 9,     /**< the channel has as many readers as it may */
    WIRE_TOO_MANY = 10 /**< the reader wants to hold more frames than the channel lets it */
} wire_answer;

/** In the flags of a reply with WIRE_BUSY: what there is no more of. */
typedef enum wire_busy {
    WIRE_BUSY_OPEN = 0,   /**< the process, or its user, has as much open as it may */
    WIRE_BUSY_POLICY = 1, /**< the server's policy refuses the process */
    WIRE_BUSY_USER = 2,   /**< connections of one user; with their limit, as the next two */
    WIRE_BUSY_ALL = 3,    /**< connections of all users */
    WIRE_BUSY_HANDLES =
        4, /**< the user's part, or the process's, of the handles that the system lets the server have */
    WIRE_BUSY_LATER =
        5 /**< time for long replies to the user's processes; the limit: ask again after so many milliseconds */
} wire_busy;

/** The bytes of a message of the kind WIRE_REQUEST. */
typedef struct wire_request {
    uint16_t wish;      /**< wire_wish */
    uint8_t delivery;   /**< gpuipc_delivery, and the next two: of a subscription; else 0 */
    uint8_t first;      /**< gpuipc_first */
    uint32_t held;      /**< the most frames that it has at a time */
    uint8_t ticket[64]; /**< or a name, filled up with zeroes */
} wire_request;

/** The bytes of a message of the kind WIRE_REPLY begin with it; the attachment follows. */
typedef struct wire_reply {
    uint16_t answer;           /**< wire_answer */
    uint16_t flags;            /**< WIRE_REPLY_*; with WIRE_BUSY: wire_busy */
    uint32_t attachment_bytes; /**< with WIRE_BUSY: the limit, or 0 */
} wire_reply;

/** The share is one-shot: who has it open says so (WIRE_CONFIRM), and does not get it again. */
#define WIRE_REPLY_ONE_SHOT 0x1u
/** What is attached to the share is not sent, since the range is not all of it. */
#define WIRE_REPLY_WITHHELD 0x2u

/** A decoded packet; the pointers are into the packet's bytes. */
typedef struct wire_packet {
    wire_header header;
    const uint8_t *bytes;
    const uint8_t *buffers;
    const uint8_t *segments;
    uint32_t buffer_record_bytes;  /**< at least WIRE_BUFFER_BYTES: a newer minor may have longer */
    uint32_t segment_record_bytes; /**< at least WIRE_SEGMENT_BYTES */
} wire_packet;

/** Whether a packet of this kind is one handle, a page's, and nothing else. */
bool wire_is_page(wire_kind kind);

/** Length of a packet with this header. */
size_t wire_packet_bytes(const wire_header *header);

void wire_encode_header(const wire_header *record, uint8_t *at);
void wire_encode_buffer(const wire_buffer *record, uint8_t *at);
void wire_encode_segment(const segment_record *record, uint8_t *at);

/** Checks a packet whole. @param handle_count how many handles came with it
 *  ERR_PROTOCOL, ERR_VERSION, ERR_HANDLE_COUNT */
gpuipc_status wire_decode_packet(const uint8_t *packet, size_t size, size_t handle_count,
                                 wire_packet *out_packet);
/** Record @p index of a decoded packet. ERR_PROTOCOL, ERR_VERSION (memory or ready of a kind this
 *  version does not know) */
gpuipc_status wire_decode_buffer(const wire_packet *packet, uint32_t index,
                                 wire_buffer *out_record);
gpuipc_status wire_decode_segment(const wire_packet *packet, uint32_t index,
                                  segment_record *out_record);

/** @param at WIRE_CONTENTS_BYTES of room */
void wire_encode_contents(const wire_contents *record, uint8_t *at);
/** ERR_PROTOCOL, ERR_VERSION */
gpuipc_status wire_decode_contents(const uint8_t *at, size_t size, wire_contents *out_record);

/** @param at WIRE_REQUEST_BYTES of room */
void wire_encode_request(const wire_request *record, uint8_t *at);
/** ERR_PROTOCOL, ERR_VERSION (a wish that this version does not know) */
gpuipc_status wire_decode_request(const uint8_t *at, size_t size, wire_request *out_record);
/** @param at WIRE_REPLY_BYTES of room */
void wire_encode_reply(const wire_reply *record, uint8_t *at);
/** @param size of all bytes: the attachment uses up what is behind the record
 *  ERR_PROTOCOL, ERR_VERSION */
gpuipc_status wire_decode_reply(const uint8_t *at, size_t size, wire_reply *out_record);

#endif
