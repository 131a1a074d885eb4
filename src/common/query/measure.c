/* SPDX-License-Identifier: MIT */
/**
 * @file How fast a transport is between two devices, by the driver's events. Copies are queued behind
 * others that keep the device busy meanwhile, so that what launching costs is hidden.
 */
#include <stdlib.h>
#include <string.h>

#include "base/struct_size.h"
#include "copy/staging.h"
#include "query/answers.h"
#include "query/figures.h"
#include "query/transport_probe.h"
#include "query/transport_query.h"
#include "sync/deferred.h"
#include "transport/transport.h"

/* One copy, at most: below the 512 MiB from which giving a peer access takes milliseconds (measured on an
 * H200, driver 580), and long enough that nothing else counts. */
#define BYTES_MAX      (UINT64_C(256) << 20)
#define BYTES_MIN      PROBE_BYTES
#define BYTES_EMULATED (UINT64_C(4) << 20)
/* What is copied between two events, in one go. */
#define BATCH_BYTES (UINT64_C(1) << 30)
#define BATCH_MIN   4
#define BATCH_MAX   64
_Static_assert(BATCH_BYTES / BYTES_MAX >= BATCH_MIN, "the largest copies are as many at least");
#define SMALL_BYTES 8
#define SMALL_COUNT 128
#define SAMPLES     9

/* The owner's memory, and a place of the user's that it is copied into. */
typedef struct lane {
    probe shared; /**< also the first thing that went wrong */
    const probe_way *way;
    bool is_staged;
    CUdeviceptr into;
    CUstream stream;
    CUevent ready;
    CUevent start;
    CUevent end;
} lane;

/* One direction, or both at once. */
typedef struct lanes {
    lane each[2];
    unsigned count;
} lanes;

/* ---- staged copies need no way but memory ------------------------------------------------- */

static void close_plain(probe *self) {
    probe_release_memory(self, PROBE_OWNER);
}

static const probe_way plain_way = {probe_allocate, close_plain, NULL};

/* ---- one direction ------------------------------------------------------------------------ */

static bool make_tools(lane *self) {
    probe *shared = &self->shared;
    return PROBE_CALL(shared, cuMemAlloc, (&self->into, (size_t)shared->bytes)) &&
           PROBE_CALL(shared, cuStreamCreate, (&self->stream, CU_STREAM_NON_BLOCKING)) &&
           PROBE_CALL(shared, cuEventCreate, (&self->ready, CU_EVENT_DISABLE_TIMING)) &&
           PROBE_CALL(shared, cuEventCreate, (&self->start, CU_EVENT_DEFAULT)) &&
           PROBE_CALL(shared, cuEventCreate, (&self->end, CU_EVENT_DEFAULT));
}

/* Seeds that no trial uses; what is overwritten differs from what arrives. */
static bool lane_open(lane *self) {
    device_scope scope;
    if (!self->way->open(&self->shared) || !probe_enter(&self->shared, PROBE_USER, &scope)) {
        return false;
    }
    const bool passed = make_tools(self);
    device_leave(&scope);
    return passed && probe_write(&self->shared, PROBE_OWNER, self->shared.at[PROBE_OWNER], 10) &&
           probe_write(&self->shared, PROBE_USER, self->into, 11);
}

static void end_tools(lane *self) {
    const driver *drv = &self->shared.ctx->driver;
    CUevent events[] = {self->ready, self->start, self->end};
    if (self->stream != NULL) {
        (void)drv->cuStreamSynchronize(self->stream);
        (void)drv->cuStreamDestroy(self->stream);
    }
    for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++) {
        if (events[i] != NULL) {
            (void)drv->cuEventDestroy(events[i]);
        }
    }
    if (self->into != 0) {
        (void)drv->cuMemFree(self->into);
    }
}

static void lane_close(lane *self) {
    device_scope scope;
    if (self->into != 0 &&
        device_enter(self->shared.ctx, self->shared.devices[PROBE_USER], &scope) == GPUIPC_OK) {
        end_tools(self);
        device_leave(&scope);
    }
    self->way->close(&self->shared);
}

