/* SPDX-License-Identifier: MIT */
/** @file See segment.h. */
#include "memory/segment.h"

#include <inttypes.h>
#include <stdio.h>

#define HANDLE_TYPE ((CUmemAllocationHandleType)os_shareable_handle_type)

gpuipc_status segment_create(const driver *drv, const CUmemAllocationProp *prop, uint64_t bytes,
                             segment *out_segment) {
    char what[80];
    segment made = SEGMENT_NONE;
    CUresult result = drv->cuMemCreate(&made.allocation, bytes, prop, 0);
    if (result != CUDA_SUCCESS) {
        (void)snprintf(what, sizeof(what), "allocating %" PRIu64 " bytes on device %d", bytes,
                       prop->location.id);
        return driver_status(drv, result, "cuMemCreate", what);
    }
    made.bytes = bytes;
    *out_segment = made;
    return GPUIPC_OK;
}

gpuipc_status segment_import(const driver *drv, intptr_t native, uint64_t bytes,
                             segment *out_segment) {
    segment opened = SEGMENT_NONE;
    /* The driver takes an int on Linux, and would cut this to the number of another. */
    if (!os_handle_is_valid((os_handle){native})) {
        return status_fail(GPUIPC_ERR_NOT_GPU_MEMORY, "%" PRIdPTR " is the number of no handle",
                           native);
    }
    CUresult result =
        drv->cuMemImportFromShareableHandle(&opened.allocation, (void *)native, HANDLE_TYPE);
    /* On Linux the driver answers UNKNOWN for every handle that is not memory of its own
     * (tests/conformance: -1, a file, a memfd, an eventfd, a socket, /dev/null), and NOT_SUPPORTED for a pool's;
     * INVALID_VALUE and INVALID_HANDLE are what its documentation promises for them. */
    if (result == CUDA_ERROR_UNKNOWN || result == CUDA_ERROR_INVALID_VALUE ||
        result == CUDA_ERROR_INVALID_HANDLE || result == CUDA_ERROR_NOT_SUPPORTED) {
        return status_fail_cuda(GPUIPC_ERR_NOT_GPU_MEMORY, result, "cuMemImportFromShareableHandle",
                                "handle %" PRIdPTR " is no GPU memory that this driver can open",
                                native);
    }
    if (result != CUDA_SUCCESS) {
        return driver_status(drv, result, "cuMemImportFromShareableHandle",
                             "opening memory of another process");
    }
    opened.bytes = bytes;
    *out_segment = opened;
    return GPUIPC_OK;
}

gpuipc_status segment_check_export(const segment *self, bool is_imported) {
    if (is_imported && !os_handle_is_valid(self->kept)) {
        return status_fail(GPUIPC_ERR_NOT_SHAREABLE,
                           "the buffer came from another process without its handles being kept; "
                           "receive it with GPUIPC_RECEIVE_KEEP_HANDLES to send it on");
    }
    return GPUIPC_OK;
}

gpuipc_status segment_export(const driver *drv, const segment *self, os_handle *out_handle) {
    uint64_t written = 0; /* an int or a HANDLE, as the system has it */
    CUresult result = drv->cuMemExportToShareableHandle(&written, self->allocation, HANDLE_TYPE, 0);
    if (result == CUDA_ERROR_INVALID_VALUE) {
        return status_fail_cuda(GPUIPC_ERR_NOT_SHAREABLE, result, "cuMemExportToShareableHandle",
                                "the memory was not allocated to be shared as this system's "
                                "handles");
    }
    if (result != CUDA_SUCCESS) {
        return driver_failed(drv, result, "cuMemExportToShareableHandle",
                             "making a handle of memory");
    }
    return os_handle_adopt_exported(&written, out_handle);
}

void segment_release(const driver *drv, segment *self, bool forked) {
    if (self->allocation != 0 && !forked) {
        (void)drv->cuMemRelease(self->allocation); /* fails only for a handle already released */
    }
    /* In a child the descriptor is closed already, and its number may be in use again. */
    if (!forked) {
        os_handle_close(&self->kept);
    }
    quota_return(&self->charge);
    *self = SEGMENT_NONE;
}
