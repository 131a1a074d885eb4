/* SPDX-License-Identifier: MIT */
/** @file What only POSIX has for these tests: limits of descriptors, users and groups, and sockets
 *  that linger. posix_system.c, posix_raw_handle.c */
#ifndef GPUIPC_TEST_POSIX_SYSTEM_H
#define GPUIPC_TEST_POSIX_SYSTEM_H

#include <stdbool.h>
#include <stdint.h>

/** Lets this process open only @p more descriptors beyond those it has. @return the former limit */
uint64_t system_limit_descriptors(unsigned more);
void system_set_descriptor_limit(uint64_t limit);

bool system_is_root(void);

/** From now on another user, with no other groups. */
bool system_become_user(unsigned user);

bool system_set_rights(const char *path, unsigned mode, unsigned group);

/** A directory of ours that the group @p group may use as well, and whose files get that group. */
bool system_share_directory(const char *path, unsigned group);

/** A socket whose last close() waits 5 s: it lingers, and what it has sent is not taken at the other
 *  end, which the caller closes last. @return descriptor; -1: there is no loopback network here */
intptr_t raw_handle_open_lingering(intptr_t *out_other_end);

/** A Unix socket in whose queue the descriptor lies, of which no other copy is left here. @return -1: there is none */
intptr_t raw_handle_put_into_socket(intptr_t handle);
/** A listening one, in whose queue lies a connection in whose queue it lies. */
intptr_t raw_handle_put_into_listener(intptr_t handle);

#endif
