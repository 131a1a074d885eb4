/* SPDX-License-Identifier: MIT */
/** @file What the driver says of itself, its devices and its entry points. */
#include "conformance.h"

#include <string.h>

TestSuite(device, .init = conformance_start, .fini = conformance_finish, .timeout = 60);

Test(device, driver_and_version) {
    int version = 0;
    CHECK("cuda.h: cuDriverGetVersion", CUDA_SUCCESS, drv.cuDriverGetVersion(&version));
    cr_assert_eq(version, drv.version);
    cr_assert(version >= 11040, "gpuipc needs CUDA 11.4, this is %d", version);
    CHECK("cuda.h: cuInit again", CUDA_SUCCESS, drv.cuInit(0));
    CHECK("cuda.h: flags of cuInit must be 0", CUDA_ERROR_INVALID_VALUE, drv.cuInit(1));
    CHECK("reading: no place for the result", CUDA_ERROR_INVALID_VALUE,
          drv.cuDriverGetVersion(NULL));
}

Test(device, names_of_errors) {
    const struct {
        CUresult code;
        const char *name;
    } known[] = {
        {CUDA_SUCCESS, "CUDA_SUCCESS"},
        {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"},
        {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
        {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE"},
        {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY"},
        {CUDA_ERROR_NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED"},
        {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED"},
        {CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN"},
    };
    const char *text;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        CHECK("cuda.h: cuGetErrorName", CUDA_SUCCESS, drv.cuGetErrorName(known[i].code, &text));
        cr_assert_str_eq(text, known[i].name);
        CHECK("cuda.h: cuGetErrorString", CUDA_SUCCESS, drv.cuGetErrorString(known[i].code, &text));
        cr_assert(strlen(text) > 0);
    }
    CHECK("cuda.h: a code that is not recognised", CUDA_ERROR_INVALID_VALUE,
          drv.cuGetErrorName((CUresult)123456, &text));
    cr_assert_null(text, "cuda.h: the text is NULL then");
    text = "";
    CHECK("cuda.h: a code that is not recognised", CUDA_ERROR_INVALID_VALUE,
          drv.cuGetErrorString((CUresult)123456, &text));
    cr_assert_null(text, "cuda.h: the text is NULL then");
}

Test(device, ordinals) {
    CUdevice number = -7;
    for (int ordinal = 0; ordinal < device_count; ordinal++) {
        CHECK("cuda.h: cuDeviceGet", CUDA_SUCCESS, drv.cuDeviceGet(&number, ordinal));
    }
    CHECK("cuda.h: an ordinal beyond the count", CUDA_ERROR_INVALID_DEVICE,
          drv.cuDeviceGet(&number, device_count));
    CHECK("cuda.h: a negative ordinal", CUDA_ERROR_INVALID_DEVICE, drv.cuDeviceGet(&number, -1));
}

Test(device, name_and_memory) {
    char name[128], start[5];
    size_t bytes = 0, free_bytes = 0, total = 0;
    CHECK("cuda.h: cuDeviceGetName", CUDA_SUCCESS, drv.cuDeviceGetName(name, sizeof name, 0));
    cr_assert(strlen(name) >= sizeof start, "a GPU with the name \"%s\"", name);
    CHECK("cuda.h: the name is shortened to the room there is", CUDA_SUCCESS,
          drv.cuDeviceGetName(start, sizeof start, 0));
    cr_assert_eq(start[4], '\0', "cuda.h: the name is NULL-terminated");
    cr_assert_eq(strncmp(start, name, 4), 0);
    CHECK("cuda.h: cuDeviceTotalMem", CUDA_SUCCESS, drv.cuDeviceTotalMem(&bytes, 0));
    CHECK("cuda.h: cuMemGetInfo", CUDA_SUCCESS, drv.cuMemGetInfo(&free_bytes, &total));
    cr_assert_eq(total, bytes, "cuda.h: the total of the device, %zu and %zu", total, bytes);
    cr_assert(free_bytes > 0 && free_bytes <= total);
    CHECK("cuda.h: an invalid device", CUDA_ERROR_INVALID_DEVICE,
          drv.cuDeviceTotalMem(&bytes, device_count));
    CHECK("cuda.h: an invalid device", CUDA_ERROR_INVALID_DEVICE,
          drv.cuDeviceGetName(name, sizeof name, device_count));
}

Test(device, uuids) {
    CUuuid all[64], again;
    CHECK("cuda.h: an invalid device", CUDA_ERROR_INVALID_DEVICE,
          drv.cuDeviceGetUuid(&again, device_count));
    for (int device = 0; device < device_count; device++) {
        CHECK("cuda.h: cuDeviceGetUuid", CUDA_SUCCESS, drv.cuDeviceGetUuid(&all[device], device));
        OK(drv.cuDeviceGetUuid(&again, device));
        cr_assert_eq(memcmp(&again, &all[device], sizeof again), 0, "a UUID does not change");
        for (int other = 0; other < device; other++) {
            cr_assert_neq(memcmp(&all[other], &all[device], sizeof again), 0,
                          "devices %d and %d have one UUID", other, device);
        }
    }
}

/** An attribute as it was measured on an H200, driver 580. */
typedef struct fact {
    CUdevice_attribute attribute;
    int real;     /**< on the machine that was measured */
    int emulated; /**< 0 where the emulated driver does not have the feature (yet) */
    int windows;  /**< the emulated driver's there; nothing was measured there */
    const char *name;
} fact;

static const fact facts[] = {
    {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1, 1, 1, "VMM"},
    {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1, 1, 0, "POSIX_FD"},
    {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_WIN32_HANDLE_SUPPORTED, 0, 0, 1, "WIN32"},
    {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, 1, 1, 0, "FABRIC"},
    {CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 1, 1, 1, "GPUDirect RDMA"},
    {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1, 1, 1, "pools"},
    {CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES, 9, 9, 0, "handle types of pools"},
    {CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, 1, 1, 1, "IPC events"},
    {CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 1, 1, 0, "DMA-BUF"},
    {CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1, 0, 0, "HOST_NUMA"},
    {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1, 1, 1, "unified addressing"},
    {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1, 1, 1, "mapped host memory"},
    {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1, 1, 1, "registered host memory"},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1, 1, 1, "host pointers"},
    {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1, 1, 1, "managed memory"},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 1, 1, 1, "words of 64 bits"},
    {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 3201000, 3201000, 3201000, "memory clock"},
    {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 6016, 6016, 6016, "memory bus width"},
    {CU_DEVICE_ATTRIBUTE_INTEGRATED, 0, 0, 0, "integrated"},
    {CU_DEVICE_ATTRIBUTE_TCC_DRIVER, 0, 0, 0, "TCC"},
    {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32, 32, 32, "warp size"},
};

static int expected_of(const fact *known) {
    if (!drv.is_emulated) {
        return known->real;
    }
    return SYSTEM_TYPE == CU_MEM_HANDLE_TYPE_WIN32 ? known->windows : known->emulated;
}

Test(device, attributes) {
    const bool measured = conformance_is_measured_machine();
    for (size_t i = 0; i < sizeof facts / sizeof facts[0]; i++) {
        const int expected = expected_of(&facts[i]);
        int value = -1;
        CHECK("cuda.h: cuDeviceGetAttribute", CUDA_SUCCESS,
              drv.cuDeviceGetAttribute(&value, facts[i].attribute, 0));
        if (measured) {
            cr_assert_eq(value, expected, "measured: attribute %s is %d, not %d", facts[i].name,
                         expected, value);
        } else {
            cr_assert(value >= 0, "attribute %s is %d", facts[i].name, value);
        }
    }
}

Test(device, attributes_of_the_hardware) {
    const struct {
        CUdevice_attribute attribute;
        int least, most;
    } ranges[] = {
        {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 512, 4096},
        {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 1, 1024},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, 0, 3},
        {CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, 0, 255},
        {CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, 0, 31},
        {CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, 0, 0xFFFFFF},
        {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 0, 64},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 5, 99},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0, 9},
    };
    int value = -1;
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        CHECK("cuda.h: cuDeviceGetAttribute", CUDA_SUCCESS,
              drv.cuDeviceGetAttribute(&value, ranges[i].attribute, 0));
        cr_assert(value >= ranges[i].least && value <= ranges[i].most, "attribute %d is %d",
                  (int)ranges[i].attribute, value);
    }
    CHECK("reading: an unknown attribute", CUDA_ERROR_INVALID_VALUE,
          drv.cuDeviceGetAttribute(&value, (CUdevice_attribute)99999, 0));
    CHECK("cuda.h: an invalid device", CUDA_ERROR_INVALID_DEVICE,
          drv.cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, device_count));
}

