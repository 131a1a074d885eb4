/* SPDX-License-Identifier: MIT */
/** @file Legacy IPC: memory of cuMemAlloc, which other processes open by a name of 64 bytes. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "memory/registry.h"
#include "transport/transports.h"

_Static_assert(sizeof(CUipcMemHandle) == SEGMENT_NAME_BYTES, "a name is what the driver makes it");

static gpuipc_status check_driver(const context *ctx) {
    return ctx->driver.has_legacy
               ? GPUIPC_OK
               : status_fail(GPUIPC_ERR_NOT_SUPPORTED, "the driver has no calls for legacy IPC");
}

gpuipc_status transport_legacy_name(buffer *self) {
    context *ctx = self->context;
    device_scope scope;
    CUipcMemHandle name = {{0}}; /* the driver need not write all of it */
    gpuipc_status status = check_driver(ctx);
    if (status != GPUIPC_OK || (status = device_enter(ctx, self->owner, &scope)) != GPUIPC_OK) {
        return status;
    }
    CUresult result = ctx->driver.cuIpcGetMemHandle(&name, self->mapping.base);
    device_leave(&scope);
    if (result == CUDA_ERROR_NOT_SUPPORTED) {
        return status_fail_cuda(GPUIPC_ERR_NOT_SUPPORTED, result, "cuIpcGetMemHandle",
                                "this machine has no legacy IPC (Windows Subsystem for Linux, some "
                                "containers); use vmm");
    }
    if (result == CUDA_SUCCESS) {
        memcpy(self->segments[0].name, name.reserved, sizeof(name.reserved));
    }
    return driver_status(&ctx->driver, result, "cuIpcGetMemHandle", "naming memory");
}

static gpuipc_status allocate(buffer *self, const gpuipc_buffer_config *config) {
    gpuipc_status status = check_driver(self->context);
    if (status == GPUIPC_OK) {
        status = transport_plain_make(self, config);
    }
    return status == GPUIPC_OK ? transport_legacy_name(self) : status;
}

static gpuipc_status fail_namespace(gpuipc_status status) {
    return status_fail(status,
                       "the peer is in another PID namespace, and legacy handles name a process; "
                       "use vmm memory, or start both with one PID namespace");
}

static gpuipc_status check_export(const buffer *self, const os_peer *peer) {
    gpuipc_status status = transport_check_owned(self, "legacy memory");
    if (status != GPUIPC_OK) {
        return status;
    }
    if (peer != NULL && peer->other_pid_namespace) {
        return fail_namespace(GPUIPC_ERR_NOT_SHAREABLE);
    }
    return GPUIPC_OK;
}

/* Opening waits until it is known for which device. */
static gpuipc_status import_segment(import_source *from, const segment_record *record,
                                    os_handle *handle, bool keep_handle, segment *out_segment) {
    (void)handle;
    (void)keep_handle;
    gpuipc_status status = check_driver(from->context);
    if (status == GPUIPC_OK && from->peer != NULL && from->peer->other_pid_namespace) {
        status = fail_namespace(GPUIPC_ERR_NOT_SUPPORTED);
    }
    if (status != GPUIPC_OK || (status = transport_check_trusted(from)) != GPUIPC_OK ||
        (status = transport_check_single(from, "legacy IPC")) != GPUIPC_OK) {
        return status;
    }
    *out_segment = transport_named_segment(record);
    return GPUIPC_OK;
}

/* What the driver's answers mean was measured on an H200, driver 580: INVALID_HANDLE: the process that the
 * handle names is gone. INVALID_VALUE and NOT_PERMITTED: the memory was freed, or the bytes are none.
 * INVALID_CONTEXT: it names this very process. */
static gpuipc_status open_failure(const context *ctx, const import_source *from, CUresult result) {
    const bool is_lost = result == CUDA_ERROR_INVALID_HANDLE || import_source_has_ended(from);
    switch (result) {
    case CUDA_ERROR_INVALID_CONTEXT:
        if (from->peer != NULL && from->peer->process_id != os_process_id()) {
            return fail_namespace(GPUIPC_ERR_NOT_SUPPORTED);
        }
        return status_fail_cuda(GPUIPC_ERR_LOST, result, "cuIpcOpenMemHandle",
                                "the buffer was this process's own and has been released");
    case CUDA_ERROR_INVALID_HANDLE:
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_NOT_PERMITTED:
        return status_fail_cuda(is_lost ? GPUIPC_ERR_LOST : GPUIPC_ERR_NOT_GPU_MEMORY, result,
                                "cuIpcOpenMemHandle", "%s",
                                is_lost ? "the process that owns the memory has ended"
                                        : "the bytes name no memory that can be opened: its owner "
                                          "has freed it, or they are no legacy handle");
    case CUDA_ERROR_NOT_SUPPORTED:
        return status_fail_cuda(GPUIPC_ERR_NOT_SUPPORTED, result, "cuIpcOpenMemHandle",
                                "this machine has no legacy IPC; let the peer send vmm memory");
    default:
        return driver_status(&ctx->driver, result, "cuIpcOpenMemHandle",
                             "opening memory of another process");
    }
}

