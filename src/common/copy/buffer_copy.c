/* SPDX-License-Identifier: MIT */
/** @file Moving data into, out of and between buffers. */
#include "copy/buffer_copy.h"

#include <inttypes.h>
#include <stdio.h>

#include "copy/copy_route.h"
#include "copy/detour.h"
#include "copy/staging.h"

/* A default stream is that of the device the buffer is mapped for. */
static gpuipc_status enter(const buffer *self, gpuipc_stream stream, device_scope *out_scope) {
    return device_enter_stream(self->context, stream, self->access_device, out_scope);
}

/* The number of the device whose CUDA context is current. */
static uint32_t current_device(const context *ctx) {
    CUdevice current;
    if (ctx->driver.cuCtxGetDevice(&current) == CUDA_SUCCESS) {
        for (uint32_t i = 0; i < ctx->device_count; i++) {
            if (ctx->devices[i].ordinal == current) {
                return i;
            }
        }
    }
    return GPUIPC_DEVICE_NONE;
}

/* That a stream is of a device that may not write the memory the driver says as CUDA_ERROR_INVALID_VALUE (measured on an
 * H200, driver 580).
 * @param doing what was done to the buffer, which is named behind it */
static gpuipc_status write_refused(const buffer *self, CUresult result, const char *call,
                                   const char *doing) {
    char what[160];
    const uint32_t current = current_device(self->context);
    const bool may_write =
        current == self->access_device && buffer_access(self) != GPUIPC_ACCESS_READ;
    if (result != CUDA_ERROR_INVALID_VALUE || may_write || current == GPUIPC_DEVICE_NONE) {
        (void)snprintf(what, sizeof(what), "%s a buffer", doing);
    } else {
        (void)snprintf(what, sizeof(what),
                       "%s a buffer of device %" PRIu32 " on a stream of device %" PRIu32
                       ", which needs access to write it (gpuipc_buffer_set_access)",
                       doing, self->access_device, current);
    }
    return driver_failed(&self->context->driver, result, call, what);
}

/* Not by cuMemcpyDtoDAsync: either may be host memory, which that call is not for. */
static gpuipc_status copy_here(const buffer *destination, CUdeviceptr into, CUdeviceptr from,
                               uint64_t bytes, CUstream stream) {
    const CUresult result = destination->context->driver.cuMemcpyAsync(into, from, bytes, stream);
    return result == CUDA_SUCCESS ? GPUIPC_OK
                                  : write_refused(destination, result, "cuMemcpyAsync",
                                                  "copying from one buffer into");
}

/* By a device that reaches both while that of the caller's stream does not. */
static gpuipc_status copy_besides(const buffer *destination, uint32_t index, CUdeviceptr into,
                                  CUdeviceptr from, uint64_t bytes, gpuipc_stream stream) {
    context *ctx = destination->context;
    const driver *drv = &ctx->driver;
    device_scope scope;
    CUstream other = NULL;
    CUevent left;
    CUevent back = NULL;
    gpuipc_status status = detour_leave(drv, stream, &left);
    if (status != GPUIPC_OK) {
        return status;
    }
    if ((status = device_enter(ctx, index, &scope)) != GPUIPC_OK) {
        goto forget;
    }
    if ((status = detour_stream_new(drv, &other)) == GPUIPC_OK &&
        (status = detour_event_new(drv, &back)) == GPUIPC_OK &&
        (status = detour_enter(drv, left, other)) == GPUIPC_OK) {
        status = copy_here(destination, into, from, bytes, other);
    }
    device_leave(&scope);
    if (status == GPUIPC_OK) {
        status = detour_return(drv, other, back, stream);
    }
    detour_event_destroy(drv, back);
    detour_stream_destroy(drv, other);
forget:
    detour_event_destroy(drv, left);
    return status;
}

