/* SPDX-License-Identifier: MIT */
/** @file What the library exports, what cuGetProcAddress finds, and that it stays. */
#include <string.h>

#include "emulated_test.h"

TestSuite(emulated_entry, .timeout = 60);

static cuda_get_proc_address_v2 find_second(os_library *library) {
    cuda_get_proc_address_v2 find;
    emulated_symbol(library, "cuGetProcAddress_v2", &find);
    return find;
}

static cuda_get_proc_address_v1 find_first(os_library *library) {
    cuda_get_proc_address_v1 find;
    emulated_symbol(library, "cuGetProcAddress", &find);
    return find;
}

Test(emulated_entry, every_entry_point_is_exported_and_found) {
    static const struct {
        const char *name;
        const char *symbol;
        int version;
    } entries[] = {
#define ENTRY(group, name, suffix, version, parameters) {#name, #name #suffix, version},
        CUDA_API_LIST(ENTRY)
#undef ENTRY
    };
    os_library *library = emulated_load(NULL);
    const cuda_get_proc_address_v2 find = find_second(library);
    for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
        CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
        void *found = &status;
        void *symbol = os_library_symbol(library, entries[i].symbol);
        check_success(find(entries[i].name, &found, entries[i].version, 0, &status));
        cr_assert_eq(found, symbol, "%s", entries[i].name);
        cr_assert_not_null(symbol, "%s", entries[i].symbol);
        cr_assert_eq(status, CU_GET_PROC_ADDRESS_SUCCESS);
    }
}

Test(emulated_entry, the_newest_version_that_was_asked_for) {
    const struct {
        const char *name;
        int version;
        const char *symbol; /* NULL: the version is too old */
    } cases[] = {
        {"cuDeviceGetUuid", 9010, NULL},
        {"cuDeviceGetUuid", 9020, "cuDeviceGetUuid"},
        {"cuDeviceGetUuid", 11030, "cuDeviceGetUuid"},
        {"cuDeviceGetUuid", 11040, "cuDeviceGetUuid_v2"},
        {"cuDeviceGetUuid", 12080, "cuDeviceGetUuid_v2"},
        {"cuCtxCreate", 3010, NULL},
        {"cuCtxCreate", 11030, "cuCtxCreate_v2"},
        {"cuCtxCreate", 12040, "cuCtxCreate_v3"},
        {"cuCtxCreate", 12050, "cuCtxCreate_v4"},
        {"cuGetProcAddress", 11080, "cuGetProcAddress"},
        {"cuGetProcAddress", 12000, "cuGetProcAddress_v2"},
        {"cuMemAlloc", 3010, NULL},
    };
    os_library *library = emulated_load("version=12080");
    const cuda_get_proc_address_v2 find = find_second(library);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
        void *found = &status;
        check_success(find(cases[i].name, &found, cases[i].version, 0, &status));
        if (cases[i].symbol == NULL) {
            cr_assert_null(found, "%s of %d", cases[i].name, cases[i].version);
            cr_assert_eq(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
        } else {
            cr_assert_eq(found, os_library_symbol(library, cases[i].symbol), "%s of %d",
                         cases[i].name, cases[i].version);
        }
    }
}

Test(emulated_entry, an_old_driver_lacks_what_is_newer) {
    os_library *library = emulated_load("version=11040");
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
    void *found = &status;
    check_success(find_second(library)("cuCtxCreate", &found, 11040, 0, &status));
    cr_assert_eq(found, os_library_symbol(library, "cuCtxCreate_v3"));
    check_result(CUDA_ERROR_INVALID_VALUE,
                 find_second(library)("cuCtxCreate", &found, 12050, 0, &status));
}

Test(emulated_entry, the_first_form_answers_not_found) {
    os_library *library = emulated_load(NULL);
    void *found = NULL;
    check_success(find_first(library)("cuMemCreate", &found, 10020, 0));
    cr_assert_eq(found, os_library_symbol(library, "cuMemCreate"));
    check_result(CUDA_ERROR_NOT_FOUND, find_first(library)("cuMemCreate", &found, 10010, 0));
    check_result(CUDA_ERROR_NOT_FOUND, find_first(library)("cuMemBake", &found, 13000, 0));
    check_result(CUDA_ERROR_NOT_FOUND, find_first(library)("cuMemAlloc_v2", &found, 13000, 0));
    check_result(CUDA_ERROR_INVALID_VALUE, find_first(library)(NULL, &found, 13000, 0));
}

Test(emulated_entry, nothing_works_before_init) {
    os_library *library = emulated_load(NULL);
    CUresult (*get_count)(int *);
    CUresult (*get_name)(CUresult, const char **);
    CUresult (*get_version)(int *);
    int number = 0;
    const char *name = NULL;
    emulated_symbol(library, "cuDeviceGetCount", &get_count);
    emulated_symbol(library, "cuGetErrorName", &get_name);
    emulated_symbol(library, "cuDriverGetVersion", &get_version);
    check_result(CUDA_ERROR_NOT_INITIALIZED, get_count(&number));
    check_success(get_name(CUDA_ERROR_NOT_INITIALIZED, &name));
    cr_assert_str_eq(name, "CUDA_ERROR_NOT_INITIALIZED");
    check_success(get_version(&number));
    cr_assert_eq(number, 13000);
}

/* Its threads may be waiting for work when a program closes it. */
Test(emulated_entry, stays_in_the_process_when_it_is_closed) {
    os_library *library;
    gpuipc_emulated_mark_fn mark;
    void *symbol;
    check_ok(os_library_open_own(os_emulated_driver_name, &library));
    emulated_symbol(library, GPUIPC_EMULATED_MARK, &mark);
    os_library_close(library);
    cr_assert_eq(mark(), 1);
    check_ok(os_library_open_own(os_emulated_driver_name, &library));
    symbol = os_library_symbol(library, GPUIPC_EMULATED_MARK);
    cr_assert_eq(memcmp(&symbol, &mark, sizeof(mark)), 0);
    os_library_close(library);
}