static bool copy_once(lane *self, uint64_t bytes) {
    probe *shared = &self->shared;
    if (self->is_staged) {
        const staging_end to = {shared->devices[PROBE_USER], self->into};
        const staging_end from = {shared->devices[PROBE_OWNER], shared->at[PROBE_OWNER]};
        return probe_done(shared, staging_copy(shared->ctx, &to, &from, bytes, self->stream));
    }
    return PROBE_CALL(shared, cuMemcpyDtoDAsync,
                      (self->into, shared->at[PROBE_USER], (size_t)bytes, self->stream));
}

static bool copy_often(lane *self, uint64_t bytes, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        if (!copy_once(self, bytes)) {
            return false;
        }
    }
    return true;
}

/* ---- one sample --------------------------------------------------------------------------- */

static unsigned batch_of(const lane *self) {
    if (self->shared.ctx->driver.is_emulated) {
        return BATCH_MIN;
    }
    const uint64_t count = BATCH_BYTES / self->shared.bytes;
    return count > BATCH_MAX ? BATCH_MAX : (unsigned)count;
}

/* Keeps the device busy while the rest is queued. */
static bool queue_gate(lane *self) {
    device_scope scope;
    if (!probe_enter(&self->shared, PROBE_USER, &scope)) {
        return false;
    }
    const bool passed = copy_often(self, self->shared.bytes, batch_of(self)) &&
                        PROBE_CALL(&self->shared, cuEventRecord, (self->ready, self->stream));
    device_leave(&scope);
    return passed;
}

/* What is timed, from when every lane is ready. */
static bool queue_timed(lanes *all, lane *self, uint64_t bytes, unsigned count) {
    probe *shared = &self->shared;
    device_scope scope;
    bool passed = true;
    if (!probe_enter(shared, PROBE_USER, &scope)) {
        return false;
    }
    for (unsigned i = 0; i < all->count && passed; i++) {
        passed = PROBE_CALL(shared, cuStreamWaitEvent, (self->stream, all->each[i].ready, 0));
    }
    passed = passed && PROBE_CALL(shared, cuEventRecord, (self->start, self->stream)) &&
             copy_often(self, bytes, count) &&
             PROBE_CALL(shared, cuEventRecord, (self->end, self->stream));
    device_leave(&scope);
    return passed;
}

static bool read_time(lane *self, double *longest_ns) {
    probe *shared = &self->shared;
    float milliseconds = 0;
    if (!PROBE_CALL(shared, cuEventSynchronize, (self->end)) ||
        !PROBE_CALL(shared, cuEventElapsedTime, (&milliseconds, self->start, self->end))) {
        return false;
    }
    const double ns = (double)milliseconds * 1e6;
    *longest_ns = ns > *longest_ns ? ns : *longest_ns;
    return true;
}

/* @param out_ns from the common start until the last lane is through */
static bool sample(lanes *all, uint64_t bytes, unsigned count, double *out_ns) {
    *out_ns = 1; /* the driver's clock may stand still for so short a time */
    for (unsigned i = 0; i < all->count; i++) {
        if (!queue_gate(&all->each[i])) {
            return false;
        }
    }
    for (unsigned i = 0; i < all->count; i++) {
        if (!queue_timed(all, &all->each[i], bytes, count)) {
            return false;
        }
    }
    for (unsigned i = 0; i < all->count; i++) {
        if (!read_time(&all->each[i], out_ns)) {
            return false;
        }
    }
    return true;
}

static int compare_times(const void *first, const void *second) {
    double a;
    double b;
    memcpy(&a, first, sizeof(a));
    memcpy(&b, second, sizeof(b));
    return (a > b) - (a < b);
}

/* The median over a few samples. */
static bool measure_time(lanes *all, uint64_t bytes, unsigned count, double *out_ns) {
    double times[SAMPLES];
    for (unsigned i = 0; i < SAMPLES; i++) {
        if (!sample(all, bytes, count, &times[i])) {
            return false;
        }
    }
    qsort(times, SAMPLES, sizeof(times[0]), compare_times);
    *out_ns = times[SAMPLES / 2];
    return true;
}

