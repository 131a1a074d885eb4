/* SPDX-License-Identifier: MIT */
/** @file Packets from peers that break the rules: raw sockets that send what ours would not. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "leak_gate.h"
#include "os_pair.h"
#include "posix.h"

TestSuite(posix_packet, .timeout = 60);

/** A pair whose client end is a bare socket, not ours. */
typedef struct raw_pair {
    leak_gate gate;
    os_pair pair;
    int raw;
} raw_pair;

static void raw_open(raw_pair *both) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    leak_gate_begin(&both->gate);
    os_pair_listen(&both->pair);
    int length = snprintf(address.sun_path, sizeof(address.sun_path), "%s/%s.sock", both->pair.path,
                          both->pair.name);
    cr_assert(length > 0 && (size_t)length < sizeof(address.sun_path));
    both->raw = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    cr_assert_eq(connect(both->raw, (struct sockaddr *)&address, sizeof(address)), 0);
    check_ok(
        os_listener_accept(both->pair.listener, os_deadline_after(SOON_MS), &both->pair.server));
}

static void raw_close(raw_pair *both) {
    if (both->raw >= 0) {
        close(both->raw);
    }
    os_pair_close(&both->pair);
    cr_assert_eq(leak_gate_await(&both->gate, SOON_MS), 0, "%s", both->gate.text);
}

/** Sends @p size bytes and, in each of @p parts control messages, @p count copies of stdin. */
static int raw_send(int raw, size_t size, size_t parts, size_t count) {
    static char bytes[2 * OS_PACKET_BYTES_MAX];
    static _Alignas(struct cmsghdr) unsigned char control[4096];
    struct iovec part = {.iov_base = bytes, .iov_len = size};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    memset(control, 0, sizeof(control));
    message.msg_controllen = parts * CMSG_SPACE(count * sizeof(int));
    message.msg_control = message.msg_controllen > 0 ? control : NULL;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    for (size_t i = 0; i < parts; i++) {
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(count * sizeof(int));
        memset(CMSG_DATA(header), 0, count * sizeof(int)); /* descriptor 0 */
        header = CMSG_NXTHDR(&message, header);
    }
    return sendmsg(raw, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? errno : 0;
}

static gpuipc_status receive(os_connection *connection, size_t capacity, size_t *out_count) {
    static char bytes[OS_PACKET_BYTES_MAX];
    static os_handle handles[OS_PACKET_HANDLES_MAX];
    size_t size = 0;
    size_t count = 0;
    gpuipc_status status = os_connection_receive(connection, bytes, capacity, &size, handles,
                                                 &count, os_deadline_after(0));
    os_pair_close_handles(handles, count);
    if (out_count != NULL) {
        *out_count = count;
    }
    return status;
}

Test(posix_packet, an_empty_packet_with_descriptors_leaves_none_of_them) {
    raw_pair both;
    raw_open(&both);
    cr_assert_eq(raw_send(both.raw, 0, 1, 3), 0);
    check_refused(GPUIPC_ERR_PROTOCOL, "empty", receive(both.pair.server, 64, NULL));
    cr_assert_eq(raw_send(both.raw, 0, 1, 3), 0);
    close(both.raw);
    both.raw = -1;
    check_refused(GPUIPC_ERR_PROTOCOL, "empty", receive(both.pair.server, 64, NULL));
    check_status(GPUIPC_ERR_PEER_CLOSED, receive(both.pair.server, 64, NULL));
    raw_close(&both);
}

Test(posix_packet, an_empty_packet_is_not_taken_for_the_end) {
    raw_pair both;
    raw_open(&both);
    cr_assert_eq(raw_send(both.raw, 0, 0, 0), 0);
    check_refused(GPUIPC_ERR_PROTOCOL, "empty", receive(both.pair.server, 64, NULL));
    cr_assert_eq(raw_send(both.raw, 5, 0, 0), 0);
    check_ok(receive(both.pair.server, 64, NULL));
    raw_close(&both);
}

Test(posix_packet, a_peer_that_sends_nothing_and_closes_is_the_end) {
    raw_pair both;
    raw_open(&both);
    close(both.raw);
    both.raw = -1;
    check_status(GPUIPC_ERR_PEER_CLOSED, receive(both.pair.server, 64, NULL));
    raw_close(&both);
}

Test(posix_packet, half_a_hang_up_is_the_end_as_well) {
    raw_pair both;
    raw_open(&both);
    cr_assert_eq(raw_send(both.raw, 5, 1, 2), 0);
    cr_assert_eq(shutdown(both.raw, SHUT_WR), 0);
    check_ok(receive(both.pair.server, 64, NULL));
    check_status(GPUIPC_ERR_PEER_CLOSED, receive(both.pair.server, 64, NULL));
    raw_close(&both);
}

static double thread_ms(void) {
    struct timespec used;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return (double)used.tv_sec * 1e3 + (double)used.tv_nsec / 1e6;
}

/* What it may still read does not come to be read: the sender waits, and takes no processor time for it. */
Test(posix_packet, half_a_hang_up_makes_no_sender_spin) {
    static const char bytes[1000];
    raw_pair both;
    raw_open(&both);
    cr_assert_eq(shutdown(both.raw, SHUT_WR), 0);
    gpuipc_status status = GPUIPC_OK;
    while (status == GPUIPC_OK) {
        status = os_connection_send(both.pair.server, bytes, sizeof(bytes), NULL, 0,
                                    os_deadline_after(0));
    }
    check_status(GPUIPC_ERR_TIMEOUT, status);
    const double before = thread_ms();
    check_status(GPUIPC_ERR_TIMEOUT, os_connection_send(both.pair.server, bytes, sizeof(bytes),
                                                        NULL, 0, os_deadline_after(500)));
    cr_assert_lt(thread_ms() - before, 20);
    raw_close(&both);
}

Test(posix_packet, longer_than_there_is_room_for_is_refused_with_its_descriptors) {
    static const struct {
        size_t sent;
        size_t room;
    } rows[] = {{65, 64}, {2, 1}, {100000, 64}, {OS_PACKET_BYTES_MAX + 1, OS_PACKET_BYTES_MAX}};
    raw_pair both;
    raw_open(&both);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        cr_assert_eq(raw_send(both.raw, rows[i].sent, 1, 5), 0);
        check_refused(GPUIPC_ERR_PROTOCOL, "longer", receive(both.pair.server, rows[i].room, NULL));
    }
    raw_close(&both);
}

