/* SPDX-License-Identifier: MIT */
/** @file Whether transports work between devices, as queries tell: on this machine, and on machines of
 *  other kinds. */
#include <stdlib.h>
#include <string.h>

#include "message/connection.h"
#include "query/transport_query.h"
#include "transport/transport.h"
#include "transport_machine.h"

TestSuite(transport_query, .init = core_start, .fini = core_finish, .timeout = 60);
TestSuite(transport_query_machine, .init = core_start_without_context, .fini = core_finish,
          .timeout = 60);

static const gpuipc_transport every[] = {GPUIPC_TRANSPORT_VMM,    GPUIPC_TRANSPORT_POOL,
                                         GPUIPC_TRANSPORT_LEGACY, GPUIPC_TRANSPORT_P2P,
                                         GPUIPC_TRANSPORT_HOST,   GPUIPC_TRANSPORT_FABRIC};
#define EVERY (sizeof(every) / sizeof(every[0]))

/* ---- names -------------------------------------------------------------------------------- */

Test(transport_query, transports_and_reasons_have_names) {
    uint32_t count = 0;
    check_ok(gpuipc_transport_count(&count));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_transport_count(NULL));
    cr_assert_eq(count, EVERY);
    cr_assert_str_eq(gpuipc_transport_name(GPUIPC_TRANSPORT_DEFAULT), "default");
    cr_assert_null(transport_of_memory(0), "what is no memory is carried by none");
    cr_assert_null(transport_of_memory(UINT16_MAX));
    cr_assert_str_eq(gpuipc_transport_name(GPUIPC_TRANSPORT_VMM), "vmm");
    cr_assert_str_eq(gpuipc_transport_name(GPUIPC_TRANSPORT_FABRIC), "fabric");
    cr_assert_str_eq(gpuipc_transport_name((gpuipc_transport)7), "unknown");
    cr_assert_str_eq(gpuipc_reason_name(GPUIPC_REASON_NO_P2P), "NO_P2P");
    cr_assert_str_eq(gpuipc_reason_name((gpuipc_reason)4711), "UNKNOWN");
    cr_assert_str_eq(gpuipc_reason_name(GPUIPC_REASON_FORCE_INT32), "UNKNOWN");
}

/* No two are alike, and each says what to do. */
Test(transport_query, every_reason_has_a_name_and_a_sentence) {
    static const struct {
        gpuipc_reason reason;
        const char *name;
    } rows[] = {
#define ROW(name, value, sentence) {GPUIPC_REASON_##name, #name},
        GPUIPC_REASON_LIST(ROW)
#undef ROW
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *sentence = reason_sentence(rows[i].reason);
        cr_assert_str_eq(gpuipc_reason_name(rows[i].reason), rows[i].name);
        cr_assert_gt(strlen(sentence), 15, "%s: %s", rows[i].name, sentence);
        for (size_t other = 0; other < i; other++) {
            cr_assert_str_neq(sentence, reason_sentence(rows[other].reason));
        }
    }
    cr_assert_str_eq(reason_sentence(GPUIPC_REASON_FORCE_INT32),
                     "this is no reason of this library");
    cr_assert_str_eq(reason_sentence((gpuipc_reason)4711), "this is no reason of this library");
}

/* ---- this machine ------------------------------------------------------------------------- */

Test(transport_query, every_pair_has_an_answer_to_every_transport) {
    for (size_t i = 0; i < EVERY; i++) {
        for (uint32_t owner = 0; owner < core_device_count; owner++) {
            for (uint32_t user = 0; user < core_device_count; user++) {
                const gpuipc_transport_pair pair = machine_pair(owner, user);
                (void)machine_ask(core_context, every[i], &pair);
            }
        }
    }
}

Test(transport_query, staged_copies_always_work) {
    for (uint32_t user = 0; user < core_device_count; user++) {
        const gpuipc_transport_pair pair = machine_pair(0, user);
        const gpuipc_transport_info info = machine_ask(core_context, GPUIPC_TRANSPORT_HOST, &pair);
        cr_assert_eq(info.available, 1, "%s", info.sentence);
        cr_assert_eq(info.proof, GPUIPC_PROOF_TRIED);
        cr_assert_eq(info.is_zero_copy, 0);
    }
}

