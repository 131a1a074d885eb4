/* SPDX-License-Identifier: MIT */
/** @file See preload_idle.c. Compiled twice, with another IDLE_NUMBER. */
#include <dlfcn.h>
#include <string.h>

#include "base/compiler.h"

GPUIPC_EXPORTED int idle_number(void);
GPUIPC_EXPORTED int idle_next(void);

int idle_number(void) {
    return IDLE_NUMBER;
}

int idle_next(void) {
    int (*next)(void);
    void *found = dlsym(RTLD_NEXT, "idle_number");
    if (found == NULL) {
        return 0;
    }
    memcpy(&next, &found, sizeof(next));
    return next();
}
