/* SPDX-License-Identifier: MIT */
/** @file The entry points that fill. All of them return before the work is done (CUDA runtime API,
 *  "API synchronization behavior", memset), except a synchronous one of memory with
 *  CU_POINTER_ATTRIBUTE_SYNC_MEMOPS. */
#include "entry.h"
#include "operation.h"
#include "pinned.h"

static CUresult fill(const fill_request *wanted, CUstream handle) {
    stream *on;
    const CUresult result = stream_find(handle, &on);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const uint64_t row_bytes = wanted->columns * wanted->width;
    if (wanted->columns == 0 || wanted->rows == 0) {
        return CUDA_SUCCESS;
    }
    /* cuda.h: the address must be aligned to the value, and the pitch too; it is not used for a
     * single row. */
    if (wanted->columns > UINT64_MAX / wanted->width || wanted->address % wanted->width != 0 ||
        (!address_is_device(wanted->address) && pinned_find(wanted->address) == NULL) ||
        (wanted->rows > 1 && (wanted->pitch % wanted->width != 0 || wanted->pitch < row_bytes))) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return operation_submit(on, &(operation){.type = CU_GRAPH_NODE_TYPE_MEMSET,
                                             .by = on->owner->handle,
                                             .as.fill = *wanted});
}

/* For the calls without Async. */
static CUresult fill_now(const fill_request *wanted) {
    stream *on;
    CUresult result = fill(wanted, NULL);
    if (result == CUDA_SUCCESS && pinned_syncs(wanted->address)) {
        result = stream_find(NULL, &on);
        return result == CUDA_SUCCESS ? stream_synchronize(on) : result;
    }
    return result;
}

static CUresult fill_row(CUdeviceptr address, uint32_t value, unsigned width, size_t count,
                         CUstream on) {
    const fill_request wanted = {address, 0, count, 1, value, width};
    return fill(&wanted, on);
}

static CUresult fill_row_now(CUdeviceptr address, uint32_t value, unsigned width, size_t count) {
    const fill_request wanted = {address, 0, count, 1, value, width};
    return fill_now(&wanted);
}

GPUIPC_EXPORTED CUresult cuMemsetD8_v2(CUdeviceptr address, unsigned char value, size_t count) {
    const CUresult refused = ENTER(cuMemsetD8_v2);
    return refused != CUDA_SUCCESS ? refused : entry_leave(fill_row_now(address, value, 1, count));
}

GPUIPC_EXPORTED CUresult cuMemsetD16_v2(CUdeviceptr address, unsigned short value, size_t count) {
    const CUresult refused = ENTER(cuMemsetD16_v2);
    return refused != CUDA_SUCCESS ? refused : entry_leave(fill_row_now(address, value, 2, count));
}

GPUIPC_EXPORTED CUresult cuMemsetD32_v2(CUdeviceptr address, unsigned int value, size_t count) {
    const CUresult refused = ENTER(cuMemsetD32_v2);
    return refused != CUDA_SUCCESS ? refused : entry_leave(fill_row_now(address, value, 4, count));
}

GPUIPC_EXPORTED CUresult cuMemsetD8Async(CUdeviceptr address, unsigned char value, size_t count,
                                         CUstream on) {
    const CUresult refused = ENTER(cuMemsetD8Async);
    return refused != CUDA_SUCCESS ? refused : entry_leave(fill_row(address, value, 1, count, on));
}

GPUIPC_EXPORTED CUresult cuMemsetD16Async(CUdeviceptr address, unsigned short value, size_t count,
                                          CUstream on) {
    const CUresult refused = ENTER(cuMemsetD16Async);
    return refused != CUDA_SUCCESS ? refused : entry_leave(fill_row(address, value, 2, count, on));
}

GPUIPC_EXPORTED CUresult cuMemsetD32Async(CUdeviceptr address, unsigned int value, size_t count,
                                          CUstream on) {
    const CUresult refused = ENTER(cuMemsetD32Async);
    return refused != CUDA_SUCCESS ? refused : entry_leave(fill_row(address, value, 4, count, on));
}

GPUIPC_EXPORTED CUresult cuMemsetD2D8_v2(CUdeviceptr address, size_t pitch, unsigned char value,
                                         size_t width, size_t height) {
    const CUresult refused = ENTER(cuMemsetD2D8_v2);
    const fill_request wanted = {address, pitch, width, height, value, 1};
    return refused != CUDA_SUCCESS ? refused : entry_leave(fill_now(&wanted));
}

GPUIPC_EXPORTED CUresult cuMemsetD2D16_v2(CUdeviceptr address, size_t pitch, unsigned short value,
                                          size_t width, size_t height) {
    const CUresult refused = ENTER(cuMemsetD2D16_v2);
    const fill_request wanted = {address, pitch, width, height, value, 2};
    return refused != CUDA_SUCCESS ? refused : entry_leave(fill_now(&wanted));
}

GPUIPC_EXPORTED CUresult cuMemsetD2D32_v2(CUdeviceptr address, size_t pitch, unsigned int value,
                                          size_t width, size_t height) {
    const CUresult refused = ENTER(cuMemsetD2D32_v2);
    const fill_request wanted = {address, pitch, width, height, value, 4};
    return refused != CUDA_SUCCESS ? refused : entry_leave(fill_now(&wanted));
}

GPUIPC_EXPORTED CUresult cuMemsetD2D8Async(CUdeviceptr address, size_t pitch, unsigned char value,
                                           size_t width, size_t height, CUstream on) {
    const CUresult refused = ENTER(cuMemsetD2D8Async);
    const fill_request wanted = {address, pitch, width, height, value, 1};
    return refused != CUDA_SUCCESS ? refused : entry_leave(fill(&wanted, on));
}

GPUIPC_EXPORTED CUresult cuMemsetD2D16Async(CUdeviceptr address, size_t pitch, unsigned short value,
                                            size_t width, size_t height, CUstream on) {
    const CUresult refused = ENTER(cuMemsetD2D16Async);
    const fill_request wanted = {address, pitch, width, height, value, 2};
    return refused != CUDA_SUCCESS ? refused : entry_leave(fill(&wanted, on));
}

GPUIPC_EXPORTED CUresult cuMemsetD2D32Async(CUdeviceptr address, size_t pitch, unsigned int value,
                                            size_t width, size_t height, CUstream on) {
    const CUresult refused = ENTER(cuMemsetD2D32Async);
    const fill_request wanted = {address, pitch, width, height, value, 4};
    return refused != CUDA_SUCCESS ? refused : entry_leave(fill(&wanted, on));
}
