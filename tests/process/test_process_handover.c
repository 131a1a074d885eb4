/* SPDX-License-Identifier: MIT */
/** @file Buffers from one process to another: both ways, to many, many at once, in many pieces. */
#include <criterion/criterion.h>
#include <inttypes.h>

#include "check.h"
#include "marks.h"
#include "partner.h"
#include "system.h"
#include "tensors.h"

#define CONSUMERS     8
#define MANY_BUFFERS  1000
#define MANY_SEGMENTS 600
/* Handles that the largest case holds open at once on the emulated driver, and some to spare. */
#define HANDLES_NEEDED (MANY_BUFFERS + 200)

static process_case at;

static void begin(void) {
    process_case_begin(&at, NULL);
}

static void end(void) {
    process_case_end(&at);
}

TestSuite(handover, .timeout = 100);

/* A partner that is connected to this process, and the connection to it. */
static gpuipc_connection *connected_partner(partner *other) {
    partner_start(other, &at, NULL, NULL);
    partner_do(other, "GPUIPC_OK", "connect %s %d", at.name, PATIENCE_MS);
    return process_case_accept(&at);
}

Test(handover, to_the_peer_and_back) {
    begin();
    partner other;
    gpuipc_connection *connection = connected_partner(&other);
    gpuipc_buffer *buffer = process_case_buffer(&at, 0, 3 * MEBIBYTES_2, 0, 10, 65536);

    check_ok(process_case_send(connection, &buffer, 1, 100));
    partner_do(&other, "GPUIPC_OK 100 bytes 1 buffers", "receive 0 0 0 %d", PATIENCE_MS);
    partner_do(&other, "GPUIPC_OK", "check 10 65536");
    partner_do(&other, "GPUIPC_OK", "fill 20 65536");
    check_ok(marks_check(buffer, 20, 65536));
    check_ok(marks_write(buffer, 30, 65536));
    partner_do(&other, "GPUIPC_OK", "check 30 65536");

    check_ok(gpuipc_buffer_release(buffer));
    check_ok(gpuipc_connection_close(connection));
    partner_end(&other);
    end();
}

Test(handover, from_the_peer_and_back) {
    begin();
    partner other;
    gpuipc_connection *connection = connected_partner(&other);
    gpuipc_buffer_info info = {.struct_size = sizeof(info)};
    gpuipc_buffer *buffer;
    size_t count = 1;
    size_t bytes = 1;

    partner_do(&other, "GPUIPC_OK", "create 1 5000000 0 0");
    partner_do(&other, "GPUIPC_OK", "fill 40 4096");
    partner_do(&other, "GPUIPC_OK", "send 0 0 %d", PATIENCE_MS);
    check_ok(process_case_receive(connection, &buffer, &count, &bytes, PATIENCE_MS));
    cr_assert_eq(count, 1);
    cr_assert_eq(bytes, 0);
    check_ok(marks_check(buffer, 40, 4096));
    check_ok(gpuipc_buffer_get_info(buffer, &info));
    cr_assert_eq(info.bytes, 5000000);
    cr_assert_eq(info.allocated_bytes, 3 * MEBIBYTES_2);
    cr_assert_eq(info.origin, GPUIPC_BUFFER_OPENED);
    cr_assert_eq(info.device, 0);
    check_ok(marks_write(buffer, 50, 4096));
    partner_do(&other, "GPUIPC_OK", "check 50 4096");
    partner_do(&other, "GPUIPC_OK", "release");
    check_ok(marks_check(buffer, 50, 4096));

    check_ok(gpuipc_buffer_release(buffer));
    check_ok(gpuipc_connection_close(connection));
    partner_end(&other);
    end();
}

