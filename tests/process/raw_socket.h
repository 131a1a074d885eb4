/* SPDX-License-Identifier: MIT */
/**
 * @file A peer that is not gpuipc: sends whatever bytes and descriptors it likes to a listener, and
 * stands in for a courier of somebody's own. posix_raw_socket.c.
 */
#ifndef GPUIPC_TEST_RAW_SOCKET_H
#define GPUIPC_TEST_RAW_SOCKET_H

#include <stdbool.h>
#include <stddef.h>

/** Connects to the listener @p name in a runtime directory. @return descriptor, or -1 */
int raw_connect(const char *directory, const char *name);

/** Listens at @p name as a gpuipc listener would. */
int raw_listen(const char *directory, const char *name);
int raw_accept(int listener, int timeout_ms);

/** Sends one packet. False when it could not leave. */
bool raw_send(int fd, const void *bytes, size_t size, const int *fds, size_t count);

/** Receives one packet. @param count in: room in fds, out: how many came
 *  @return its size, or -1 */
long raw_receive(int fd, void *bytes, size_t capacity, int *fds, size_t *count, int timeout_ms);

/** Waits for the other end to end the connection. */
bool raw_sees_end(int fd, int timeout_ms);

void raw_close(int fd);

/** A fresh descriptor of something that is no GPU memory, or -1. */
typedef enum raw_kind {
    RAW_FILE,
    RAW_DEV_NULL,
    RAW_MEMFD,
    RAW_SEALED_MEMFD,
    RAW_EVENTFD,
    RAW_SOCKET,
    RAW_PIPE,
    RAW_DIRECTORY,
    RAW_KINDS
} raw_kind;
int raw_open(raw_kind kind);
const char *raw_kind_name(raw_kind kind);

/** A socket whose last close() waits 5 s: it lingers, and what it has sent is not taken at the other
 *  end, which the caller closes last. @return descriptor; -1: there is no loopback network here */
int raw_open_lingering(int *out_other_end);

#endif
