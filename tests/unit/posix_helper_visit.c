/* SPDX-License-Identifier: MIT */
/** @file A process that comes as whoever is wanted, with no library of gpuipc's to hold it back. */
#include "posix_helper.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "helper.h"

static bool file_write(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool done = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0) {
        close(fd);
    }
    return done;
}

/* A user of no group but @p group. 0: stays who it is. */
static bool become(unsigned user, unsigned group) {
    const gid_t groups[] = {group};
    if (user == 0) {
        return group == 0 || setgroups(1, groups) == 0;
    }
    return setgroups(group == 0 ? 0 : 1, groups) == 0 && setresgid(user, user, user) == 0 &&
           setresuid(user, user, user) == 0;
}

/* A user namespace in which the caller has the number @p inside: user_namespaces(7). The files of a process that changed
 * its user are root's until it says that it may be looked at: prctl(2), PR_SET_DUMPABLE. */
static bool enter_namespace(unsigned inside) {
    char users[64];
    char groups[64];
    (void)snprintf(users, sizeof(users), "%u %u 1", inside, (unsigned)geteuid());
    (void)snprintf(groups, sizeof(groups), "%u %u 1", inside, (unsigned)getegid());
    return prctl(PR_SET_DUMPABLE, 1) == 0 && unshare(CLONE_NEWUSER) == 0 &&
           file_write("/proc/self/setgroups", "deny") && file_write("/proc/self/uid_map", users) &&
           file_write("/proc/self/gid_map", groups);
}

static socklen_t address_of(const char *path, struct sockaddr_un *out_address) {
    *out_address = (struct sockaddr_un){.sun_family = AF_UNIX};
    const size_t length = strlen(path);
    if (path[0] != '@') {
        memcpy(out_address->sun_path, path, length + 1);
        return sizeof(*out_address);
    }
    (void)snprintf(out_address->sun_path + 1, sizeof(out_address->sun_path) - 1, "gpuipc/%s",
                   path + 1);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen("gpuipc/") + length);
}

static int socket_make(int flags) {
    return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0);
}

/* "connect PATH", "listen PATH": the socket stays open until the next. */
static int visit_once(const char *line, bool *out_is_done) {
    char what[16] = "";
    char path[108] = "";
    struct sockaddr_un address;
    int fd = socket_make(0);
    if (sscanf(line, "%15s %107s", what, path) != 2 || strlen(path) > 90 || fd < 0) {
        *out_is_done = false;
        errno = EINVAL;
        return fd;
    }
    const socklen_t size = address_of(path, &address);
    const struct sockaddr *to = (const struct sockaddr *)&address;
    *out_is_done = strcmp(what, "connect") == 0 ? connect(fd, to, size) == 0
                                                : bind(fd, to, size) == 0 && listen(fd, 8) == 0;
    return fd;
}

/** visit USER GROUP NUMBER: as that user (0: as it is) with that group (0: none), in a namespace where it has that number
 *  ("-": none); then does what its input says. */
int role_visit(char **arguments) {
    char line[160];
    int before = -1;
    if (!become((unsigned)strtoul(arguments[0], NULL, 10),
                (unsigned)strtoul(arguments[1], NULL, 10)) ||
        (arguments[2][0] != '-' && !enter_namespace((unsigned)strtoul(arguments[2], NULL, 10)))) {
        helper_say("not possible: %s", strerror(errno));
        return 0;
    }
    helper_begin(); /* a change of user undoes it: prctl(2) */
    umask(0);
    helper_say("ready");
    while (helper_hear(line, sizeof(line))) {
        bool is_done;
        int fd = visit_once(line, &is_done);
        helper_say("%s", is_done ? "done" : errno == EACCES ? "kept out" : strerror(errno));
        if (before >= 0) {
            close(before);
        }
        before = fd;
    }
    _exit(0); /* a leak sanitizer could not look at it: ptrace(2) */
}

/** race USER GROUP PATH PATH: connects to one and the other until its input ends, and says how often it came through. */
int role_race(char **arguments) {
    struct sockaddr_un address[2];
    socklen_t size[2];
    unsigned came[2] = {0, 0};
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    for (size_t i = 0; i < 2; i++) {
        size[i] = address_of(arguments[2 + i], &address[i]);
    }
    if (!become((unsigned)strtoul(arguments[0], NULL, 10),
                (unsigned)strtoul(arguments[1], NULL, 10))) {
        return 1;
    }
    helper_begin();
    helper_say("ready");
    for (unsigned i = 0; poll(&input, 1, 0) == 0; i ^= 1u) {
        int fd = socket_make(SOCK_NONBLOCK);
        came[i] += connect(fd, (const struct sockaddr *)&address[i], size[i]) == 0;
        close(fd);
    }
    helper_say("%u %u", came[0], came[1]);
    _exit(0);
}