Test(handover, every_device_to_every_peer_it_reaches) {
    begin();
    partner other;
    gpuipc_connection *connection = connected_partner(&other);
    uint32_t devices = process_case_devices(&at);
    unsigned reached = 0;
    for (uint32_t owner = 0; owner < devices; owner++) {
        gpuipc_buffer *buffer = process_case_buffer(&at, owner, MEBIBYTES_2, 0, owner + 60, 4096);
        for (uint32_t peer = 0; peer < devices; peer++) {
            check_ok(process_case_send(connection, &buffer, 1, 0));
            partner_tell(&other, "receive %" PRIu32 " 0 0 %d", GPUIPC_DEVICE(peer), PATIENCE_MS);
            partner_hear(&other, "GPUIPC_");
            if (strncmp(other.answer, "GPUIPC_ERR_PEER_ACCESS_UNSUPPORTED", 34) == 0) {
                continue;
            }
            cr_assert_str_eq(other.answer, "GPUIPC_OK 0 bytes 1 buffers");
            partner_do(&other, "GPUIPC_OK", "check %" PRIu32 " 4096", owner + 60);
            partner_do(&other, "GPUIPC_OK", "fill %" PRIu32 " 4096", owner + 70);
            check_ok(marks_check(buffer, owner + 70, 4096));
            check_ok(marks_write(buffer, owner + 60, 4096));
            partner_do(&other, "GPUIPC_OK", "release");
            reached++;
        }
        check_ok(gpuipc_buffer_release(buffer));
    }
    cr_assert_geq(reached, devices); /* each reaches at least itself */
    check_ok(gpuipc_connection_close(connection));
    partner_end(&other);
    end();
}

Test(handover, many_consumers_of_one_buffer) {
    begin();
    partner others[CONSUMERS];
    gpuipc_connection *connections[CONSUMERS];
    gpuipc_buffer *buffer = process_case_buffer(&at, 0, MEBIBYTES_2, 0, 80, 0);
    uint32_t words[CONSUMERS];

    for (int i = 0; i < CONSUMERS; i++) {
        connections[i] = connected_partner(&others[i]);
        check_ok(process_case_send(connections[i], &buffer, 1, 0));
    }
    for (int i = 0; i < CONSUMERS; i++) {
        partner_do(&others[i], "GPUIPC_OK", "receive 0 0 0 %d", PATIENCE_MS);
    }
    for (int i = 0; i < CONSUMERS; i++) {
        partner_do(&others[i], "GPUIPC_OK", "check 80 0");
        partner_do(&others[i], "GPUIPC_OK", "poke %d %d", 4096 + 4 * i, 1000 + i);
    }
    check_ok(gpuipc_buffer_read(buffer, 4096, words, sizeof(words)));
    for (uint32_t i = 0; i < CONSUMERS; i++) {
        cr_assert_eq(words[i], 1000 + i);
        check_ok(gpuipc_connection_close(connections[i]));
        partner_end(&others[i]);
    }
    check_ok(gpuipc_buffer_release(buffer));
    end();
}

Test(handover, the_same_buffer_twice_in_one_message) {
    begin();
    partner other;
    gpuipc_connection *connection = connected_partner(&other);
    gpuipc_buffer *buffer = process_case_buffer(&at, 0, MEBIBYTES_2, 0, 90, 0);
    gpuipc_buffer *const twice[] = {buffer, buffer};

    check_ok(process_case_send(connection, twice, 2, 0));
    partner_do(&other, "GPUIPC_OK 0 bytes 2 buffers", "receive 0 0 0 %d", PATIENCE_MS);
    partner_do(&other, "GPUIPC_OK", "fill 91 0"); /* both: the second has the last word */
    check_ok(marks_check(buffer, 92, 0));

    check_ok(gpuipc_buffer_release(buffer));
    check_ok(gpuipc_connection_close(connection));
    partner_end(&other);
    end();
}

