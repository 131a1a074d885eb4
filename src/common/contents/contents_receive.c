/* SPDX-License-Identifier: MIT */
/** @file Receiving contents into a range: out of the sender's own memory, or through a ring. */
#include <inttypes.h>

#include "base/struct_size.h"
#include "contents/contents.h"
#include "copy/buffer_copy.h"
#include "sync/drop.h"
#include "transport/transport.h"

static gpuipc_status bad(const char *sentence) {
    return status_fail(GPUIPC_ERR_PROTOCOL, "%s", sentence);
}

/* ---- out of the sender's memory ----------------------------------------------------------- */

/* Opens the one buffer of the message for the destination's device; the stream waits until its contents
 * are ready. The message is used up, but by a timeout. */
static gpuipc_status open_memory(connection *from, const buffer *into,
                                 const gpuipc_contents *contents, os_deadline deadline,
                                 buffer **out_opened) {
    gpuipc_incoming message = {.struct_size = sizeof(message),
                               .bytes_capacity = WIRE_CONTENTS_BYTES,
                               .buffer_capacity = 1,
                               .flags = GPUIPC_RECEIVE_ASYNC,
                               .device = GPUIPC_DEVICE(into->access_device),
                               .access = GPUIPC_ACCESS_READ,
                               .stream = contents->stream};
    return connection_deliver(from, &message, out_opened, &message, deadline);
}

/* Copies out of the opened buffer and returns it, on the stream, whose CUDA context is the current one. */
static gpuipc_status copy_out(buffer *into, const gpuipc_contents *contents,
                              const wire_contents *record, buffer *source) {
    buffer_set_arrived(into, source->import_record);
    gpuipc_status status = buffer_copy(into, contents->offset, source, record->offset,
                                       contents->bytes, contents->stream);
    const gpuipc_error copied = status_save();
    /* Also after a failure, or the sender's stream would wait until this connection ends. */
    const gpuipc_status returned = buffer_return(source, contents->stream);
    if (status == GPUIPC_OK) {
        return returned;
    }
    status_restore(&copied);
    return status;
}

/* The buffer is closed when the stream has passed the copy, which may be longer than the connection is there: closed under
 * one that runs, it would end the CUDA context. Takes it over. */
static gpuipc_status copy_and_close(connection *from, buffer *into, const gpuipc_contents *contents,
                                    const wire_contents *record, buffer *opened) {
    struct drop_passing *passing;
    device_scope scope;
    gpuipc_status status =
        device_enter_stream(from->context, contents->stream, into->access_device, &scope);
    if (status != GPUIPC_OK) {
        goto release;
    }
    if ((status = drop_passing_new(from->context, &passing)) != GPUIPC_OK) {
        goto leave;
    }
    status = copy_out(into, contents, record, opened);
    buffer_hold(opened);
    buffer_release_behind(opened, passing, contents->stream);
    device_leave(&scope);
    return status;

leave:
    device_leave(&scope);
release:
    buffer_unwind(opened);
    return status;
}

static gpuipc_status receive_memory(connection *from, buffer *into, const gpuipc_contents *contents,
                                    const wire_contents *record, os_deadline deadline) {
    buffer *opened;
    gpuipc_status status = open_memory(from, into, contents, deadline, &opened);
    return status == GPUIPC_OK ? copy_and_close(from, into, contents, record, opened) : status;
}

/* ---- through a ring ----------------------------------------------------------------------- */

/* Takes the slots out of the first message. What cannot be taken in ends the connection: the sender
 * would wait for ever. */
