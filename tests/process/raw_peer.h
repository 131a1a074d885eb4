/* SPDX-License-Identifier: MIT */
/**
 * @file A peer that is not gpuipc: sends whatever bytes and handles it likes to a listener, and
 * stands in for a courier of somebody's own. posix_raw_peer.c, win32_raw_peer.c.
 *
 * What it sends travels as gpuipc's packets do: on Linux a packet of a socket, on Windows a message
 * of a pipe with the envelope of docs/wire-format.md in front, which stands for SCM_RIGHTS.
 */
#ifndef GPUIPC_TEST_RAW_PEER_H
#define GPUIPC_TEST_RAW_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct raw_peer raw_peer;
typedef struct raw_listener raw_listener;

/** Connects to the listener @p name in a runtime directory. NULL: it cannot */
raw_peer *raw_connect(const char *directory, const char *name);

/** Listens at @p name, where raw_connect finds it. NULL: it cannot */
raw_listener *raw_listen(const char *directory, const char *name);
raw_peer *raw_accept(raw_listener *listener, int timeout_ms);
void raw_listener_close(raw_listener *listener);

/** Sends one packet. False when it could not leave. The handles stay the caller's. */
bool raw_send(raw_peer *to, const void *bytes, size_t size, const intptr_t *handles, size_t count);

/** Receives one packet. @param count in: room in handles, out: how many came
 *  @return its size, or -1 */
long raw_receive(raw_peer *from, void *bytes, size_t capacity, intptr_t *handles, size_t *count,
                 int timeout_ms);

/** Waits for the other end to end the connection. */
bool raw_sees_end(raw_peer *peer, int timeout_ms);

/** NULL is allowed. On Windows it also closes the handles that the other end has closed its own
 *  without taking, as every sender has to; where one of them is not there, the process aborts. */
void raw_close(raw_peer *peer);

#endif
