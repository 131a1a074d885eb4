/* SPDX-License-Identifier: MIT */
/** @file Which statuses each public function has answered, in all programs of a run: what ci/check-errors compares with the
 *  headers. One file, of a fixed size, that every program maps before main(). So a note is a store: it opens nothing
 *  while a test counts what is open, makes no system call, and outlives a program that is killed. */
#ifndef GPUIPC_TEST_CALL_LOG_H
#define GPUIPC_TEST_CALL_LOG_H

#include <gpuipc/gpuipc_status.h>
#include <stddef.h>

/** Notes that the function called @p name answered @p status. Nothing unless GPUIPC_TEST_CALL_LOG names a file. */
void call_log_note(const char *name, gpuipc_status status);

/** Makes the file at @p path, which is there, so long, and maps it. posix_call_log.c, win32_call_log.c.
 *  @return NULL: that failed */
void *call_log_map(const char *path, size_t size);

#endif