static gpuipc_status take_ring(connection *from) {
    incoming *in = &from->in;
    if (in->failure.status != GPUIPC_OK) {
        return status_again(&in->failure);
    }
    if (from->ring_in != NULL) {
        return in->buffer_count == 0 ? GPUIPC_OK : bad("a ring came twice");
    }
    if (from->ring_words == NULL || in->buffer_count != 1 ||
        in->buffers[0].memory != SEGMENT_MEMORY_HOST || in->segment_count != 1 ||
        in->segments[0].bytes != CONTENTS_RING_BYTES) {
        return bad("contents came without the ring that they go through");
    }
    gpuipc_status status =
        contents_ring_open(from->context, in->segments[0].host, from->ring_words, &from->ring_in);
    if (status == GPUIPC_OK) {
        from->ring_words = NULL;
        in->segments[0].host = NULL;
        from->ring_in->charge = in->segments[0].charge;
        in->segments[0].charge = (quota_charge){0};
    }
    return status;
}

static gpuipc_status receive_through_ring(connection *from, buffer *into, contents_flow flow) {
    contents_ring *ring = from->ring_in;
    const point none = {NULL, 0, 0};
    work_place *place = NULL;
    gpuipc_status status = contents_ring_prepare(ring, flow.device);
    if (status == GPUIPC_OK) {
        status = contents_work_begin(into, flow.stream, &place);
    }
    if (status == GPUIPC_OK) {
        status = import_record_new(&none, false, &flow.lost);
    }
    if (status == GPUIPC_OK && (status = contents_ring_leave(ring, &flow)) != GPUIPC_OK) {
        import_record_unreference(flow.lost, false);
    }
    if (status != GPUIPC_OK) {
        contents_work_end(into, place, flow.stream);
        contents_ring_skip(ring, flow.bytes);
        return status;
    }
    contents_ring_note(ring, ring->next + contents_piece_count(flow.bytes), flow.lost);
    buffer_set_arrived(into, flow.lost);
    flow.deadline.interrupt = NULL; /* the rest is not kept for another call */
    status = contents_ring_put(ring, &flow);
    contents_work_end(into, place, flow.stream);
    import_record_unreference(flow.lost, false);
    if (status == GPUIPC_ERR_TIMEOUT) {
        connection_break(from);
        status_add("; part of the contents had come, so the connection is broken");
        return status_change(GPUIPC_ERR_CONNECTION_BROKEN);
    }
    return status == GPUIPC_ERR_LOST ? GPUIPC_OK : status; /* is_lost tells */
}

/* ---- the call ----------------------------------------------------------------------------- */

/* What has come must be what is wanted. */
static gpuipc_status check_record(const gpuipc_contents *contents, const wire_contents *record) {
    const transport *carrier = transport_of_memory(record->memory);
    if (contents->transport != GPUIPC_TRANSPORT_DEFAULT &&
        transport_find(contents->transport) != carrier) {
        return status_fail(GPUIPC_ERR_NO_TRANSPORT,
                           "the contents come by %s, and are to come by %s; they are dropped",
                           carrier->name, transport_find(contents->transport)->name);
    }
    if (contents->bytes != record->bytes) {
        return status_fail(GPUIPC_ERR_SIZE_MISMATCH,
                           "%" PRIu64 " bytes come for a range of %" PRIu64 "; they are dropped",
                           record->bytes, contents->bytes);
    }
    return GPUIPC_OK;
}

static gpuipc_status deliver_ring(connection *from, buffer *into, const gpuipc_contents *contents,
                                  const wire_contents *record, os_deadline deadline) {
    gpuipc_status status = take_ring(from);
    if (status == GPUIPC_OK && record->number != from->ring_in->next) {
        status = bad("contents are missing in the ring");
    }
    if (status != GPUIPC_OK) {
        connection_clear_message(from, false);
        connection_break(from);
        status_add("; the connection is broken");
        return status;
    }
    status = check_record(contents, record);
    connection_clear_message(from, false);
    if (status != GPUIPC_OK) {
        contents_ring_skip(from->ring_in, record->bytes);
        return status;
    }
    return receive_through_ring(from, into,
                                contents_flow_of(into, contents, &from->ended, deadline));
}

