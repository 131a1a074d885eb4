/* SPDX-License-Identifier: MIT */
/** @file What a client of a server can do with a socket of Linux. */
#include <criterion/criterion.h>
#include <sys/socket.h>

#include "posix_raw_socket.h"
#include "raw_handle.h"
#include "server_ground.h"

#define COUNT(table) (sizeof(table) / sizeof(*(table)))

/* A first answer has come, and is not read. */
static void leave_unread(server_peer *self) {
    const uint64_t begun_ns = os_clock_ns();
    char byte;
    server_ask(self, WIRE_OPEN, &self->on->revoked);
    while (recv(raw_socket(self->raw), &byte, 1, MSG_PEEK | MSG_DONTWAIT) <= 0) {
        cr_assert_lt(os_clock_ns() - begun_ns, PATIENCE_MS * UINT64_C(1000000));
        os_sleep_ms(1);
    }
}

/* Replies that nobody reads hold descriptors in flight. */
static void asks_again_before_it_has_read(server_peer *self) {
    leave_unread(self);
    server_ask(self, WIRE_OPEN, &self->on->revoked);
    cr_assert(raw_sees_end(self->raw, PATIENCE_MS)); /* before anything is read */
}

static void closes_its_sending_half(server_peer *self) {
    cr_assert_eq(shutdown(raw_socket(self->raw), SHUT_WR), 0);
}

/* It asks, and no reply can come. */
static void closes_its_receiving_half(server_peer *self) {
    cr_assert_eq(shutdown(raw_socket(self->raw), SHUT_RD), 0);
    server_ask(self, WIRE_OPEN, &self->on->ticket);
}

static void resets(server_peer *self) {
    leave_unread(self);
    raw_close(self->raw);
    self->raw = NULL;
}

static void own_socket(server_peer *self) {
    uint8_t packet[WIRE_HEADER_BYTES];
    const wire_header header = {.kind = WIRE_REQUEST};
    const intptr_t copy = raw_handle_copy(raw_socket(self->raw));
    wire_encode_header(&header, packet);
    cr_assert(raw_send(self->raw, packet, sizeof(packet), &copy, 1));
    raw_handle_close(copy);
}

static const server_case cases[] = {
    SERVER_HANGS_UP_CASE("asks again before it has read",
                         "Requests: a client asks for one thing at a time",
                         asks_again_before_it_has_read, TOO_MANY_IN_FLIGHT, 0),
    SERVER_HANGS_UP_CASE("closes its sending half", "none: the end of the socket",
                         closes_its_sending_half, PEER_CLOSED, 0),
    SERVER_HANGS_UP_CASE("closes its receiving half, and asks", "none: the end of the socket",
                         closes_its_receiving_half, PEER_CLOSED, 0),
    {.name = "resets: closes with a reply unread",
     .rule = "none: the end of the socket",
     .act = resets,
     .end = SERVER_WAITS},
    SERVER_HANGS_UP_CASE("its own end of the connection",
                         "Packet: as many handles as segments name", own_socket, HANDLE_COUNT, 0)};

Test(server, clients_with_a_socket_of_linux, .timeout = HOSTILE_TEST_S) {
    server_run(cases, COUNT(cases));
}
