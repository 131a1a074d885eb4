/* SPDX-License-Identifier: MIT */
/** @file Measurements: how they run and fail. Whether the figures are right: test_transport_speed.c. */
#include <stdio.h>
#include <string.h>

#include "cuda/context.h"
#include "leak_gate.h"
#include "transport_machine.h"

TestSuite(measure, .init = core_start, .fini = core_finish, .timeout = 100);
TestSuite(measure_machine, .init = core_start_without_context, .fini = core_finish, .timeout = 100);

static const gpuipc_transport every[] = {GPUIPC_TRANSPORT_VMM,    GPUIPC_TRANSPORT_POOL,
                                         GPUIPC_TRANSPORT_LEGACY, GPUIPC_TRANSPORT_P2P,
                                         GPUIPC_TRANSPORT_HOST,   GPUIPC_TRANSPORT_FABRIC};
#define EVERY (sizeof(every) / sizeof(every[0]))

static void measure_pair(gpuipc_context *made, gpuipc_transport which, uint32_t owner,
                         uint32_t user) {
    const gpuipc_transport_pair pair = machine_pair(owner, user);
    gpuipc_measurement measured = {.struct_size = sizeof(measured)};
    const gpuipc_transport_info before = machine_ask(made, which, &pair);
    if (!before.available) {
        check_refused(GPUIPC_ERR_NO_TRANSPORT, before.sentence,
                      gpuipc_transport_measure(made, which, &pair, &measured));
        cr_assert_eq(measured.bytes, 0);
        return;
    }
    check_ok(gpuipc_transport_measure(made, which, &pair, &measured));
    cr_assert_geq(measured.bytes, 2u << 20);
    cr_assert_gt(measured.one_way_bytes_per_second, 0);
    cr_assert_gt(measured.latency_ns, 0);
    cr_assert_eq(measured.both_ways_bytes_per_second == 0, owner == user);
    const gpuipc_transport_info after = machine_ask(made, which, &pair);
    cr_assert_eq(after.bandwidth_source, GPUIPC_FIGURE_MEASURED);
    cr_assert_eq(after.bandwidth_bytes_per_second, measured.one_way_bytes_per_second);
    cr_assert_eq(after.latency_ns, measured.latency_ns);
    cr_assert_eq(after.proof, before.proof);
}

Test(measure, every_transport_that_is_available) {
    machine_keep(core_context, NULL);
    for (size_t i = 0; i < EVERY; i++) {
        measure_pair(core_context, every[i], 0, 0);
        measure_pair(core_context, every[i], 0, core_device_count - 1);
    }
}

Test(measure, wrong_questions_are_refused) {
    gpuipc_transport_pair pair = machine_pair(0, core_device_count);
    gpuipc_measurement measured = {.struct_size = sizeof(measured)};
    check_status(GPUIPC_ERR_DEVICE_NOT_FOUND,
                 gpuipc_transport_measure(core_context, GPUIPC_TRANSPORT_VMM, &pair, &measured));
    pair.user = 0;
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_transport_measure(core_context, (gpuipc_transport)99, &pair, &measured));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_transport_measure(NULL, GPUIPC_TRANSPORT_VMM, &pair, &measured));
    measured.struct_size = 8;
    check_status(GPUIPC_ERR_STRUCT_SIZE,
                 gpuipc_transport_measure(core_context, GPUIPC_TRANSPORT_VMM, &pair, &measured));
    measured.struct_size = sizeof(measured);
    pair.owner = GPUIPC_DEVICE_NONE;
    memset(pair.owner_uuid.bytes, 0xA5, sizeof(pair.owner_uuid.bytes));
    check_refused(GPUIPC_ERR_NO_TRANSPORT, "does not see",
                  gpuipc_transport_measure(core_context, GPUIPC_TRANSPORT_VMM, &pair, &measured));
    cr_assert_eq(measured.bytes, 0);
}

Test(measure_machine, with_little_memory_is_measured_with_less) {
    gpuipc_context *made = machine_context("memory=20M");
    const gpuipc_transport_pair pair = machine_pair(0, 1);
    gpuipc_measurement measured = {.struct_size = sizeof(measured)};
    check_ok(gpuipc_transport_measure(made, GPUIPC_TRANSPORT_VMM, &pair, &measured));
    cr_assert_eq(measured.bytes, 2u << 20);
    check_ok(gpuipc_context_destroy(made));
}

