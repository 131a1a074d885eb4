/* SPDX-License-Identifier: MIT */
/**
 * @file Hand-overs of a buffer to other processes that are not returned yet. Each has a point
 * (point.h), whose done word the receiver writes; a process that is gone has returned all.
 */
#ifndef GPUIPC_LEND_H
#define GPUIPC_LEND_H

#include "point.h"

struct buffer;

/** One hand-over. */
typedef struct lend {
    point_page *page; /**< a reference */
    point at;         /**< none: there was no point left; returned when the process is gone */
    const struct buffer
        *through; /**< the buffer that was sent: this one, or one that had come home */
} lend;

/** Those of one buffer, and of those that have come home to it: it is its memory that must stay. All zero
 *  is empty. Guarded by the context's point mutex. */
typedef struct lend_list {
    lend *lends;
    uint32_t count;
    uint32_t capacity;
    uint32_t next_look;     /**< of lend_collect_some() */
    struct lend_list *next; /**< of the context's lists that are not empty */
    struct lend_list **link;
} lend_list;

/** Whether another process may still have the buffer's memory open, so that memory that ends with its
 *  owner must not be freed. No driver call; a system call for a process that has not returned it. */
bool lend_is_outstanding(struct buffer *self);

/** How many hand-overs are not returned yet: of a buffer that has come home, its own; of its original, all. */
uint32_t lend_count(struct buffer *self);

/** ERR_NOT_SHAREABLE for a buffer whose hand-overs could not be noted: it has come home to another context
 *  than that of its original. */
gpuipc_status lend_check(const struct buffer *self);

/** Notes a hand-over, before its record leaves. Takes its own reference on the page. */
gpuipc_status lend_add(struct buffer *self, point_page *page, const point *at);

/** Takes one back whose record has not left. */
void lend_remove(struct buffer *self, const point_page *page, const point *at);

/** The latest under a point of this page, with a reference on the page for the caller; NULL: none is left.
 *  @param out_at its point */
point_page *lend_find_last(struct buffer *self, const point_page *page, point *out_at);

/** Forgets what has been returned, to whichever buffer, and with it the pages of connections that are over. It
 *  looks at @p most lends, in turn: what it costs does not depend on how many there are. The mutex is held.
 *  @param questions about so many processes it asks the system */
void lend_collect_some(point_context *points, uint32_t most, uint32_t questions);

/** Forgets them all, returned or not: at the end of the buffer. */
void lend_clear(struct buffer *self, bool forked);

#endif
