/* SPDX-License-Identifier: MIT */
/** @file Marks between two processes, one of which keeps silent, hangs up, or ends at any moment. The partner's default
 *  stream is held back by its gate. */
#include <criterion/criterion.h>

#include "check.h"
#include "partner.h"

#define BYTES 4096

static process_case at;
static partner other;
static gpuipc_connection *connection;
static gpuipc_buffer *opened;

TestSuite(mark, .timeout = 100);

/* The partner's buffer is open here, and its default stream is held back. */
static void begin(void) {
    size_t count = 1;
    size_t bytes = 0;
    process_case_begin(&at, NULL);
    partner_start(&other, &at, NULL, NULL);
    partner_do(&other, "GPUIPC_OK", "connect %s %d", at.name, PATIENCE_MS);
    connection = process_case_accept(&at);
    partner_do(&other, "GPUIPC_OK", "create 1 %d 0 0", BYTES);
    partner_do(&other, "GPUIPC_OK", "hand %u %d", (unsigned)GPUIPC_SEND_READY, PATIENCE_MS);
    check_ok(process_case_receive(connection, &opened, &count, &bytes, PATIENCE_MS));
    partner_do(&other, "GPUIPC_OK", "gate");
}

/* The partner is gone, or ends here. */
static void end(void) {
    check_ok(gpuipc_buffer_release(opened));
    if (other.process != NULL) {
        partner_end(&other);
    }
    check_ok(gpuipc_connection_close(connection));
    process_case_end(&at);
}

static int32_t is_lost(void) {
    gpuipc_buffer_info info = {.struct_size = sizeof(info)};
    check_ok(gpuipc_buffer_get_info(opened, &info));
    return info.is_lost;
}

static uint32_t first_word(gpuipc_buffer *buffer) {
    uint32_t word = 0;
    check_ok(gpuipc_buffer_read(buffer, 0, &word, sizeof(word)));
    return word;
}

static gpuipc_buffer *own_buffer(void) {
    return process_case_buffer(&at, 0, BYTES, 0, 1, 0);
}

Test(mark, orders_work_of_two_processes_on_what_is_open) {
    begin();
    gpuipc_buffer *seen = own_buffer();
    partner_do(&other, "GPUIPC_OK", "paint 7 %d", BYTES);
    const gpuipc_mark made = partner_mark(&other, "mark");
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_buffer_await_mark(opened, &made, 30));
    check_ok(gpuipc_buffer_await_mark_async(opened, &made, NULL));
    check_ok(gpuipc_buffer_copy_async(seen, 0, opened, 0, BYTES, NULL));
    partner_do(&other, "GPUIPC_OK", "open");
    cr_assert_eq(first_word(seen), 7);
    check_ok(gpuipc_buffer_await_mark(opened, &made, 0));
    cr_assert_eq(is_lost(), 0);
    check_ok(gpuipc_buffer_release(seen));
    end();
}

Test(mark, the_maker_is_killed_while_a_call_waits) {
    begin();
    const gpuipc_mark made = partner_mark(&other, "mark");
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_buffer_await_mark(opened, &made, 0));
    partner_kill(&other);
    check_refused(GPUIPC_ERR_LOST, "ended", gpuipc_buffer_await_mark(opened, &made, PATIENCE_MS));
    end();
}

Test(mark, the_maker_is_killed_while_a_stream_waits) {
    begin();
    gpuipc_buffer *seen = own_buffer();
    const gpuipc_mark made = partner_mark(&other, "mark");
    check_ok(gpuipc_buffer_await_mark_async(opened, &made, NULL));
    check_ok(gpuipc_buffer_fill_async(seen, 0, BYTES, 4711, 4, NULL));
    partner_kill(&other);
    cr_assert_eq(first_word(seen), 4711, "the stream has gone on");
    cr_assert_eq(is_lost(), 1);
    check_ok(gpuipc_buffer_release(seen));
    end();
}

/* What was reached stays reached, whatever becomes of its maker. */
Test(mark, the_maker_is_killed_after_it_was_reached) {
    begin();
    const gpuipc_mark made = partner_mark(&other, "mark");
    partner_do(&other, "GPUIPC_OK", "open");
    partner_do(&other, "GPUIPC_OK", "synchronize");
    partner_kill(&other);
    check_ok(gpuipc_buffer_await_mark(opened, &made, 0));
    check_ok(gpuipc_buffer_await_mark_async(opened, &made, NULL));
    cr_assert_eq(is_lost(), 0);
    end();
}

/* Marks need no conversation: they hold for what is still open. */
Test(mark, the_connection_is_closed_before_it_is_made) {
    begin();
    partner_do(&other, "GPUIPC_OK", "disconnect");
    const gpuipc_mark made = partner_mark(&other, "mark");
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_buffer_await_mark(opened, &made, 30));
    partner_do(&other, "GPUIPC_OK", "open");
    check_ok(gpuipc_buffer_await_mark(opened, &made, PATIENCE_MS));
    end();
}
