/* SPDX-License-Identifier: MIT */
/**
 * @file The buffers of a message on its way out: each is exported under a point, and its contents are waited
 * for, or marked on the stream that makes them.
 *
 * Every hand-over has a point, also where nobody asked for one: it costs no driver call (a page is made
 * once for a connection, by the system; the receiver's release writes the done word from the host), and
 * gpuipc_buffer_await_returns() holds for every buffer that was sent.
 */
#ifndef GPUIPC_HANDOVER_H
#define GPUIPC_HANDOVER_H

#include "memory/buffer.h"
#include "message/connection.h"
#include "message/wire.h"

typedef struct handover {
    connection *to;
    buffer *const *buffers;
    uint32_t count;
    struct handed *handed; /**< one for each buffer that is exported */
    uint32_t exported;
    wire_ready ready;
} handover;

/** The flags of a message that say when its contents are ready. ERR_INVALID_ARGUMENT */
gpuipc_status handover_check_flags(uint32_t flags);

/** What ends a wait for contents while streams of this process wait for others, so that nobody knows how long it takes. */
typedef struct handover_patience {
    const atomic_bool *is_over; /**< ERR_RELEASED when it becomes true */
    const char *what;           /**< is over then: the subject of a sentence in the past */
    os_deadline deadline;       /**< ERR_TIMEOUT from then on */
} handover_patience;

/** Waits on the host for the contents of buffers, one at least, as gpuipc_outgoing::stream says: who gets them then
 *  may look at once. */
gpuipc_status handover_wait(context *ctx, buffer *const *buffers, uint32_t count,
                            gpuipc_stream stream, const handover_patience *patience);

/** Exports the buffers, and waits for their contents or marks them on the stream. The send mutex is held.
 *  @param flags GPUIPC_SEND_READY, _ASYNC  @param stream as gpuipc_outgoing::stream */
gpuipc_status handover_begin(handover *self, connection *to, buffer *const *buffers, uint32_t count,
                             uint32_t flags, gpuipc_stream stream);

/** Sends the pages of points that the peer has not got yet: before the first record. */
gpuipc_status handover_send_pages(const handover *self, os_deadline deadline);

/** What the record of one buffer says of its point. */
void handover_describe(const handover *self, uint32_t index, wire_buffer *record);

/** @param sent how many of the records have left; the others are taken back
 *  @param out_first the point of the first, with a reference on its page; no page: it has not left. NULL: nobody asks */
void handover_end(handover *self, uint32_t sent, point *out_first);

#endif
