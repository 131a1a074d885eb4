/* SPDX-License-Identifier: MIT */
/** @file See incoming.h. */
#include "incoming.h"

#include <stdlib.h>
#include <string.h>

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

/* A handle that is no GPU memory costs the message, not the connection: it is remembered, and the
 * rest of the message is still read. */
static void import_segment(incoming *self, const driver *drv, uint64_t bytes, os_handle *handle,
                           bool keep_handle) {
    segment opened = SEGMENT_NONE;
    gpuipc_status status = drv->has_vmm
                               ? segment_import(drv, handle->value, bytes, &opened)
                               : status_fail(GPUIPC_ERR_VMM_UNSUPPORTED, OPERATION,
                                             "the driver has no virtual memory management calls");
    if (status == GPUIPC_OK && keep_handle) {
        opened.kept = *handle;
        *handle = OS_HANDLE_NONE;
    } else if (status != GPUIPC_OK && self->failure.status == GPUIPC_OK) {
        self->failure = status_save();
    }
    self->segments[self->segment_count++] = opened;
}

static gpuipc_status take(incoming *self, const context *ctx, const wire_packet *packet,
                          os_handle *handles, bool keep_handles) {
    const wire_header *header = &packet->header;
    gpuipc_status status;
    memcpy(self->bytes + self->byte_count, packet->bytes, header->bytes);
    self->byte_count += header->bytes;
    for (uint32_t i = 0; i < header->buffers; i++) {
        status = wire_decode_buffer(packet, i, &self->buffers[self->buffer_count]);
        if (status != GPUIPC_OK) {
            return status;
        }
        self->buffer_count++;
    }
    for (uint32_t i = 0; i < header->segments; i++) {
        wire_segment record;
        status = wire_decode_segment(packet, i, &record);
        if (status != GPUIPC_OK) {
            return status;
        }
        import_segment(self, &ctx->driver, record.bytes, &handles[i], keep_handles);
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
        if ((int)self->buffers[i].handle_type != os_shareable_handle_type) {
            return bad("a buffer has handles of another operating system");
        }
    }
    if (segments != self->segment_count) {
        return bad("the buffers of a message do not use its segments up");
    }
    self->complete = true;
    return GPUIPC_OK;
}

static gpuipc_status add(incoming *self, const context *ctx, uint64_t number,
                         const uint8_t *packet_bytes, size_t size, os_handle *handles,
                         size_t handle_count, bool keep_handles) {
    wire_packet packet;
    gpuipc_status status = wire_decode_packet(packet_bytes, size, handle_count, &packet);
    if (status != GPUIPC_OK) {
        return status;
    }
    if (!self->started) {
        if (packet.header.number != number) {
            return bad("a message is missing or came twice");
        }
        status = start(self, &packet.header, ctx);
        if (status != GPUIPC_OK) {
            return status;
        }
    }
    if ((status = check_packet(self, &packet.header)) != GPUIPC_OK ||
        (status = take(self, ctx, &packet, handles, keep_handles)) != GPUIPC_OK) {
        return status;
    }
    return finish(self);
}

gpuipc_status incoming_add(incoming *self, const context *ctx, uint64_t number,
                           const uint8_t *packet, size_t size, os_handle *handles,
                           size_t handle_count, bool keep_handles) {
    gpuipc_status status =
        add(self, ctx, number, packet, size, handles, handle_count, keep_handles);
    for (size_t i = 0; i < handle_count; i++) {
        os_handle_close(&handles[i]);
    }
    return status;
}

void incoming_clear(incoming *self, const driver *drv, bool forked) {
    for (uint32_t i = 0; i < self->segment_count; i++) {
        segment_release(drv, &self->segments[i], forked);
    }
    free(self->segments);
    free(self->buffers);
    free(self->bytes);
    *self = (incoming){0};
}
