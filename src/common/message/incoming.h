/* SPDX-License-Identifier: MIT */
/**
 * @file A message on its way in: packets are put together until it is whole. Memory is imported as
 * its packets come, so that a message never holds more OS handles than one packet has.
 */
#ifndef GPUIPC_INCOMING_H
#define GPUIPC_INCOMING_H

#include "base/quota.h"
#include "cuda/context.h"
#include "memory/import.h"
#include "memory/import_source.h"
#include "memory/segment.h"
#include "message/wire.h"

typedef struct incoming {
    bool started;       /**< the first packet has come */
    bool complete;      /**< all of it has come, and it is consistent */
    wire_header header; /**< of the first packet; the totals are those of every packet */
    uint8_t *bytes;
    uint32_t byte_count;
    uint32_t byte_capacity; /**< room in bytes: what has come, and at most as much again */
    quota_charge charge;    /**< for that room, where it is more than 1 MiB */
    wire_buffer *buffers;
    uint32_t buffer_count;
    uint32_t recorded; /**< of the buffers, from the first on: their import records return them */
    import_memory *
        *imports; /**< for each buffer whose transport shares imports; it has the memory then */
    segment *segments; /**< what has no import; SEGMENT_NONE where there is one */
    uint32_t segment_count;
    uint32_t segment_buffer; /**< which buffer the next segment is of, */
    uint32_t segment_index;  /**< and which of its segments */
    bool segment_is_open;    /**< its memory is open here already */
    gpuipc_error failure;    /**< the first segment that could not be taken in; OK: none */
} incoming;

/** Takes in one packet of a message.
 *  @param number the message number that must come next
 *  @param packet decoded with as many handles as it names
 *  @param handles those that the message keeps become invalid; the caller closes the others
 *  ERR_PROTOCOL and its kin mean that the connection must end. */
gpuipc_status incoming_add(incoming *self, import_source *from, uint64_t number,
                           const wire_packet *packet, os_handle *handles, bool keep_handles);

/** The transport of a segment that has come. */
const struct transport *incoming_transport(const incoming *self, uint32_t buffer);

/** Frees what it holds and makes it empty. @p forked: no driver calls */
void incoming_clear(incoming *self, context *ctx, bool forked);

#endif
