/* SPDX-License-Identifier: MIT */
/** @file See bench_copy.h. */
#include "bench_copy.h"

#include <stdlib.h>

#define WARM_UPS 2

typedef struct timer {
    const driver *driver;
    CUstream stream;
    CUevent begin;
    CUevent end;
} timer;

static void timer_destroy(timer *self) {
    if (self->end != NULL) {
        (void)self->driver->cuEventDestroy(self->end);
    }
    if (self->begin != NULL) {
        (void)self->driver->cuEventDestroy(self->begin);
    }
    if (self->stream != NULL) {
        (void)self->driver->cuStreamDestroy(self->stream);
    }
}

static gpuipc_status timer_create(const driver *drv, timer *out_timer) {
    status_enter(__func__);
    timer self = {.driver = drv};
    CUresult result = drv->cuStreamCreate(&self.stream, CU_STREAM_NON_BLOCKING);
    if (result == CUDA_SUCCESS) {
        result = drv->cuEventCreate(&self.begin, CU_EVENT_DEFAULT);
    }
    if (result == CUDA_SUCCESS) {
        result = drv->cuEventCreate(&self.end, CU_EVENT_DEFAULT);
    }
    if (result != CUDA_SUCCESS) {
        timer_destroy(&self);
        return driver_status(drv, result, "cuEventCreate", "making a stream and events");
    }
    *out_timer = self;
    return GPUIPC_OK;
}

static gpuipc_status timed_copy(const timer *self, gpuipc_buffer *into, gpuipc_buffer *from,
                                uint64_t bytes, double *out_ms) {
    status_enter(__func__);
    const driver *drv = self->driver;
    float elapsed = 0;
    gpuipc_status status = driver_status(drv, drv->cuEventRecord(self->begin, self->stream),
                                         "cuEventRecord", "timing a copy");
    if (status != GPUIPC_OK ||
        (status = gpuipc_buffer_copy_async(into, 0, from, 0, bytes, self->stream)) != GPUIPC_OK ||
        (status = driver_status(drv, drv->cuEventRecord(self->end, self->stream), "cuEventRecord",
                                "timing a copy")) != GPUIPC_OK ||
        (status = driver_status(drv, drv->cuEventSynchronize(self->end), "cuEventSynchronize",
                                "waiting for a copy")) != GPUIPC_OK ||
        (status = driver_status(drv, drv->cuEventElapsedTime(&elapsed, self->begin, self->end),
                                "cuEventElapsedTime", "reading how long a copy took")) !=
            GPUIPC_OK) {
        return status;
    }
    *out_ms = elapsed;
    return GPUIPC_OK;
}

static int compare(const void *a, const void *b) {
    const double first = *(const double *)a;
    const double second = *(const double *)b;
    return (first > second) - (first < second);
}

static double median(double *samples) {
    qsort(samples, BENCH_COPY_SAMPLES, sizeof(*samples), compare);
    return samples[BENCH_COPY_SAMPLES / 2];
}

static uint64_t nanoseconds(double milliseconds) {
    return milliseconds <= 0 ? 0 : (uint64_t)(milliseconds * 1e6);
}

double bench_copy_ratio(uint64_t shared_ns, uint64_t own_ns) {
    return (double)own_ns / (double)shared_ns;
}

/* In turns, and each first every other time, so that what changes slowly (clocks, heat, others on
 * the machine) meets both alike. */
static gpuipc_status measure(const timer *by, gpuipc_buffer *local, gpuipc_buffer *shared,
                             gpuipc_buffer *own, uint64_t bytes, bench_copy_result *out_result) {
    status_enter(__func__);
    double shared_ms[BENCH_COPY_SAMPLES];
    double own_ms[BENCH_COPY_SAMPLES];
    for (int i = -WARM_UPS; i < BENCH_COPY_SAMPLES; i++) {
        double first;
        double second;
        bool shared_first = i % 2 == 0;
        gpuipc_status status = timed_copy(by, local, shared_first ? shared : own, bytes, &first);
        if (status == GPUIPC_OK) {
            status = timed_copy(by, local, shared_first ? own : shared, bytes, &second);
        }
        if (status != GPUIPC_OK) {
            return status;
        }
        if (i >= 0) {
            shared_ms[i] = shared_first ? first : second;
            own_ms[i] = shared_first ? second : first;
        }
    }
    bench_copy_result result = {.shared_ns = nanoseconds(median(shared_ms)),
                                .own_ns = nanoseconds(median(own_ms))};
    if (result.shared_ns == 0 || result.own_ns == 0) {
        return status_fail(GPUIPC_ERR_CUDA, "the driver says that a copy took no time");
    }
    *out_result = result;
    return GPUIPC_OK;
}

/* The same contents for both: how fast memory moves can depend on what is in it. */
static gpuipc_status copy_contents(const timer *by, gpuipc_buffer *shared, gpuipc_buffer *own,
                                   uint64_t bytes) {
    double elapsed_ms;
    return timed_copy(by, own, shared, bytes, &elapsed_ms);
}

static gpuipc_status make(const session *on, uint32_t device, uint64_t bytes,
                          gpuipc_buffer **out_buffer) {
    gpuipc_buffer_config config = {
        .struct_size = sizeof(config), .device = GPUIPC_DEVICE(device), .bytes = bytes};
    return gpuipc_buffer_create(on->context, &config, out_buffer);
}

gpuipc_status bench_copy_measure(session *on, gpuipc_buffer *shared, uint64_t bytes, uint32_t owner,
                                 uint32_t device, bench_copy_result *out_result) {
    gpuipc_buffer *own = NULL;
    gpuipc_buffer *local = NULL;
    timer by;
    gpuipc_status status = make(on, owner, bytes, &own);
    if (status != GPUIPC_OK) {
        return status;
    }
    if ((status = make(on, device, bytes, &local)) != GPUIPC_OK ||
        (owner != device &&
         (status = gpuipc_buffer_set_access(own, device, GPUIPC_ACCESS_READ_WRITE)) != GPUIPC_OK)) {
        goto release_buffers;
    }
    status = session_enter(on, device);
    if (status != GPUIPC_OK) {
        goto release_buffers;
    }
    status = timer_create(&on->driver, &by);
    if (status == GPUIPC_OK) {
        status = copy_contents(&by, shared, own, bytes);
        if (status == GPUIPC_OK) {
            status = measure(&by, local, shared, own, bytes, out_result);
        }
        timer_destroy(&by);
    }
    session_leave(on);

release_buffers:
    (void)gpuipc_buffer_release(local);
    (void)gpuipc_buffer_release(own);
    return status;
}
