/* SPDX-License-Identifier: MIT */
/** @file Accounts of other processes: what they may take, who refuses it, and that it comes back. */
#include <criterion/criterion.h>
#include <string.h>

#include "base/quota.h"
#include "base/status.h"
#include "check.h"
#include "os.h"

TestSuite(quota, .timeout = 60);

#define OF_USER 400u

static const quota_amount totals = {{800, 800, 800, 800}};
static const quota_amount one_mapping = {{[QUOTA_MAPPINGS] = 1}};

static quota *account(const char *user, uint64_t process_id) {
    os_peer peer = {.process_id = process_id, .process = OS_HANDLE_NONE};
    quota *made;
    memcpy(peer.user, user, strlen(user) + 1);
    check_ok(quota_open(&peer, &made));
    return made;
}

/* @return how much was given before the first refusal */
static uint64_t fill(quota *of, quota_charge *charge) {
    uint64_t count = 0;
    while (quota_take(of, &one_mapping, charge) == GPUIPC_OK) {
        count++;
    }
    cr_assert_eq(gpuipc_error_get()->status, GPUIPC_ERR_LIMIT);
    return count;
}

Test(quota, all_processes_of_a_user_have_one_half) {
    quota_charge charges[3] = {{0}};
    quota_pretend(&totals);
    quota *first = account("1000", 11);
    quota *second = account("1000", 12);
    quota *without_number = account("1000", 0);
    quota *stranger = account("1001", 11);
    cr_assert_eq(first, second);
    cr_assert_eq(first, without_number);
    cr_assert_eq(fill(first, &charges[0]), OF_USER);
    cr_assert_not_null(strstr(gpuipc_error_get()->sentence, "of user 1000 use 400 mappings"));
    cr_assert_eq(fill(second, &charges[1]), 0);
    cr_assert_eq(fill(stranger, &charges[2]), OF_USER);
    quota_return(&charges[0]);
    cr_assert_eq(fill(second, &charges[1]), OF_USER);
    for (size_t i = 0; i < 3; i++) {
        quota_return(&charges[i]);
        cr_assert_null(charges[i].of);
    }
    quota_unreference(first);
    quota_unreference(second);
    quota_unreference(without_number);
    quota_unreference(stranger);
    quota_pretend(NULL);
}

Test(quota, stays_taken_after_the_last_connection_of_a_process) {
    quota_charge charge = {0};
    quota_charge more = {0};
    quota_pretend(&totals);
    quota *of = account("1000", 11);
    cr_assert_eq(fill(of, &charge), OF_USER);
    quota_unreference(of);
    of = account("1000", 11);
    cr_assert_eq(fill(of, &more), 0);
    quota_return_some(&charge, &one_mapping);
    cr_assert_eq(fill(of, &more), 1);
    quota_return(&more);
    quota_return(&charge);
    cr_assert_eq(fill(of, &more), OF_USER);
    quota_return(&more);
    quota_unreference(of);
    quota_pretend(NULL);
}

/* Lifelines are the first to go: half of an account is left to what cannot be spared. */
Test(quota, what_can_be_spared_has_half_of_an_account) {
    quota_charge spare = {0};
    quota_charge needed = {0};
    quota_charge none = {0};
    uint64_t taken = 0;
    quota_pretend(&totals);
    quota *of = account("1000", 11);
    while (quota_take_spare(of, &one_mapping, &spare)) {
        taken++;
    }
    cr_assert_eq(taken, OF_USER / 2);
    cr_assert_eq(fill(of, &needed), OF_USER / 2);
    cr_assert(quota_take_spare(NULL, &one_mapping, &none), "this process is not counted");
    quota_return(&needed);
    quota_return(&spare);
    quota_unreference(of);
    quota_pretend(NULL);
}

/* The limits of the system may become less than what is taken. */
Test(quota, who_has_more_than_there_is_now_gets_no_more) {
    static const quota_amount less = {{80, 80, 80, 80}};
    static const quota_amount one_handle = {{[QUOTA_HANDLES] = 1}};
    quota_charge charge = {0};
    quota_charge other = {0};
    quota_pretend(&totals);
    quota *of = account("1000", 11);
    cr_assert_eq(fill(of, &charge), OF_USER);
    quota_pretend(&less);
    quota *again = account("1000", 11); /* finds the limits of now */
    cr_assert_eq(again, of);
    cr_assert_eq(fill(of, &other), 0);
    check_ok(quota_take(of, &one_handle, &other));
    quota_return(&other);
    quota_return(&charge);
    cr_assert_eq(fill(of, &charge), 40);
    quota_return(&charge);
    quota_unreference(of);
    quota_unreference(again);
    quota_pretend(NULL);
}

Test(quota, all_of_it_or_nothing) {
    const quota_amount too_much = {{[QUOTA_HANDLES] = 1, [QUOTA_ADDRESSES] = OF_USER + 1}};
    const quota_amount wraps = {{[QUOTA_ADDRESSES] = UINT64_MAX}};
    const quota_amount all_handles = {{[QUOTA_HANDLES] = OF_USER}};
    quota_charge charge = {0};
    quota_pretend(&totals);
    quota *of = account("1000", 11);
    check_refused(GPUIPC_ERR_LIMIT, "bytes of addresses", quota_take(of, &too_much, &charge));
    cr_assert_null(charge.of);
    check_ok(quota_take(of, &all_handles, &charge));
    check_refused(GPUIPC_ERR_LIMIT, "bytes of addresses", quota_take(of, &wraps, &charge));
    quota_return(&charge);
    quota_unreference(of);
    quota_pretend(NULL);
}

Test(quota, this_process_is_not_counted) {
    const os_peer self = {.process_id = os_process_id(), .process = OS_HANDLE_NONE};
    const quota_amount much = {{UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX}};
    quota_charge charge = {0};
    quota *of = (quota *)&charge;
    check_ok(quota_open(&self, &of));
    cr_assert_null(of);
    check_ok(quota_take(of, &much, &charge));
    quota_return(&charge);
}

Test(quota, the_system_says_what_there_is) {
    os_limits limits;
    os_limits_get(&limits);
    cr_assert_geq(limits.handles, 64);
    cr_assert_geq(limits.mappings, 1024);
    cr_assert_geq(limits.addresses, UINT64_C(1) << 31);
}
