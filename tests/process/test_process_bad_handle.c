/* SPDX-License-Identifier: MIT */
/**
 * @file A peer that keeps to the wire format, but whose handles are not what it says: the message is
 * dropped with a clear answer, nothing of it stays open, and the connection goes on.
 */
#include <criterion/criterion.h>
#include <gpuipc/gpuipc_native.h>

#include "check.h"
#include "marks.h"
#include "process_case.h"
#include "raw_handle.h"
#include "raw_packet.h"

static process_case at;
static gpuipc_buffer *buffer;
static gpuipc_connection *connection;
static raw_peer *raw;
static uint64_t next_number;

static void begin(void) {
    process_case_begin(&at, NULL);
    buffer = process_case_buffer(&at, 0, MEBIBYTES_2, 0, 1, 0);
    raw = raw_connect(at.directory, at.name);
    cr_assert_neq(raw, NULL);
    connection = process_case_accept(&at);
    next_number = 0;
}

static raw_packet make_packet(void) {
    raw_packet packet;
    cr_assert(raw_packet_make(buffer, &packet));
    return packet;
}

/* Sends it as the next message of this conversation. */
static void send_next(raw_packet *packet) {
    packet->header.number = next_number++;
    cr_assert(raw_packet_send(packet, raw));
}

static gpuipc_status receive_one(gpuipc_buffer **out_opened) {
    size_t count = 1;
    return process_case_receive(connection, out_opened, &count, NULL, PATIENCE_MS);
}

/* The same conversation still brings a good buffer. */
static void expect_usable(const char *what) {
    gpuipc_buffer *opened;
    raw_packet packet = make_packet();
    send_next(&packet);
    gpuipc_status status = receive_one(&opened);
    cr_assert_eq(status, GPUIPC_OK, "after %s: %s", what, gpuipc_status_name(status));
    check_ok(marks_check(opened, 1, 0));
    check_ok(gpuipc_buffer_release(opened));
    raw_packet_close(&packet);
}

static void end(void) {
    expect_usable("all of it");
    raw_close(raw);
    check_ok(gpuipc_connection_close(connection));
    check_ok(gpuipc_buffer_release(buffer));
    process_case_end(&at);
}

TestSuite(bad_handle, .timeout = 100);

/* Sends the packet and expects its message to be dropped. */
static void expect_dropped(raw_packet *packet, gpuipc_status expected, const char *what) {
    gpuipc_buffer *opened;
    send_next(packet);
    gpuipc_status status = receive_one(&opened);
    cr_assert_eq(status, expected, "%s: %s, not %s", what, gpuipc_status_name(status),
                 gpuipc_status_name(expected));
    cr_assert_eq(gpuipc_error_get()->status, expected, "%s", what);
    cr_assert_str_not_empty(gpuipc_error_get()->sentence, "%s", what);
    raw_packet_close(packet);
    expect_usable(what);
}

static void replace_handle(raw_packet *packet, int kind) {
    raw_packet_replace_handle(packet, raw_handle_open(kind));
    cr_assert_neq(packet->handles[0], RAW_HANDLE_NONE, "%s", raw_handle_kind_name(kind));
}

Test(bad_handle, no_gpu_memory) {
    begin();
    for (int kind = 0; kind < raw_handle_kinds; kind++) {
        raw_packet packet = make_packet();
        replace_handle(&packet, kind);
        expect_dropped(&packet, GPUIPC_ERR_NOT_GPU_MEMORY, raw_handle_kind_name(kind));
    }
    end();
}

/* Sends a message of two buffers, of which only the first is good: both or none. */
static void expect_pair_dropped(raw_packet *first, raw_packet *second, gpuipc_status expected) {
    gpuipc_buffer *opened[2];
    size_t count = 2;
    first->header.total_bytes *= 2;
    first->header.total_buffers = 2;
    first->header.total_segments = 2;
    first->header.number = next_number;
    second->header = first->header;
    second->buffer.buffer_id++; /* another buffer, so that its handle is looked at */
    cr_assert(raw_packet_send(first, raw));
    send_next(second);
    check_status(expected, process_case_receive(connection, opened, &count, NULL, PATIENCE_MS));
    raw_packet_close(first);
    raw_packet_close(second);
    expect_usable("one of two");
}