Test(transport_query, an_answer_is_remembered) {
    const gpuipc_transport_pair pair = machine_pair(0, core_device_count - 1);
    for (size_t i = 0; i < EVERY; i++) {
        const gpuipc_transport_info first = machine_ask(core_context, every[i], &pair);
        const uint64_t calls = core_is_emulated ? machine_calls(NULL) : 0;
        const gpuipc_transport_info again = machine_ask(core_context, every[i], &pair);
        cr_assert_eq(memcmp(&first, &again, sizeof(first)), 0);
        cr_assert_eq(core_is_emulated ? machine_calls(NULL) : 0, calls,
                     "the driver was asked again");
    }
}

Test(transport_query, pool_between_two_devices_says_its_risk) {
    core_need_devices(2);
    const gpuipc_transport_pair across = machine_pair(0, 1);
    const gpuipc_transport_pair alone = machine_pair(0, 0);
    const gpuipc_transport_info info = machine_ask(core_context, GPUIPC_TRANSPORT_POOL, &across);
    if (!info.available) {
        cr_skip_test("%s", info.sentence);
    }
    cr_assert_not_null(strstr(info.sentence, "loses its CUDA context"), "%s", info.sentence);
    cr_assert_not_null(strstr(info.sentence, "use vmm or legacy"), "%s", info.sentence);
    cr_assert_str_empty(machine_ask(core_context, GPUIPC_TRANSPORT_POOL, &alone).sentence);
    cr_assert_str_empty(machine_ask(core_context, GPUIPC_TRANSPORT_VMM, &across).sentence);
}

static gpuipc_status ask_vmm(void *argument) {
    const gpuipc_transport_pair pair = machine_pair(0, 0);
    return gpuipc_transport_query(core_context, GPUIPC_TRANSPORT_VMM, &pair, argument);
}

#define ASKERS 4

Test(transport_query, many_threads_make_one_trial) {
    core_waiter askers[ASKERS];
    gpuipc_transport_info infos[ASKERS];
    if (core_is_emulated) {
        core_set_failures(""); /* counts from here on */
    }
    for (size_t i = 0; i < ASKERS; i++) {
        infos[i] = (gpuipc_transport_info){.struct_size = sizeof(infos[i])};
        core_waiter_begin(&askers[i], ask_vmm, &infos[i]);
    }
    for (size_t i = 0; i < ASKERS; i++) {
        check_ok(core_waiter_end(&askers[i]));
        machine_check_answer(&infos[i]);
        cr_assert_eq(memcmp(&infos[i], &infos[0], sizeof(infos[0])), 0);
    }
    cr_assert(!core_is_emulated || machine_calls("cuMemCreate") == 1, "%llu trials",
              (unsigned long long)(core_is_emulated ? machine_calls("cuMemCreate") : 1));
}

static int compare_numbers(const void *first, const void *second) {
    const uint64_t a = *(const uint64_t *)first;
    const uint64_t b = *(const uint64_t *)second;
    return (a > b) - (a < b);
}

#define QUICK_CALLS 1000
/* What the header promises; sanitizers, coverage and Wine slow everything down (core.cmake). */
#ifndef QUICK_NS
#define QUICK_NS 1000
#endif

Test(transport_query, a_remembered_answer_takes_less_than_a_microsecond) {
    const gpuipc_transport_pair pair = machine_pair(0, 0);
    static uint64_t times[QUICK_CALLS];
    gpuipc_transport_info info = {.struct_size = sizeof(info)};
    (void)machine_ask(core_context, GPUIPC_TRANSPORT_VMM, &pair);
    for (size_t i = 0; i < QUICK_CALLS; i++) {
        const uint64_t start = os_clock_ns();
        const gpuipc_status status =
            gpuipc_transport_query(core_context, GPUIPC_TRANSPORT_VMM, &pair, &info);
        times[i] = os_clock_ns() - start;
        check_ok(status);
    }
    qsort(times, QUICK_CALLS, sizeof(times[0]), compare_numbers);
    cr_assert_lt(times[QUICK_CALLS / 2], QUICK_NS, "the median is %llu ns",
                 (unsigned long long)times[QUICK_CALLS / 2]);
}