/* ---- all of it ---------------------------------------------------------------------------- */

static bool measure_lanes(lanes *all, unsigned lane_count, gpuipc_measurement *out) {
    lane *forth = &all->each[0];
    const uint64_t bytes = forth->shared.bytes;
    const unsigned batch = batch_of(forth);
    double large;
    double small;
    double both = 0;
    all->count = 1;
    if (!measure_time(all, bytes, batch, &large) ||
        !measure_time(all, SMALL_BYTES, SMALL_COUNT, &small)) {
        return false;
    }
    all->count = lane_count;
    if (lane_count == 2 && !measure_time(all, bytes, batch, &both)) {
        return false;
    }
    bool is_right = true;
    for (unsigned i = 0; i < lane_count; i++) {
        is_right = probe_check(&all->each[i].shared, PROBE_USER, all->each[i].into, 10) && is_right;
    }
    if (!is_right) {
        return false;
    }
    const double moved = (double)bytes * batch * 1e9;
    *out = (gpuipc_measurement){.struct_size = sizeof(*out),
                                .bytes = bytes,
                                .one_way_bytes_per_second = (uint64_t)(moved / large),
                                .both_ways_bytes_per_second =
                                    lane_count == 2 ? (uint64_t)(2 * moved / both) : 0,
                                .latency_ns = (uint64_t)(small / SMALL_COUNT + 0.5)};
    out->latency_ns += out->latency_ns == 0; /* 0 says that it is not known */
    return true;
}

static lane lane_begin(context *ctx, gpuipc_transport which, uint32_t owner, uint32_t user,
                       uint64_t bytes) {
    const bool is_staged = !transport_find(which)->is_zero_copy;
    lane made = {.shared = probe_begin(ctx, owner, user, bytes),
                 .way = is_staged ? &plain_way : probe_way_of(which),
                 .is_staged = is_staged};
    made.shared.may_wait = true; /* the measurement does as well */
    return made;
}

static gpuipc_status status_of(const probe *self) {
    switch (self->answer.reason) {
    case GPUIPC_REASON_DEVICE_MEMORY:
        return GPUIPC_ERR_OUT_OF_DEVICE_MEMORY;
    case GPUIPC_REASON_WRONG_DATA:
        return GPUIPC_ERR_WRONG_DATA;
    case GPUIPC_REASON_HANDLE_LIMIT:
        return GPUIPC_ERR_TOO_MANY_HANDLES;
    case GPUIPC_REASON_DRIVER_REFUSED:
        return GPUIPC_ERR_CUDA;
    default:
        return GPUIPC_ERR_NO_TRANSPORT;
    }
}

/* What stopped a measurement. */
static gpuipc_status stopped_by(const probe *self) {
    if (self->failure != GPUIPC_OK) {
        return probe_failure(self);
    }
    return status_fail(status_of(self), "%s (%s)", reason_sentence(self->answer.reason),
                       self->answer.particulars);
}

static gpuipc_status try_bytes(context *ctx, gpuipc_transport which, uint32_t owner, uint32_t user,
                               uint64_t bytes, gpuipc_measurement *out) {
    lanes all = {.each = {lane_begin(ctx, which, owner, user, bytes),
                          lane_begin(ctx, which, user, owner, bytes)}};
    const unsigned count = owner == user ? 1 : 2;
    gpuipc_status status = GPUIPC_OK;
    bool passed = lane_open(&all.each[0]) && (count == 1 || lane_open(&all.each[1])) &&
                  measure_lanes(&all, count, out);
    lane_close(&all.each[0]);
    lane_close(&all.each[1]);
    *out = passed ? *out : (gpuipc_measurement){.struct_size = sizeof(*out)};
    for (unsigned i = 0; i < count && !passed; i++) {
        out->wrong_words += all.each[i].shared.wrong_words;
    }
    for (unsigned i = 0; i < count && !passed && status == GPUIPC_OK; i++) {
        const probe *shared = &all.each[i].shared;
        if (shared->failure != GPUIPC_OK || shared->answer.reason != GPUIPC_REASON_NONE) {
            status = stopped_by(shared);
        }
    }
    return status;
}