static cuda_get_proc_address_v2 get_proc_address_v2(void) {
    cuda_get_proc_address_v2 get = NULL;
    void *symbol = os_library_symbol(drv.library, "cuGetProcAddress_v2");
    if (symbol == NULL) {
        cr_assert(drv.version < 12000, "CUDA 12 and later has cuGetProcAddress_v2");
        cr_skip_test("cuGetProcAddress_v2 came with CUDA 12");
    }
    memcpy(&get, &symbol, sizeof get);
    return get;
}

Test(device, entry_points_are_found) {
    const cuda_get_proc_address_v2 get = get_proc_address_v2();
    const struct {
        const char *name;
        int version;
    } entries[] = {
#define ENTRY(group, name, suffix, version, parameters) {#name, version},
        CUDA_API_LIST(ENTRY)
#undef ENTRY
    };
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
        CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
        void *function = NULL;
        const CUresult result = get(entries[i].name, &function, entries[i].version,
                                    CU_GET_PROC_ADDRESS_DEFAULT, &found);
        cr_assert_eq(result, CUDA_SUCCESS, "cuda.h: cuGetProcAddress of %s: %s", entries[i].name,
                     conformance_code(result));
        cr_assert(function != NULL && found == CU_GET_PROC_ADDRESS_SUCCESS,
                  "cuda.h: %s of CUDA %d: %d", entries[i].name, entries[i].version, (int)found);
    }
}

