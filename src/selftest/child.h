/* SPDX-License-Identifier: MIT */
/**
 * @file This program, started again in another role, and what it prints. posix_child.c,
 * win32_child.c.
 */
#ifndef GPUIPC_SELFTEST_CHILD_H
#define GPUIPC_SELFTEST_CHILD_H

#include <stdbool.h>
#include <stddef.h>

#include "os.h"

typedef struct child child;

/** The most of them that child_next waits for: one Windows call waits for 64 (learn.microsoft.com,
 *  MAXIMUM_WAIT_OBJECTS). */
#define CHILDREN_MAX 60

/** Starts this very program with other arguments (up to a NULL; the program's name is added). It
 *  shares standard error; its standard output is read with child_next. */
gpuipc_status child_start(const char *const *arguments, child **out_child);

/** Waits for the next line from any of them, without its newline or "\r\n" (a longer one is cut).
 *  @param count at most CHILDREN_MAX
 *  @param which set to the index of the one that spoke, or whose output ended
 *  ERR_TIMEOUT, ERR_PEER_CLOSED (that one's output ended: it is not asked again) */
gpuipc_status child_next(child *const *children, size_t count, os_deadline deadline, size_t *which,
                         char *line, size_t capacity);

/** Takes a variable out of the environment of this program and of those it starts. */
void child_forget_variable(const char *name);

/** How a child ended. */
typedef struct child_end {
    bool exited; /**< by itself, with code; else killed, or by a fault of its own */
    int code;    /**< not exited: the signal's number, or on Windows the NTSTATUS. Killing there is
                      giving a code, and each from 0xC0000000 on counts as an NTSTATUS */
} child_end;

/** "ended with exit code 3", "was ended by signal 9", "was ended by exception 0xC0000005". */
#define CHILD_END_MAX 64
const char *child_end_text(child_end end, char text[CHILD_END_MAX]);

/** Waits for its end, and kills it at the deadline. *out_killed: it was killed here */
child_end child_finish(child *self, os_deadline deadline, bool *out_killed);

/** Kills it if it lives, and frees. NULL is allowed. */
void child_destroy(child *self);

/** In the child: from now on it dies with its parent. False when that is no longer @p process_id; on
 *  Windows, where child_start has bound it already, also when that cannot be. */
bool child_bind_to(uint64_t process_id);

#endif
