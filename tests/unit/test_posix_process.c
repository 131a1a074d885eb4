/* SPDX-License-Identifier: MIT */
/** @file Forks, set-uid programs, and kernels that lack something. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "child.h"
#include "leak_gate.h"
#include "os_pair.h"

TestSuite(posix_process, .timeout = 120);

static void expect(child_process *helper, const char *line) {
    char got[CHILD_LINE_MAX];
    cr_assert(child_expect_line(helper, line, got, SOON_MS), "\"%s\" and not \"%s\"", got, line);
}

/** A helper that has said all has nothing to complain of. */
static void finish(child_process *helper) {
    child_end end;
    check_ok(child_wait(helper, SOON_MS, &end));
    cr_assert(end.exited && end.code == 0, "%d", end.code);
    child_destroy(helper);
}

Test(posix_process, a_forked_child_keeps_nothing_of_the_librarys_open) {
    os_pair pair;
    child_process *helper;
    os_pair_name(&pair);
    const char *const arguments[] = {"fork-closes", pair.path, pair.name, NULL};
    check_ok(child_start("posix_helper", arguments, NULL, &helper));
    expect(helper, "GPUIPC_OK");
    expect(helper, "pipe ended");
    expect(helper, "GPUIPC_OK");
    expect(helper, "GPUIPC_OK ready not woken");
    expect(helper, "GPUIPC_OK");
    expect(helper, "GPUIPC_ERR_PEER_CLOSED");
    expect(helper, "GPUIPC_OK");
    expect(helper, "child 0, generation 0");
    finish(helper);
    os_pair_close(&pair);
}

Test(posix_process, a_forked_child_finds_every_mutex_free) {
    static const char *const arguments[] = {"fork-mutex", NULL};
    child_process *helper;
    char line[CHILD_LINE_MAX];
    check_ok(child_start("posix_helper", arguments, NULL, &helper));
    cr_assert(child_expect_line(helper, "200 of 200", line, 100000), "%s", line);
    finish(helper);
}

/** Starts the helper that sees an old kernel, connected to by another helper that lives on. */
static bool old_kernel_start(const os_pair *pair, const char *which, child_process **out_old,
                             child_process **out_peer) {
    const char *const arguments[] = {"old-kernel", pair->path, pair->name, which, NULL};
    const char *const peer_arguments[] = {"connect", pair->path, pair->name, NULL};
    char line[CHILD_LINE_MAX];
    check_ok(child_start("posix_helper", arguments, NULL, out_old));
    check_ok(child_read_line(*out_old, line, sizeof(line), SOON_MS));
    if (strcmp(line, "no seccomp") == 0) {
        child_destroy(*out_old);
        return false;
    }
    cr_assert_str_eq(line, "GPUIPC_OK");
    check_ok(child_start("unit_helper", peer_arguments, NULL, out_peer));
    expect(*out_peer, "GPUIPC_OK");
    expect(*out_old, "GPUIPC_OK");
    return true;
}

/** @param first  what is known while the peer lives: "handle 1 1", after its number
 *  @param second the same after its death */
static void check_old_kernel(const char *which, const char *first, const char *second) {
    os_pair pair;
    child_process *old;
    child_process *peer;
    char line[CHILD_LINE_MAX];
    os_pair_name(&pair);
    if (!old_kernel_start(&pair, which, &old, &peer)) {
        os_pair_close(&pair);
        cr_skip_test("seccomp filters are not allowed here");
    }
    expect(old, "GPUIPC_OK");
    snprintf(line, sizeof(line), "%" PRIu64 " %s", child_process_id(peer), first);
    expect(old, line);
    child_kill(peer);
    check_ok(child_wait(peer, SOON_MS, NULL));
    check_ok(child_write_line(old, "look"));
    expect(old, "0");
    expect(old, "GPUIPC_OK");
    snprintf(line, sizeof(line), "%" PRIu64 " %s", child_process_id(peer), second);
    expect(old, line);
    check_ok(child_write_line(old, "look"));
    expect(old, "0");
    child_destroy(peer);
    finish(old);
    os_pair_close(&pair);
}

Test(posix_process, without_so_peerpidfd_the_number_is_used_with_care) {
    check_old_kernel("pidfd", "handle 1 1", "none 1 0");
}

Test(posix_process, without_any_pidfd_only_death_is_certain) {
    check_old_kernel("no-pidfd", "none 1 -1", "none 1 0");
}

