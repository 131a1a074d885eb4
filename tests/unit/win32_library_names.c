/* SPDX-License-Identifier: MIT */
/** @file Libraries of Windows. */
#include "library_names.h"

#include <stddef.h>

const char system_library[] = "msvcrt.dll";
const char absent_library_path[] = "C:\\nonexistent\\lib.dll";
const char *const relative_library_paths[] = {
    "msvcrt.dll",   "",     "\\msvcrt.dll",  "/msvcrt.dll", "C:x.dll",   ".\\msvcrt.dll",
    "lib\\lib.dll", "\\\\", "\\\\\\lib.dll", "C:",          "1:\\x.dll", NULL};

/** A table of characters that Windows keeps among its libraries. */
const char *broken_system_library(const char *path) {
    (void)path;
    return "c_1252.nls";
}

const char *absent_system_library(const char *path) {
    (void)path;
    return "gpuipc-no-such.dll";
}
