/* SPDX-License-Identifier: MIT */
/** @file Roles in which the process is another user's, or runs on a kernel that lacks something. */
#include "posix_helper.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "helper.h"
#include "os.h"
#include "posix_filter.h"

/** connect-as USER DIRECTORY NAME SHARED: connects as that user, who is in no other group. */
int role_connect_as(char **arguments) {
    unsigned user = (unsigned)strtoul(arguments[0], NULL, 10);
    if (setgid(user) != 0 || setuid(user) != 0) {
        return 1;
    }
    helper_begin();
    os_directory directory = {arguments[1], strcmp(arguments[3], "shared") == 0};
    os_connection *connection;
    gpuipc_status status =
        os_connection_open(&directory, arguments[2], os_deadline_after(0), &connection);
    helper_say_status(status);
    if (status == GPUIPC_OK) {
        helper_await("end");
        os_connection_destroy(connection);
    }
    return 0;
}

/** seccomp(2): getsockopt(SO_PEERPIDFD) answers as before Linux 6.5, memfd_create(MFD_NOEXEC_SEAL)
 *  as before 6.3, and pidfd_open as before 5.3 if that is wanted. */
static bool kernel_make_old(bool no_pidfd) {
    struct sock_filter filter[] = {
        LOAD(offsetof(struct seccomp_data, nr)),
        UNLESS(SYS_getsockopt, 4),
        LOAD(ARGUMENT(2)),
        UNLESS(77, 1),
        ANSWER(ENOPROTOOPT),
        ALLOW,
        UNLESS(SYS_memfd_create, 4),
        LOAD(ARGUMENT(1)),
        UNLESS_BIT(8, 1),
        ANSWER(EINVAL),
        ALLOW,
        UNLESS(no_pidfd ? SYS_pidfd_open : -1, 1),
        ANSWER(ENOSYS),
        ALLOW,
    };
    return posix_filter_install(filter, sizeof(filter) / sizeof(filter[0]));
}

static void say_peer(os_connection *connection) {
    os_peer peer;
    gpuipc_status status = os_connection_get_peer(connection, &peer);
    helper_say_status(status);
    if (status == GPUIPC_OK) {
        helper_say("%llu %s %d %d", (unsigned long long)peer.process_id,
                   os_handle_is_valid(peer.process) ? "handle" : "none", peer.same_user,
                   os_peer_is_running(&peer));
        helper_await("look");
        helper_say("%d", os_peer_is_running(&peer));
        os_peer_close(&peer);
    }
}

/** old-kernel DIRECTORY NAME no-pidfd|pidfd: accepts, says who the peer is, awaits "look", says
 *  whether it runs, and then once more who the peer is. */
int role_old_kernel(char **arguments) {
    os_directory directory = {arguments[0], false};
    os_listener *listener;
    os_connection *connection;
    os_handle memory;
    uint64_t bytes = 0;
    if (!kernel_make_old(strcmp(arguments[2], "no-pidfd") == 0)) {
        helper_say("no seccomp");
        return 0;
    }
    gpuipc_status status = os_memory_create("old", 4096, &memory);
    status = status ? status : os_memory_inspect(memory, &bytes);
    status = status ? status : os_listener_open(&directory, arguments[1], NULL, &listener);
    helper_say_status(status);
    if (status != GPUIPC_OK) {
        return 1;
    }
    status = os_listener_accept(listener, os_deadline_after(20000), &connection);
    helper_say_status(status);
    if (status == GPUIPC_OK) {
        say_peer(connection);
        say_peer(connection);
        os_connection_destroy(connection);
    }
    os_handle_close(&memory);
    os_listener_destroy(listener);
    return 0;
}

/** As the first process of a namespace. @return its exit code */
static int namespace_connect(char **arguments) {
    os_directory directory = {arguments[0], false};
    os_connection *connection;
    os_peer peer;
    char line[64];
    gpuipc_status status =
        os_connection_open(&directory, arguments[1], os_deadline_after(20000), &connection);
    status = status ? status : os_connection_get_peer(connection, &peer);
    helper_say_status(status);
    if (status != GPUIPC_OK) {
        return 1;
    }
    helper_say("process %llu, peer %llu, other %d", (unsigned long long)os_process_id(),
               (unsigned long long)peer.process_id, peer.other_pid_namespace);
    while (helper_hear(line, sizeof(line))) {
    }
    os_peer_close(&peer);
    os_connection_destroy(connection);
    return 0;
}

/** namespace DIRECTORY NAME: connects from a PID namespace of its own, says who it is there and what it
 *  knows of its peer, and stays connected until the end of its input. */
int role_namespace(char **arguments) {
    int how = 0;
    if (unshare(CLONE_NEWPID) != 0) {
        helper_say("no namespace: %s", strerror(errno));
        return 0;
    }
    pid_t child = fork(); /* unshare(2): the caller itself stays where it is */
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(namespace_connect(arguments));
    }
    bool ended = child > 0 && waitpid(child, &how, 0) == child && WIFEXITED(how);
    /* Not by exit(): what a leak sanitizer does then takes a new process, and in a namespace whose first one
     * has ended there can be none (fork(2), ENOMEM). */
    _exit(ended ? WEXITSTATUS(how) : 1);
}

/** no-proc DIRECTORY NAME: where there is no /proc, listens until the end of its input, and connects to itself. */
int role_no_proc(char **arguments) {
    os_directory directory = {arguments[0], false};
    os_listener *listener;
    os_connection *connection;
    char line[64];
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", "/proc", "tmpfs", MS_RDONLY, NULL) != 0) {
        helper_say("no namespace");
        return 0;
    }
    gpuipc_status status = os_listener_open(&directory, arguments[1], NULL, &listener);
    helper_say_status(status);
    if (status != GPUIPC_OK) {
        return 1;
    }
    while (helper_hear(line, sizeof(line))) {
    }
    status = os_connection_open(&directory, arguments[1], os_deadline_after(0), &connection);
    helper_say_status(status);
    if (status == GPUIPC_OK) {
        os_connection_destroy(connection);
    }
    os_listener_destroy(listener);
    _exit(0); /* not by exit(): a leak sanitizer reads /proc */
}
