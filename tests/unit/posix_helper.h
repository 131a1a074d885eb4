/* SPDX-License-Identifier: MIT */
/** @file The roles of posix_helper, the second process of the unit tests that are for Linux only. */
#ifndef GPUIPC_TEST_POSIX_HELPER_H
#define GPUIPC_TEST_POSIX_HELPER_H

/* posix_helper_fork.c */
int role_fork_closes(char **arguments);
int role_fork_mutex(char **arguments);

/* posix_helper_limit.c */
int role_limit_receive(char **arguments);
int role_limit_cut(char **arguments);
int role_limit_accept(char **arguments);
int role_limit_peer(char **arguments);
int role_limit_refuse(char **arguments);
int role_limit_make(char **arguments);
int role_in_flight(char **arguments);

/* posix_helper_system.c */
int role_connect_as(char **arguments);
int role_old_kernel(char **arguments);
int role_namespace(char **arguments);
int role_no_proc(char **arguments);

/* posix_helper_visit.c */
int role_visit(char **arguments);
int role_race(char **arguments);

/* posix_helper_fuse.c */
int role_fuse(char **arguments);

#endif