Test(transport_query, the_callers_context_and_the_peer_access_stay) {
    const driver *drv = core_driver();
    CUcontext before = NULL;
    CUcontext after = NULL;
    core_enter_device(0);
    cr_assert_eq(drv->cuCtxGetCurrent(&before), CUDA_SUCCESS);
    const gpuipc_transport_pair pair = machine_pair(core_device_count - 1, 0);
    for (size_t i = 0; i < EVERY; i++) {
        (void)machine_ask(core_context, every[i], &pair);
    }
    cr_assert_eq(drv->cuCtxGetCurrent(&after), CUDA_SUCCESS);
    cr_assert_eq(before, after);
    if (core_device_count > 1) {
        CUcontext other;
        cr_assert_eq(drv->cuDevicePrimaryCtxRetain(&other, (int)core_device_count - 1),
                     CUDA_SUCCESS);
        cr_assert_eq(drv->cuCtxDisablePeerAccess(other), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
        cr_assert_eq(drv->cuDevicePrimaryCtxRelease((int)core_device_count - 1), CUDA_SUCCESS);
    }
}

Test(transport_query, peer_access_of_the_callers_own_stays_enabled) {
    core_need_devices(2);
    const driver *drv = core_driver();
    CUcontext other;
    int can = 0;
    cr_assert_eq(drv->cuDeviceCanAccessPeer(&can, 0, 1), CUDA_SUCCESS);
    if (!can) {
        cr_skip_test("the two devices have no peer access");
    }
    cr_assert_eq(drv->cuDevicePrimaryCtxRetain(&other, 1), CUDA_SUCCESS);
    core_enter_device(0);
    cr_assert_eq(drv->cuCtxEnablePeerAccess(other, 0), CUDA_SUCCESS);
    machine_expect(core_context, GPUIPC_TRANSPORT_P2P, 1, 0, GPUIPC_REASON_NONE);
    cr_assert_eq(drv->cuCtxDisablePeerAccess(other), CUDA_SUCCESS, "the trial disabled it");
    cr_assert_eq(drv->cuDevicePrimaryCtxRelease(1), CUDA_SUCCESS);
}

Test(transport_query, wrong_questions_are_refused) {
    gpuipc_transport_pair pair = machine_pair(0, 0);
    gpuipc_transport_info info = {.struct_size = sizeof(info)};
    const gpuipc_transport vmm = GPUIPC_TRANSPORT_VMM;
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_transport_query(core_context, (gpuipc_transport)7, &pair, &info));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_transport_query(core_context, (gpuipc_transport)-1, &pair, &info));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_transport_query(core_context, vmm, NULL, &info));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_transport_query(core_context, vmm, &pair, NULL));
    pair.user = core_device_count;
    check_status(GPUIPC_ERR_DEVICE_NOT_FOUND,
                 gpuipc_transport_query(core_context, vmm, &pair, &info));
    pair = machine_pair(core_device_count, 0);
    check_status(GPUIPC_ERR_DEVICE_NOT_FOUND,
                 gpuipc_transport_query(core_context, vmm, &pair, &info));
    pair = machine_pair(0, GPUIPC_DEVICE_NONE);
    check_status(GPUIPC_ERR_DEVICE_NOT_FOUND,
                 gpuipc_transport_query(core_context, vmm, &pair, &info));
    pair = machine_pair(0, 0);
    pair.struct_size--;
    check_status(GPUIPC_ERR_STRUCT_SIZE, gpuipc_transport_query(core_context, vmm, &pair, &info));
    pair.struct_size++;
    info.struct_size--;
    check_status(GPUIPC_ERR_STRUCT_SIZE, gpuipc_transport_query(core_context, vmm, &pair, &info));
    cr_assert_eq(info.transport, 0, "something was written");
}

