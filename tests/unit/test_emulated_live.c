/* SPDX-License-Identifier: MIT */
/** @file The count of what is live, and that releasing everything leaves nothing. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "child.h"
#include "emulated_test.h"
#include "leak_gate.h"

TestSuite(emulated_live, .timeout = 60);

static gpuipc_emulated_live live(void) {
    gpuipc_emulated_live now;
    get_live(&now);
    return now;
}

Test(emulated_live, is_nothing_before_init) {
    gpuipc_emulated_live now;
    const gpuipc_emulated_live nothing = {0};
    emulated_load(NULL);
    memset(&now, 0x5a, sizeof(now));
    get_live(&now);
    cr_assert_eq(memcmp(&now, &nothing, sizeof(now)), 0);
}

Test(emulated_live, counts_memory) {
    emulated_start(NULL);
    CUmemGenericAllocationHandle again = 0;
    const CUmemGenericAllocationHandle handle = memory_create(0, GRANULE);
    const CUdeviceptr address = memory_map(handle, GRANULE);
    cr_assert_eq(live().allocations, 1);
    cr_assert_eq(live().reservations, 1);
    cr_assert_eq(live().mappings, 1);
    check_success(drv.cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)address));
    cr_assert_eq(again, handle, "cuda.h: the same handle value that was mapped");
    cr_assert_eq(live().allocations, 2, "a retain counts like a handle");
    check_success(drv.cuMemRelease(handle));
    check_success(drv.cuMemRelease(handle));
    cr_assert_eq(live().allocations, 0);
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuMemRelease(handle));
    check_success(drv.cuMemUnmap(address, GRANULE));
    cr_assert_eq(live().mappings, 0);
    check_success(drv.cuMemAddressFree(address, GRANULE));
    cr_assert_eq(live().reservations, 0);
}

Test(emulated_live, counts_the_rest) {
    CUdeviceptr plain = 0;
    CUstream stream = NULL;
    CUevent event = NULL;
    CUcontext made = NULL;
    CUresult (*create)(CUcontext *, unsigned, CUdevice);
    CUresult (*destroy)(CUcontext);
    emulated_start(NULL);
    emulated_symbol(drv.library, "cuCtxCreate_v2", &create);
    emulated_symbol(drv.library, "cuCtxDestroy_v2", &destroy);
    cr_assert_eq(live().primary, 1);
    check_success(create(&made, 0, 0));
    check_success(drv.cuMemAlloc(&plain, 4));
    check_success(drv.cuStreamCreate(&stream, 0));
    check_success(drv.cuEventCreate(&event, 0));
    cr_assert_eq(live().contexts, 1);
    cr_assert_eq(live().plain, 1);
    cr_assert_eq(live().streams, 1);
    cr_assert_eq(live().events, 1);
    /* cuda.h: with a context goes all that was made in it. */
    check_success(destroy(made));
    cr_assert_eq(live().contexts + live().plain + live().streams + live().events, 0);
    check_result(CUDA_ERROR_INVALID_HANDLE, drv.cuEventDestroy(event));
    check_result(CUDA_ERROR_INVALID_HANDLE, drv.cuStreamDestroy(stream));
    check_success(drv.cuDevicePrimaryCtxRelease(0));
    cr_assert_eq(live().primary, 0);
}

