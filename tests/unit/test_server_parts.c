/* SPDX-License-Identifier: MIT */
/** @file What a server is made of, each by itself: expiries, places, holders, processes. */
#include "core_fixture.h"
#include "message/connection.h"
#include "ticket/share.h"

TestSuite(server_parts, .timeout = 60);

Test(server_parts, finds_what_expires_next_among_many) {
    enum {
        ENTRIES = 1000
    };
    static expiry entries[ENTRIES];
    expiry_heap heap = {0};
    uint64_t last = 0;
    size_t count = 0;
    for (uint32_t i = 0; i < ENTRIES; i++) {
        entries[i].at_ns = 1 + (i * UINT64_C(7919)) % 613; /* some of them at once */
        check_ok(expiry_add(&heap, &entries[i]));
    }
    for (uint32_t i = 0; i < ENTRIES; i += 3) {
        expiry_remove(&heap, &entries[i]);
        expiry_remove(&heap, &entries[i]); /* which is not there any more */
    }
    for (expiry *next; (next = expiry_next(&heap)) != NULL; count++) {
        cr_assert_leq(last, next->at_ns);
        cr_assert_neq((next - entries) % 3, 0);
        last = next->at_ns;
        expiry_remove(&heap, next);
    }
    cr_assert_eq(count, ENTRIES - 334);
    expiry_heap_destroy(&heap);
}

Test(server_parts, a_client_has_no_more_open_than_it_may) {
    enum {
        MOST = 1000
    };
    const os_peer peer = {.process_id = 1, .process = OS_HANDLE_NONE};
    /* half of it, 512 bytes each: holder.c */
    const quota_amount totals = {{[QUOTA_MEMORY] = 2 * 512 * MOST}};
    places room = {.most = 1, .most_of_user = 1};
    linked_list left = {0};
    hold_list of_share = {.count = 0};
    holder *whom = NULL;
    holder *second = NULL;
    hold *made = NULL;
    quota_pretend(&totals);
    check_ok(holder_new(&room, &peer, &left, &whom));
    cr_assert_not_null(whom);
    check_ok(holder_new(&room, &peer, &left, &second));
    cr_assert_null(second);
    for (uint32_t i = 0; i < MOST; i++) {
        cr_assert(holder_take_room(whom));
        made = hold_new();
        cr_assert_not_null(made);
        hold_begin(made, &of_share, whom);
    }
    cr_assert_not(holder_take_room(whom));
    hold_settle(made, &(point){.page = NULL});
    cr_assert(holder_take_room(whom));
    holder_return_room(whom);
    hold_list_clear(&of_share, false);
    holder_leave(whom, &left, NULL);
    cr_assert_eq(room.count, 0);
    places_destroy(&room);
    quota_pretend(NULL);
}

Test(server_parts, knows_a_process_by_its_number_and_its_handle) {
    known_processes all = {.in_turn = {0}};
    known_process *found[5];
    core_pair pair;
    connection *to;
    core_start();
    gpuipc_context *other = core_context_new();
    core_pair_open(&pair, core_context, other);
    check_ok(connection_acquire(pair.client, &to));
    os_peer peer = to->peer; /* this process, whose handle stays the connection's */
    check_ok(known_process_get(&all, &peer, NULL, &found[0]));
    check_ok(known_process_get(&all, &peer, NULL, &found[1]));
    cr_assert_eq(found[0], found[1]);
    peer.process_id++;
    check_ok(known_process_get(&all, &peer, NULL, &found[2]));
    cr_assert_neq(found[0], found[2]);
    peer.process_id++;
    peer.process = OS_HANDLE_NONE;
    check_ok(known_process_get(&all, &peer, NULL, &found[3]));
    check_ok(known_process_get(&all, &peer, NULL, &found[4]));
    cr_assert(found[4] != found[3], "without a handle it may be any");
    for (size_t i = 0; i < 5; i++) {
        known_process_unreference(found[i], false);
    }
    known_process_unreference(NULL, false);
    cr_assert(all.by_number.count == 0 && all.in_turn.count == 0);
    known_processes_destroy(&all);
    connection_unreference(to);
    core_pair_close(&pair);
    check_ok(gpuipc_context_destroy(other));
    core_finish();
}
