/* SPDX-License-Identifier: MIT */
/** @file Allocation handles: made, released, exported, imported, described. */
#include "conformance_process.h"

#include <string.h>

TestSuite(memory, .init = conformance_start, .fini = conformance_finish, .timeout = 60);

/** Where expectations come from that were measured on Linux alone. */
typedef struct system_sources {
    const char *create_foreign;
    const char *import_foreign;
} system_sources;

static const system_sources *of_system(void) {
    static const system_sources on_linux = {"measured: cuMemCreate WIN32 on Linux",
                                            "measured: import as a handle of another system"};
    static const system_sources on_windows = {"reading: cuMemCreate of a descriptor on Windows",
                                              "reading: import of a descriptor on Windows"};
    return SYSTEM_TYPE == CU_MEM_HANDLE_TYPE_WIN32 ? &on_windows : &on_linux;
}

Test(memory, granularity_is_2_mib) {
    const CUmemAllocationProp properties = memory_properties(0, true);
    size_t bytes = 0;
    CHECK("measured: granularity", CUDA_SUCCESS,
          drv.cuMemGetAllocationGranularity(&bytes, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    cr_assert_eq(bytes, GRANULE, "measured: minimum granularity is 2 MiB, not %zu", bytes);
    bytes = 0;
    CHECK("measured: granularity", CUDA_SUCCESS,
          drv.cuMemGetAllocationGranularity(&bytes, &properties,
                                            CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    cr_assert_eq(bytes, GRANULE, "measured: recommended granularity is 2 MiB, not %zu", bytes);
}

Test(memory, create_refuses_size_and_device) {
    CUmemAllocationProp properties = memory_properties(0, true);
    CUmemGenericAllocationHandle handle = 0;
    CHECK("measured: cuMemCreate with size 0", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemCreate(&handle, 0, &properties, 0));
    CHECK("measured: cuMemCreate with a size that is no multiple of 2 MiB",
          CUDA_ERROR_INVALID_VALUE, drv.cuMemCreate(&handle, GRANULE + 4096, &properties, 0));
    CHECK("measured: cuMemCreate too large", CUDA_ERROR_OUT_OF_MEMORY,
          drv.cuMemCreate(&handle, (size_t)1 << 44, &properties, 0));
    properties.location.id = device_count;
    CHECK("measured: cuMemCreate, unknown device", CUDA_ERROR_INVALID_DEVICE,
          drv.cuMemCreate(&handle, GRANULE, &properties, 0));
    properties.location.id = -1;
    CHECK("measured: cuMemCreate, unknown device", CUDA_ERROR_INVALID_DEVICE,
          drv.cuMemCreate(&handle, GRANULE, &properties, 0));
}

Test(memory, of_the_host_without_a_node_cannot_be_shared) {
    CUmemAllocationProp properties = memory_properties(0, false);
    CUmemGenericAllocationHandle handle = 0;
    properties.location.type = CU_MEM_LOCATION_TYPE_HOST;
    properties.requestedHandleTypes = SYSTEM_TYPE;
    CHECK("measured: cuMemCreate of host memory without a NUMA node", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemCreate(&handle, GRANULE, &properties, 0));
    properties.requestedHandleTypes = 0;
    properties.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
    CHECK("measured: nor of the thread's node", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemCreate(&handle, GRANULE, &properties, 0));
}

Test(memory, of_the_host_is_used_by_a_device) {
    CUmemAllocationProp properties = memory_properties(0, false), said;
    CUmemGenericAllocationHandle handle = 0;
    uint64_t written = 0;
    size_t unit = 0;
    properties.location.type = CU_MEM_LOCATION_TYPE_HOST;
    properties.location.id = 99; /* cuda.h: ignored */
    CHECK("reading: granularity of host memory", CUDA_SUCCESS,
          drv.cuMemGetAllocationGranularity(&unit, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    cr_assert(unit > 0 && GRANULE % unit == 0, "granularity %zu", unit);
    CHECK("measured: cuMemCreate of host memory that is not shared", CUDA_SUCCESS,
          drv.cuMemCreate(&handle, GRANULE, &properties, 0));
    OK(drv.cuMemGetAllocationPropertiesFromHandle(&said, handle));
    cr_assert_eq(said.location.type, CU_MEM_LOCATION_TYPE_HOST_NUMA,
                 "measured: the node that has it");
    cr_assert_eq(said.location.id, 0, "measured: on a machine of one node");
    cr_assert_eq(said.requestedHandleTypes, 0);
    CHECK("cuda.h: host memory is not exported", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemExportToShareableHandle(&written, handle, SYSTEM_TYPE, 0));
    const CUdeviceptr address = memory_map(handle, GRANULE);
    CHECK("cuda.h: a device is given access to host memory", CUDA_SUCCESS,
          memory_access(address, GRANULE, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    OK(drv.cuMemsetD32(address, 0x4057, GRANULE / 4));
    OK(drv.cuCtxSynchronize());
    cr_assert_eq(word_read(address + GRANULE - 4), 0x4057);
    memory_unmap(address, GRANULE);
    OK(drv.cuMemRelease(handle));
}

Test(memory, create_refuses_handle_types) {
    CUmemAllocationProp properties = memory_properties(0, false);
    CUmemGenericAllocationHandle handle = 0;
    int fabric = 0;
    properties.requestedHandleTypes = (CUmemAllocationHandleType)0x40;
    CHECK("measured: a handle type that there is not is not looked at", CUDA_SUCCESS,
          drv.cuMemCreate(&handle, GRANULE, &properties, 0));
    OK(drv.cuMemRelease(handle));
    properties.requestedHandleTypes = FOREIGN_TYPE;
    CHECK(of_system()->create_foreign, CUDA_ERROR_INVALID_VALUE,
          drv.cuMemCreate(&handle, GRANULE, &properties, 0));
    if (SYSTEM_TYPE == CU_MEM_HANDLE_TYPE_WIN32) {
        properties.requestedHandleTypes = SYSTEM_TYPE;
        CHECK("cuda.h: win32HandleMetaData is required for WIN32", CUDA_ERROR_INVALID_VALUE,
              drv.cuMemCreate(&handle, GRANULE, &properties, 0));
    }
    OK(drv.cuDeviceGetAttribute(&fabric, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, 0));
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
    const CUresult result = drv.cuMemCreate(&handle, GRANULE, &properties, 0);
    if (result == CUDA_SUCCESS) {
        /* The machine has an IMEX channel, which the measured machine had not. */
        OK(drv.cuMemRelease(handle));
        cr_assert_not(drv.is_emulated, "the emulated machine has no IMEX channel unless told so");
    } else if (fabric == 1) {
        cr_assert_eq(result, CUDA_ERROR_NOT_PERMITTED,
                     "measured: cuMemCreate FABRIC without an IMEX channel, although the attribute "
                     "says 1: %s",
                     conformance_code(result));
    }
}

Test(memory, create_refuses_kind_and_flags) {
    CUmemAllocationProp properties = memory_properties(0, true);
    CUmemGenericAllocationHandle handle = 0;
    CHECK("reading: flags of cuMemCreate must be 0", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemCreate(&handle, GRANULE, &properties, 1));
    properties.type = CU_MEM_ALLOCATION_TYPE_INVALID;
    CHECK("reading: an invalid allocation type", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemCreate(&handle, GRANULE, &properties, 0));
    properties = memory_properties(0, true);
    properties.location.type = CU_MEM_LOCATION_TYPE_INVALID;
    CHECK("reading: an invalid location type", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemCreate(&handle, GRANULE, &properties, 0));
}

Test(memory, release_twice_or_zero) {
    const CUmemGenericAllocationHandle handle = memory_create(0, GRANULE);
    OK(drv.cuMemRelease(handle));
    CHECK("measured: cuMemRelease twice", CUDA_ERROR_INVALID_VALUE, drv.cuMemRelease(handle));
    CHECK("measured: cuMemRelease of 0", CUDA_ERROR_INVALID_VALUE, drv.cuMemRelease(0));
}

Test(memory, export_needs_the_handle_type) {
    const CUmemAllocationProp properties = memory_properties(0, false);
    CUmemGenericAllocationHandle handle = 0;
    uint64_t written = 0;
    OK(drv.cuMemCreate(&handle, GRANULE, &properties, 0));
    CHECK("measured: export of memory made without that handle type", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemExportToShareableHandle(&written, handle, SYSTEM_TYPE, 0));
    OK(drv.cuMemRelease(handle));

    const CUmemGenericAllocationHandle exportable = memory_create(0, GRANULE);
    CHECK("measured: export of memory made without that handle type", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemExportToShareableHandle(&written, exportable, FOREIGN_TYPE, 0));
    CHECK("reading: flags of the export must be 0", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemExportToShareableHandle(&written, exportable, SYSTEM_TYPE, 1));
    cr_assert_eq(written, 0, "reading: a failed export writes nothing");
    OK(drv.cuMemRelease(exportable));
}

/* cuMemCreate does not look at them; the others do. */
Test(memory, a_handle_type_that_there_is_not_is_no_way_out_or_in) {
    static const int no_types[] = {0, 0x10, 0x40};
    CUmemAllocationProp properties = memory_properties(0, true);
    CUmemGenericAllocationHandle handle = 0;
    CUmemGenericAllocationHandle imported = 0;
    uint64_t written = 0;
    properties.requestedHandleTypes = (CUmemAllocationHandleType)(SYSTEM_TYPE | 0x50);
    OK(drv.cuMemCreate(&handle, GRANULE, &properties, 0));
    os_handle shareable = memory_export(handle);
    for (size_t i = 0; i < sizeof(no_types) / sizeof(no_types[0]); i++) {
        const CUmemAllocationHandleType type = (CUmemAllocationHandleType)no_types[i];
        CHECK("measured: export as a handle type that there is not", CUDA_ERROR_INVALID_VALUE,
              drv.cuMemExportToShareableHandle(&written, handle, type, 0));
        CHECK("measured: import as a handle type that there is not", CUDA_ERROR_INVALID_VALUE,
              drv.cuMemImportFromShareableHandle(&imported, (void *)shareable.value, type));
    }
    if (SYSTEM_TYPE == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
        CHECK("measured: import as another kind of Windows' handles", CUDA_ERROR_NOT_SUPPORTED,
              drv.cuMemImportFromShareableHandle(&imported, (void *)shareable.value,
                                                 CU_MEM_HANDLE_TYPE_WIN32_KMT));
    }
    cr_assert(written == 0 && imported == 0, "reading: what fails writes nothing");
    os_handle_close(&shareable);
    OK(drv.cuMemRelease(handle));
}

Test(memory, exported_handle) {
    const CUmemGenericAllocationHandle handle = memory_create(0, GRANULE);
    uint64_t written = 0;
    os_handle shareable;
    OK(drv.cuMemExportToShareableHandle(&written, handle, SYSTEM_TYPE, 0));
    handle_check_exported(&written);
    cr_assert_eq(os_handle_adopt_exported(&written, &shareable), GPUIPC_OK);

    const os_handle second = memory_export(handle);
    cr_assert_neq(second.value, shareable.value, "reading: every export is a new handle");
    os_handle_close(&shareable);
    shareable = second;
    os_handle_close(&shareable);
    OK(drv.cuMemRelease(handle));
}

Test(memory, imported_handle_is_not_exported_again) {
    const CUmemGenericAllocationHandle handle = memory_create(0, GRANULE);
    CUmemGenericAllocationHandle imported = 0, retained = 0;
    os_handle shareable = memory_export(handle);
    uint64_t written = 0;
    OK(memory_import(shareable, &imported));
    CHECK("measured: re-export of an imported handle", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemExportToShareableHandle(&written, imported, SYSTEM_TYPE, 0));
    const CUdeviceptr address = memory_map(imported, GRANULE);
    OK(drv.cuMemRetainAllocationHandle(&retained, (void *)(uintptr_t)address));
    CHECK("measured: re-export of an imported handle via cuMemRetainAllocationHandle",
          CUDA_ERROR_INVALID_VALUE,
          drv.cuMemExportToShareableHandle(&written, retained, SYSTEM_TYPE, 0));
    OK(drv.cuMemRelease(retained));
    memory_unmap(address, GRANULE);
    os_handle_close(&shareable);
    OK(drv.cuMemRelease(imported));
    OK(drv.cuMemRelease(handle));
}

Test(memory, import_refuses_what_is_no_memory) {
    wrong_handle wrong[WRONG_HANDLES_MAX];
    const size_t count = wrong_handles_open(wrong);
    for (size_t i = 0; i < count; i++) {
        CUmemGenericAllocationHandle handle = 0;
        const CUresult result = memory_import(wrong[i].handle, &handle);
        cr_assert_eq(result, CUDA_ERROR_UNKNOWN, "measured: import of %s answers UNKNOWN, not %s",
                     wrong[i].what, conformance_code(result));
        cr_assert_eq(handle, 0, "import of %s wrote a handle", wrong[i].what);
    }
    wrong_handles_close(wrong, count);
}

Test(memory, import_in_the_exporting_process) {
    memory made = memory_make(0, 2 * GRANULE);
    CUmemGenericAllocationHandle first = 0, second = 0;
    os_handle shareable = memory_export(made.handle);
    CHECK("measured: import in the exporting process", CUDA_SUCCESS,
          memory_import(shareable, &first));
    CHECK("measured: import of one fd twice", CUDA_SUCCESS, memory_import(shareable, &second));
    cr_assert(first != second && first != made.handle && second != made.handle,
              "measured: import answers a new handle each time");
    cr_assert(handle_is_open(shareable), "measured: the fd stays the caller's");
    os_handle_close(&shareable);

    const CUdeviceptr one = memory_map(first, 2 * GRANULE);
    const CUdeviceptr other = memory_map(second, 2 * GRANULE);
    OK(memory_access(one, 2 * GRANULE, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    OK(memory_access(other, 2 * GRANULE, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    word_write(made.address + GRANULE, 0xC0FFEE01);
    cr_assert_eq(word_read(one + GRANULE), 0xC0FFEE01, "measured: two mappings of one allocation");
    word_write(other + GRANULE, 0xC0FFEE02);
    cr_assert_eq(word_read(made.address + GRANULE), 0xC0FFEE02);
    cr_assert_eq(word_read(one + GRANULE), 0xC0FFEE02);

    memory_unmap(one, 2 * GRANULE);
    memory_unmap(other, 2 * GRANULE);
    OK(drv.cuMemRelease(first));
    OK(drv.cuMemRelease(second));
    memory_undo(&made);
}

Test(memory, import_wants_the_right_type) {
    const CUmemGenericAllocationHandle handle = memory_create(0, GRANULE);
    CUmemGenericAllocationHandle imported = 0;
    os_handle shareable = memory_export(handle);
    CHECK(of_system()->import_foreign, CUDA_ERROR_NOT_SUPPORTED,
          drv.cuMemImportFromShareableHandle(&imported, (void *)shareable.value, FOREIGN_TYPE));
    os_handle_close(&shareable);
    OK(drv.cuMemRelease(handle));
}

Test(memory, properties_of_a_handle) {
    const CUmemGenericAllocationHandle handle = memory_create(0, GRANULE);
    CUmemGenericAllocationHandle imported = 0;
    CUmemAllocationProp properties;
    os_handle shareable = memory_export(handle);
    memset(&properties, 0xFF, sizeof properties);
    CHECK("cuda.h: properties of a handle", CUDA_SUCCESS,
          drv.cuMemGetAllocationPropertiesFromHandle(&properties, handle));
    cr_assert_eq(properties.type, CU_MEM_ALLOCATION_TYPE_PINNED, "cuda.h: as created");
    cr_assert_eq(properties.location.type, CU_MEM_LOCATION_TYPE_DEVICE, "cuda.h: as created");
    cr_assert_eq(properties.location.id, 0, "cuda.h: as created");
    cr_assert_eq((int)properties.requestedHandleTypes, os_shareable_handle_type,
                 "cuda.h: as created");

    OK(memory_import(shareable, &imported));
    memset(&properties, 0xFF, sizeof properties);
    CHECK("measured: properties of an imported handle", CUDA_SUCCESS,
          drv.cuMemGetAllocationPropertiesFromHandle(&properties, imported));
    cr_assert_eq(properties.location.type, CU_MEM_LOCATION_TYPE_DEVICE,
                 "measured: properties of an imported handle: location");
    cr_assert_eq(properties.location.id, 0, "measured: properties of an imported handle: location");
    cr_assert_eq((int)properties.requestedHandleTypes, 0,
                 "measured: properties of an imported handle: requestedHandleTypes reads 0, not %d",
                 (int)properties.requestedHandleTypes);
    os_handle_close(&shareable);
    OK(drv.cuMemRelease(imported));
    OK(drv.cuMemRelease(handle));
}

Test(memory, retain_answers_the_handle_that_was_mapped) {
    memory made = memory_make(0, 2 * GRANULE);
    CUmemGenericAllocationHandle retained = 0;
    CHECK("cuda.h: any address of the range", CUDA_SUCCESS,
          drv.cuMemRetainAllocationHandle(&retained, (void *)(uintptr_t)(made.address + GRANULE)));
    cr_assert_eq(retained, made.handle, "cuda.h: the same handle value used to map the memory");
    CHECK("cuda.h: each retain is released", CUDA_SUCCESS, drv.cuMemRelease(retained));
    memory_undo(&made);
    CHECK("cuda.h: an address that is not mapped", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemRetainAllocationHandle(&retained, (void *)(uintptr_t)made.address));
    CUdeviceptr plain = 0;
    OK(drv.cuMemAlloc(&plain, GRANULE));
    CHECK("reading: memory of cuMemAlloc has no handle", CUDA_ERROR_INVALID_VALUE,
          drv.cuMemRetainAllocationHandle(&retained, (void *)(uintptr_t)plain));
    OK(drv.cuMemFree(plain));
}

Test(memory, mapping_outlives_handle_and_descriptor) {
    memory made = memory_make(0, GRANULE);
    CUmemGenericAllocationHandle imported = 0;
    os_handle shareable = memory_export(made.handle);
    word_write(made.address, 0x0B5E55ED);
    OK(memory_import(shareable, &imported));
    os_handle_close(&shareable);
    const CUdeviceptr alias = memory_map(imported, GRANULE);
    OK(memory_access(alias, GRANULE, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    CHECK("cuda.h: a handle can be released while it is mapped", CUDA_SUCCESS,
          drv.cuMemRelease(imported));
    memory_undo(&made);
    cr_assert_eq(word_read(alias), 0x0B5E55ED, "cuda.h: memory lives while it is mapped anywhere");
    memory_unmap(alias, GRANULE);
}
