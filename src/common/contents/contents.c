/* SPDX-License-Identifier: MIT */
/** @file See contents.h. Sending and receiving have files of their own. */
#include "contents/contents.h"

#include "transport/transport.h"

static gpuipc_status take_words(connection *from, os_handle handle) {
    if (from->ring_words != NULL || from->ring_in != NULL || from->in.started) {
        return status_fail(GPUIPC_ERR_PROTOCOL, "the words of a ring came %s",
                           from->in.started ? "inside a message" : "twice");
    }
    return point_page_open(from->context, from->other_end, handle, &from->ring_words);
}

static gpuipc_status check_stream(const buffer *of, gpuipc_stream stream) {
    device_scope scope;
    gpuipc_status status = device_enter_uncaptured(of->context, stream, of->access_device, &scope);
    if (status == GPUIPC_OK) {
        device_leave(&scope);
    }
    return status;
}

gpuipc_status contents_check(const connection *of, const gpuipc_contents *wanted,
                             buffer **out_buffer) {
    buffer *found;
    if (wanted->reserved != 0 || wanted->bytes == 0 ||
        (wanted->transport != GPUIPC_TRANSPORT_DEFAULT &&
         transport_find(wanted->transport) == NULL)) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "%s",
                           wanted->reserved != 0 ? "reserved is not 0"
                           : wanted->bytes == 0  ? "bytes is 0"
                                                 : "transport is none that there is");
    }
    gpuipc_status status = buffer_acquire(wanted->buffer, &found);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = found->context == of->context
                 ? buffer_check_range(found, wanted->offset, wanted->bytes)
                 : status_fail(GPUIPC_ERR_INVALID_ARGUMENT,
                               "the buffer belongs to another context than the connection");
    if (status == GPUIPC_OK) {
        status = check_stream(found, wanted->stream);
    }
    if (status != GPUIPC_OK) {
        buffer_unreference(found);
        return status;
    }
    *out_buffer = found;
    return GPUIPC_OK;
}

contents_flow contents_flow_of(const buffer *self, const gpuipc_contents *wanted,
                               const atomic_bool *interrupted, os_deadline deadline) {
    contents_flow flow = {.address = buffer_address(self, wanted->offset),
                          .bytes = wanted->bytes,
                          .stream = wanted->stream,
                          .device = self->access_device,
                          .interrupted = interrupted,
                          .deadline = deadline};
    if (self->transport->lies_in_host) {
        flow.host = (uint8_t *)self->segments[0].host + self->offset + wanted->offset;
    } else if (self->kind == GPUIPC_MEMORY_PINNED) {
        flow.host = (uint8_t *)(uintptr_t)flow.address; /* unified addressing */
    }
    return flow;
}

gpuipc_status contents_work_begin(buffer *of, gpuipc_stream stream, work_place **out_place) {
    device_scope scope;
    gpuipc_status status = device_enter_stream(of->context, stream, of->access_device, &scope);
    if (status == GPUIPC_OK) {
        status = buffer_work_begin(of, stream, out_place);
        device_leave(&scope);
    }
    return status;
}

/* A CUDA context that cannot be entered any more does no work. */
void contents_work_end(buffer *of, work_place *place, gpuipc_stream stream) {
    device_scope scope;
    if (place == NULL) {
        return;
    }
    const gpuipc_error why = status_save();
    if (device_enter_stream(of->context, stream, of->access_device, &scope) == GPUIPC_OK) {
        buffer_work_end(of, place, stream);
        device_leave(&scope);
    }
    status_restore(&why);
}

static void end_receiving(connection *self, bool forked) {
    contents_ring_destroy(self->ring_in, forked);
    if (self->ring_words != NULL && !forked) {
        contents_words_destroy(self->ring_words);
    }
    point_page_unreference(self->ring_words, forked);
    self->ring_in = NULL;
    self->ring_words = NULL;
}

static void end(connection *self, bool forked) {
    contents_ring_destroy(self->ring_out, forked);
    end_receiving(self, forked);
}

const connection_contents contents_of_connections = {
    .take_words = take_words, .end_receiving = end_receiving, .end = end};