Test(posix_packet, descriptors_in_several_control_messages_are_all_found) {
    raw_pair both;
    size_t count = 0;
    raw_open(&both);
    cr_assert_eq(raw_send(both.raw, 5, 2, 100), 0);
    check_ok(receive(both.pair.server, 64, &count));
    cr_assert_eq(count, 200);
    cr_assert_eq(raw_send(both.raw, 5, 11, 23), 0);
    check_ok(receive(both.pair.server, 64, &count));
    cr_assert_eq(count, OS_PACKET_HANDLES_MAX);
    raw_close(&both);
}

/* The control buffer has room for 253 because no peer can send more: were that to change, this
 * would be the first to say so. */
Test(posix_packet, the_kernel_takes_no_more_descriptors_than_there_is_room_for) {
    raw_pair both;
    raw_open(&both);
    cr_assert_eq(raw_send(both.raw, 5, 1, OS_PACKET_HANDLES_MAX + 1), EINVAL);
    cr_assert_eq(raw_send(both.raw, 5, 2, 127), EINVAL);
    cr_assert_eq(raw_send(both.raw, 5, 2, 200), EINVAL);
    check_status(GPUIPC_ERR_TIMEOUT, receive(both.pair.server, 64, NULL));
    raw_close(&both);
}

Test(posix_packet, every_descriptor_that_comes_is_closed_on_exec) {
    raw_pair both;
    static os_handle handles[OS_PACKET_HANDLES_MAX];
    char bytes[16];
    size_t size;
    size_t count = 0;
    raw_open(&both);
    cr_assert_eq(raw_send(both.raw, 5, 1, 4), 0);
    check_ok(os_connection_receive(both.pair.server, bytes, sizeof(bytes), &size, handles, &count,
                                   os_deadline_after(0)));
    cr_assert_eq(count, 4);
    for (size_t i = 0; i < count; i++) {
        cr_assert_eq(fcntl((int)handles[i].value, F_GETFD), FD_CLOEXEC);
    }
    os_pair_close_handles(handles, count);
    raw_close(&both);
}

Test(posix_packet, more_than_the_system_lets_a_socket_hold_names_what_to_raise) {
    static char bytes[OS_PACKET_BYTES_MAX];
    os_pair pair;
    os_pair_open(&pair);
    int small = 8192;
    cr_assert_eq(setsockopt(pair.client->fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)), 0);
    check_refused(
        GPUIPC_ERR_OS, "wmem_max",
        os_connection_send(pair.client, bytes, sizeof(bytes), NULL, 0, os_deadline_after(0)));
    check_ok(os_connection_send(pair.client, bytes, 1000, NULL, 0, os_deadline_after(0)));
    os_pair_close(&pair);
}