/* An eighth of what is free on both, in halves of the most. A device that cannot be asked shows in what
 * follows. */
static uint64_t bytes_to_use(context *ctx, uint32_t owner, uint32_t user) {
    const uint32_t devices[] = {owner, user};
    uint64_t bytes = ctx->driver.is_emulated ? BYTES_EMULATED : BYTES_MAX;
    device_scope scope;
    for (size_t i = 0; i < 2; i++) {
        size_t free_bytes = 0;
        size_t total = 0;
        if (device_enter(ctx, devices[i], &scope) != GPUIPC_OK) {
            continue;
        }
        if (ctx->driver.cuMemGetInfo(&free_bytes, &total) == CUDA_SUCCESS) {
            while (bytes > BYTES_MIN && bytes > free_bytes / 8) {
                bytes /= 2;
            }
        }
        device_leave(&scope);
    }
    return bytes;
}

static gpuipc_status measure(context *ctx, gpuipc_transport which, uint32_t owner, uint32_t user,
                             gpuipc_measurement *out) {
    gpuipc_status status = GPUIPC_ERR_OUT_OF_DEVICE_MEMORY;
    (void)deferred_work_off(ctx); /* what trials have left, since they wait for no device */
    for (uint64_t bytes = bytes_to_use(ctx, owner, user);
         bytes >= BYTES_MIN && status == GPUIPC_ERR_OUT_OF_DEVICE_MEMORY; bytes /= 2) {
        status = try_bytes(ctx, which, owner, user, bytes, out);
    }
    return status;
}

static gpuipc_status measure_pair(context *ctx, gpuipc_transport which,
                                  const gpuipc_transport_pair *given, gpuipc_measurement *out) {
    query_pair pair;
    gpuipc_transport_info info;
    gpuipc_status status = query_read_pair(ctx, given, &pair);
    if (status != GPUIPC_OK || (status = query_answer(ctx, which, &pair, &info)) != GPUIPC_OK) {
        return status;
    }
    if (!info.available || pair.owner == GPUIPC_DEVICE_NONE) {
        return status_fail(GPUIPC_ERR_NO_TRANSPORT, "%s",
                           info.available ? reason_sentence(GPUIPC_REASON_HIDDEN_DEVICE)
                                          : info.sentence);
    }
    os_mutex_lock(&ctx->answers->trial); /* two at once would measure each other */
    status = measure(ctx, which, pair.owner, pair.user, out);
    if (status == GPUIPC_OK) {
        const figures_key key = {which, pair.owner_uuid, ctx->devices[pair.user].info.uuid};
        figures_apply(out, &info);
        status = answers_keep(ctx->answers, pair.owner, pair.user, &info);
        figures_store(ctx, &key, out);
    }
    os_mutex_unlock(&ctx->answers->trial);
    return status;
}

gpuipc_status gpuipc_transport_measure(gpuipc_context *handle, gpuipc_transport given,
                                       const gpuipc_transport_pair *pair,
                                       gpuipc_measurement *out_measurement) {
    status_enter(__func__);
    gpuipc_transport which;
    gpuipc_measurement measured = {.struct_size = sizeof(measured)};
    context *ctx;
    gpuipc_status status =
        struct_size_check(out_measurement, STRUCT_SIZE_UP_TO(gpuipc_measurement, latency_ns));
    if (status != GPUIPC_OK || (status = query_read_transport(given, &which)) != GPUIPC_OK ||
        (status = context_acquire(handle, &ctx)) != GPUIPC_OK) {
        return status;
    }
    status = measure_pair(ctx, which, pair, &measured);
    if (status == GPUIPC_OK || status == GPUIPC_ERR_WRONG_DATA) {
        struct_size_write(out_measurement, &measured, sizeof(measured));
    }
    context_unreference(ctx);
    return status;
}
