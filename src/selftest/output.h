/* SPDX-License-Identifier: MIT */
/** @file A file that is written when a run ends, beside the one that it replaces: who reads has the one or the other.
 *  Where nothing can be made beside it, or it cannot be replaced, it is written in place.
 *  posix_output.c, win32_output.c. */
#ifndef GPUIPC_SELFTEST_OUTPUT_H
#define GPUIPC_SELFTEST_OUTPUT_H

#include <stdbool.h>
#include <stdio.h>

#define OUTPUT_WHY_MAX 160

typedef struct output output;

/** Opens what will stand under @p path. What is no plain file (a terminal, a pipe) is written itself.
 *  @param why receives the reason of a failure
 *  @return NULL on failure */
output *output_open(const char *path, char why[OUTPUT_WHY_MAX]);

/** Where to write. */
FILE *output_file(const output *self);

/** Closes it. False: not all was written. What was under the path before still is, unless it was written in place.
 *  @param is_good puts it there; else it is removed
 *  @param why receives the reason of a failure, where the system has said one; else it stays as it is */
bool output_end(output *self, bool is_good, char why[OUTPUT_WHY_MAX]);

/** Whether it could be written now. Nothing is changed. */
bool output_check(const char *path, char why[OUTPUT_WHY_MAX]);

#endif
