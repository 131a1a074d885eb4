/* SPDX-License-Identifier: MIT */
/** @file Who is let in: places of users that come and go, processes that are known again, and what a share admits. */
#include <criterion/criterion.h>

#include "check.h"
#include "ticket/admission.h"

TestSuite(admission, .timeout = 30);

#define SECOND UINT64_C(1000000000)

/* ---- places -------------------------------------------------------------------------------------- */

Test(admission, places_are_counted_in_all_and_for_each_user) {
    places self = {.most = 3, .most_of_user = 2};
    places_user *taken[3];
    places_user *none = NULL;
    check_ok(places_take(&self, "ann", SECOND, &taken[0]));
    check_ok(places_take(&self, "ann", SECOND, &taken[1]));
    cr_assert_eq(taken[0], taken[1]);
    check_ok(places_take(&self, "ann", SECOND, &none));
    cr_assert_null(none, "that is her third");
    check_ok(places_take(&self, "bob", SECOND, &taken[2]));
    cr_assert_not_null(taken[2]);
    check_ok(places_take(&self, "eve", SECOND, &none));
    cr_assert_null(none, "all places are taken");
    places_return(&self, taken[0]);
    check_ok(places_take(&self, "eve", SECOND, &none));
    cr_assert_not_null(none);
    places_return(&self, none);
    places_return(&self, taken[1]);
    places_return(&self, taken[2]);
    cr_assert_eq(self.count, 0);
    places_destroy(&self);
}

/* Not before the second is over in which he was waited for; and never while he is there. */
Test(admission, users_who_have_gone_are_forgotten) {
    places self = {.most = 8, .most_of_user = 8};
    places_user *gone = NULL;
    places_user *there = NULL;
    places_user *comes = NULL;
    check_ok(places_take(&self, "gone", SECOND, &gone));
    check_ok(places_take(&self, "there", SECOND, &there));
    cr_assert_eq(places_pause_ms(gone, SECOND), 0);
    cr_assert_eq(places_pause_ms(there, SECOND), 0);
    places_return(&self, gone);
    check_ok(places_take(&self, "comes", SECOND + 1, &comes));
    cr_assert_eq(self.users.count, 3);
    places_return(&self, comes);
    check_ok(places_take(&self, "comes", 3 * SECOND, &comes));
    cr_assert_eq(self.users.count, 2, "%zu", self.users.count);
    places_return(&self, comes);
    places_return(&self, there);
    places_destroy(&self);
}

#define PATIENCE (SECOND / 2)

/* What a client takes beyond a second's part is missing in the next ones. */
Test(admission, a_user_waits_until_what_its_clients_took_is_given_back) {
    places self = {.most = 8, .most_of_user = 8};
    const uint64_t start = 100 * SECOND;
    places_user *user = NULL;
    places_user *other = NULL;
    check_ok(places_take(&self, "user", start, &user));
    cr_assert_eq(places_pause_ms(user, start), 0);
    places_spend(user, PATIENCE - 1);
    cr_assert_eq(places_pause_ms(user, start + SECOND / 2), 0, "a part is left");
    places_spend(user, 1 + 2 * PATIENCE);
    cr_assert_eq(places_pause_ms(user, start + SECOND / 2), 2501);
    cr_assert_eq(places_pause_ms(user, start + 5 * SECOND / 2), 501);
    places_return(&self, user);
    check_ok(places_take(&self, "other", start + 5 * SECOND / 2, &other));
    check_ok(places_take(&self, "user", start + 5 * SECOND / 2, &user));
    cr_assert_eq(places_pause_ms(user, start + 5 * SECOND / 2), 501, "it is not forgotten");
    cr_assert_eq(places_pause_ms(user, start + 3 * SECOND), 0);
    cr_assert_eq(places_pause_ms(other, start + 3 * SECOND), 0);
    places_return(&self, user);
    places_return(&self, other);
    places_destroy(&self);
}

/* ---- processes ------------------------------------------------------------------------------------- */

/* Without a handle of the system's, nothing tells a process from the next one of its number. */
Test(admission, what_has_no_handle_is_never_known_again) {
    known_processes self = {.by_number = {.count = 0}};
    known_process *first = NULL;
    known_process *again = NULL;
    for (uint64_t number = 0; number < 2; number++) {
        const os_peer peer = {.process_id = number * 77, .process = OS_HANDLE_NONE};
        check_ok(known_process_get(&self, &peer, NULL, &first));
        check_ok(known_process_get(&self, &peer, NULL, &again));
        cr_assert_neq(first, again);
        known_process_unreference(first, false);
        known_process_unreference(again, false);
    }
    known_process_unreference(NULL, false);
    known_processes_destroy(&self);
}

