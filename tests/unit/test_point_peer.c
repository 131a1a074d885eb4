/* SPDX-License-Identifier: MIT */
/** @file A peer that sends pages of points, and records that name points, of its own making. */
#include <string.h>

#include "core_fixture.h"
#include "message/connection.h"
#include "message/wire.h"

static gpuipc_listener *listener;
static gpuipc_connection *victim;
static os_connection *peer;
static gpuipc_buffer *buffer;
static uint64_t next_number;

static void begin(void) {
    char name[UNIQUE_NAME_MAX];
    core_start();
    const os_directory directory = {core_directory, false};
    unique_name(name);
    check_ok(gpuipc_listener_open(core_context, name, NULL, &listener));
    check_ok(os_connection_open(&directory, name, os_deadline_after(SOON_MS), &peer));
    check_ok(gpuipc_listener_accept(listener, SOON_MS, &victim));
    buffer = core_buffer(core_unit, 0);
    next_number = 0;
}

static void finish(void) {
    (void)gpuipc_buffer_release(buffer);
    (void)gpuipc_connection_close(victim);
    (void)gpuipc_listener_close(listener);
    os_connection_destroy(peer);
    core_finish();
}

TestSuite(point_peer, .init = begin, .fini = finish, .timeout = 60);

static void send_packet(const uint8_t *packet, size_t size, const os_handle *handles,
                        size_t count) {
    check_ok(os_connection_send(peer, packet, size, handles, count, os_deadline_after(SOON_MS)));
}

/* A page of so many bytes; the caller closes it. */
static os_handle send_page(uint64_t bytes) {
    const wire_header header = {.kind = WIRE_POINTS};
    uint8_t packet[WIRE_HEADER_BYTES];
    os_handle page;
    check_ok(os_memory_create("test", bytes, &page));
    wire_encode_header(&header, packet);
    send_packet(packet, sizeof(packet), &page, 1);
    return page;
}

/* A message with one buffer that names a point. @param buffers what the header says there is of them */
static void send_record(uint32_t index, uint64_t value, wire_ready ready) {
    uint8_t packet[WIRE_HEADER_BYTES + WIRE_BUFFER_BYTES + WIRE_SEGMENT_BYTES];
    gpuipc_native_segment exported;
    gpuipc_native_layout layout = {.struct_size = sizeof(layout)};
    size_t count = 0;
    os_handle handle;
    check_ok(gpuipc_native_export(buffer, &exported, 1, &layout, &count));
    check_ok(os_handle_adopt(exported.handle.value, &handle));
    const wire_header header = {.kind = WIRE_MESSAGE,
                                .number = next_number++,
                                .total_buffers = 1,
                                .total_segments = 1,
                                .buffers = 1,
                                .segments = 1};
    wire_buffer record = {.buffer_id = 1,
                          .bytes = layout.bytes,
                          .segment_count = 1,
                          .memory = SEGMENT_MEMORY_VMM,
                          .handle_type = (uint16_t)os_shareable_handle_type,
                          .access = GPUIPC_ACCESS_READ_WRITE,
                          .ready = (uint16_t)ready,
                          .point_index = index,
                          .point_value = value};
    const segment_record of_record = {.bytes = exported.bytes};
    memcpy(record.device_uuid, layout.device_uuid.bytes, sizeof(record.device_uuid));
    wire_encode_header(&header, packet);
    wire_encode_buffer(&record, packet + WIRE_HEADER_BYTES);
    wire_encode_segment(&of_record, packet + WIRE_HEADER_BYTES + WIRE_BUFFER_BYTES);
    send_packet(packet, sizeof(packet), &handle, 1);
    os_handle_close(&handle);
}

static gpuipc_status receive(uint32_t flags, int timeout_ms, gpuipc_buffer **out_buffer) {
    gpuipc_incoming message = {.struct_size = sizeof(message),
                               .buffers = out_buffer,
                               .buffer_capacity = 1,
                               .flags = flags};
    return gpuipc_connection_receive(victim, &message, timeout_ms);
}

