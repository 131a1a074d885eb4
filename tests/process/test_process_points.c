/* SPDX-License-Identifier: MIT */
/** @file Ready and done points between two processes, one of which may end at any moment. The partner's
 *  default stream is held back by its gate. */
#include <criterion/criterion.h>

#include "check.h"
#include "partner.h"

#define PAINTED_BYTES 4096

static process_case at;
static partner other;
static gpuipc_connection *connection;

static void begin_in(const char *const *environment) {
    process_case_begin(&at, NULL);
    partner_start(&other, &at, NULL, environment);
    partner_do(&other, "GPUIPC_OK", "connect %s %d", at.name, PATIENCE_MS);
    connection = process_case_accept(&at);
}

static void begin(void) {
    begin_in(NULL);
}

/* The partner is gone, or ends here. */
static void end(void) {
    if (other.process != NULL) {
        partner_end(&other);
    }
    check_ok(gpuipc_connection_close(connection));
    process_case_end(&at);
}

TestSuite(points, .timeout = 100);

static gpuipc_buffer_info info_of(gpuipc_buffer *buffer) {
    gpuipc_buffer_info info = {.struct_size = sizeof(info)};
    check_ok(gpuipc_buffer_get_info(buffer, &info));
    return info;
}

static gpuipc_status receive(uint32_t flags, gpuipc_buffer **buffers, size_t count,
                             int timeout_ms) {
    gpuipc_incoming message = {.struct_size = sizeof(message),
                               .buffers = buffers,
                               .buffer_capacity = count,
                               .flags = flags};
    return gpuipc_connection_receive(connection, &message, timeout_ms);
}

static uint32_t first_word(gpuipc_buffer *buffer) {
    uint32_t word = 0;
    check_ok(gpuipc_buffer_read(buffer, 0, &word, sizeof(word)));
    return word;
}

/* The partner makes buffers whose contents wait behind its gate, and sends them. */
static void offer_late(unsigned count, unsigned value) {
    partner_do(&other, "GPUIPC_OK", "create %u %d 0 0", count, PAINTED_BYTES);
    partner_do(&other, "GPUIPC_OK", "gate");
    partner_do(&other, "GPUIPC_OK", "paint %u %d", value, PAINTED_BYTES);
    partner_do(&other, "GPUIPC_OK", "hand %u %d", GPUIPC_SEND_ASYNC, PATIENCE_MS);
}

/* The partner gets buffers of this process. */
static void hand_over(gpuipc_buffer *const *buffers, size_t count) {
    check_ok(process_case_send(connection, buffers, count, 0));
    partner_do(&other, "GPUIPC_OK 0 bytes", "receive 0 0 0 %d", PATIENCE_MS);
}

static gpuipc_buffer *own_buffer(void) {
    return process_case_buffer(&at, 0, PAINTED_BYTES, 0, 1, 0);
}

/* What a status says of streams: that the default one of device 0 still works. */
static void check_stream_works(void) {
    gpuipc_buffer *buffer = own_buffer();
    check_ok(gpuipc_buffer_fill_async(buffer, 0, PAINTED_BYTES, 4711, 4, NULL));
    cr_assert_eq(first_word(buffer), 4711);
    check_ok(gpuipc_buffer_release(buffer));
}

/* ---- ready --------------------------------------------------------------------------------- */

Test(points, contents_that_come_late_are_seen_by_the_stream) {
    gpuipc_buffer *buffers[3];
    begin();
    gpuipc_buffer *seen = own_buffer();
    offer_late(3, 7);
    check_ok(receive(GPUIPC_RECEIVE_ASYNC, buffers, 3, PATIENCE_MS));
    check_ok(gpuipc_buffer_copy_async(seen, 0, buffers[2], 0, PAINTED_BYTES, NULL));
    partner_do(&other, "GPUIPC_OK", "open");
    cr_assert_eq(first_word(seen), 21);
    for (uint32_t i = 0; i < 3; i++) {
        cr_assert_eq(first_word(buffers[i]), 7 * (i + 1));
        cr_assert_eq(info_of(buffers[i]).is_lost, 0);
        check_ok(gpuipc_buffer_release(buffers[i]));
    }
    partner_do(&other, "GPUIPC_OK", "await %d", PATIENCE_MS);
    check_ok(gpuipc_buffer_release(seen));
    end();
}

/* A call that lets no stream wait waits itself, as long as it may. */
Test(points, a_call_waits_where_no_stream_does) {
    gpuipc_buffer *buffer;
    begin();
    offer_late(1, 9);
    check_status(GPUIPC_ERR_TIMEOUT, receive(0, &buffer, 1, 30));
    partner_do(&other, "GPUIPC_OK", "open");
    check_ok(receive(0, &buffer, 1, PATIENCE_MS));
    cr_assert_eq(first_word(buffer), 9);
    check_ok(gpuipc_buffer_release(buffer));
    end();
}

