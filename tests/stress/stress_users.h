/* SPDX-License-Identifier: MIT */
/** @file Clients of two users: one alone may have half of a server's descriptors. posix_stress_users.c, win32_stress_users.c */
#ifndef GPUIPC_STRESS_USERS_H
#define GPUIPC_STRESS_USERS_H

#include <stdbool.h>

/** Lets another user into the directory, where this process may become one.
 *  @return whether it may; on Windows no handle reaches another user's process */
bool stress_users_share(const char *directory);
/** This process is that other user's from now on. */
bool stress_users_become_other(void);

#endif