/** The library's own descriptors, all of them, are closed on exec. */
Test(posix_packet, the_librarys_own_descriptors_are_closed_on_exec) {
    os_pair pair;
    os_peer peer;
    os_handle memory;
    os_handle copy;
    os_pair_open(&pair);
    check_ok(os_connection_get_peer(pair.server, &peer));
    check_ok(os_memory_create("exec", 4096, &memory));
    check_ok(os_handle_duplicate(memory, &copy));
    const intptr_t numbers[] = {pair.client->fd, pair.server->fd, peer.process.value, memory.value,
                                copy.value};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        cr_assert_eq(fcntl((int)numbers[i], F_GETFD), FD_CLOEXEC, "%zu", i);
    }
    os_handle_close(&copy);
    os_handle_close(&memory);
    os_peer_close(&peer);
    os_pair_close(&pair);
}

/* Linux 6.5, include/uapi/asm-generic/socket.h; older C library headers lack it. */
#ifndef SO_PASSPIDFD
#define SO_PASSPIDFD 76
#endif

/* Our sockets ask for none of these, and must not lose a descriptor to them if they come. */
Test(posix_packet, credentials_push_no_descriptor_out) {
    raw_pair both;
    int yes = 1;
    size_t count = 0;
    raw_open(&both);
    cr_assert_eq(setsockopt(both.pair.server->fd, SOL_SOCKET, SO_PASSCRED, &yes, sizeof(yes)), 0);
    cr_assert_eq(raw_send(both.raw, 5, 1, OS_PACKET_HANDLES_MAX), 0);
    check_ok(receive(both.pair.server, 64, &count));
    cr_assert_eq(count, OS_PACKET_HANDLES_MAX);
    raw_close(&both);
}

Test(posix_packet, a_descriptor_of_another_kind_is_surplus_and_closed) {
    raw_pair both;
    int yes = 1;
    raw_open(&both);
    if (setsockopt(both.pair.server->fd, SOL_SOCKET, SO_PASSPIDFD, &yes, sizeof(yes)) == 0) {
        cr_assert_eq(raw_send(both.raw, 5, 1, 2), 0);
        check_refused(GPUIPC_ERR_HANDLE_COUNT, "SCM_RIGHTS", receive(both.pair.server, 64, NULL));
        raw_close(&both);
    } else {
        raw_close(&both);
        cr_skip_test("this kernel sends no pidfds along (Linux 6.5)");
    }
}

/* ---- little room for descriptors ---------------------------------------------------------------- */

/* So many more may be opened. @return the limit before */
static struct rlimit leave_room_for(unsigned more) {
    struct rlimit before;
    rlim_t number = 0;
    for (unsigned found = 0; found < more; number++) {
        found += fcntl((int)number, F_GETFD) < 0;
    }
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
    const struct rlimit limit = {number, before.rlim_max};
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    return before;
}

static bool has_room(unsigned count) {
    posix_register_lock();
    const bool has = posix_register_has_room(count);
    posix_register_unlock();
    return has;
}

Test(posix_packet, how_much_room_there_is_is_looked_at_and_counted) {
    os_handle handles[2];
    cr_assert_not(has_room(0)); /* nobody has looked */
    const struct rlimit before = leave_room_for(300);
    posix_register_look();
    cr_assert(has_room(300));
    cr_assert_not(has_room(301));
    os_pair_make_handles(handles, 2);
    cr_assert(has_room(298));
    cr_assert_not(has_room(299));
    os_pair_close_handles(handles, 2);
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
}

/* Packets are looked at first then, and come whole, each once and in their order. */
Test(posix_packet, with_little_room_packets_come_as_ever) {
    enum {
        PACKETS = 8
    };
    os_pair pair;
    os_pair_open(&pair);
    os_handle sent[PACKETS];
    os_pair_make_handles(sent, PACKETS);
    for (uint8_t i = 0; i < PACKETS; i++) {
        check_ok(os_connection_send(pair.client, &i, 1, sent, i, os_deadline_after(SOON_MS)));
    }
    const struct rlimit before = leave_room_for(PACKETS);
    for (uint8_t i = 0; i < PACKETS; i++) {
        os_handle came[OS_PACKET_HANDLES_MAX];
        uint8_t bytes[2];
        size_t size;
        size_t count;
        check_ok(os_connection_receive(pair.server, bytes, sizeof(bytes), &size, came, &count,
                                       os_deadline_after(0)));
        cr_assert(size == 1 && bytes[0] == i && count == i);
        for (size_t k = 0; k < count; k++) {
            uint64_t bytes_of;
            check_ok(os_memory_inspect(came[k], &bytes_of));
            cr_assert_eq(bytes_of, (k + 1) * 4096);
        }
        os_pair_close_handles(came, count);
    }
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
    os_pair_close_handles(sent, PACKETS);
    os_pair_close(&pair);
}
