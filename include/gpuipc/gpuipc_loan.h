/* SPDX-License-Identifier: MIT */
/**
 * @file Loans: parts of memory that another process has open, handed out and given back, such as the frames of a ring or
 * the blocks of an arena. Part of gpuipc.h, which includes it by gpuipc_mark.h. The rules that hold everywhere stand there.
 *
 * A loan is a mark (gpuipc_mark.h) whose receiver also says that it is done. The lender fills a part, calls
 * gpuipc_buffer_lend(), and sends the 16 bytes over any channel. The borrower takes the loan, waits for it as for any mark,
 * uses the part, and returns the loan. Which part it is, the two agree on themselves. The lender learns whether the part may
 * be written again from words in shared memory: no message comes, and none is asked for.
 *
 * What a process has taken is returned when it ends, or releases the buffer. What nobody has taken stays lent until
 * the lender takes it back (gpuipc_buffer_cancel_loan()) or releases the buffer: that who was to take it has ended,
 * nobody knows. A loan is for one borrower. If several take it, it is over when all have returned it; who comes after that is
 * refused.
 *
 * A loan is not repeated by a graph. Graphs that take turns use two marks, one in each direction.
 */
#ifndef GPUIPC_GPUIPC_LOAN_H
#define GPUIPC_GPUIPC_LOAN_H

#include "gpuipc.h"
#include "gpuipc_mark.h"

