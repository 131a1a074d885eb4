/* SPDX-License-Identifier: MIT */
/** @file The second process of the unit tests that are for Linux only: posix_helper ROLE ARGUMENTS. */
#include "posix_helper.h"

#include "helper_role.h"

static const helper_role roles[] = {
    {"fork-closes", 2, role_fork_closes},
    {"fork-mutex", 0, role_fork_mutex},
    {"limit-receive", 2, role_limit_receive},
    {"limit-cut", 2, role_limit_cut},
    {"limit-accept", 2, role_limit_accept},
    {"limit-make", 2, role_limit_make},
    {"limit-peer", 2, role_limit_peer},
    {"in-flight", 0, role_in_flight},
    {"connect-as", 4, role_connect_as},
    {"old-kernel", 3, role_old_kernel},
    {"limit-refuse", 2, role_limit_refuse},
    {"namespace", 2, role_namespace},
    {"no-proc", 2, role_no_proc},
    {"visit", 3, role_visit},
    {"race", 4, role_race},
    {"fuse", 3, role_fuse},
};

int main(int argc, char **argv) {
    return helper_role_run(roles, sizeof(roles) / sizeof(roles[0]), argc, argv);
}