Test(transport_query, the_default_is_vmm) {
    const gpuipc_transport_pair pair = machine_pair(0, 0);
    gpuipc_transport_info info = {.struct_size = sizeof(info)};
    check_ok(gpuipc_transport_query(core_context, GPUIPC_TRANSPORT_DEFAULT, &pair, &info));
    cr_assert_eq(info.transport, GPUIPC_TRANSPORT_VMM);
}

/* ---- the other end ------------------------------------------------------------------------ */

Test(transport_query, a_device_that_is_not_seen) {
    gpuipc_transport_pair pair = machine_pair(GPUIPC_DEVICE_NONE, 0);
    memset(pair.owner_uuid.bytes, 0xA5, sizeof(pair.owner_uuid.bytes));
    cr_assert_eq(machine_ask(core_context, GPUIPC_TRANSPORT_P2P, &pair).reason,
                 GPUIPC_REASON_HIDDEN_DEVICE);
    cr_assert_eq(machine_ask(core_context, GPUIPC_TRANSPORT_POOL, &pair).reason,
                 GPUIPC_REASON_HIDDEN_DEVICE);
    const gpuipc_transport_info info = machine_ask(core_context, GPUIPC_TRANSPORT_VMM, &pair);
    const gpuipc_transport_pair own = machine_pair(0, 0);
    cr_assert_eq(info.available, machine_ask(core_context, GPUIPC_TRANSPORT_VMM, &own).available);
    cr_assert_eq(info.proof, GPUIPC_PROOF_NONE);
    cr_assert_eq(info.bandwidth_source, GPUIPC_FIGURE_NONE);
}

Test(transport_query, a_uuid_of_a_device_that_is_seen_is_that_device) {
    gpuipc_device_info last = {.struct_size = sizeof(last)};
    check_ok(gpuipc_device_get_info(core_context, core_device_count - 1, &last));
    const gpuipc_transport_pair seen = machine_pair(core_device_count - 1, 0);
    gpuipc_transport_pair named = machine_pair(GPUIPC_DEVICE_NONE, 0);
    named.owner_uuid = last.uuid;
    const gpuipc_transport_info first = machine_ask(core_context, GPUIPC_TRANSPORT_P2P, &seen);
    const gpuipc_transport_info second = machine_ask(core_context, GPUIPC_TRANSPORT_P2P, &named);
    cr_assert_eq(memcmp(&first, &second, sizeof(first)), 0);
}

Test(transport_query, what_lies_between_two_processes_is_part_of_the_answer) {
    core_pair ends;
    connection *peer;
    core_pair_open(&ends, core_context, core_context);
    gpuipc_transport_pair pair = machine_pair(0, 0);
    pair.connection = ends.client;
    check_ok(connection_acquire(ends.client, &peer));
    const uint64_t own = peer->peer.process_id;

    cr_assert_eq(machine_ask(core_context, GPUIPC_TRANSPORT_P2P, &pair).available, 1);
    peer->peer.process_id = own + 1;
    cr_assert_eq(machine_ask(core_context, GPUIPC_TRANSPORT_P2P, &pair).reason,
                 GPUIPC_REASON_SAME_PROCESS_ONLY);
    peer->peer.other_pid_namespace = true;
    cr_assert_eq(machine_ask(core_context, GPUIPC_TRANSPORT_LEGACY, &pair).reason,
                 GPUIPC_REASON_PID_NAMESPACE);
    pair.connection = NULL;
    cr_assert_neq(machine_ask(core_context, GPUIPC_TRANSPORT_LEGACY, &pair).reason,
                  GPUIPC_REASON_PID_NAMESPACE, "the answer of one connection was remembered");
    peer->peer.process_id = own;
    peer->peer.other_pid_namespace = false;
    connection_unreference(peer);

    pair.connection = ends.client;
    core_pair_close(&ends);
    gpuipc_transport_info info = {.struct_size = sizeof(info)};
    check_status(GPUIPC_ERR_RELEASED,
                 gpuipc_transport_query(core_context, GPUIPC_TRANSPORT_VMM, &pair, &info));
}

