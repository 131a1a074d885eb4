/* SPDX-License-Identifier: MIT */
/** @file The other side of child.h: what a helper program calls. A helper has no test framework. */
#ifndef GPUIPC_TEST_HELPER_H
#define GPUIPC_TEST_HELPER_H

#include <stdbool.h>
#include <stddef.h>

#include <gpuipc/gpuipc_status.h>

#include "base/compiler.h"

/** First of all: from now on this process dies with the one that started it; on Linux with the thread
 *  that did, and to be called again after a change of user, which undoes it (prctl(2),
 *  PR_SET_PDEATHSIG). Ends the process if the one that started it is gone already.
 *  posix_helper.c, win32_helper.c */
void helper_begin(void);

/** Prints one line and flushes. */
void helper_say(const char *format, ...) GPUIPC_PRINTF(1, 2);

/** Prints the name of a status, with ": sentence" when it is a failure. */
void helper_say_status(gpuipc_status status);

/** Reads one line without its newline. False at the end of the input. */
bool helper_hear(char *line, size_t capacity);

/** Reads lines until one is @p expected; ends the process with code 3 when none comes. */
void helper_await(const char *expected);

#endif