static void check_broken(const char *why) {
    gpuipc_buffer *opened = NULL;
    check_refused(GPUIPC_ERR_PROTOCOL, why, receive(0, SOON_MS, &opened));
    check_status(GPUIPC_ERR_CONNECTION_BROKEN, receive(0, 0, &opened));
    cr_assert_null(opened);
}

Test(point_peer, a_page_of_another_size) {
    os_handle page = send_page(POINT_PAGE_BYTES + 4096);
    check_broken("bytes");
    os_handle_close(&page);
}

/* Points are numbered through all pages. */
Test(point_peer, a_second_page) {
    gpuipc_buffer *opened;
    os_handle first = send_page(POINT_PAGE_BYTES);
    send_record(1, 2, WIRE_READY_NOW);
    check_ok(receive(0, SOON_MS, &opened));
    check_ok(gpuipc_buffer_release(opened));
    os_handle second = send_page(POINT_PAGE_BYTES);
    void *memory;
    check_ok(os_memory_map(second, POINT_PAGE_BYTES, true, &memory));
    send_record(POINT_COUNT + 3, 2, WIRE_READY_NOW);
    check_ok(receive(0, SOON_MS, &opened));
    check_ok(gpuipc_buffer_release(opened));
    atomic_uint_least64_t *words = memory;
    cr_assert_eq(atomic_load(&words[5]), 3, "the done word of its third point");
    os_memory_unmap(memory, POINT_PAGE_BYTES);
    send_record(2 * POINT_COUNT + 1, 2, WIRE_READY_NOW);
    check_broken("which no page has");
    os_handle_close(&first);
    os_handle_close(&second);
}

Test(point_peer, a_page_too_many) {
    gpuipc_buffer *opened = NULL;
    for (uint32_t i = 0; i <= POINT_PAGES_MAX; i++) {
        os_handle page = send_page(POINT_PAGE_BYTES);
        os_handle_close(&page);
        check_status(i < POINT_PAGES_MAX ? GPUIPC_ERR_TIMEOUT : GPUIPC_ERR_PROTOCOL,
                     receive(0, 0, &opened));
    }
}

Test(point_peer, a_page_that_is_no_shared_memory) {
    const wire_header header = {.kind = WIRE_POINTS};
    uint8_t packet[WIRE_HEADER_BYTES];
    gpuipc_native_segment exported;
    gpuipc_native_layout layout = {.struct_size = sizeof(layout)};
    size_t count = 0;
    os_handle handle;
    check_ok(gpuipc_native_export(buffer, &exported, 1, &layout, &count));
    check_ok(os_handle_adopt(exported.handle.value, &handle));
    wire_encode_header(&header, packet);
    send_packet(packet, sizeof(packet), &handle, 1);
    check_broken("");
    os_handle_close(&handle);
}

Test(point_peer, a_page_inside_a_message) {
    const wire_header header = {.kind = WIRE_MESSAGE, .total_bytes = 2, .bytes = 1};
    uint8_t packet[WIRE_HEADER_BYTES + 1];
    wire_encode_header(&header, packet);
    packet[WIRE_HEADER_BYTES] = 0;
    send_packet(packet, sizeof(packet), NULL, 0);
    os_handle page = send_page(POINT_PAGE_BYTES);
    check_broken("inside a message");
    os_handle_close(&page);
}

Test(point_peer, a_point_without_a_page) {
    send_record(1, 2, WIRE_READY_WORD);
    check_broken("no page of points has come");
}

Test(point_peer, a_point_that_no_page_has) {
    os_handle page = send_page(POINT_PAGE_BYTES);
    send_record(POINT_COUNT + 1, 2, WIRE_READY_NOW);
    check_broken("which no page has");
    os_handle_close(&page);
}

