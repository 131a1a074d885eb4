/* SPDX-License-Identifier: MIT */
/** @file Receiving a message and opening its buffers: all of them or none. */
#include <stdlib.h>
#include <string.h>

#include "base/struct_size.h"
#include "memory/buffer.h"
#include "message/connection.h"
#include "message/receipt.h"
#include "transport/transport.h"

/* A message of so many buffers needs no array of the heap's. */
#define OPENED_HERE 16u

/* After anything else part of a message may be lost, and what follows could not be understood. */
static bool ends_connection(gpuipc_status status) {
    return status != GPUIPC_ERR_TIMEOUT && status != GPUIPC_ERR_PEER_CLOSED &&
           status != GPUIPC_ERR_RELEASED;
}

/* A client of a server sends requests only: no page, no memory. Checked before any part of the packet is taken in. */
static gpuipc_status check_welcome(const connection *from, wire_kind kind) {
    if (!from->is_served || kind == WIRE_REQUEST) {
        return GPUIPC_OK;
    }
    return status_fail(GPUIPC_ERR_PROTOCOL, "a packet of kind %d came where only requests may",
                       (int)kind);
}

/* The page of a reader of a channel comes once, to who has asked for it, before the reply. */
static gpuipc_status keep_channel_page(connection *from, os_handle *handle) {
    if (!from->awaits_channel || from->in.started || os_handle_is_valid(from->channel_page)) {
        return status_fail(GPUIPC_ERR_PROTOCOL, "a page of a channel came unasked");
    }
    from->channel_page = *handle;
    *handle = OS_HANDLE_NONE;
    return GPUIPC_OK;
}

gpuipc_status connection_take_channel_page(connection *from, os_handle *out_handle) {
    if (!os_handle_is_valid(from->channel_page)) {
        return status_fail(GPUIPC_ERR_PROTOCOL, "a channel came without the page of its reader");
    }
    *out_handle = from->channel_page;
    from->channel_page = OS_HANDLE_NONE;
    return GPUIPC_OK;
}

gpuipc_status connection_take_page(connection *from, wire_kind kind, os_handle *handle) {
    gpuipc_status status;
    if (kind == WIRE_POINTS) {
        status = receipt_take_page(from, *handle);
    } else if (kind == WIRE_RING) {
        status = from->context->contents->take_words(from, *handle);
    } else {
        status = keep_channel_page(from, handle);
    }
    if (status == GPUIPC_OK && kind != WIRE_CHANNEL) {
        point_peer_keep(from->other_end, LIFELINE_RECEIVER, handle);
    }
    return status;
}

/* Takes in a packet with a page, or of a message. Handles that are not kept stay the caller's. */
static gpuipc_status take_packet(connection *from, size_t size, os_handle *handles,
                                 size_t handle_count, bool keep_handles) {
    wire_packet packet;
    const uint32_t known = from->in.buffer_count;
    gpuipc_status status = wire_decode_packet(from->packet_in, size, handle_count, &packet);
    if (status != GPUIPC_OK || (status = check_welcome(from, packet.header.kind)) != GPUIPC_OK) {
        return status;
    }
    if (wire_is_page(packet.header.kind)) {
        return connection_take_page(from, packet.header.kind, &handles[0]);
    }
    status = incoming_add(&from->in, &from->from, from->next_in, &packet, handles, keep_handles);
    for (uint32_t i = known; i < from->in.buffer_count && status == GPUIPC_OK; i++) {
        status = receipt_check(from, &from->in.buffers[i]);
    }
    return status;
}

/* Takes in one packet. */
static gpuipc_status receive_packet(connection *from, bool keep_handles, os_deadline deadline) {
    os_handle handles[OS_PACKET_HANDLES_MAX];
    size_t handle_count = 0;
    size_t size = 0;
    gpuipc_status status = os_connection_receive(from->os, from->packet_in, OS_PACKET_BYTES_MAX,
                                                 &size, handles, &handle_count, deadline);
    if (status == GPUIPC_OK) {
        status = take_packet(from, size, handles, handle_count, keep_handles);
        for (size_t i = 0; i < handle_count; i++) {
            os_handle_close(&handles[i]);
        }
    }
    return status;
}

static void end_conversation(connection *from) {
    connection_break(from);
    status_add("; the connection is broken");
}

static void give_up(connection *from) {
    gpuipc_error why = status_save();
    receipt_refuse(from);
    incoming_clear(&from->in, from->context, false);
    status_restore(&why);
}