/* ---- machines ----------------------------------------------------------------------------- */

/* What is expected of each transport, in the order of their numbers. */
static void expect_all(gpuipc_context *made, uint32_t owner, uint32_t user,
                       const gpuipc_reason expected[EVERY]) {
    for (size_t i = 0; i < EVERY; i++) {
        machine_expect(made, every[i], owner, user, expected[i]);
    }
}

static gpuipc_reason on_windows(gpuipc_reason there, gpuipc_reason elsewhere) {
    return machine_is_windows() ? there : elsewhere;
}

#define R(name) GPUIPC_REASON_##name

/* Pools and fabric handles, which Windows has not. */
static gpuipc_reason linux_only(gpuipc_reason elsewhere) {
    return on_windows(R(OPERATING_SYSTEM), elsewhere);
}

Test(transport_query_machine, of_the_usual_kind) {
    gpuipc_context *made = machine_context("");
    const gpuipc_reason expected[] = {R(NONE), linux_only(R(NONE)),           R(NONE), R(NONE),
                                      R(NONE), linux_only(R(NO_IMEX_CHANNEL))};
    expect_all(made, 0, 1, expected);
    expect_all(made, 1, 1, expected);
    const gpuipc_transport_pair pair = machine_pair(0, 1);
    cr_assert_eq(machine_ask(made, GPUIPC_TRANSPORT_VMM, &pair).proof, GPUIPC_PROOF_TRIED);
    cr_assert_eq(machine_ask(made, GPUIPC_TRANSPORT_P2P, &pair).proof, GPUIPC_PROOF_TRIED);
    cr_assert_eq(machine_ask(made, GPUIPC_TRANSPORT_LEGACY, &pair).proof, GPUIPC_PROOF_ATTRIBUTES);
    check_ok(gpuipc_context_destroy(made));
}

Test(transport_query_machine, with_an_imex_channel) {
    gpuipc_context *made = machine_context("imex=1");
    machine_expect(made, GPUIPC_TRANSPORT_FABRIC, 0, 1, R(NONE));
    check_ok(gpuipc_context_destroy(made));
}

Test(transport_query_machine, without_peer_access) {
    gpuipc_context *made = machine_context("p2p=none");
    const gpuipc_reason expected[] = {R(NO_P2P), linux_only(R(NO_P2P)), R(NO_P2P), R(NO_P2P),
                                      R(NONE),   linux_only(R(NO_P2P))};
    expect_all(made, 0, 1, expected);
    machine_expect(made, GPUIPC_TRANSPORT_VMM, 0, 0, R(NONE));
    machine_expect(made, GPUIPC_TRANSPORT_P2P, 1, 1, R(NONE));
    check_ok(gpuipc_context_destroy(made));
}

Test(transport_query_machine, with_peer_access_between_some) {
    gpuipc_context *made = machine_context("devices=4;p2p=0-1,2-3");
    machine_expect(made, GPUIPC_TRANSPORT_VMM, 0, 1, R(NONE));
    machine_expect(made, GPUIPC_TRANSPORT_VMM, 3, 2, R(NONE));
    machine_expect(made, GPUIPC_TRANSPORT_VMM, 0, 2, R(NO_P2P));
    machine_expect(made, GPUIPC_TRANSPORT_P2P, 1, 2, R(NO_P2P));
    machine_expect(made, GPUIPC_TRANSPORT_HOST, 1, 2, R(NONE));
    check_ok(gpuipc_context_destroy(made));
}

