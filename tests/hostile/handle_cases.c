/* SPDX-License-Identifier: MIT */
/** @file Handles that are not what their records say, and memory that is another's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "hostile.h"
#include "os.h"
#include "raw_handle.h"
#include "sync/point.h"

#define COUNT(table) (sizeof(table) / sizeof(*(table)))

static void replace(hostile_peer *self, intptr_t by) {
    cr_assert_neq(by, RAW_HANDLE_NONE);
    raw_packet_replace_handle(&self->packet, by);
}

/* ---- every kind of handle that this machine has ---------------------------------------------- */

static void send_kind(hostile_peer *self) {
    replace(self, raw_handle_open(self->of->kind));
    hostile_send(self);
}

/* The same as memory of the host's; what is such memory has another size than is said. */
static void send_kind_as_host_memory(hostile_peer *self) {
    self->packet.buffer.memory = SEGMENT_MEMORY_HOST;
    self->packet.segment.bytes += raw_handle_is_memory(self->of->kind) ? MEBIBYTES_2 : 0;
    send_kind(self);
}

/* A packet with nothing but one handle. */
static void send_page(hostile_peer *self, wire_kind kind) {
    uint8_t bytes[WIRE_HEADER_BYTES];
    const wire_header header = {.kind = kind};
    wire_encode_header(&header, bytes);
    hostile_send_bytes(self, bytes, sizeof(bytes), 1);
}

static void send_kind_as_points(hostile_peer *self) {
    replace(self, raw_handle_open(self->of->kind));
    send_page(self, WIRE_POINTS);
}

static void send_kind_as_ring(hostile_peer *self) {
    replace(self, raw_handle_open(self->of->kind));
    send_page(self, WIRE_RING);
}

/* How a kind can be sent, and what the library says. */
static const hostile_case ways[] = {
    {.rule = "What ends a connection: handles that are no GPU memory cost the message only",
     .expected = GPUIPC_ERR_NOT_GPU_MEMORY,
     .end = HOSTILE_DROPPED,
     .act = send_kind},
    {.rule = "What ends a connection: handles that are no memory cost the message only",
     .expected = GPUIPC_ERR_NOT_GPU_MEMORY,
     .end = HOSTILE_DROPPED,
     .act = send_kind_as_host_memory},
    {.rule = "Points: shared memory of 106,496 bytes whose size cannot change",
     .expected = GPUIPC_ERR_PROTOCOL,
     .act = send_kind_as_points},
    {.rule = "Contents: the page of a ring is like that of points",
     .expected = GPUIPC_ERR_PROTOCOL,
     .act = send_kind_as_ring}};

hostile_cases hostile_make_kinds(void) {
    hostile_case *made = calloc((size_t)raw_handle_kinds * COUNT(ways), sizeof(*made));
    size_t count = 0;
    cr_assert_neq(made, NULL);
    for (int kind = 0; kind < raw_handle_kinds; kind++) {
        const intptr_t handle = raw_handle_open(kind);
        for (size_t way = 0; way < COUNT(ways) && handle != RAW_HANDLE_NONE; way++) {
            made[count] = ways[way];
            made[count].name = raw_handle_kind_name(kind);
            made[count].kind = kind;
            if (raw_handle_is_memory(kind) && ways[way].act == send_kind_as_host_memory) {
                made[count].expected = GPUIPC_ERR_SIZE_MISMATCH;
            }
            count++;
        }
        if (handle == RAW_HANDLE_NONE) {
            (void)fprintf(stderr, "left out, since this machine has none: %s\n",
                          raw_handle_kind_name(kind));
        }
        raw_handle_close(handle);
    }
    return (hostile_cases){made, count};
}

/* ---- memory of another kind ------------------------------------------------------------------ */

static void memory_as_host_memory(hostile_peer *self) {
    self->packet.buffer.memory = SEGMENT_MEMORY_HOST;
    hostile_send(self);
}

static void memory_as_pool(hostile_peer *self) {
    self->packet.buffer.memory = SEGMENT_MEMORY_POOL;
    self->packet.segment.naming = SEGMENT_NAMED_BY_BOTH;
    hostile_send(self);
}

static void pool_whose_handle_never_came(hostile_peer *self) {
    self->packet.buffer.memory = SEGMENT_MEMORY_POOL;
    self->packet.segment.naming = SEGMENT_NAMED_BY_NAME;
    self->packet.handle_count = 0;
    hostile_send(self);
}

static void name_of_no_memory(hostile_peer *self) {
    self->packet.buffer.memory = SEGMENT_MEMORY_LEGACY;
    self->packet.segment.naming = SEGMENT_NAMED_BY_NAME;
    memset(self->packet.segment.name, 0xA5, sizeof(self->packet.segment.name));
    self->packet.handle_count = 0;
    hostile_send(self);
}

