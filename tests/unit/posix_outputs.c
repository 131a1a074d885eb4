/* SPDX-License-Identifier: MIT */
/** @file One pipe for standard output and standard error, on POSIX systems. */
#include <unistd.h>

#include "emulated_helper.h"

bool outputs_join(void) {
    return dup2(STDOUT_FILENO, STDERR_FILENO) == STDERR_FILENO;
}
