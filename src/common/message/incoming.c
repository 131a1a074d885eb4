/* SPDX-License-Identifier: MIT */
/** @file See incoming.h. */
#include "message/incoming.h"

#include <stdlib.h>
#include <string.h>

#include "transport/transport.h"

static gpuipc_status bad(const char *sentence) {
    return status_fail(GPUIPC_ERR_PROTOCOL, "%s", sentence);
}

static gpuipc_status check_limits(const wire_header *header, const context *ctx) {
    if (header->total_bytes > GPUIPC_MESSAGE_BYTES_MAX ||
        header->total_buffers > ctx->config.max_buffers_per_message ||
        header->total_segments > ctx->config.max_handles_per_message) {
        return status_fail(
            GPUIPC_ERR_LIMIT,
            "a message of %u bytes, %u buffers and %u handles; this side accepts %d, "
            "%u and %u",
            header->total_bytes, header->total_buffers, header->total_segments,
            GPUIPC_MESSAGE_BYTES_MAX, ctx->config.max_buffers_per_message,
            ctx->config.max_handles_per_message);
    }
    return GPUIPC_OK;
}

/* Room for the whole message, whose size is within limits, but for its bytes: only as much as comes, so that
 * a few bytes of a peer cannot make this process keep a whole message's. The arrays lie one behind the
 * other, each as aligned as those before it. */
