/* SPDX-License-Identifier: MIT */
/** @file That the runner tells what it is there for: faults planted in cases of its own. */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "hostile.h"
#include "os.h"
#include "raw_handle.h"

TestSuite(runner, .timeout = HOSTILE_TEST_S);

#define ROUNDS 2
/* What is planted never comes back. */
#define SHORT_BACK_MS 100

/* The case is run as it is, and what the runner says has @p text in it. */
static void expect_told(const hostile_case *of, int patience_ms, const char *text) {
    hostile_ground on;
    hostile_verdict verdict;
    hostile_begin(&on);
    on.rounds = ROUNDS;
    on.patience_ms = patience_ms;
    on.back_ms = SHORT_BACK_MS;
    cr_assert_not(hostile_check(&on, of, HOSTILE_CONNECTS, &verdict), "\"%s\" passed", of->name);
    cr_assert(strstr(verdict.text, text) != NULL, "\"%s\" is not in \"%s\"", text, verdict.text);
    cr_assert(strstr(verdict.text, of->name) != NULL, "%s", verdict.text);
    honest_end(&on.honest);
    (void)leak_gate_end(&on.at.gate); /* what was planted is still there */
    runtime_directory_remove(on.at.directory);
}

static intptr_t leaked[ROUNDS];

static void leaks_a_handle(hostile_peer *self) {
    leaked[self->round] = raw_handle_open(RAW_HANDLE_MEMORY);
    self->packet.bytes[RAW_MAGIC] = 0;
    hostile_send_bytes(self, self->packet.bytes, sizeof(self->packet.bytes), 1);
}

Test(runner, tells_a_handle_that_is_left_open) {
    const hostile_case planted = {.name = "leaks a handle",
                                  .rule = "planted",
                                  .expected = GPUIPC_ERR_PROTOCOL,
                                  .act = leaks_a_handle};
    expect_told(&planted, PATIENCE_MS, "left behind");
    cr_assert_neq(leaked[0], RAW_HANDLE_NONE);
}

/* As a library that forgets what it has imported. */
static void leaks_a_buffer(hostile_peer *self) {
    gpuipc_buffer *kept = NULL;
    size_t count = 1;
    hostile_send(self);
    check_ok(process_case_receive(self->connection, &kept, &count, NULL, PATIENCE_MS));
    hostile_send(self);
}

/* A GPU's driver does not say what is left in it. */
Test(runner, tells_what_is_left_in_the_driver) {
    const char *driver = getenv("GPUIPC_CUDA_DRIVER");
    if (driver == NULL || strcmp(driver, "emulated") != 0) {
        cr_skip_test("needs the emulated driver");
    }
    const hostile_case planted = {.name = "leaks a buffer",
                                  .rule = "planted",
                                  .expected = GPUIPC_ERR_PROTOCOL,
                                  .act = leaks_a_buffer};
    expect_told(&planted, PATIENCE_MS, "emulated driver");
}

static void says_nothing(hostile_peer *self) {
    (void)self;
}

Test(runner, tells_a_hang) {
    const hostile_case planted = {.name = "says nothing, and an end is expected",
                                  .rule = "planted",
                                  .expected = GPUIPC_ERR_PROTOCOL,
                                  .act = says_nothing};
    expect_told(&planted, 50, "hangs");
}

static void of_another_version(raw_packet *packet) {
    packet->buffer.memory = SEGMENT_MEMORY_FABRIC + 1;
}

Test(runner, tells_a_wrong_status) {
    const hostile_case planted = {.name = "answers VERSION where PROTOCOL is expected",
                                  .rule = "planted",
                                  .expected = GPUIPC_ERR_PROTOCOL,
                                  .spoil = of_another_version};
    expect_told(&planted, PATIENCE_MS, "GPUIPC_ERR_VERSION");
}

static void is_good(hostile_peer *self) {
    hostile_send(self);
}

Test(runner, tells_that_nothing_was_refused) {
    const hostile_case planted = {.name = "a good message",
                                  .rule = "planted",
                                  .expected = GPUIPC_ERR_PROTOCOL,
                                  .act = is_good};
    expect_told(&planted, PATIENCE_MS, "GPUIPC_OK");
}

/* A connection that goes on where it has to end. */
static void refused_and_goes_on(hostile_peer *self) {
    memset(self->packet.buffer.device_uuid, 0x5A, sizeof(self->packet.buffer.device_uuid));
    hostile_send(self);
}

Test(runner, tells_a_connection_that_goes_on) {
    const hostile_case planted = {.name = "costs its message, and the end is expected",
                                  .rule = "planted",
                                  .expected = GPUIPC_ERR_DEVICE_NOT_VISIBLE,
                                  .act = refused_and_goes_on};
    expect_told(&planted, 50, "hangs");
}
