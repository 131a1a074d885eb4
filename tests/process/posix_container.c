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

static bool write_map(const char *kind, pid_t of) {
    char path[64];
    char map[64];
    (void)snprintf(path, sizeof(path), "/proc/%d/%s", (int)of, kind);
    (void)snprintf(map, sizeof(map), "0 %u 65536", SYSTEM_MAPPED_FIRST);
    return write_text(path, map);
}

/* Of many users only one who is privileged outside may write a map: a process that stays there does it.
 *  @return it; negative: it could not be started */
static pid_t start_mapper(int *out_go) {
    const pid_t mapped = getpid();
    int go[2];
    char word;
    if (pipe2(go, O_CLOEXEC) != 0) {
        return -1;
    }
    const pid_t mapper = fork();
    if (mapper == 0) {
        close(go[1]);
        _exit(read(go[0], &word, 1) == 1 && write_map("uid_map", mapped) &&
                      write_map("gid_map", mapped)
                  ? 0
                  : 1);
    }
    close(go[0]);
    *out_go = go[1];
    return mapper;
}

static bool await_mapper(pid_t mapper, int go, bool is_there) {
    int status = 1;
    const bool is_told = is_there && write(go, "g", 1) == 1;
    close(go);
    while (waitpid(mapper, &status, 0) < 0 && errno == EINTR) {
    }
    return is_told && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static const char *leave_namespaces(system_users users) {
    const unsigned user = geteuid();
    const unsigned group = getegid();
    int go = -1;
    const pid_t mapper = users == SYSTEM_USERS_MAPPED ? start_mapper(&go) : -1;
    const bool has_left = unshare((users != SYSTEM_USERS_SAME ? CLONE_NEWUSER : 0) | CLONE_NEWNS |
                                  CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWNET | CLONE_NEWUTS) == 0;
    const bool is_mapped = mapper < 0 || await_mapper(mapper, go, has_left);
    if (!has_left) {
        return "unshare";
    }
    if ((users == SYSTEM_USERS_OWN && !map_own_ids(user, group)) ||
        (users == SYSTEM_USERS_MAPPED && (mapper < 0 || !is_mapped))) {
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

const char *system_contain(system_users users) {
    const char *failed = leave_namespaces(users);
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
