/* SPDX-License-Identifier: MIT */
/** @file Libraries of Linux. */
#include "library_names.h"

#include <stddef.h>

const char system_library[] = "libm.so.6"; /* every Linux with this C library has it */
const char absent_library_path[] = "/nonexistent/lib.so";
const char *const relative_library_paths[] = {"libm.so.6", "", "./libm.so.6", "lib/libm.so.6",
                                              NULL};

/* dlopen(3): a name with a slash is a path. */
const char *broken_system_library(const char *path) {
    return path;
}

const char *absent_system_library(const char *path) {
    return path;
}