/* What trials have left until somebody may wait for the devices is no measurement's loss. */
Test(measure_machine, with_many_pairs_is_measured_with_as_much_each_time) {
    gpuipc_context *made = machine_context("devices=2;memory=40M");
    for (size_t i = 0; i < EVERY; i++) {
        for (uint32_t each = 0; each < 4; each++) {
            const gpuipc_transport_pair pair = machine_pair(each / 2, each % 2);
            gpuipc_measurement measured = {.struct_size = sizeof(measured)};
            if (machine_ask(made, every[i], &pair).available) {
                check_ok(gpuipc_transport_measure(made, every[i], &pair, &measured));
                cr_assert_eq(measured.bytes, 4u << 20);
            }
        }
    }
    check_ok(gpuipc_context_destroy(made));
}

/* How much is free is only of use where there is little. */
Test(measure_machine, whose_free_memory_is_not_known_is_measured) {
    gpuipc_context *made = machine_context("");
    core_set_failures("cuMemGetInfo:*=999");
    machine_keep(made, NULL);
    measure_pair(made, GPUIPC_TRANSPORT_VMM, 0, 1);
    core_set_failures("");
    check_ok(gpuipc_context_destroy(made));
}

Test(measure_machine, without_memory_is_not_measured) {
    gpuipc_context *made = machine_context("memory=2M");
    const gpuipc_transport_pair pair = machine_pair(0, 0);
    gpuipc_measurement measured = {.struct_size = sizeof(measured)};
    check_status(GPUIPC_ERR_OUT_OF_DEVICE_MEMORY,
                 gpuipc_transport_measure(made, GPUIPC_TRANSPORT_VMM, &pair, &measured));
    cr_assert_eq(measured.bytes, 0);
    cr_assert_eq(measured.wrong_words, 0);
    check_ok(gpuipc_context_destroy(made));
}

/* Which status each answer of the driver has. */
Test(measure_machine, whose_driver_refuses_is_told_why) {
    static const struct {
        const char *failure;
        gpuipc_status status;
    } rows[] = {{"cuMemAlloc:1=801", GPUIPC_ERR_NO_TRANSPORT},
                {"cuMemAlloc:1=304", GPUIPC_ERR_CUDA},
                {"cuMemAlloc:1=999", GPUIPC_ERR_CUDA},
                {"cuMemAlloc:*=2", GPUIPC_ERR_OUT_OF_DEVICE_MEMORY}};
    gpuipc_context *made = machine_context("");
    const gpuipc_transport_pair pair = machine_pair(0, 1);
    (void)machine_ask(made, GPUIPC_TRANSPORT_VMM, &pair);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        gpuipc_measurement measured = {.struct_size = sizeof(measured)};
        core_set_failures(rows[i].failure);
        check_status(rows[i].status,
                     gpuipc_transport_measure(made, GPUIPC_TRANSPORT_VMM, &pair, &measured));
        core_set_failures("");
        cr_assert_eq(measured.bytes, 0);
    }
    check_ok(gpuipc_context_destroy(made));
}

/* A device that is not emulated is given more to do at a time. */
Test(measure_machine, that_is_real_is_measured_in_batches) {
    gpuipc_context *made = machine_context("memory=16M;devices=1");
    const gpuipc_transport_pair pair = machine_pair(0, 0);
    gpuipc_measurement measured = {.struct_size = sizeof(measured)};
    context *ctx;
    check_ok(context_acquire(made, &ctx));
    machine_keep(made, NULL);
    (void)machine_ask(made, GPUIPC_TRANSPORT_VMM, &pair);
    ctx->driver.is_emulated = false;
    core_set_failures("");
    check_ok(gpuipc_transport_measure(made, GPUIPC_TRANSPORT_VMM, &pair, &measured));
    ctx->driver.is_emulated = true;
    context_unreference(ctx);
    cr_assert_eq(measured.bytes, 2u << 20);
    /* Of each of nine samples: 64 before and 64 that are timed, then 64 before and 128 small ones. */
    cr_assert_eq(machine_calls("cuMemcpyDtoDAsync"), 9 * (64 + 64 + 64 + 128));
    check_ok(gpuipc_context_destroy(made));
}

/* A driver whose copies do nothing. */
static CUresult copy_nothing(CUdeviceptr destination, CUdeviceptr source, size_t bytes,
                             CUstream stream) {
    (void)destination;
    (void)source;
    (void)bytes;
    (void)stream;
    return CUDA_SUCCESS;
}