/* Until the message is whole. What ends the connection is broken off here, once. */
static gpuipc_status receive_all(connection *from, bool keep_handles, os_deadline deadline) {
    while (!from->in.complete) {
        gpuipc_status status = connection_check(from);
        if (status != GPUIPC_OK) {
            return status;
        }
        status = connection_answer(from, receive_packet(from, keep_handles, deadline));
        if (status == GPUIPC_ERR_CONNECTION_BROKEN) {
            return status; /* the sending side broke it off */
        }
        if (status == GPUIPC_OK) {
            continue;
        }
        if (ends_connection(status)) {
            end_conversation(from);
        }
        from->is_cut = status == GPUIPC_ERR_PEER_CLOSED && from->in.started;
        if (status != GPUIPC_ERR_TIMEOUT) {
            give_up(from);
        }
        return status;
    }
    return GPUIPC_OK;
}

/* Requests and replies belong to conversations of their own. */
static bool is_of_server(wire_kind kind) {
    return kind == WIRE_REQUEST || kind == WIRE_REPLY;
}

gpuipc_status connection_receive_whole(connection *from, wire_kind kind, bool keep_handles,
                                       os_deadline deadline) {
    gpuipc_status status = receive_all(from, keep_handles, deadline);
    if (status != GPUIPC_OK || from->in.header.kind == kind) {
        return status;
    }
    if (is_of_server(kind) || is_of_server(from->in.header.kind)) {
        status =
            status_fail(GPUIPC_ERR_PROTOCOL, "a message of kind %d came where one of kind %d may",
                        (int)from->in.header.kind, (int)kind);
        end_conversation(from);
        give_up(from);
    } else {
        status = status_fail(GPUIPC_ERR_OTHER_KIND, "%s",
                             kind == WIRE_MESSAGE
                                 ? "contents come next: gpuipc_connection_receive_contents()"
                                 : "a message comes next: gpuipc_connection_receive()");
    }
    return status;
}

/* @param shared stays the message's until the buffer is open */
static buffer_source source_of(const connection *from, const wire_buffer *record,
                               import_memory *shared, const gpuipc_incoming *wanted) {
    buffer_source source = {.transport = transport_of_memory(record->memory),
                            .from = &from->from,
                            .offset = record->offset,
                            .bytes = record->bytes,
                            .access_limit = (gpuipc_access)record->access,
                            .import = shared,
                            .keeps_handles = (wanted->flags & GPUIPC_RECEIVE_KEEP_HANDLES) != 0,
                            .buffer_id = record->buffer_id};
    memcpy(source.owner_uuid.bytes, record->device_uuid, sizeof(source.owner_uuid.bytes));
    memcpy(source.exporter_id, record->exporter_id, sizeof(source.exporter_id));
    return source;
}

/* Over memory that may be open already: it came with the first segment, and no buffer is without one (wire.h). */
static gpuipc_status open_shared(connection *from, uint32_t index, const gpuipc_incoming *wanted,
                                 buffer **out_buffer) {
    import_memory **of = &from->in.imports[index];
    const buffer_source source = source_of(from, &from->in.buffers[index], *of, wanted);
    if (!source.keeps_handles) {
        import_close_handles(from->context, source.import); /* as open_alone() */
    }
    gpuipc_status status =
        buffer_open(from->context, &source, NULL, 0, wanted->device, wanted->access, out_buffer);
    if (status == GPUIPC_OK) {
        *of = NULL;
    }
    return status;
}

/* The segments move out of the message. */
static gpuipc_status open_alone(connection *from, uint32_t index, segment *arrived,
                                const gpuipc_incoming *wanted, buffer **out_buffer) {
    const wire_buffer *record = &from->in.buffers[index];
    const buffer_source source = source_of(from, record, NULL, wanted);
    segment *segments = malloc(record->segment_count * sizeof(*segments));
    if (segments == NULL) {
        return status_out_of_memory(record->segment_count * sizeof(*segments));
    }
    memcpy(segments, arrived, record->segment_count * sizeof(*segments));
    if (!source.keeps_handles) {
        /* kept by an earlier call for this message that asked for it */
        for (uint32_t i = 0; i < record->segment_count; i++) {
            os_handle_close(&segments[i].kept);
            arrived[i].kept = OS_HANDLE_NONE;
        }
    }
    gpuipc_status status = buffer_open(from->context, &source, segments, record->segment_count,
                                       wanted->device, wanted->access, out_buffer);
    if (status != GPUIPC_OK) {
        free(segments);
        return status;
    }
    for (uint32_t i = 0; i < record->segment_count; i++) {
        arrived[i] = SEGMENT_NONE;
    }
    return GPUIPC_OK;
}