Test(emulated_live, nothing_is_left_behind) {
    leak_gate gate;
    emulated_start(NULL);
    leak_gate_begin(&gate);
    for (int round = 0; round < 3; round++) {
        CUstream stream = NULL;
        CUevent event = NULL;
        CUdeviceptr plain = 0;
        intptr_t written = 0;
        os_handle exported;
        CUmemGenericAllocationHandle imported = 0;
        const CUmemGenericAllocationHandle handle = memory_create(0, GRANULE);
        const CUdeviceptr address = memory_map(handle, GRANULE);
        check_success(memory_allow(address, GRANULE, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
        check_success(drv.cuMemExportToShareableHandle(
            &written, handle, (CUmemAllocationHandleType)os_shareable_handle_type, 0));
        check_ok(os_handle_adopt_exported(&written, &exported));
        check_success(drv.cuMemImportFromShareableHandle(
            &imported, (void *)exported.value,
            (CUmemAllocationHandleType)os_shareable_handle_type));
        check_success(drv.cuStreamCreate(&stream, 0));
        check_success(drv.cuEventCreate(&event, 0));
        check_success(drv.cuMemAlloc(&plain, GRANULE));
        check_success(drv.cuMemsetD8Async(address, 1, GRANULE, stream));
        check_success(drv.cuMemcpyDtoDAsync(plain, address, GRANULE, stream));
        check_success(drv.cuEventRecord(event, stream));
        check_success(drv.cuStreamDestroy(stream));
        check_success(drv.cuMemFree(plain));
        check_success(drv.cuEventDestroy(event));
        memory_unmake(address, GRANULE);
        check_success(drv.cuMemRelease(handle));
        check_success(drv.cuMemRelease(imported));
        os_handle_close(&exported);
    }
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

static size_t free_bytes(void) {
    size_t available = 0;
    size_t total = 0;
    check_success(drv.cuMemGetInfo(&available, &total));
    return available;
}

Test(emulated_live, memory_is_taken_until_the_last_use) {
    emulated_start("memory=16M");
    const size_t all = free_bytes();
    const CUmemGenericAllocationHandle handle = memory_create(0, 4 * GRANULE);
    cr_assert_eq(free_bytes(), all - 4 * GRANULE);
    const CUdeviceptr address = memory_map(handle, 4 * GRANULE);
    check_success(drv.cuMemRelease(handle));
    cr_assert_eq(free_bytes(), all - 4 * GRANULE, "the mapping keeps it");
    CUmemGenericAllocationHandle other = 0;
    const CUmemAllocationProp prop = shareable_on(0);
    check_result(CUDA_ERROR_OUT_OF_MEMORY, drv.cuMemCreate(&other, 5 * GRANULE, &prop, 0));
    memory_unmake(address, 4 * GRANULE);
    cr_assert_eq(free_bytes(), all);
    check_success(drv.cuMemCreate(&other, 8 * GRANULE, &prop, 0));
    cr_assert_eq(free_bytes(), 0);
    CUdeviceptr plain = 0;
    check_result(CUDA_ERROR_OUT_OF_MEMORY, drv.cuMemAlloc(&plain, 1));
    check_success(drv.cuMemRelease(other));
    cr_assert_eq(free_bytes(), all);
}

/* What the list must be, with the value that the driver chose itself: that of the primary context,
 * which is current. */
static void expect_list(const char *rest) {
    char expected[1024];
    char got[1024];
    CUcontext primary = NULL;
    check_success(drv.cuCtxGetCurrent(&primary));
    snprintf(expected, sizeof(expected), "%sprimary 0x%" PRIxPTR " device 0 count 1\n", rest,
             (uintptr_t)primary);
    cr_assert_eq(list_live(got, sizeof(got)), strlen(expected));
    cr_assert_str_eq(got, expected);
}

Test(emulated_live, lists_nothing_before_init) {
    char text[8] = "before";
    emulated_load(NULL);
    cr_assert_eq(list_live(text, sizeof(text)), 0);
    cr_assert_str_eq(text, "");
    cr_assert_eq(list_live(NULL, 0), 0);
}

Test(emulated_live, lists_memory) {
    char rest[512];
    CUdeviceptr plain = 0;
    CUmemGenericAllocationHandle again = 0;
    emulated_start(NULL);
    expect_list("");
    const CUmemGenericAllocationHandle handle = memory_create(1, 2 * GRANULE);
    const CUdeviceptr address = memory_map(handle, 2 * GRANULE);
    check_success(drv.cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)address));
    check_success(drv.cuMemAlloc(&plain, 12345));
    snprintf(rest, sizeof(rest),
             "allocation 0x%llx size 4194304 device 1 count 2\n"
             "reservation 0x%llx size 4194304\n"
             "mapping 0x%llx size 4194304 device 1\n"
             "plain 0x%llx size 12345 device 0\n",
             handle, (unsigned long long)address, (unsigned long long)address,
             (unsigned long long)plain);
    expect_list(rest);
    check_success(drv.cuMemRelease(handle));
    check_success(drv.cuMemRelease(handle));
    check_success(drv.cuMemFree(plain));
    snprintf(rest, sizeof(rest),
             "reservation 0x%llx size 4194304\nmapping 0x%llx size 4194304 device 1\n",
             (unsigned long long)address, (unsigned long long)address);
    expect_list(rest);
    memory_unmake(address, 2 * GRANULE);
    expect_list("");
}

Test(emulated_live, lists_the_rest) {
    char expected[512];
    char got[512];
    CUstream stream = NULL;
    CUevent event = NULL;
    CUcontext made = NULL;
    CUresult (*create)(CUcontext *, unsigned, CUdevice);
    emulated_start(NULL);
    emulated_symbol(drv.library, "cuCtxCreate_v2", &create);
    check_success(drv.cuDevicePrimaryCtxRelease(0));
    check_success(create(&made, 0, 1));
    check_success(drv.cuStreamCreate(&stream, 0));
    check_success(drv.cuEventCreate(&event, 0));
    check_success(drv.cuMemsetD8(0, 0, 0)); /* makes the default stream, which nobody destroys */
    snprintf(expected, sizeof(expected),
             "stream 0x%" PRIxPTR " device 1\nevent 0x%" PRIxPTR " device 1\n"
             "context 0x%" PRIxPTR " device 1\n",
             (uintptr_t)stream, (uintptr_t)event, (uintptr_t)made);
    cr_assert_eq(list_live(got, sizeof(got)), strlen(expected));
    cr_assert_str_eq(got, expected);
}

Test(emulated_live, a_list_is_cut_to_the_room_for_it) {
    char whole[256];
    char part[256];
    emulated_start(NULL);
    memory_create(0, GRANULE);
    const size_t length = list_live(whole, sizeof(whole));
    cr_assert_eq(length, strlen(whole));
    for (size_t capacity = 0; capacity <= length + 2; capacity++) {
        memset(part, 'x', sizeof(part));
        cr_assert_eq(list_live(capacity == 0 ? NULL : part, capacity), length);
        if (capacity > 0) {
            cr_assert_eq(strlen(part), capacity <= length ? capacity - 1 : length);
            cr_assert_eq(strncmp(part, whole, capacity - 1), 0);
        }
        cr_assert_eq(part[capacity], 'x');
    }
}

Test(emulated_live, a_gate_lists_what_leaked) {
    leak_gate gate;
    char line[128];
    emulated_start(NULL);
    leak_gate_begin(&gate);
    const CUmemGenericAllocationHandle handle = memory_create(0, GRANULE);
    cr_assert_gt(leak_gate_end(&gate), 0);
    snprintf(line, sizeof(line), "allocation 0x%llx size %zu device 0 count 1\n", handle, GRANULE);
    cr_assert_not_null(strstr(gate.text, line), "%s", gate.text);
    check_success(drv.cuMemRelease(handle));
    leak_gate_begin(&gate);
    cr_assert_eq(leak_gate_end(&gate), 0);
    cr_assert_str_eq(gate.text, "");
}

#define WAIT_MS 20000

/* How every line of the report begins. */
static const char before[] = "gpuipc emulated driver: still live: ";

static child_process *start_helper(const char *argument, const char *report) {
    const char *const arguments[] = {argument, NULL};
    const char *const environment[] = {report, "GPUIPC_EMULATED_MACHINE", NULL};
    child_process *child;
    check_ok(child_start("emulated_helper", arguments, environment, &child));
    return child;
}

static void expect_end(child_process *child, int code) {
    char line[CHILD_LINE_MAX];
    child_end end;
    check_result((CUresult)GPUIPC_ERR_PEER_CLOSED,
                 (CUresult)child_read_line(child, line, sizeof(line), WAIT_MS));
    check_ok(child_wait(child, WAIT_MS, &end));
    cr_assert(end.exited && end.code == code, "exited %d, code %d", end.exited, end.code);
    child_destroy(child);
}

Test(emulated_report, names_what_is_left_at_the_exit, .timeout = 60) {
    char got[CHILD_LINE_MAX];
    char expected[CHILD_LINE_MAX];
    child_process *child = start_helper("leave", "GPUIPC_EMULATED_REPORT=1");
    check_ok(child_read_line(child, got, sizeof(got), WAIT_MS));
    cr_assert_eq(strncmp(got, "mapped ", 7), 0, "%s", got);
    const char *const address = got + 7;
    snprintf(expected, sizeof(expected), "%sreservation 0x%.20s size %zu", before, address,
             GRANULE);
    char line[CHILD_LINE_MAX];
    cr_assert(child_expect_line(child, expected, line, WAIT_MS), "%s", line);
    snprintf(expected, sizeof(expected), "%smapping 0x%.20s size %zu device 0", before, address,
             GRANULE);
    cr_assert(child_expect_line(child, expected, line, WAIT_MS), "%s", line);
    check_ok(child_read_line(child, line, sizeof(line), WAIT_MS));
    snprintf(expected, sizeof(expected), "%sprimary 0x", before);
    cr_assert_eq(strncmp(line, expected, strlen(expected)), 0, "%s", line);
    expect_end(child, 0);
}

Test(emulated_report, is_silent_when_nothing_is_left_or_nobody_asks, .timeout = 60) {
    static const char *const rows[][2] = {{"nothing", "GPUIPC_EMULATED_REPORT=1"},
                                          {"leave", "GPUIPC_EMULATED_REPORT=0"},
                                          {"leave", "GPUIPC_EMULATED_REPORT="},
                                          {"leave", "GPUIPC_EMULATED_REPORT"}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char got[CHILD_LINE_MAX];
        child_process *child = start_helper(rows[i][0], rows[i][1]);
        check_ok(child_read_line(child, got, sizeof(got), WAIT_MS));
        cr_assert_eq(strncmp(got, "mapped ", 7), 0, "%s", got);
        expect_end(child, 0);
    }
}

/* What ends with the process is not waited for: the work would take a minute. */
Test(emulated_report, does_not_wait_for_work, .timeout = 60) {
    static const char *const kinds[] = {"plain", "stream", "primary"};
    const char *const arguments[] = {"busy", NULL};
    const char *const environment[] = {"GPUIPC_EMULATED_REPORT=1",
                                       "GPUIPC_EMULATED_MACHINE=stream-delay-ms=60000", NULL};
    char got[CHILD_LINE_MAX];
    char expected[CHILD_LINE_MAX];
    child_process *child;
    check_ok(child_start("emulated_helper", arguments, environment, &child));
    snprintf(expected, sizeof(expected), "query %d", (int)CUDA_ERROR_NOT_READY);
    cr_assert(child_expect_line(child, expected, got, WAIT_MS), "%s", got);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        snprintf(expected, sizeof(expected), "%s%s 0x", before, kinds[i]);
        check_ok(child_read_line(child, got, sizeof(got), WAIT_MS));
        cr_assert_eq(strncmp(got, expected, strlen(expected)), 0, "%s", got);
    }
    expect_end(child, 0);
}

