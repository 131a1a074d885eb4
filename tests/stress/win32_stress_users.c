/* SPDX-License-Identifier: MIT */
/** @file See stress_users.h. */
#include "stress_users.h"

bool stress_users_share(const char *directory) {
    (void)directory;
    return false;
}

bool stress_users_become_other(void) {
    return false;
}