Test(point_peer, the_last_point_of_a_page) {
    gpuipc_buffer *opened;
    os_handle page = send_page(POINT_PAGE_BYTES);
    send_record(POINT_COUNT, 0, WIRE_READY_WORD);
    check_ok(receive(0, SOON_MS, &opened));
    check_ok(gpuipc_buffer_return_async(opened, NULL));
    check_ok(gpuipc_buffer_release(opened));
    os_handle_close(&page);
}

/* Whatever stands in the words: they are compared, and waited for no longer than asked. */
Test(point_peer, words_and_values_of_any_kind) {
    const uint64_t values[] = {0,          1, UINT64_MAX, UINT64_C(1) << 63, UINT64_C(1) << 62,
                               UINT32_MAX, 2};
    void *memory;
    gpuipc_buffer *opened[2 * sizeof(values) / sizeof(values[0])];
    size_t count = 0;
    os_handle page = send_page(POINT_PAGE_BYTES);
    check_ok(os_memory_map(page, POINT_PAGE_BYTES, true, &memory));
    for (int fill = 0; fill <= 0xFF; fill += 0xFF) {
        memset(memory, fill, POINT_PAGE_BYTES);
        for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
            send_record(7, values[i], WIRE_READY_WORD);
            gpuipc_status status = receive(0, 0, &opened[count]);
            if (status == GPUIPC_ERR_TIMEOUT) { /* what it says is never reached */
                atomic_uint_least64_t *words = memory;
                atomic_store(&words[12], values[i]);
                status = receive(0, SOON_MS, &opened[count]);
            }
            check_ok(status);
            check_ok(gpuipc_buffer_return_async(opened[count], NULL));
            count++;
        }
    }
    while (count > 0) {
        check_ok(gpuipc_buffer_release(opened[--count]));
    }
    os_memory_unmap(memory, POINT_PAGE_BYTES);
    os_handle_close(&page);
}

/* The peer has the page of this side: it writes all over it, and goes on getting buffers. */
Test(point_peer, a_page_of_ours_that_the_peer_fills_with_anything) {
    static uint8_t packet[OS_PACKET_BYTES_MAX];
    os_handle handles[OS_PACKET_HANDLES_MAX];
    size_t size;
    size_t count;
    void *memory;
    const gpuipc_outgoing message = {.struct_size = sizeof(message),
                                     .buffers = &buffer,
                                     .buffer_count = 1,
                                     .flags = GPUIPC_SEND_ASYNC};
    check_ok(gpuipc_buffer_fill_async(buffer, 0, core_unit, 1, 4, NULL));
    check_ok(gpuipc_connection_send(victim, &message, SOON_MS));
    check_ok(os_connection_receive(peer, packet, sizeof(packet), &size, handles, &count,
                                   os_deadline_after(SOON_MS)));
    cr_assert_eq(count, 1);
    check_ok(os_memory_map(handles[0], POINT_PAGE_BYTES, true, &memory));
    os_handle_close(&handles[0]);
    for (int fill = 0; fill <= 0xFF; fill += 0x11) {
        memset(memory, fill, POINT_PAGE_BYTES);
        check_ok(gpuipc_connection_send(victim, &message, SOON_MS));
        (void)core_info(buffer);
        const gpuipc_status returned = gpuipc_buffer_await_returns(buffer, 0);
        cr_assert(returned == GPUIPC_OK || returned == GPUIPC_ERR_TIMEOUT, "%s",
                  gpuipc_error_text());
        check_ok(os_connection_receive(peer, packet, sizeof(packet), &size, handles, &count,
                                       os_deadline_after(SOON_MS)));
        for (size_t i = 0; i < count; i++) {
            os_handle_close(&handles[i]);
        }
    }
    uint32_t found = 0;
    check_ok(gpuipc_buffer_read(buffer, 0, &found, sizeof(found))); /* the stream has passed */
    cr_assert_eq(found, 1);
    os_memory_unmap(memory, POINT_PAGE_BYTES);
}
