/* SPDX-License-Identifier: MIT */
/** @file Messages put together from packets, and packets that do not belong together. */
#include "core_fixture.h"

#include <stdio.h>
#include <string.h>

#include "memory/import.h"
#include "message/incoming.h"

TestSuite(incoming, .init = core_start, .fini = core_finish, .timeout = 60);

enum {
    PACKET_MAX = 4096,
    HANDLES_MAX = 8
};

/* A packet under construction: what is put into it is counted in its header. */
typedef struct packet {
    wire_header header;
    uint8_t bytes[PACKET_MAX];
    size_t size;
    os_handle handles[HANDLES_MAX];
} packet;

typedef struct parts {
    uint32_t bytes;
    uint32_t buffers;
    uint32_t segments; /* in all, and as many handles */
} parts;

static wire_buffer buffer_record(uint32_t segment_count) {
    return (wire_buffer){.bytes = 1,
                         .segment_count = segment_count,
                         .memory = SEGMENT_MEMORY_VMM,
                         .handle_type = (uint16_t)os_shareable_handle_type,
                         .access = GPUIPC_ACCESS_READ_WRITE};
}

/* A packet of message @p number with these parts. Its handles are shared memory that is no GPU
 * memory; each buffer takes @p segments_each. */
static packet make(uint64_t number, parts total, parts carried, uint32_t segments_each) {
    packet made = {.header = {.kind = WIRE_MESSAGE,
                              .number = number,
                              .total_bytes = total.bytes,
                              .total_buffers = total.buffers,
                              .total_segments = total.segments,
                              .bytes = carried.bytes,
                              .buffers = (uint16_t)carried.buffers,
                              .segments = (uint16_t)carried.segments}};
    uint8_t *at = made.bytes + WIRE_HEADER_BYTES;
    made.size = wire_packet_bytes(&made.header);
    cr_assert(made.size <= PACKET_MAX && carried.segments <= HANDLES_MAX);
    wire_encode_header(&made.header, made.bytes);
    memset(at, (int)('a' + number), carried.bytes);
    at += carried.bytes;
    for (uint32_t i = 0; i < carried.buffers; i++, at += WIRE_BUFFER_BYTES) {
        const wire_buffer record = buffer_record(segments_each);
        wire_encode_buffer(&record, at);
    }
    for (uint32_t i = 0; i < carried.segments; i++, at += WIRE_SEGMENT_BYTES) {
        const segment_record record = {.bytes = core_unit};
        wire_encode_segment(&record, at);
        check_ok(os_memory_create("test", 4096, &made.handles[i]));
    }
    return made;
}

static context *inside;

static context *inner(void) {
    if (inside == NULL) {
        check_ok(context_acquire(core_context, &inside));
        context_unreference(inside); /* the public handle keeps it */
    }
    return inside;
}

static import_source *peer(void) {
    static import_source from;
    from = (import_source){.context = inner()};
    return &from;
}

/* As connection_receive.c does: decodes the packet once, and closes the handles that the message does not keep. */
static gpuipc_status take_in(incoming *message, import_source *from, uint64_t number,
                             packet *arrived, bool keep_handles) {
    const size_t count = arrived->header.segments;
    wire_packet decoded;
    gpuipc_status status = wire_decode_packet(arrived->bytes, arrived->size, count, &decoded);
    if (status == GPUIPC_OK) {
        status = incoming_add(message, from, number, &decoded, arrived->handles, keep_handles);
    }
    for (size_t i = 0; i < count; i++) {
        os_handle_close(&arrived->handles[i]);
    }
    return status;
}

static gpuipc_status add(incoming *message, uint64_t number, packet *from) {
    return take_in(message, peer(), number, from, false);
}

static void clear(incoming *message) {
    incoming_clear(message, inner(), false);
    cr_assert(!message->started && message->segments == NULL);
}