Test(measure_machine, whose_copies_are_wrong_is_found_out) {
    gpuipc_context *made = machine_context("");
    const gpuipc_transport_pair pair = machine_pair(0, 1);
    gpuipc_measurement measured = {.struct_size = sizeof(measured)};
    context *ctx;
    (void)machine_ask(made, GPUIPC_TRANSPORT_VMM, &pair);
    check_ok(context_acquire(made, &ctx));
    ctx->driver.cuMemcpyDtoDAsync = copy_nothing;
    context_unreference(ctx);
    check_refused(GPUIPC_ERR_WRONG_DATA, "instead of",
                  gpuipc_transport_measure(made, GPUIPC_TRANSPORT_VMM, &pair, &measured));
    cr_assert_eq(measured.bytes, 0);
    cr_assert_eq(measured.wrong_words, 2 * (4u << 20) / sizeof(uint32_t), "all of both ways");
    cr_assert_eq(machine_ask(made, GPUIPC_TRANSPORT_VMM, &pair).bandwidth_source,
                 GPUIPC_FIGURE_ESTIMATED);
    check_ok(gpuipc_context_destroy(made));
}

/* The calls that only a measurement makes; those of the ways fail in test_transport_probe.c. */
Test(measure_machine, every_call_fails) {
    static const char *const names[] = {
        "cuMemAlloc",         "cuStreamCreate",     "cuEventCreate",     "cuEventRecord",
        "cuEventSynchronize", "cuEventElapsedTime", "cuStreamWaitEvent", "cuMemcpyDtoDAsync",
        "cuMemcpyDtoHAsync",  "cuMemsetD32Async",   "cuCtxPushCurrent",  "cuMemCreate"};
    gpuipc_context *made = machine_context("");
    const gpuipc_transport_pair pair = machine_pair(0, 1);
    (void)machine_ask(made, GPUIPC_TRANSPORT_VMM, &pair);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        for (unsigned number = 1; number <= 3; number++) {
            gpuipc_measurement measured = {.struct_size = sizeof(measured)};
            char failure[64];
            leak_gate gate;
            leak_gate_begin(&gate);
            (void)snprintf(failure, sizeof(failure), "%s:%u=999", names[i], number);
            core_set_failures(failure);
            gpuipc_status status =
                gpuipc_transport_measure(made, GPUIPC_TRANSPORT_VMM, &pair, &measured);
            const uint64_t calls = machine_calls(names[i]);
            core_set_failures("");
            cr_assert_gt(calls, 0, "%s is not called", names[i]);
            /* How much memory is free is asked for, but not insisted on. */
            cr_assert(calls < number || status == GPUIPC_ERR_CUDA ||
                          strcmp(names[i], "cuCtxPushCurrent") == 0,
                      "%s: %s", failure, gpuipc_status_name(status));
            cr_assert_eq(measured.bytes == 0, status != GPUIPC_OK);
            cr_assert_eq(leak_gate_end(&gate), 0, "%s: %s", failure, gate.text);
        }
    }
    measure_pair(made, GPUIPC_TRANSPORT_VMM, 0, 1);
    check_ok(gpuipc_context_destroy(made));
}

/* The calls of a measurement that come late in it: of the second figure, of the other way, at the end. */
Test(measure_machine, late_calls_fail) {
    static const char *const names[] = {"cuEventElapsedTime", "cuCtxPushCurrent", "cuEventRecord",
                                        "cuStreamWaitEvent"};
    gpuipc_context *made = machine_context("");
    const gpuipc_transport_pair pair = machine_pair(0, 1);
    (void)machine_ask(made, GPUIPC_TRANSPORT_VMM, &pair);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        uint64_t failed = 0;
        core_set_failures("");
        measure_pair(made, GPUIPC_TRANSPORT_VMM, 0, 1);
        const uint64_t calls = machine_calls(names[i]);
        for (unsigned number = 1; number <= calls; number += 7) {
            gpuipc_measurement measured = {.struct_size = sizeof(measured)};
            char failure[64];
            (void)snprintf(failure, sizeof(failure), "%s:%u=999", names[i], number);
            core_set_failures(failure);
            const gpuipc_status status =
                gpuipc_transport_measure(made, GPUIPC_TRANSPORT_VMM, &pair, &measured);
            core_set_failures("");
            cr_assert(status == GPUIPC_OK || status == GPUIPC_ERR_CUDA, "%s: %s", failure,
                      gpuipc_status_name(status));
            cr_assert_eq(measured.bytes == 0, status != GPUIPC_OK);
            failed += status != GPUIPC_OK;
        }
        cr_assert_gt(failed, calls / 10, "%s", names[i]);
    }
    check_ok(gpuipc_context_destroy(made));
}
