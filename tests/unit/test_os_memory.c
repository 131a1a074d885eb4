/* SPDX-License-Identifier: MIT */
/** @file Shared memory: made, looked at, mapped. */
#include <string.h>

#include "check.h"
#include "leak_gate.h"
#include "os.h"

TestSuite(os_memory, .timeout = 30);

Test(os_memory, starts_as_zeroes_and_is_one_memory) {
    leak_gate gate;
    leak_gate_begin(&gate);
    os_handle handle;
    os_handle copy;
    void *first;
    void *second;
    const uint64_t size = 3 * 4096 + 17;
    check_ok(os_memory_create("one", size, &handle));
    check_ok(os_handle_duplicate(handle, &copy));
    check_ok(os_memory_map(handle, size, true, &first));
    check_ok(os_memory_map(copy, size, false, &second));
    cr_assert_neq(first, second);
    for (uint64_t i = 0; i < size; i++) {
        cr_assert_eq(((unsigned char *)second)[i], 0);
    }
    memset(first, 0xA5, size);
    cr_assert_eq(memcmp(first, second, size), 0);
    os_handle_close(&handle);
    os_handle_close(&copy);
    /* A mapping holds the memory without any handle. */
    cr_assert_eq(((unsigned char *)second)[size - 1], 0xA5);
    os_memory_unmap(first, size);
    os_memory_unmap(second, size);
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

/* Exactly what which system says is in test_posix_memory.c and test_win32_memory.c. */
Test(os_memory, says_its_size) {
    static const uint64_t sizes[] = {1, 4095, 4096, 4097, 2u << 20};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        os_handle handle;
        uint64_t bytes = 0;
        void *address;
        check_ok(os_memory_create("size", sizes[i], &handle));
        check_ok(os_memory_inspect(handle, &bytes));
        cr_assert_geq(bytes, sizes[i]);
        cr_assert_lt(bytes - sizes[i], 4096);
        check_ok(os_memory_map(handle, bytes, true, &address));
        os_memory_unmap(address, bytes);
        os_handle_close(&handle);
    }
}

/* A process does not see its own lock. Where there are none, nothing is known. */
Test(os_memory, a_lock_is_for_other_processes) {
    os_handle handle;
    check_ok(os_memory_create("lock", 4096, &handle));
    const gpuipc_status status = os_memory_lock(handle, 1);
    cr_assert(status == GPUIPC_OK || status == GPUIPC_ERR_NOT_SUPPORTED);
    cr_assert_eq(os_memory_is_locked(handle, 1), status == GPUIPC_OK ? 0 : -1);
    os_handle_close(&handle);
}

Test(os_memory, impossible_sizes_are_refused) {
    static const uint64_t sizes[] = {0, (uint64_t)INT64_MAX + 1, UINT64_MAX};
    leak_gate gate;
    leak_gate_begin(&gate);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        os_handle handle = {77};
        check_status(GPUIPC_ERR_INVALID_ARGUMENT, os_memory_create("no", sizes[i], &handle));
        cr_assert_eq(handle.value, 77);
    }
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

Test(os_memory, nothing_is_mapped_beyond_its_end) {
    os_handle handle;
    check_ok(os_memory_create("end", 4096, &handle));
    static const uint64_t sizes[] = {0, 4097, 8192, UINT64_MAX};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        void *address = &handle;
        check_status(GPUIPC_ERR_INVALID_ARGUMENT, os_memory_map(handle, sizes[i], true, &address));
        cr_assert_eq(address, (void *)&handle);
    }
    void *address;
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, os_memory_map(OS_HANDLE_NONE, 4096, true, &address));
    os_handle_close(&handle);
    os_memory_unmap(NULL, 4096);
}
