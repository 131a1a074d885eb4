/* SPDX-License-Identifier: MIT */
/**
 * @file What every transport does, written once: memory of one process in another's hands. Built once
 * for each transport.
 */
#include <inttypes.h>

#include "check.h"
#include "device_memory.h"
#include "transport_case.h"

#define BYTES  (3 * MEBIBYTES_2)
#define ROUNDS 20
/* A pool takes and gives back its memory in chunks of 32 MiB, and other processes use the device too. */
#define MEMORY_SLACK (UINT64_C(64) << 20)

TestSuite(transport, .timeout = 100);

static transport_case at;

Test(transport, data_goes_both_ways) {
    transport_case_begin(&at);
    gpuipc_buffer *buffer = transport_case_buffer(&at, BYTES, 10);
    transport_case_give(&at, buffer);
    partner_do(&at.other, "GPUIPC_OK", "check 10 65536");
    partner_do(&at.other, "GPUIPC_OK", "fill 20 65536");
    check_ok(marks_check(buffer, 20, 65536));
    check_ok(marks_write(buffer, 30, 65536));
    partner_do(&at.other, "GPUIPC_OK", "check 30 65536");
    check_ok(gpuipc_buffer_release(buffer));
    transport_case_end(&at);
}

Test(transport, memory_of_the_peers_is_opened) {
    transport_case_begin(&at);
    gpuipc_buffer_info info = {.struct_size = sizeof(info)};
    gpuipc_buffer *opened;
    transport_case_partner_buffer(&at, BYTES, 40);
    partner_do(&at.other, "GPUIPC_OK", "send 0 0 %d", PATIENCE_MS);
    check_ok(transport_case_take(&at, &opened));
    check_ok(gpuipc_buffer_get_info(opened, &info));
    cr_assert_eq(info.transport, promise.id);
    cr_assert_eq(info.origin, GPUIPC_BUFFER_OPENED);
    cr_assert_eq(info.bytes, BYTES);
    cr_assert_geq(info.allocated_bytes, BYTES);
    cr_assert_eq(info.device, 0);
    cr_assert_eq(info.access, GPUIPC_ACCESS_READ_WRITE);
    check_ok(marks_check(opened, 40, 65536));
    check_ok(marks_write(opened, 50, 65536));
    partner_do(&at.other, "GPUIPC_OK", "check 50 65536");
    check_ok(gpuipc_buffer_release(opened));
    transport_case_end(&at);
}

Test(transport, a_range_of_it_is_wrapped_and_sent) {
    transport_case_begin(&at);
    gpuipc_buffer_info info = {.struct_size = sizeof(info)};
    gpuipc_buffer *whole = transport_case_buffer(&at, BYTES, 60);
    gpuipc_buffer *part;
    check_ok(gpuipc_buffer_get_info(whole, &info));
    check_ok(gpuipc_buffer_wrap(at.process.context, info.address + 8192, MEBIBYTES_2, &part));
    check_ok(gpuipc_buffer_get_info(part, &info));
    cr_assert_eq(info.bytes, MEBIBYTES_2);
    cr_assert_eq(info.transport, promise.id);
    check_ok(marks_write(part, 61, 65536));
    transport_case_give(&at, part);
    partner_do(&at.other, "GPUIPC_OK", "check 61 65536");
    partner_do(&at.other, "GPUIPC_OK", "fill 62 65536");
    check_ok(marks_check(part, 62, 65536));
    partner_do(&at.other, "GPUIPC_OK", "release");
    check_ok(gpuipc_buffer_release(part));
    check_ok(gpuipc_buffer_release(whole));
    transport_case_end(&at);
}

Test(transport, what_is_offered_for_reading_is_not_written) {
    transport_case_begin(&at);
    gpuipc_buffer *buffer = transport_case_buffer(&at, BYTES, 70);
    gpuipc_outgoing message = {.struct_size = sizeof(message),
                               .buffers = &buffer,
                               .buffer_count = 1,
                               .access = GPUIPC_ACCESS_READ};
    check_ok(gpuipc_connection_send(at.connection, &message, PATIENCE_MS));
    partner_do(&at.other, "GPUIPC_OK 0 bytes 1 buffers", "receive 0 0 0 %d", PATIENCE_MS);
    partner_do(&at.other, "GPUIPC_OK", "check 70 65536");
    partner_do(&at.other, "GPUIPC_ERR_ACCESS_DENIED", "poke 0 1");
    partner_do(&at.other, "GPUIPC_ERR_ACCESS_DENIED", "set_access 0 3");
    check_ok(marks_check(buffer, 70, 65536));
    check_ok(gpuipc_buffer_release(buffer));
    transport_case_end(&at);
}

