/* SPDX-License-Identifier: MIT */
/** @file See incoming.h. */
#include "incoming.h"

#include <stdlib.h>
#include <string.h>

#include "transport.h"

#define OPERATION "gpuipc_connection_receive"

static gpuipc_status bad(const char *sentence) {
    return status_fail(GPUIPC_ERR_PROTOCOL, OPERATION, "%s", sentence);
}

static gpuipc_status check_limits(const wire_header *header, const context *ctx) {
    if (header->total_bytes > GPUIPC_MESSAGE_BYTES_MAX ||
        header->total_buffers > ctx->max_buffers || header->total_segments > ctx->max_handles) {
        return status_fail(
            GPUIPC_ERR_LIMIT, OPERATION,
            "a message of %u bytes, %u buffers and %u handles; this side accepts %d, "
            "%u and %u",
            header->total_bytes, header->total_buffers, header->total_segments,
            GPUIPC_MESSAGE_BYTES_MAX, ctx->max_buffers, ctx->max_handles);
    }
    return GPUIPC_OK;
}

/* Room for the whole message, whose size is within limits. At least one element each, so that NULL
 * means "no memory". */
static gpuipc_status start(incoming *self, const wire_header *header, const context *ctx) {
    gpuipc_status status = check_limits(header, ctx);
    if (status != GPUIPC_OK) {
        return status;
    }
    self->bytes = malloc((size_t)header->total_bytes + 1);
    self->buffers = calloc((size_t)header->total_buffers + 1, sizeof(*self->buffers));
    self->segments = calloc((size_t)header->total_segments + 1, sizeof(*self->segments));
    if (self->bytes == NULL || self->buffers == NULL || self->segments == NULL) {
        free(self->bytes);
        free(self->buffers);
        free(self->segments);
        *self = (incoming){0};
        return status_out_of_memory(OPERATION, header->total_bytes);
    }
    self->header = *header;
    self->started = true;
    return GPUIPC_OK;
}

/* Does this packet belong to the message, and does what it carries still fit? */
static gpuipc_status check_packet(const incoming *self, const wire_header *header) {
    const wire_header *first = &self->header;
    if (header->kind != first->kind || header->number != first->number ||
        header->total_bytes != first->total_bytes ||
        header->total_buffers != first->total_buffers ||
        header->total_segments != first->total_segments) {
        return bad("a packet of another message came before the last one was whole");
    }
    if (header->bytes > first->total_bytes - self->byte_count ||
        header->buffers > first->total_buffers - self->buffer_count ||
        header->segments > first->total_segments - self->segment_count) {
        return bad("the packets carry more than their message has");
    }
    bool is_empty =
        first->total_bytes == 0 && first->total_buffers == 0 && first->total_segments == 0;
    if (!is_empty && header->bytes == 0 && header->buffers == 0 && header->segments == 0) {
        return bad("a packet carries nothing");
    }
    return GPUIPC_OK;
}

/* The buffer that the next segment is of: its record has come before. */
static gpuipc_status next_buffer(incoming *self, wire_buffer **out_buffer) {
    while (self->segment_buffer < self->buffer_count &&
           self->segment_index == self->buffers[self->segment_buffer].segment_count) {
        self->segment_buffer++;
        self->segment_index = 0;
    }
    if (self->segment_buffer == self->buffer_count) {
        return bad("a segment came before the record of its buffer");
    }
    *out_buffer = &self->buffers[self->segment_buffer];
    return GPUIPC_OK;
}

/* Memory that cannot be taken in costs the message, not the connection: it is remembered, and the rest
 * of the message is still read. A segment that is named in another way than its kind of memory has it
 * breaks the rules. */
static gpuipc_status import_segment(incoming *self, sender *from, const wire_segment *record,
                                    os_handle *handle, bool keep_handle) {
    segment opened = SEGMENT_NONE;
    wire_buffer *of = NULL;
    gpuipc_status status = next_buffer(self, &of);
    if (status != GPUIPC_OK) {
        return status;
    }
    const transport *carrier = transport_of_memory(of->memory);
    if (record->naming != carrier->naming &&
        !(carrier->naming == WIRE_NAMED_BY_BOTH && record->naming == WIRE_NAMED_BY_NAME)) {
        return bad("a segment is not named as its kind of memory is");
    }
    from->record = of;
    status = carrier->import_segment(from, record, handle, keep_handle, &opened);
    if (status != GPUIPC_OK && self->failure.status == GPUIPC_OK) {
        self->failure = status_save();
    }
    self->segments[self->segment_count++] = opened;
    self->segment_index++;
    return GPUIPC_OK;
}