Test(admission, a_process_pays_for_its_handle) {
    static const quota_amount totals = {{2, 2, 2, 2}}; /* a user may have one */
    static const quota_amount one = {{[QUOTA_HANDLES] = 1}};
    known_processes self = {.by_number = {.count = 0}};
    known_process *known = NULL;
    known_process *again = NULL;
    quota_charge charge = {0};
    quota *account;
    os_peer peer;
    check_ok(os_peer_self(&peer));
    quota_pretend(&totals);
    check_ok(quota_open(&peer, &account));
    check_ok(quota_take(account, &one, &charge));
    check_status(GPUIPC_ERR_LIMIT, known_process_get(&self, &peer, account, &known));
    quota_return(&charge);
    check_ok(known_process_get(&self, &peer, account, &known));
    check_ok(known_process_get(&self, &peer, account, &again));
    cr_assert_eq(known, again);
    check_status(GPUIPC_ERR_LIMIT, quota_take(account, &one, &charge));
    known_process_unreference(known, false);
    known_process_unreference(again, false);
    check_ok(quota_take(account, &one, &charge));
    quota_return(&charge);
    quota_unreference(account);
    quota_pretend(NULL);
    os_peer_close(&peer);
    known_processes_destroy(&self);
}

/* ---- what a share admits ----------------------------------------------------------------------------- */

Test(admission, what_was_admitted_is_found_until_it_is_removed) {
    enum {
        COUNT = 40
    };
    known_processes processes = {.by_number = {.count = 0}};
    known_process *known[COUNT];
    admitted *entries[COUNT];
    admission *self = NULL;
    check_ok(admission_new(&self));
    for (uint64_t i = 0; i < COUNT; i++) {
        const os_peer peer = {.process_id = i + 1, .process = OS_HANDLE_NONE};
        check_ok(known_process_get(&processes, &peer, NULL, &known[i]));
        cr_assert_null(admission_find(self, known[i]));
        check_ok(admission_add(self, known[i], &entries[i]));
    }
    for (size_t i = 0; i < COUNT; i++) {
        cr_assert_eq(admission_find(self, known[i]), entries[i]);
    }
    for (size_t i = 0; i < COUNT; i += 2) {
        admission_remove(self, entries[i]);
    }
    for (size_t i = 0; i < COUNT; i++) {
        cr_assert_eq(admission_find(self, known[i]), i % 2 == 0 ? NULL : entries[i]);
        known_process_unreference(known[i], false);
    }
    admission_destroy(self, false);
    admission_destroy(NULL, false);
    known_processes_destroy(&processes);
}

/* ---- processes that end ------------------------------------------------------------------------------ */

/* Processes of this test's have these numbers, and the handle of this one. */
#define FIRST_NUMBER UINT64_C(1000000)

static uint64_t ended_below; /* of these numbers, those below this one have ended */

int __real_os_peer_is_running(const os_peer *peer);
int __wrap_os_peer_is_running(const os_peer *peer);
int __wrap_os_peer_is_running(const os_peer *peer) {
    return peer->process_id >= FIRST_NUMBER && peer->process_id < ended_below
               ? 0
               : __real_os_peer_is_running(peer);
}

static os_peer self_peer;

static void begin_processes(void) {
    check_ok(os_peer_self(&self_peer));
    ended_below = FIRST_NUMBER;
}

static void end_processes(void) {
    os_peer_close(&self_peer);
}

TestSuite(admission_ended, .init = begin_processes, .fini = end_processes, .timeout = 30);

static os_peer numbered(uint64_t index) {
    os_peer peer = self_peer;
    peer.process_id = FIRST_NUMBER + index;
    return peer;
}

/* Connects, is admitted, and disconnects. */
static void open_once(known_processes *among, admission *share, uint64_t index) {
    const os_peer peer = numbered(index);
    known_process *process = NULL;
    admitted *entry = NULL;
    check_ok(known_process_get(among, &peer, NULL, &process));
    if (admission_find(share, process) == NULL) {
        check_ok(admission_add(share, process, &entry));
    }
    known_process_unreference(process, false);
}

