/* SPDX-License-Identifier: MIT */
/** @file Whether opening memory made a copy of it, judged by how free memory changed. */
#ifndef GPUIPC_SELFTEST_COPY_CHECK_H
#define GPUIPC_SELFTEST_COPY_CHECK_H

#include <stdbool.h>
#include <stdint.h>

/** @param change bytes, less free memory is below 0. Other programs allocate and free meanwhile, so
 *  that true is no proof before it repeats. */
static inline bool copy_check_is_copy(int64_t change) {
    const int64_t limit = INT64_C(2) << 20; /* the least that any copy would take */
    return change >= limit || change <= -limit;
}

#endif
