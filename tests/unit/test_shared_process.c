/* SPDX-License-Identifier: MIT */
/** @file One handle of a process, however many connections there are with it: whose it is, who pays, when it is closed. */
#include <criterion/criterion.h>
#include <string.h>

#include "base/shared_process.h"
#include "base/status.h"
#include "check.h"
#include "os.h"
#include "process_size.h"

TestSuite(shared_process, .timeout = 60);

/* This process stands for another one, since it runs for certain. */
static os_peer running(void) {
    os_peer peer;
    check_ok(os_peer_self(&peer));
    return peer;
}

/* What is said to have ended, from the ask number asks_left on. */
static os_handle ended;
static bool is_said;
static int asks_left;

int __real_os_peer_is_running(const os_peer *peer);
int __wrap_os_peer_is_running(const os_peer *peer);
int __wrap_os_peer_is_running(const os_peer *peer) {
    if (is_said && peer->process.value == ended.value && asks_left-- <= 0) {
        return 0;
    }
    return __real_os_peer_is_running(peer);
}

static uint64_t handles(void) {
    process_size size;
    cr_assert(process_size_get(&size));
    return size.handles;
}

static shared_process *get(os_peer *peer, quota *of) {
    shared_process *found = NULL;
    check_ok(shared_process_get(peer, of, &found));
    return found;
}

Test(shared_process, two_connections_have_one_handle) {
    const uint64_t before = handles();
    os_peer first = running();
    os_peer second = running();
    cr_assert_neq(first.process.value, second.process.value);
    shared_process *one = get(&first, NULL);
    shared_process *other = get(&second, NULL);
    cr_assert_eq(one, other);
    cr_assert_eq(first.process.value, second.process.value);
    cr_assert_eq(handles(), before + 1);
    shared_process_unreference(one, false);
    cr_assert_eq(os_peer_is_running(&second), 1, "the other connection has it still");
    shared_process_unreference(other, false);
    shared_process_unreference(NULL, false);
    cr_assert_eq(handles(), before);
}

Test(shared_process, the_first_connection_pays_for_it) {
    static const quota_amount totals = {{2, 2, 2, 2}}; /* a user may have one */
    quota *of;
    os_peer first = running();
    os_peer second = running();
    os_peer stranger = running();
    shared_process *refused = NULL;
    quota_pretend(&totals);
    check_ok(quota_open(&first, &of));
    shared_process *one = get(&first, of);
    shared_process *other = get(&second, of);
    stranger.process_id = 0;
    check_refused(GPUIPC_ERR_LIMIT, "1 handles", shared_process_get(&stranger, of, &refused));
    cr_assert_eq(os_peer_is_running(&stranger), 1, "it is still the caller's");
    shared_process_unreference(one, false);
    check_refused(GPUIPC_ERR_LIMIT, "1 handles", shared_process_get(&stranger, of, &refused));
    shared_process_unreference(other, false);
    one = get(&stranger, of);
    shared_process_unreference(one, false);
    quota_unreference(of);
    quota_pretend(NULL);
}

/* The next process of its number, and of its user, is another one. */
Test(shared_process, one_that_has_ended_is_not_the_next_of_its_number) {
    const uint64_t before = handles();
    os_peer first = running();
    os_peer second = running();
    os_peer third = running();
    shared_process *over = get(&first, NULL);
    ended = first.process;
    is_said = true;
    shared_process *next = get(&second, NULL);
    cr_assert_neq(next, over);
    shared_process *same = get(&third, NULL);
    cr_assert_eq(same, next);
    is_said = false;
    shared_process_unreference(over, false);
    shared_process_unreference(next, false);
    shared_process_unreference(same, false);
    cr_assert_eq(handles(), before);
}

/* It ends while it is looked for, and its number goes to a process that is known by then. */
Test(shared_process, nor_the_former_one) {
    os_peer first = running();
    os_peer second = running();
    shared_process *known = get(&first, NULL);
    ended = second.process;
    is_said = true;
    asks_left = 1;
    shared_process *over = get(&second, NULL);
    cr_assert_neq(over, known);
    cr_assert_neq(second.process.value, first.process.value);
    is_said = false;
    shared_process_unreference(known, false);
    shared_process_unreference(over, false);
}

/* Nor is one told from another by a number of another user's, by none, or without a handle. */
Test(shared_process, what_may_be_another_process_is_not_shared) {
    const uint64_t before = handles();
    os_peer peers[4] = {running(), running(), running(), running()};
    shared_process *found[4];
    memcpy(peers[1].user, "another", sizeof("another"));
    peers[2].process_id = 0;
    os_peer_close(&peers[3]); /* the system gives none */
    for (size_t i = 0; i < 4; i++) {
        found[i] = get(&peers[i], NULL);
        for (size_t j = 0; j < i; j++) {
            cr_assert_neq(found[i], found[j]);
        }
    }
    cr_assert_eq(handles(), before + 3);
    for (size_t i = 0; i < 4; i++) {
        shared_process_unreference(found[i], false);
    }
    cr_assert_eq(handles(), before);
}