static void device_that_nobody_has(hostile_peer *self) {
    memset(self->packet.buffer.device_uuid, 0x5A, sizeof(self->packet.buffer.device_uuid));
    hostile_send(self);
}

/* ---- one of two ------------------------------------------------------------------------------ */

/* A message of two buffers: the first packet is good. */
static void send_first_of_two(hostile_peer *self) {
    self->packet.header.total_bytes *= 2;
    self->packet.header.total_buffers = 2;
    self->packet.header.total_segments = 2;
    hostile_send(self);
    self->packet.buffer.buffer_id++; /* another one, so that its handle is looked at */
}

static void bad_memory_beside_good(hostile_peer *self) {
    send_first_of_two(self);
    replace(self, raw_handle_open(RAW_HANDLE_MEMORY));
    hostile_send(self);
}

static void bad_size_beside_good(hostile_peer *self) {
    send_first_of_two(self);
    self->packet.segment.bytes *= 2;
    hostile_send(self);
}

/* The same buffer, which is open already, with another segment. */
static void same_name_other_size(hostile_peer *self) {
    send_first_of_two(self);
    self->packet.buffer.buffer_id--;
    self->packet.segment.bytes *= 2;
    hostile_send(self);
}

/* Named as a buffer of the library's own context, which this peer was never given. */
static void name_of_the_librarys_own(hostile_peer *self) {
    gpuipc_context_info info = {.struct_size = sizeof(info)};
    check_ok(gpuipc_context_get_info(self->at->context, &info));
    memcpy(self->packet.buffer.exporter_id, info.instance_id, sizeof(info.instance_id));
    self->packet.buffer.memory = SEGMENT_MEMORY_LEGACY;
    self->packet.segment.naming = SEGMENT_NAMED_BY_NAME;
    self->packet.handle_count = 0;
    hostile_send(self);
}

#define COSTS(called, breaks, answer, how)                                                         \
    {                                                                                              \
        .name = (called), .rule = (breaks), .expected = GPUIPC_ERR_##answer,                       \
        .end = HOSTILE_DROPPED, .act = (how)                                                       \
    }
#define NO_MEMORY "What ends a connection: handles that are no GPU memory cost the message only"

static const hostile_case handles[] = {
    /* The emulated driver's memory is a file of another size; a GPU's is none. */
    {.name = "a GPU's memory as the host's",
     .rule = NO_MEMORY,
     .expected = GPUIPC_ERR_SIZE_MISMATCH,
     .expected_on_gpu = GPUIPC_ERR_NOT_GPU_MEMORY,
     .end = HOSTILE_DROPPED,
     .act = memory_as_host_memory},
    COSTS("memory as a pool's handle", NO_MEMORY, NOT_GPU_MEMORY, memory_as_pool),
    COSTS("a pool whose handle never came", NO_MEMORY, NOT_GPU_MEMORY,
          pool_whose_handle_never_came),
    COSTS("64 bytes that name no memory", NO_MEMORY, NOT_GPU_MEMORY, name_of_no_memory),
    COSTS("the library's own exporter id", NO_MEMORY, NOT_GPU_MEMORY, name_of_the_librarys_own),
    COSTS("a device that nobody has",
          "What ends a connection: a GPU that the receiver does not see", DEVICE_NOT_VISIBLE,
          device_that_nobody_has),
    COSTS("one of two is no GPU memory", NO_MEMORY, NOT_GPU_MEMORY, bad_memory_beside_good),
    COSTS("one of two has another size", "Segment record: size of the allocation", SIZE_MISMATCH,
          bad_size_beside_good),
    COSTS("one buffer, two sizes", "Buffer record: exporter and buffer name the memory",
          SIZE_MISMATCH, same_name_other_size)};

const hostile_cases hostile_handles = {handles, COUNT(handles)};

/* ---- pages ----------------------------------------------------------------------------------- */

/* Shared memory as the library makes it. On Windows its size is a multiple of 4096. */
static intptr_t open_page(uint64_t bytes) {
    os_handle made;
    check_ok(os_memory_create("hostile-page", bytes, &made));
    intptr_t copy = raw_handle_copy(made.value);
    os_handle_close(&made);
    return copy;
}

static void page_too_short(hostile_peer *self) {
    replace(self, open_page(POINT_PAGE_BYTES - 4096));
    send_page(self, WIRE_POINTS);
}

static void page_too_long(hostile_peer *self) {
    replace(self, open_page(POINT_PAGE_BYTES + 4096));
    send_page(self, WIRE_POINTS);
}

