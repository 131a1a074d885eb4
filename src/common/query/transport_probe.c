/* SPDX-License-Identifier: MIT */
/** @file See transport_probe.h: how a trial runs, and what the driver's answers mean in it. */
#include "query/transport_probe.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const probe_way *probe_way_of(gpuipc_transport which) {
    static const probe_way *const ways[GPUIPC_TRANSPORT_ROOM] = {
        [GPUIPC_TRANSPORT_VMM] = &probe_way_vmm,
        [GPUIPC_TRANSPORT_POOL] = &probe_way_pool,
        [GPUIPC_TRANSPORT_LEGACY] = &probe_way_legacy,
        [GPUIPC_TRANSPORT_P2P] = &probe_way_p2p,
        [GPUIPC_TRANSPORT_HOST] = &probe_way_host,
        [GPUIPC_TRANSPORT_FABRIC] = &probe_way_fabric};
    return ways[which];
}

probe probe_begin(context *ctx, uint32_t owner, uint32_t user, uint64_t bytes) {
    return (probe){.ctx = ctx,
                   .devices = {owner, user},
                   .bytes = bytes,
                   .answer = {.reason = GPUIPC_REASON_NONE, .proof = GPUIPC_PROOF_TRIED},
                   .failure = GPUIPC_OK,
                   .segments = {SEGMENT_NONE, SEGMENT_NONE},
                   .handle = OS_HANDLE_NONE};
}

gpuipc_status probe_failure(const probe *self) {
    if (self->failure != GPUIPC_OK) {
        status_restore(&self->record);
    }
    return self->failure;
}

gpuipc_status transport_probe(context *ctx, gpuipc_transport which, uint32_t owner, uint32_t user,
                              transport_answer *out_answer) {
    const probe_way *way = probe_way_of(which);
    probe self = probe_begin(ctx, owner, user, PROBE_BYTES);
    if (way->open(&self)) {
        (void)(way->exchange != NULL ? way->exchange : probe_exchange)(&self);
    }
    way->close(&self);
    if (self.failure == GPUIPC_OK) {
        *out_answer = self.answer;
    }
    return probe_failure(&self);
}

static bool is_slice(const probe *self) {
    return self->ctx->devices[self->devices[PROBE_OWNER]].info.is_mig ||
           self->ctx->devices[self->devices[PROBE_USER]].info.is_mig;
}

/* A refusal that a known circumstance explains. The circumstance alone refuses nothing. */
static gpuipc_reason explain(const probe *self, gpuipc_reason reason) {
    if (reason == GPUIPC_REASON_NO_P2P && is_slice(self)) {
        return GPUIPC_REASON_MIG;
    }
    const bool may_be_wsl = reason == GPUIPC_REASON_NO_P2P || reason == GPUIPC_REASON_HANDLE_TYPE ||
                            reason == GPUIPC_REASON_NOT_SUPPORTED ||
                            reason == GPUIPC_REASON_DRIVER_REFUSED;
    return may_be_wsl && self->ctx->is_wsl ? GPUIPC_REASON_WSL : reason;
}

bool probe_refuse(probe *self, gpuipc_reason reason, const char *format, ...) {
    transport_answer *answer = &self->answer;
    va_list arguments;
    if (answer->reason != GPUIPC_REASON_NONE || self->failure != GPUIPC_OK) {
        return false;
    }
    answer->reason = explain(self, reason);
    answer->proof = GPUIPC_PROOF_NONE;
    va_start(arguments, format);
    (void)vsnprintf(answer->particulars, sizeof(answer->particulars), format, arguments);
    va_end(arguments);
    return false;
}

static gpuipc_reason reason_of(CUresult result) {
    switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY:
        return GPUIPC_REASON_DEVICE_MEMORY;
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
        return GPUIPC_REASON_COMPUTE_MODE;
    case CUDA_ERROR_PEER_ACCESS_UNSUPPORTED:
        return GPUIPC_REASON_NO_P2P;
    case CUDA_ERROR_NOT_SUPPORTED:
        return GPUIPC_REASON_NOT_SUPPORTED;
    case CUDA_ERROR_OPERATING_SYSTEM:
        return driver_lacks_handles(result) ? GPUIPC_REASON_HANDLE_LIMIT
                                            : GPUIPC_REASON_DRIVER_REFUSED;
    default:
        return GPUIPC_REASON_DRIVER_REFUSED;
    }
}

static const char *name_of(const driver *drv, CUresult result) {
    const char *name = NULL;
    return drv->cuGetErrorName(result, &name) == CUDA_SUCCESS && name != NULL
               ? name
               : "a code that it does not name";
}