Test(points, the_producer_is_killed_while_a_stream_waits_for_it) {
    gpuipc_buffer *buffers[2];
    begin();
    offer_late(2, 7);
    check_ok(receive(GPUIPC_RECEIVE_ASYNC, buffers, 2, PATIENCE_MS));
    cr_assert_eq(info_of(buffers[0]).is_lost, 0);
    partner_kill(&other);
    check_stream_works(); /* it has gone on */
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(info_of(buffers[i]).is_lost, 1);
        check_ok(gpuipc_buffer_release(buffers[i]));
    }
    end();
}

Test(points, the_producer_is_killed_while_a_call_waits_for_it) {
    gpuipc_buffer *buffer;
    begin();
    offer_late(1, 7);
    check_status(GPUIPC_ERR_TIMEOUT, receive(0, &buffer, 1, 0));
    partner_kill(&other);
    check_refused(GPUIPC_ERR_LOST, "ended", receive(0, &buffer, 1, PATIENCE_MS));
    check_status(GPUIPC_ERR_PEER_CLOSED, receive(0, &buffer, 1, PATIENCE_MS));
    check_stream_works();
    end();
}

Test(points, the_producer_is_killed_before_anybody_waits_for_it) {
    gpuipc_buffer *buffer;
    begin();
    offer_late(1, 7);
    check_ok(receive(GPUIPC_RECEIVE_DEFERRED, &buffer, 1, PATIENCE_MS));
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_buffer_await_ready(buffer, 0));
    partner_kill(&other);
    check_refused(GPUIPC_ERR_LOST, "ended", gpuipc_buffer_await_ready(buffer, PATIENCE_MS));
    check_status(GPUIPC_ERR_LOST, gpuipc_buffer_await_ready_async(buffer, NULL));
    cr_assert_eq(info_of(buffer).is_lost, 1);
    cr_assert_eq(info_of(buffer).is_ready, 0);
    check_stream_works();
    check_ok(gpuipc_buffer_release(buffer));
    end();
}

Test(points, the_producer_is_killed_while_a_stream_waits_later) {
    gpuipc_buffer *buffer;
    begin();
    offer_late(1, 7);
    check_ok(receive(GPUIPC_RECEIVE_DEFERRED, &buffer, 1, PATIENCE_MS));
    check_ok(gpuipc_buffer_await_ready_async(buffer, NULL));
    cr_assert_eq(info_of(buffer).is_ready, 0);
    partner_kill(&other);
    check_stream_works(); /* it has gone on */
    cr_assert_eq(info_of(buffer).is_lost, 1);
    cr_assert_eq(info_of(buffer).is_ready, 0);
    check_status(GPUIPC_ERR_LOST, gpuipc_buffer_await_ready(buffer, 0));
    check_ok(gpuipc_buffer_release(buffer));
    end();
}

Test(points, contents_are_waited_for_by_the_host_later) {
    gpuipc_buffer *buffer;
    begin();
    offer_late(1, 12);
    check_ok(receive(GPUIPC_RECEIVE_DEFERRED, &buffer, 1, PATIENCE_MS));
    partner_do(&other, "GPUIPC_OK", "open");
    check_ok(gpuipc_buffer_await_ready(buffer, PATIENCE_MS));
    cr_assert_eq(first_word(buffer), 12);
    cr_assert_eq(info_of(buffer).is_ready, 1);
    check_ok(gpuipc_buffer_release(buffer));
    end();
}

/* What was ready stays ready, whatever becomes of its producer. */
Test(points, the_producer_is_killed_after_its_point) {
    gpuipc_buffer *buffer;
    begin();
    offer_late(1, 8);
    partner_do(&other, "GPUIPC_OK", "open");
    partner_do(&other, "GPUIPC_OK", "synchronize");
    partner_kill(&other);
    check_ok(receive(GPUIPC_RECEIVE_ASYNC, &buffer, 1, PATIENCE_MS));
    cr_assert_eq(first_word(buffer), 8);
    cr_assert_eq(info_of(buffer).is_lost, 0);
    check_ok(gpuipc_buffer_release(buffer));
    end();
}

/* ---- done ---------------------------------------------------------------------------------- */

Test(points, buffers_come_back_in_the_other_order) {
    gpuipc_buffer *buffers[2];
    begin();
    buffers[0] = own_buffer();
    buffers[1] = own_buffer();
    hand_over(buffers, 2);
    partner_do(&other, "GPUIPC_OK", "return 1");
    check_ok(gpuipc_buffer_await_returns(buffers[1], PATIENCE_MS));
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_buffer_await_returns(buffers[0], 30));
    cr_assert_eq(info_of(buffers[0]).lent_count, 1);
    cr_assert_eq(info_of(buffers[1]).lent_count, 0);
    partner_do(&other, "GPUIPC_ERR_INVALID_ARGUMENT", "return 1");
    partner_do(&other, "GPUIPC_OK", "return 0");
    check_ok(gpuipc_buffer_await_returns(buffers[0], PATIENCE_MS));
    check_ok(gpuipc_buffer_release(buffers[0]));
    check_ok(gpuipc_buffer_release(buffers[1]));
    end();
}