/* random(4), boot_id: with four dashes in it. */
Test(posix_process, the_start_of_the_machine_is_what_the_kernel_says) {
    uint8_t id[16];
    char expected[64] = "";
    char text[33];
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (file == NULL) {
        cr_skip_test("there is no boot_id here");
    }
    for (int byte = 0; (byte = fgetc(file)) != EOF && byte != '\n';) {
        if (byte != '-') {
            expected[strlen(expected)] = (char)byte;
        }
    }
    fclose(file);
    os_boot_id(id);
    for (size_t i = 0; i < sizeof(id); i++) {
        snprintf(text + 2 * i, 3, "%02x", id[i]);
    }
    cr_assert_str_eq(text, expected);
}

/** Who the peer is, as far as its numbers are those of this process. */
static os_peer peer_of(os_connection *connection) {
    os_peer peer;
    check_ok(os_connection_get_peer(connection, &peer));
    os_peer_close(&peer);
    return peer;
}

Test(posix_process, a_peer_in_another_pid_namespace_is_known_as_such_and_one_in_ours_not) {
    os_pair pair;
    child_process *helper;
    child_process *neighbour;
    char line[CHILD_LINE_MAX];
    os_pair_listen(&pair);
    const char *const arguments[] = {"namespace", pair.path, pair.name, NULL};
    const char *const ordinary[] = {"connect", pair.path, pair.name, NULL};
    check_ok(child_start("unit_helper", ordinary, NULL, &neighbour));
    check_ok(os_listener_accept(pair.listener, os_deadline_after(SOON_MS), &pair.server));
    os_peer peer = peer_of(pair.server);
    cr_assert_not(peer.other_pid_namespace);
    cr_assert_eq(peer.process_id, child_process_id(neighbour));
    child_destroy(neighbour);
    os_pair_close_server(&pair);
    check_ok(child_start("posix_helper", arguments, NULL, &helper));
    check_ok(child_read_line(helper, line, sizeof(line), SOON_MS));
    if (strncmp(line, "no namespace", strlen("no namespace")) == 0) {
        child_destroy(helper);
        os_pair_close(&pair);
        cr_skip_test("unshare(CLONE_NEWPID): %s", line);
    }
    cr_assert_str_eq(line, "GPUIPC_OK");
    expect(helper, "process 1, peer 0, other 1"); /* it sees nothing of ours */
    check_ok(os_listener_accept(pair.listener, os_deadline_after(SOON_MS), &pair.server));
    peer = peer_of(pair.server);
    cr_assert(peer.other_pid_namespace);
    cr_assert(peer.same_user);
    cr_assert_gt(peer.process_id, 1, "here it has a number, and another one than there");
    child_close_input(helper);
    finish(helper);
    os_pair_close(&pair);
}

static bool copy_file(const char *from, const char *to, mode_t mode, uid_t owner) {
    struct stat found;
    int source = open(from, O_RDONLY | O_CLOEXEC);
    int target = open(to, O_WRONLY | O_CREAT | O_CLOEXEC, 0700);
    bool good = source >= 0 && target >= 0 && fstat(source, &found) == 0;
    while (good && found.st_size > 0) {
        ssize_t copied = sendfile(target, source, NULL, (size_t)found.st_size);
        good = copied > 0;
        found.st_size -= good ? copied : 0;
    }
    good = good && fchown(target, owner, (gid_t)-1) == 0 && fchmod(target, mode) == 0;
    close(source);
    close(target);
    return good;
}

Test(posix_process, a_set_uid_program_reads_no_environment) {
    static const char *const arguments[] = {"environment", "GPUIPC_TEST_VARIABLE", NULL};
    static const char *const set[] = {"GPUIPC_TEST_VARIABLE=a value", NULL};
    if (geteuid() != 0) {
        cr_skip_test("only root can make a program set-uid for another user");
    }
    char own[512];
    char name[64];
    char path[1024];
    char first[UNIQUE_NAME_MAX];
    ssize_t length = readlink("/proc/self/exe", own, sizeof(own) - 1);
    cr_assert(length > 0);
    own[length] = '\0';
    *strrchr(own, '/') = '\0';
    unique_name(first);
    snprintf(name, sizeof(name), "set-uid-%s", first);
    snprintf(path, sizeof(path), "%s/%s", own, name);
    strcat(own, "/unit_helper");
    cr_assert(copy_file(own, path, 04755, 65534));
    child_process *helper;
    char line[CHILD_LINE_MAX];
    gpuipc_status status = child_start(name, arguments, set, &helper);
    unlink(path);
    check_ok(status);
    check_ok(child_read_line(helper, line, sizeof(line), SOON_MS));
    expect(helper, "(none)");
    /* How it ends says nothing: a leak sanitizer may not look into a set-uid program. */
    child_destroy(helper);
}
