/* SPDX-License-Identifier: MIT */
/** @file Frames of a peer that breaks the rules, and frames of ours, byte for byte:
 *  docs/wire-format.md, "The envelope on Windows". What the handles in one are worth is in
 *  test_win32_claim.c. */
#include <stdio.h>
#include <string.h>

#include "core_fixture.h"
#include "leak_gate.h"
#include "win32_raw.h"
#include "win32_record.h"

TestSuite(win32_frame, .timeout = 60);

static gpuipc_status receive(os_connection *connection, size_t capacity) {
    static unsigned char bytes[OS_PACKET_BYTES_MAX];
    static os_handle handles[OS_PACKET_HANDLES_MAX];
    size_t size = 77;
    size_t count = 77;
    gpuipc_status status = os_connection_receive(connection, bytes, capacity, &size, handles,
                                                 &count, os_deadline_after(SOON_MS));
    if (status != GPUIPC_OK) {
        cr_assert(size == 77 && count == 77, "written although it failed");
        return status;
    }
    cr_assert_eq(size, 5);
    cr_assert_eq(memcmp(bytes, "hello", 5), 0);
    os_pair_close_handles(handles, count);
    return status;
}

Test(win32_frame, a_right_one_is_taken) {
    leak_gate gate;
    raw_frame frame;
    os_connection *connection;
    leak_gate_begin(&gate);
    for (int is_client = 0; is_client < 2; is_client++) {
        HANDLE raw = raw_pipe(is_client, &connection);
        raw_frame_make(&frame, false, 0, NULL, 0);
        raw_write(raw, frame.bytes, frame.size);
        check_ok(receive(connection, 64));
        CloseHandle(raw);
        check_status(GPUIPC_ERR_PEER_CLOSED, receive(connection, 64));
        os_connection_destroy(connection);
    }
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

/** One field of a right frame without handles is given another value. */
typedef struct wrong_field {
    size_t at;
    size_t size;
    uint64_t value;
    gpuipc_status expected;
    const char *text;
} wrong_field;

static const wrong_field wrong_fields[] = {
    {RAW_AT_MAGIC, 1, 'g', GPUIPC_ERR_PROTOCOL, "envelope"},
    {RAW_AT_MAGIC + 1, 1, 0, GPUIPC_ERR_PROTOCOL, "envelope"},
    {RAW_AT_MAGIC + 2, 1, 'C', GPUIPC_ERR_PROTOCOL, "envelope"},
    {RAW_AT_MAGIC + 3, 1, 'C', GPUIPC_ERR_PROTOCOL, "envelope"}, /* a packet's own magic */
    {RAW_AT_VERSION, 2, 0, GPUIPC_ERR_VERSION, "version 0"},
    {RAW_AT_VERSION, 2, 2, GPUIPC_ERR_VERSION, "version 2"},
    {RAW_AT_VERSION, 2, 0x0101, GPUIPC_ERR_VERSION, "version 257"},
    {RAW_AT_VERSION, 2, 0xFFFF, GPUIPC_ERR_VERSION, "version 65535"},
    {RAW_AT_FLAGS, 2, 1, GPUIPC_ERR_PROTOCOL, "contradicts"}, /* a ledger and no handles */
    {RAW_AT_FLAGS, 2, 2, GPUIPC_ERR_PROTOCOL, "flags"},
    {RAW_AT_FLAGS, 2, 3, GPUIPC_ERR_PROTOCOL, "flags"},
    {RAW_AT_FLAGS, 2, 0x8000, GPUIPC_ERR_PROTOCOL, "flags"},
    {RAW_AT_HANDLES, 4, 1, GPUIPC_ERR_PROTOCOL, "contradicts"}, /* handles without a number */
    {RAW_AT_HANDLES, 4, 254, GPUIPC_ERR_HANDLE_COUNT, "254 handles"},
    {RAW_AT_HANDLES, 4, 255, GPUIPC_ERR_HANDLE_COUNT, "255 handles"},
    {RAW_AT_HANDLES, 4, 0x20000001, GPUIPC_ERR_HANDLE_COUNT, "handles"}, /* 8 times it wraps */
    {RAW_AT_HANDLES, 4, 0xFFFFFFFF, GPUIPC_ERR_HANDLE_COUNT, "handles"},
    {RAW_AT_BYTES, 4, 0, GPUIPC_ERR_PROTOCOL, "length"},
    {RAW_AT_BYTES, 4, 4, GPUIPC_ERR_PROTOCOL, "length"},
    {RAW_AT_BYTES, 4, 6, GPUIPC_ERR_PROTOCOL, "length"},
    {RAW_AT_BYTES, 4, OS_PACKET_BYTES_MAX + 1, GPUIPC_ERR_PROTOCOL, "length"},
    {RAW_AT_BYTES, 4, 0xFFFFFFFF, GPUIPC_ERR_PROTOCOL, "length"},
    {RAW_AT_NUMBER, 8, 1, GPUIPC_ERR_PROTOCOL, "contradicts"},
    {RAW_AT_NUMBER, 8, UINT64_MAX, GPUIPC_ERR_PROTOCOL, "contradicts"},
};

Test(win32_frame, every_field_that_is_wrong_is_refused) {
    leak_gate gate;
    leak_gate_begin(&gate);
    for (size_t i = 0; i < sizeof(wrong_fields) / sizeof(wrong_fields[0]); i++) {
        const wrong_field *row = &wrong_fields[i];
        raw_frame frame;
        os_connection *connection;
        HANDLE raw = raw_pipe(false, &connection);
        raw_frame_make(&frame, false, 0, NULL, 0);
        raw_put(frame.bytes, row->at, row->size, row->value);
        raw_write(raw, frame.bytes, frame.size);
        record_begin();
        check_refused(row->expected, row->text, receive(connection, 64));
        record_end();
        cr_assert_eq(record_count(RECORD_CloseHandle), 0, "row %zu", i);
        cr_assert_eq(record_count(RECORD_SetHandleInformation), 0, "row %zu", i);
        CloseHandle(raw);
        os_connection_destroy(connection);
    }
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

Test(win32_frame, every_length_that_is_wrong_is_refused) {
    static unsigned char bytes[WIN32_FRAME_BYTES_MAX + 1];
    leak_gate gate;
    raw_frame frame;
    leak_gate_begin(&gate);
    raw_frame_make(&frame, false, 0, NULL, 0);
    memcpy(bytes, frame.bytes, frame.size);
    for (size_t size = 1; size <= frame.size + 1; size++) {
        os_connection *connection;
        HANDLE raw = raw_pipe(false, &connection);
        raw_write(raw, bytes, size);
        if (size == frame.size) {
            check_ok(receive(connection, 64));
        } else {
            check_status(GPUIPC_ERR_PROTOCOL, receive(connection, 64));
        }
        CloseHandle(raw);
        os_connection_destroy(connection);
    }
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

Test(win32_frame, longer_than_any_may_be_is_refused_and_what_follows_is_not_taken_for_its_rest) {
    static unsigned char bytes[WIN32_FRAME_BYTES_MAX + 1];
    leak_gate gate;
    raw_frame frame;
    os_connection *connection;
    leak_gate_begin(&gate);
    HANDLE raw = raw_pipe(false, &connection);
    raw_frame_make(&frame, false, 0, NULL, 0);
    memcpy(bytes, frame.bytes, RAW_ENVELOPE);
    raw_put(bytes, RAW_AT_BYTES, 4, sizeof(bytes) - RAW_ENVELOPE);
    raw_write(raw, bytes, sizeof(bytes));
    check_refused(GPUIPC_ERR_PROTOCOL, "longer", receive(connection, OS_PACKET_BYTES_MAX));
    CloseHandle(raw);
    os_connection_destroy(connection);
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

Test(win32_frame, longer_than_the_receiver_has_room_for_is_refused) {
    raw_frame frame;
    os_connection *connection;
    HANDLE raw = raw_pipe(false, &connection);
    raw_frame_make(&frame, false, 0, NULL, 0);
    raw_write(raw, frame.bytes, frame.size);
    check_refused(GPUIPC_ERR_PROTOCOL, "longer", receive(connection, 4));
    raw_write(raw, frame.bytes, frame.size);
    check_ok(receive(connection, 5));
    CloseHandle(raw);
    os_connection_destroy(connection);
}

Test(win32_frame, an_empty_message_is_refused_and_not_taken_for_the_end) {
    raw_frame frame;
    os_connection *connection;
    HANDLE raw = raw_pipe(false, &connection);
    raw_write(raw, "", 0);
    check_status(GPUIPC_ERR_PROTOCOL, receive(connection, 64));
    raw_frame_make(&frame, false, 0, NULL, 0);
    raw_write(raw, frame.bytes, frame.size);
    check_ok(receive(connection, 64));
    CloseHandle(raw);
    os_connection_destroy(connection);
}

/* Since Windows 8 the reading by which it is waited for uses it up. */
Test(win32_frame, an_empty_message_is_refused_where_packets_are_waited_for) {
    raw_frame frame;
    os_connection *connection;
    os_poller *poller;
    void *tag;
    size_t count = 0;
    HANDLE raw = raw_pipe(false, &connection);
    check_ok(os_poller_create(&poller));
    check_ok(os_poller_add_connection(poller, connection, &frame));
    raw_frame_make(&frame, false, 0, NULL, 0);
    for (int waits = 0; waits < 2; waits++) { /* come while it is waited for, and before */
        if (waits == 0) {
            check_ok(os_poller_wait(poller, os_deadline_after(0), &tag, 1, &count));
            cr_assert_eq(count, 0);
        }
        raw_write(raw, "", 0);
        check_ok(os_poller_wait(poller, os_deadline_after(SOON_MS), &tag, 1, &count));
        cr_assert_eq(count, 1);
        check_status(GPUIPC_ERR_PROTOCOL, receive(connection, 64));
        raw_write(raw, frame.bytes, frame.size);
        check_ok(os_poller_wait(poller, os_deadline_after(SOON_MS), &tag, 1, &count));
        cr_assert_eq(count, 1);
        check_ok(receive(connection, 64));
    }
    os_poller_destroy(poller);
    CloseHandle(raw);
    os_connection_destroy(connection);
}

/* ---- ours ---------------------------------------------------------------------------------- */

Test(win32_frame, ours_are_as_the_document_says) {
    static unsigned char bytes[WIN32_FRAME_BYTES_MAX];
    leak_gate gate;
    os_connection *connection;
    os_handle handles[2];
    leak_gate_begin(&gate);
    HANDLE raw = raw_pipe(true, &connection);
    os_pair_make_handles(handles, 2);
    const struct {
        size_t handles; /* of the caller's */
        bool has_ledger;
        uint64_t number;
    } rows[] = {{0, false, 0}, {2, true, 1}, {1, false, 2}, {0, false, 0}, {2, false, 3}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const size_t count = rows[i].handles + rows[i].has_ledger;
        check_ok(os_connection_send(connection, "hello", 5, handles, rows[i].handles,
                                    os_deadline_after(SOON_MS)));
        cr_assert_eq(raw_read(raw, bytes, sizeof(bytes)), RAW_ENVELOPE + 8 * count + 5);
        cr_assert_eq(memcmp(bytes, "GIPE", 4), 0);
        cr_assert_eq(raw_get(bytes, RAW_AT_VERSION, 2), 1);
        cr_assert_eq(raw_get(bytes, RAW_AT_FLAGS, 2), rows[i].has_ledger);
        cr_assert_eq(raw_get(bytes, RAW_AT_HANDLES, 4), count);
        cr_assert_eq(raw_get(bytes, RAW_AT_BYTES, 4), 5);
        cr_assert_eq(raw_get(bytes, RAW_AT_NUMBER, 8), rows[i].number);
        cr_assert_eq(memcmp(bytes + RAW_ENVELOPE + 8 * count, "hello", 5), 0);
        for (size_t j = 0; j < count; j++) {
            /* Each is open here, to the object that it stands for, and is nobody's else. */
            const uint64_t value = raw_get(bytes, RAW_ENVELOPE + 8 * j, 8);
            const bool is_ledger = rows[i].has_ledger && j == 0;
            uint64_t size = 0;
            check_ok(os_memory_inspect((os_handle){(intptr_t)value}, &size));
            cr_assert_eq(size, is_ledger ? 4096 : (j - rows[i].has_ledger + 1) * 4096);
            raw_close_copy(value);
        }
    }
    os_connection_destroy(connection);
    CloseHandle(raw);
    os_pair_close_handles(handles, 2);
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

/* ---- through the whole library ------------------------------------------------------------- */

Test(win32_frame, one_that_breaks_a_rule_ends_the_connection_and_no_other, .init = core_start,
     .fini = core_finish) {
    static const size_t chosen[] = {0, 4, 9, 14, 18, 22};
    os_pair pair = {.directory = {core_directory, false}};
    core_pair other;
    gpuipc_listener *listener;
    unique_name(pair.name);
    snprintf(pair.path, sizeof(pair.path), "%s", core_directory);
    core_pair_open(&other, core_context, core_context);
    check_ok(gpuipc_listener_open(core_context, pair.name, NULL, &listener));
    for (size_t i = 0; i < sizeof(chosen) / sizeof(chosen[0]); i++) {
        const wrong_field *row = &wrong_fields[chosen[i]];
        raw_frame frame;
        unsigned char byte;
        gpuipc_connection *server;
        HANDLE raw = raw_connect(&pair);
        check_ok(gpuipc_listener_accept(listener, SOON_MS, &server));
        raw_frame_make(&frame, false, 0, NULL, 0);
        raw_put(frame.bytes, row->at, row->size, row->value);
        raw_write(raw, frame.bytes, frame.size);
        check_refused(row->expected, "the connection is broken", core_receive(server, NULL, 0));
        check_status(GPUIPC_ERR_CONNECTION_BROKEN, core_receive(server, NULL, 0));
        check_status(GPUIPC_ERR_CONNECTION_BROKEN, core_send(server, NULL, 0));
        cr_assert_eq(raw_read(raw, &byte, 1), 0, "the peer does not see the end");
        CloseHandle(raw);
        check_ok(gpuipc_connection_close(server));
    }
    check_ok(core_send(other.client, NULL, 0));
    check_ok(core_receive(other.server, NULL, 0));
    check_ok(gpuipc_listener_close(listener));
    core_pair_close(&other);
}
