/* SPDX-License-Identifier: MIT */
/**
 * @file What a thread has: its device, the driver's context that its calls run in, its last error. A thread that has
 * made a context current by the driver works in that one, as with NVIDIA's runtime; another in the primary context of
 * its device, which the first call retains for the process and nothing releases but cudaDeviceReset.
 */
#ifndef GPUIPC_RUNTIME_CURRENT_H
#define GPUIPC_RUNTIME_CURRENT_H

#include <stdbool.h>
#include <stdint.h>

#include "libcuda.h"
#include "runtime_api.h"

/** The driver is up. False: current_refused() says what the call answers. */
bool current_begin_without_context(void);
/** The same, and the thread has a context. */
bool current_begin(void);
cudaError_t current_refused(void);

/** What a call answers; cudaGetLastError gives it, if it is a failure. */
cudaError_t current_end(CUresult result);
cudaError_t current_fail(cudaError_t error);

/** One call of the driver, in the thread's context or in none: what the runtime's answers. */
#define CURRENT_CALL(begin, symbol, ...)                                                           \
    (!begin()                 ? current_refused()                                                  \
     : libcuda.symbol == NULL ? current_fail(cudaErrorCallRequiresNewerDriver)                     \
                              : current_end(libcuda.symbol(__VA_ARGS__)))
#define RUN(symbol, ...) CURRENT_CALL(current_begin, symbol, __VA_ARGS__)
#define RUN_WITHOUT_CONTEXT(symbol, ...)                                                           \
    CURRENT_CALL(current_begin_without_context, symbol, __VA_ARGS__)

/** The thread's device; needs no driver. */
int current_device(void);
/** Whether a context is the primary one of that device, as the runtime has retained it. */
bool current_is_own(CUcontext context);
/** Makes a device the thread's, and its primary context current. */
cudaError_t current_set_device(int device);
/** The primary context of a device, retained; for after current_begin_without_context. */
CUresult current_primary(int device, CUcontext *out);
/** Ends what is in the primary context of the thread's device. */
cudaError_t current_reset(void);

/** What cudaGetLastError answers, and cudaPeekAtLastError. */
cudaError_t current_take_error(void);
cudaError_t current_see_error(void);

/** The driver's addresses are numbers, the runtime's are pointers. */
static inline CUdeviceptr number_of(const void *address) {
    return (CUdeviceptr)(uintptr_t)address;
}

static inline void *pointer_of(CUdeviceptr address) {
    return (void *)(uintptr_t)address;
}

/** Hands an address that a call has made on, if it has. */
static inline cudaError_t current_give(cudaError_t result, const CUdeviceptr *made, void **out) {
    if (result == cudaSuccess) {
        *out = pointer_of(*made);
    }
    return result;
}

#endif
