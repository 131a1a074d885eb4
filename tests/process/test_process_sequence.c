/* SPDX-License-Identifier: MIT */
/**
 * @file The sequence that goes wrong where a hand-over has no points: small integer tensors, one after the
 * other in one buffer, each filled by a stream just before it is sent, and read by a stream over here.
 */
#include <criterion/criterion.h>

#include "check.h"
#include "marks.h"
#include "partner.h"

#define TENSORS      18
#define TENSOR_BYTES 4096u

static process_case at;

TestSuite(sequence, .timeout = 100);

/* Takes in the tensors, each copied by the stream into a place of its own and then given back. */
static void consume(gpuipc_connection *from, gpuipc_buffer *seen) {
    gpuipc_buffer *opened[TENSORS];
    for (uint32_t i = 0; i < TENSORS; i++) {
        gpuipc_incoming message = {.struct_size = sizeof(message),
                                   .buffers = &opened[i],
                                   .buffer_capacity = 1,
                                   .flags = GPUIPC_RECEIVE_ASYNC};
        check_ok(gpuipc_connection_receive(from, &message, PATIENCE_MS));
        check_ok(gpuipc_buffer_copy_async(seen, (uint64_t)i * TENSOR_BYTES, opened[i], 0,
                                          TENSOR_BYTES, NULL));
        check_ok(gpuipc_buffer_return_async(opened[i], NULL));
    }
    uint32_t last;
    check_ok(gpuipc_buffer_read(seen, 0, &last, sizeof(last))); /* the stream has passed */
    for (uint32_t i = 0; i < TENSORS; i++) {
        check_ok(gpuipc_buffer_release(opened[i]));
    }
}

/* How many of the tensors have a wrong element. */
static uint32_t count_wrong(gpuipc_buffer *seen) {
    uint32_t elements[TENSOR_BYTES / sizeof(uint32_t)];
    uint32_t wrong = 0;
    for (uint32_t i = 0; i < TENSORS; i++) {
        const uint32_t value = i < 9 ? i + 1 : 2 * (i - 8);
        bool right = true;
        check_ok(gpuipc_buffer_read(seen, (uint64_t)i * TENSOR_BYTES, elements, sizeof(elements)));
        for (size_t e = 0; e < TENSOR_BYTES / sizeof(uint32_t); e++) {
            right = right && elements[e] == value;
        }
        wrong += !right;
    }
    return wrong;
}

static uint32_t run(gpuipc_transport transport, uint32_t flags, unsigned delay_ms) {
    partner producer;
    process_case_begin(&at, NULL);
    gpuipc_buffer *seen = process_case_buffer(&at, 0, TENSORS * TENSOR_BYTES, 0, 1, 0);
    partner_start(&producer, &at, NULL, NULL);
    partner_do(&producer, "GPUIPC_OK", "connect %s %d", at.name, PATIENCE_MS);
    gpuipc_connection *connection = process_case_accept(&at);
    partner_tell(&producer, "produce %u %d %u %u", TENSOR_BYTES, (int)transport, flags, delay_ms);
    consume(connection, seen);
    partner_hear(&producer, "GPUIPC_OK 0 wrong");
    const uint32_t wrong = count_wrong(seen);
    partner_end(&producer);
    check_ok(gpuipc_connection_close(connection));
    check_ok(gpuipc_buffer_release(seen));
    return wrong;
}

Test(sequence, over_vmm) {
    cr_assert_eq(run(GPUIPC_TRANSPORT_VMM, GPUIPC_SEND_ASYNC, 5), 0);
    process_case_end(&at);
}

Test(sequence, over_legacy) {
    cr_assert_eq(run(GPUIPC_TRANSPORT_LEGACY, GPUIPC_SEND_ASYNC, 5), 0);
    process_case_end(&at);
}

/* The sender says that the contents are ready while its stream has still to make them: what the other
 * tests would see if a point were missing. */
Test(sequence, without_the_wait_the_consumer_sees_something_else) {
    const uint32_t wrong = run(GPUIPC_TRANSPORT_VMM, GPUIPC_SEND_READY, 20);
    const bool is_emulated = process_case_is_emulated(&at);
    process_case_end(&at);
    if (!is_emulated) {
        cr_skip_test("only the emulated driver makes work late on purpose");
    }
    cr_assert_gt(wrong, 0, "all tensors came right although nothing waited for them");
}
