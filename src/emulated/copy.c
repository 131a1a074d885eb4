/* SPDX-License-Identifier: MIT */
/**
 * @file The entry points that copy. By "API synchronization behavior" (CUDA runtime API) a copy from
 * pageable memory returns when its source has been read, which may be before it has arrived (seen by
 * another process on an H200); a copy to it, and any within the host, when it has arrived; one
 * between devices waits for nothing. One with pinned or managed memory waits for nothing either if it
 * is asynchronous, and else until it is done. A synchronous one with memory that has
 * CU_POINTER_ATTRIBUTE_SYNC_MEMOPS waits until it is done. On a stream that is captured nothing is done, and the host's
 * memory is read and written at each launch.
 */
#include "capture.h"
#include "entry.h"
#include "operation.h"
#include "pinned.h"

typedef enum copy_place {
    COPY_ANY,
    COPY_DEVICE
} copy_place;

typedef struct copy_request {
    side destination;
    side source;
    uint64_t bytes;
    CUstream stream; /* the default one for the calls without Async */
    bool is_async;
} copy_request;

static copy_request request(CUdeviceptr destination, CUdeviceptr source, size_t bytes) {
    return (copy_request){{destination, NULL}, {source, NULL}, bytes, NULL, false};
}

static copy_request request_async(CUdeviceptr destination, CUdeviceptr source, size_t bytes,
                                  CUstream on) {
    return (copy_request){{destination, NULL}, {source, NULL}, bytes, on, true};
}

/* Takes @p todo over, whatever the result. */
static CUresult copy_from_host(const copy_request *wanted, work *todo) {
    stream *on;
    CUresult result = work_stage(todo);
    if (result == CUDA_SUCCESS) {
        result = stream_find(wanted->stream, &on); /* again: the lock was released */
    }
    if (result != CUDA_SUCCESS) {
        work_free(todo);
        return result;
    }
    return stream_submit(on, todo);
}

typedef enum copy_end {
    END_DEVICE,
    END_PINNED,
    END_PAGEABLE
} copy_end;

static copy_end end_of(CUdeviceptr address) {
    if (address_is_device(address)) {
        return END_DEVICE;
    }
    return pinned_find(address) != NULL ? END_PINNED : END_PAGEABLE;
}

/* Whether the call returns when the bytes have arrived. */
static bool is_waited_for(copy_end to, copy_end from, bool is_async) {
    if (to == END_PAGEABLE || (to != END_DEVICE && from != END_DEVICE)) {
        return true;
    }
    return !is_async && (to == END_PINNED || from == END_PINNED);
}

static CUresult capture_copy(stream *on, const copy_request *wanted) {
    const operation todo = {
        .type = CU_GRAPH_NODE_TYPE_MEMCPY,
        .by = on->owner->handle,
        .as.copy = {{wanted->destination.address, wanted->destination.by->handle},
                    {wanted->source.address, wanted->source.by->handle},
                    wanted->bytes},
    };
    return capture_add(on, &todo);
}

/* @param on the stream of the request; both sides have their contexts */
static CUresult copy_on(stream *on, const copy_request *wanted) {
    work *todo;
    const copy_end to = end_of(wanted->destination.address);
    const copy_end from = end_of(wanted->source.address);
    if (wanted->bytes == 0) {
        return CUDA_SUCCESS;
    }
    if (on->captured.capture != NULL) {
        return capture_copy(on, wanted);
    }
    CUresult result = work_copy(wanted->destination, wanted->source, wanted->bytes, &todo);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const bool syncs = !wanted->is_async && (pinned_syncs(wanted->destination.address) ||
                                             pinned_syncs(wanted->source.address));
    if (syncs || is_waited_for(to, from, wanted->is_async)) {
        return stream_run(on, todo);
    }
    if (from != END_PAGEABLE) {
        return stream_submit(on, todo);
    }
    if (!wanted->is_async) {
        result = stream_synchronize(on); /* "a stream sync is performed before the copy" */
    }
    if (result != CUDA_SUCCESS) {
        work_free(todo);
        return result;
    }
    return copy_from_host(wanted, todo);
}

static bool is_in(copy_place place, CUdeviceptr address, uint64_t bytes) {
    return place == COPY_ANY || bytes == 0 || end_of(address) != END_PAGEABLE;
}

static CUresult copy(copy_request wanted, copy_place destination, copy_place source) {
    stream *on;
    CUresult result = stream_find(wanted.stream, &on);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!is_in(destination, wanted.destination.address, wanted.bytes) ||
        !is_in(source, wanted.source.address, wanted.bytes)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    wanted.destination.by = on->owner;
    wanted.source.by = on->owner;
    return copy_on(on, &wanted);
}

/* Each side belongs to its own context, so no peer access is needed: the driver carries the bytes
 * through the host where the devices cannot reach each other. */