#ifdef __cplusplus
extern "C" {
#endif

/** How a loan stands. It only goes up. */
typedef enum gpuipc_loan_state {
    GPUIPC_LOAN_LENT = 0,  /**< nobody has taken it */
    GPUIPC_LOAN_TAKEN = 1, /**< somebody has */
    GPUIPC_LOAN_OVER = 2   /**< the part may be written again */
} gpuipc_loan_state;

/* ---- the lender ---------------------------------------------------------------------------- */

/**
 * Lends a part of a buffer, and lets a stream make the mark: what it was given before is done when the mark is reached. The
 * cost is that of gpuipc_buffer_mark(), and a look at each connection over which memory of this context was lent. A
 * stream that has done all that it was given is given nothing: the mark is reached at once, and the cost is a fraction. Up
 * to 2,047 loans of a context can be out at a time; until its mark is reached, also one that is over counts.
 * @param buffer the buffer that the part is of. When it is released, loans that nobody has taken end
 * @param stream a CUstream; NULL: the default stream of the device that the buffer was made or opened for
 * @param out_loan receives the loan, which is a mark as well; unchanged after a failure
 * @errors ::GPUIPC_ERR_LIMIT (there are so many); ::GPUIPC_ERR_CUDA (the stream is being captured)
 * @ownership borrows; the loan is a value
 * @threads any  @blocking as gpuipc_buffer_mark()  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_buffer_lend(gpuipc_buffer *buffer,
                                                           gpuipc_stream stream,
                                                           gpuipc_mark *out_loan);

/**
 * Lends a part whose contents are there already: written by the host, or by work that the program has waited for. The mark
 * is reached when the call returns. It makes no call of the driver, so it costs a fraction of gpuipc_buffer_lend(). It may
 * be called while a stream is being captured, and where there is no CUDA context.
 * @param buffer as in gpuipc_buffer_lend()
 * @param out_loan receives the loan, which is a mark as well; unchanged after a failure
 * @errors ::GPUIPC_ERR_LIMIT (so many are out); ::GPUIPC_ERR_INVALID_ARGUMENT (out_loan is NULL)
 * @ownership borrows; the loan is a value
 * @threads any  @blocking no  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_buffer_lend_ready(gpuipc_buffer *buffer,
                                                                 gpuipc_mark *out_loan);

/**
 * Says how loans stand. For each of them it reads a word of shared memory, besides one for each connection over which
 * memory of the context was lent. Once in 10 ms such a call asks the system which borrowers live, 64 of them at a
 * time. No other system call is made.
 * @param buffer the one that they are of, or any other of its context
 * @param loans as gpuipc_buffer_lend() made them
 * @param count how many; may be 0
 * @param out_states room for as many, in the same order; unchanged after a failure
 * @errors ::GPUIPC_ERR_INVALID_ARGUMENT: one of them is no loan of this context, or damaged
 * @ownership borrows  @threads any  @blocking no  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_buffer_get_loan_states(
    gpuipc_buffer *buffer, const gpuipc_mark *loans, size_t count, gpuipc_loan_state *out_states);

/**
 * Waits on the host until a loan is over.
 * @param buffer as in gpuipc_buffer_get_loan_states()
 * @param loan as gpuipc_buffer_lend() made it
 * @param timeout_ms in milliseconds; 0: only looks; -1: without bound
 * @errors ::GPUIPC_ERR_TIMEOUT (the sentence says whether it was taken); ::GPUIPC_ERR_RELEASED (the context is given up,
 *         before or meanwhile); ::GPUIPC_ERR_INVALID_ARGUMENT as in gpuipc_buffer_get_loan_states()
 * @ownership borrows  @threads any  @blocking until it is over or the timeout  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_buffer_await_loan(gpuipc_buffer *buffer,
                                                                 const gpuipc_mark *loan,
                                                                 int timeout_ms);

/**
 * Lets a stream wait until a loan is over. It waits for those who have taken the loan by then, and nobody else can take it
 * afterwards. So the host waits first until somebody has. When a borrower ends, the stream goes on.
 * @param buffer as in gpuipc_buffer_get_loan_states()
 * @param loan as gpuipc_buffer_lend() made it
 * @param stream a CUstream; NULL: the default stream of the device that the buffer was made or opened for
 * @param timeout_ms how long the host waits, in milliseconds; 0: it only looks; -1: without bound
 * @errors ::GPUIPC_ERR_TIMEOUT (nobody has taken it), ::GPUIPC_ERR_CUDA (the stream is being captured),
 *         ::GPUIPC_ERR_RELEASED and ::GPUIPC_ERR_INVALID_ARGUMENT as in gpuipc_buffer_await_loan()
 * @ownership borrows  @threads any
 * @blocking until somebody has taken it or the timeout; where the device's streams cannot wait for words, until it is
 *           over or the timeout  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_buffer_await_loan_async(gpuipc_buffer *buffer,
                                                                       const gpuipc_mark *loan,
                                                                       gpuipc_stream stream,
                                                                       int timeout_ms);

/**
 * Takes a loan back that nobody has taken: a queue has dropped it, or its receiver has ended. Afterwards it is over, and
 * who tries to take it is refused.
 * @param buffer as in gpuipc_buffer_get_loan_states()
 * @param loan as gpuipc_buffer_lend() made it
 * @errors ::GPUIPC_ERR_BUSY (it was taken, and is not returned yet);
 *         ::GPUIPC_ERR_INVALID_ARGUMENT as in gpuipc_buffer_get_loan_states()
 * @ownership borrows  @threads any  @blocking no  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_buffer_cancel_loan(gpuipc_buffer *buffer,
                                                                  const gpuipc_mark *loan);

/* ---- the borrower -------------------------------------------------------------------------- */

/**
 * Takes a loan: from now on the lender waits for this process. To be called before the part is looked at.
 * gpuipc_buffer_await_mark_async() and gpuipc_buffer_await_mark() then wait for its contents.
 * @param buffer one that was received or opened from the context that lends, and not from another process that has it
 *        open too, or by a ticket of this very process. When it is released, what it has taken is returned
 * @param loan as gpuipc_buffer_lend() made it
 * @errors ::GPUIPC_ERR_RELEASED (the loan is over, or this process has taken it already: leave the part alone);
 *         ::GPUIPC_ERR_INVALID_ARGUMENT (no loan, damaged, of another context, or the buffer was not received)
 * @ownership gpuipc_buffer_return_loan(), gpuipc_buffer_drop_loan() or the buffer's release is owed  @threads any  @blocking no  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_buffer_take_loan(gpuipc_buffer *buffer,
                                                                const gpuipc_mark *loan);

/**
 * Returns a loan: this process uses the part no more, and neither do its streams.
 * @param buffer the one by which it was taken
 * @param loan as it was taken
 * @errors ::GPUIPC_ERR_INVALID_ARGUMENT (as gpuipc_buffer_take_loan(); or it was not taken by this buffer, or has been
 *         returned)
 * @ownership ends what gpuipc_buffer_take_loan() began  @threads any  @blocking no  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_buffer_return_loan(gpuipc_buffer *buffer,
                                                                  const gpuipc_mark *loan);

/**
 * Returns a loan in stream order: when the stream is there, the lender may write the part again.
 * @param buffer the one by which it was taken
 * @param loan as it was taken
 * @param stream a CUstream; NULL: the default stream of the device that the buffer was opened for
 * @errors as gpuipc_buffer_return_loan(), and ::GPUIPC_ERR_CUDA (also for a stream that is being captured). After an
 *         error the loan is still taken
 * @ownership ends what gpuipc_buffer_take_loan() began  @threads any
 * @blocking no; for the stream where the driver has neither words nor host functions  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_buffer_return_loan_async(gpuipc_buffer *buffer,
                                                                        const gpuipc_mark *loan,
                                                                        gpuipc_stream stream);

/**
 * Returns a loan from wherever the program is: a garbage collector, a destructor at any time, a thread without a CUDA
 * context. Makes no call of the driver. What the devices that may use the buffer have been given until now may still
 * use the part. When they have done it, a thread of the library returns the loan. So a program that keeps the buffer
 * for other parts need not know which streams used this one. What gpuipc_buffer_drop() says of contexts and captures
 * holds here, too. So does this: work of those devices that waits for something which its lender does only after this
 * loan is back never ends. A stream that awaits the lender's next mark in a ring of parts is such work: return the loan
 * on a stream there.
 * @param buffer the one by which it was taken; its memory is kept until the loan is returned, whoever releases it
 * @param loan as it was taken
 * @errors as gpuipc_buffer_return_loan()
 * @ownership ends what gpuipc_buffer_take_loan() began  @threads any, also at the same time
 * @blocking no: no call of the driver; it may start the thread  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_buffer_drop_loan(gpuipc_buffer *buffer,
                                                                const gpuipc_mark *loan);

#ifdef __cplusplus
}
#endif

#endif
