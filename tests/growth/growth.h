/* SPDX-License-Identifier: MIT */
/**
 * @file What a call costs beside many other objects: row 11 of docs/reliability.md. A world is a process in which so many
 * objects of one kind live (population.c), beside a few that calls are made about (world.c). A call is one public function,
 * with what prepares it and what undoes it (calls_*.c). main.c has a world of each size at the same time, lets them take
 * turns, and compares.
 */
#ifndef GPUIPC_TEST_GROWTH_H
#define GPUIPC_TEST_GROWTH_H

#include <gpuipc/gpuipc.h>
#include <gpuipc/gpuipc_channel.h>
#include <gpuipc/gpuipc_manifest.h>
#include <gpuipc/gpuipc_native.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "child.h"
#include "driver.h"
#include "unique.h"

/** Enough for anything that waits for a process that lives, on a machine that is busy. */
#define GROWTH_SOON_MS 60000
/** The name of the program, by which it starts itself. */
#define GROWTH_PROGRAM "growth_calls"
/** How much is prepared at a time, at most. */
#define GROWTH_ITEMS 16u
/** What buffers are made of. */
#define GROWTH_BYTES (UINT64_C(2) << 20)

/** Says what is wrong, and ends the process with 1. */
_Noreturn void growth_fail(const char *format, ...) GPUIPC_PRINTF(1, 2);
void growth_must(gpuipc_status status, const char *what);
#define MUST(call) growth_must((call), #call)
void growth_must_cuda(CUresult result, const char *what);
#define MUST_CUDA(call) growth_must_cuda((call), #call)

/* ---- calls ------------------------------------------------------------------------------------------ */

/** One call of a public function, made so often in a row; @p i counts them. */
typedef struct growth_call {
    const char *function;
    const char *how;             /**< where a function is called in more than one way; else NULL */
    void (*prepare)(unsigned i); /**< each of them, before the row; NULL: nothing is */
    void (*act)(unsigned i);     /**< what is timed; NULL: it is not, and why_not says why */
    void (*undo)(unsigned i);    /**< each of them, after the row; NULL: nothing is */
    unsigned in_row; /**< how many; 0: GROWTH_ITEMS, or more where nothing is prepared */
    const char *why_not;
} growth_call;

typedef struct growth_calls {
    const growth_call *calls;
    size_t count;
} growth_calls;

extern const growth_calls growth_buffer_calls;
extern const growth_calls growth_loan_calls;
extern const growth_calls growth_message_calls;
extern const growth_calls growth_ticket_calls;
extern const growth_calls growth_other_calls;
extern const growth_calls growth_planted_calls;

/** All of them, one after the other; NULL behind the last. */
const growth_call *growth_call_at(size_t index);

/** The fastest row of some, which together take so long at most (one is always made): nanoseconds of the thread's
 *  processor time for each call. */
double growth_time(const growth_call *of, uint64_t budget_ns);

/** What a row of calls works with. */
typedef struct growth_item {
    gpuipc_context *context;
    gpuipc_buffer *buffer;
    gpuipc_buffer *again; /**< the same, opened once more */
    gpuipc_connection *connection;
    gpuipc_connection *accepted;
    gpuipc_listener *listener;
    gpuipc_server *server;
    gpuipc_channel *channel;
    gpuipc_subscription *subscription;
    gpuipc_mark mark;
    gpuipc_ticket ticket;
    gpuipc_frame frame;
    gpuipc_word returned; /**< of it */
    gpuipc_native_segment segment;
    gpuipc_native_layout layout;
    char name[UNIQUE_NAME_MAX];
} growth_item;

extern growth_item growth_items[GROWTH_ITEMS];

/* ---- the world ---------------------------------------------------------------------------------------- */

typedef struct growth_world {
    char directory[RUNTIME_DIRECTORY_MAX];
    driver driver; /**< its own entry points, as a program that uses CUDA has them */
    gpuipc_context *context;
    gpuipc_context *interruptible;
    gpuipc_context *other;   /**< the other end of contents */
    gpuipc_buffer *own;      /**< the population's, where that is of one buffer */
    gpuipc_buffer *idle;     /**< with no hand-over that is out */
    gpuipc_buffer *arena;    /**< of loans and marks */
    gpuipc_buffer *imported; /**< the same, as it was received */
    gpuipc_buffer *into;     /**< of the other context */
    gpuipc_server *server;   /**< that is polled; the population's */
    gpuipc_ticket ticket;    /**< of own */
    gpuipc_listener *listener;
    char listener_name[UNIQUE_NAME_MAX];
    gpuipc_connection *client; /**< to the listener, in this process */
    gpuipc_connection *accepted;
    gpuipc_connection *contents_client; /**< the same, to the other context */
    gpuipc_connection *contents_accepted;
    gpuipc_channel *channel; /**< without a reader */
    gpuipc_channel *read;    /**< with one */
    char read_name[UNIQUE_NAME_MAX];
    gpuipc_ticket read_ticket;
    gpuipc_subscription *reader;
    CUstream sends;
    CUstream receives;
    child_process *peer; /**< another process, with a server of its own; and it asks this one */
    gpuipc_ticket peer_ticket;
    uint32_t count; /**< of the population */
} growth_world;

extern growth_world world;

void growth_world_begin(void);
void growth_world_end(void);

gpuipc_context *growth_context(uint32_t flags);
gpuipc_buffer *growth_buffer(gpuipc_context *within);
/** Makes both ends; the listener has to be the context's. */
void growth_pair(gpuipc_listener *listener, const char *name, gpuipc_context *client_of,
                 gpuipc_connection **out_client, gpuipc_connection **out_accepted);
/** Hands a buffer over, by the pair of the world. */
gpuipc_buffer *growth_hand_over(gpuipc_buffer *sent, uint32_t send_flags, uint32_t receive_flags);
/** Waits until the default stream has done what it was given. */
void growth_synchronize(void);
/** Waits for a line of another process, and serves meanwhile where that is wanted. */
void growth_hear(child_process *from, const char *expected, bool serves);

/* ---- populations --------------------------------------------------------------------------------------- */

typedef struct growth_population {
    const char *name;
    const char *what; /**< for a person */
    uint32_t (*most)(
        uint64_t handles); /**< how many there can be where a process may have so many handles */
    const char *why;       /**< there are not more of them */
    void (*begin)(void);   /**< makes world.count of them */
    void (*end)(void);
} growth_population;

/** NULL behind the last. */
const growth_population *growth_population_at(size_t index);
const growth_population *growth_population_named(const char *name);

/* ---- other processes ------------------------------------------------------------------------------------- */

/** Another process of the world, which says its first line before this returns. */
child_process *growth_peer_start(const char *const *arguments);
void growth_peer_end(child_process *peer);

/** growth_calls peer DIRECTORY TICKET: says the ticket of a server of its own; with each line "ask" opens TICKET. */
int growth_run_peer(char **arguments);
/** growth_calls clients DIRECTORY TICKET COUNT: so many contexts that have TICKET open. */
int growth_run_clients(char **arguments);

#endif