Test(device, entry_points_that_are_not_there) {
    const cuda_get_proc_address_v2 get = get_proc_address_v2();
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SUCCESS;
    void *function = &found;
    CUresult result = get("cuNoSuchFunction", &function, drv.version, 0, &found);
    cr_assert(result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_FOUND,
              "reading: CUDA_SUCCESS, as cuda.h says, or CUDA_ERROR_NOT_FOUND, not %s",
              conformance_code(result));
    cr_assert_null(function, "cuda.h: NULL for an unknown symbol");
    cr_assert_eq(found, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);

    function = &found;
    found = CU_GET_PROC_ADDRESS_SUCCESS;
    result = get("cuMemCreate", &function, 9000, 0, &found);
    cr_assert_null(function, "cuda.h: NULL for a version that had no such function");
    cr_assert_eq(found, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    cr_assert(result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_FOUND, "%s",
              conformance_code(result));
    CHECK("cuda.h: a version above the driver's", CUDA_ERROR_INVALID_VALUE,
          get("cuMemCreate", &function, drv.version + 1000, 0, &found));

    cuda_get_proc_address_v1 old = NULL;
    void *symbol = os_library_symbol(drv.library, "cuGetProcAddress");
    cr_assert_not_null(symbol, "every driver since 11.3 has cuGetProcAddress");
    memcpy(&old, &symbol, sizeof old);
    function = NULL;
    CHECK("cuda.h: the first cuGetProcAddress", CUDA_SUCCESS,
          old("cuMemCreate", &function, 10020, 0));
    cr_assert_not_null(function);
    CHECK("reading: the first cuGetProcAddress has no other way to say no", CUDA_ERROR_NOT_FOUND,
          old("cuNoSuchFunction", &function, 11030, 0));
}
