/* SPDX-License-Identifier: MIT */
/** @file What a server grants, step by step, as its thread does between a client's question and the end of the answer. */
#include "asker.h"
#include "base/quota.h"
#include "ticket/server.h"

static gpuipc_server *handle;
static server *inside;
static gpuipc_buffer *shared;
static gpuipc_ticket given;
static ticket wanted;
static os_peer peer;

static void begin(void) {
    core_start();
    peer = (os_peer){.process_id = 1, .process = OS_HANDLE_NONE};
    shared = core_buffer(core_unit, 0);
    handle = asker_server(0);
    given = asker_share(handle, shared);
    wanted = asker_decode(&given);
    inside = server_find(wanted.server_id);
    cr_assert_not_null(inside);
}

static void finish(void) {
    quota_pretend(NULL);
    object_unreference(&inside->object);
    (void)gpuipc_server_destroy(handle);
    check_ok(gpuipc_buffer_release(shared));
    core_finish();
}

TestSuite(server_grant, .init = begin, .fini = finish, .timeout = 60);

static holder *enter(void) {
    holder *by = NULL;
    check_ok(share_enter(&inside->shares, &peer, &by));
    cr_assert_not_null(by);
    by->peer = &peer;
    return by;
}

/* It has not left. */
static void settle(share_grant *grant) {
    share_settle(&inside->shares, grant, false, &(point){.page = NULL});
}

Test(server_grant, a_client_whose_room_is_used_up_is_told_to_wait) {
    enum {
        MOST = 8
    };
    /* half of it, 512 bytes each: holder.c */
    const quota_amount totals = {{[QUOTA_MEMORY] = 2 * 512 * MOST}};
    share_grant grants[MOST + 1];
    wire_answer answer = WIRE_GRANTED;
    size_t count = 0;
    quota_pretend(&totals);
    holder *by = enter();
    while (answer == WIRE_GRANTED) {
        cr_assert_leq(count, MOST);
        check_ok(share_ask(&inside->shares, &wanted, by, &answer, &grants[count]));
        count += answer == WIRE_GRANTED;
    }
    cr_assert_eq(answer, WIRE_BUSY);
    cr_assert_eq(count, MOST);
    settle(&grants[--count]);
    check_ok(share_ask(&inside->shares, &wanted, by, &answer, &grants[count++]));
    cr_assert_eq(answer, WIRE_GRANTED);
    while (count > 0) {
        settle(&grants[--count]);
    }
    share_leave(&inside->shares, by);
}

/* Its memory goes when that has left, or not: the leak checks see to it. */
Test(server_grant, a_share_that_is_forgotten_meanwhile_ends_with_what_is_on_its_way) {
    share_grant grant;
    wire_answer answer;
    holder *by = enter();
    check_ok(share_ask(&inside->shares, &wanted, by, &answer, &grant));
    cr_assert_eq(answer, WIRE_GRANTED);
    check_ok(gpuipc_server_destroy(handle));
    handle = NULL;
    settle(&grant);
    check_ok(share_ask(&inside->shares, &wanted, by, &answer, &grant));
    cr_assert_eq(answer, WIRE_UNKNOWN);
    share_leave(&inside->shares, by);
}

/* 0 is none's, and 1 is taken still. */
Test(server_grant, numbers_of_shares_begin_anew_after_the_last) {
    cr_assert_eq(wanted.share, 1);
    os_mutex_lock(&inside->shares.mutex);
    inside->shares.next_id = UINT32_MAX - 1;
    os_mutex_unlock(&inside->shares.mutex);
    static const uint32_t expected[] = {UINT32_MAX, 2, 3};
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
        const gpuipc_ticket next = asker_share(handle, shared);
        cr_assert_eq(asker_decode(&next).share, expected[i]);
    }
}

/* Of a share for few processes what counted is forgotten with it. */
Test(server_grant, a_share_that_is_revoked_meanwhile_counts_nobody) {
    const gpuipc_share_config few = {.struct_size = sizeof(few), .max_processes = 1};
    share_grant grant;
    wire_answer answer;
    holder *by = enter();
    check_ok(gpuipc_buffer_share(handle, shared, &few, &given));
    wanted = asker_decode(&given);
    check_ok(share_ask(&inside->shares, &wanted, by, &answer, &grant));
    cr_assert_eq(answer, WIRE_GRANTED);
    cr_assert_not_null(grant.admitted);
    check_ok(gpuipc_server_revoke(handle, &given));
    settle(&grant);
    check_ok(share_ask(&inside->shares, &wanted, by, &answer, &grant));
    cr_assert_eq(answer, WIRE_REVOKED);
    share_leave(&inside->shares, by);
}

Test(server_grant, what_is_not_known_is_nobodys_to_abandon) {
    const gpuipc_ticket forged = asker_forge(&given);
    const ticket other = asker_decode(&forged);
    share_abandon(&inside->shares, &other);
    cr_assert_eq(asker_answer_here(&given, NULL), WIRE_GRANTED);
}

Test(server_grant, what_was_never_given_out_is_not_opened_here_either) {
    const gpuipc_ticket forged = asker_forge(&given);
    gpuipc_buffer *none = NULL;
    check_status(GPUIPC_ERR_TICKET_UNKNOWN, gpuipc_buffer_open(core_context, &forged, NULL, &none));
    cr_assert_null(none);
}

