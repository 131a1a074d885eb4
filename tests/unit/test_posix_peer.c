/* SPDX-License-Identifier: MIT */
/** @file Whose user is one's own, in a namespace that does not know them all. */
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "posix.h"

#define OVERFLOW_USER 65534

TestSuite(posix_peer, .timeout = 60);

enum {
    OWN = 0,
    ANOTHER = 1,
    NO_NAMESPACE = 2,
    NO_ANSWER = 3
};

/* Ends the process: whose user the other end of the socket is, for the overflow user, in a namespace of its own or not.
 * Without a socket the other end is its own. */
static void judge(int fd, bool own_namespace) {
    os_peer peer;
    if (setgroups(0, NULL) != 0 || setresuid(OVERFLOW_USER, OVERFLOW_USER, OVERFLOW_USER) != 0) {
        _exit(NO_NAMESPACE);
    }
    if (own_namespace) {
        (void)prctl(PR_SET_DUMPABLE, 1, 0, 0,
                    0); /* a change of user took /proc/self from it: proc(5) */
        const int map = unshare(CLONE_NEWUSER) == 0 ? open("/proc/self/uid_map", O_WRONLY) : -1;
        const char self[] = "65534 65534 1";
        if (map < 0 || write(map, self, strlen(self)) != (ssize_t)strlen(self)) {
            _exit(NO_NAMESPACE);
        }
        close(map);
    }
    int ends[2] = {fd, -1};
    if (fd < 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) {
        _exit(NO_ANSWER);
    }
    if (posix_peer_of_socket(ends[0], &peer) != GPUIPC_OK) {
        _exit(NO_ANSWER);
    }
    _exit(peer.same_user ? OWN : ANOTHER);
}

static int ask(bool of_root, bool own_namespace) {
    int ends[2];
    int status = -1;
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    const pid_t child = fork();
    if (child == 0) {
        judge(of_root ? ends[0] : -1, own_namespace);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    close(ends[0]);
    close(ends[1]);
    cr_assert(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* There root is shown as the overflow user, and is not it. */
Test(posix_peer, an_unknown_user_is_not_the_overflow_user) {
    if (geteuid() != 0) {
        cr_skip_test("only root becomes another user");
    }
    const int found = ask(true, true);
    if (found == NO_NAMESPACE) {
        cr_skip_test("user namespaces are not to be had here");
    }
    cr_assert_eq(found, ANOTHER);
    cr_assert_eq(ask(true, false), ANOTHER);
}

/* By its number alone it cannot tell itself from them; where all users are known it can. */
Test(posix_peer, the_overflow_user_knows_itself_where_all_are_known) {
    char map[64] = "";
    unsigned long first = 1;
    unsigned long outside = 1;
    unsigned long count = 0;
    const int file = open("/proc/self/uid_map", O_RDONLY);
    if (geteuid() != 0) {
        cr_skip_test("only root becomes another user");
    }
    cr_assert_geq(file, 0);
    cr_assert_gt(read(file, map, sizeof(map) - 1), 0);
    close(file);
    (void)sscanf(map, "%lu %lu %lu", &first, &outside, &count);
    const bool are_all = first == 0 && outside == 0 && count == UINT32_MAX;
    cr_assert_eq(ask(false, false), are_all ? OWN : ANOTHER);
    const int found = ask(false, true);
    cr_assert(found == ANOTHER || found == NO_NAMESPACE);
}
