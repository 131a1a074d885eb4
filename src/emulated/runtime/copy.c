/* SPDX-License-Identifier: MIT */
/** @file Copies and fills. The kind chooses the driver's call, as with NVIDIA's runtime. */
#include "current.h"

/* What was asked for is the driver's default stream and to wait, or a stream and not to wait. */
typedef struct order {
    cudaStream_t stream;
    bool is_async;
} order;

static const order now = {NULL, false};

static cudaError_t copy_now(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    switch (kind) {
    case cudaMemcpyHostToDevice:
        return RUN(cuMemcpyHtoD_v2, number_of(to), from, bytes);
    case cudaMemcpyDeviceToHost:
        return RUN(cuMemcpyDtoH_v2, to, number_of(from), bytes);
    case cudaMemcpyDeviceToDevice:
        return RUN(cuMemcpyDtoD_v2, number_of(to), number_of(from), bytes);
    default:
        return RUN(cuMemcpy, number_of(to), number_of(from), bytes);
    }
}

static cudaError_t copy_async(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                              cudaStream_t stream) {
    switch (kind) {
    case cudaMemcpyHostToDevice:
        return RUN(cuMemcpyHtoDAsync_v2, number_of(to), from, bytes, stream);
    case cudaMemcpyDeviceToHost:
        return RUN(cuMemcpyDtoHAsync_v2, to, number_of(from), bytes, stream);
    case cudaMemcpyDeviceToDevice:
        return RUN(cuMemcpyDtoDAsync_v2, number_of(to), number_of(from), bytes, stream);
    default:
        return RUN(cuMemcpyAsync, number_of(to), number_of(from), bytes, stream);
    }
}

static cudaError_t copy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                        order how) {
    if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) {
        return current_fail(cudaErrorInvalidMemcpyDirection);
    }
    return how.is_async ? copy_async(to, from, bytes, kind, how.stream)
                        : copy_now(to, from, bytes, kind);
}

/* Row by row: the driver here has no call for it. */
static cudaError_t copy_rows(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                             size_t width, size_t height, enum cudaMemcpyKind kind, order how) {
    cudaError_t result = cudaSuccess;
    if (width > to_pitch || width > from_pitch) {
        return current_fail(cudaErrorInvalidPitchValue);
    }
    for (size_t row = 0; row < height && result == cudaSuccess; row++) {
        result = copy((char *)to + row * to_pitch, (const char *)from + row * from_pitch, width,
                      kind, how);
    }
    return result;
}

GPUIPC_EXPORTED cudaError_t cudaMemcpy(void *destination, const void *source, size_t bytes,
                                       enum cudaMemcpyKind kind) {
    return copy(destination, source, bytes, kind, now);
}

GPUIPC_EXPORTED cudaError_t cudaMemcpyAsync(void *destination, const void *source, size_t bytes,
                                            enum cudaMemcpyKind kind, cudaStream_t stream) {
    return copy(destination, source, bytes, kind, (order){stream, true});
}

GPUIPC_EXPORTED cudaError_t cudaMemcpy2D(void *destination, size_t destination_pitch,
                                         const void *source, size_t source_pitch, size_t width,
                                         size_t height, enum cudaMemcpyKind kind) {
    return copy_rows(destination, destination_pitch, source, source_pitch, width, height, kind,
                     now);
}

GPUIPC_EXPORTED cudaError_t cudaMemcpy2DAsync(void *destination, size_t destination_pitch,
                                              const void *source, size_t source_pitch, size_t width,
                                              size_t height, enum cudaMemcpyKind kind,
                                              cudaStream_t stream) {
    return copy_rows(destination, destination_pitch, source, source_pitch, width, height, kind,
                     (order){stream, true});
}

/* The primary contexts of two devices. */
static cudaError_t both_primaries(int first, int second, CUcontext *out_first,
                                  CUcontext *out_second) {
    if (!current_begin()) {
        return current_refused();
    }
    CUresult result = current_primary(first, out_first);
    if (result == CUDA_SUCCESS) {
        result = current_primary(second, out_second);
    }
    return current_end(result);
}

GPUIPC_EXPORTED cudaError_t cudaMemcpyPeer(void *destination, int destination_device,
                                           const void *source, int source_device, size_t bytes) {
    CUcontext to;
    CUcontext from;
    const cudaError_t result = both_primaries(destination_device, source_device, &to, &from);
    return result != cudaSuccess
               ? result
               : RUN(cuMemcpyPeer, number_of(destination), to, number_of(source), from, bytes);
}

GPUIPC_EXPORTED cudaError_t cudaMemcpyPeerAsync(void *destination, int destination_device,
                                                const void *source, int source_device, size_t bytes,
                                                cudaStream_t stream) {
    CUcontext to;
    CUcontext from;
    const cudaError_t result = both_primaries(destination_device, source_device, &to, &from);
    return result != cudaSuccess ? result
                                 : RUN(cuMemcpyPeerAsync, number_of(destination), to,
                                       number_of(source), from, bytes, stream);
}

GPUIPC_EXPORTED cudaError_t cudaMemset(void *address, int value, size_t bytes) {
    return RUN(cuMemsetD8_v2, number_of(address), (unsigned char)value, bytes);
}

GPUIPC_EXPORTED cudaError_t cudaMemsetAsync(void *address, int value, size_t bytes,
                                            cudaStream_t stream) {
    return RUN(cuMemsetD8Async, number_of(address), (unsigned char)value, bytes, stream);
}

GPUIPC_EXPORTED cudaError_t cudaMemset2D(void *address, size_t pitch, int value, size_t width,
                                         size_t height) {
    return RUN(cuMemsetD2D8_v2, number_of(address), pitch, (unsigned char)value, width, height);
}

GPUIPC_EXPORTED cudaError_t cudaMemset2DAsync(void *address, size_t pitch, int value, size_t width,
                                              size_t height, cudaStream_t stream) {
    return RUN(cuMemsetD2D8Async, number_of(address), pitch, (unsigned char)value, width, height,
               stream);
}