/* More than are swept at once. */
Test(server_grant, many_that_expire_together_are_given_up_in_turns) {
    enum {
        MANY = 50
    };
    const gpuipc_share_config soon = {.struct_size = sizeof(soon), .expires_ms = 400};
    gpuipc_ticket made[MANY];
    for (size_t i = 0; i < MANY; i++) {
        check_ok(gpuipc_buffer_share(handle, shared, &soon, &made[i]));
    }
    const os_deadline last = os_deadline_after(401); /* those of before have 400 */
    while (!os_deadline_passed(last)) {
        os_sleep_ms(1);
    }
    for (size_t swept = 0; swept < MANY; swept += 16) {
        cr_assert_neq(share_next_expiry(&inside->shares).at_ns, UINT64_MAX);
        share_sweep(&inside->shares);
    }
    cr_assert_eq(share_next_expiry(&inside->shares).at_ns, UINT64_MAX);
    for (size_t i = 0; i < MANY; i++) {
        cr_assert_eq(asker_answer_here(&made[i], NULL), WIRE_EXPIRED);
    }
}

/* Of this process, which counts as another one here. */
static quota *own_account(void) {
    quota *account;
    os_peer self;
    check_ok(os_peer_self(&self));
    check_ok(quota_open(&self, &account));
    os_peer_close(&self);
    return account;
}

/* All handles that it may still be made to hold. @return how many */
static uint64_t take_handles(quota *account, quota_charge *charge) {
    static const quota_amount one = {{[QUOTA_HANDLES] = 1}};
    uint64_t count = 0;
    while (quota_take(account, &one, charge) == GPUIPC_OK) {
        count++;
    }
    return count;
}

static uint64_t handles_left(void) {
    quota_charge charge = {0};
    quota *account = own_account();
    const uint64_t count = take_handles(account, &charge);
    quota_return(&charge);
    quota_unreference(account);
    return count;
}

/* Both ends of its connection are given back. What it has open keeps the handle of its process, and the watch for its end. */
Test(server_grant, who_hangs_up_with_something_open_pays_for_being_watched) {
    const quota_amount enough = {{4096, 4096, UINT64_C(1) << 44, UINT64_C(1) << 44}};
    gpuipc_context *other = core_context_new();
    asker one;
    asker_reply granted;
    quota_pretend(&enough);
    asker_begin(&one, other, &given);
    check_ok(asker_send(&one, &given));
    while (gpuipc_server_poll(handle, 0) == GPUIPC_OK) {
    }
    check_ok(asker_receive(&one, &granted));
    cr_assert_eq(granted.answer, WIRE_GRANTED);
    const uint64_t before = handles_left();
    asker_end(&one);
    check_ok(gpuipc_server_poll(handle, SOON_MS));
    cr_assert_eq(handles_left(), before + 1);
    check_ok(gpuipc_buffer_release(granted.buffer));
    check_ok(gpuipc_context_destroy(other));
}

/* What the server's end of the connection leaves is enough. */
Test(server_grant, who_has_nothing_left_is_watched_all_the_same) {
    const quota_amount enough = {{4096, 4096, UINT64_C(1) << 44, UINT64_C(1) << 44}};
    gpuipc_context *other = core_context_new();
    quota_charge rest = {0};
    asker one;
    asker_reply granted;
    quota_pretend(&enough);
    quota *account = own_account();
    asker_begin(&one, other, &given);
    check_ok(asker_send(&one, &given));
    while (gpuipc_server_poll(handle, 0) == GPUIPC_OK) {
    }
    check_ok(asker_receive(&one, &granted));
    cr_assert_eq(granted.answer, WIRE_GRANTED);
    asker_end(&one);
    (void)take_handles(account, &rest);
    check_ok(gpuipc_server_poll(handle, SOON_MS));
    cr_assert_eq(handles_left(), 0, "the watch has what the connection left");
    quota_return(&rest);
    quota_unreference(account);
    check_ok(gpuipc_buffer_release(granted.buffer));
    check_ok(gpuipc_context_destroy(other));
}

/* As one that may not have more open: it may try again. */
Test(server_grant, a_process_without_a_handle_left_is_answered_busy) {
    const quota_amount enough = {{4096, 4096, UINT64_C(1) << 44, UINT64_C(1) << 44}};
    const gpuipc_share_config few = {.struct_size = sizeof(few), .max_processes = 1};
    quota_charge rest = {0};
    share_grant grant;
    wire_answer answer = WIRE_GRANTED;
    gpuipc_ticket limited;
    check_ok(gpuipc_buffer_share(handle, shared, &few, &limited));
    const ticket asked = asker_decode(&limited);
    check_ok(os_peer_self(&peer));
    quota_pretend(&enough);
    quota *account = own_account();
    holder *by = enter();
    (void)take_handles(account, &rest);
    check_ok(share_ask(&inside->shares, &asked, by, &answer, &grant));
    cr_assert_eq(answer, WIRE_BUSY);
    quota_return(&rest);
    check_ok(share_ask(&inside->shares, &asked, by, &answer, &grant));
    cr_assert_eq(answer, WIRE_GRANTED);
    settle(&grant);
    share_leave(&inside->shares, by);
    quota_unreference(account);
    os_peer_close(&peer);
}
