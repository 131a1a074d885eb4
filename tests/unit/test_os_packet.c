/* SPDX-License-Identifier: MIT */
/** @file Packets of bytes and handles, between two ends that keep the rules. */
#include <stdatomic.h>
#include <string.h>

#include "check.h"
#include "leak_gate.h"
#include "os_pair.h"

TestSuite(os_packet, .timeout = 60);

static unsigned char sent[OS_PACKET_BYTES_MAX];
static unsigned char got[OS_PACKET_BYTES_MAX + 1];

static void fill(size_t size) {
    for (size_t i = 0; i < size; i++) {
        sent[i] = (unsigned char)(i * 31 + size);
    }
}

Test(os_packet, arrives_whole_in_every_size_and_with_every_number_of_handles) {
    static const size_t sizes[] = {1, 2, 100, 65536, OS_PACKET_BYTES_MAX};
    static const size_t counts[] = {0, 1, 2, 3, 252, OS_PACKET_HANDLES_MAX};
    static os_handle handles[OS_PACKET_HANDLES_MAX];
    static os_handle came[OS_PACKET_HANDLES_MAX];
    leak_gate gate;
    leak_gate_begin(&gate);
    os_pair pair;
    os_pair_open(&pair);
    os_pair_make_handles(handles, OS_PACKET_HANDLES_MAX);
    for (size_t i = 0; i < 5; i++) {
        for (size_t j = 0; j < 6; j++) {
            size_t size = 0;
            size_t count = 0;
            fill(sizes[i]);
            memset(got, 0, sizeof(got));
            check_ok(os_connection_send(pair.client, sent, sizes[i], handles, counts[j],
                                        os_deadline_after(SOON_MS)));
            check_ok(os_connection_receive(pair.server, got, sizes[i], &size, came, &count,
                                           os_deadline_after(SOON_MS)));
            cr_assert_eq(size, sizes[i]);
            cr_assert_eq(count, counts[j]);
            cr_assert_eq(memcmp(got, sent, size), 0);
            cr_assert_eq(got[size], 0, "written beyond the end");
            for (size_t k = 0; k < count; k++) {
                uint64_t bytes = 0;
                check_ok(os_memory_inspect(came[k], &bytes));
                cr_assert_eq(bytes, (k + 1) * 4096, "handles in another order");
            }
            os_pair_close_handles(came, count);
        }
    }
    os_pair_close_handles(handles, OS_PACKET_HANDLES_MAX);
    os_pair_close(&pair);
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

Test(os_packet, borders_between_packets_are_kept) {
    os_pair pair;
    os_pair_open(&pair);
    for (size_t size = 1; size <= 20; size++) {
        fill(size);
        check_ok(os_connection_send(pair.client, sent, size, NULL, 0, os_deadline_after(0)));
    }
    for (size_t size = 1; size <= 20; size++) {
        size_t received = 0;
        size_t count = 99;
        os_handle handles[OS_PACKET_HANDLES_MAX];
        check_ok(os_connection_receive(pair.server, got, sizeof(got), &received, handles, &count,
                                       os_deadline_after(0)));
        cr_assert_eq(received, size);
        cr_assert_eq(count, 0);
    }
    os_pair_close(&pair);
}

Test(os_packet, what_is_no_packet_is_refused_before_it_is_sent) {
    static const struct {
        size_t size;
        size_t count;
    } rows[] = {{0, 0},
                {0, 1},
                {OS_PACKET_BYTES_MAX + 1, 0},
                {SIZE_MAX, 0},
                {1, OS_PACKET_HANDLES_MAX + 1},
                {1, SIZE_MAX}};
    os_pair pair;
    os_handle handle;
    /* With some compilers a thread's first use of its own memory, here the error record, opens a
     * handle, which could get the number of the one closed below. */
    (void)gpuipc_error_get();
    os_pair_open(&pair);
    check_ok(os_memory_create("one", 4096, &handle));
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                     os_connection_send(pair.client, sent, rows[i].size, &handle, rows[i].count,
                                        os_deadline_after(0)));
    }
    os_handle closed = handle;
    os_handle_close(&handle);
    const os_handle not_open[] = {OS_HANDLE_NONE, closed, {1 << 24}};
    for (size_t i = 0; i < 3; i++) {
        check_refused(
            GPUIPC_ERR_INVALID_ARGUMENT, "not open",
            os_connection_send(pair.client, sent, 1, &not_open[i], 1, os_deadline_after(0)));
    }
    /* None of it went out, and the connection is as it was. */
    size_t size = 0;
    size_t count = 0;
    os_handle came[OS_PACKET_HANDLES_MAX];
    check_ok(os_connection_send(pair.client, "ok", 2, NULL, 0, os_deadline_after(0)));
    check_ok(os_connection_receive(pair.server, got, sizeof(got), &size, came, &count,
                                   os_deadline_after(0)));
    cr_assert_eq(size, 2);
    os_pair_close(&pair);
}

Test(os_packet, a_peer_that_reads_nothing_makes_a_timeout_and_loses_nothing) {
    os_pair pair;
    os_pair_open(&pair);
    size_t sent_count = 0;
    gpuipc_status status = GPUIPC_OK;
    while (status == GPUIPC_OK) {
        fill(1000 + sent_count);
        status =
            os_connection_send(pair.client, sent, 1000 + sent_count, NULL, 0, os_deadline_after(5));
        sent_count += status == GPUIPC_OK;
    }
    cr_assert_eq(status, GPUIPC_ERR_TIMEOUT);
    cr_assert(sent_count > 0);
    for (size_t i = 0; i < sent_count; i++) {
        size_t size = 0;
        size_t count = 0;
        os_handle came[OS_PACKET_HANDLES_MAX];
        check_ok(os_connection_receive(pair.server, got, sizeof(got), &size, came, &count,
                                       os_deadline_after(0)));
        fill(1000 + i);
        cr_assert_eq(size, 1000 + i);
        cr_assert_eq(memcmp(got, sent, size), 0);
    }
    check_ok(os_connection_send(pair.client, sent, 1000, NULL, 0, os_deadline_after(0)));
    os_pair_close(&pair);
}

enum {
    STREAMED = 300
};

static void send_many(void *argument) {
    static unsigned char bytes[OS_PACKET_BYTES_MAX];
    for (size_t i = 0; i < STREAMED; i++) {
        check_ok(os_connection_send(argument, bytes, sizeof(bytes), NULL, 0,
                                    os_deadline_after(SOON_MS)));
    }
}

Test(os_packet, a_sender_that_is_faster_waits_for_its_receiver) {
    os_pair pair;
    os_thread *thread;
    os_pair_open(&pair);
    check_ok(os_thread_start(send_many, pair.client, &thread));
    for (size_t i = 0; i < STREAMED; i++) {
        size_t size = 0;
        size_t count = 0;
        os_handle came[OS_PACKET_HANDLES_MAX];
        check_ok(os_connection_receive(pair.server, got, sizeof(got), &size, came, &count,
                                       os_deadline_after(SOON_MS)));
        cr_assert_eq(size, OS_PACKET_BYTES_MAX);
    }
    os_thread_join(thread);
    os_pair_close(&pair);
}

Test(os_packet, handles_of_packets_that_nobody_receives_are_gone_with_the_connection) {
    leak_gate gate;
    leak_gate_begin(&gate);
    os_pair pair;
    os_handle handles[3];
    os_pair_open(&pair);
    os_pair_make_handles(handles, 3);
    check_ok(os_connection_send(pair.client, "x", 1, handles, 3, os_deadline_after(0)));
    os_pair_close_handles(handles, 3);
    os_pair_close(&pair);
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}