Test(incoming, an_empty_message_is_one_packet) {
    incoming message = {0};
    packet only = make(5, (parts){0}, (parts){0}, 0);
    check_ok(add(&message, 5, &only));
    cr_assert(message.complete);
    cr_assert_eq(message.byte_count + message.buffer_count + message.segment_count, 0);
    clear(&message);
}

Test(incoming, packets_may_split_a_message_anywhere) {
    const parts total = {10, 2, 6};
    static const parts rows[][7] = {
        {{10, 2, 6}},
        {{10, 0, 0}, {0, 2, 0}, {0, 0, 6}},
        {{0, 2, 0}, {0, 0, 6}, {10, 0, 0}},
        {{1, 1, 1}, {9, 1, 5}},
        {{3, 1, 1}, {3, 0, 1}, {4, 0, 1}, {0, 1, 1}, {0, 0, 1}, {0, 0, 1}},
    };
    for (size_t row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
        incoming message = {0};
        for (size_t i = 0; !message.complete; i++) {
            cr_assert(i < 7);
            packet next = make(0, total, rows[row][i], 3);
            check_ok(add(&message, 0, &next));
        }
        cr_assert_eq(message.byte_count, 10);
        cr_assert_eq(memcmp(message.bytes, "aaaaaaaaaa", 10), 0);
        cr_assert_eq(message.buffer_count, 2);
        cr_assert_eq(message.segment_count, 6);
        /* none of the handles was GPU memory, which costs the message and nothing else */
        cr_assert_eq(message.failure.status, GPUIPC_ERR_NOT_GPU_MEMORY);
        cr_assert_eq(message.failure.native_origin, GPUIPC_NATIVE_CUDA);
        clear(&message);
    }
}

Test(incoming, the_first_bad_segment_is_the_one_remembered) {
    gpuipc_buffer *buffer = core_buffer(core_unit, 0);
    gpuipc_native_segment exported;
    gpuipc_native_layout layout = {.struct_size = sizeof(layout)};
    size_t count = 0;
    char wanted[64];
    check_ok(gpuipc_native_export(buffer, &exported, 1, &layout, &count));
    incoming message = {0};
    packet next = make(0, (parts){0, 1, 3}, (parts){0, 1, 3}, 3);
    os_handle_close(&next.handles[0]);
    check_ok(os_handle_adopt(exported.handle.value, &next.handles[0]));
    (void)snprintf(wanted, sizeof(wanted), "handle %lld is no GPU memory",
                   (long long)next.handles[1].value);
    check_ok(add(&message, 0, &next));
    cr_assert(message.complete);
    uint32_t segment_count = 0;
    const segment *imported = import_segments(message.imports[0], &segment_count);
    cr_assert_eq(segment_count, 3);
    cr_assert_neq(imported[0].allocation, 0); /* read to its end all the same */
    cr_assert_eq(imported[1].allocation, 0);
    cr_assert(strstr(message.failure.sentence, wanted) != NULL, "%s", message.failure.sentence);
    clear(&message);
    check_ok(gpuipc_buffer_release(buffer));
}

Test(incoming, handles_are_kept_where_that_is_asked_for) {
    gpuipc_buffer *buffer = core_buffer(core_unit, 0);
    gpuipc_native_segment exported;
    gpuipc_native_layout layout = {.struct_size = sizeof(layout)};
    size_t count = 0;
    check_ok(gpuipc_native_export(buffer, &exported, 1, &layout, &count));
    incoming message = {0};
    packet next = make(0, (parts){0, 1, 2}, (parts){0, 1, 2}, 2);
    os_handle_close(&next.handles[0]);
    check_ok(os_handle_adopt(exported.handle.value, &next.handles[0]));
    wire_packet decoded;
    check_ok(wire_decode_packet(next.bytes, next.size, 2, &decoded));
    check_ok(incoming_add(&message, peer(), 0, &decoded, next.handles, true));
    cr_assert_not(os_handle_is_valid(next.handles[0]), "the message has it");
    cr_assert(os_handle_is_valid(next.handles[1]), "the caller closes it");
    os_handle_close(&next.handles[1]);
    uint32_t segment_count = 0;
    const segment *imported = import_segments(message.imports[0], &segment_count);
    cr_assert_eq(imported[0].kept.value, exported.handle.value);
    cr_assert(!os_handle_is_valid(imported[1].kept)); /* it is no GPU memory */
    clear(&message);
    check_ok(gpuipc_buffer_release(buffer));
}