static gpuipc_status start(incoming *self, const wire_header *header, const context *ctx) {
    gpuipc_status status = check_limits(header, ctx);
    if (status != GPUIPC_OK) {
        return status;
    }
    const size_t segments = header->total_segments * sizeof(*self->segments);
    const size_t buffers = header->total_buffers * sizeof(*self->buffers);
    const size_t imports = header->total_buffers * sizeof(*self->imports);
    const size_t size = segments + buffers + imports;
    if (size > 0) {
        uint8_t *room = malloc(size);
        if (room == NULL) {
            return status_out_of_memory(size);
        }
        self->segments = (segment *)(void *)room;
        self->buffers = (wire_buffer *)(void *)(room + segments);
        self->imports = (import_memory **)(void *)(room + segments + buffers);
    }
    for (uint32_t i = 0; i < header->total_buffers; i++) {
        self->imports[i] = NULL;
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
    wire_buffer *of = &self->buffers[self->segment_buffer];
    if (of->segment_count - self->segment_index >
        self->header.total_segments - self->segment_count) {
        return bad("the buffers of a message do not use its segments up");
    }
    *out_buffer = of;
    return GPUIPC_OK;
}

/* What is open already must be what the message says it is. */
static gpuipc_status check_open(import_memory *open, uint32_t index, const segment_record *record) {
    uint32_t count;
    const segment *of = &import_segments(open, &count)[index];
    if (of->bytes != record->bytes || (record->naming == SEGMENT_NAMED_BY_NAME &&
                                       memcmp(of->name, record->name, sizeof(of->name)) != 0)) {
        return status_fail(GPUIPC_ERR_SIZE_MISMATCH,
                           "the buffer is open already, with another segment %u than the message "
                           "has now",
                           index);
    }
    return GPUIPC_OK;
}

/* With the first segment of a buffer: what is open of it, or room for what comes.
 * @param needs_handles what is open without them is imported again: nothing says of a handle that comes later that
 *        it is the same memory's, or any memory's, but the driver that imports it */
static gpuipc_status begin_import(const incoming *self, const import_source *from,
                                  bool needs_handles, import_memory **out_import,
                                  bool *out_is_open) {
    const wire_buffer *of = &self->buffers[self->segment_buffer];
    import_key key = {
        .connection = from->connection, .buffer_id = of->buffer_id, .memory = (uint16_t)of->memory};
    uint32_t count;
    memcpy(key.exporter_id, of->exporter_id, sizeof(key.exporter_id));
    import_memory *found = import_find(from->context, &key, needs_handles);
    if (found == NULL) {
        *out_is_open = false;
        return import_new(&key, of->segment_count,
                          !transport_of_memory(of->memory)->ends_with_owner, out_import);
    }
    (void)import_segments(found, &count);
    if (count != of->segment_count) {
        import_unreference(from->context, found, false);
        return status_fail(GPUIPC_ERR_SIZE_MISMATCH,
                           "the buffer is open already, with %u segments; the message has %u",
                           count, of->segment_count);
    }
    *out_import = found;
    *out_is_open = true;
    return GPUIPC_OK;
}

/* What this process keeps of a segment: its record, its part of the buffer's, what the driver notes. */
#define SEGMENT_MEMORY 512u

/* A segment is a mapping of the system's, now or when the buffer is opened. What a driver maps by cuMemMap is none (measured on
 * an H200, docs/measurements.md); the emulated driver has its memory from the system. */
static bool is_mapping(const import_source *from, const transport *carrier) {
    return !carrier->shares_imports || from->context->driver.is_emulated;
}

/* Charged before anything is opened or mapped. */
static gpuipc_status import_new_segment(import_source *from, const transport *carrier,
                                        const segment_record *record, os_handle *handle,
                                        bool keep_handle, segment *out_segment) {
    const quota_amount wanted = {{[QUOTA_HANDLES] = keep_handle && os_handle_is_valid(*handle),
                                  [QUOTA_MAPPINGS] = is_mapping(from, carrier),
                                  [QUOTA_ADDRESSES] = record->bytes,
                                  [QUOTA_MEMORY] = SEGMENT_MEMORY}};
    quota_charge charge = {0};
    gpuipc_status status = quota_take(from->quota, &wanted, &charge);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = carrier->import_segment(from, record, handle, keep_handle, out_segment);
    if (status == GPUIPC_OK) {
        out_segment->charge = charge;
    } else {
        quota_return(&charge);
    }
    return status;
}

/* A segment of memory that is imported once: where it is open the handle is not looked at. */
static gpuipc_status share_segment(incoming *self, import_source *from, const transport *carrier,
                                   const segment_record *record, os_handle *handle,
                                   bool keep_handle) {
    import_memory **of = &self->imports[self->segment_buffer];
    const uint32_t index = self->segment_index;
    uint32_t count;
    gpuipc_status status = GPUIPC_OK;
    if (index == 0) {
        status = begin_import(self, from, keep_handle && carrier->naming == SEGMENT_NAMED_BY_HANDLE,
                              of, &self->segment_is_open);
    }
    if (status != GPUIPC_OK) {
        return status;
    }
    if (self->segment_is_open) {
        status = check_open(*of, index, record);
    } else {
        segment *segments = import_segments(*of, &count);
        status = import_new_segment(from, carrier, record, handle, keep_handle, &segments[index]);
        if (status == GPUIPC_OK && index + 1 == count) {
            import_enter(from->context, *of);
        }
    }
    return status;
}

/* Memory that cannot be taken in costs the message, not the connection: it is remembered, and the rest
 * of the message is still read. A segment that is named in another way than its kind of memory has it
 * breaks the rules. */
static gpuipc_status import_segment(incoming *self, import_source *from,
                                    const segment_record *record, os_handle *handle,
                                    bool keep_handle) {
    segment opened = SEGMENT_NONE;
    wire_buffer *of = NULL;
    gpuipc_status status = next_buffer(self, &of);
    if (status != GPUIPC_OK) {
        return status;
    }
    const transport *carrier = transport_of_memory(of->memory);
    if (record->naming != carrier->naming &&
        !(carrier->naming == SEGMENT_NAMED_BY_BOTH && record->naming == SEGMENT_NAMED_BY_NAME)) {
        return bad("a segment is not named as its kind of memory is");
    }
    if (self->failure.status == GPUIPC_OK) {
        from->exporter_id = of->exporter_id;
        from->segment_count = of->segment_count;
        status = carrier->shares_imports
                     ? share_segment(self, from, carrier, record, handle, keep_handle)
                     : import_new_segment(from, carrier, record, handle, keep_handle, &opened);
        if (status != GPUIPC_OK) {
            self->failure = status_save();
        }
    }
    self->segments[self->segment_count++] = opened;
    self->segment_index++;
    return GPUIPC_OK;
}

/* So much room is not charged: most messages have less, and a connection has it once. */
#define FREE_BYTES (UINT32_C(1) << 20)

static uint32_t charged(uint32_t capacity) {
    return capacity > FREE_BYTES ? capacity - FREE_BYTES : 0;
}

/* The room is charged before it is allocated: a peer that does not send the rest of a message keeps it allocated. */
static gpuipc_status make_room(incoming *self, quota *of, uint32_t capacity) {
    const quota_amount more = {{[QUOTA_MEMORY] = charged(capacity) - charged(self->byte_capacity)}};
    if (more.of[QUOTA_MEMORY] > 0) {
        gpuipc_status status = quota_take(of, &more, &self->charge);
        if (status != GPUIPC_OK) {
            return status;
        }
    }
    uint8_t *bytes = realloc(self->bytes, capacity);
    if (bytes == NULL) {
        quota_return_some(&self->charge, &more);
        return status_out_of_memory(capacity);
    }
    self->bytes = bytes;
    self->byte_capacity = capacity;
    return GPUIPC_OK;
}

/* Takes the bytes of a packet, which do not pass the total. The room is doubled as long as it is too little,
 * so that each byte is moved once or twice. */
static gpuipc_status take_bytes(incoming *self, quota *of, const uint8_t *from, uint32_t count) {
    const uint32_t needed = self->byte_count + count;
    if (count == 0) {
        return GPUIPC_OK;
    }
    if (needed > self->byte_capacity) {
        uint32_t capacity = 2 * self->byte_capacity; /* below 2^32: GPUIPC_MESSAGE_BYTES_MAX */
        capacity = capacity < needed ? needed : capacity;
        capacity = capacity < self->header.total_bytes ? capacity : self->header.total_bytes;
        gpuipc_status status = make_room(self, of, capacity);
        if (status != GPUIPC_OK) {
            return status;
        }
    }
    memcpy(self->bytes + self->byte_count, from, count);
    self->byte_count = needed;
    return GPUIPC_OK;
}

static gpuipc_status take(incoming *self, import_source *from, const wire_packet *packet,
                          os_handle *handles, bool keep_handles) {
    const wire_header *header = &packet->header;
    os_handle none = OS_HANDLE_NONE;
    size_t named = 0; /* handles, which wire_decode_packet() has counted */
    gpuipc_status status = take_bytes(self, from->quota, packet->bytes, header->bytes);
    if (status != GPUIPC_OK) {
        return status;
    }
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
        segment_record record;
        status = wire_decode_segment(packet, i, &record);
        if (status == GPUIPC_OK) {
            os_handle *handle = record.naming == SEGMENT_NAMED_BY_NAME ? &none : &handles[named++];
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

gpuipc_status incoming_add(incoming *self, import_source *from, uint64_t number,
                           const wire_packet *packet, os_handle *handles, bool keep_handles) {
    gpuipc_status status = GPUIPC_OK;
    if (!self->started) {
        if (packet->header.number != number) {
            return bad("a message is missing or came twice");
        }
        status = start(self, &packet->header, from->context);
    }
    if (status != GPUIPC_OK || (status = check_packet(self, &packet->header)) != GPUIPC_OK ||
        (status = take(self, from, packet, handles, keep_handles)) != GPUIPC_OK) {
        return status;
    }
    return finish(self);
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
    for (uint32_t i = 0; i < self->buffer_count; i++) {
        import_unreference(ctx, self->imports[i], forked);
    }
    free(self->segments); /* and the arrays behind them */
    free(self->bytes);
    quota_return(&self->charge);
    *self = (incoming){0};
}
