/* SPDX-License-Identifier: MIT */
/**
 * @file Export records: hand-overs of a buffer to other processes that are not returned yet. Each lies in the place of its
 * point (point.h), in the table of the connection that it went over, and hangs in a list of its buffer. A process that
 * is gone has returned all.
 *
 * What is asked of a buffer looks at the first of its list and forgets what has been returned, each once; what is asked
 * of a process that is gone settles its table, once.
 */
#ifndef GPUIPC_EXPORT_RECORD_H
#define GPUIPC_EXPORT_RECORD_H

#include "base/list.h"
#include "sync/point.h"

struct context;

typedef struct export_table export_table;
typedef struct export_record export_record;

/** What a buffer has of them. All zero is empty. Guarded by the context's point mutex. */
typedef struct buffer_exports {
    struct context *context;
    struct buffer_exports *original; /**< whose memory it is, when it came home; else NULL */
    atomic_bool is_lingering;        /**< registry.h: it waits for the last of them */
    linked_list unreturned;          /**< it may not be written yet, as far as is known */
    linked_list returned;            /**< it may, but is still open over there */
    /** Buffers that came home to this one's process and were handed over from there: it is this one's memory. */
    linked_list homes;
    list_link home;        /**< in the original's, while it has any itself */
    list_link in_returned; /**< of point_context::returned */
    linked_list streams;   /**< that wait for hand-overs (export_buffer.c) */
} buffer_exports;

/* ---- what is asked of a buffer ---------------------------------------------------------------- */

/** Whether another process may still have the buffer's memory open, so that memory that ends with its
 *  owner must not be freed. No driver call; a system call for a process that has not returned it. */
bool export_is_outstanding(buffer_exports *self);

/** Whether it may not be written yet: of a buffer that has come home, for its own hand-overs; of its original, for all. */
bool export_has_unreturned(buffer_exports *self);

/** How many hand-overs are not returned yet, as that. What was returned after many that are not may count for a
 *  while. */
uint32_t export_count(buffer_exports *self);

/** The words of the hand-overs that a stream has to wait for, and does not already.
 *  @param stream_id 0: what it waits for is not known
 *  @param out_serial for export_awaited() */
gpuipc_status export_copy_awaited(buffer_exports *self, uint64_t stream_id, point_words *out_words,
                                  uint64_t *out_serial);
/** The stream does now. */
void export_awaited(buffer_exports *self, uint64_t stream_id, uint64_t serial,
                    const point_word *passage);

/** ERR_NOT_SHAREABLE for a buffer whose hand-overs could not be noted: it has come home to another context
 *  than that of its original. */
gpuipc_status export_check(const buffer_exports *self);

/** At the end of the buffer: its hand-overs are its original's, or nobody's. */
void export_forget(buffer_exports *self, bool forked);

/** A buffer of this context that lingers (registry.h) and that nobody has open any more; NULL: none is known. It is one
 *  until the mutex is given back, which is held. */
buffer_exports *export_take_returned(struct context *ctx);

/* ---- what goes over a connection -------------------------------------------------------------- */

/** Looks after a few tables of connections that are over as well. */
gpuipc_status export_table_new(struct context *ctx, point_peer *peer, export_table **out_table);

/** The next page that the peer has not got; NULL: it has all. point_page_sent() when it has got it. */
point_page *export_table_unsent(const export_table *self);
/** The same word in the first page of each connection that anything was exported over. */
gpuipc_status export_copy_words(struct context *ctx, uint32_t at, uint64_t value,
                                point_words *out_words);
/** Gives it that value, in each of these pages. */
void export_store_words(struct context *ctx, uint32_t at, uint64_t value);
/** The number of a point among all of the connection's, as a record names it. */
uint32_t export_table_number(const export_table *self, const point *at);

/** Notes a hand-over, before its record leaves. ERR_LIMIT: too many are not returned.
 *  @param out_record stays there until export_cancel(), or until it has been returned */
gpuipc_status export_begin(export_table *self, buffer_exports *of, export_record **out_record,
                           point *out_point);
/* In the next two, that is @p at. */
/** Takes one back whose record has not left. */
void export_cancel(export_record *self, const point *at);
/** The point is not given out again before the stream has passed this place. */
void export_set_written(export_record *self, const point *at, const point_word *passage);

/** The connection is over. What is not returned stays listed until it is. NULL does nothing.
 *  @param is_served others wait for the calling thread, so that it does little: it looks on (below), also when the peer is gone */
void export_table_leave(export_table *self, bool is_served, bool forked);

/** Looks at a few of those that were left: some may be over, or their peers gone. */
void export_look_at_left(struct context *ctx);
/** The same, until all were looked at: a few in each call, and of one that had much a part.
 *  @param to_look SIZE_MAX to begin with; 0 when all were */
void export_look_on(struct context *ctx, size_t *to_look);
/** Looks at all that a context has exported, each table once: at its end. */
void export_settle_all(struct context *ctx);
/** Frees what is left of a context that ends. */
void export_end_all(struct context *ctx, bool forked);

#endif
