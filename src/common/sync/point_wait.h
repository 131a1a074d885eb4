/* SPDX-License-Identifier: MIT */
/** @file Where anything of this process waits for words of another: a stream, looked after until it has passed; or the
 *  host, by point_await(). ADR 10 lists who puts a stream's wait by itself. */
#ifndef GPUIPC_POINT_WAIT_H
#define GPUIPC_POINT_WAIT_H

#include "sync/import_record.h"
#include "sync/point.h"

/** How a stream waits. */
typedef struct point_waiter {
    struct context *context;
    gpuipc_stream stream;
    uint32_t device; /**< whose default stream it is, if it is one */
    import_record *
        of; /**< marked as lost when nobody is there any more who would write the words; NULL: nothing is */
    bool
        is_alone; /**< nothing else waits for these words: they may be stored when the driver fails */
    bool goes_back; /**< the words do, when a stream comes to it: what they are now says nothing */
} point_waiter;

/** Whether the waiter's stream can wait for words by itself; else its host has to. ERR_CUDA: it is being captured
 *  @param out_stream_id which no other stream gets, 0 where the driver cannot tell; NULL: nobody wants to know */
gpuipc_status point_can_wait(const point_waiter *self, bool *out_can, uint64_t *out_stream_id);

/** Lets a stream that can wait until words have their values; for those that have them already, and keep them, it is not
 *  made to. What is put on the stream afterwards runs then, or when nobody is there any more who would write them.
 *  Blocks while memory is freed, which waits for all streams.
 *  @param out_passage reached when the stream has passed */
gpuipc_status point_wait(const point_waiter *self, const point_word *words, size_t count,
                         point_word *out_passage);

/** The two parts of it, for streams that are given more than words to wait for (contents_flow.c): looks after them until
 *  they have passed a place. On success the passage is to be written there, by a stream or by passage_cancel().
 *  @param page which the streams touch */
gpuipc_status point_wait_begin(const point_waiter *self, point_page *page, const point_word *words,
                               size_t count, point_word *out_passage);

#endif
