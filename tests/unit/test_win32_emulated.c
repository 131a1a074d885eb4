/* SPDX-License-Identifier: MIT */
/** @file What of the emulated driver there is on Windows alone: rights, and handles of many kinds. */
#include <string.h>
#include <windows.h>
#include <winternl.h>

#include "emulated_test.h"

TestSuite(win32_emulated, .timeout = 60);

static HANDLE memory_export(CUmemGenericAllocationHandle handle) {
    HANDLE shareable = NULL;
    check_success(
        drv.cuMemExportToShareableHandle(&shareable, handle, CU_MEM_HANDLE_TYPE_WIN32, 0));
    return shareable;
}

static CUresult import(HANDLE shareable) {
    CUmemGenericAllocationHandle imported = 5;
    const CUresult result =
        drv.cuMemImportFromShareableHandle(&imported, shareable, CU_MEM_HANDLE_TYPE_WIN32);
    if (result == CUDA_SUCCESS) {
        check_success(drv.cuMemRelease(imported));
    } else {
        cr_assert_eq(imported, 5, "a failed import wrote a handle");
    }
    return result;
}

Test(win32_emulated, memory_wants_rights) {
    SECURITY_ATTRIBUTES wrong = {.nLength = sizeof(wrong)};
    OBJECT_ATTRIBUTES plain = {.Length = sizeof(plain)};
    CUmemGenericAllocationHandle handle = 5;
    emulated_start(NULL);
    CUmemAllocationProp prop = shareable_on(0);
    cr_assert_not_null(prop.win32HandleMetaData);
    prop.win32HandleMetaData = NULL;
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuMemCreate(&handle, GRANULE, &prop, 0));
    prop.win32HandleMetaData = &wrong;
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuMemCreate(&handle, GRANULE, &prop, 0));
    plain.Attributes = OBJ_INHERIT;
    prop.win32HandleMetaData = &plain;
    check_result(CUDA_ERROR_NOT_SUPPORTED, drv.cuMemCreate(&handle, GRANULE, &prop, 0));
    cr_assert_eq(handle, 5);
    plain.Attributes = 0;
    check_success(drv.cuMemCreate(&handle, GRANULE, &prop, 0));
    check_success(drv.cuMemRelease(handle));
    /* cuda.h: for no other type may there be any. */
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuMemCreate(&handle, GRANULE, &prop, 0));
}

Test(win32_emulated, other_types_of_handles_are_refused) {
    static const CUmemAllocationHandleType types[] = {
        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, CU_MEM_HANDLE_TYPE_WIN32_KMT,
        (CUmemAllocationHandleType)(CU_MEM_HANDLE_TYPE_WIN32 | CU_MEM_HANDLE_TYPE_WIN32_KMT)};
    CUmemGenericAllocationHandle handle = 5;
    emulated_start(NULL);
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        CUmemAllocationProp prop = shareable_on(0);
        prop.requestedHandleTypes = types[i];
        check_result(CUDA_ERROR_INVALID_VALUE, drv.cuMemCreate(&handle, GRANULE, &prop, 0));
    }
    cr_assert_eq(handle, 5);
}

Test(win32_emulated, what_is_exported_is_a_section_that_is_not_inherited) {
    DWORD flags = HANDLE_FLAG_INHERIT;
    emulated_start(NULL);
    const CUmemGenericAllocationHandle handle = memory_create(0, GRANULE);
    const HANDLE first = memory_export(handle);
    const HANDLE second = memory_export(handle);
    cr_assert_neq(first, second, "every export is a new handle");
    cr_assert(GetHandleInformation(first, &flags));
    cr_assert_eq(flags & HANDLE_FLAG_INHERIT, 0);
    void *view = MapViewOfFile(first, FILE_MAP_READ, 0, 0, 4096 + GRANULE);
    cr_assert_not_null(view);
    cr_assert(UnmapViewOfFile(view));
    cr_assert_null(MapViewOfFile(first, FILE_MAP_READ, 0, 0, 4096 + GRANULE + 1));
    /* cuda.h's import takes no handle over. */
    check_success(import(first));
    check_success(import(first));
    cr_assert(CloseHandle(first));
    cr_assert(CloseHandle(second));
    check_success(drv.cuMemRelease(handle));
}

Test(win32_emulated, a_handle_that_cannot_be_written_to_is_refused) {
    HANDLE read_only = NULL;
    emulated_start(NULL);
    const CUmemGenericAllocationHandle handle = memory_create(0, GRANULE);
    const HANDLE shareable = memory_export(handle);
    cr_assert(DuplicateHandle(GetCurrentProcess(), shareable, GetCurrentProcess(), &read_only,
                              SECTION_MAP_READ | SECTION_QUERY, FALSE, 0));
    check_result(CUDA_ERROR_UNKNOWN, import(read_only));
    cr_assert(CloseHandle(read_only));
    cr_assert(DuplicateHandle(GetCurrentProcess(), shareable, GetCurrentProcess(), &read_only,
                              SECTION_MAP_READ | SECTION_MAP_WRITE, FALSE, 0));
    check_result(CUDA_ERROR_UNKNOWN, import(read_only));
    cr_assert(CloseHandle(read_only));
    cr_assert(CloseHandle(shareable));
    check_success(drv.cuMemRelease(handle));
}

Test(win32_emulated, numbers_that_are_no_handles_are_refused) {
    static const intptr_t numbers[] = {0, -1, -2, -6, -12, INTPTR_MIN, 0x7FFFFFFC};
    emulated_start(NULL);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        check_result(CUDA_ERROR_UNKNOWN, import((HANDLE)numbers[i]));
    }
}

Test(win32_emulated, is_not_freed_with_its_last_handle) {
    wchar_t name[64];
    HMODULE module = NULL;
    cr_assert_gt(
        MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, os_emulated_driver_name, -1, name, 64),
        0);
    emulated_start(NULL);
    module = GetModuleHandleW(name);
    cr_assert_not_null(module);
    for (int i = 0; i < 100; i++) {
        FreeLibrary(module);
    }
    cr_assert_eq(GetModuleHandleW(name), module);
    memory_unmake(memory_make(0, GRANULE), GRANULE);
}