/* ---- what ends the connection ------------------------------------------------------------ */

static void check_packet_refused(gpuipc_status expected, const char *text, incoming *message,
                                 uint64_t number, packet next) {
    check_refused(expected, text, add(message, number, &next));
    cr_assert(!message->complete);
    clear(message);
}

Test(incoming, messages_come_in_order) {
    static const uint64_t wrong[] = {0, 6, 8, UINT64_MAX};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        incoming message = {0};
        check_packet_refused(GPUIPC_ERR_PROTOCOL, "missing or came twice", &message, 7,
                             make(wrong[i], (parts){1, 0, 1}, (parts){1, 0, 1}, 0));
    }
}

Test(incoming, a_message_is_whole_before_the_next_begins) {
    const parts total = {4, 1, 2};
    static const struct {
        uint64_t number;
        parts total;
    } rows[] = {
        {3, {5, 1, 2}}, {3, {3, 1, 2}}, {3, {4, 2, 2}},
        {3, {4, 1, 3}}, {4, {4, 1, 2}}, {2, {4, 1, 2}},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        incoming message = {0};
        packet first = make(3, total, (parts){2, 1, 1}, 2);
        check_ok(add(&message, 3, &first));
        cr_assert(!message.complete);
        check_packet_refused(GPUIPC_ERR_PROTOCOL, "another message", &message, 3,
                             make(rows[i].number, rows[i].total, (parts){1, 0, 1}, 0));
    }
}

Test(incoming, more_than_the_totals_is_refused) {
    const parts total = {4, 2, 3};
    static const parts surplus[] = {{3, 0, 0}, {0, 2, 0}, {0, 0, 3}};
    for (size_t i = 0; i < sizeof(surplus) / sizeof(surplus[0]); i++) {
        incoming message = {0};
        packet first = make(0, total, (parts){2, 1, 1}, 1);
        check_ok(add(&message, 0, &first));
        check_packet_refused(GPUIPC_ERR_PROTOCOL, "more than their message has", &message, 0,
                             make(0, total, surplus[i], 1));
    }
}

Test(incoming, a_packet_must_carry_something) {
    incoming message = {0};
    check_packet_refused(GPUIPC_ERR_PROTOCOL, "carries nothing", &message, 0,
                         make(0, (parts){4, 0, 0}, (parts){0}, 0));
    packet first = make(0, (parts){4, 1, 1}, (parts){0, 1, 0}, 1);
    check_ok(add(&message, 0, &first));
    check_packet_refused(GPUIPC_ERR_PROTOCOL, "carries nothing", &message, 0,
                         make(0, (parts){4, 1, 1}, (parts){0}, 1));
}

Test(incoming, buffers_must_use_up_their_segments) {
    static const struct {
        parts total;
        uint32_t segments_each;
    } rows[] = {
        {{0, 1, 2}, 3},          {{0, 2, 3}, 2},          {{0, 1, 0}, 1},
        {{0, 2, 1}, UINT32_MAX}, {{0, 1, 2}, UINT32_MAX},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        incoming message = {0};
        check_packet_refused(GPUIPC_ERR_PROTOCOL, "do not use its segments up", &message, 0,
                             make(0, rows[i].total, rows[i].total, rows[i].segments_each));
    }
}

Test(incoming, a_segment_comes_after_the_record_of_its_buffer) {
    static const struct {
        parts total;
        parts carried;
        uint32_t segments_each;
    } rows[] = {
        {{0, 1, 1}, {0, 0, 1}, 1}, {{0, 1, 2}, {0, 1, 2}, 1}, {{0, 2, 3}, {0, 2, 3}, 1},
        {{0, 2, 2}, {0, 1, 2}, 1}, {{0, 0, 1}, {0, 0, 1}, 0},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        incoming message = {0};
        check_packet_refused(GPUIPC_ERR_PROTOCOL, "before the record of its buffer", &message, 0,
                             make(0, rows[i].total, rows[i].carried, rows[i].segments_each));
    }
}