Test(bad_handle, no_gpu_memory_beside_good_memory) {
    begin();
    raw_packet first = make_packet();
    raw_packet second = make_packet();
    replace_handle(&second, RAW_HANDLE_MEMORY);
    expect_pair_dropped(&first, &second, GPUIPC_ERR_NOT_GPU_MEMORY);
    end();
}

/* The first buffer is open already when the second turns out to be wrong. */
Test(bad_handle, wrong_size_beside_good_memory) {
    begin();
    raw_packet first = make_packet();
    raw_packet second = make_packet();
    second.segment.bytes *= 2;
    expect_pair_dropped(&first, &second, GPUIPC_ERR_SIZE_MISMATCH);
    end();
}

Test(bad_handle, sizes_that_the_memory_has_not) {
    begin();
    static const uint64_t sizes[] = {0,
                                     1,
                                     4096,
                                     MEBIBYTES_2 - 1,
                                     MEBIBYTES_2 + 1,
                                     2 * MEBIBYTES_2,
                                     MEBIBYTES_2 << 8,
                                     UINT64_C(1) << 62,
                                     UINT64_MAX - MEBIBYTES_2 + 1,
                                     UINT64_MAX};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        raw_packet packet = make_packet();
        packet.segment.bytes = sizes[i];
        packet.buffer.bytes = 1;
        expect_dropped(&packet, GPUIPC_ERR_SIZE_MISMATCH, "a segment of another size");
    }
    end();
}

Test(bad_handle, range_beyond_the_memory) {
    begin();
    static const struct {
        uint64_t offset;
        uint64_t bytes;
    } ranges[] = {{0, MEBIBYTES_2 + 1}, {1, MEBIBYTES_2}, {MEBIBYTES_2, 1},
                  {MEBIBYTES_2 - 1, 2}, {0, UINT64_MAX},  {UINT64_MAX - 1, 1}};
    for (size_t i = 0; i < sizeof(ranges) / sizeof(*ranges); i++) {
        raw_packet packet = make_packet();
        packet.buffer.offset = ranges[i].offset;
        packet.buffer.bytes = ranges[i].bytes;
        expect_dropped(&packet, GPUIPC_ERR_SIZE_MISMATCH,
                       "a range that does not lie in the memory");
    }
    end();
}

Test(bad_handle, device_that_is_not_there) {
    begin();
    raw_packet packet = make_packet();
    memset(packet.buffer.device_uuid, 0x5A, sizeof(packet.buffer.device_uuid));
    expect_dropped(&packet, GPUIPC_ERR_DEVICE_NOT_VISIBLE, "a device that nobody has");
    end();
}

/* Handles that came by a courier of the caller's own are looked at as closely. */
Test(bad_handle, native_import) {
    begin();
    gpuipc_native_segment segment;
    gpuipc_native_segment bad;
    gpuipc_native_layout layout = {.struct_size = sizeof(layout)};
    gpuipc_buffer *opened;
    size_t count;
    check_ok(gpuipc_native_export(buffer, &segment, 1, &layout, &count));
    for (int kind = 0; kind < raw_handle_kinds; kind++) {
        intptr_t handle = raw_handle_open(kind);
        bad = (gpuipc_native_segment){.handle = {handle}, .bytes = segment.bytes};
        gpuipc_status status = gpuipc_native_import(at.context, &bad, 1, &layout, 0, 0, &opened);
        cr_assert_eq(status, GPUIPC_ERR_NOT_GPU_MEMORY, "%s: %s", raw_handle_kind_name(kind),
                     gpuipc_status_name(status));
        raw_handle_close(handle);
    }
    bad = (gpuipc_native_segment){.handle = {-1}, .bytes = segment.bytes};
    check_status(GPUIPC_ERR_NOT_GPU_MEMORY,
                 gpuipc_native_import(at.context, &bad, 1, &layout, 0, 0, &opened));
    bad = segment;
    bad.bytes *= 2;
    check_status(GPUIPC_ERR_SIZE_MISMATCH,
                 gpuipc_native_import(at.context, &bad, 1, &layout, 0, 0, &opened));
    check_ok(gpuipc_native_import(at.context, &segment, 1, &layout, 0, 0, &opened));
    check_ok(marks_check(opened, 1, 0));
    check_ok(gpuipc_buffer_release(opened));
    raw_handle_close(segment.handle.value);
    end();
}
