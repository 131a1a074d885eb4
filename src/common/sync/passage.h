/* SPDX-License-Identifier: MIT */
/**
 * @file Passages: words that a stream writes behind what it does with shared words, in pages that no other process has.
 * They say whether the stream may still touch a shared page, which must not depend on what a peer writes there.
 */
#ifndef GPUIPC_PASSAGE_H
#define GPUIPC_PASSAGE_H

#include <stdatomic.h>

#include "base/list.h"
#include "base/status.h"
#include "os.h"

struct context;

typedef struct point_page point_page;

/** A word of a timeline semaphore, and the value that is written there or waited for. */
typedef struct point_word {
    point_page *page; /**< NULL: reached from the start */
    uint32_t at;      /**< its number in the page */
    uint64_t value;
} point_word;

#define POINT_PASSED ((point_word){0})

/** Those of a context, guarded by its point mutex. All zero is empty. */
typedef struct passage_table {
    linked_list pages; /**< the newest first */
    linked_list free;
    linked_list busy; /**< not looked at for longest: first */
} passage_table;

/** A word that says whether a stream has passed a place. As long as it does not say so, the page @p of stays mapped (NULL:
 *  it is held otherwise). ERR_LIMIT: streams have not come to 800,000 of them. */
gpuipc_status passage_take(struct context *ctx, point_page *of, point_word *out_passage);
/** Another page stays mapped until the same passage, which was taken before. ERR_LIMIT likewise. */
gpuipc_status passage_take_also(struct context *ctx, point_page *of, const point_word *passage);
/** It did not come to it. */
void passage_cancel(const point_word *passage);

/** Whether no stream can touch a page any more. The mutex is held. */
bool passage_all_reached(point_page *of);

/** Defers the end of all pages until their streams have passed. */
void passage_table_end(struct context *ctx);

#endif
