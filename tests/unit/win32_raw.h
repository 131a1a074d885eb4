/* SPDX-License-Identifier: MIT */
/**
 * @file An end of a pipe that is none of the library's: it reads and writes frames byte by byte, so
 * that it can break every rule; and how many handles an object has, as the system counts them.
 */
#ifndef GPUIPC_TEST_WIN32_RAW_H
#define GPUIPC_TEST_WIN32_RAW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <windows.h>

#include "os_pair.h"
#include "win32.h"

/** Whether Windows is Wine, which lacks some of it. */
bool raw_is_wine(void);

/** How many handles, in all processes, are open to the object that this one is open to. */
unsigned raw_handles_of(intptr_t handle);

/** A handle of this process's that the library does not know: a copy of @p handle. */
uint64_t raw_copy(os_handle handle);

/** Closes such a copy; fails the test when somebody else has closed it already. */
void raw_close_copy(uint64_t value);

/* ---- frames: docs/wire-format.md, "The envelope on Windows" -------------------------------- */

enum {
    RAW_ENVELOPE = 24
};

/** Where the fields of an envelope are. */
enum {
    RAW_AT_MAGIC = 0,
    RAW_AT_VERSION = 4,
    RAW_AT_FLAGS = 6,
    RAW_AT_HANDLES = 8,
    RAW_AT_BYTES = 12,
    RAW_AT_NUMBER = 16
};

/** A frame of 5 bytes of content, "hello". */
typedef struct raw_frame {
    unsigned char bytes[RAW_ENVELOPE + 8 * 300 + 16];
    size_t size;
} raw_frame;

/** A right one. @param has_ledger the first value is the ledger's */
void raw_frame_make(raw_frame *frame, bool has_ledger, uint64_t number, const uint64_t *values,
                    size_t count);

/** Writes a number of 1 to 8 bytes into it, and reads one. */
void raw_put(unsigned char *bytes, size_t at, size_t size, uint64_t value);
uint64_t raw_get(const unsigned char *bytes, size_t at, size_t size);

/* ---- pipes --------------------------------------------------------------------------------- */

/** Connects to the listener of a pair as its own clients do, and makes nothing of it. */
HANDLE raw_connect(const os_pair *pair);

/** A new pipe: its first end is a connection of the library's (its server's, or its client's if
 *  @p is_client), the other is raw. */
HANDLE raw_pipe(bool is_client, os_connection **out_connection);

/** Writes one message of the pipe; fails the test when it does not fit. */
void raw_write(HANDLE pipe, const void *bytes, size_t size);

/** Reads one message. @return its size, or 0: there is none (the other end is closed) */
size_t raw_read(HANDLE pipe, void *bytes, size_t capacity);

#endif