static CUresult copy_between(copy_request wanted, CUcontext destination, CUcontext source) {
    stream *on;
    context *to;
    context *from;
    CUresult result = stream_find(wanted.stream, &on);
    if (result == CUDA_SUCCESS) {
        result = context_find_healthy(destination, &to);
    }
    if (result == CUDA_SUCCESS) {
        result = context_find_healthy(source, &from);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!is_in(COPY_DEVICE, wanted.destination.address, wanted.bytes) ||
        !is_in(COPY_DEVICE, wanted.source.address, wanted.bytes)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    wanted.destination.by = to;
    wanted.source.by = from;
    return copy_on(on, &wanted);
}

static CUdeviceptr from_host(const void *pointer) {
    return (CUdeviceptr)(uintptr_t)pointer;
}

GPUIPC_EXPORTED CUresult cuMemcpy(CUdeviceptr destination, CUdeviceptr source, size_t bytes) {
    const CUresult refused = ENTER_UNSAFE(cuMemcpy);
    return refused != CUDA_SUCCESS
               ? refused
               : entry_leave(copy(request(destination, source, bytes), COPY_ANY, COPY_ANY));
}

GPUIPC_EXPORTED CUresult cuMemcpyAsync(CUdeviceptr destination, CUdeviceptr source, size_t bytes,
                                       CUstream on) {
    const CUresult refused = ENTER(cuMemcpyAsync);
    return refused != CUDA_SUCCESS ? refused
                                   : entry_leave(copy(request_async(destination, source, bytes, on),
                                                      COPY_ANY, COPY_ANY));
}

GPUIPC_EXPORTED CUresult cuMemcpyHtoD_v2(CUdeviceptr destination, const void *source,
                                         size_t bytes) {
    const CUresult refused = ENTER_UNSAFE(cuMemcpyHtoD_v2);
    return refused != CUDA_SUCCESS
               ? refused
               : entry_leave(
                     copy(request(destination, from_host(source), bytes), COPY_DEVICE, COPY_ANY));
}

GPUIPC_EXPORTED CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr destination, const void *source,
                                              size_t bytes, CUstream on) {
    const CUresult refused = ENTER(cuMemcpyHtoDAsync_v2);
    return refused != CUDA_SUCCESS
               ? refused
               : entry_leave(copy(request_async(destination, from_host(source), bytes, on),
                                  COPY_DEVICE, COPY_ANY));
}

GPUIPC_EXPORTED CUresult cuMemcpyDtoH_v2(void *destination, CUdeviceptr source, size_t bytes) {
    const CUresult refused = ENTER_UNSAFE(cuMemcpyDtoH_v2);
    return refused != CUDA_SUCCESS
               ? refused
               : entry_leave(
                     copy(request(from_host(destination), source, bytes), COPY_ANY, COPY_DEVICE));
}

GPUIPC_EXPORTED CUresult cuMemcpyDtoHAsync_v2(void *destination, CUdeviceptr source, size_t bytes,
                                              CUstream on) {
    const CUresult refused = ENTER(cuMemcpyDtoHAsync_v2);
    return refused != CUDA_SUCCESS
               ? refused
               : entry_leave(copy(request_async(from_host(destination), source, bytes, on),
                                  COPY_ANY, COPY_DEVICE));
}

GPUIPC_EXPORTED CUresult cuMemcpyDtoD_v2(CUdeviceptr destination, CUdeviceptr source,
                                         size_t bytes) {
    const CUresult refused = ENTER_UNSAFE(cuMemcpyDtoD_v2);
    return refused != CUDA_SUCCESS
               ? refused
               : entry_leave(copy(request(destination, source, bytes), COPY_DEVICE, COPY_DEVICE));
}

GPUIPC_EXPORTED CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr destination, CUdeviceptr source,
                                              size_t bytes, CUstream on) {
    const CUresult refused = ENTER(cuMemcpyDtoDAsync_v2);
    return refused != CUDA_SUCCESS ? refused
                                   : entry_leave(copy(request_async(destination, source, bytes, on),
                                                      COPY_DEVICE, COPY_DEVICE));
}

GPUIPC_EXPORTED CUresult cuMemcpyPeer(CUdeviceptr destination, CUcontext destination_context,
                                      CUdeviceptr source, CUcontext source_context, size_t bytes) {
    const CUresult refused = ENTER_UNSAFE(cuMemcpyPeer);
    return refused != CUDA_SUCCESS ? refused
                                   : entry_leave(copy_between(request(destination, source, bytes),
                                                              destination_context, source_context));
}

GPUIPC_EXPORTED CUresult cuMemcpyPeerAsync(CUdeviceptr destination, CUcontext destination_context,
                                           CUdeviceptr source, CUcontext source_context,
                                           size_t bytes, CUstream on) {
    const CUresult refused = ENTER(cuMemcpyPeerAsync);
    return refused != CUDA_SUCCESS
               ? refused
               : entry_leave(copy_between(request_async(destination, source, bytes, on),
                                          destination_context, source_context));
}
