/* SPDX-License-Identifier: MIT */
/**
 * @file How a failure is recorded. A status is decided once, where the error starts, by one of these
 * calls; every caller above passes it on unchanged.
 */
#ifndef GPUIPC_COMMON_STATUS_H
#define GPUIPC_COMMON_STATUS_H

#include <gpuipc/gpuipc_status.h>

#include "base/compiler.h"

/**
 * What every public function that can fail does first, and nothing else in the library does: @p call is the
 * operation of each failure beneath it. No public function calls another one, so the outermost is the one that the
 * user called; ci/check-calls sees to both.
 * @param call `__func__`, or what status_call() said before the user was called back
 */
void status_enter(const char *call);

/** The public call that the thread is in: kept by who calls the user back, who may make another. */
const char *status_call(void);

/** Fills the calling thread's error record and returns @p status. No native code. */
GPUIPC_COLD gpuipc_status status_fail(gpuipc_status status, const char *format, ...)
    GPUIPC_PRINTF(2, 3);

/** The same, with the operating system's code (errno, GetLastError()).
 *  @param native_call the function that answered it, as the system's manual names it */
GPUIPC_COLD gpuipc_status status_fail_os(gpuipc_status status, int64_t code,
                                         const char *native_call, const char *format, ...)
    GPUIPC_PRINTF(4, 5);

/** The same, with a CUresult. */
GPUIPC_COLD gpuipc_status status_fail_cuda(gpuipc_status status, int64_t code,
                                           const char *native_call, const char *format, ...)
    GPUIPC_PRINTF(4, 5);

/** ::GPUIPC_ERR_INVALID_ARGUMENT, of one below -1: a time that was computed, and is over. */
GPUIPC_COLD gpuipc_status status_bad_timeout(int timeout_ms);

/** ::GPUIPC_ERR_OUT_OF_MEMORY, of host memory. */
GPUIPC_COLD gpuipc_status status_out_of_memory(uint64_t bytes);

enum {
    STATUS_PATH_MAX = 120
};

/** A path for a sentence, of which the record has a few hundred bytes: of a long one the end, so that what the sentence says of
 *  it still has room. @return @p path, or "..." and its end, in @p room */
const char *status_path(const char *path, char room[STATUS_PATH_MAX]);

/** Adds to the sentence of the failure just recorded: for a caller that knows what else follows. */
void status_add(const char *more);

/** Another status for the failure just recorded, whose particulars stay: for the one caller that
 *  knows what an operating system's "not found" means. */
GPUIPC_COLD gpuipc_status status_change(gpuipc_status status);

/** A failure that was kept from an earlier call, told as one of this call. @return its status */
GPUIPC_COLD gpuipc_status status_again(const gpuipc_error *kept);

/** What floors above keep for each thread: here, since a thread has one object (status.c). */
typedef struct thread_scope {
    const void *of;      /**< a context (cuda/device_scope.c); NULL: the thread is in none */
    uint32_t index;      /**< of the device */
    const void *serving; /**< a server that is being polled here (ticket/server.c); NULL: none */
} thread_scope;

/** Room for a record, its status's name and its status's sentence. */
#define STATUS_TEXT_SIZE 900

/** Fixed room in each thread: an error path must not be able to fail for want of memory. One object: where the compiler
 *  emulates those of a thread (libgcc's emutls.c, on Windows), each is allocated when it is first used, and without memory
 *  that ends the process. */
typedef struct status_of_thread {
    thread_scope scope;
    const char
        *call; /**< public, that it is in or was in last; in the library's own threads: none */
    gpuipc_error error;
    char text[STATUS_TEXT_SIZE];
} status_of_thread;
extern GPUIPC_THREAD_LOCAL status_of_thread status_own;

static inline thread_scope *status_thread_scope(void) {
    return &status_own.scope;
}

/** For clean-up that may itself fail: keeps the record of the failure that came first. */
gpuipc_error status_save(void);
void status_restore(const gpuipc_error *saved);

#endif
