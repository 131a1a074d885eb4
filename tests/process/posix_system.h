/* SPDX-License-Identifier: MIT */
/** @file What these tests need of POSIX and Linux beside sockets: posix_system.c. */
#ifndef GPUIPC_TEST_POSIX_SYSTEM_H
#define GPUIPC_TEST_POSIX_SYSTEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Raises this process's limit of open descriptors as far as it may. @return the limit */
uint64_t system_raise_descriptor_limit(void);

/** Lets this process open only @p more descriptors beyond those it has. @return the former limit */
uint64_t system_limit_descriptors(unsigned more);
void system_set_descriptor_limit(uint64_t limit);

/** The folder that this program lies in. */
bool system_own_folder(char *path, size_t capacity);

bool system_is_root(void);

/** From now on another user, with no other groups. */
bool system_become_user(unsigned user);

/** A directory of ours that the group @p group may use as well, and whose files get that group. */
bool system_share_directory(const char *path, unsigned group);

#endif
