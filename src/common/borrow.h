/* SPDX-License-Identifier: MIT */
/** @file A buffer that came with a point: what this process owes its lender. */
#ifndef GPUIPC_BORROW_H
#define GPUIPC_BORROW_H

#include <stdatomic.h>

#include "point.h"

typedef struct borrow {
    atomic_uint references;
    point_page *page; /**< a reference; NULL when there is no point */
    point at;
    bool has_ready_word;  /**< when it is reached, the contents are valid; else they are */
    bool ends_with_owner; /**< the lender must not free before this process has closed the memory */
    atomic_bool is_returned; /**< a stream writes that it may be written again */
    point_word
        passage; /**< behind that write, where borrow_end() has more to store; value 0: none */
    atomic_bool is_closed;   /**< the memory is closed here */
    atomic_bool is_released; /**< which the lender has been told */
    atomic_bool is_lost;     /**< the sender ended before the contents were ready */
} borrow;

/** Takes in a point of a record. Takes its own reference on the page. */
gpuipc_status borrow_begin(point_page *page, const point *at, bool ends_with_owner,
                           borrow **out_borrow);
void borrow_reference(borrow *self);
/** NULL does nothing. */
void borrow_unreference(borrow *self, bool forked);

/** The memory is not used here any more, unless a stream says so. To be called before it is closed: that
 *  may wait for streams of this process (cuIpcCloseMemHandle does: measured on an H200, driver 580),
 *  and they for what the lender does when it has the memory back. */
void borrow_return(borrow *self);

/** The memory is closed here: the last that the lender waits for. It is told when the stream has written
 *  what comes before. */
void borrow_end(borrow *self);

/** The stream has passed self->passage. */
void borrow_passed(borrow *self);

#endif
