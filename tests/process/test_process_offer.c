/* SPDX-License-Identifier: MIT */
/** @file What a receiver may do with a buffer: read-only offers, hidden devices, passing it on, and
 *  handles that came by a courier of the caller's own. */
#include <criterion/criterion.h>
#include <gpuipc/gpuipc_native.h>
#include <inttypes.h>
#include <stdio.h>

#include "check.h"
#include "marks.h"
#include "partner.h"
#include "raw_handle.h"
#include "raw_peer.h"

static process_case at;

static void begin(void) {
    process_case_begin(&at, NULL);
}

static void end(void) {
    process_case_end(&at);
}

TestSuite(offer, .timeout = 100);

static gpuipc_connection *connected_partner(partner *other, const char *const *environment) {
    partner_start(other, &at, NULL, environment);
    partner_do(other, "GPUIPC_OK", "connect %s %d", at.name, PATIENCE_MS);
    return process_case_accept(&at);
}

static gpuipc_status send_with_access(gpuipc_connection *to, gpuipc_buffer *buffer,
                                      gpuipc_access access) {
    gpuipc_outgoing message = {
        .struct_size = sizeof(message), .buffers = &buffer, .buffer_count = 1, .access = access};
    return gpuipc_connection_send(to, &message, PATIENCE_MS);
}

Test(offer, read_only) {
    begin();
    partner other;
    gpuipc_connection *connection = connected_partner(&other, NULL);
    gpuipc_buffer *buffer = process_case_buffer(&at, 0, MEBIBYTES_2, 0, 1, 4096);

    check_ok(send_with_access(connection, buffer, GPUIPC_ACCESS_READ));
    /* asks for more than is offered, and gets what is offered */
    partner_do(&other, "GPUIPC_OK", "receive 0 0 %d %d", (int)GPUIPC_ACCESS_READ_WRITE,
               PATIENCE_MS);
    partner_do(&other, "GPUIPC_OK device 0 access_device 0 access 1 ", "info");
    partner_do(&other, "GPUIPC_OK", "check 1 4096");
    partner_do(&other, "GPUIPC_ERR_ACCESS_DENIED", "poke 0 4711");
    partner_do(&other, "GPUIPC_ERR_ACCESS_DENIED", "set_access 0 %d",
               (int)GPUIPC_ACCESS_READ_WRITE);
    partner_do(&other, "GPUIPC_ERR_ACCESS_DENIED", "poke 0 4711");
    check_ok(marks_check(buffer, 1, 4096));

    check_ok(gpuipc_buffer_release(buffer));
    check_ok(gpuipc_connection_close(connection));
    partner_end(&other);
    end();
}

/* The offer goes along when a buffer is passed on: nobody is offered more than the one before. */
Test(offer, read_only_stays_so_when_passed_on) {
    begin();
    partner middle;
    partner last;
    char name[UNIQUE_NAME_MAX];
    gpuipc_connection *connection = connected_partner(&middle, NULL);
    gpuipc_buffer *buffer = process_case_buffer(&at, 0, MEBIBYTES_2, 0, 2, 0);
    unique_name(name);

    partner_start(&last, &at, NULL, NULL);
    partner_do(&middle, "GPUIPC_OK", "listen %s", name);
    check_ok(send_with_access(connection, buffer, GPUIPC_ACCESS_READ));
    partner_do(&middle, "GPUIPC_OK", "receive 0 %u 0 %d", GPUIPC_RECEIVE_KEEP_HANDLES, PATIENCE_MS);
    partner_do(&middle, "GPUIPC_OK", "disconnect");
    partner_do(&last, "GPUIPC_OK", "connect %s %d", name, PATIENCE_MS);
    partner_do(&middle, "GPUIPC_OK", "accept %d", PATIENCE_MS);
    partner_do(&middle, "GPUIPC_OK", "send 0 %d %d", (int)GPUIPC_ACCESS_READ_WRITE, PATIENCE_MS);
    partner_do(&last, "GPUIPC_OK", "receive 0 0 0 %d", PATIENCE_MS);
    partner_do(&last, "GPUIPC_OK", "check 2 0");
    partner_do(&last, "GPUIPC_ERR_ACCESS_DENIED", "poke 0 1");

    check_ok(gpuipc_buffer_release(buffer));
    check_ok(gpuipc_connection_close(connection));
    partner_end(&last);
    partner_end(&middle);
    end();
}

