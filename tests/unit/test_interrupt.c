/* SPDX-License-Identifier: MIT */
/** @file Waits that gpuipc_context_wake() ends. Signals: posix_interrupt.c. */
#include <string.h>

#include "interrupt_calls.h"
#include "message/wire.h"

TestSuite(interrupt, .init = interrupt_begin, .fini = interrupt_finish, .timeout = 60);

Test(interrupt, a_wake_ends_each_waiting_call) {
    for (size_t i = 0; i < INTERRUPT_CALLS; i++) {
        core_waiter waiter;
        core_waiter_start(&waiter, interrupt_calls[i].make, NULL);
        check_ok(gpuipc_context_wake(core_context));
        const gpuipc_status status = core_waiter_end(&waiter);
        cr_assert_eq(status, GPUIPC_ERR_INTERRUPTED, "%s: %s", interrupt_calls[i].name,
                     gpuipc_status_name(status));
    }
}

/* Once: what waits afterwards waits. */
Test(interrupt, a_wake_before_the_wait_ends_the_next_one) {
    gpuipc_incoming in = {.struct_size = sizeof(in)};
    check_ok(gpuipc_context_wake(core_context));
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_connection_receive(interrupt_silent, &in, 0));
    for (size_t i = 0; i < INTERRUPT_CALLS; i++) {
        check_ok(gpuipc_context_wake(core_context));
        check_ok(gpuipc_context_wake(core_context));
        cr_assert_eq(interrupt_calls[i].make(NULL), GPUIPC_ERR_INTERRUPTED, "%s",
                     interrupt_calls[i].name);
        check_status(GPUIPC_ERR_TIMEOUT, gpuipc_connection_receive(interrupt_silent, &in, 1));
    }
}

Test(interrupt, a_wake_ends_all_that_wait_at_a_time) {
    core_waiter waiters[5];
    gpuipc_incoming in = {.struct_size = sizeof(in)};
    for (int i = 0; i < 5; i++) {
        core_waiter_start(&waiters[i], interrupt_calls[i < 3 ? 0 : 4].make, NULL);
    }
    check_ok(gpuipc_context_wake(core_context));
    for (int i = 0; i < 5; i++) {
        check_status(GPUIPC_ERR_INTERRUPTED, core_waiter_end(&waiters[i]));
    }
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_connection_receive(interrupt_silent, &in, 1));
}

/* What has come is taken first, and what has come in part is kept. */
Test(interrupt, nothing_is_lost) {
    uint8_t packet[WIRE_HEADER_BYTES + 64] = {0};
    wire_header header = {.kind = WIRE_MESSAGE, .total_bytes = 10, .bytes = 6};
    char bytes[10];
    gpuipc_incoming in = {
        .struct_size = sizeof(in), .bytes = bytes, .bytes_capacity = sizeof(bytes)};
    wire_encode_header(&header, packet);
    memcpy(packet + WIRE_HEADER_BYTES, "first ", 6);
    check_ok(os_connection_send(interrupt_peer, packet, wire_packet_bytes(&header), NULL, 0,
                                os_deadline_after(SOON_MS)));
    check_ok(gpuipc_context_wake(core_context));
    check_status(GPUIPC_ERR_INTERRUPTED, gpuipc_connection_receive(interrupt_silent, &in, -1));
    header.bytes = 4;
    wire_encode_header(&header, packet);
    memcpy(packet + WIRE_HEADER_BYTES, "rest", 4);
    check_ok(os_connection_send(interrupt_peer, packet, wire_packet_bytes(&header), NULL, 0,
                                os_deadline_after(SOON_MS)));
    check_ok(gpuipc_context_wake(core_context));
    check_ok(gpuipc_connection_receive(interrupt_silent, &in, SOON_MS));
    cr_assert_eq(memcmp(bytes, "first rest", sizeof(bytes)), 0);
    check_status(GPUIPC_ERR_INTERRUPTED, gpuipc_connection_receive(interrupt_silent, &in, -1));
}

/* One packet of several has left: the others follow, or the connection would be of no use. */
Test(interrupt, a_message_that_has_left_in_part_is_sent_to_its_end) {
    static char bytes[GPUIPC_MESSAGE_BYTES_MAX];
    static uint8_t room[OS_PACKET_BYTES_MAX];
    os_handle handles[OS_PACKET_HANDLES_MAX];
    const gpuipc_outgoing out = {
        .struct_size = sizeof(out), .bytes = bytes, .bytes_size = sizeof(bytes)};
    size_t size = 0;
    size_t count = 0;
    check_ok(gpuipc_context_wake(
        core_context)); /* before it is full, so that the wait for the rest finds it */
    const uint64_t begin_ns = os_clock_ns();
    check_status(GPUIPC_ERR_CONNECTION_BROKEN, gpuipc_connection_send(interrupt_silent, &out, 50));
    cr_assert_geq(os_clock_ns() - begin_ns, UINT64_C(50000000), "the wake did not end it");
    check_ok(os_connection_receive(interrupt_peer, room, sizeof(room), &size, handles, &count,
                                   os_deadline_after(SOON_MS)));
    cr_assert_gt(size, 0, "a part had left");
}

Test(interrupt, a_context_that_does_not_want_it_is_not_woken) {
    gpuipc_context *plain = core_context_new();
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_context_wake(plain));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_context_wake(NULL));
    check_ok(gpuipc_context_destroy(plain));
    check_status(GPUIPC_ERR_RELEASED, gpuipc_context_wake(plain));
}
