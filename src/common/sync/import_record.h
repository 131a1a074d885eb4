/* SPDX-License-Identifier: MIT */
/** @file Import records: what this process owes the exporter of a buffer that came with a point. */
#ifndef GPUIPC_IMPORT_RECORD_H
#define GPUIPC_IMPORT_RECORD_H

#include <stdatomic.h>

#include "sync/point.h"

typedef struct import_record {
    atomic_uint references;
    point at;         /**< a reference on its page; no page: there is no point */
    point_word ready; /**< when it is reached, the contents are valid; its page is held otherwise */
    bool
        ends_with_owner; /**< the exporter must not free before this process has closed the memory */
    atomic_bool is_returned; /**< a stream writes that it may be written again */
    point_word passage;      /**< behind that write, where import_record_end() has more to store */
    atomic_bool is_closed;   /**< the memory is closed here */
    atomic_bool is_released; /**< which the exporter has been told */
    atomic_bool is_awaited;  /**< somebody waits, or has waited, for the ready word */
    atomic_bool is_lost;     /**< the sender ended before the contents were ready */
    point_word
        given_up; /**< a reference on its page; when it is reached, the sender gave the contents up, */
    point_word later;     /**< unless this is as well: it was later ones */
    point_page *marks;    /**< a reference on the exporter's page with its marks; or NULL */
    linked_list captured; /**< waits of graphs, guarded by the point mutex */
    linked_list loans;    /**< taken and not returned: loan_taken.h; guarded likewise */
} import_record;

/** Takes in a point. Takes its own reference on the page. */
gpuipc_status import_record_new(const point *at, bool ends_with_owner, import_record **out_record);
/** NULL does nothing in this and the next two. */
void import_record_reference(import_record *self);
void import_record_unreference(import_record *self, bool forked);

/** The memory is not used here any more, unless a stream says so. To be called before it is closed: that
 *  may wait for streams of this process (cuIpcCloseMemHandle does: measured on an H200, driver 580),
 *  and they for what the exporter does when it has the memory back. */
void import_record_return(import_record *self);

/** The memory is closed here: the last that the exporter waits for. It is told when the stream has written
 *  what comes before. */
void import_record_end(import_record *self);

/** A graph waits for a word of the exporter's whenever it is launched, until the memory is not used any more.
 *  @param passage reached then  */
gpuipc_status import_record_capture(import_record *self, const point_word *word,
                                    const point_word *passage);
/** Whether one does already. */
bool import_record_is_captured(import_record *self, const point_word *word);

/** Whether the contents never came. NULL: no. */
bool import_record_is_lost(const import_record *self);

/** The stream has passed self->passage. */
void import_record_passed(import_record *self);

#endif