Test(incoming, handles_of_another_system_are_refused) {
    incoming message = {0};
    packet next = make(0, (parts){0, 1, 1}, (parts){0, 1, 1}, 1);
    wire_buffer record = buffer_record(1);
    record.handle_type = (uint16_t)(3 - os_shareable_handle_type);
    wire_encode_buffer(&record, next.bytes + WIRE_HEADER_BYTES);
    check_packet_refused(GPUIPC_ERR_PROTOCOL, "another operating system", &message, 0, next);
}

Test(incoming, a_bad_record_ends_it_and_every_handle_is_closed) {
    static const size_t bad[] = {
        WIRE_HEADER_BYTES + 88,                         /* reserved, first buffer */
        WIRE_HEADER_BYTES + WIRE_BUFFER_BYTES + 88,     /* reserved, second buffer */
        WIRE_HEADER_BYTES + 2 * WIRE_BUFFER_BYTES + 10, /* reserved, first segment */
        /* likewise, third segment */
        WIRE_HEADER_BYTES + 2 * WIRE_BUFFER_BYTES + 2 * WIRE_SEGMENT_BYTES + 10,
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        incoming message = {0};
        packet next = make(0, (parts){0, 2, 4}, (parts){0, 2, 4}, 2);
        next.bytes[bad[i]] = 1;
        check_packet_refused(GPUIPC_ERR_PROTOCOL, "record", &message, 0, next);
    }
}

Test(incoming, a_packet_that_does_not_decode_ends_it) {
    incoming message = {0};
    packet next = make(0, (parts){0, 1, 4}, (parts){0, 1, 4}, 4);
    next.bytes[0] = 'X';
    check_packet_refused(GPUIPC_ERR_PROTOCOL, "like one of gpuipc", &message, 0, next);
    next = make(0, (parts){0, 1, 4}, (parts){0, 1, 4}, 4);
    next.bytes[4] = 1;
    check_packet_refused(GPUIPC_ERR_VERSION, "protocol version 1.0, this side 2.0", &message, 0,
                         next);
    clear(&message);
}

Test(incoming, totals_have_limits) {
    gpuipc_context_config config = core_context_config();
    config.max_buffers_per_message = 3;
    config.max_handles_per_message = 5;
    gpuipc_context *limited;
    context *limits;
    check_ok(gpuipc_context_create(&config, &limited));
    check_ok(context_acquire(limited, &limits));
    static const struct {
        parts total;
        gpuipc_status expected;
    } rows[] = {
        {{GPUIPC_MESSAGE_BYTES_MAX, 3, 5}, GPUIPC_OK},
        {{GPUIPC_MESSAGE_BYTES_MAX + 1, 3, 5}, GPUIPC_ERR_LIMIT},
        {{1, 4, 5}, GPUIPC_ERR_LIMIT},
        {{1, 3, 6}, GPUIPC_ERR_LIMIT},
        {{UINT32_MAX, UINT32_MAX, UINT32_MAX}, GPUIPC_ERR_LIMIT},
    };
    import_source from = {.context = limits};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        incoming message = {0};
        packet next = make(0, rows[i].total, (parts){1, 1, 1}, 1);
        check_status(rows[i].expected, take_in(&message, &from, 0, &next, false));
        clear(&message);
    }
    context_unreference(limits);
    check_ok(gpuipc_context_destroy(limited));
}