static gpuipc_status deliver_memory(connection *from, buffer *into, const gpuipc_contents *contents,
                                    const wire_contents *record, os_deadline deadline) {
    gpuipc_status status = check_record(contents, record);
    if (status != GPUIPC_OK) {
        connection_clear_message(from, true);
        return status;
    }
    return receive_memory(from, into, contents, record, deadline);
}

/* What has come whole says of contents what can be. */
static gpuipc_status read_record(connection *from, wire_contents *out_record) {
    const incoming *in = &from->in;
    gpuipc_status status = wire_decode_contents(in->bytes, in->byte_count, out_record);
    if (status == GPUIPC_OK && out_record->memory != SEGMENT_MEMORY_HOST &&
        (in->byte_count != WIRE_CONTENTS_BYTES || in->buffer_count != 1 ||
         in->buffers[0].memory != out_record->memory)) {
        status = bad("contents came without the one buffer that they are in");
    }
    if (status != GPUIPC_OK) {
        connection_clear_message(from, true);
        connection_break(from);
        status_add("; the connection is broken");
    }
    return status;
}

/* On the ring's own streams, also for what is dropped: the sender's are told so. */
static gpuipc_status await_room(const connection *from, const wire_contents *record,
                                os_deadline deadline) {
    return record->memory == SEGMENT_MEMORY_HOST && from->ring_in != NULL
               ? contents_ring_await_room(from->ring_in, record->bytes, &from->ended, deadline)
               : GPUIPC_OK;
}

/* Until there is room for them the message stays. */
static gpuipc_status receive_on_stream(connection *from, buffer *into,
                                       const gpuipc_contents *contents, const wire_contents *record,
                                       os_deadline deadline) {
    contents_turn turn = {.stream = contents->stream, .index = into->access_device};
    gpuipc_status status = await_room(from, record, deadline);
    if (status == GPUIPC_OK) {
        status = contents_turn_begin(from->context, &turn, &from->ended, deadline);
    }
    if (status != GPUIPC_OK) {
        return connection_answer(from, status);
    }
    status = record->memory == SEGMENT_MEMORY_HOST
                 ? deliver_ring(from, into, contents, record, deadline)
                 : deliver_memory(from, into, contents, record, deadline);
    contents_turn_end(from->context, &turn);
    return status;
}

static gpuipc_status receive_contents(connection *from, const gpuipc_contents *contents,
                                      os_deadline deadline) {
    wire_contents record;
    buffer *into;
    gpuipc_status status = contents_check(from, contents, &into);
    if (status != GPUIPC_OK) {
        return status;
    }
    if ((status = buffer_check_writable(into)) == GPUIPC_OK &&
        (status = connection_receive_whole(from, WIRE_CONTENTS, false, deadline)) == GPUIPC_OK &&
        (status = read_record(from, &record)) == GPUIPC_OK) {
        status = receive_on_stream(from, into, contents, &record, deadline);
    }
    buffer_unreference(into);
    return status;
}

gpuipc_status gpuipc_connection_receive_contents(gpuipc_connection *handle,
                                                 const gpuipc_contents *contents, int timeout_ms) {
    status_enter(__func__);
    if (timeout_ms < -1) {
        return status_bad_timeout(timeout_ms);
    }
    os_deadline deadline = os_deadline_after(timeout_ms);
    os_interrupt interrupt;
    gpuipc_contents known;
    connection *from;
    gpuipc_status status = struct_size_read(contents, STRUCT_SIZE_UP_TO(gpuipc_contents, reserved),
                                            &known, sizeof(known));
    if (status != GPUIPC_OK || (status = connection_acquire(handle, &from)) != GPUIPC_OK) {
        return status;
    }
    deadline = context_interruptible(from->context, deadline, &interrupt);
    status = connection_lock_receiving(from);
    if (status == GPUIPC_OK) {
        status = receive_contents(from, &known, deadline);
        connection_unlock_receiving(from);
    }
    status = context_answer(from->context, &interrupt, status);
    connection_unreference(from);
    return status;
}