Test(handover, a_thousand_buffers_in_one_message) {
    static gpuipc_buffer *buffers[MANY_BUFFERS];
    uint64_t limit = system_raise_handle_limit();
    if (limit < HANDLES_NEEDED) {
        cr_skip_test("needs %d handles, the limit is %" PRIu64, HANDLES_NEEDED, limit);
    }
    begin();
    partner other;
    gpuipc_connection *connection = connected_partner(&other);
    size_t count = MANY_BUFFERS;
    size_t bytes = 0;

    partner_do(&other, "GPUIPC_OK", "create %d %" PRIu64 " 0 0", MANY_BUFFERS, MEBIBYTES_2);
    partner_do(&other, "GPUIPC_OK", "fill 100 0");
    partner_tell(&other, "send 1000 0 %d", PATIENCE_MS);
    check_ok(process_case_receive(connection, buffers, &count, &bytes, PATIENCE_MS));
    partner_hear(&other, "GPUIPC_OK");
    cr_assert_eq(count, MANY_BUFFERS);
    cr_assert_eq(bytes, 1000);
    cr_assert_eq(marks_check_bytes(process_case_bytes(), bytes), bytes);
    for (uint32_t i = 0; i < MANY_BUFFERS; i++) {
        check_ok(marks_check(buffers[i], 100 + i, 0));
        check_ok(marks_write(buffers[i], 5000 + i, 0));
    }
    partner_do(&other, "GPUIPC_OK", "check 5000 0");
    for (size_t i = 0; i < MANY_BUFFERS; i++) {
        check_ok(gpuipc_buffer_release(buffers[i]));
    }
    check_ok(gpuipc_connection_close(connection));
    partner_end(&other);
    end();
}

/* More segments than one packet has room for handles: the buffer arrives in several. */
Test(handover, a_buffer_that_spans_packets) {
    uint64_t limit = system_raise_handle_limit();
    if (limit < HANDLES_NEEDED) {
        cr_skip_test("needs %d handles, the limit is %" PRIu64, HANDLES_NEEDED, limit);
    }
    begin();
    partner other;
    gpuipc_connection *connection = connected_partner(&other);
    gpuipc_buffer_info info = {.struct_size = sizeof(info)};
    gpuipc_buffer *buffer =
        process_case_buffer(&at, 0, MANY_SEGMENTS * MEBIBYTES_2, MEBIBYTES_2, 110, MEBIBYTES_2);
    check_ok(gpuipc_buffer_get_info(buffer, &info));
    cr_assert_eq(info.segment_count, MANY_SEGMENTS);

    check_ok(process_case_send(connection, &buffer, 1, 1));
    partner_do(&other, "GPUIPC_OK 1 bytes 1 buffers", "receive 0 0 0 %d", PATIENCE_MS);
    partner_do(&other, "GPUIPC_OK device 0", "info");
    cr_assert_neq(strstr(other.answer, "segments 600 "), NULL, "%s", other.answer);
    partner_do(&other, "GPUIPC_OK", "check 110 %" PRIu64, MEBIBYTES_2);
    partner_do(&other, "GPUIPC_OK", "fill 120 %" PRIu64, MEBIBYTES_2);
    check_ok(marks_check(buffer, 120, MEBIBYTES_2));

    check_ok(gpuipc_buffer_release(buffer));
    check_ok(gpuipc_connection_close(connection));
    partner_end(&other);
    end();
}

Test(handover, many_bytes_and_buffers_in_one_message) {
    begin();
    partner other;
    gpuipc_connection *connection = connected_partner(&other);
    gpuipc_buffer *buffers[3];
    for (uint32_t i = 0; i < 3; i++) {
        buffers[i] = process_case_buffer(&at, 0, (i + 1) * MEBIBYTES_2, MEBIBYTES_2, 130 + i, 0);
    }
    check_ok(process_case_send(connection, buffers, 3, 65536));
    partner_do(&other, "GPUIPC_OK 65536 bytes 3 buffers", "receive 0 0 0 %d", PATIENCE_MS);
    partner_do(&other, "GPUIPC_OK", "check 130 0");
    partner_do(&other, "GPUIPC_OK", "release");

    /* a message may have nothing in it, and later ones still arrive */
    check_ok(process_case_send(connection, NULL, 0, 0));
    check_ok(process_case_send(connection, NULL, 0, 7));
    partner_do(&other, "GPUIPC_OK 0 bytes 0 buffers", "receive 0 0 0 %d", PATIENCE_MS);
    partner_do(&other, "GPUIPC_OK 7 bytes 0 buffers", "receive 0 0 0 %d", PATIENCE_MS);

    for (size_t i = 0; i < 3; i++) {
        check_ok(gpuipc_buffer_release(buffers[i]));
    }
    check_ok(gpuipc_connection_close(connection));
    partner_end(&other);
    end();
}