Test(transport_query_machine, of_the_tcc_kind) {
    gpuipc_context *made = machine_context("driver-model=tcc");
    machine_expect(made, GPUIPC_TRANSPORT_VMM, 0, 1, on_windows(R(TCC), R(NO_VMM)));
    machine_expect(made, GPUIPC_TRANSPORT_FABRIC, 0, 1, on_windows(R(TCC), R(NO_VMM)));
    machine_expect(made, GPUIPC_TRANSPORT_P2P, 0, 1, R(NONE));
    machine_expect(made, GPUIPC_TRANSPORT_LEGACY, 0, 1, R(NONE));
    machine_expect(made, GPUIPC_TRANSPORT_HOST, 0, 1, R(NONE));
    check_ok(gpuipc_context_destroy(made));
}

Test(transport_query_machine, without_virtual_memory_management) {
    gpuipc_context *made = machine_context("vmm=0");
    machine_expect(made, GPUIPC_TRANSPORT_VMM, 0, 1, R(NO_VMM));
    machine_expect(made, GPUIPC_TRANSPORT_LEGACY, 0, 1, R(NONE));
    check_ok(gpuipc_context_destroy(made));
}

Test(transport_query_machine, without_handles_of_this_system) {
    gpuipc_context *made = machine_context("fd-handles=0");
    machine_expect(made, GPUIPC_TRANSPORT_VMM, 0, 1, R(HANDLE_TYPE));
    machine_expect(made, GPUIPC_TRANSPORT_POOL, 0, 1, linux_only(R(NOT_SUPPORTED)));
    machine_expect(made, GPUIPC_TRANSPORT_P2P, 0, 1, R(NONE));
    check_ok(gpuipc_context_destroy(made));
}

Test(transport_query_machine, of_slices) {
    gpuipc_context *made = machine_context("mig=1;p2p=none");
    machine_expect(made, GPUIPC_TRANSPORT_VMM, 0, 1, R(MIG));
    machine_expect(made, GPUIPC_TRANSPORT_P2P, 0, 1, R(MIG));
    machine_expect(made, GPUIPC_TRANSPORT_VMM, 0, 0, R(NONE));
    machine_expect(made, GPUIPC_TRANSPORT_HOST, 0, 1, R(NONE));
    check_ok(gpuipc_context_destroy(made));
}

/* The same refusals are explained where the system is WSL, and only there. */
Test(transport_query_machine, under_wsl) {
    gpuipc_context *made = machine_context("wsl=1");
    gpuipc_context *explained = core_context_new();
    context *ctx;
    check_ok(context_acquire(explained, &ctx));
    ctx->is_wsl = true;
    context_unreference(ctx);
    machine_expect(made, GPUIPC_TRANSPORT_VMM, 0, 0, R(HANDLE_TYPE));
    machine_expect(explained, GPUIPC_TRANSPORT_VMM, 0, 0, R(WSL));
    machine_expect(made, GPUIPC_TRANSPORT_P2P, 0, 1, R(NO_P2P));
    machine_expect(explained, GPUIPC_TRANSPORT_P2P, 0, 1, R(WSL));
    machine_expect(explained, GPUIPC_TRANSPORT_POOL, 0, 0, linux_only(R(WSL)));
    machine_expect(explained, GPUIPC_TRANSPORT_HOST, 0, 1, R(NONE));
    check_ok(gpuipc_context_destroy(explained));
    check_ok(gpuipc_context_destroy(made));
}

Test(transport_query_machine, whose_compute_mode_forbids_it) {
    gpuipc_context *made = machine_context("compute-mode=prohibited");
    for (size_t i = 0; i < EVERY - 1; i++) {
        machine_expect(made, every[i], 0, 1,
                       every[i] == GPUIPC_TRANSPORT_POOL ? linux_only(R(COMPUTE_MODE))
                                                         : R(COMPUTE_MODE));
    }
    check_ok(gpuipc_context_destroy(made));
}

