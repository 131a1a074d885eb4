/* SPDX-License-Identifier: MIT */
/** @file Copy bandwidth through a shared mapping, beside that of the same copy in one process. */
#ifndef GPUIPC_SELFTEST_BENCH_COPY_H
#define GPUIPC_SELFTEST_BENCH_COPY_H

#include "session.h"

/** The copies that are measured of each kind. */
#define BENCH_COPY_SAMPLES 15
/** What the shared mapping must reach of the other. */
#define BENCH_COPY_RATIO_MIN 0.99

/** Medians of how long one copy took. */
typedef struct bench_copy_result {
    uint64_t shared_ns;
    uint64_t own_ns;
} bench_copy_result;

/** Bandwidth of the shared copy as a part of the other's. */
double bench_copy_ratio(uint64_t shared_ns, uint64_t own_ns);

/**
 * Copies @p bytes from the shared buffer, and as many from a buffer of this process's own, into
 * memory of @p device: in turns, timed by events of the device.
 * @param owner the device that owns the shared buffer, and on which the other one is made
 */
gpuipc_status bench_copy_measure(session *on, gpuipc_buffer *shared, uint64_t bytes, uint32_t owner,
                                 uint32_t device, bench_copy_result *out_result);

#endif
