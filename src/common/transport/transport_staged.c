/* SPDX-License-Identifier: MIT */
/** @file Wrapped memory that no transport carries: it travels as a copy in host memory, or not at all. */
#include "transport/transports.h"

static const char *why_not(const buffer *self) {
    switch (self->kind) {
    case GPUIPC_MEMORY_VMM:
        return "the memory, or part of it, was allocated without this system's handle type, or "
               "opened from another process; name the type in "
               "CUmemAllocationProp::requestedHandleTypes, or let its owner send it";
    case GPUIPC_MEMORY_MANAGED:
        return "managed memory moves between host and devices and has no handle";
    case GPUIPC_MEMORY_PINNED:
        return "pinned host memory of the caller's has no handle; GPUIPC_TRANSPORT_HOST makes some "
               "that has";
    case GPUIPC_MEMORY_POOL:
        return "the memory is of a pool without this system's handle type (the default pool has "
               "none); allocate from one made with CUmemPoolProps::handleTypes";
    default:
        return "this machine has no legacy IPC for memory of cuMemAlloc; use vmm memory";
    }
}

static gpuipc_status check_export(const buffer *self, const os_peer *peer) {
    (void)peer;
    return status_fail(GPUIPC_ERR_NOT_SHAREABLE, "%s; GPUIPC_SEND_STAGED sends a copy",
                       why_not(self));
}

static gpuipc_status set_access(buffer *self, uint32_t index, gpuipc_access access) {
    if (self->kind == GPUIPC_MEMORY_MANAGED || self->kind == GPUIPC_MEMORY_PINNED) {
        return GPUIPC_OK; /* every device reaches it as it is */
    }
    if (self->kind == GPUIPC_MEMORY_VMM) {
        return transport_vmm_set_access(self, index, access);
    }
    if (self->kind == GPUIPC_MEMORY_DEVICE) {
        return transport_plain_set_access(self, index, access);
    }
    return index == self->owner
               ? GPUIPC_OK
               : status_fail(GPUIPC_ERR_NOT_SUPPORTED,
                             "access to a pool of the caller's is the caller's to set "
                             "(cuMemPoolSetAccess)");
}

/* Copies on the stream and waits: the message leaves afterwards. */
static gpuipc_status fill(const buffer *copy, const buffer *of, gpuipc_stream stream) {
    const driver *drv = &of->context->driver;
    device_scope scope;
    gpuipc_status status = device_enter_stream(of->context, stream, of->access_device, &scope);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = DRIVER_CALL(drv, cuMemcpyDtoHAsync,
                         (copy->segments[0].host, buffer_address(of, 0), (size_t)of->bytes, stream),
                         "copying memory that is sent as a copy");
    if (status == GPUIPC_OK) {
        status = DRIVER_CALL(drv, cuStreamSynchronize, (stream),
                             "waiting for a copy that is to be sent");
    }
    device_leave(&scope);
    return status;
}

/* The driver is not told of the memory: to register, to copy and to unregister takes as long as to copy
 * (measured on an H200, driver 580, 512 MiB: 27, 9.7 and 9.4 ms against 44), and to unregister it waits for
 * the devices. */
gpuipc_status transport_staged_copy(const buffer *of, gpuipc_stream stream, buffer **out_copy) {
    buffer *copy;
    gpuipc_status status = buffer_new(of->context, GPUIPC_BUFFER_CREATED, &transport_host, &copy);
    if (status != GPUIPC_OK) {
        return status;
    }
    copy->owner = of->access_device;
    copy->owner_uuid = of->context->devices[of->access_device].info.uuid;
    copy->access_device = of->access_device;
    copy->bytes = of->bytes;
    atomic_store(&copy->access, (int)GPUIPC_ACCESS_READ_WRITE);
    status = transport_host_make(copy, of->bytes);
    if (status == GPUIPC_OK) {
        status = fill(copy, of, stream);
    }
    if (status != GPUIPC_OK) {
        buffer_unwind(copy);
        return status;
    }
    *out_copy = copy;
    return GPUIPC_OK;
}

const transport transport_staged = {
    .id = GPUIPC_TRANSPORT_HOST,
    .name = "host",
    .is_copied = true,
    .check_export = check_export,
    .set_access = set_access,
    .release = transport_plain_release,
    .release_segment = transport_vmm_release_segment, /* there may be allocations */
};
