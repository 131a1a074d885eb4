/* SPDX-License-Identifier: MIT */
/** @file What a peer can do with a socket of Linux, and with the limits of its receiver. */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"
#include "hostile.h"
#include "os.h"
#include "posix_raw_socket.h"
#include "posix_system.h"
#include "raw_handle.h"

#define COUNT(table) (sizeof(table) / sizeof(*(table)))

/* Sent through itself: the descriptor in flight is one more reference to the socket that it waits in (unix(7)). */
static void own_socket_as_memory(hostile_peer *self) {
    raw_packet_replace_handle(&self->packet, raw_handle_copy(raw_socket(self->raw)));
    hostile_send(self);
}

static void own_socket_as_points(hostile_peer *self) {
    uint8_t bytes[WIRE_HEADER_BYTES];
    const wire_header header = {.kind = WIRE_POINTS};
    wire_encode_header(&header, bytes);
    raw_packet_replace_handle(&self->packet, raw_handle_copy(raw_socket(self->raw)));
    hostile_send_bytes(self, bytes, sizeof(bytes), 1);
}

/* 253 times, and nobody receives them: the kernel's collector of cycles has them (unix(7)). */
static void own_socket_and_gone(hostile_peer *self) {
    raw_packet_replace_handle(&self->packet, raw_handle_copy(raw_socket(self->raw)));
    raw_packet_repeat_handle(&self->packet, RAW_PACKET_HANDLES_MAX);
    hostile_send(self);
    raw_close(self->raw);
    self->raw = NULL;
}

/* What the library itself sends of a buffer of a pool, over another connection. A page of points comes before it. */
static intptr_t steal_pool(const hostile_peer *self) {
    static uint8_t bytes[OS_PACKET_BYTES_MAX];
    const gpuipc_buffer_config config = {
        .struct_size = sizeof(config), .transport = GPUIPC_TRANSPORT_POOL, .bytes = MEBIBYTES_2};
    gpuipc_buffer *made = NULL;
    raw_peer *other = raw_connect(self->at->directory, self->at->name);
    gpuipc_connection *to = process_case_accept(self->at);
    wire_packet packet = {.header = {.kind = WIRE_POINTS}};
    intptr_t handle = RAW_HANDLE_NONE;
    check_ok(gpuipc_buffer_create(self->at->context, &config, &made));
    check_ok(process_case_send(to, &made, 1, 0));
    while (wire_is_page(packet.header.kind)) {
        size_t count = 1;
        raw_handle_close(handle);
        const long size = raw_receive(other, bytes, sizeof(bytes), &handle, &count, PATIENCE_MS);
        cr_assert_gt(size, 0);
        check_ok(wire_decode_packet(bytes, (size_t)size, count, &packet));
    }
    raw_close(other); /* first, so that the library knows that nothing of it was opened */
    check_ok(gpuipc_connection_close(to));
    check_ok(gpuipc_buffer_release(made));
    return handle;
}

static void pool_as_memory(hostile_peer *self) {
    raw_packet_replace_handle(&self->packet, steal_pool(self));
    hostile_send(self);
}

static void closes_its_sending_half(hostile_peer *self) {
    cr_assert_eq(shutdown(raw_socket(self->raw), SHUT_WR), 0);
}

static void closes_its_sending_half_in_a_message(hostile_peer *self) {
    self->packet.header.total_bytes *= 2;
    hostile_send(self);
    closes_its_sending_half(self);
}

/* It may go on to send, and the library need not notice. */
static void closes_its_receiving_half(hostile_peer *self) {
    cr_assert_eq(shutdown(raw_socket(self->raw), SHUT_RD), 0);
}

static void closes_both_halves_twice(hostile_peer *self) {
    cr_assert_eq(shutdown(raw_socket(self->raw), SHUT_RDWR), 0);
    (void)shutdown(raw_socket(self->raw), SHUT_RDWR);
}

/* With something unread in it: the other end's next call fails with ECONNRESET. */
static void resets(hostile_peer *self) {
    check_ok(process_case_send(self->connection, &self->buffer, 1, 5));
    raw_close(self->raw);
    self->raw = NULL;
}

