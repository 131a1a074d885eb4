/* SPDX-License-Identifier: MIT */
/**
 * @file Trials of the transports p2p and legacy: memory of cuMemAlloc, which another device of the process
 * reaches by peer access. For legacy also its handle is made; the process that made it cannot open it
 * (CUDA_ERROR_INVALID_CONTEXT, measured on an H200, driver 580), so that part stays untried.
 */
#include "query/transport_probe.h"
#include "transport/transport.h"

bool probe_allocate(probe *self) {
    device_scope scope;
    if (!probe_prepare_end(self, PROBE_OWNER) || !probe_enter(self, PROBE_OWNER, &scope)) {
        return false;
    }
    const bool passed = PROBE_CALL(self, cuMemAlloc, (&self->plain[PROBE_OWNER], self->bytes));
    device_leave(&scope);
    self->at[PROBE_OWNER] = self->at[PROBE_USER] = self->plain[PROBE_OWNER];
    return passed;
}

/* Counted, as for buffers: what they have enabled is not disabled at the end of the trial. */
static bool reach(probe *self) {
    const uint32_t owner = self->devices[PROBE_OWNER];
    const uint32_t user = self->devices[PROBE_USER];
    return owner == user ||
           probe_done(self, transport_plain_enable(self->ctx, user,
                                                   self->ctx->devices[owner].primary, &self->peer));
}

static void close_peer(probe *self) {
    driver_reference_release(self->ctx, self->peer, false);
    probe_release_memory(self, PROBE_OWNER);
}

static bool open_p2p(probe *self) {
    return probe_reaches(self) && probe_allocate(self) && reach(self);
}

static bool make_handle(probe *self) {
    CUipcMemHandle handle = {{0}};
    device_scope scope;
    if (!probe_enter(self, PROBE_OWNER, &scope)) {
        return false;
    }
    const bool passed = PROBE_CALL(self, cuIpcGetMemHandle, (&handle, self->plain[PROBE_OWNER]));
    device_leave(&scope);
    return passed;
}

static bool open_legacy(probe *self) {
    self->answer.proof = GPUIPC_PROOF_ATTRIBUTES;
    if (!self->ctx->driver.has_legacy) {
        return probe_refuse(self, GPUIPC_REASON_DRIVER_TOO_OLD, "it has no calls for legacy IPC");
    }
    return probe_reaches(self) && probe_allocate(self) && make_handle(self) && reach(self);
}

const probe_way probe_way_p2p = {open_p2p, close_peer, NULL};
const probe_way probe_way_legacy = {open_legacy, close_peer, NULL};