static gpuipc_status open_handle(context *ctx, const driver_reference_key *key, void *argument,
                                 uint64_t *out_value) {
    CUdeviceptr address = 0;
    CUipcMemHandle name;
    memcpy(name.reserved, key->name, sizeof(name.reserved));
    CUresult result =
        ctx->driver.cuIpcOpenMemHandle(&address, name, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    if (result != CUDA_SUCCESS) {
        return open_failure(ctx, argument, result);
    }
    *out_value = address;
    return GPUIPC_OK;
}

static void close_handle(context *ctx, const driver_reference_key *key, uint64_t value) {
    (void)key;
    (void)ctx->driver.cuIpcCloseMemHandle(value);
}

/* The sender's word for the size is checked: work beyond the end would end the CUDA context. */
static gpuipc_status check_size(const buffer *self, CUdeviceptr address) {
    const driver *drv = &self->context->driver;
    CUdeviceptr base = 0;
    size_t bytes = 0;
    device_scope scope;
    gpuipc_status status = device_enter(self->context, self->access_device, &scope);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = DRIVER_CALL(drv, cuMemGetAddressRange, (&base, &bytes, address),
                         "asking for the size of opened memory");
    device_leave(&scope);
    if (status == GPUIPC_OK && (base != address || bytes < self->segments[0].bytes)) {
        status =
            status_fail(GPUIPC_ERR_SIZE_MISMATCH,
                        "the allocation has %zu bytes, not the %" PRIu64 " that it is said to have",
                        bytes, self->segments[0].bytes);
    }
    return status;
}

/* What a message was refused for is closed when calls may wait. */
typedef struct late_close {
    deferred deferred;
    context *ctx;
    driver_reference *made;
} late_close;

static void close_late(deferred *item, bool forked) {
    late_close *self = (late_close *)item;
    driver_reference_release(self->ctx, self->made, forked);
    free(self);
}

static void close_later(context *ctx, driver_reference *made) {
    late_close *self =
        driver_reference_release_unless_last(ctx, made) ? NULL : malloc(sizeof(*self));
    if (self != NULL) { /* else another buffer has it open, or it stays so until the process ends */
        *self = (late_close){.deferred = {.run = close_late}, .ctx = ctx, .made = made};
        deferred_add(ctx->deferred, &self->deferred);
    }
}

static gpuipc_status open_foreign(buffer *self, const buffer_source *source) {
    /* the driver counts how often a handle is opened (cuda.h) */
    static const driver_reference_maker maker = {
        .make = open_handle, .undo = close_handle, .undo_waits = true};
    segment *of = &self->segments[0];
    driver_reference_key key = {.kind = REFERENCE_LEGACY, .device = self->access_device};
    memcpy(key.name, of->name, sizeof(key.name));
    /* the maker gets it as what it is not: it only looks at it */
    gpuipc_status status = driver_reference_take(self->context, &key, &maker,
                                                 (void *)(uintptr_t)source->from, &of->made);
    if (status != GPUIPC_OK) {
        return status;
    }
    self->mapping = (mapping){.base = driver_reference_value(of->made), .bytes = of->bytes};
    status = check_size(self, self->mapping.base);
    if (status != GPUIPC_OK) {
        close_later(self->context, of->made);
        of->made = NULL;
    }
    return status;
}

static gpuipc_status open_buffer(buffer *self, const buffer_source *source, gpuipc_access access) {
    (void)access;
    gpuipc_status status = buffer_open_original(self);
    if (status != GPUIPC_OK || self->original == NULL) {
        return status == GPUIPC_OK ? open_foreign(self, source) : status;
    }
    return transport_plain_set_access(self, self->access_device, access);
}

static gpuipc_status set_access(buffer *self, uint32_t index, gpuipc_access access) {
    if (self->origin == GPUIPC_BUFFER_OPENED && self->original == NULL) {
        return index == self->access_device
                   ? GPUIPC_OK
                   : status_fail(GPUIPC_ERR_NOT_SUPPORTED,
                                 "memory opened by legacy IPC is reached by the device that it was "
                                 "received for; receive it for device %u as well",
                                 index);
    }
    return transport_plain_set_access(self, index, access);
}

/* To close it waits, as to free it does (measured on an H200, driver 580). */
static bool release_waits(buffer *self) {
    if (self->origin == GPUIPC_BUFFER_OPENED && self->segment_count > 0 &&
        self->segments[0].made != NULL) {
        if (!driver_reference_release_unless_last(self->context, self->segments[0].made)) {
            return true;
        }
        self->segments[0].made = NULL; /* another buffer has it open as well */
    }
    return transport_plain_release_waits(self);
}

static void release(buffer *self) {
    transport_plain_release(self);
    if (self->origin == GPUIPC_BUFFER_OPENED && self->segment_count > 0) {
        driver_reference_release(self->context, self->segments[0].made, false);
        self->segments[0].made = NULL;
    }
}

const transport transport_legacy = {
    .id = GPUIPC_TRANSPORT_LEGACY,
    .name = "legacy",
    .is_zero_copy = true,
    .ends_with_owner = true,
    .is_plain = true,
    .needs_pid_namespace = true,
    .memory = SEGMENT_MEMORY_LEGACY,
    .naming = SEGMENT_NAMED_BY_NAME,
    .allocate = allocate,
    .check_export = check_export,
    .export_segment = transport_export_name,
    .import_segment = import_segment,
    .open = open_buffer,
    .set_access = set_access,
    .release = release,
    .release_waits = release_waits,
    .release_segment = transport_plain_release_segment,
};
