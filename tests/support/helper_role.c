/* SPDX-License-Identifier: MIT */
/** @file A helper program of several roles. */
#include "helper_role.h"

#include <stdio.h>
#include <string.h>

#include "helper.h"

int helper_role_run(const helper_role *roles, size_t count, int argc, char **argv) {
    helper_begin();
    for (size_t i = 0; argc > 1 && i < count; i++) {
        if (strcmp(roles[i].name, argv[1]) == 0 && roles[i].argument_count == argc - 2) {
            return roles[i].run(argv + 2);
        }
    }
    fprintf(stderr, "%s: no such role, or not its number of arguments\n", argv[0]);
    return 2;
}
