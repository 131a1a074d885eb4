/* SPDX-License-Identifier: MIT */
/** @file A dma-buf of a buffer, for other devices of this machine: gpuipc_native.h. */
#include <gpuipc/gpuipc_native.h>

#include <inttypes.h>

#include "base/struct_size.h"
#include "memory/buffer.h"

/* Whole pages, which the driver wants (cuda.h, cuMemGetHandleForAddressRange). */
typedef struct pages {
    CUdeviceptr first;
    uint64_t bytes;
} pages;

static gpuipc_status find_pages(const buffer *self, uint64_t offset, uint64_t bytes, pages *out) {
    const uint64_t page = os_page_bytes();
    const CUdeviceptr begin = buffer_address(self, offset);
    const CUdeviceptr first = begin / page * page;
    const CUdeviceptr end = (begin + bytes + page - 1) / page * page;
    if (self->mapping.base == 0 || first < self->mapping.base ||
        end > self->mapping.base + self->mapping.bytes) {
        return status_fail(GPUIPC_ERR_NOT_SHAREABLE,
                           "a dma-buf consists of whole pages of %" PRIu64
                           " bytes, and those of this range hold other memory too",
                           page);
    }
    *out = (pages){first, end - first};
    return GPUIPC_OK;
}

static gpuipc_status failure(const driver *drv, CUresult result) {
    const char *const call = "cuMemGetHandleForAddressRange";
    switch (result) {
    case CUDA_ERROR_NOT_SUPPORTED:
        return status_fail_cuda(GPUIPC_ERR_NOT_SUPPORTED, result, call,
                                "this driver makes no dma-bufs: NVIDIA's want its open kernel "
                                "modules and Linux 5.12 or newer");
    case CUDA_ERROR_INVALID_VALUE:
        return status_fail_cuda(GPUIPC_ERR_NOT_SHAREABLE, result, call,
                                "this memory can have no dma-buf: it is no memory of a device");
    default:
        return driver_failed(drv, result, call, "making a handle of memory");
    }
}

/* The driver's call, with the context of a device that reaches the memory. */
static gpuipc_status ask_driver(const buffer *self, const pages *of, os_handle *out_handle) {
    const driver *drv = &self->context->driver;
    device_scope scope;
    uint64_t written = 0; /* cuda.h: an int is written there */
    gpuipc_status status = device_enter(self->context, self->access_device, &scope);
    if (status != GPUIPC_OK) {
        return status;
    }
    const CUresult result = drv->cuMemGetHandleForAddressRange(
        &written, of->first, of->bytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
    device_leave(&scope);
    return result == CUDA_SUCCESS ? os_handle_adopt_exported(&written, out_handle)
                                  : failure(drv, result);
}

static gpuipc_status check(const buffer *self, uint64_t offset, uint64_t bytes) {
    if (os_shareable_handle_type == CU_MEM_HANDLE_TYPE_WIN32) {
        return status_fail(GPUIPC_ERR_NOT_SUPPORTED, "Windows has no dma-bufs");
    }
    if (!self->context->driver.has_dmabuf) {
        return status_fail(GPUIPC_ERR_NOT_SUPPORTED,
                           "the driver is too old for dma-bufs, which came with CUDA 11.7");
    }
    if (buffer_access(self) != GPUIPC_ACCESS_READ_WRITE) {
        return status_fail(GPUIPC_ERR_ACCESS_DENIED,
                           "the buffer may only be read, and a dma-buf lets whoever has it write");
    }
    if (bytes == 0) {
        return status_fail(GPUIPC_ERR_OUT_OF_RANGE, "no dma-buf has 0 bytes");
    }
    return buffer_check_range(self, offset, bytes);
}

static gpuipc_status export_range(const buffer *self, uint64_t offset, uint64_t bytes,
                                  gpuipc_native_dmabuf *out_dmabuf) {
    pages of = {0, 0}; /* gcc -O1 does not see that it is set */
    os_handle handle;
    gpuipc_status status = check(self, offset, bytes);
    if (status != GPUIPC_OK || (status = find_pages(self, offset, bytes, &of)) != GPUIPC_OK ||
        (status = ask_driver(self, &of, &handle)) != GPUIPC_OK) {
        return status;
    }
    const gpuipc_native_dmabuf made = {.handle = {os_handle_give_up(&handle)},
                                       .offset = buffer_address(self, offset) - of.first,
                                       .dmabuf_bytes = of.bytes};
    struct_size_write(out_dmabuf, &made, sizeof(made));
    return GPUIPC_OK;
}

gpuipc_status gpuipc_native_export_dmabuf(gpuipc_buffer *handle, uint64_t offset, uint64_t bytes,
                                          gpuipc_native_dmabuf *out_dmabuf) {
    status_enter(__func__);
    buffer *self;
    gpuipc_status status =
        struct_size_check(out_dmabuf, STRUCT_SIZE_UP_TO(gpuipc_native_dmabuf, dmabuf_bytes));
    if (status != GPUIPC_OK || (status = buffer_acquire(handle, &self)) != GPUIPC_OK) {
        return status;
    }
    status = export_range(self, offset, bytes, out_dmabuf);
    buffer_unreference(self);
    return status;
}
