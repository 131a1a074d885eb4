/* SPDX-License-Identifier: MIT */
/**
 * @file How a failure is recorded. A status is decided once, where the error starts, by one of these
 * calls; every caller above passes it on unchanged.
 */
#ifndef GPUIPC_COMMON_STATUS_H
#define GPUIPC_COMMON_STATUS_H

#include <gpuipc/gpuipc_status.h>

#include "base/compiler.h"

/** Fills the calling thread's error record and returns @p status. No native code.
 *  @param operation the call that failed, as a user or an operating system's manual names it */
gpuipc_status status_fail(gpuipc_status status, const char *operation, const char *format, ...)
    GPUIPC_PRINTF(3, 4);

/** The same, with the operating system's code (errno, GetLastError()). */
gpuipc_status status_fail_os(gpuipc_status status, int64_t code, const char *operation,
                             const char *format, ...) GPUIPC_PRINTF(4, 5);

/** The same, with a CUresult. */
gpuipc_status status_fail_cuda(gpuipc_status status, int64_t code, const char *operation,
                               const char *format, ...) GPUIPC_PRINTF(4, 5);

/** ::GPUIPC_ERR_OUT_OF_MEMORY, of host memory. */
gpuipc_status status_out_of_memory(const char *operation, uint64_t bytes);

/** Adds to the sentence of the failure just recorded: for a caller that knows what else follows. */
void status_add(const char *more);

/** Another status for the failure just recorded, whose particulars stay: for the one caller that
 *  knows what an operating system's "not found" means. */
gpuipc_status status_change(gpuipc_status status);

/** For clean-up that may itself fail: keeps the record of the failure that came first. */
gpuipc_error status_save(void);
void status_restore(const gpuipc_error *saved);

#endif