/* On Windows the system ends them first, wherever they are, and the report comes after; elsewhere the
 * report comes while they go on. */
Test(emulated_report, comes_while_threads_are_in_the_driver, .timeout = 60) {
    for (int round = 0; round < 4; round++) {
        char got[CHILD_LINE_MAX];
        unsigned lines = 0;
        child_end end;
        child_process *child = start_helper("calling", "GPUIPC_EMULATED_REPORT=1");
        cr_assert(child_expect_line(child, "calling", got, WAIT_MS), "%s", got);
        while (child_read_line(child, got, sizeof(got), WAIT_MS) == GPUIPC_OK) {
            cr_assert_eq(strncmp(got, before, strlen(before)), 0, "%s", got);
            lines++;
        }
        cr_assert_eq(gpuipc_error_get()->status, GPUIPC_ERR_PEER_CLOSED);
        cr_assert_gt(lines, 0, "the retain of the main thread is always there");
        check_ok(child_wait(child, WAIT_MS, &end));
        cr_assert(end.exited && end.code == 0, "exited %d, code %d", end.exited, end.code);
        child_destroy(child);
    }
}

Test(emulated_report, is_0_or_1, .timeout = 60) {
    environment_set("GPUIPC_EMULATED_REPORT", "yes");
    check_result(CUDA_ERROR_INVALID_VALUE, emulated_init(NULL));
    environment_set("GPUIPC_EMULATED_REPORT", "0");
    check_success(emulated_init(NULL));
}