Test(offer, passed_on_by_a_process_that_kept_the_handles) {
    begin();
    partner middle;
    partner last;
    char name[UNIQUE_NAME_MAX];
    gpuipc_connection *connection = connected_partner(&middle, NULL);
    gpuipc_buffer *buffer =
        process_case_buffer(&at, 0, 3 * MEBIBYTES_2, MEBIBYTES_2, 3, MEBIBYTES_2);
    unique_name(name);

    partner_start(&last, &at, NULL, NULL);
    partner_do(&middle, "GPUIPC_OK", "listen %s", name);
    check_ok(process_case_send(connection, &buffer, 1, 0));
    partner_do(&middle, "GPUIPC_OK", "receive 0 %u 0 %d", GPUIPC_RECEIVE_KEEP_HANDLES, PATIENCE_MS);
    partner_do(&middle, "GPUIPC_OK", "disconnect");
    partner_do(&last, "GPUIPC_OK", "connect %s %d", name, PATIENCE_MS);
    partner_do(&middle, "GPUIPC_OK", "accept %d", PATIENCE_MS);
    partner_do(&middle, "GPUIPC_OK", "send 0 0 %d", PATIENCE_MS);
    partner_do(&last, "GPUIPC_OK", "receive 0 0 0 %d", PATIENCE_MS);
    partner_kill(&middle);
    partner_do(&last, "GPUIPC_OK", "check 3 %" PRIu64, MEBIBYTES_2);
    partner_do(&last, "GPUIPC_OK", "fill 4 %" PRIu64, MEBIBYTES_2);
    check_ok(marks_check(buffer, 4, MEBIBYTES_2));

    check_ok(gpuipc_buffer_release(buffer));
    check_ok(gpuipc_connection_close(connection));
    partner_end(&last);
    end();
}

Test(offer, not_passed_on_without_kept_handles) {
    begin();
    partner middle;
    partner last;
    char name[UNIQUE_NAME_MAX];
    gpuipc_connection *connection = connected_partner(&middle, NULL);
    gpuipc_buffer *buffer = process_case_buffer(&at, 0, MEBIBYTES_2, 0, 5, 0);
    unique_name(name);

    partner_start(&last, &at, NULL, NULL);
    partner_do(&middle, "GPUIPC_OK", "listen %s", name);
    check_ok(process_case_send(connection, &buffer, 1, 0));
    partner_do(&middle, "GPUIPC_OK", "receive 0 0 0 %d", PATIENCE_MS);
    partner_do(&middle, "GPUIPC_OK", "disconnect");
    partner_do(&last, "GPUIPC_OK", "connect %s %d", name, PATIENCE_MS);
    partner_do(&middle, "GPUIPC_OK", "accept %d", PATIENCE_MS);
    partner_do(&middle, "GPUIPC_ERR_NOT_SHAREABLE", "send 0 0 %d", PATIENCE_MS);
    /* nothing had left, so the connection is as good as before */
    partner_do(&middle, "GPUIPC_OK", "release");
    partner_do(&middle, "GPUIPC_OK", "send 5 0 %d", PATIENCE_MS);
    partner_do(&last, "GPUIPC_OK 5 bytes 0 buffers", "receive 0 0 0 %d", PATIENCE_MS);

    check_ok(gpuipc_buffer_release(buffer));
    check_ok(gpuipc_connection_close(connection));
    partner_end(&last);
    partner_end(&middle);
    end();
}

/* "CUDA_VISIBLE_DEVICES=GPU-..." with the UUID of one device. */
static void visible_only(uint32_t device, char *text, size_t capacity) {
    gpuipc_device_info info = {.struct_size = sizeof(info)};
    check_ok(gpuipc_device_get_info(at.context, device, &info));
    int used = snprintf(text, capacity, "CUDA_VISIBLE_DEVICES=GPU-");
    for (int i = 0; i < 16; i++) {
        const char *dash = i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "";
        used += snprintf(text + used, capacity - (size_t)used, "%s%02x", dash, info.uuid.bytes[i]);
    }
}

Test(offer, memory_of_a_device_that_is_hidden_from_the_receiver) {
    begin();
    partner other;
    char visible[96];
    if (process_case_devices(&at) < 2) {
        end();
        cr_skip_test("needs two devices, so that one can be hidden");
    }
    visible_only(1, visible, sizeof(visible));
    gpuipc_connection *connection = connected_partner(&other, (const char *const[]){visible, NULL});
    gpuipc_buffer *buffer = process_case_buffer(&at, 0, MEBIBYTES_2, 0, 6, 4096);

    check_ok(process_case_send(connection, &buffer, 1, 0));
    partner_do(&other, "GPUIPC_ERR_DEVICE_NOT_VISIBLE", "receive 0 0 0 %d", PATIENCE_MS);
    /* there is one device there, and its number is 0 */
    check_ok(process_case_send(connection, &buffer, 1, 0));
    partner_do(&other, "GPUIPC_ERR_DEVICE_NOT_FOUND", "receive %u 0 0 %d", GPUIPC_DEVICE(1),
               PATIENCE_MS);
    partner_do(&other, "GPUIPC_OK", "receive %u 0 0 %d", GPUIPC_DEVICE(0), PATIENCE_MS);
    partner_do(&other, "GPUIPC_OK device -1 access_device 0 ", "info");
    partner_do(&other, "GPUIPC_OK", "check 6 4096");
    partner_do(&other, "GPUIPC_OK", "fill 7 4096");
    check_ok(marks_check(buffer, 7, 4096));

    check_ok(gpuipc_buffer_release(buffer));
    check_ok(gpuipc_connection_close(connection));
    partner_end(&other);
    end();
}

