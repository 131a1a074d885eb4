/* SPDX-License-Identifier: MIT */
/**
 * @file One line of text and at most one handle over a socket pair: how a conformance test and its
 * helper process talk. Deliberately not the library's own connection, which rests on the driver
 * behaviour that is tested here.
 */
#ifndef GPUIPC_TEST_CONFORMANCE_MESSAGE_H
#define GPUIPC_TEST_CONFORMANCE_MESSAGE_H

#include "os.h"

/** Room for any line. */
#define MESSAGE_BYTES 256

/** The helper's end of the socket pair. */
#define MESSAGE_HELPER_SOCKET 3

/** Sends a line and, unless it is none, a handle, which stays the caller's. */
bool message_send(int socket, const char *line, os_handle handle);

/** Receives a line of less than MESSAGE_BYTES and the handle that came with it, or none.
 *  @return false at the end of the conversation, on failure, and when the socket's time is over */
bool message_receive(int socket, char *line, os_handle *out_handle);

#endif
