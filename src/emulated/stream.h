/* SPDX-License-Identifier: MIT */
/**
 * @file Streams: work in order, on a thread of its own that is started when the first work has to
 * wait. The driver's lock is held in every call.
 */
#ifndef GPUIPC_EMULATED_STREAM_H
#define GPUIPC_EMULATED_STREAM_H

#include "context.h"
#include "task.h"

typedef enum stream_kind {
    STREAM_MADE,       /**< by cuStreamCreate */
    STREAM_LEGACY,     /**< the default stream of a context, 0 and CU_STREAM_LEGACY */
    STREAM_PER_THREAD, /**< CU_STREAM_PER_THREAD of one thread */
    STREAM_LANE,       /**< of an executable graph */
    STREAM_BEHIND_ALL  /**< of nobody's work: where points behind all streams of a context stand */
} stream_kind;

/** Where a stream or an event stands in a capture. */
typedef struct capture_place {
    struct capture *capture; /**< an event holds one reference; NULL: in none */
    unsigned lane;           /**< of a stream */
    CUgraphNode *after;      /**< what comes next depends on these nodes */
    size_t after_count;
} capture_place;

typedef struct stream {
    CUstream handle; /**< of a STREAM_MADE that is not closed */
    stream_kind kind;
    unsigned long long id; /**< that no other stream gets */
    context *owner;
    unsigned flags;
    int priority;
    const void *thread; /**< whose, of a STREAM_PER_THREAD */
    task *first;        /**< queue, in order */
    task *last;         /**< its end; means nothing while first is NULL */
    task *latest;       /**< the last task ever given to it; one reference, or NULL */
    unsigned calls;     /**< in the queue, of those that stream_count_call() counts */
    os_thread *worker;  /**< NULL: not started */
    bool is_closed;     /**< nothing comes any more: the worker ends with the queue */
    bool is_finished;   /**< the worker has ended */
    bool is_awaited;    /**< a call waits for that and frees it then */
    capture_place captured;
    struct stream *next;
} stream;

/** Calls that write or wait for words and find room in a stream, be it for one word or a list. The next one waits
 *  (measured on an H200, driver 580). */
#define STREAM_CALLS_MAX 1021u

CUresult stream_create(context *owner, unsigned flags, int priority, stream **out);

/** Frees streams that were closed with work in them and have ended since, and their threads. */
void stream_free_finished(context *owner);

/** What a call has just queued takes room until it is done. */
void stream_count_call(stream *on);

/** The stream behind a handle; the default ones are those of the current context.
 *  CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_ILLEGAL_ADDRESS: the
 *  context is dead. */
CUresult stream_find(CUstream handle, stream **out);

/** The default stream of a context. */
CUresult stream_legacy(context *owner, stream **out);

/** Makes a stream whose work is behind all that the other streams of a context had before it. The caller closes it:
 *  it has a thread of its own until what is on it is done. */
CUresult stream_behind_all(context *owner, stream **out);

/** A stream without a handle that nothing else waits for, for the nodes of an executable graph. */
CUresult stream_create_lane(context *owner, stream **out);

/* On a stream that is captured these calls do nothing, answer what capture_check says, and make the capture
 * invalid. */

/** Appends work, to run some time later. Takes @p todo over, whatever the result. */
CUresult stream_submit(stream *on, work *todo);
/** The same; the point at which it is done, the caller's reference. */
CUresult stream_submit_point(stream *on, work *todo, task **out);
/** Runs work in its turn and returns when it is done. Takes @p todo over, whatever the result.
 *  CUDA_ERROR_ILLEGAL_ADDRESS: the context died of this work or of what it waited for. */
CUresult stream_run(stream *on, work *todo);
/** Appends a point that is done when all before it is; the caller's reference. */
CUresult stream_mark(stream *on, task **out);
/** Everything appended from now on waits for @p point. */
CUresult stream_wait_for(stream *on, task *point);

/** CUDA_SUCCESS, CUDA_ERROR_NOT_READY, or CUDA_ERROR_OUT_OF_MEMORY. */
CUresult stream_query(stream *on);
/** CUDA_ERROR_ILLEGAL_ADDRESS: the context died of what was waited for. */
CUresult stream_synchronize(stream *on);
/** Waits for all streams of a context. */
void stream_wait_context(context *owner);
/** The same for calls that free, during which every other call of the process waits (measured on an H100): what
 *  the streams wait for must come without one. */
void stream_wait_context_alone(context *owner);

/** The handle becomes invalid; what is queued is still done, and then it is freed. */
void stream_close(stream *on);

#endif