Test(transport_query_machine, with_hidden_devices) {
    core_environment_set("CUDA_VISIBLE_DEVICES", "1");
    gpuipc_context *made = machine_context("devices=3");
    gpuipc_transport_pair pair = machine_pair(0, 1);
    gpuipc_transport_info info = {.struct_size = sizeof(info)};
    check_status(GPUIPC_ERR_DEVICE_NOT_FOUND,
                 gpuipc_transport_query(made, GPUIPC_TRANSPORT_VMM, &pair, &info));
    pair = machine_pair(GPUIPC_DEVICE_NONE, 0);
    cr_assert_eq(machine_ask(made, GPUIPC_TRANSPORT_VMM, &pair).available, 1);
    cr_assert_eq(machine_ask(made, GPUIPC_TRANSPORT_HOST, &pair).available, 1);
    cr_assert_eq(machine_ask(made, GPUIPC_TRANSPORT_POOL, &pair).reason, R(HIDDEN_DEVICE));
    const gpuipc_transport_pair seen = machine_pair(0, 0);
    const gpuipc_transport_info own = machine_ask(made, GPUIPC_TRANSPORT_FABRIC, &seen);
    cr_assert_eq(own.available, 0);
    cr_assert_eq(machine_ask(made, GPUIPC_TRANSPORT_FABRIC, &pair).reason, own.reason);
    check_ok(gpuipc_context_destroy(made));
}

Test(transport_query_machine, without_virtual_memory_there_is_none_of_the_fabric) {
    gpuipc_context *made = machine_context("vmm=0;imex=1");
    const gpuipc_buffer_config config = {
        .struct_size = sizeof(config), .transport = GPUIPC_TRANSPORT_FABRIC, .bytes = 4096};
    gpuipc_buffer *none = NULL;
    check_status(GPUIPC_ERR_VMM_UNSUPPORTED, gpuipc_buffer_create(made, &config, &none));
    cr_assert_null(none);
    check_ok(gpuipc_context_destroy(made));
}

Test(transport_query_machine, without_peer_access_a_pools_memory_is_its_owners) {
    gpuipc_context *made = machine_context("p2p=none");
    const gpuipc_buffer_config config = {
        .struct_size = sizeof(config), .transport = GPUIPC_TRANSPORT_POOL, .bytes = 4096};
    gpuipc_buffer *made_there = NULL;
    if (!machine_is_windows()) {
        check_ok(gpuipc_buffer_create(made, &config, &made_there));
        check_ok(gpuipc_buffer_set_access(made_there, 0, GPUIPC_ACCESS_DEFAULT));
        check_status(GPUIPC_ERR_PEER_ACCESS_UNSUPPORTED,
                     gpuipc_buffer_set_access(made_there, 1, GPUIPC_ACCESS_DEFAULT));
        check_ok(gpuipc_buffer_release(made_there));
    }
    check_ok(gpuipc_context_destroy(made));
}

/* The first that cannot ends it. */
Test(transport_query_machine, without_peer_access_no_other_device_is_given_any) {
    gpuipc_context *made = machine_context("devices=3;p2p=none");
    const uint32_t devices[] = {GPUIPC_DEVICE(1), GPUIPC_DEVICE(2)};
    const gpuipc_buffer_config config = {.struct_size = sizeof(config),
                                         .bytes = 4096,
                                         .access_devices = devices,
                                         .access_device_count = 2};
    gpuipc_buffer *none = NULL;
    check_status(GPUIPC_ERR_PEER_ACCESS_UNSUPPORTED, gpuipc_buffer_create(made, &config, &none));
    cr_assert_null(none);
    check_ok(gpuipc_context_destroy(made));
}

/* What a device has access to it keeps, and finds again among several. */
Test(transport_query_machine, of_three_devices_one_reaches_the_others) {
    gpuipc_context *made = machine_context("devices=3");
    gpuipc_buffer *plain[3] = {NULL, NULL, NULL};
    static const uint32_t owners[] = {0, 2, 0};
    core_set_failures("");
    for (size_t i = 0; i < 3; i++) {
        const gpuipc_buffer_config config = {.struct_size = sizeof(config),
                                             .transport = GPUIPC_TRANSPORT_P2P,
                                             .device = GPUIPC_DEVICE(owners[i]),
                                             .bytes = 4096};
        check_ok(gpuipc_buffer_create(made, &config, &plain[i]));
        check_ok(gpuipc_buffer_set_access(plain[i], 1, GPUIPC_ACCESS_DEFAULT));
    }
    cr_assert_geq(core_calls("cuCtxEnablePeerAccess"), 2);
    for (size_t i = 0; i < 3; i++) {
        check_ok(gpuipc_buffer_release(plain[i]));
    }
    check_ok(gpuipc_context_destroy(made));
}

