/* SPDX-License-Identifier: MIT */
/** @file One process's use of gpuipc: the loaded driver, its devices, limits and the log. */
#ifndef GPUIPC_CONTEXT_H
#define GPUIPC_CONTEXT_H

#include <gpuipc/gpuipc.h>
#include <stdatomic.h>
#include <stddef.h>

#include "base/log_rate.h"
#include "base/object.h"
#include "cuda/device.h"
#include "driver.h"

#define CONTEXT_KNOWN_STREAMS 64u

/**
 * What the areas keep in a context is theirs alone (context_part); api/context_create.c says in which order.
 */
typedef struct context {
    object object;
    driver driver;
    uint8_t instance_id[16];
    uint64_t
        seed; /**< of tables whose keys other processes choose (hash.h); nobody else knows it */
    device *devices;
    uint32_t device_count;
    os_mutex device_mutex; /**< who holds it may retain a device.primary */
    atomic_uint_least64_t
        known_streams[CONTEXT_KNOWN_STREAMS]; /**< of primary contexts: device_scope.c */
    char *runtime_directory;                  /**< settled when the context was made */
    bool directory_is_refused; /**< it is another user's: calls that need it fail, others do not */
    bool shared_directory;
    bool is_wsl;           /**< to explain what the driver refuses, never to refuse by itself */
    char *cache_directory; /**< of measurements (figures.h); NULL: none */
    log_rate peer_log;     /**< of context_log_peer() */
    gpuipc_context_config config; /**< with all of its values settled; its texts are gone */
    atomic_uint_least64_t next_buffer_id;
    atomic_uint_least64_t next_connection; /**< number of the next connection, from 1 on */
    bool is_interruptible;                 /**< GPUIPC_CONTEXT_INTERRUPTIBLE */
    atomic_uint wakes;                     /**< by gpuipc_context_wake() */
    atomic_uint
        wakes_answered;  /**< so many a call has answered; one that begins begins behind these */
    atomic_bool is_over; /**< the caller has given it up: its last object ends it */
    const struct connection_contents *contents; /**< what connections ask of them, from below */
    os_deadline ends_by; /**< what its end may wait for is waited for until then */
    struct answers *answers;
    struct deferred_list *deferred;
    struct drop_table *drops;
    struct kept_handles *kept_handles;
    struct keep_alive *keep_alive;
    struct import_table *imports;
    struct buffer_table *buffers;
    struct lingering_buffers *lingering;
    struct staging_list *staging;
    struct point_context *points;
    struct watch *watch;
    struct mark_table *marks;
    struct loan_table *loans;
    struct ticket_cache *tickets;
    struct server_links *links;
    struct contents_streams *contents_streams;
} context;

/** What an area keeps in a context: zeroed memory, which api/context_create.c makes and frees. */
typedef struct context_part {
    size_t place; /**< in the context, of the pointer to it */
    size_t bytes;
    /** NULL: zeroes will do. What it made before a failure it undoes itself. */
    gpuipc_status (*begin)(context *ctx);
    /** NULL: nothing hangs on it.
     *  @param is_forked in a child, where no driver call may be made and another thread may have held a mutex */
    void (*end)(context *ctx, bool is_forked);
} context_part;

/** @param member of the context, @p type what it points to */
#define CONTEXT_PART(member, type) .place = offsetof(context, member), .bytes = sizeof(type)

/** The context behind a public handle, with a reference for the caller. */
gpuipc_status context_acquire(gpuipc_context *handle, context **out_context);

/** Gives a reference up. NULL does nothing. */
void context_unreference(context *self);

/** How long a call may wait, from the first time on that it has to. It asks no clock before. */
typedef struct time_limit {
    context *context;
    int timeout_ms;
    bool has_begun;
    os_deadline deadline;
    os_interrupt interrupt;
} time_limit;

/** Until when the call waits, from the first time on that this is asked. */
os_deadline time_limit_deadline(time_limit *self);

/** @param out lives as long as the call */
static inline void time_limit_begin(context *ctx, int timeout_ms, time_limit *out) {
    *out = (time_limit){.context = ctx, .timeout_ms = timeout_ms, .has_begun = timeout_ms == 0};
    if (ctx->is_interruptible) { /* a signal that comes before the first wait ends it, too */
        (void)time_limit_deadline(out);
    }
}

/** The same deadline, for a call whose waits may be interrupted, if the context wants that.
 *  @param interrupt lives as long as the call */
os_deadline context_interruptible(const context *self, os_deadline deadline,
                                  os_interrupt *interrupt);
/** For context_answer() alone: of a call that was interrupted. */
GPUIPC_COLD gpuipc_status context_answer_interrupted(context *self, gpuipc_status status);
/** What such a call answers: ERR_INTERRUPTED for what a deadline that passed early has left. */
static inline gpuipc_status context_answer(context *self, const os_interrupt *interrupt,
                                           gpuipc_status status) {
    return interrupt->came ? context_answer_interrupted(self, status) : status;
}
static inline gpuipc_status time_limit_answer(const time_limit *self, gpuipc_status status) {
    return context_answer(self->context, &self->interrupt, status);
}

/** Where this context's names live. */
os_directory context_directory(const context *self);

/** Whether CUDA_DEVICE_MAX_CONNECTIONS gives CUDA one hardware queue, so that a stream that waits for another process
 *  holds up all others. Reads the environment. */
bool context_has_one_connection(void);

/** Says a sentence to the log, if there is one. */
void context_log(const context *self, gpuipc_log_level level, const char *format, ...)
    GPUIPC_PRINTF(3, 4);
/** The same, as a warning, of what another process has done: no more of them in a second than log_rate.h says. How many
 *  were left out is said before the next one, or with the context's end. */
void context_log_peer(context *self, const char *format, ...) GPUIPC_PRINTF(2, 3);
void context_log_settle(context *self);

#endif