static uint8_t manifest[GPUIPC_MESSAGE_BYTES_MAX];

/* The names of a thousand tensors beside the one buffer that they are in. */
Test(handover, a_thousand_tensors_in_a_message) {
    begin();
    partner other;
    gpuipc_connection *connection = connected_partner(&other);
    gpuipc_buffer *buffer = process_case_buffer(&at, 0, TENSORS_BYTES, 0, 160, TENSOR_BYTES);
    gpuipc_outgoing message = {
        .struct_size = sizeof(message), .bytes = manifest, .buffers = &buffer, .buffer_count = 1};
    check_ok(tensors_write(manifest, sizeof(manifest), &message.bytes_size));
    partner_tell(&other, "tensors 160 %d", PATIENCE_MS);
    check_ok(gpuipc_connection_send(connection, &message, PATIENCE_MS));
    partner_hear(&other, "GPUIPC_OK");

    check_ok(gpuipc_buffer_release(buffer));
    check_ok(gpuipc_connection_close(connection));
    partner_end(&other);
    end();
}

Test(handover, a_thousand_tensors_by_ticket) {
    begin();
    partner other;
    char text[GPUIPC_TICKET_TEXT_SIZE];
    gpuipc_server *server;
    gpuipc_ticket ticket;
    gpuipc_buffer *buffer = process_case_buffer(&at, 0, TENSORS_BYTES, 0, 170, TENSOR_BYTES);
    gpuipc_share_config config = {.struct_size = sizeof(config), .attachment = manifest};
    partner_start(&other, &at, NULL, NULL);
    check_ok(tensors_write(manifest, sizeof(manifest), &config.attachment_bytes));
    check_ok(gpuipc_server_create(at.context, NULL, &server));
    check_ok(gpuipc_buffer_share(server, buffer, &config, &ticket));
    check_ok(gpuipc_ticket_to_text(&ticket, text));
    partner_do(&other, "GPUIPC_OK", "open-tensors 170 %s", text);
    partner_do(&other, "GPUIPC_OK", "open-tensors 170 %s", text);

    partner_end(&other);
    check_ok(gpuipc_server_destroy(server));
    check_ok(gpuipc_buffer_release(buffer));
    end();
}

/* Each end sends before it receives: neither may wait for the other to read. */
Test(handover, both_ends_send_first) {
    begin();
    partner other;
    gpuipc_connection *connection = connected_partner(&other);
    gpuipc_buffer *mine = process_case_buffer(&at, 0, MEBIBYTES_2, 0, 140, 0);
    gpuipc_buffer *theirs;
    size_t count = 1;

    partner_do(&other, "GPUIPC_OK", "create 1 4096 0 0");
    partner_do(&other, "GPUIPC_OK", "fill 150 0");
    check_ok(process_case_send(connection, &mine, 1, 0));
    partner_do(&other, "GPUIPC_OK", "send 0 0 %d", PATIENCE_MS);
    check_ok(process_case_receive(connection, &theirs, &count, NULL, PATIENCE_MS));
    partner_do(&other, "GPUIPC_OK", "release");
    partner_do(&other, "GPUIPC_OK", "receive 0 0 0 %d", PATIENCE_MS);
    check_ok(marks_check(theirs, 150, 0));
    partner_do(&other, "GPUIPC_OK", "check 140 0");

    check_ok(gpuipc_buffer_release(mine));
    check_ok(gpuipc_buffer_release(theirs));
    check_ok(gpuipc_connection_close(connection));
    partner_end(&other);
    end();
}
