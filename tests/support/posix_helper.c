/* SPDX-License-Identifier: MIT */
/** @file A helper program's life is bound to that of the test that started it. */
#include "helper.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

void helper_begin(void) {
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) {
        _exit(4);
    }
    /* The parent may have gone before this was set; then it is no longer the one that was named.
     * A helper that a person starts by hand has none named. */
    const char *parent = getenv("GPUIPC_TEST_PARENT");
    if (parent != NULL && strtol(parent, NULL, 10) != (long)getppid()) {
        _exit(4);
    }
}