Test(transport_query_machine, without_memory_is_asked_again) {
    gpuipc_context *made = machine_context("memory=2M");
    const gpuipc_buffer_config config = {.struct_size = sizeof(config), .bytes = 2u << 20};
    gpuipc_buffer *filler = NULL;
    check_ok(gpuipc_buffer_create(made, &config, &filler));
    machine_expect(made, GPUIPC_TRANSPORT_VMM, 0, 0, R(DEVICE_MEMORY));
    machine_expect(made, GPUIPC_TRANSPORT_P2P, 0, 0, R(DEVICE_MEMORY));
    machine_expect(made, GPUIPC_TRANSPORT_HOST, 0, 0, R(DEVICE_MEMORY));
    check_ok(gpuipc_buffer_release(filler));
    machine_expect(made, GPUIPC_TRANSPORT_VMM, 0, 0, R(NONE));
    machine_expect(made, GPUIPC_TRANSPORT_P2P, 0, 0, R(NONE));
    check_ok(gpuipc_context_destroy(made));
}

/* ---- without a context -------------------------------------------------------------------- */

static void expect_installed(gpuipc_reason reason) {
    const gpuipc_transport_pair pair = machine_pair(0, 0);
    gpuipc_transport_info info = {.struct_size = sizeof(info)};
    check_ok(gpuipc_transport_query(NULL, GPUIPC_TRANSPORT_VMM, &pair, &info));
    machine_check_answer(&info);
    cr_assert_eq(info.reason, reason, "%s: %s", gpuipc_reason_name(info.reason), info.sentence);
}

Test(transport_query_machine, that_is_installed_is_asked_without_a_context) {
    gpuipc_context *made = machine_context("");
    gpuipc_transport_pair pair = machine_pair(9, 0);
    gpuipc_transport_info info = {.struct_size = sizeof(info)};
    check_ok(gpuipc_context_destroy(made));
    expect_installed(R(NONE));
    check_status(GPUIPC_ERR_DEVICE_NOT_FOUND,
                 gpuipc_transport_query(NULL, GPUIPC_TRANSPORT_VMM, &pair, &info));
    check_status(GPUIPC_ERR_RELEASED,
                 gpuipc_transport_query(made, GPUIPC_TRANSPORT_VMM, &pair, &info));
    pair.struct_size = 1;
    check_status(GPUIPC_ERR_STRUCT_SIZE,
                 gpuipc_transport_query(NULL, GPUIPC_TRANSPORT_VMM, &pair, &info));
}

Test(transport_query_machine, that_has_no_device) {
    core_need_emulated();
    core_environment_set("GPUIPC_EMULATED_MACHINE", "devices=0");
    expect_installed(R(NO_DEVICE));
}

Test(transport_query_machine, whose_driver_is_too_old) {
    core_need_emulated();
    core_environment_set("GPUIPC_EMULATED_MACHINE", "version=11030");
    expect_installed(R(DRIVER_TOO_OLD));
}

Test(transport_query_machine, whose_driver_does_not_start) {
    core_need_emulated();
    core_environment_set("GPUIPC_EMULATED_FAIL", "cuInit:1=999");
    expect_installed(R(DRIVER_FAILED));
}

Test(transport_query_machine, that_has_no_driver) {
    gpuipc_context *made = NULL;
    core_environment_set("GPUIPC_CUDA_DRIVER", "auto");
    if (gpuipc_context_create(NULL, &made) != GPUIPC_ERR_NO_DRIVER) {
        check_ok(gpuipc_context_destroy(made));
        cr_skip_test("there is a CUDA driver on this machine");
    }
    expect_installed(R(NO_DRIVER));
}