static gpuipc_status copy_by(const copy_route *route, const buffer *destination,
                             uint64_t destination_offset, const buffer *source,
                             uint64_t source_offset, uint64_t bytes, gpuipc_stream stream) {
    const staging_end into = {destination->access_device,
                              buffer_address(destination, destination_offset)};
    const staging_end from = {source->access_device, buffer_address(source, source_offset)};
    switch (route->way) {
    case COPY_WAY_STAGED:
        return staging_copy(destination->context, &into, &from, bytes, stream);
    case COPY_WAY_BESIDES:
        return copy_besides(destination, route->device, into.address, from.address, bytes, stream);
    default:
        return copy_here(destination, into.address, from.address, bytes, stream);
    }
}

/* In the stream's CUDA context. */
static gpuipc_status copy_on_stream(buffer *destination, uint64_t destination_offset,
                                    buffer *source, uint64_t source_offset, uint64_t bytes,
                                    gpuipc_stream stream) {
    copy_route route;
    work_place *writes;
    work_place *reads;
    gpuipc_status status =
        copy_route_find(destination, destination_offset, source, source_offset, &route);
    if (status != GPUIPC_OK ||
        (status = buffer_work_begin(destination, stream, &writes)) != GPUIPC_OK) {
        return status;
    }
    if ((status = buffer_work_begin(source, stream, &reads)) == GPUIPC_OK) {
        status =
            copy_by(&route, destination, destination_offset, source, source_offset, bytes, stream);
        buffer_work_end(source, reads, stream);
    }
    buffer_work_end(destination, writes, stream);
    return status;
}

gpuipc_status buffer_copy(buffer *destination, uint64_t destination_offset, buffer *source,
                          uint64_t source_offset, uint64_t bytes, gpuipc_stream stream) {
    device_scope scope;
    gpuipc_status status;
    if (destination->context != source->context) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "the buffers belong to two contexts");
    }
    if ((status = buffer_check_range(destination, destination_offset, bytes)) != GPUIPC_OK ||
        (status = buffer_check_range(source, source_offset, bytes)) != GPUIPC_OK ||
        (status = buffer_check_writable(destination)) != GPUIPC_OK || bytes == 0 ||
        (status = enter(destination, stream, &scope)) != GPUIPC_OK) {
        return status;
    }
    status = copy_on_stream(destination, destination_offset, source, source_offset, bytes, stream);
    device_leave(&scope);
    return status;
}

gpuipc_status gpuipc_buffer_copy_async(gpuipc_buffer *destination_handle,
                                       uint64_t destination_offset, gpuipc_buffer *source_handle,
                                       uint64_t source_offset, uint64_t bytes,
                                       gpuipc_stream stream) {
    status_enter(__func__);
    buffer *destination;
    buffer *source;
    if (destination_handle == NULL || source_handle == NULL) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "%s is NULL",
                           destination_handle == NULL ? "destination" : "source");
    }
    gpuipc_status status = buffer_acquire(destination_handle, &destination);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = buffer_acquire(source_handle, &source);
    if (status == GPUIPC_OK) {
        status = buffer_copy(destination, destination_offset, source, source_offset, bytes, stream);
        buffer_unreference(source);
    }
    buffer_unreference(destination);
    return status;
}

static CUresult fill_async(const driver *drv, CUdeviceptr address, uint64_t bytes, uint32_t value,
                           uint32_t width, gpuipc_stream stream) {
    switch (width) {
    case 1:
        return drv->cuMemsetD8Async(address, (unsigned char)value, bytes, stream);
    case 2:
        return drv->cuMemsetD16Async(address, (unsigned short)value, bytes / 2, stream);
    default:
        return drv->cuMemsetD32Async(address, value, bytes / 4, stream);
    }
}

