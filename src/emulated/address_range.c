/* SPDX-License-Identifier: MIT */
/** @file Descriptors of address ranges, for other devices. The answers are those of an H200. */
#include <string.h>

#include "address_space.h"
#include "dma_buf.h"
#include "entry.h"

/* Whether a range is mapped without a gap, by memory of one device (of none: cuda.h wants device memory). Several allocations are fine. */
static bool is_on_one_device(CUdeviceptr address, uint64_t bytes) {
    const mapping *first = address_mapping(address);
    for (CUdeviceptr at = address; at < address + bytes;) {
        const mapping *mapped = address_mapping(at);
        if (mapped == NULL || mapped->memory->is_host ||
            mapped->memory->physical != first->memory->physical) {
            return false;
        }
        at = mapped->at.base + mapped->at.size;
    }
    return true;
}

static CUresult get_handle(void *out, CUdeviceptr address, uint64_t bytes,
                           CUmemRangeHandleType type, unsigned long long flags) {
    int number;
    const uint64_t page = os_page_bytes(); /* cuda.h: "aligned to the host page size" */
    if (out == NULL || type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD || bytes == 0 ||
        address % page != 0 || bytes % page != 0 || bytes > UINT64_MAX - address ||
        (flags & ~(unsigned long long)CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (flags != 0 || !state_has_dma_buf()) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (!is_on_one_device(address, bytes)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const CUresult result = dma_buf_create(bytes, &number);
    if (result == CUDA_SUCCESS) {
        memcpy(out, &number, sizeof(number)); /* cuda.h: "a pointer to an integer" */
    }
    return result;
}

GPUIPC_EXPORTED CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr address,
                                                       size_t bytes, CUmemRangeHandleType type,
                                                       unsigned long long flags) {
    const CUresult refused = ENTER(cuMemGetHandleForAddressRange);
    return refused != CUDA_SUCCESS ? refused
                                   : entry_leave(get_handle(handle, address, bytes, type, flags));
}
