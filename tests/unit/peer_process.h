/* SPDX-License-Identifier: MIT */
/** @file The other process of a test of the emulated driver (emulated_peer.c), which does one thing a
 *  line. */
#ifndef GPUIPC_TEST_PEER_PROCESS_H
#define GPUIPC_TEST_PEER_PROCESS_H

#include "base/compiler.h"
#include "child.h"
#include "os.h"
#include "unique.h"

/** 64 bytes as text, with its end. */
#define PEER_HEX_MAX 129

typedef struct peer_process {
    char directory[RUNTIME_DIRECTORY_MAX];
    os_listener *listener;
    os_connection *connection;
    child_process *child;
} peer_process;

/** @param environment as child_start takes it */
void peer_start(peer_process *peer, const char *const *environment);
/** Ends it in good order: it must exit with 0. */
void peer_end(peer_process *peer);
/** Kills it, and waits for its end; peer_forget is still to be called. */
void peer_kill(peer_process *peer);
void peer_forget(peer_process *peer);

/** Says a line, and checks what is answered. */
void peer_ask(peer_process *peer, const char *expected, const char *format, ...)
    GPUIPC_PRINTF(3, 4);
/** Says a line, checks that the answer is "0 " and 64 bytes, and takes them. */
void peer_get_bytes(peer_process *peer, const char *line, void *bytes);

/** 64 bytes as text. */
const char *peer_hex(const void *bytes, char text[PEER_HEX_MAX]);

/** Hands a handle over, and closes it. */
void peer_give(peer_process *peer, os_handle *handle);
os_handle peer_take(peer_process *peer);

#endif
