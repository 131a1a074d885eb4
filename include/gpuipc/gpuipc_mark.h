/* SPDX-License-Identifier: MIT */
/**
 * @file Marks: ready points of memory that another process has open already, such as a part of an arena, or the same
 * ticket again. Part of gpuipc.h, which includes it. The rules that hold everywhere stand there.
 *
 * The producer puts its work on a stream, and then calls gpuipc_buffer_mark(). The 16 bytes go over any channel. The
 * consumer calls gpuipc_buffer_await_mark_async(), and puts its own work on that stream.
 *
 * A mark costs no message, and its consumer no system call. In a CUDA graph both calls can be captured. The mark then
 * repeats: each launch of the one graph makes it once, and each launch of the other waits for it once.
 */
#ifndef GPUIPC_GPUIPC_MARK_H
#define GPUIPC_GPUIPC_MARK_H

#include "gpuipc.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A mark, to be sent and kept as these bytes. docs/wire-format.md says what they are. */
typedef struct gpuipc_mark {
    uint8_t bytes[16]; /**< all of it: no padding, no byte order */
} gpuipc_mark;

/**
 * Lets a stream make a mark: what it was given before is done when the mark is reached. Every process that has
 * a buffer of this context open, and has not returned it, can wait for the mark. So can one that opens such a buffer
 * later. The cost on the
 * stream is a word for each connection over which memory of this context was lent, and one behind them. A mark of a
 * stream that never comes to it is kept until the context ends; up to 768 can be.
 *
 * The driver keeps 1,021 calls of a stream, and then lets the next one wait. A mark is one of them for up to 63
 * connections, and one more for each 64 beyond. So 768 marks of up to 63 connections find room on a stream that has
 * little else. Where they do not, this call waits for the stream, and keeps no other call of the library waiting.
 *
 * On a stream that is being captured, the mark repeats. The processes that can wait for it are those that had opened
 * something when it was captured, and each may wait in one place. The graph may be launched until the buffer is
 * released, and no longer. Two launches without a wait between them are seen as one: let the graph wait for a mark of
 * the other side first. Up to 254 marks of a context can be captured at a time.
 * @param buffer a live buffer of the context; it says of which device a default stream is
 * @param stream a CUstream; NULL: the default stream of the device that the buffer was made or opened for
 * @param out_mark receives the mark; unchanged after a failure
 * @errors ::GPUIPC_ERR_LIMIT (so many marks are not reached yet, or are captured); ::GPUIPC_ERR_CUDA (a default
 *         stream while another is captured); ::GPUIPC_ERR_NOT_SUPPORTED (captured where streams cannot write words)
 * @ownership borrows; a mark is a value, and nothing is owed for it  @threads any
 * @blocking while the stream's queue is full; for the stream where the driver has neither words nor host functions
 * @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_buffer_mark(gpuipc_buffer *buffer,
                                                           gpuipc_stream stream,
                                                           gpuipc_mark *out_mark);

/**
 * Lets a stream wait for a mark. When the process that made it ends before, the stream goes on, and the buffer counts as
 * lost (gpuipc_buffer_info::is_lost). A mark that was reached already costs the stream nothing, unless it repeats: then
 * each call waits for one launch, also where the stream comes to it later.
 *
 * On a stream that is being captured, the mark must be one that repeats. Each launch then waits, and sets the mark back.
 * The graph may be launched until the buffer is released, and no longer. Nobody knows when it is. So until then the
 * whole process puts off what has to wait for all streams, in each of its contexts:
 * - legacy, p2p and host memory that was released is not freed, nor are pages of points and rings of contents; not even
 *   by a creation that finds no memory;
 * - before CUDA 12.5, buffers that were dropped are not unmapped;
 * - gpuipc_context_destroy() of another context that has such memory waits a second, and leaves it to the end of the
 *   process.
 *
 * Release the buffer when its graphs are not launched any more.
 * @param buffer a buffer that was received or opened from the context that made the mark, and not from another
 *        process that has it open too. A ticket of this very process opens a view, of which no mark is known: there
 *        an event of CUDA does the same. (By a message within one process it works.)
 * @param mark as gpuipc_buffer_mark() made it
 * @param stream a CUstream; NULL: the default stream of the device that the buffer was opened for
 * @errors ::GPUIPC_ERR_INVALID_ARGUMENT: no mark, damaged, of another context, or captured before this process opened
 *         anything; the buffer was not received; or the stream is captured, and the mark does not repeat.
 *         ::GPUIPC_ERR_CUDA: a default stream while another is captured. ::GPUIPC_ERR_NOT_SUPPORTED: captured where
 *         streams cannot wait for words.
 * @ownership borrows; the buffer must stay until the stream has passed  @threads any; of a mark that repeats, one at a
 *            time
 * @blocking while memory is freed in another thread; until the mark is reached where the device's streams cannot wait for
 *           words  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_buffer_await_mark_async(gpuipc_buffer *buffer,
                                                                       const gpuipc_mark *mark,
                                                                       gpuipc_stream stream);

/**
 * Waits on the host for a mark. One that repeats is set back; no stream may be waiting for it, or about to, meanwhile.
 * @param buffer as in gpuipc_buffer_await_mark_async()
 * @param mark as gpuipc_buffer_mark() made it
 * @param timeout_ms in milliseconds; 0: only looks; -1: without bound
 * @errors ::GPUIPC_ERR_TIMEOUT; ::GPUIPC_ERR_LOST (the process that made it ended before it was reached);
 *         ::GPUIPC_ERR_RELEASED (the context is given up, before or meanwhile);
 *         ::GPUIPC_ERR_INVALID_ARGUMENT as in gpuipc_buffer_await_mark_async()
 * @ownership borrows  @threads any; of a mark that repeats, one at a time  @blocking until reached or the timeout
 * @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_buffer_await_mark(gpuipc_buffer *buffer,
                                                                 const gpuipc_mark *mark,
                                                                 int timeout_ms);

#ifdef __cplusplus
}
#endif

#include "gpuipc_loan.h" /* marks that are given back */

#endif
