/* SPDX-License-Identifier: MIT */
/** @file The locks by which two programs see each other's end. The other program is a forked child. */
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/quota.h"
#include "check.h"
#include "leak_gate.h"
#include "os.h"
#include "sync/lifeline.h"
#include "sync/point.h"

TestSuite(posix_lifeline, .timeout = 60);

static int page; /* no handle of the library's, so that a child has it as well */
static lifeline own;
static pid_t other;
static int answers[2]; /* the child writes a byte for each thing done */
static int orders[2];  /* and waits for one before the next */

static os_handle handle_of_page(void) {
    os_handle handle;
    check_ok(os_handle_duplicate_native(page, &handle));
    return handle;
}

static void begin(lifeline *self, lifeline_side side) {
    os_handle handle = handle_of_page();
    lifeline_begin(self, &handle, side, NULL);
    cr_assert_not(os_handle_is_valid(handle), "it takes the handle over");
}

static void make_page(void) {
    page = memfd_create("page", MFD_CLOEXEC);
    cr_assert_eq(ftruncate(page, POINT_PAGE_BYTES), 0);
    cr_assert_eq(pipe2(answers, O_CLOEXEC), 0);
    cr_assert_eq(pipe2(orders, O_CLOEXEC), 0);
}

static void say(void) {
    (void)!write(answers[1], "", 1);
}

static void hear(int from) {
    char byte;
    cr_assert_eq(read(from, &byte, 1), 1);
}

/* The child has its side, then gives it up when it is told, and then ends when it is told. */
static void start_other(void) {
    other = fork();
    if (other == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        lifeline its = {0};
        begin(&its, LIFELINE_RECEIVER);
        say();
        hear(orders[0]);
        lifeline_end(&its, false);
        say();
        hear(orders[0]);
        _exit(0);
    }
    cr_assert_gt(other, 0);
    hear(answers[0]);
}

static void order(void) {
    cr_assert_eq(write(orders[1], "", 1), 1);
}

static void end(void) {
    (void)kill(other, SIGKILL);
    cr_assert_eq(waitpid(other, NULL, 0), other);
    lifeline_end(&own, false);
    (void)close(page);
}

Test(posix_lifeline, a_program_that_ends_is_seen) {
    make_page();
    begin(&own, LIFELINE_SENDER);
    cr_assert_not(lifeline_has_ended(&own), "the other one has not begun");
    start_other();
    cr_assert_not(lifeline_has_ended(&own));
    (void)kill(other, SIGKILL);
    siginfo_t how;
    cr_assert_eq(waitid(P_PID, (id_t)other, &how, WEXITED | WNOWAIT), 0);
    cr_assert(lifeline_has_ended(&own));
    end();
}

Test(posix_lifeline, who_gives_it_up_has_not_ended) {
    make_page();
    begin(&own, LIFELINE_SENDER);
    start_other();
    order();
    hear(answers[0]);
    cr_assert_not(lifeline_has_ended(&own));
    end();
    lifeline_end(&own, false); /* does nothing */
}

/* A peer that states what is not so has ended, for this side alone. */
Test(posix_lifeline, a_peer_that_lies_has_ended) {
    make_page();
    begin(&own, LIFELINE_SENDER);
    atomic_fetch_or(&own.words[LIFELINE_WORD], LIFELINE_HOLDS << LIFELINE_RECEIVER);
    cr_assert(lifeline_has_ended(&own));
    atomic_fetch_or(&own.words[LIFELINE_WORD], LIFELINE_LEFT << LIFELINE_RECEIVER);
    cr_assert_not(lifeline_has_ended(&own));
    lifeline_end(&own, false);
    (void)close(page);
}

/* Then the handle of the process tells alone. */
Test(posix_lifeline, where_the_byte_cannot_be_locked_there_is_none) {
    leak_gate gate;
    lifeline late = {0};
    make_page();
    start_other();
    leak_gate_begin(&gate);
    begin(&late, LIFELINE_RECEIVER);
    cr_assert_null(late.words);
    cr_assert_not(lifeline_has_ended(&late));
    lifeline_end(&late, false);
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
    end();
}

/* The handle of a second page is closed. */
Test(posix_lifeline, there_is_one_in_each_direction) {
    leak_gate gate;
    make_page();
    begin(&own, LIFELINE_SENDER);
    leak_gate_begin(&gate);
    begin(&own, LIFELINE_SENDER);
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
    lifeline_end(&own, false);
    (void)close(page);
}

#define MANY_LOCKS 100000L

/* Of one lock a byte is released again and again: no release walks those that there are already. */
static void lock_many(void) {
    struct flock lock = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 16, .l_len = 2 * MANY_LOCKS};
    cr_assert_eq(fcntl(page, F_SETLK, &lock), 0);
    lock.l_type = F_UNLCK;
    lock.l_len = 1;
    for (off_t i = MANY_LOCKS - 1; i >= 0; i--) {
        lock.l_start = 16 + 2 * i + 1;
        cr_assert_eq(fcntl(page, F_SETLK, &lock), 0);
    }
}

/* A child that takes many locks. The system keeps those of one process behind those of another that was there before. */
static pid_t start_hoarder(void) {
    const pid_t hoarder = fork();
    if (hoarder == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        lock_many();
        say();
        hear(orders[0]);
        _exit(0);
    }
    cr_assert_gt(hoarder, 0);
    hear(answers[0]);
    return hoarder;
}

/* Each look at the other's lock walks all of them. */
Test(posix_lifeline, a_peer_with_many_locks_is_not_looked_at_for_long) {
    leak_gate gate;
    make_page();
    const pid_t hoarder = start_hoarder();
    start_other();
    leak_gate_begin(&gate);
    begin(&own, LIFELINE_SENDER);
    for (int i = 0; i < 3; i++) {
        cr_assert_not_null(own.words);
        cr_assert_not(lifeline_has_ended(&own));
    }
    cr_assert_null(own.words, "it is given up");
    begin(&own, LIFELINE_SENDER);
    cr_assert_null(own.words, "for good");
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
    (void)kill(hoarder, SIGKILL);
    cr_assert_eq(waitpid(hoarder, NULL, 0), hoarder);
    end();
}

/* A client comes before a lifeline: of the user's ten handles, five are left to clients. */
Test(posix_lifeline, there_is_none_where_half_of_the_account_is_used) {
    static const quota_amount totals = {{20, 20, UINT64_C(1) << 40, 0}};
    static const quota_amount five = {{[QUOTA_HANDLES] = 5}};
    const os_peer peer = {.process_id = 1, .process = OS_HANDLE_NONE, .user = "1000"};
    leak_gate gate;
    quota *of;
    quota_charge used = {0};
    make_page();
    leak_gate_begin(&gate);
    quota_pretend(&totals);
    check_ok(quota_open(&peer, &of));
    check_ok(quota_take(of, &five, &used));
    os_handle handle = handle_of_page();
    lifeline_begin(&own, &handle, LIFELINE_SENDER, of);
    cr_assert_null(own.words);
    quota_return(&used);
    handle = handle_of_page();
    lifeline_begin(&own, &handle, LIFELINE_SENDER, of);
    cr_assert_not_null(own.words);
    lifeline_end(&own, false);
    quota_unreference(of);
    quota_pretend(NULL);
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
    (void)close(page);
}
