/* SPDX-License-Identifier: MIT */
/** @file The process at the other end of a connection, as all that both ends share sees it: whether anybody is there who
 *  will write a word. It outlives the connection as long as something is shared. */
#ifndef GPUIPC_POINT_PEER_H
#define GPUIPC_POINT_PEER_H

#include <stdatomic.h>

#include "base/quota.h"
#include "base/shared_process.h"
#include "base/status.h"
#include "os.h"
#include "sync/lifeline.h"

struct context;

typedef struct point_peer {
    atomic_uint references;
    struct context *context; /**< no reference: whoever holds a peer holds the context */
    os_peer process;         /**< its handle is the next one's */
    shared_process *shared;  /**< a reference */
    quota *quota;            /**< the account of its user, a reference; NULL: it is this process */
    os_connection *connection; /**< NULL: this end is closed */
    bool has_closed;           /**< both found out once, for good */
    bool is_gone;
    lifeline lifelines[LIFELINE_SIDES]; /**< by the side that this process is */
    uint64_t ended_ns;           /**< when a lifeline was first seen to have ended; 0: none was */
    struct watch_group *watched; /**< what watch.c keeps of it, guarded by the watch's mutex */
} point_peer;

/** @param process copied, and its handle taken over on success: it may be closed, in favour of one that is there  @param connection stays there until
 *         point_peer_leave(); NULL: it is over
 *  ERR_LIMIT: it has as much of this process as it may */
gpuipc_status point_peer_new(struct context *ctx, const os_peer *process, os_connection *connection,
                             point_peer **out_peer);
void point_peer_reference(point_peer *self);
/** NULL does nothing. */
void point_peer_unreference(point_peer *self, bool forked);

/** Keeps the handle of the first page of a direction, to see by it when the other program ends; closes it else.
 *  @param side that this process is */
void point_peer_keep(point_peer *self, lifeline_side side, os_handle *page);

/** As os_peer_is_running(): 0 also when the process goes on with another program (execve(2)). */
int point_peer_is_running(point_peer *self);

/** This end is about to be closed: looks for the last time whether the other one is. */
void point_peer_leave(point_peer *self);
/** This end is closed. @param was_closed the other one was already */
void point_peer_left(point_peer *self, bool was_closed);

/** The context's point mutex is held in the next two, each of which is a system call or two.
 *  Whether the program is gone; where the system cannot say, the connection. A program that execve(2) has ended is gone a
 *  little later, when its work on GPUs has ended as well. */
bool point_peer_is_gone(point_peer *self);
/** Whether it closed its end while this one was open, after it had taken in all that it wanted of what had come: what it
 *  had not taken in by then it never will. */
bool point_peer_has_closed(point_peer *self);

#endif
