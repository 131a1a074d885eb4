/* SPDX-License-Identifier: MIT */
/**
 * @file Trial of the transport host: one piece of shared memory, mapped twice as two processes would,
 * registered for each device, and a copy through it in both directions.
 */
#include "query/transport_probe.h"

static bool prepare(probe *self, unsigned end) {
    device_scope scope;
    if (!probe_prepare_end(self, end) ||
        !probe_done(self, os_memory_map(self->handle, self->bytes, true, &self->host[end])) ||
        !probe_enter(self, end, &scope)) {
        return false;
    }
    const bool passed =
        PROBE_CALL(self, cuMemHostRegister,
                   (self->host[end], (size_t)self->bytes, CU_MEMHOSTREGISTER_PORTABLE)) &&
        (self->is_registered[end] = true) &&
        PROBE_CALL(self, cuMemAlloc, (&self->plain[end], (size_t)self->bytes));
    self->at[end] = self->plain[end];
    device_leave(&scope);
    return passed;
}

static bool open_host(probe *self) {
    if (!self->ctx->driver.has_pinned) {
        return probe_refuse(self, GPUIPC_REASON_DRIVER_TOO_OLD, "it has no calls for host memory");
    }
    return probe_done(self, os_memory_create("gpuipc-probe", self->bytes, &self->handle)) &&
           prepare(self, PROBE_OWNER) && prepare(self, PROBE_USER);
}

static void close_host(probe *self) {
    for (unsigned end = 0; end < PROBE_ENDS; end++) {
        probe_release_memory(self, end);
    }
    os_handle_close(&self->handle);
}

/* One copy on a stream of a device's, between its memory and its mapping of the host's. */
static bool copy(probe *self, unsigned end, bool to_host) {
    const driver *drv = &self->ctx->driver;
    device_scope scope;
    CUstream stream;
    bool passed = false;
    if (!probe_enter(self, end, &scope)) {
        return false;
    }
    if (PROBE_CALL(self, cuStreamCreate, (&stream, CU_STREAM_NON_BLOCKING))) {
        passed = to_host
                     ? PROBE_CALL(self, cuMemcpyDtoHAsync,
                                  (self->host[end], self->plain[end], (size_t)self->bytes, stream))
                     : PROBE_CALL(self, cuMemcpyHtoDAsync,
                                  (self->plain[end], self->host[end], (size_t)self->bytes, stream));
        /* Also when the copy was refused: then it fails as well, or does nothing. */
        const CUresult result = drv->cuStreamSynchronize(stream);
        passed = passed && probe_passed(self, result, "cuStreamSynchronize");
        (void)drv->cuStreamDestroy(stream);
    }
    device_leave(&scope);
    return passed;
}

static bool send(probe *self, unsigned from, unsigned to, uint32_t seed) {
    return probe_write(self, from, self->plain[from], seed) && copy(self, from, true) &&
           copy(self, to, false) && probe_check(self, to, self->plain[to], seed);
}

static bool exchange_host(probe *self) {
    return send(self, PROBE_OWNER, PROBE_USER, 4) && send(self, PROBE_USER, PROBE_OWNER, 5);
}

const probe_way probe_way_host = {open_host, close_host, exchange_host};
