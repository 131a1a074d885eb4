/* SPDX-License-Identifier: MIT */
/** @file See handle_limit.h: getrlimit(2). */
#include "handle_limit.h"

#include <sys/resource.h>

uint64_t handle_limit_raise(uint64_t wanted) {
    struct rlimit now;
    if (getrlimit(RLIMIT_NOFILE, &now) != 0) {
        return 0;
    }
    /* Who may raise the hard limit too (CAP_SYS_RESOURCE) has it; others go up to it. */
    const struct rlimit higher = {wanted, wanted > now.rlim_max ? wanted : now.rlim_max};
    if (setrlimit(RLIMIT_NOFILE, &higher) == 0) {
        return wanted;
    }
    now.rlim_cur = now.rlim_max;
    return setrlimit(RLIMIT_NOFILE, &now) == 0 ? now.rlim_cur : 0;
}