static void ring_too_short(hostile_peer *self) {
    replace(self, open_page(POINT_PAGE_BYTES - 4096));
    send_page(self, WIRE_RING);
}

static void page_of_gpu_memory(hostile_peer *self) {
    send_page(self, WIRE_POINTS);
}

static void two_rings(hostile_peer *self) {
    replace(self, open_page(POINT_PAGE_BYTES));
    send_page(self, WIRE_RING);
    send_page(self, WIRE_RING);
}

static void channel_page_unasked(hostile_peer *self) {
    replace(self, open_page(POINT_PAGE_BYTES));
    send_page(self, WIRE_CHANNEL);
}

static void page_inside_a_message(hostile_peer *self) {
    self->packet.header.total_bytes *= 2;
    hostile_send(self);
    replace(self, open_page(POINT_PAGE_BYTES));
    send_page(self, WIRE_POINTS);
}

static void page_without_handle(hostile_peer *self) {
    uint8_t bytes[WIRE_HEADER_BYTES];
    const wire_header header = {.kind = WIRE_POINTS};
    wire_encode_header(&header, bytes);
    hostile_send_bytes(self, bytes, sizeof(bytes), 0);
}

static void page_with_two_handles(hostile_peer *self) {
    uint8_t bytes[WIRE_HEADER_BYTES];
    const wire_header header = {.kind = WIRE_POINTS};
    wire_encode_header(&header, bytes);
    replace(self, open_page(POINT_PAGE_BYTES));
    raw_packet_repeat_handle(&self->packet, 2);
    hostile_send_bytes(self, bytes, sizeof(bytes), 2);
}

static void sixty_five_pages(hostile_peer *self) {
    replace(self, open_page(POINT_PAGE_BYTES));
    for (unsigned i = 0; i <= POINT_PAGES_MAX; i++) {
        send_page(self, WIRE_POINTS);
    }
}

/* The words say what they like: the last point is released, all are given out. */
static void point_beyond_its_page(hostile_peer *self) {
    replace(self, open_page(POINT_PAGE_BYTES));
    send_page(self, WIRE_POINTS);
    self->packet.buffer.point_index = POINT_COUNT + 1;
    raw_packet good;
    cr_assert(raw_packet_make(self->buffer, &good));
    replace(self, good.handles[0]);
    hostile_send(self);
}

/* The contents of this buffer are never ready. */
static void word_that_never_comes(hostile_peer *self) {
    raw_packet good;
    cr_assert(raw_packet_make(self->buffer, &good));
    replace(self, open_page(POINT_PAGE_BYTES));
    send_page(self, WIRE_POINTS);
    replace(self, good.handles[0]);
    self->packet.buffer.ready = WIRE_READY_WORD;
    self->packet.buffer.point_index = 1;
    self->packet.buffer.point_value = 1;
    hostile_send(self);
}

static const hostile_case pages[] = {
    HOSTILE_CASE("a page that is too short", "Points: 106,496 bytes", PROTOCOL, page_too_short),
    HOSTILE_CASE("a page that is too long", "Points: 106,496 bytes", PROTOCOL, page_too_long),
    HOSTILE_CASE("a ring's page that is too short", "Contents: like that of points", PROTOCOL,
                 ring_too_short),
    HOSTILE_CASE("a GPU's memory as a page", "Points: shared memory of the host's", PROTOCOL,
                 page_of_gpu_memory),
    HOSTILE_CASE("two rings", "Contents: each direction has at most one", PROTOCOL, two_rings),
    HOSTILE_CASE("a channel's page unasked", "Requests: to who asks to read a channel", PROTOCOL,
                 channel_page_unasked),
    HOSTILE_CASE("a page inside a message", "Points: pages come between messages", PROTOCOL,
                 page_inside_a_message),
    HOSTILE_CASE("a page without its handle", "Points: exactly one handle", HANDLE_COUNT,
                 page_without_handle),
    HOSTILE_CASE("a page with two handles", "Points: exactly one handle", HANDLE_COUNT,
                 page_with_two_handles),
    HOSTILE_CASE("65 pages", "Points: there are up to 64 in each direction", PROTOCOL,
                 sixty_five_pages),
    HOSTILE_CASE("a point of a page that has not come", "Points: its page comes before", PROTOCOL,
                 point_beyond_its_page),
    {.name = "contents that are never ready",
     .rule = "Points: the ready word reaches the record's value",
     .expected = GPUIPC_ERR_TIMEOUT,
     .end = HOSTILE_WAITS,
     .outlives_end = true,
     .act = word_that_never_comes}};

const hostile_cases hostile_pages = {pages, COUNT(pages)};
