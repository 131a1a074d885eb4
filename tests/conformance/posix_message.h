/* SPDX-License-Identifier: MIT */
/** @file One line of text and at most one handle over a socket pair: how a conformance test and its
 *  helper process talk on Linux. */
#ifndef GPUIPC_TEST_CONFORMANCE_POSIX_MESSAGE_H
#define GPUIPC_TEST_CONFORMANCE_POSIX_MESSAGE_H

#include "conformance_link.h"

/** The helper's end of the socket pair. */
#define MESSAGE_HELPER_SOCKET 3

/** Sends a line and, unless it is none, a handle, which stays the caller's. */
bool message_send(int socket, const char *line, os_handle handle);

/** Receives a line of less than MESSAGE_BYTES and the handle that came with it, or none.
 *  @return false at the end of the conversation, on failure, and when the socket's time is over */
bool message_receive(int socket, char *line, os_handle *out_handle);

#endif
