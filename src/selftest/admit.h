/* SPDX-License-Identifier: MIT */
/** @file Whom an end of `doctor --peer` takes besides its own user (--admit), in the manner of a server's policy. The
 *  directory in which the two meet must then be a group's (GPUIPC_CONTEXT_SHARED_DIRECTORY). */
#ifndef GPUIPC_SELFTEST_ADMIT_H
#define GPUIPC_SELFTEST_ADMIT_H

#include "options.h"

/** In place of a user: whoever the directory's group lets in. */
#define ADMIT_GROUP "group"

/** How such a directory comes to be. */
#define ADMIT_RECIPE                                                                               \
    "a directory of a group that both are in: install -d -m 2770 -g GROUP DIR, and "               \
    "GPUIPC_RUNTIME_DIR=DIR at both ends"

/** Whether it is the number of a user, or ADMIT_GROUP. */
bool admit_check(const char *text);

/** With what an end listens and connects.
 *  @param room what the answer points to
 *  @return NULL: its own user alone */
const gpuipc_endpoint_config *admit_config(const options *wanted, gpuipc_endpoint_config *room);

#endif