/* More handles than this process has room for: the list of them is cut (recvmsg(2), MSG_CTRUNC). */
static void more_than_this_process_may_have(hostile_peer *self) {
    enum {
        HANDLES = 100,
        ROOM = 20
    };
    raw_packet_repeat_handle(&self->packet, HANDLES);
    hostile_send(self);
    self->limit = system_limit_descriptors(ROOM);
    cr_assert_neq(self->limit, 0);
}

static void restore_limit(hostile_peer *self) {
    system_set_descriptor_limit(self->limit);
}

/* The memory is on its way when its sender truncates it: it was never sealed. */
static void truncates_host_memory_on_its_way(hostile_peer *self) {
    int fd = memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    cr_assert(fd >= 0 && ftruncate(fd, (off_t)MEBIBYTES_2) == 0);
    self->packet.buffer.memory = SEGMENT_MEMORY_HOST;
    raw_packet_replace_handle(&self->packet, fd);
    hostile_send(self);
    cr_assert_eq(ftruncate(fd, 0), 0);
}

/* The same with seals: its sender cannot, and copies out of it are safe. */
static void cannot_truncate_sealed_host_memory(hostile_peer *self) {
    uint8_t bytes[4096];
    gpuipc_buffer *opened = NULL;
    size_t count = 1;
    int fd = memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    cr_assert(fd >= 0 && ftruncate(fd, (off_t)MEBIBYTES_2) == 0);
    cr_assert_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
    self->packet.buffer.memory = SEGMENT_MEMORY_HOST;
    raw_packet_replace_handle(&self->packet, fd);
    hostile_send(self);
    check_ok(process_case_receive(self->connection, &opened, &count, NULL, PATIENCE_MS));
    cr_assert_neq(ftruncate(fd, 0), 0);
    check_ok(gpuipc_buffer_read(opened, MEBIBYTES_2 - sizeof(bytes), bytes, sizeof(bytes)));
    check_ok(gpuipc_buffer_release(opened));
}

/* clang-format off */
#define DOES(called, breaks, answer, what, how) {.name = (called), .rule = (breaks), .expected = GPUIPC_ERR_##answer, .end = (what), .act = (how)}
/* clang-format on */
#define NO_MEMORY "What ends a connection: handles that are no GPU memory cost the message only"

static const hostile_case system_cases[] = {
    DOES("its own end of the connection as memory", NO_MEMORY, NOT_GPU_MEMORY, HOSTILE_DROPPED,
         own_socket_as_memory),
    DOES("a pool's handle as memory", NO_MEMORY, NOT_GPU_MEMORY, HOSTILE_DROPPED, pool_as_memory),
    DOES("its own end of the connection as points", "Points: shared memory", PROTOCOL, HOSTILE_ENDS,
         own_socket_as_points),
    DOES("its own end 253 times, and gone", "Packet: as many handles as the segments name",
         HANDLE_COUNT, HOSTILE_ENDS, own_socket_and_gone),
    DOES("closes its sending half", "none: the end of the socket", PEER_CLOSED, HOSTILE_GONE,
         closes_its_sending_half),
    DOES("closes its sending half in a message", "Ground rules: until the totals are reached",
         PEER_CLOSED, HOSTILE_GONE, closes_its_sending_half_in_a_message),
    DOES("closes its receiving half", "none: it may still send", TIMEOUT, HOSTILE_WAITS,
         closes_its_receiving_half),
    DOES("closes both halves, twice", "none: the end of the socket", PEER_CLOSED, HOSTILE_GONE,
         closes_both_halves_twice),
    DOES("resets: closes with something unread", "none: the end of the socket", PEER_CLOSED,
         HOSTILE_GONE, resets),
    {.name = "100 handles where this process has room for 20",
     .rule = "none: the process's own limit, and the status says so",
     .expected = GPUIPC_ERR_TOO_MANY_HANDLES,
     .act = more_than_this_process_may_have,
     .undo = restore_limit},
    DOES("host memory that is truncated on its way", NO_MEMORY, NOT_GPU_MEMORY, HOSTILE_DROPPED,
         truncates_host_memory_on_its_way),
    DOES("host memory that would be truncated under a copy", "none: it is sealed", TIMEOUT,
         HOSTILE_WAITS, cannot_truncate_sealed_host_memory)};

const hostile_cases hostile_system = {system_cases, COUNT(system_cases)};
