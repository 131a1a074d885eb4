/* SPDX-License-Identifier: MIT */
/** @file The driver that is tested: chosen, opened, and described in the first line of output. */
#ifndef GPUIPC_SELFTEST_SESSION_H
#define GPUIPC_SELFTEST_SESSION_H

#include <gpuipc/gpuipc.h>

#include "driver.h"
#include "options.h"

typedef struct session {
    gpuipc_context *context;
    gpuipc_context_info info;
    /** The same driver once more (it is loaded once in a process), for what the public interface has
     *  no call for: kernels, free memory, events. */
    driver driver;
    const char *choice; /**< as --driver would name it; never "auto" */
    char
        why_emulated[400]; /**< when "auto" turned to the emulated driver, the reason; else empty */
    CUcontext *primary;    /**< retained by session_enter, one for each device; NULL before */
} session;

/** Opens the driver that the options name, with a complaint on standard error when it cannot.
 *  @return EXIT_PASS, or what to end with */
int session_open(const options *wanted, session *out_session);
void session_close(session *self);

/** One line: driver, version, emulated or real. */
void session_describe(const session *self, char *text, size_t capacity);

/** Makes a device's primary context current, retaining it when it is used first; session_leave takes
 *  it off again. */
gpuipc_status session_enter(session *self, uint32_t device);
void session_leave(const session *self);

/** Free memory of a device, as the driver says to this process. */
gpuipc_status session_free_memory(session *self, uint32_t device, uint64_t *out_bytes);

/** What is known of a device of the context. */
gpuipc_status session_device(const session *self, uint32_t device, gpuipc_device_info *out_info);

#endif
