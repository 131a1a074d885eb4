/* SPDX-License-Identifier: MIT */
/**
 * @file The helper process's end of its conversation with a conformance test: one line of text at a
 * time, each with at most one handle. Deliberately not the library's own connection, which rests on the
 * driver behaviour that is tested here. posix_link.c, win32_link.c
 */
#ifndef GPUIPC_TEST_CONFORMANCE_LINK_H
#define GPUIPC_TEST_CONFORMANCE_LINK_H

#include "os.h"

/** Room for any line. */
#define MESSAGE_BYTES 256

/** First of all, with the arguments of main: finds the test, and binds this process's life to it. */
bool link_open(int argc, char **argv);

/** Sends a line and, unless it is none, a handle, which stays the caller's. */
bool link_send(const char *line, os_handle handle);

/** Receives a line of less than MESSAGE_BYTES and the handle that came with it, or none.
 *  @return false at the end of the conversation, and on failure */
bool link_receive(char *line, os_handle *out_handle);

/** What comes next may crash the process: nobody is asked what to do then, and nothing catches it. */
void link_expect_crash(void);

#endif