Test(points, a_buffer_comes_back_when_the_work_on_it_is_done) {
    begin();
    gpuipc_buffer *buffer = own_buffer();
    hand_over(&buffer, 1);
    partner_do(&other, "GPUIPC_OK", "gate");
    partner_do(&other, "GPUIPC_OK", "paint 5 %d", PAINTED_BYTES);
    partner_do(&other, "GPUIPC_OK", "return 0");
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_buffer_await_returns(buffer, 30));
    check_ok(gpuipc_buffer_await_returns_async(buffer, NULL));
    partner_do(&other, "GPUIPC_OK", "open");
    cr_assert_eq(first_word(buffer), 5); /* on the stream that has waited */
    check_ok(gpuipc_buffer_await_returns(buffer, 0));
    check_ok(gpuipc_buffer_release(buffer));
    end();
}

/* The first is open when the second cannot be, and is closed later than the message is refused. */
Test(points, what_was_opened_of_a_refused_message_comes_back_once) {
    static const char *const sees_one[] = {"CUDA_VISIBLE_DEVICES=0", NULL};
    gpuipc_buffer *buffers[2];
    begin_in(sees_one);
    if (process_case_devices(&at) < 2) {
        end();
        cr_skip_test("needs two devices");
    }
    for (uint32_t i = 0; i < 2; i++) {
        const gpuipc_buffer_config config = {.struct_size = sizeof(config),
                                             .device = GPUIPC_DEVICE(i),
                                             .bytes = PAINTED_BYTES,
                                             .transport = GPUIPC_TRANSPORT_LEGACY};
        check_ok(gpuipc_buffer_create(at.context, &config, &buffers[i]));
    }
    check_ok(process_case_send(connection, buffers, 2, 0));
    partner_do(&other, "GPUIPC_ERR_DEVICE_NOT_VISIBLE", "receive 0 0 0 %d", PATIENCE_MS);
    hand_over(buffers, 1);
    partner_do(&other, "GPUIPC_OK", "release");
    for (uint32_t i = 0; i < 2; i++) {
        check_ok(gpuipc_buffer_await_returns(buffers[i], PATIENCE_MS));
        cr_assert_eq(info_of(buffers[i]).lent_count, 0);
        check_ok(gpuipc_buffer_release(buffers[i]));
    }
    end();
}

/* The end of a conversation proves nothing: the process may still use what it has. */
Test(points, a_consumer_that_hangs_up_still_has_the_buffer) {
    begin();
    gpuipc_buffer *buffer = own_buffer();
    hand_over(&buffer, 1);
    partner_do(&other, "GPUIPC_OK", "disconnect");
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_buffer_await_returns(buffer, 30));
    cr_assert_eq(info_of(buffer).lent_count, 1);
    partner_do(&other, "GPUIPC_OK", "release");
    check_ok(gpuipc_buffer_await_returns(buffer, PATIENCE_MS));
    check_ok(gpuipc_buffer_release(buffer));
    end();
}

Test(points, a_consumer_is_killed_while_it_works_on_the_buffer) {
    begin();
    gpuipc_buffer *buffer = own_buffer();
    hand_over(&buffer, 1);
    partner_do(&other, "GPUIPC_OK", "gate");
    partner_do(&other, "GPUIPC_OK", "paint 5 %d", PAINTED_BYTES);
    partner_do(&other, "GPUIPC_OK", "return 0");
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_buffer_await_returns(buffer, 30));
    partner_kill(&other);
    check_ok(gpuipc_buffer_await_returns(buffer, PATIENCE_MS));
    cr_assert_eq(info_of(buffer).lent_count, 0);
    check_ok(gpuipc_buffer_release(buffer));
    check_stream_works();
    end();
}

Test(points, a_consumer_is_killed_while_a_stream_waits_for_it) {
    begin();
    gpuipc_buffer *buffer = own_buffer();
    hand_over(&buffer, 1);
    check_ok(gpuipc_buffer_await_returns_async(buffer, NULL));
    check_ok(gpuipc_buffer_fill_async(buffer, 0, PAINTED_BYTES, 6, 4, NULL));
    partner_kill(&other);
    cr_assert_eq(first_word(buffer), 6);
    check_ok(gpuipc_buffer_release(buffer));
    end();
}

Test(points, a_consumer_that_never_looks_is_waited_for_until_it_ends) {
    begin();
    gpuipc_buffer *buffer = own_buffer();
    check_ok(process_case_send(connection, &buffer, 1, 0));
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_buffer_await_returns(buffer, 30));
    partner_end(&other);
    check_ok(gpuipc_buffer_await_returns(buffer, PATIENCE_MS));
    check_ok(gpuipc_buffer_release(buffer));
    end();
}
