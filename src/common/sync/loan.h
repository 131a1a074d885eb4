/* SPDX-License-Identifier: MIT */
/**
 * @file Loans, on the lender's side: marks that are also given back (loan_word.h; docs/adr/0014). What is written in their
 * words is a number to compare with, and the lender believes nobody who has not the secret of the mark.
 */
#ifndef GPUIPC_LOAN_H
#define GPUIPC_LOAN_H

#include "sync/loan_word.h"

struct context;

extern const struct context_part loan_part;

/** Lets a stream of the current CUDA context make the mark of a new loan. ERR_LIMIT: so many are not over.
 *  @param of of the buffer, whose end ends what nobody has taken */
gpuipc_status loan_lend(struct context *ctx, linked_list *of, gpuipc_stream stream, mark *out_mark);
/** The same of contents that are there, by the host: no call of the driver. */
gpuipc_status loan_lend_ready(struct context *ctx, linked_list *of, mark *out_mark);
/** At the end of the buffer. */
void loan_forget(struct context *ctx, linked_list *of, bool forked);

/** How loans stand. ERR_INVALID_ARGUMENT, here and in the next two, for what loan_lend() of this context has not made. Asks
 *  the system whether a few of the peers live, at most every 10 ms. */
gpuipc_status loan_look(struct context *ctx, const gpuipc_mark *loans, size_t count,
                        gpuipc_loan_state *out_states);
/** Nobody can take it any more. ERR_BUSY: somebody has */
gpuipc_status loan_cancel(struct context *ctx, const gpuipc_mark *bytes);

/** The words that a stream has to wait for, of all who have taken the loan; nobody else can take it any more.
 *  @param out_words is not written where it is over, or nobody has taken it (@p out_state) */
gpuipc_status loan_copy_awaited(struct context *ctx, const gpuipc_mark *bytes,
                                point_words *out_words, gpuipc_loan_state *out_state);

/** Before a page is sent that is the first of its connection. */
gpuipc_status loan_page_begin(struct context *ctx, point_page *page);
/** Nobody will write its words any more: what was taken there is returned. The mutex of points is held. */
void loan_page_end(point_page *page);

#endif