/* A few bytes do not make this process keep the room for a whole message. */
Test(incoming, room_for_bytes_grows_with_what_comes) {
    const parts total = {GPUIPC_MESSAGE_BYTES_MAX, 0, 0};
    incoming message = {0};
    uint32_t came = 0;
    for (uint32_t i = 0; came < GPUIPC_MESSAGE_BYTES_MAX; i++) {
        const uint32_t left = GPUIPC_MESSAGE_BYTES_MAX - came;
        const uint32_t carried = i == 0 ? 1 : left < 4000 ? left : 4000;
        packet next = make(0, total, (parts){carried, 0, 0}, 0);
        check_ok(add(&message, 0, &next));
        came += carried;
        cr_assert_eq(message.byte_count, came);
        cr_assert(message.byte_capacity >= came && message.byte_capacity <= 2 * came);
        cr_assert_eq(message.bytes[came - 1], 'a');
    }
    cr_assert(message.complete);
    cr_assert_eq(message.byte_capacity, GPUIPC_MESSAGE_BYTES_MAX);
    clear(&message);
}

#define MEBIBYTE (UINT32_C(1) << 20)

/* @return how many bytes came before the first that were refused, or all */
static uint32_t fill(incoming *message, import_source *from, uint32_t most) {
    const parts total = {GPUIPC_MESSAGE_BYTES_MAX, 0, 0};
    uint32_t came = 0;
    gpuipc_status status = GPUIPC_OK;
    for (; came < most && status == GPUIPC_OK; came += status == GPUIPC_OK ? 4000 : 0) {
        packet next = make(0, total, (parts){4000, 0, 0}, 0);
        status = take_in(message, from, 0, &next, false);
    }
    cr_assert(status == GPUIPC_OK || status == GPUIPC_ERR_LIMIT);
    return came;
}

/* The user may have 4 MiB of memory here, and each message has 1 MiB beside that. */
Test(incoming, bytes_of_unfinished_messages_are_charged) {
    static const quota_amount totals = {{[QUOTA_MEMORY] = UINT64_C(8) * MEBIBYTE}};
    static const quota_amount all = {{[QUOTA_MEMORY] = UINT64_C(4) * MEBIBYTE}};
    const os_peer other = {.process_id = 1, .process = OS_HANDLE_NONE, .user = "1000"};
    import_source from = {.context = inner()};
    incoming first = {0};
    incoming second = {0};
    quota_charge rest = {0};
    quota_pretend(&totals);
    check_ok(quota_open(&other, &from.quota));
    const uint32_t came = fill(&first, &from, GPUIPC_MESSAGE_BYTES_MAX);
    cr_assert(came > 2 * MEBIBYTE && came < 5 * MEBIBYTE, "%u", came);
    check_status(GPUIPC_ERR_LIMIT, quota_take(from.quota, &all, &rest));
    cr_assert_lt(fill(&second, &from, GPUIPC_MESSAGE_BYTES_MAX), 5 * MEBIBYTE);
    clear(&first);
    clear(&second);
    check_ok(quota_take(from.quota, &all, &rest));
    cr_assert_geq(fill(&first, &from, MEBIBYTE / 2), MEBIBYTE / 2, "so much is not charged");
    clear(&first);
    quota_return(&rest);
    quota_unreference(from.quota);
    quota_pretend(NULL);
}

Test(incoming, an_unfinished_message_gives_back_what_it_holds) {
    gpuipc_buffer *buffer = core_buffer(core_unit * 2, core_unit);
    gpuipc_native_segment segments[2];
    gpuipc_native_layout layout = {.struct_size = sizeof(layout)};
    size_t count = 0;
    check_ok(gpuipc_native_export(buffer, segments, 2, &layout, &count));
    incoming message = {0};
    packet next = make(0, (parts){0, 1, 3}, (parts){0, 1, 2}, 3);
    for (size_t i = 0; i < 2; i++) {
        os_handle_close(&next.handles[i]);
        check_ok(os_handle_adopt(segments[i].handle.value, &next.handles[i]));
    }
    check_ok(add(&message, 0, &next));
    cr_assert(!message.complete);
    cr_assert_eq(message.failure.status, GPUIPC_OK);
    clear(&message); /* the gate of the fixture sees whether anything is left */
    check_ok(gpuipc_buffer_release(buffer));
}
