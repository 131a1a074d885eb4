/* SPDX-License-Identifier: MIT */
/** @file Every case of hostile.h's tables, in both roles: the hostile end connects, or listens. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "check.h"
#include "hostile.h"

TestSuite(connection, .timeout = HOSTILE_TEST_S);

#define BOTH_ROLES(name)                                                                           \
    Test(connection, name##_from_who_connects) {                                                   \
        hostile_run(&hostile_##name, HOSTILE_CONNECTS);                                            \
    }                                                                                              \
    Test(connection, name##_from_who_listens) {                                                    \
        hostile_run(&hostile_##name, HOSTILE_LISTENS);                                             \
    }

BOTH_ROLES(packet_bytes)
BOTH_ROLES(packet_fields)
BOTH_ROLES(packet_order)
BOTH_ROLES(sizes)
BOTH_ROLES(handles)
BOTH_ROLES(pages)
BOTH_ROLES(conversations)
BOTH_ROLES(system)

static void run_kinds(hostile_role role) {
    hostile_cases made = hostile_make_kinds();
    hostile_run(&made, role);
    free((void *)(uintptr_t)made.cases);
}

Test(connection, kinds_of_handles_from_who_connects) {
    run_kinds(HOSTILE_CONNECTS);
}

Test(connection, kinds_of_handles_from_who_listens) {
    run_kinds(HOSTILE_LISTENS);
}

/* Memory of the second device, said to be the first one's. */
static void send_memory_of_another_device(hostile_peer *self) {
    const gpuipc_buffer_config config = {
        .struct_size = sizeof(config), .device = GPUIPC_DEVICE(1), .bytes = MEBIBYTES_2};
    raw_packet other;
    gpuipc_buffer *made = NULL;
    check_ok(gpuipc_buffer_create(self->at->context, &config, &made));
    cr_assert(raw_packet_make(made, &other));
    raw_packet_replace_handle(&self->packet, other.handles[0]);
    check_ok(gpuipc_buffer_release(made));
    hostile_send(self);
}

static void run_another_device(hostile_role role) {
    static const hostile_case another = {.name = "another GPU's memory",
                                         .rule = "Buffer record: the GPU that owns the memory",
                                         .expected = GPUIPC_ERR_NOT_GPU_MEMORY,
                                         .end = HOSTILE_DROPPED,
                                         .act = send_memory_of_another_device};
    const hostile_cases table = {&another, 1};
    process_case at;
    process_case_begin(&at, NULL);
    const uint32_t devices = process_case_devices(&at);
    process_case_end(&at);
    if (devices < 2) {
        cr_skip_test("needs two devices");
    }
    hostile_run(&table, role);
}

Test(connection, another_devices_memory_from_who_connects) {
    run_another_device(HOSTILE_CONNECTS);
}

Test(connection, another_devices_memory_from_who_listens) {
    run_another_device(HOSTILE_LISTENS);
}
