/* SPDX-License-Identifier: MIT */
/** @file Who closes the handles of a peer on Windows: the ledger says which were taken. */
#include "check.h"
#include "hostile.h"
#include "win32_raw_peer.h"

#define PACKETS 5

/* Not bad at all: the receiver counts what it takes, and nothing else. */
Test(connection, the_ledger_says_what_was_taken, .timeout = HOSTILE_TEST_S) {
    hostile_ground on;
    hostile_peer peer;
    hostile_begin(&on);
    hostile_meet(&on, HOSTILE_CONNECTS, &peer);
    for (uint64_t i = 0; i < PACKETS; i++) {
        gpuipc_buffer *opened = NULL;
        size_t count = 1;
        peer.packet.header.number = i;
        hostile_send(&peer);
        cr_assert_eq(raw_peer_taken(peer.raw), i);
        check_ok(process_case_receive(peer.connection, &opened, &count, NULL, PATIENCE_MS));
        check_ok(gpuipc_buffer_release(opened));
        cr_assert_eq(raw_peer_taken(peer.raw), i + 1);
    }
    hostile_part(&peer);
    hostile_end_all(&on);
}

/* Nobody has received them: closing the receiver's end takes and closes them. */
Test(connection, handles_on_their_way_when_the_receiver_closes, .timeout = HOSTILE_TEST_S) {
    hostile_ground on;
    hostile_peer peer;
    hostile_begin(&on);
    hostile_meet(&on, HOSTILE_CONNECTS, &peer);
    for (uint64_t i = 0; i < PACKETS; i++) {
        peer.packet.header.number = i;
        hostile_send(&peer);
    }
    check_ok(gpuipc_connection_close(peer.connection));
    peer.connection = NULL;
    cr_assert_eq(raw_peer_taken(peer.raw), PACKETS);
    hostile_part(&peer);
    hostile_end_all(&on);
}