static gpuipc_status fill(buffer *self, uint64_t offset, uint64_t bytes, uint32_t value,
                          uint32_t width, gpuipc_stream stream) {
    const driver *drv = &self->context->driver;
    device_scope scope;
    work_place *place;
    gpuipc_status status = buffer_check_range(self, offset, bytes);
    if (status != GPUIPC_OK || (status = buffer_check_writable(self)) != GPUIPC_OK) {
        return status;
    }
    if ((width != 1 && width != 2 && width != 4) || bytes % width != 0 ||
        buffer_address(self, offset) % width != 0) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT,
                           "width must be 1, 2 or 4, and the address and bytes multiples of it");
    }
    if (bytes == 0) {
        return GPUIPC_OK;
    }
    status = enter(self, stream, &scope);
    if (status != GPUIPC_OK) {
        return status;
    }
    if ((status = buffer_work_begin(self, stream, &place)) == GPUIPC_OK) {
        const CUresult result =
            fill_async(drv, buffer_address(self, offset), bytes, value, width, stream);
        if (result != CUDA_SUCCESS) {
            status = write_refused(self, result, "cuMemsetD*Async", "filling");
        }
        buffer_work_end(self, place, stream);
    }
    device_leave(&scope);
    return status;
}

gpuipc_status gpuipc_buffer_fill_async(gpuipc_buffer *handle, uint64_t offset, uint64_t bytes,
                                       uint32_t value, uint32_t width, gpuipc_stream stream) {
    status_enter(__func__);
    buffer *self;
    gpuipc_status status = buffer_acquire(handle, &self);
    if (status == GPUIPC_OK) {
        status = fill(self, offset, bytes, value, width, stream);
        buffer_unreference(self);
    }
    return status;
}

static gpuipc_status check_host(const buffer *self, uint64_t offset, const void *host,
                                uint64_t bytes) {
    if (host == NULL && bytes > 0) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "host is NULL");
    }
    return buffer_check_range(self, offset, bytes);
}

gpuipc_status gpuipc_buffer_write(gpuipc_buffer *handle, uint64_t offset, const void *host,
                                  uint64_t bytes) {
    status_enter(__func__);
    buffer *self;
    device_scope scope;
    gpuipc_status status = buffer_acquire(handle, &self);
    if (status != GPUIPC_OK) {
        return status;
    }
    const driver *drv = &self->context->driver;
    if ((status = check_host(self, offset, host, bytes)) == GPUIPC_OK && bytes > 0 &&
        (status = buffer_check_writable(self)) == GPUIPC_OK &&
        (status = enter(self, NULL, &scope)) == GPUIPC_OK) {
        status = buffer_work_await(self);
        if (status == GPUIPC_OK) {
            status = DRIVER_CALL(drv, cuMemcpyHtoD, (buffer_address(self, offset), host, bytes),
                                 "writing into a buffer");
        }
        /* From pageable memory it may return when the data is staged but not yet there (CUDA
         * Driver API, "API synchronization behavior"). */
        if (status == GPUIPC_OK) {
            status = DRIVER_CALL(drv, cuStreamSynchronize, (NULL), "waiting for a write");
        }
        device_leave(&scope);
    }
    buffer_unreference(self);
    return status;
}

gpuipc_status gpuipc_buffer_read(gpuipc_buffer *handle, uint64_t offset, void *host,
                                 uint64_t bytes) {
    status_enter(__func__);
    buffer *self;
    device_scope scope;
    gpuipc_status status = buffer_acquire(handle, &self);
    if (status != GPUIPC_OK) {
        return status;
    }
    const driver *drv = &self->context->driver;
    if ((status = check_host(self, offset, host, bytes)) == GPUIPC_OK && bytes > 0 &&
        (status = enter(self, NULL, &scope)) == GPUIPC_OK) {
        status = buffer_work_await(self);
        if (status == GPUIPC_OK) {
            status = DRIVER_CALL(drv, cuMemcpyDtoH, (host, buffer_address(self, offset), bytes),
                                 "reading from a buffer");
        }
        device_leave(&scope);
    }
    buffer_unreference(self);
    return status;
}
