/* SPDX-License-Identifier: MIT */
/** @file See stress_users.h. */
#include "stress_users.h"

#include "posix_system.h"

#define OTHER_USER 65534u /* "nobody", and its group; no such account is needed */

bool stress_users_share(const char *directory) {
    return system_is_root() && system_share_directory(directory, OTHER_USER);
}

bool stress_users_become_other(void) {
    return system_become_user(OTHER_USER);
}
