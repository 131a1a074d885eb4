/* SPDX-License-Identifier: MIT */
/** @file What of the emulated driver there is on Linux alone: fork(), LD_LIBRARY_PATH, and descriptors
 *  that carry less rights than their memory has. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "child.h"
#include "emulated_test.h"

TestSuite(posix_emulated, .timeout = 60);

#define WAIT_MS 20000

static child_process *start_helper(const char *argument, const char *environment) {
    const char *const arguments[] = {argument, NULL};
    const char *const changes[] = {environment, NULL};
    child_process *child;
    check_ok(child_start("posix_emulated_helper", arguments, changes, &child));
    return child;
}

static void expect_end(child_process *child) {
    char line[CHILD_LINE_MAX];
    child_end end;
    check_status(GPUIPC_ERR_PEER_CLOSED, child_read_line(child, line, sizeof(line), WAIT_MS));
    check_ok(child_wait(child, WAIT_MS, &end));
    cr_assert(end.exited && end.code == 0, "exited %d, code %d", end.exited, end.code);
    child_destroy(child);
}

/* bin/emulated/libcuda.so.1: found by the name that every program asks for. */
Test(posix_emulated, stands_in_for_the_drivers_own_library) {
    char variable[1024];
    char got[CHILD_LINE_MAX];
    const char *path = os_library_path(emulated_load(NULL));
    const int length = (int)(strlen(path) - strlen(os_emulated_driver_name));
    snprintf(variable, sizeof(variable), "LD_LIBRARY_PATH=%.*semulated", length, path);
    child_process *child = start_helper("system", variable);
    cr_assert(child_expect_line(child, "emulated 1", got, WAIT_MS), "%s", got);
    expect_end(child);
}

Test(posix_emulated, a_forked_child_gets_no_driver) {
    char got[CHILD_LINE_MAX];
    child_process *child = start_helper("fork", NULL);
    cr_assert(child_expect_line(child, "child 3 3 3", got, WAIT_MS), "%s", got);
    cr_assert(child_expect_line(child, "parent 0", got, WAIT_MS), "%s", got);
    expect_end(child);
}

/* The forked child holds none of it, and says nothing. */
Test(posix_emulated, the_report_is_of_the_process_that_made_what_is_live) {
    char got[CHILD_LINE_MAX];
    const char *const expected = "gpuipc emulated driver: still live: primary ";
    child_process *child = start_helper("leave-forked", "GPUIPC_EMULATED_REPORT=1");
    cr_assert(child_expect_line(child, "the child has ended", got, WAIT_MS), "%s", got);
    check_ok(child_read_line(child, got, sizeof(got), WAIT_MS));
    cr_assert_eq(strncmp(got, expected, strlen(expected)), 0, "%s", got);
    expect_end(child);
}

Test(posix_emulated, a_descriptor_that_cannot_be_written_to_is_refused) {
    char path[64];
    int descriptor = -1;
    CUmemGenericAllocationHandle imported = 5;
    emulated_start(NULL);
    const CUmemGenericAllocationHandle handle = memory_create(0, GRANULE);
    check_success(drv.cuMemExportToShareableHandle(&descriptor, handle,
                                                   CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    /* proc(5): opens what the descriptor stands for anew, with the rights that are asked for. */
    snprintf(path, sizeof(path), "/proc/self/fd/%d", descriptor);
    const int read_only = open(path, O_RDONLY | O_CLOEXEC);
    cr_assert_geq(read_only, 0);
    check_result(CUDA_ERROR_UNKNOWN,
                 drv.cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)read_only,
                                                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    cr_assert_eq(imported, 5);
    cr_assert_eq(close(read_only), 0);
    cr_assert_eq(close(descriptor), 0);
    check_success(drv.cuMemRelease(handle));
}

Test(posix_emulated, rights_are_for_handles_of_windows) {
    static const unsigned char attributes[48] = {48};
    CUmemGenericAllocationHandle handle = 5;
    emulated_start(NULL);
    CUmemAllocationProp prop = shareable_on(0);
    cr_assert_null(prop.win32HandleMetaData);
    prop.win32HandleMetaData = (void *)(uintptr_t)attributes;
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuMemCreate(&handle, GRANULE, &prop, 0));
    cr_assert_eq(handle, 5);
}

/* Asking the system would end this process (setrlimit(2), SIGXFSZ). */
Test(posix_emulated, a_limit_of_file_sizes_ends_nobody_who_wants_a_dma_buf) {
    struct rlimit limit;
    int descriptor = -1;
    emulated_start(NULL);
    const CUdeviceptr memory = memory_make(0, GRANULE);
    cr_assert_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = GRANULE - 1;
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    check_result(CUDA_ERROR_OPERATING_SYSTEM,
                 drv.cuMemGetHandleForAddressRange(&descriptor, memory, GRANULE,
                                                   CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
    limit.rlim_cur = limit.rlim_max;
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    check_success(drv.cuMemGetHandleForAddressRange(&descriptor, memory, GRANULE,
                                                    CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
    cr_assert_eq(close(descriptor), 0);
    memory_unmake(memory, GRANULE);
}
