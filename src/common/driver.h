/* SPDX-License-Identifier: MIT */
/**
 * @file The CUDA driver as a table of entry points, found when the program runs. The installed
 * driver, the emulated one and one at a given path are loaded by the same code.
 */
#ifndef GPUIPC_DRIVER_H
#define GPUIPC_DRIVER_H

#include <stdbool.h>

#include "base/status.h"
#include "cuda/cuda_api.h"
#include "os.h"

/** The driver of one context. Read-only after driver_open, so it needs no lock. */
typedef struct driver {
#define DRIVER_MEMBER(group, name, suffix, version, parameters) CUresult(*name) parameters;
    CUDA_API_LIST(DRIVER_MEMBER)
#undef DRIVER_MEMBER
    bool has_core;     /**< every entry point of that group is there: else there is no driver */
    bool has_vmm;      /**< likewise; else a capability is missing, as with those below */
    bool has_p2p;      /**< likewise */
    bool has_legacy;   /**< likewise: cuIpc*MemHandle */
    bool has_pool;     /**< likewise: stream-ordered memory */
    bool has_pinned;   /**< likewise: host memory that GPUs reach */
    bool has_hostfunc; /**< likewise */
    bool has_word;     /**< likewise: 64-bit words written and waited for by streams */
    bool has_dmabuf;   /**< likewise: dma-bufs of device memory, since CUDA 11.7 */
    bool has_ctxevent; /**< likewise: an event behind all work of a context, since CUDA 12.5 */
    bool
        has_streamid; /**< likewise: a number of a stream that no other one gets, since CUDA 12.0 */
    bool has_kernel;  /**< likewise */
    bool is_emulated; /**< it carries the emulated driver's mark, by whatever way it was found */
    int version;      /**< as cuDriverGetVersion says */
    os_library *library;
} driver;

/**
 * Loads a driver, once in a process, and initialises it. It is never unloaded.
 * @param choice "auto", "emulated" or an absolute path
 * @return GPUIPC_ERR_NO_DRIVER, _DRIVER_TOO_OLD, _DRIVER_FAILED, _NO_DEVICE (cuInit says so)
 */
gpuipc_status driver_open(const char *choice, driver *out_driver);

/** Whether the driver failed because this process may open no more handles: it says OPERATING_SYSTEM then, as of all that the
 *  system refuses it. May write the error record. */
GPUIPC_COLD bool driver_lacks_handles(CUresult result);

/**
 * The status for a CUresult that is no success, with the record filled from the driver's own name for it.
 * This is the one table from CUDA codes to ours; a caller that knows better what a code means at its place
 * uses status_fail_cuda itself.
 * @param what what was being done, such as "making 2 MiB on device 0"
 */
GPUIPC_COLD gpuipc_status driver_failed(const driver *drv, CUresult result, const char *call,
                                        const char *what);

/** The same of any CUresult. */
static inline gpuipc_status driver_status(const driver *drv, CUresult result, const char *call,
                                          const char *what) {
    return result == CUDA_SUCCESS ? GPUIPC_OK : driver_failed(drv, result, call, what);
}

/** Makes a call of the driver, and its status. @param arguments in brackets */
#define DRIVER_CALL(drv, call, arguments, what)                                                    \
    driver_status((drv), (drv)->call arguments, #call, (what))

#endif
