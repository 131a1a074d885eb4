/* SPDX-License-Identifier: MIT */
/** @file The buffers of a message that has come: the points they were exported under, and when their contents
 *  are ready. */
#ifndef GPUIPC_RECEIPT_H
#define GPUIPC_RECEIPT_H

#include "memory/buffer.h"
#include "message/connection.h"

/** Takes in a packet with a page of the peer's points. ERR_PROTOCOL for one too many, one inside a
 *  message, or what is no such page.
 *  @param handle stays the caller's */
gpuipc_status receipt_take_page(connection *from, os_handle handle);

/** ERR_PROTOCOL for a record that names a point which is not there. */
gpuipc_status receipt_check(const connection *from, const wire_buffer *record);

/** Waits on the host until the contents of all buffers of the message are ready. With GPUIPC_RECEIVE_ASYNC it waits
 *  only where a stream cannot, and with GPUIPC_RECEIVE_DEFERRED never.
 *  ERR_TIMEOUT (the message stays), ERR_LOST, ERR_RELEASED */
gpuipc_status receipt_await_message(connection *from, const gpuipc_incoming *wanted,
                                    os_deadline deadline);

/** Notes in a buffer its import record. The buffers of a message come in their order. */
gpuipc_status receipt_record(connection *from, const wire_buffer *record, buffer *opened);

/** The message is dropped: what it brought is returned. */
void receipt_refuse(connection *from);

#endif