Test(transport, it_is_received_twice_and_released_one_by_one) {
    transport_case_begin(&at);
    gpuipc_buffer *buffer = transport_case_buffer(&at, BYTES, 80);
    transport_case_give(&at, buffer);
    transport_case_give(&at, buffer);
    partner_do(&at.other, "GPUIPC_OK", "release 1");
    partner_do(&at.other, "GPUIPC_OK", "check 80 65536");
    transport_case_give(&at, buffer);
    partner_do(&at.other, "GPUIPC_OK", "release 1");
    check_ok(marks_write(buffer, 81, 65536));
    partner_do(&at.other, "GPUIPC_OK", "check 81 65536");
    partner_do(&at.other, "GPUIPC_OK", "release");
    transport_case_give(&at, buffer);
    partner_do(&at.other, "GPUIPC_OK", "check 81 65536");
    check_ok(gpuipc_buffer_release(buffer));
    transport_case_end(&at);
}

Test(transport, it_comes_back_to_its_own_process) {
    transport_case_begin(&at);
    gpuipc_connection *near_end;
    gpuipc_connection *far_end;
    gpuipc_buffer *opened;
    size_t count = 1;
    gpuipc_buffer *buffer = transport_case_buffer(&at, BYTES, 90);
    process_case_connect(&at.process, &near_end, &far_end);
    check_ok(process_case_send(near_end, &buffer, 1, 0));
    check_ok(process_case_receive(far_end, &opened, &count, NULL, PATIENCE_MS));
    check_ok(marks_check(opened, 90, 65536));
    check_ok(marks_write(opened, 91, 65536));
    check_ok(marks_check(buffer, 91, 65536));
    check_ok(gpuipc_buffer_release(buffer)); /* the other one keeps it */
    check_ok(marks_check(opened, 91, 65536));
    check_ok(gpuipc_buffer_release(opened));

    /* released as soon as it is sent */
    buffer = transport_case_buffer(&at, BYTES, 92);
    check_ok(process_case_send(near_end, &buffer, 1, 0));
    check_ok(gpuipc_buffer_release(buffer));
    check_ok(process_case_receive(far_end, &opened, &count, NULL, PATIENCE_MS));
    check_ok(marks_check(opened, 92, 65536));
    check_ok(gpuipc_buffer_release(opened));
    check_ok(gpuipc_connection_close(near_end));
    check_ok(gpuipc_connection_close(far_end));
    transport_case_end(&at);
}

Test(transport, a_receiver_sends_it_back) {
    transport_case_begin(&at);
    gpuipc_buffer *opened;
    gpuipc_buffer *buffer = transport_case_buffer(&at, BYTES, 100);
    check_ok(process_case_send(at.connection, &buffer, 1, 0));
    partner_do(&at.other, "GPUIPC_OK 0 bytes 1 buffers", "receive 0 1 0 %d", PATIENCE_MS);
    if (promise.passed_on) {
        partner_do(&at.other, "GPUIPC_OK", "send 0 0 %d", PATIENCE_MS);
        check_ok(transport_case_take(&at, &opened));
        check_ok(marks_check(opened, 100, 65536));
        check_ok(marks_write(opened, 101, 65536));
        partner_do(&at.other, "GPUIPC_OK", "check 101 65536");
        check_ok(marks_check(buffer, 101, 65536));
        check_ok(gpuipc_buffer_release(opened));
    } else {
        partner_do(&at.other, "GPUIPC_ERR_NOT_SHAREABLE", "send 0 0 %d", PATIENCE_MS);
        partner_do(&at.other, "GPUIPC_OK", "check 100 65536");
    }
    check_ok(gpuipc_buffer_release(buffer));
    transport_case_end(&at);
}

Test(transport, the_owner_releases_first) {
    transport_case_begin(&at);
    gpuipc_buffer *buffer = transport_case_buffer(&at, BYTES, 110);
    check_ok(process_case_send(at.connection, &buffer, 1, 0));
    check_ok(gpuipc_buffer_release(buffer)); /* before it is opened */
    partner_do(&at.other, "GPUIPC_OK 0 bytes 1 buffers", "receive 0 0 0 %d", PATIENCE_MS);
    /* memory that were free would be handed out again here */
    gpuipc_buffer *next = transport_case_buffer(&at, BYTES, 111);
    partner_do(&at.other, "GPUIPC_OK", "check 110 65536");
    partner_do(&at.other, "GPUIPC_OK", "fill 112 65536");
    check_ok(marks_check(next, 111, 65536));
    partner_do(&at.other, "GPUIPC_OK", "check 112 65536");
    partner_do(&at.other, "GPUIPC_OK", "release");
    check_ok(gpuipc_buffer_release(next));
    transport_case_end(&at);
}

Test(transport, the_receiver_is_killed) {
    transport_case_begin(&at);
    gpuipc_buffer *buffer = transport_case_buffer(&at, BYTES, 120);
    transport_case_give(&at, buffer);
    check_ok(process_case_send(at.connection, &buffer, 1, 0)); /* and one that it never opens */
    partner_kill(&at.other);
    check_ok(marks_check(buffer, 120, 65536));
    check_ok(marks_write(buffer, 121, 65536));
    check_ok(marks_check(buffer, 121, 65536));
    check_ok(gpuipc_buffer_release(buffer));
    transport_case_end_alone(&at);
}

