/* SPDX-License-Identifier: MIT */
/** @file What promise_peer.c shares with the other process, and promise_calls.c calls functions about. */
#ifndef GPUIPC_TEST_PROMISE_WORLD_H
#define GPUIPC_TEST_PROMISE_WORLD_H

#include <gpuipc/gpuipc.h>
#include <stdbool.h>

#include "os.h"
#include "promise_peer.h"
#include "unique.h"

/** Makes a call, by the clock. */
#define MEASURE(out_status, expression)                                                            \
    do {                                                                                           \
        promise_begun_ns = os_clock_ns();                                                          \
        (out_status) = (expression);                                                               \
        promise_took_ns = os_clock_ns() - promise_begun_ns;                                        \
    } while (0)

typedef struct promise_world {
    gpuipc_context *context;
    gpuipc_context *interruptible;
    gpuipc_listener *listener; /**< nobody connects any more */
    gpuipc_listener *spare;    /**< nobody is accepted */
    char spare_name[UNIQUE_NAME_MAX];
    char their_name[UNIQUE_NAME_MAX]; /**< of its listener */
    char nobody[UNIQUE_NAME_MAX];     /**< which nobody has */
    gpuipc_connection *connection;
    gpuipc_server *server; /**< with a thread */
    gpuipc_server *polled; /**< which nobody asks */
    /* of this process */
    gpuipc_buffer *own;
    gpuipc_ticket ticket; /**< of it */
    gpuipc_mark loan;     /**< of it, which nobody takes */
    gpuipc_channel *channel;
    gpuipc_channel *free_channel; /**< nobody reads it */
    /* of the other one */
    gpuipc_buffer *imported[PROMISE_ITEMS + 1]; /**< never ready; the first is kept */
    gpuipc_mark mark;                           /**< never reached */
    gpuipc_mark to_take[PROMISE_ITEMS];
    gpuipc_mark to_return[PROMISE_ITEMS]; /**< these are taken */
    gpuipc_mark to_return_async[PROMISE_ITEMS];
    gpuipc_mark to_drop[PROMISE_ITEMS];
    gpuipc_ticket their_ticket;
    gpuipc_ticket their_channel;
    char their_channel_name[UNIQUE_NAME_MAX];
    gpuipc_subscription *reader;
    /* which of the things that a call uses up is next */
    int taken;
    int returned;
    int returned_async;
    int loans_dropped;
    int given_up;
} promise_world;

extern promise_world world;

bool promise_is_dead(void);

#endif
