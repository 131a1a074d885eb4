/* SPDX-License-Identifier: MIT */
/** @file What these tests need of the system beside os.h and peers. posix_system.c, win32_system.c. */
#ifndef GPUIPC_TEST_SYSTEM_H
#define GPUIPC_TEST_SYSTEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Raises this process's limit of open handles as far as it may. @return the limit */
uint64_t system_raise_handle_limit(void);

/** The folder that this program lies in. */
bool system_own_folder(char *path, size_t capacity);

/** The users of a container. */
typedef enum system_users {
    SYSTEM_USERS_SAME, /**< the outside's */
    SYSTEM_USERS_OWN, /**< a namespace in which the process is no other user than it was, and knows no other */
    SYSTEM_USERS_MAPPED /**< one whose first 65536 users are those from SYSTEM_MAPPED_FIRST on outside, as containers
                             of daemons have it; only root can arrange it */
} system_users;
#define SYSTEM_MAPPED_FIRST 100000u

/** Puts this process into namespaces of its own (PID, IPC, mount, network, host name), with an empty /dev/shm, its own /proc, and a filter of system calls that refuses what containers may refuse: from now on it shares the file system
 *  with others and nothing else. A process that the caller sees stands for it. Before anything else of the process.
 *  @return NULL, or why not */
const char *system_contain(system_users users);

/** This process is another program of the tests' folder from now on. Returns where that cannot be, as on Windows.
 *  @param arguments its name and its arguments, up to a NULL */
void system_become(char **arguments);

/** The same as another user, by his number. On Windows nobody becomes another one. Returns only where it fails. */
void system_become_as(const char *user, char **arguments);

/** Makes a copy of a file, and removes one. Paths are in UTF-8. */
bool system_copy_file(const char *from, const char *to);
void system_remove_file(const char *path);

#endif