/* Opens buffer @p index, whose segments begin at @p first. */
static gpuipc_status open_one(connection *from, uint32_t index, uint32_t first,
                              const gpuipc_incoming *wanted, buffer **out_opened) {
    const wire_buffer *record = &from->in.buffers[index];
    segment *arrived = &from->in.segments[first];
    buffer *opened;
    gpuipc_status status = incoming_transport(&from->in, index)->shares_imports
                               ? open_shared(from, index, wanted, &opened)
                               : open_alone(from, index, arrived, wanted, &opened);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = receipt_record(from, record, opened);
    if (status != GPUIPC_OK) {
        buffer_unreference(opened);
        return status;
    }
    *out_opened = opened;
    return GPUIPC_OK;
}

static void unreference_all(buffer *const *opened, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        buffer_unreference(opened[i]);
    }
}

/* After a failure, which stays in the record. */
static void unwind_all(buffer *const *opened, uint32_t count) {
    const gpuipc_error why = status_save();
    unreference_all(opened, count);
    status_restore(&why);
}

/* The stream waits for the contents of the buffers, which are open by now; those that no stream waits for are there. */
static gpuipc_status wait_async(const connection *from, buffer *const *opened,
                                const gpuipc_incoming *wanted) {
    gpuipc_status status = GPUIPC_OK;
    const bool is_async =
        (wanted->flags & (GPUIPC_RECEIVE_ASYNC | GPUIPC_RECEIVE_DEFERRED)) == GPUIPC_RECEIVE_ASYNC;
    for (uint32_t i = 0; i < from->in.buffer_count && is_async && status == GPUIPC_OK; i++) {
        status =
            buffer_await_contents(opened[i], wanted->flags, wanted->stream, os_deadline_after(0));
    }
    return status;
}

/* All, or none. */
static gpuipc_status open_all(connection *from, const gpuipc_incoming *wanted,
                              buffer **out_opened) {
    const incoming *in = &from->in;
    uint32_t first = 0;
    for (uint32_t i = 0; i < in->buffer_count; i++) {
        gpuipc_status status = open_one(from, i, first, wanted, &out_opened[i]);
        if (status != GPUIPC_OK) {
            unwind_all(out_opened, i);
            return status;
        }
        first += in->buffers[i].segment_count;
    }
    gpuipc_status status = wait_async(from, out_opened, wanted);
    if (status != GPUIPC_OK) {
        unwind_all(out_opened, in->buffer_count);
    }
    return status;
}

void connection_clear_message(connection *from, bool is_refused) {
    gpuipc_error why = status_save();
    from->next_in++;
    if (is_refused) {
        receipt_refuse(from);
    }
    incoming_clear(&from->in, from->context, false);
    status_restore(&why);
}

gpuipc_status connection_deliver(connection *from, const gpuipc_incoming *wanted,
                                 buffer **out_opened, gpuipc_incoming *message,
                                 os_deadline deadline) {
    incoming *in = &from->in;
    gpuipc_status status = in->failure.status;
    if (status != GPUIPC_OK) {
        (void)status_again(&in->failure);
        goto drop;
    }
    if (in->byte_count > wanted->bytes_capacity || in->buffer_count > wanted->buffer_capacity) {
        message->bytes_size = in->byte_count;
        message->buffer_count = in->buffer_count;
        return status_fail(GPUIPC_ERR_TOO_SMALL,
                           "the message has %u bytes and %u buffers; there is room for %zu and %zu",
                           in->byte_count, in->buffer_count, wanted->bytes_capacity,
                           wanted->buffer_capacity);
    }
    status = connection_answer(from, receipt_await_message(from, wanted, deadline));
    if (status == GPUIPC_ERR_TIMEOUT) {
        return status;
    }
    if (status == GPUIPC_OK) {
        status = open_all(from, wanted, out_opened);
    }
    if (status != GPUIPC_OK) {
        goto drop;
    }
    if (in->byte_count > 0 && wanted->bytes != NULL) {
        memcpy(wanted->bytes, in->bytes, in->byte_count);
    }
    message->bytes_size = in->byte_count;
    message->buffer_count = in->buffer_count;

drop:
    connection_clear_message(from, status != GPUIPC_OK);
    return status;
}

/* @p wanted: the caller's struct as this library knows it. */
static gpuipc_status check_message(const gpuipc_incoming *wanted) {
    if ((wanted->bytes == NULL && wanted->bytes_capacity > 0) ||
        (wanted->buffers == NULL && wanted->buffer_capacity > 0)) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT,
                           "bytes or buffers is NULL although its capacity is not 0");
    }
    if (wanted->reserved != 0) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "reserved is not 0");
    }
    if ((wanted->flags &
         ~(GPUIPC_RECEIVE_KEEP_HANDLES | GPUIPC_RECEIVE_ASYNC | GPUIPC_RECEIVE_DEFERRED)) != 0) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT,
                           "flags has bits that this library does not know: 0x%x", wanted->flags);
    }
    gpuipc_status status = wanted->infos == NULL ? GPUIPC_OK : buffer_check_info(wanted->infos);
    return status == GPUIPC_OK ? buffer_check_access(wanted->access) : status;
}