bool probe_passed(probe *self, CUresult result, const char *call) {
    if (result == CUDA_SUCCESS) {
        return true;
    }
    return probe_refuse(self, reason_of(result), "%s answered %s, %d", call,
                        name_of(&self->ctx->driver, result), (int)result);
}

bool probe_done(probe *self, gpuipc_status status) {
    const gpuipc_error *error = gpuipc_error_get();
    if (status == GPUIPC_OK) {
        return true;
    }
    if (status == GPUIPC_ERR_TOO_MANY_HANDLES) {
        return probe_refuse(self, GPUIPC_REASON_HANDLE_LIMIT, "%s", error->sentence);
    }
    if (error->native_origin == GPUIPC_NATIVE_CUDA) {
        return probe_passed(self, (CUresult)error->native_code, error->native_call);
    }
    if (self->answer.reason == GPUIPC_REASON_NONE && self->failure == GPUIPC_OK) {
        self->failure = status;
        self->record = status_save();
    }
    return false;
}

bool probe_enter(probe *self, unsigned end, device_scope *out_scope) {
    const uint32_t index = self->devices[end];
    const driver *drv = &self->ctx->driver;
    int mode = 0;
    gpuipc_status status = device_enter(self->ctx, index, out_scope);
    if (status == GPUIPC_OK) {
        return true;
    }
    /* Which code the driver has for a forbidden device depends on its version. CU_COMPUTEMODE_DEFAULT
     * is 0 (cuda.h). */
    if (status != GPUIPC_ERR_OUT_OF_DEVICE_MEMORY &&
        drv->cuDeviceGetAttribute(&mode, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE,
                                  self->ctx->devices[index].ordinal) == CUDA_SUCCESS &&
        mode != 0) {
        return probe_refuse(self, GPUIPC_REASON_COMPUTE_MODE, "device %u has mode %d", index, mode);
    }
    return probe_done(self, status);
}

bool probe_reaches(probe *self) {
    const driver *drv = &self->ctx->driver;
    const uint32_t owner = self->devices[PROBE_OWNER];
    const uint32_t user = self->devices[PROBE_USER];
    int can = 0;
    if (owner == user) {
        return true;
    }
    if (!drv->has_p2p) {
        return probe_refuse(self, GPUIPC_REASON_DRIVER_TOO_OLD, "it has no calls for peer access");
    }
    if (!PROBE_CALL(self, cuDeviceCanAccessPeer,
                    (&can, self->ctx->devices[user].ordinal, self->ctx->devices[owner].ordinal))) {
        return false;
    }
    if (can != 0) {
        return true;
    }
    return probe_refuse(self, GPUIPC_REASON_NO_P2P, "device %u does not reach device %u", user,
                        owner);
}

/* ---- the end of memory ---------------------------------------------------------------------- */

/* What a trial leaves behind: to free it waits for what the devices have to do. */
typedef struct probe_rest {
    deferred deferred;
    context *ctx;
    uint32_t device;
    CUdeviceptr plain;
    void *host;
    uint64_t bytes;
    bool is_registered;
} probe_rest;

static void end_rest(deferred *item, bool forked) {
    probe_rest *self = (probe_rest *)item;
    const driver *drv = &self->ctx->driver;
    device_scope scope;
    if (!forked && (self->plain != 0 || self->is_registered) &&
        device_enter(self->ctx, self->device, &scope) == GPUIPC_OK) {
        if (self->plain != 0) {
            (void)drv->cuMemFree(self->plain);
        }
        if (self->is_registered) {
            (void)drv->cuMemHostUnregister(self->host);
        }
        device_leave(&scope);
    }
    if (self->host != NULL) {
        os_memory_unmap(self->host, self->bytes);
    }
    free(self);
}

bool probe_prepare_end(probe *self, unsigned end) {
    self->rests[end] = calloc(1, sizeof(*self->rests[end]));
    return probe_done(self, self->rests[end] != NULL
                                ? GPUIPC_OK
                                : status_out_of_memory(sizeof(*self->rests[end])));
}

void probe_release_memory(probe *self, unsigned end) {
    probe_rest *rest = self->rests[end];
    if (rest == NULL) {
        return;
    }
    *rest = (probe_rest){.deferred = {.bytes = self->bytes, .run = end_rest},
                         .ctx = self->ctx,
                         .device = self->devices[end],
                         .plain = self->plain[end],
                         .host = self->host[end],
                         .bytes = self->bytes,
                         .is_registered = self->is_registered[end]};
    if (self->may_wait || (rest->plain == 0 && !rest->is_registered)) {
        end_rest(&rest->deferred, false);
    } else {
        deferred_add(self->ctx->deferred, &rest->deferred);
    }
}
