/* SPDX-License-Identifier: MIT */
/** @file Namespaces of its own, as a container has them: namespaces(7), user_namespaces(7), seccomp(2). */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "posix_system.h"
#include "system.h"

static bool write_text(const char *path, const char *text) {
    const int file = open(path, O_WRONLY | O_CLOEXEC);
    const bool done = file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text);
    if (file >= 0) {
        close(file);
    }
    return done;
}

/* Each is itself there, and knows no other: the only map that a process may write by itself. */
static bool map_own_ids(unsigned user, unsigned group) {
    char of_user[64];
    char of_group[64];
    (void)snprintf(of_user, sizeof(of_user), "%u %u 1", user, user);
    (void)snprintf(of_group, sizeof(of_group), "%u %u 1", group, group);
    return write_text("/proc/self/setgroups", "deny") &&
           write_text("/proc/self/uid_map", of_user) && write_text("/proc/self/gid_map", of_group);
}

static const char *leave_namespaces(bool own_users) {
    const unsigned user = geteuid();
    const unsigned group = getegid();
    if (unshare((own_users ? CLONE_NEWUSER : 0) | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC |
                CLONE_NEWNET | CLONE_NEWUTS) != 0) {
        return "unshare";
    }
    if (own_users && !map_own_ids(user, group)) {
        return "uid_map";
    }
    if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", "/dev/shm", "tmpfs", 0, NULL) != 0) {
        return "mount";
    }
    return NULL;
}

/* Refuses what reaches into other processes, as containers' filters do for who has not CAP_SYS_PTRACE. */
static bool refuse_reaching_out(void) {
#define REFUSE(name)                                                                               \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 1),                                         \
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM)
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        REFUSE(ptrace),
        REFUSE(process_vm_readv),
        REFUSE(process_vm_writev),
        REFUSE(kcmp),
        REFUSE(pidfd_getfd),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
#undef REFUSE
    const struct sock_fprog program = {.len = sizeof(rules) / sizeof(*rules), .filter = rules};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/* Ends as the contained one does. What is written and read is its own alone. */
static void stand_for(pid_t contained) {
    int status = 0;
    close(STDIN_FILENO);
    close(STDOUT_FILENO);
    while (waitpid(contained, &status, 0) < 0 && errno == EINTR) {
    }
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

const char *system_contain(bool own_users) {
    const char *failed = leave_namespaces(own_users);
    if (failed != NULL) {
        return failed;
    }
    const pid_t contained = fork(); /* the first process of the PID namespace: pid_namespaces(7) */
    if (contained > 0) {
        stand_for(contained);
    }
    if (contained < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 ||
        mount("none", "/proc", "proc", 0, NULL) != 0 || !refuse_reaching_out()) {
        return "fork, /proc or the filter";
    }
    (void)unsetenv("GPUIPC_TEST_PARENT"); /* here the parent has no number: helper.h */
    return NULL;
}
