/* SPDX-License-Identifier: MIT */
/**
 * @file Trials of the transports p2p and legacy: memory of cuMemAlloc, which another device of the process
 * reaches by peer access. For legacy also its handle is made; the process that made it cannot open it
 * (CUDA_ERROR_INVALID_CONTEXT, measured on an H200, driver 580), so that part stays untried.
 */
#include "transport_probe.h"

static bool allocate(probe *self) {
    device_scope scope;
    if (!probe_enter(self, PROBE_OWNER, &scope)) {
        return false;
    }
    const bool passed = probe_passed(
        self, self->ctx->driver.cuMemAlloc(&self->plain[PROBE_OWNER], self->bytes), "cuMemAlloc");
    device_leave(&scope);
    self->at[PROBE_OWNER] = self->at[PROBE_USER] = self->plain[PROBE_OWNER];
    return passed;
}

/* Access that the user of the library has enabled himself is not ours to disable. */
static gpuipc_status enable(context *ctx, const counted_key *key, void *argument,
                            uint64_t *out_value) {
    CUcontext reached = argument;
    (void)key;
    CUresult result = ctx->driver.cuCtxEnablePeerAccess(reached, 0);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) {
        return driver_status(&ctx->driver, result, "cuCtxEnablePeerAccess",
                             "letting one device reach another's memory");
    }
    *out_value = result == CUDA_SUCCESS;
    return GPUIPC_OK;
}

static void disable(context *ctx, const counted_key *key, uint64_t value) {
    if (value != 0) {
        (void)ctx->driver.cuCtxDisablePeerAccess((CUcontext)(uintptr_t)key->number);
    }
}

/* The same key as in transport_p2p.c: a buffer that uses the access keeps it. */
static bool reach(probe *self) {
    static const counted_maker maker = {enable, disable, false};
    const uint32_t owner = self->devices[PROBE_OWNER];
    const uint32_t user = self->devices[PROBE_USER];
    CUcontext reached = self->ctx->devices[owner].primary;
    const counted_key key = {
        .kind = COUNTED_PEER, .device = user, .number = (uint64_t)(uintptr_t)reached};
    return owner == user ||
           probe_done(self, counted_take(self->ctx, &key, &maker, reached, &self->peer));
}

static void close_peer(probe *self) {
    device_scope scope;
    counted_give(self->ctx, self->peer, false);
    if (self->plain[PROBE_OWNER] != 0 &&
        device_enter(self->ctx, self->devices[PROBE_OWNER], &scope) == GPUIPC_OK) {
        (void)self->ctx->driver.cuMemFree(self->plain[PROBE_OWNER]);
        device_leave(&scope);
    }
}

static bool open_p2p(probe *self) {
    return probe_reaches(self) && allocate(self) && reach(self);
}

static bool make_handle(probe *self) {
    const driver *drv = &self->ctx->driver;
    CUipcMemHandle handle = {{0}};
    device_scope scope;
    if (!probe_enter(self, PROBE_OWNER, &scope)) {
        return false;
    }
    const bool passed = probe_passed(
        self, drv->cuIpcGetMemHandle(&handle, self->plain[PROBE_OWNER]), "cuIpcGetMemHandle");
    device_leave(&scope);
    return passed;
}

static bool open_legacy(probe *self) {
    self->answer.proof = GPUIPC_PROOF_ATTRIBUTES;
    if (!self->ctx->driver.has_legacy) {
        return probe_refuse(self, GPUIPC_REASON_DRIVER_TOO_OLD, "it has no calls for legacy IPC");
    }
    return probe_reaches(self) && allocate(self) && make_handle(self) && reach(self);
}

const probe_way probe_way_p2p = {open_p2p, close_peer, NULL};
const probe_way probe_way_legacy = {open_legacy, close_peer, NULL};
