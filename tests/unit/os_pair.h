/* SPDX-License-Identifier: MIT */
/** @file A listener and a connection to it, both ends in this process. */
#ifndef GPUIPC_TEST_OS_PAIR_H
#define GPUIPC_TEST_OS_PAIR_H

#include "os.h"
#include "unique.h"

typedef struct os_pair {
    char path[RUNTIME_DIRECTORY_MAX];
    char name[UNIQUE_NAME_MAX];
    os_directory directory;
    os_listener *listener;
    os_connection *client; /**< NULL when closed by the test */
    os_connection *server;
} os_pair;

/** Enough for anything that ought to happen at once, on a machine that is busy. */
#define SOON_MS 20000

/** The directory and the name alone. */
void os_pair_name(os_pair *pair);
/** And the listener. */
void os_pair_listen(os_pair *pair);
/** And both ends. */
void os_pair_open(os_pair *pair);
/** All that is still open. */
void os_pair_close(os_pair *pair);

void os_pair_close_client(os_pair *pair);
void os_pair_close_server(os_pair *pair);

/** Makes @p count handles of shared memory, the i-th of (i + 1) * 4096 bytes. */
void os_pair_make_handles(os_handle *handles, size_t count);
void os_pair_close_handles(os_handle *handles, size_t count);

#endif
