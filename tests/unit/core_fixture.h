/* SPDX-License-Identifier: MIT */
/**
 * @file What the tests of src/common stand on: a context on the driver that GPUIPC_CUDA_DRIVER names,
 * a runtime directory of its own, and on the emulated driver a leak gate around everything.
 */
#ifndef GPUIPC_TEST_CORE_FIXTURE_H
#define GPUIPC_TEST_CORE_FIXTURE_H

#include <criterion/criterion.h>
#include <stdbool.h>

#include <gpuipc/gpuipc.h>
#include <gpuipc/gpuipc_native.h>

#include "check.h"
#include "driver.h"
#include "os.h"
#include "unique.h"

/** Enough for anything that ought to happen at once, on a machine that is busy. */
#define SOON_MS 20000

extern gpuipc_context *core_context;
extern char core_directory[RUNTIME_DIRECTORY_MAX];
extern bool core_is_emulated;
extern uint32_t core_device_count;
/** The granularity of device 0. */
extern uint64_t core_unit;

/** For TestSuite: .init and .fini. The first skips the test where "auto" finds no driver or no
 *  device; the second fails it when something is left behind. */
void core_start(void);
void core_finish(void);

/** core_start without the context, for tests that make their own. */
void core_start_without_context(void);

/** A context with the fixture's directory and driver. */
gpuipc_context *core_context_new(void);
/** A config for such a context. */
gpuipc_context_config core_context_config(void);
/** After core_start_without_context(): makes core_context in a way of the test's own. */
void core_open_context(const gpuipc_context_config *config);

/** Skips the test, with the reason. */
void core_need_devices(uint32_t count);
void core_need_emulated(void);

/* What each system has of its own: posix_environment.c, win32_environment.c. */

/** Sets a variable of this process's environment, or removes it (NULL). */
void core_environment_set(const char *name, const char *value);

/** Ends this process as one that crashed, which fails the program's run wherever it happens. */
void core_crash(void);

/** Whether "Camera" and "camera" are two names. */
extern const bool core_names_have_case;

/** The driver's own entry points, as a program that uses CUDA beside gpuipc has them. */
const driver *core_driver(void);

/** Makes a primary context current in this thread, as such a program does, if it is not; undone in core_finish. */
void core_enter_device(int ordinal);

/** Lets calls of the emulated driver fail: emulated.h, GPUIPC_EMULATED_SET_FAIL. "": none. */
void core_set_failures(const char *text);

/** Calls of one entry point of the emulated driver since the last core_set_failures(). */
uint64_t core_calls(const char *name);

/** Every piece of asynchronous work of the emulated driver waits so long before it starts. */
void core_set_stream_delay(unsigned milliseconds);

/** From now on this stream is captured; NULL, CU_STREAM_LEGACY: the legacy one cannot be used, for the capture of
 *  another;
 *  core_set_captured(false, NULL): none. Asserts that the capture before was not made invalid. */
void core_set_captured(bool captures, CUstream stream);

/* ---- a thread that waits ----------------------------------------------------------------- */

typedef struct core_waiter {
    gpuipc_status (*call)(void *argument);
    void *argument;
    gpuipc_status status;
    uint64_t number;
    os_mutex mutex;
    os_condition started;
    bool is_started;
    os_thread *thread;
} core_waiter;

/** Makes the call in a thread of its own. */
void core_waiter_begin(core_waiter *self, gpuipc_status (*call)(void *argument), void *argument);
/** The same; returns when that thread sleeps in it. Not for a call that writes more than 64 KiB at a
 *  time: the look at a thread ends one that stands in the midst of that, under Wine 8. */
void core_waiter_start(core_waiter *self, gpuipc_status (*call)(void *argument), void *argument);
/** Waits for the end of the call. @return what it answered */
gpuipc_status core_waiter_end(core_waiter *self);

/* ---- buffers ----------------------------------------------------------------------------- */

/** A buffer on device 0. @param segment_bytes 0: one segment */
gpuipc_buffer *core_buffer(uint64_t bytes, uint64_t segment_bytes);

gpuipc_buffer_info core_info(gpuipc_buffer *buffer);

/** Writes the test pattern for @p seed over the whole buffer; checks that it is there. */
void core_write_pattern(gpuipc_buffer *buffer, uint32_t seed);
void core_check_pattern(gpuipc_buffer *buffer, uint32_t seed);

/* ---- connections ------------------------------------------------------------------------- */

/** A listener and a connection to it, both ends in this process. */
typedef struct core_pair {
    char name[UNIQUE_NAME_MAX];
    gpuipc_listener *listener;
    gpuipc_connection *client;
    gpuipc_connection *server;
} core_pair;

void core_pair_open(core_pair *pair, gpuipc_context *server, gpuipc_context *client);
/** Closes what is not NULL. */
void core_pair_close(core_pair *pair);

/** Sends buffers and no bytes. */
gpuipc_status core_send(gpuipc_connection *connection, gpuipc_buffer *const *buffers, size_t count);
/** Receives a message of exactly @p count buffers. */
gpuipc_status core_receive(gpuipc_connection *connection, gpuipc_buffer **buffers, size_t count);

#endif
