/* SPDX-License-Identifier: MIT */
/** @file See copy_route.h. */
#include "copy/copy_route.h"

/* Whether the device of the current context reaches an address. Measured for every kind of memory on an
 * H200 (driver 580): what it reaches has a device pointer, and what it does not, has none. */
static gpuipc_status ask(const driver *drv, CUdeviceptr address, bool *out_reaches) {
    CUdeviceptr pointer = 0;
    const CUresult result =
        drv->cuPointerGetAttribute(&pointer, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, address);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_INVALID_VALUE) {
        return driver_status(drv, result, "cuPointerGetAttribute",
                             "asking whether a device reaches a buffer");
    }
    *out_reaches = result == CUDA_SUCCESS;
    return GPUIPC_OK;
}

static gpuipc_status ask_both(const driver *drv, CUdeviceptr one, CUdeviceptr other,
                              bool *out_reaches) {
    bool reaches = false;
    gpuipc_status status = ask(drv, one, &reaches);
    if (status == GPUIPC_OK && reaches) {
        status = ask(drv, other, &reaches);
    }
    *out_reaches = reaches;
    return status;
}

gpuipc_status copy_route_find(const buffer *destination, uint64_t destination_offset,
                              const buffer *source, uint64_t source_offset, copy_route *out_route) {
    context *ctx = destination->context;
    const CUdeviceptr into = buffer_address(destination, destination_offset);
    const CUdeviceptr from = buffer_address(source, source_offset);
    const uint32_t devices[] = {destination->access_device, source->access_device};
    bool reaches = false;
    gpuipc_status status = ask_both(&ctx->driver, into, from, &reaches);
    if (status != GPUIPC_OK) {
        return status;
    }
    *out_route = (copy_route){.way = COPY_WAY_DIRECT};
    for (size_t i = 0; i < 2 && !reaches; i++) {
        device_scope scope;
        if (devices[i] == GPUIPC_DEVICE_NONE) {
            return GPUIPC_OK; /* nothing is known of it: the driver will say what is wrong */
        }
        status = device_enter(ctx, devices[i], &scope);
        if (status != GPUIPC_OK) {
            return status;
        }
        status = ask_both(&ctx->driver, into, from, &reaches);
        device_leave(&scope);
        if (status != GPUIPC_OK) {
            return status;
        }
        *out_route = (copy_route){.way = COPY_WAY_BESIDES, .device = devices[i]};
    }
    /* Two buffers for one device that does not reach them have lost its access: no other way helps. */
    if (!reaches) {
        out_route->way = devices[0] == devices[1] ? COPY_WAY_DIRECT : COPY_WAY_STAGED;
    }
    return GPUIPC_OK;
}
