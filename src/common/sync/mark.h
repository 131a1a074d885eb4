/* SPDX-License-Identifier: MIT */
/**
 * @file Marks: ready points of buffers that others have open already. The exporter writes one word in the first page of
 * points of each connection that it has exported memory over; who has memory of it open finds that word by the number in the
 * mark. No peer can touch the words of another (docs/adr/0012).
 *
 * A mark made on a stream that is being captured repeats: the graph writes 1 at each launch, and who has waited writes 0.
 */
#ifndef GPUIPC_MARK_H
#define GPUIPC_MARK_H

#include "sync/point_wait.h"

struct context;

/** How many there are: the words of so many lie in a first page, and behind them those of loans, which are marks as well. */
#define MARK_SLOTS 1022u
#define LOAN_SLOTS 2047u
/** The number of the first of these words. */
#define MARK_WORDS_BEGIN (POINT_WORDS_END + 2u)
/** Of the first word behind them: here the borrower says what becomes of loans (loan.h). */
#define MARK_WORDS_END (MARK_WORDS_BEGIN + MARK_SLOTS + LOAN_SLOTS)

/** What its 16 bytes say. */
typedef struct mark {
    bool repeats;
    uint32_t slot;     /**< the number of its word; from MARK_SLOTS on it is a loan as well */
    uint32_t exporter; /**< a number that its pages have as well */
    uint32_t
        value; /**< that the word reaches; of one that repeats, the number of the newest page it is written in */
    uint16_t secret; /**< of a loan: who has not got the mark cannot guess it; else 0 */
} mark;

extern const struct context_part mark_part;

void mark_encode(const mark *self, gpuipc_mark *out_bytes);
/** ERR_INVALID_ARGUMENT for what mark_encode() has not made. */
gpuipc_status mark_decode(const gpuipc_mark *bytes, mark *out_mark);

/** Lets a stream of the current CUDA context make a mark, and pages that come later get it behind that. Waits while the
 *  stream's queue has no room, as the next two do; no mutex is held.
 *  ERR_LIMIT: streams have not come to so many marks yet */
gpuipc_status mark_write(struct context *ctx, gpuipc_stream stream, mark *out_mark);

/** The same for the ready word of a loan, whose number and value are its own.
 *  @param out_passage reached when the word is written; set also after a failure */
gpuipc_status mark_write_loan(struct context *ctx, const mark *self, gpuipc_stream stream,
                              point_word *out_passage);
/** The same by the host, at once: no call of the driver. */
void mark_store_loan(struct context *ctx, const mark *self);
/** What the pages of this context have as their exporter. */
uint32_t mark_exporter(const struct context *ctx);

/** The same on a stream that is being captured. ERR_LIMIT: so many are captured; ERR_NOT_SUPPORTED: streams cannot write
 *  words there
 *  @param captures of the buffer: the marks that graphs repeat as long as it is there */
gpuipc_status mark_capture_write(struct context *ctx, gpuipc_stream stream, linked_list *captures,
                                 mark *out_mark);
/** The graphs are not launched any more. */
void mark_captures_end(struct context *ctx, linked_list *captures, bool forked);

/** Before a page is sent that is the first of its connection: it gets the marks that were made before. No mutex is held. */
gpuipc_status mark_page_begin(struct context *ctx, point_page *page);

/** The word of a mark of the process that a buffer came from. ERR_INVALID_ARGUMENT: of another, or of before the
 *  connection; or the buffer was not received */
gpuipc_status mark_word(const import_record *of, const mark *self, point_word *out_word);
/** Lets a stream wait for a mark where point_can_wait(). One that repeats is set back behind that. */
gpuipc_status mark_wait(const point_waiter *by, const mark *self, const point_word *word);
/** Puts that into a stream that is being captured. */
gpuipc_status mark_capture_wait(const point_waiter *by, const point_word *word);
/** The host waits, as point_await(). */
gpuipc_status mark_await(struct context *ctx, const mark *self, const point_word *word,
                         os_deadline deadline);

#endif
