/* SPDX-License-Identifier: MIT */
/** @file Failing on demand, and the count of calls. */
#include <string.h>

#include "child.h"
#include "emulated_test.h"

TestSuite(emulated_fault, .timeout = 60);

static CUresult any_call(void) {
    int count;
    return drv.cuDeviceGetCount(&count);
}

Test(emulated_fault, the_nth_call_fails) {
    emulated_start(NULL);
    cr_assert_eq(set_fail("cuDeviceGetCount:3=700"), 0);
    check_success(any_call());
    check_success(any_call());
    check_result(CUDA_ERROR_ILLEGAL_ADDRESS, any_call());
    check_success(any_call());
}

Test(emulated_fault, every_call_fails) {
    emulated_start(NULL);
    cr_assert_eq(set_fail("cuDeviceGetCount:*=2"), 0);
    check_result(CUDA_ERROR_OUT_OF_MEMORY, any_call());
    check_result(CUDA_ERROR_OUT_OF_MEMORY, any_call());
    cr_assert_eq(set_fail(""), 0);
    check_success(any_call());
    cr_assert_eq(set_fail("cuDeviceGetCount:*=2"), 0);
    cr_assert_eq(set_fail(NULL), 0);
    check_success(any_call());
}

Test(emulated_fault, a_failed_call_has_done_nothing) {
    CUdeviceptr address = 7;
    gpuipc_emulated_live live;
    emulated_start(NULL);
    cr_assert_eq(set_fail("cuMemAlloc:1=999;cuMemAddressReserve:1=1"), 0);
    check_result(CUDA_ERROR_UNKNOWN, drv.cuMemAlloc(&address, 4));
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuMemAddressReserve(&address, GRANULE, 0, 0, 0));
    cr_assert_eq(address, 7);
    get_live(&live);
    cr_assert_eq(live.plain, 0);
    cr_assert_eq(live.reservations, 0);
}

/* A name stands for all versions of the entry point. */
Test(emulated_fault, versions_count_together) {
    CUresult (*get_first)(CUuuid *, CUdevice);
    CUuuid uuid;
    emulated_start(NULL);
    emulated_symbol(drv.library, "cuDeviceGetUuid", &get_first);
    cr_assert_eq(set_fail("cuDeviceGetUuid:2=3"), 0);
    check_success(get_first(&uuid, 0));
    check_result(CUDA_ERROR_NOT_INITIALIZED, drv.cuDeviceGetUuid(&uuid, 0));
    cr_assert_eq(get_calls("cuDeviceGetUuid"), 2);
}

Test(emulated_fault, the_nth_call_of_all) {
    int version;
    emulated_start(NULL);
    cr_assert_eq(set_fail("*:3=304"), 0);
    check_success(any_call());
    check_success(drv.cuDriverGetVersion(&version));
    check_result(CUDA_ERROR_OPERATING_SYSTEM, drv.cuDeviceGet(&version, 0));
    check_success(any_call());
    cr_assert_eq(get_calls(NULL), 4);
}

Test(emulated_fault, counts_calls_that_fail_too) {
    emulated_start(NULL);
    cr_assert_eq(set_fail("cuDeviceGetCount:*=1"), 0);
    any_call();
    any_call();
    cr_assert_eq(get_calls("cuDeviceGetCount"), 2);
    cr_assert_eq(get_calls("cuMemCreate"), 0);
    cr_assert_eq(get_calls(NULL), 2);
    cr_assert_eq(set_fail(NULL), 0);
    cr_assert_eq(get_calls(NULL), 0, "a new text starts the counts again");
}

Test(emulated_fault, malformed_texts_change_nothing) {
    const char *const wrong[] = {
        "cuMemCreate",
        "cuMemCreate:1",
        "cuMemCreate=1",
        "cuMemCreate:0=1",
        "cuMemCreate:x=1",
        "cuMemCreate:1=",
        "cuMemCreate:1=0",
        "cuMemCreate:1=die ",
        "cuMemCreate:1=delay",
        "cuMemCreate:1=-1",
        "cuNoSuchCall:1=1",
        "cuMemAlloc_v2:1=1",
        ";",
        "cuMemCreate:1=1;;",
        "cuArrayCreate_v2:1=1",
        ":1=1",
    };
    emulated_start(NULL);
    cr_assert_eq(set_fail("cuDeviceGetCount:*=2"), 0);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        cr_assert_eq(set_fail(wrong[i]), -1, "'%s' was read", wrong[i]);
    }
    check_result(CUDA_ERROR_OUT_OF_MEMORY, any_call());
}

Test(emulated_fault, delays) {
    emulated_start(NULL);
    cr_assert_eq(set_fail("cuDeviceGetCount:2=delay60"), 0);
    check_success(any_call());
    const uint64_t start = os_clock_ns();
    check_success(any_call());
    cr_assert_geq(os_clock_ns() - start, UINT64_C(60000000));
}

Test(emulated_fault, the_environment_fails_init) {
    environment_set("GPUIPC_EMULATED_FAIL", "cuInit:1=803");
    check_result((CUresult)803, emulated_init(NULL));
    check_success(emulated_init(NULL));
}

Test(emulated_fault, a_malformed_environment_fails_init) {
    environment_set("GPUIPC_EMULATED_FAIL", "cuInit=1");
    check_result(CUDA_ERROR_INVALID_VALUE, emulated_init(NULL));
}

Test(emulated_fault, what_was_set_wins_over_the_environment) {
    environment_set("GPUIPC_EMULATED_FAIL", "cuInit:1=803");
    emulated_load(NULL);
    cr_assert_eq(set_fail(NULL), 0);
    check_success(emulated_init(NULL));
}

Test(emulated_fault, ends_the_process) {
    const char *const arguments[] = {"calls", NULL};
    /* A report would be the work of an exit handler. */
    const char *const environment[] = {"GPUIPC_EMULATED_FAIL=cuDeviceGetCount:2=die",
                                       "GPUIPC_EMULATED_REPORT=1", NULL};
    child_process *child;
    child_end end;
    char got[CHILD_LINE_MAX];
    check_ok(child_start("emulated_helper", arguments, environment, &child));
    cr_assert(child_expect_line(child, "first 0", got, 20000), "%s", got);
    check_status(GPUIPC_ERR_PEER_CLOSED, child_read_line(child, got, sizeof(got), 20000));
    check_ok(child_wait(child, 20000, &end));
    cr_assert(end.exited && end.code == 137, "exited %d, code %d", end.exited, end.code);
    child_destroy(child);
}
