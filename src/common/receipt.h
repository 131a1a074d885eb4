/* SPDX-License-Identifier: MIT */
/** @file The buffers of a message that has come: the points they are lent under, and when their contents
 *  are ready. */
#ifndef GPUIPC_RECEIPT_H
#define GPUIPC_RECEIPT_H

#include "buffer.h"
#include "connection.h"

/** Takes in a packet with the page of the peer's points. ERR_PROTOCOL for a second one, one inside a
 *  message, or what is no such page.
 *  @param handle stays the caller's */
gpuipc_status receipt_take_page(connection *from, os_handle handle);

/** ERR_PROTOCOL for a record that names a point which is not there. */
gpuipc_status receipt_check(const connection *from, const wire_buffer *record);

/** How the contents of a message's buffers are waited for on a stream: settled before they are opened. */
typedef struct receipt {
    point_word *passages; /**< one for each buffer whose word is not reached; NULL: there is none */
} receipt;

/** Waits on the host until the contents of all buffers of the message are ready; with
 *  GPUIPC_RECEIVE_ASYNC only for what a stream cannot wait for. On success receipt_end() is owed.
 *  ERR_TIMEOUT (the message stays), ERR_LOST, ERR_RELEASED */
gpuipc_status receipt_begin(receipt *self, connection *from, const gpuipc_incoming *wanted,
                            os_deadline deadline);

/** Notes in a buffer what it was lent under. */
gpuipc_status receipt_borrow(connection *from, const wire_buffer *record, buffer *opened);

/** Lets the stream wait for the contents of the buffers, which are open by now. */
gpuipc_status receipt_wait_async(receipt *self, connection *from, gpuipc_buffer *const *opened,
                                 const gpuipc_incoming *wanted);

/** Whether the contents of a buffer that is open are there. No system call, no driver call. */
bool receipt_is_ready(const buffer *opened);
/** ERR_LOST when they never will be, and what waited for them was let go. */
gpuipc_status receipt_check_contents(const buffer *opened, const char *operation);
/** Waits for them, as one does who has just received it. ERR_TIMEOUT, ERR_LOST, ERR_RELEASED (the context is
 *  given up)
 *  @param flags GPUIPC_RECEIVE_ASYNC: lets the stream wait */
gpuipc_status receipt_await(buffer *opened, uint32_t flags, gpuipc_stream stream,
                            os_deadline deadline, const char *operation);

void receipt_end(receipt *self, connection *from);

/** The message is dropped: what it brought is returned. */
void receipt_refuse(connection *from);

#endif