/* What the caller wants to know of the buffers; how far one is from the next, the first one says. */
static void describe_all(buffer *const *opened, const gpuipc_incoming *wanted, size_t count) {
    for (size_t i = 0; wanted->infos != NULL && i < count; i++) {
        const size_t size = wanted->infos->struct_size;
        void *info = (unsigned char *)wanted->infos + i * size;
        memcpy(info, &size, sizeof(size));
        buffer_describe(opened[i], info);
    }
}

/* All get handles, or none. One may have been found by its address meanwhile, and have another handle, too. */
static gpuipc_status publish_all(buffer *const *opened, size_t count, gpuipc_buffer **handles) {
    gpuipc_status status = GPUIPC_OK;
    buffer *taken;
    size_t done = 0;
    while (done < count && status == GPUIPC_OK) {
        object_reference(&opened[done]->object);
        status = buffer_publish(opened[done], &handles[done]);
        done += status == GPUIPC_OK;
    }
    while (status != GPUIPC_OK && done-- > 0) {
        if (buffer_take_hold(handles[done], &taken) == GPUIPC_OK) {
            buffer_release_later(taken);
        }
    }
    return status;
}

/* The caller's arrays are written only when all is open. */
static gpuipc_status deliver(connection *from, const gpuipc_incoming *wanted,
                             gpuipc_incoming *message, os_deadline deadline) {
    const uint32_t count = from->in.buffer_count;
    buffer *few[OPENED_HERE];
    gpuipc_buffer *few_handles[OPENED_HERE];
    buffer **opened = few;
    gpuipc_buffer **handles = few_handles;
    if (count > OPENED_HERE && count <= wanted->buffer_capacity) {
        opened = calloc(count, sizeof(*opened) + sizeof(*handles));
        if (opened == NULL) {
            const gpuipc_status status =
                status_out_of_memory(count * (sizeof(*opened) + sizeof(*handles)));
            connection_clear_message(from, true);
            return status;
        }
        handles = (gpuipc_buffer **)(opened + count);
    }
    gpuipc_status status = connection_deliver(from, wanted, opened, message, deadline);
    if (status == GPUIPC_OK) {
        status = publish_all(opened, count, handles);
        if (status == GPUIPC_OK) {
            for (uint32_t i = 0; i < count; i++) {
                wanted->buffers[i] = handles[i];
            }
            describe_all(opened, wanted, count);
            unreference_all(opened, count);
        } else {
            unwind_all(opened, count);
        }
    }
    if (opened != few) {
        free(opened);
    }
    return status;
}

static gpuipc_status receive(connection *from, const gpuipc_incoming *wanted,
                             gpuipc_incoming *message, os_deadline deadline) {
    gpuipc_status status = connection_lock_receiving(from);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = connection_receive_whole(from, WIRE_MESSAGE,
                                      (wanted->flags & GPUIPC_RECEIVE_KEEP_HANDLES) != 0, deadline);
    if (status == GPUIPC_OK) {
        status = deliver(from, wanted, message, deadline);
    }
    connection_unlock_receiving(from);
    return status;
}

gpuipc_status gpuipc_connection_receive(gpuipc_connection *handle, gpuipc_incoming *message,
                                        int timeout_ms) {
    status_enter(__func__);
    if (timeout_ms < -1) {
        return status_bad_timeout(timeout_ms);
    }
    os_deadline deadline = os_deadline_after(timeout_ms);
    os_interrupt interrupt;
    gpuipc_incoming known;
    connection *from;
    gpuipc_status status = struct_size_read(message, STRUCT_SIZE_UP_TO(gpuipc_incoming, reserved),
                                            &known, sizeof(known));
    if (status != GPUIPC_OK || (status = check_message(&known)) != GPUIPC_OK ||
        (status = connection_acquire(handle, &from)) != GPUIPC_OK) {
        return status;
    }
    deadline = context_interruptible(from->context, deadline, &interrupt);
    status = device_check_field(from->context, known.device);
    if (status == GPUIPC_OK) {
        status = receive(from, &known, message, deadline);
        connection_make_room(from->context, status);
    }
    if (status == GPUIPC_OK && message->buffer_count > 0) {
        deferred_tidy_some(from->context); /* a program may only receive and drop */
    }
    status = context_answer(from->context, &interrupt, status);
    connection_unreference(from);
    return status;
}
