/* SPDX-License-Identifier: MIT */
/** @file What a test and its helper share: records, and a page of words. */
#include "conformance_share.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

/** Sends a command and receives the line that answers it. */
GPUIPC_PRINTF(3, 0)
static void ask(helper *process, char line[MESSAGE_BYTES], const char *format, va_list arguments) {
    char command[MESSAGE_BYTES];
    const int length = vsnprintf(command, sizeof command, format, arguments);
    cr_assert(length > 0 && length < (int)sizeof command);
    helper_tell(process, OS_HANDLE_NONE, "%s", command);
    helper_hear(process, line, NULL);
}

void helper_make(helper *process, void *record, const char *format, ...) {
    char line[MESSAGE_BYTES], digits[129];
    int result = -1;
    va_list arguments;
    va_start(arguments, format);
    ask(process, line, format, arguments);
    va_end(arguments);
    cr_assert_eq(sscanf(line, "%d %128s", &result, digits), 2, "the helper answered \"%s\"", line);
    cr_assert_eq(result, (int)CUDA_SUCCESS, "in the helper: %s: %s", format,
                 conformance_code((CUresult)result));
    for (size_t i = 0; i < 64; i++) {
        unsigned byte;
        cr_assert_eq(sscanf(digits + 2 * i, "%2x", &byte), 1);
        ((unsigned char *)record)[i] = (unsigned char)byte;
    }
}

CUresult helper_do(helper *process, const char *format, ...) {
    char line[MESSAGE_BYTES];
    int result = -1;
    va_list arguments;
    va_start(arguments, format);
    ask(process, line, format, arguments);
    va_end(arguments);
    cr_assert_eq(sscanf(line, "%d", &result), 1, "the helper answered \"%s\"", line);
    return (CUresult)result;
}

uint32_t helper_peek(helper *process, unsigned number, size_t offset) {
    char line[MESSAGE_BYTES];
    int result = -1;
    uint32_t word = 0;
    helper_tell(process, OS_HANDLE_NONE, "peek %u %zu", number, offset);
    helper_hear(process, line, NULL);
    cr_assert_eq(sscanf(line, "%d %u", &result, &word), 2, "the helper answered \"%s\"", line);
    cr_assert_eq(result, (int)CUDA_SUCCESS, "reading in the helper: %s",
                 conformance_code((CUresult)result));
    return word;
}

os_handle helper_pool(helper *process, int device) {
    char line[MESSAGE_BYTES];
    os_handle shareable = OS_HANDLE_NONE;
    helper_tell(process, OS_HANDLE_NONE, "pool %d", device);
    helper_hear(process, line, &shareable);
    cr_assert(os_handle_is_valid(shareable), "the helper made no pool: \"%s\"", line);
    return shareable;
}

static int device_attribute(CUdevice_attribute which) {
    int value = 0;
    OK(drv.cuDeviceGetAttribute(&value, which, 0));
    return value;
}

void need_pools(void) {
    if (device_attribute(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED) == 0) {
        cr_assert_not(conformance_is_measured_machine(), "measured: the device has pools");
        cr_skip_test("the device has no memory pools");
    }
}

void need_shareable_pools(void) {
    need_pools();
    const int types = device_attribute(CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES);
    if ((types & (int)SYSTEM_TYPE) == 0) {
        cr_assert_not(conformance_is_measured_machine() &&
                          SYSTEM_TYPE == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                      "measured: pools travel as file descriptors");
        cr_skip_test("pools of the device are not shared through this system's handles");
    }
}

void need_words(void) {
    if (device_attribute(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS) == 0) {
        cr_assert_not(conformance_is_measured_machine(), "measured: streams write and wait");
        cr_skip_test("the device has no 64-bit stream memory operations");
    }
}

void need_ipc_events(void) {
    if (device_attribute(CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED) == 0) {
        cr_assert_not(conformance_is_measured_machine(), "measured: events for other processes");
        cr_skip_test("the device has no events for other processes");
    }
}

shared_page page_make(void) {
    shared_page page = {.handle = OS_HANDLE_NONE};
    cr_assert_eq(os_memory_create("gpuipc-words", PAGE, &page.handle), GPUIPC_OK);
    cr_assert_eq(os_memory_map(page.handle, PAGE, true, &page.host), GPUIPC_OK);
    OK(drv.cuMemHostRegister(page.host, PAGE,
                             CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
    OK(drv.cuMemHostGetDevicePointer(&page.device, page.host, 0));
    return page;
}

void page_undo(shared_page *page) {
    OK(drv.cuMemHostUnregister(page->host));
    os_memory_unmap(page->host, PAGE);
    os_handle_close(&page->handle);
}

void page_share(const shared_page *page, helper *process) {
    char line[MESSAGE_BYTES];
    helper_tell(process, page->handle, "word 0 %zu", PAGE);
    helper_hear(process, line, NULL);
    cr_assert_str_eq(line, "0", "measured: a page is registered in two processes; it answered %s",
                     line);
}

static _Atomic uint64_t *word_at(const shared_page *page, unsigned number) {
    return (_Atomic uint64_t *)page->host + number;
}

uint64_t page_load(const shared_page *page, unsigned number) {
    return atomic_load(word_at(page, number));
}

void page_store(const shared_page *page, unsigned number, uint64_t value) {
    atomic_store(word_at(page, number), value);
}

CUdeviceptr page_word(const shared_page *page, unsigned number) {
    return page->device + sizeof(uint64_t) * number;
}
