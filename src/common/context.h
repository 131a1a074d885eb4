/* SPDX-License-Identifier: MIT */
/** @file One process's use of gpuipc: the loaded driver, its devices, limits and the log. */
#ifndef GPUIPC_CONTEXT_H
#define GPUIPC_CONTEXT_H

#include <gpuipc/gpuipc.h>
#include <stdatomic.h>

#include "answers.h"
#include "deferred.h"
#include "device.h"
#include "driver.h"
#include "import.h"
#include "keep_alive.h"
#include "kept_handles.h"
#include "lease.h"
#include "object.h"
#include "opening.h"
#include "point.h"
#include "staging.h"
#include "watch.h"

typedef struct context {
    object object;
    driver driver;
    uint8_t instance_id[16];
    device *devices;
    uint32_t device_count;
    os_mutex device_mutex;   /**< guards device.primary */
    char *runtime_directory; /**< settled when the context was made */
    bool shared_directory;
    bool is_wsl;           /**< to explain what the driver refuses, never to refuse by itself */
    char *cache_directory; /**< of measurements (figures.h); NULL: none */
    answers answers;       /**< about transports */
    uint32_t max_buffers;
    uint32_t max_handles;
    gpuipc_log_callback log;
    void *log_user_data;
    atomic_uint_least64_t next_buffer_id;
    deferred_list deferred; /**< teardown that waits for the devices */
    atomic_bool is_over;    /**< the caller has given it up: its last object ends it */
    staging_list staging;   /**< for copies between devices that do not reach each other */
    point_context points;
    watch watch;                           /**< of streams that wait for other processes */
    atomic_uint_least64_t next_connection; /**< number of the next connection, from 1 on */
    keep_alive keep_alive;
    kept_handles kept_handles;
    import_table imports;
    lease_table leases;
    opening_table openings;
} context;

/** The context behind a public handle, with a reference for the caller. */
gpuipc_status context_acquire(gpuipc_context *handle, const char *operation, context **out_context);

/** Gives a reference up. NULL does nothing. */
void context_unreference(context *self);

/** In calls that may wait for the devices: deferred_run(). */
bool context_run_deferred(context *self);

/** Where this context's names live. */
os_directory context_directory(const context *self);

/** Says a sentence to the log, if there is one. */
void context_log(const context *self, gpuipc_log_level level, const char *format, ...)
    GPUIPC_PRINTF(3, 4);

#endif
