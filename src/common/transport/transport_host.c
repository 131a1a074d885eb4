/* SPDX-License-Identifier: MIT */
/** @file Host memory that every process that has it registers with its driver. */
#include <inttypes.h>

#include "transport/transports.h"

#define CREATE  "gpuipc_buffer_create"
#define RECEIVE "gpuipc_connection_receive"

/* A multiple of every system's pages. */
#define UNIT_BYTES UINT64_C(65536)

static gpuipc_status check_device(const context *ctx, uint32_t index, const char *call) {
    if (!ctx->driver.has_pinned) {
        return status_fail(GPUIPC_ERR_NOT_SUPPORTED,
                           "the driver has no calls for host memory that devices reach");
    }
    return transport_check_attribute(
        ctx, index, CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, ~0, call,
        "it cannot reach host memory that its driver did not allocate");
}

/* Registers the one segment for the device that uses it, and finds the address there. */
static gpuipc_status register_memory(buffer *self) {
    const driver *drv = &self->context->driver;
    const segment *of = &self->segments[0];
    CUdeviceptr address = 0;
    device_scope scope;
    gpuipc_status status = device_enter(self->context, self->access_device, &scope);
    if (status != GPUIPC_OK) {
        return status;
    }
    CUresult result = drv->cuMemHostRegister(
        of->host, of->bytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        status = status_fail_cuda(GPUIPC_ERR_OUT_OF_MEMORY, result, "cuMemHostRegister",
                                  "the system does not let %" PRIu64 " bytes be pinned (memory, "
                                  "ulimit -l)",
                                  of->bytes);
    } else {
        status = driver_status(drv, result, "cuMemHostRegister", "pinning host memory");
    }
    if (status != GPUIPC_OK) {
        goto leave;
    }
    status = DRIVER_CALL(drv, cuMemHostGetDevicePointer, (&address, of->host, 0),
                         "asking where a device has host memory");
    if (status != GPUIPC_OK) {
        (void)drv->cuMemHostUnregister(of->host);
        goto leave;
    }
    self->mapping = (mapping){.base = address, .bytes = of->bytes};
leave:
    device_leave(&scope);
    return status;
}

gpuipc_status transport_host_make(buffer *self, uint64_t bytes) {
    gpuipc_status status = buffer_grow(self);
    if (status != GPUIPC_OK) {
        return status;
    }
    if (bytes > INT64_MAX - UNIT_BYTES) {
        return status_fail(GPUIPC_ERR_OUT_OF_MEMORY, "%" PRIu64 " bytes is more than any host has",
                           bytes);
    }
    segment *of = &self->segments[0];
    of->bytes = (bytes + UNIT_BYTES - 1) / UNIT_BYTES * UNIT_BYTES;
    self->segment_count = 1;
    status = os_memory_create("gpuipc-buffer", of->bytes, &of->kept);
    return status == GPUIPC_OK ? os_memory_map(of->kept, of->bytes, true, &of->host) : status;
}

static gpuipc_status allocate(buffer *self, const gpuipc_buffer_config *config) {
    gpuipc_status status = check_device(self->context, self->owner, CREATE);
    if (status == GPUIPC_OK) {
        status = transport_host_make(self, config->bytes);
    }
    return status == GPUIPC_OK ? register_memory(self) : status;
}

static gpuipc_status check_export(const buffer *self, const os_peer *peer) {
    (void)peer;
    return segment_check_export(&self->segments[0], self->origin == GPUIPC_BUFFER_OPENED);
}

static gpuipc_status export_segment(const buffer *self, segment *of, bool has_pool,
                                    exported_segment *out_export) {
    (void)self;
    (void)has_pool;
    *out_export =
        (exported_segment){.record = {.bytes = of->bytes, .naming = SEGMENT_NAMED_BY_HANDLE},
                           .handle = of->kept, /* which check_export() has seen */
                           .is_kept = true};
    return GPUIPC_OK;
}

/* Mapped at once, so that a message never holds more handles than one packet has. */
static gpuipc_status import_segment(import_source *from, const segment_record *record,
                                    os_handle *handle, bool keep_handle, segment *out_segment) {
    uint64_t bytes = 0;
    segment taken = SEGMENT_NONE;
    gpuipc_status status = transport_check_single(from, "host memory");
    if (status != GPUIPC_OK) {
        return status;
    }
    status = os_memory_inspect(*handle, &bytes);
    if (status == GPUIPC_ERR_PROTOCOL) {
        /* it could shrink while a device reads it; the message is lost, not the connection */
        return status_change(GPUIPC_ERR_NOT_GPU_MEMORY);
    }
    if (status == GPUIPC_OK && (record->bytes == 0 || record->bytes != bytes)) {
        status = status_fail(GPUIPC_ERR_SIZE_MISMATCH,
                             "host memory of %" PRIu64 " bytes is said to have %" PRIu64, bytes,
                             record->bytes);
    }
    if (status != GPUIPC_OK ||
        (status = os_memory_map(*handle, bytes, true, &taken.host)) != GPUIPC_OK) {
        return status;
    }
    taken.bytes = bytes;
    if (keep_handle) {
        taken.kept = *handle;
        *handle = OS_HANDLE_NONE;
    }
    *out_segment = taken;
    return GPUIPC_OK;
}

static gpuipc_status open_buffer(buffer *self, const buffer_source *source, gpuipc_access access) {
    (void)source;
    (void)access;
    gpuipc_status status = check_device(self->context, self->access_device, RECEIVE);
    return status == GPUIPC_OK ? register_memory(self) : status;
}

/* It is registered for all devices (PORTABLE); they must find it at the same address. */
static gpuipc_status set_access(buffer *self, uint32_t index, gpuipc_access access) {
    const driver *drv = &self->context->driver;
    CUdeviceptr address = 0;
    device_scope scope;
    (void)access;
    gpuipc_status status = device_enter(self->context, index, &scope);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = DRIVER_CALL(drv, cuMemHostGetDevicePointer, (&address, self->segments[0].host, 0),
                         "asking where a device has host memory");
    device_leave(&scope);
    if (status == GPUIPC_OK && address != self->mapping.base) {
        status = status_fail(GPUIPC_ERR_NOT_SUPPORTED,
                             "device %u has the host memory at another address", index);
    }
    return status;
}

/* cuMemHostUnregister does. A copy that is only sent is not registered. */
static bool release_waits(buffer *self) {
    return self->mapping.base != 0;
}

static void release(buffer *self) {
    device_scope scope;
    if (self->mapping.base != 0 &&
        device_enter(self->context, self->access_device, &scope) == GPUIPC_OK) {
        (void)self->context->driver.cuMemHostUnregister(self->segments[0].host);
        device_leave(&scope);
    }
    self->mapping = (mapping){0};
}

static void release_segment(context *ctx, segment *of, bool forked) {
    (void)ctx;
    if (of->host != NULL) {
        os_memory_unmap(of->host, of->bytes);
    }
    if (!forked) { /* in a child it is closed already */
        os_handle_close(&of->kept);
    }
    quota_return(&of->charge);
    *of = SEGMENT_NONE;
}

const transport transport_host = {
    .id = GPUIPC_TRANSPORT_HOST,
    .name = "host",
    .lies_in_host = true,
    .memory = SEGMENT_MEMORY_HOST,
    .naming = SEGMENT_NAMED_BY_HANDLE,
    .allocate = allocate,
    .check_export = check_export,
    .export_segment = export_segment,
    .import_segment = import_segment,
    .open = open_buffer,
    .set_access = set_access,
    .release = release,
    .release_waits = release_waits,
    .release_segment = release_segment,
};