Test(transport, the_owner_is_killed_while_it_is_open) {
    transport_case_begin(&at);
    if (!promise.survives_owner) {
        transport_case_end(&at);
        cr_skip_test("%s: the memory is gone with its owner", gpuipc_transport_name(promise.id));
    }
    gpuipc_buffer *opened;
    transport_case_partner_buffer(&at, BYTES, 130);
    partner_do(&at.other, "GPUIPC_OK", "send 0 0 %d", PATIENCE_MS);
    check_ok(transport_case_take(&at, &opened));
    partner_kill(&at.other);
    check_ok(marks_check(opened, 130, 65536));
    check_ok(marks_write(opened, 131, 65536));
    check_ok(marks_check(opened, 131, 65536));
    check_ok(gpuipc_buffer_release(opened));
    transport_case_end_alone(&at);
}

Test(transport, the_owner_is_killed_before_it_is_opened) {
    transport_case_begin(&at);
    gpuipc_buffer *opened = NULL;
    if (!promise.survives_owner) {
        transport_case_end(&at);
        cr_skip_test("%s: the memory is gone with its owner", gpuipc_transport_name(promise.id));
    }
    transport_case_partner_buffer(&at, BYTES, 140);
    partner_do(&at.other, "GPUIPC_OK", "send 0 0 %d", PATIENCE_MS);
    partner_kill(&at.other);
    check_status(promise.after_owner, transport_case_take(&at, &opened));
    if (opened != NULL) {
        check_ok(marks_check(opened, 140, 65536));
        check_ok(gpuipc_buffer_release(opened));
    }
    transport_case_end_alone(&at);
}

Test(transport, each_device_opens_what_it_reaches) {
    transport_case_begin(&at);
    const uint32_t devices = process_case_devices(&at.process);
    gpuipc_buffer *buffer = transport_case_buffer(&at, BYTES, 145);
    uint32_t reached = 0;
    for (uint32_t i = 0; i < devices; i++) {
        check_ok(process_case_send(at.connection, &buffer, 1, 0));
        partner_tell(&at.other, "receive %" PRIu32 " 0 0 %d", GPUIPC_DEVICE(i), PATIENCE_MS);
        partner_hear(&at.other, "GPUIPC_");
        if (strncmp(at.other.answer, "GPUIPC_ERR_PEER_ACCESS_UNSUPPORTED", 34) == 0) {
            continue;
        }
        cr_assert_str_eq(at.other.answer, "GPUIPC_OK 0 bytes 1 buffers");
        partner_do(&at.other, "GPUIPC_OK", "check 145 65536");
        partner_do(&at.other, "GPUIPC_OK", "fill 146 65536");
        check_ok(marks_check(buffer, 146, 65536));
        check_ok(marks_write(buffer, 145, 65536));
        partner_do(&at.other, "GPUIPC_OK", "release");
        reached++;
    }
    cr_assert_geq(reached, 1);
    check_ok(gpuipc_buffer_release(buffer));
    transport_case_end(&at);
}

static uint64_t used_memory(void) {
    uint64_t bytes = 0;
    cr_assert(device_memory_get_used(&bytes));
    return bytes;
}

Test(transport, twenty_rounds_leave_nothing_behind) {
    transport_case_begin(&at);
    const uint64_t bytes = 8 * MEBIBYTES_2;
    uint64_t before = 0;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        gpuipc_buffer *opened;
        gpuipc_buffer *buffer = transport_case_buffer(&at, bytes, 150 + i);
        transport_case_give(&at, buffer);
        partner_do(&at.other, "GPUIPC_OK", "check %" PRIu32 " 65536", 150 + i);
        if (i % 2 == 0) {
            partner_do(&at.other, "GPUIPC_OK", "release");
            check_ok(gpuipc_buffer_release(buffer));
        } else {
            check_ok(gpuipc_buffer_release(buffer));
            partner_do(&at.other, "GPUIPC_OK", "release");
        }
        transport_case_partner_buffer(&at, bytes, 200 + i);
        partner_do(&at.other, "GPUIPC_OK", "send 0 0 %d", PATIENCE_MS);
        check_ok(transport_case_take(&at, &opened));
        check_ok(marks_check(opened, 200 + i, 65536));
        check_ok(gpuipc_buffer_release(opened));
        partner_do(&at.other, "GPUIPC_OK", "release");
        if (i == 1) {
            before = used_memory();
        }
    }
    const uint64_t after = used_memory();
    cr_assert_leq(after, before + MEMORY_SLACK,
                  "%" PRIu64 " bytes of the device were in use, now %" PRIu64, before, after);
    transport_case_end(&at);
}