/* Each of a row of processes opens two shares and ends: the shares keep their number, and nothing of them. */
Test(admission_ended, one_after_another_leave_their_number_alone) {
    enum {
        COUNT = 400,
        LEFT = 4 /* whose end is not seen yet, at most */
    };
    known_processes processes = {.by_number = {.count = 0}};
    admission *shares[2] = {NULL, NULL};
    check_ok(admission_new(&shares[0]));
    check_ok(admission_new(&shares[1]));
    for (uint64_t i = 0; i < COUNT; i++) {
        open_once(&processes, shares[0], i);
        open_once(&processes, shares[1], i);
        ended_below = FIRST_NUMBER + i + 1;
        cr_assert_leq(processes.in_turn.count, LEFT, "%zu", processes.in_turn.count);
    }
    cr_assert_eq(admission_count(shares[0]), COUNT);
    cr_assert_eq(admission_count(shares[1]), COUNT);
    cr_assert_leq(shares[0]->entries.count, LEFT);
    for (int i = 0; i < 2 * LEFT; i++) {
        known_processes_sweep(&processes);
    }
    cr_assert_eq(processes.in_turn.count, 0);
    cr_assert_eq(processes.by_number.count, 0);
    cr_assert_eq(shares[0]->entries.count, 0);
    cr_assert_eq(admission_count(shares[0]), COUNT);
    admission_destroy(shares[0], false);
    admission_destroy(shares[1], false);
    known_processes_destroy(&processes);
}

Test(admission_ended, those_that_live_are_found_beside_those_that_ended) {
    enum {
        ENDED = 50,
        ALIVE = 50
    };
    known_processes processes = {.by_number = {.count = 0}};
    admission *share = NULL;
    check_ok(admission_new(&share));
    for (uint64_t i = 0; i < ENDED + ALIVE; i++) {
        open_once(&processes, share, i);
    }
    ended_below = FIRST_NUMBER + ENDED;
    for (int i = 0; i < ENDED + ALIVE; i++) {
        known_processes_sweep(&processes);
    }
    cr_assert_eq(processes.in_turn.count, ALIVE);
    for (uint64_t i = ENDED; i < ENDED + ALIVE; i++) {
        open_once(&processes, share, i); /* not another time */
    }
    cr_assert_eq(admission_count(share), ENDED + ALIVE);
    admission_destroy(share, false);
    known_processes_destroy(&processes);
}

/* What it has sent may be read after its end, such as that it has its buffer open. */
Test(admission_ended, one_with_a_connection_stays_until_that_ends) {
    known_processes processes = {.by_number = {.count = 0}};
    known_process *process = NULL;
    admitted *entry = NULL;
    admission *share = NULL;
    const os_peer peer = numbered(0);
    check_ok(admission_new(&share));
    check_ok(known_process_get(&processes, &peer, NULL, &process));
    check_ok(admission_add(share, process, &entry));
    ended_below = FIRST_NUMBER + 1;
    known_processes_sweep(&processes);
    cr_assert_eq(admission_find(share, process), entry);
    known_process_unreference(process, false);
    known_processes_sweep(&processes);
    cr_assert_eq(share->entries.count, 0);
    cr_assert_eq(admission_count(share), 1);
    admission_destroy(share, false);
    known_processes_destroy(&processes);
}

Test(admission_ended, a_number_that_is_given_out_again_is_another_process) {
    known_processes processes = {.by_number = {.count = 0}};
    known_process *first = NULL;
    known_process *second = NULL;
    const os_peer peer = numbered(0);
    check_ok(known_process_get(&processes, &peer, NULL, &first));
    ended_below = FIRST_NUMBER + 1;
    check_ok(known_process_get(&processes, &peer, NULL, &second));
    cr_assert_neq(first, second);
    known_process_unreference(first, false);
    known_process_unreference(second, false);
    cr_assert_eq(processes.in_turn.count, 0);
    known_processes_destroy(&processes);
}

/* Many that ended at once are no reason to refuse the next. */
Test(admission_ended, handles_of_processes_that_ended_make_room) {
    enum {
        COUNT = 20
    };
    static const quota_amount totals = {{2 * COUNT, 2, 2, 2}}; /* a user may have half */
    known_processes processes = {.by_number = {.count = 0}};
    admission *share = NULL;
    known_process *process = NULL;
    admitted *entry = NULL;
    quota *account;
    quota_pretend(&totals);
    check_ok(quota_open(&self_peer, &account));
    check_ok(admission_new(&share));
    for (uint64_t i = 0; i < COUNT; i++) {
        const os_peer peer = numbered(i);
        check_ok(known_process_get(&processes, &peer, account, &process));
        check_ok(admission_add(share, process, &entry));
        known_process_unreference(process, false);
    }
    const os_peer next = numbered(COUNT);
    check_status(GPUIPC_ERR_LIMIT, known_process_get(&processes, &next, account, &process));
    ended_below = FIRST_NUMBER + COUNT;
    check_ok(known_process_get(&processes, &next, account, &process));
    known_process_unreference(process, false);
    cr_assert_eq(admission_count(share), COUNT);
    admission_destroy(share, false);
    quota_unreference(account);
    quota_pretend(NULL);
    known_processes_destroy(&processes);
}
