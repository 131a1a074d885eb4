/* SPDX-License-Identifier: MIT */
/** @file Closing what a peer has sent from a file system of its own making, which answers when the peer likes. */
#include <fcntl.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "child.h"
#include "leak_gate.h"
#include "os_pair.h"
#include "posix.h"

#define AT_ONCE_NS UINT64_C(5000000000) /* the peer answers after that, or never */

TestSuite(posix_closer, .timeout = 120);

static os_pair pair;
static child_process *peer;
static os_handle handles[OS_PACKET_HANDLES_MAX];

/* So many descriptors have come. */
static void begin(size_t wanted, const char *text) {
    char line[CHILD_LINE_MAX];
    char byte;
    size_t size;
    size_t count;
    os_pair_listen(&pair);
    const char *const arguments[] = {"fuse", pair.path, pair.name, text, NULL};
    check_ok(child_start("posix_helper", arguments, NULL, &peer));
    check_ok(child_read_line(peer, line, sizeof(line), SOON_MS));
    if (strncmp(line, "no FUSE", strlen("no FUSE")) == 0) {
        check_ok(child_wait(peer, SOON_MS, NULL));
        child_destroy(peer);
        os_pair_close(&pair);
        cr_skip_test("a file system of one's own takes CAP_SYS_ADMIN and /dev/fuse: %s", line);
    }
    cr_assert_str_eq(line, "GPUIPC_OK");
    check_ok(os_listener_accept(pair.listener, os_deadline_after(SOON_MS), &pair.server));
    check_ok(os_connection_receive(pair.server, &byte, 1, &size, handles, &count,
                                   os_deadline_after(SOON_MS)));
    cr_assert_eq(count, wanted);
}

static bool is_open(int fd) {
    return fcntl(fd, F_GETFD) >= 0;
}

static void end(void) {
    child_kill(peer);
    check_ok(child_wait(peer, SOON_MS, NULL));
    child_destroy(peer);
    os_pair_close(&pair);
}

static uint64_t close_all(size_t count) {
    const uint64_t begun_ns = os_clock_ns();
    for (size_t i = 0; i < count; i++) {
        os_handle_close(&handles[i]);
    }
    return os_clock_ns() - begun_ns;
}

Test(posix_closer, what_a_peer_does_not_let_go_is_closed_without_us) {
    begin(1, "1");
    const int fd = (int)handles[0].value;
    uint64_t bytes;
    check_status(GPUIPC_ERR_PROTOCOL, os_memory_inspect(handles[0], &bytes));
    cr_assert_lt(close_all(1), AT_ONCE_NS);
    while (is_open(fd)) {
        os_sleep_ms(1); /* until the thread has taken it */
    }
    end();
}

/* 16 are closed at a time, so that 237 wait with their numbers taken until the peer answers. */
Test(posix_closer, all_that_one_packet_can_bring_is_closed_in_time) {
    int fds[OS_PACKET_HANDLES_MAX];
    char line[CHILD_LINE_MAX];
    size_t open_now = 0;
    begin(OS_PACKET_HANDLES_MAX, "253");
    for (size_t i = 0; i < OS_PACKET_HANDLES_MAX; i++) {
        fds[i] = (int)handles[i].value;
    }
    cr_assert_lt(close_all(OS_PACKET_HANDLES_MAX), AT_ONCE_NS);
    for (size_t i = 0; i < OS_PACKET_HANDLES_MAX; i++) {
        open_now += is_open(fds[i]);
    }
    cr_assert_geq(open_now, OS_PACKET_HANDLES_MAX - 16);
    child_close_input(peer);
    check_ok(child_read_line(peer, line, sizeof(line), SOON_MS));
    cr_assert_str_eq(line, "answered");
    for (size_t i = 0; i < OS_PACKET_HANDLES_MAX; i++) {
        while (is_open(fds[i])) {
            os_sleep_ms(1);
        }
    }
    end();
}

/* A descriptor of a quick kind is closed when the call returns. */
Test(posix_closer, what_is_known_is_closed_at_once) {
    os_handle memory;
    check_ok(os_memory_create("quick", 4096, &memory));
    const int fds[] = {open("/dev/null", O_RDWR | O_CLOEXEC), (int)os_handle_give_up(&memory)};
    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
        cr_assert_geq(fds[i], 0);
        posix_close_foreign(fds[i]);
        cr_assert_not(is_open(fds[i]), "%zu", i);
    }
}

static void await_closed(int fd) {
    const os_deadline deadline = os_deadline_after(SOON_MS);
    while (is_open(fd)) {
        cr_assert_not(os_deadline_passed(deadline), "%d stays open", fd);
        os_sleep_ms(1);
    }
}

/* A thread closes all other kinds. */
Test(posix_closer, what_may_wait_is_closed_soon) {
    int pipes[2];
    int pair_ends[2];
    os_pair_name(&pair);
    cr_assert_eq(pipe2(pipes, O_CLOEXEC), 0);
    cr_assert_eq(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair_ends), 0);
    const int fds[] = {pipes[0],
                       pipes[1],
                       pair_ends[0],
                       pair_ends[1],
                       open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC),
                       open(pair.path, O_PATH | O_CLOEXEC),
                       open("/proc/self/exe", O_RDONLY | O_CLOEXEC),
                       eventfd(0, EFD_CLOEXEC),
                       socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0),
                       socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
        cr_assert_geq(fds[i], 0, "%zu", i);
        posix_close_foreign(fds[i]);
    }
    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
        await_closed(fds[i]);
    }
    os_pair_close(&pair);
}
