/* SPDX-License-Identifier: MIT */
/** @file The dynamic loader. Nothing is remembered but the handle, and nothing is ever closed. */
#include <dlfcn.h>

#include "libcuda.h"

void *libcuda_open(void) {
    return dlopen("libcuda.so.1", RTLD_NOW);
}

void *libcuda_symbol(void *library, const char *name) {
    return dlsym(library, name);
}