/* Where the receiver does not see the owner, it cannot ask beforehand whether there is a way to it. */
Test(offer, memory_of_a_hidden_device_that_cannot_be_reached) {
    begin();
    partner other;
    char visible[96];
    if (!process_case_is_emulated(&at) || process_case_devices(&at) < 2) {
        end();
        cr_skip_test("needs a machine of two devices without a way between them");
    }
    visible_only(1, visible, sizeof(visible));
    gpuipc_connection *connection = connected_partner(
        &other, (const char *const[]){visible, "GPUIPC_EMULATED_MACHINE=p2p=none", NULL});
    gpuipc_buffer *buffer = process_case_buffer(&at, 0, MEBIBYTES_2, 0, 9, 0);

    check_ok(process_case_send(connection, &buffer, 1, 0));
    partner_do(&other, "GPUIPC_ERR_PEER_ACCESS_UNSUPPORTED", "receive %u 0 0 %d", GPUIPC_DEVICE(0),
               PATIENCE_MS);
    check_ok(process_case_send(connection, NULL, 0, 3));
    partner_do(&other, "GPUIPC_OK 3 bytes 0 buffers", "receive 0 0 0 %d", PATIENCE_MS);

    check_ok(gpuipc_buffer_release(buffer));
    check_ok(gpuipc_connection_close(connection));
    partner_end(&other);
    end();
}

/* gpuipc_native.h: the handle and the layout travel by a way that gpuipc knows nothing of. */
Test(offer, handles_by_another_courier) {
    begin();
    partner other;
    char name[UNIQUE_NAME_MAX];
    gpuipc_native_segment segment;
    gpuipc_native_layout layout = {.struct_size = sizeof(layout)};
    unsigned char bytes[sizeof(layout) + sizeof(segment.bytes)];
    gpuipc_buffer *buffer = process_case_buffer(&at, 0, MEBIBYTES_2, 0, 8, 4096);
    size_t count;
    unique_name(name);

    partner_start(&other, &at, NULL, NULL);
    raw_listener *listener = raw_listen(at.directory, name);
    cr_assert_neq(listener, NULL);
    partner_tell(&other, "courier %s", name);
    raw_peer *courier = raw_accept(listener, PATIENCE_MS);
    cr_assert_neq(courier, NULL);

    check_ok(gpuipc_native_export(buffer, &segment, 1, &layout, &count));
    memcpy(bytes, &layout, sizeof(layout));
    memcpy(bytes + sizeof(layout), &segment.bytes, sizeof(segment.bytes));
    cr_assert(raw_send(courier, bytes, sizeof(bytes), &segment.handle.value, 1));
    raw_handle_close(segment.handle.value);
    /* the handle keeps the memory, also while it is on its way */
    check_ok(gpuipc_buffer_release(buffer));
    partner_hear(&other, "GPUIPC_OK");
    partner_do(&other, "GPUIPC_OK", "check 8 4096");

    raw_close(courier);
    raw_listener_close(listener);
    partner_end(&other);
    end();
}

/* Handles that came by a courier of the caller's own are looked at as closely. */
Test(offer, handles_of_another_courier_that_are_no_gpu_memory) {
    begin();
    gpuipc_buffer *buffer = process_case_buffer(&at, 0, MEBIBYTES_2, 0, 1, 0);
    gpuipc_native_segment segment;
    gpuipc_native_segment bad;
    gpuipc_native_layout layout = {.struct_size = sizeof(layout)};
    gpuipc_buffer *opened;
    size_t count;
    check_ok(gpuipc_native_export(buffer, &segment, 1, &layout, &count));
    for (int kind = 0; kind < raw_handle_kinds; kind++) {
        intptr_t handle = raw_handle_open(kind);
        if (handle == RAW_HANDLE_NONE) {
            continue; /* this machine has none */
        }
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
    check_ok(gpuipc_buffer_release(buffer));
    end();
}
