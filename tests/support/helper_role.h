/* SPDX-License-Identifier: MIT */
/** @file A helper program of several roles: the first argument says which one it is to play. */
#ifndef GPUIPC_TEST_HELPER_ROLE_H
#define GPUIPC_TEST_HELPER_ROLE_H

#include <stddef.h>

typedef struct helper_role {
    const char *name;
    int argument_count;           /**< how many it wants, behind its name */
    int (*run)(char **arguments); /**< answers the code with which the process ends */
} helper_role;

/** What a helper's main does: helper_begin(), then the role. @return the code to end with; 2: there
 *  is no such role, or it wants another number of arguments */
int helper_role_run(const helper_role *roles, size_t count, int argc, char **argv);

#endif