static gpuipc_status take(incoming *self, sender *from, const wire_packet *packet,
                          os_handle *handles, bool keep_handles) {
    const wire_header *header = &packet->header;
    gpuipc_status status;
    os_handle none = OS_HANDLE_NONE;
    size_t named = 0; /* handles, which wire_decode_packet() has counted */
    memcpy(self->bytes + self->byte_count, packet->bytes, header->bytes);
    self->byte_count += header->bytes;
    for (uint32_t i = 0; i < header->buffers; i++) {
        status = wire_decode_buffer(packet, i, &self->buffers[self->buffer_count]);
        if (status != GPUIPC_OK) {
            return status;
        }
        if ((int)self->buffers[self->buffer_count].handle_type != os_shareable_handle_type) {
            return bad("a buffer has handles of another operating system");
        }
        self->buffer_count++;
    }
    for (uint32_t i = 0; i < header->segments; i++) {
        wire_segment record;
        status = wire_decode_segment(packet, i, &record);
        if (status == GPUIPC_OK) {
            os_handle *handle = record.naming == WIRE_NAMED_BY_NAME ? &none : &handles[named++];
            status = import_segment(self, from, &record, handle, keep_handles);
        }
        if (status != GPUIPC_OK) {
            return status;
        }
    }
    return GPUIPC_OK;
}

/* All of it has come: the buffers must use up the segments. */
static gpuipc_status finish(incoming *self) {
    const wire_header *total = &self->header;
    uint64_t segments = 0;
    if (self->byte_count < total->total_bytes || self->buffer_count < total->total_buffers ||
        self->segment_count < total->total_segments) {
        return GPUIPC_OK;
    }
    for (uint32_t i = 0; i < self->buffer_count; i++) {
        segments += self->buffers[i].segment_count;
    }
    if (segments != self->segment_count) {
        return bad("the buffers of a message do not use its segments up");
    }
    self->complete = true;
    return GPUIPC_OK;
}

static gpuipc_status add(incoming *self, sender *from, uint64_t number, const uint8_t *packet_bytes,
                         size_t size, os_handle *handles, size_t handle_count, bool keep_handles) {
    wire_packet packet;
    gpuipc_status status = wire_decode_packet(packet_bytes, size, handle_count, &packet);
    if (status != GPUIPC_OK) {
        return status;
    }
    if (!self->started) {
        if (packet.header.number != number) {
            return bad("a message is missing or came twice");
        }
        status = start(self, &packet.header, from->context);
        if (status != GPUIPC_OK) {
            return status;
        }
    }
    if ((status = check_packet(self, &packet.header)) != GPUIPC_OK ||
        (status = take(self, from, &packet, handles, keep_handles)) != GPUIPC_OK) {
        return status;
    }
    return finish(self);
}

gpuipc_status incoming_add(incoming *self, sender *from, uint64_t number, const uint8_t *packet,
                           size_t size, os_handle *handles, size_t handle_count,
                           bool keep_handles) {
    gpuipc_status status =
        add(self, from, number, packet, size, handles, handle_count, keep_handles);
    for (size_t i = 0; i < handle_count; i++) {
        os_handle_close(&handles[i]);
    }
    return status;
}

const transport *incoming_transport(const incoming *self, uint32_t index) {
    return transport_of_memory(self->buffers[index].memory);
}

void incoming_clear(incoming *self, context *ctx, bool forked) {
    uint32_t of = 0;
    uint32_t left = self->segment_count == 0 ? 0 : self->buffers[0].segment_count;
    for (uint32_t i = 0; i < self->segment_count; i++, left--) {
        while (left == 0) {
            left = self->buffers[++of].segment_count;
        }
        incoming_transport(self, of)->release_segment(ctx, &self->segments[i], forked);
    }
    free(self->segments);
    free(self->buffers);
    free(self->bytes);
    *self = (incoming){0};
}
