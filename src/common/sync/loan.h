/* SPDX-License-Identifier: MIT */
/**
 * @file Loans: marks that are also given back. The first page of points of each connection has a word for each loan, which
 * the process that has the page writes when it takes the loan and when it returns it. The lender writes it once: so
 * that nobody takes it any more. What is written there is a number to compare with, and the lender believes nobody who
 * has not the secret of the mark (docs/adr/0014).
 */
#ifndef GPUIPC_LOAN_H
#define GPUIPC_LOAN_H

#include "sync/import_record.h"
#include "sync/mark.h"

struct context;

extern const struct context_part loan_part;

/* ---- lending -------------------------------------------------------------------------------- */

/** Lets a stream of the current CUDA context make the mark of a new loan. ERR_LIMIT: so many are not over.
 *  @param of of the buffer, whose end ends what nobody has taken */
gpuipc_status loan_lend(struct context *ctx, linked_list *of, gpuipc_stream stream, mark *out_mark);
/** At the end of the buffer. */
void loan_forget(struct context *ctx, linked_list *of, bool forked);

/** How loans stand. ERR_INVALID_ARGUMENT, here and in the next two, for what loan_lend() of this context has not made. Asks
 *  the system whether a few of the peers live, at most every 10 ms. */
gpuipc_status loan_look(struct context *ctx, const gpuipc_mark *loans, size_t count,
                        gpuipc_loan_state *out_states);
/** Nobody can take it any more. ERR_BUSY: somebody has */
gpuipc_status loan_cancel(struct context *ctx, const gpuipc_mark *bytes);

/** The words that a stream has to wait for, of all who have taken the loan, with a reference on each page; nobody else can
 *  take it any more. None: it is over, or nobody has taken it (@p out_state). The array is the caller's. */
gpuipc_status loan_copy_awaited(struct context *ctx, const gpuipc_mark *bytes,
                                point_word **out_words, size_t *out_count,
                                gpuipc_loan_state *out_state);

/** Before a page is sent that is the first of its connection. */
gpuipc_status loan_page_begin(struct context *ctx, point_page *page);
/** Nobody will write its words any more: what was taken there is returned. The mutex of points is held. */
void loan_page_end(point_page *page);

/* ---- borrowing ------------------------------------------------------------------------------- */

/** Takes the loan that a mark stands for, of the process that a buffer came from. ERR_RELEASED: it is over, or
 *  this process has it
 *  @param by returns it when the buffer is not used any more */
gpuipc_status loan_take(import_record *by, const mark *self);
/** ERR_INVALID_ARGUMENT for one that was not taken by this. */
gpuipc_status loan_return(import_record *by, const mark *self);
/** The same when a stream of the current CUDA context comes to it. */
gpuipc_status loan_return_async(import_record *by, const mark *self, gpuipc_stream stream);
/** All that was taken by a buffer. */
void loan_return_all(import_record *by);

#endif
