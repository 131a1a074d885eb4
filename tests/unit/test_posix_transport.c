/* SPDX-License-Identifier: MIT */
/** @file Transports where the process has no descriptor left. */
#include <sys/resource.h>
#include <unistd.h>

#include "transport_machine.h"

TestSuite(posix_transport, .init = core_start_without_context, .fini = core_finish, .timeout = 60);

/* As many as there are, and @p more. @return the limit before */
static struct rlimit limit_to(int more) {
    struct rlimit before;
    int lowest = dup(0);
    cr_assert_geq(lowest, 0);
    cr_assert_eq(close(lowest), 0);
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
    const struct rlimit limit = {(rlim_t)(lowest + more), before.rlim_max};
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    return before;
}

Test(posix_transport, without_a_descriptor_it_is_the_limit_and_asked_again) {
    gpuipc_context *made = machine_context("");
    /* What the devices and NVML open at their first use is there before. */
    machine_expect(made, GPUIPC_TRANSPORT_P2P, 0, 1, GPUIPC_REASON_NONE);
    const struct rlimit before = limit_to(0);
    const gpuipc_transport_pair pair = machine_pair(0, 1);
    const gpuipc_transport_info staged = machine_ask(made, GPUIPC_TRANSPORT_HOST, &pair);
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
    cr_assert_eq(staged.reason, GPUIPC_REASON_HANDLE_LIMIT, "%s", staged.sentence);
    machine_expect(made, GPUIPC_TRANSPORT_HOST, 0, 1, GPUIPC_REASON_NONE);
    check_ok(gpuipc_context_destroy(made));
}

Test(posix_transport, without_one_for_the_handle_it_is_the_limit) {
    gpuipc_context *made = machine_context("");
    const gpuipc_transport_pair pair = machine_pair(0, 1);
    machine_expect(made, GPUIPC_TRANSPORT_P2P, 0, 1, GPUIPC_REASON_NONE);
    /* One that the emulated driver keeps its memory in, and none for the handle. */
    const struct rlimit before = limit_to(1);
    const gpuipc_transport_info info = machine_ask(made, GPUIPC_TRANSPORT_VMM, &pair);
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
    cr_assert_eq(info.reason, GPUIPC_REASON_HANDLE_LIMIT, "%s", info.sentence);
    machine_expect(made, GPUIPC_TRANSPORT_VMM, 0, 1, GPUIPC_REASON_NONE);
    check_ok(gpuipc_context_destroy(made));
}

/* The answer of before stands, but to measure takes descriptors as well. */
Test(posix_transport, without_a_descriptor_nothing_is_measured) {
    gpuipc_context *made = machine_context("");
    const gpuipc_transport_pair pair = machine_pair(0, 1);
    gpuipc_measurement measured = {.struct_size = sizeof(measured)};
    machine_keep(made, NULL);
    machine_expect(made, GPUIPC_TRANSPORT_VMM, 0, 1, GPUIPC_REASON_NONE);
    const struct rlimit before = limit_to(1);
    const gpuipc_status status =
        gpuipc_transport_measure(made, GPUIPC_TRANSPORT_VMM, &pair, &measured);
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
    cr_assert_eq(status, GPUIPC_ERR_TOO_MANY_HANDLES, "%s", gpuipc_status_name(status));
    cr_assert_eq(measured.bytes, 0);
    check_ok(gpuipc_transport_measure(made, GPUIPC_TRANSPORT_VMM, &pair, &measured));
    check_ok(gpuipc_context_destroy(made));
}

/* The driver opens one for each, and has one code for all that the system refuses it. */
Test(posix_transport, without_a_descriptor_for_the_driver_no_buffer_is_made) {
    static const gpuipc_transport ways[] = {GPUIPC_TRANSPORT_VMM, GPUIPC_TRANSPORT_POOL,
                                            GPUIPC_TRANSPORT_LEGACY, GPUIPC_TRANSPORT_P2P,
                                            GPUIPC_TRANSPORT_HOST};
    gpuipc_context *made = machine_context("");
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        gpuipc_buffer_config config = GPUIPC_BUFFER_CONFIG_INIT;
        gpuipc_buffer *buffer = NULL;
        config.bytes = (uint64_t)2 << 20;
        config.transport = ways[i];
        const struct rlimit before = limit_to(0);
        const gpuipc_status status = gpuipc_buffer_create(made, &config, &buffer);
        const gpuipc_error error = *gpuipc_error_get();
        cr_assert_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
        cr_assert_eq(status, GPUIPC_ERR_TOO_MANY_HANDLES, "%s: %s", gpuipc_transport_name(ways[i]),
                     error.sentence);
        check_ok(gpuipc_buffer_create(made, &config, &buffer));
        check_ok(gpuipc_buffer_release(buffer));
    }
    check_ok(gpuipc_context_destroy(made));
}
