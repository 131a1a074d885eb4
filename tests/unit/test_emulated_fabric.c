/* SPDX-License-Identifier: MIT */
/** @file Memory shared through fabric handles on the emulated driver, which has an IMEX channel when it is
 *  told to. */
#include <string.h>

#include "emulated_test.h"
#include "leak_gate.h"
#include "peer_process.h"

TestSuite(emulated_fabric, .timeout = 60);

static CUmemAllocationProp fabric_on(int device) {
    CUmemAllocationProp prop;
    memset(&prop, 0, sizeof(prop));
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = device;
    return prop;
}

Test(emulated_fabric, is_not_permitted_without_a_channel) {
    const CUmemAllocationProp prop = fabric_on(0);
    CUmemGenericAllocationHandle handle = 0;
    CUmemFabricHandle bytes;
    size_t granularity = 0;
    emulated_start(NULL);
    memset(&bytes, 0, sizeof(bytes));
    check_result(CUDA_ERROR_NOT_PERMITTED, drv.cuMemCreate(&handle, GRANULE, &prop, 0));
    check_result(CUDA_ERROR_NOT_SUPPORTED, drv.cuMemImportFromShareableHandle(
                                               &handle, bytes.data, CU_MEM_HANDLE_TYPE_FABRIC));
    check_success(
        drv.cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    cr_assert_eq(granularity, GRANULE);
}

/* The default stream's thread, which it keeps, is no leak. */
static void start(const char *machine) {
    emulated_start(machine);
    const CUdeviceptr memory = memory_make(0, GRANULE);
    word_write(memory, 1);
    memory_unmake(memory, GRANULE);
}

Test(emulated_fabric, both_see_one_memory) {
    const CUmemAllocationProp prop = fabric_on(0);
    peer_process peer;
    leak_gate gate;
    char text[PEER_HEX_MAX];
    CUmemFabricHandle bytes;
    CUmemGenericAllocationHandle handle = 0;
    int supported = 0;
    start("imex=1");
    leak_gate_begin(&gate);
    check_success(
        drv.cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, 0));
    cr_assert_eq(supported, 1);
    peer_start(&peer, NULL);
    check_success(drv.cuMemCreate(&handle, GRANULE, &prop, 0));
    const CUdeviceptr address = memory_map(handle, GRANULE);
    check_success(memory_allow(address, GRANULE, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    word_write(address, 31);
    check_success(
        drv.cuMemExportToShareableHandle(bytes.data, handle, CU_MEM_HANDLE_TYPE_FABRIC, 0));
    peer_ask(&peer, "0", "fabric-open %s", peer_hex(bytes.data, text));
    peer_ask(&peer, "0 31", "get-word");
    peer_ask(&peer, "0", "set-word 32");
    cr_assert_eq(word_read(address), 32);
    peer_end(&peer);
    memory_unmake(address, GRANULE);
    check_success(drv.cuMemRelease(handle));
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

Test(emulated_fabric, may_be_one_of_two_types) {
    CUmemAllocationProp prop = shareable_on(0);
    CUmemGenericAllocationHandle handle = 0;
    CUmemGenericAllocationHandle again = 0;
    CUmemFabricHandle bytes;
    intptr_t written = 0;
    os_handle exported;
    emulated_start("imex=1");
    prop = shareable_on(0);
    prop.requestedHandleTypes =
        (CUmemAllocationHandleType)(os_shareable_handle_type | CU_MEM_HANDLE_TYPE_FABRIC);
    check_success(drv.cuMemCreate(&handle, GRANULE, &prop, 0));
    check_success(drv.cuMemExportToShareableHandle(
        &written, handle, (CUmemAllocationHandleType)os_shareable_handle_type, 0));
    check_ok(os_handle_adopt_exported(&written, &exported));
    os_handle_close(&exported);
    check_success(
        drv.cuMemExportToShareableHandle(bytes.data, handle, CU_MEM_HANDLE_TYPE_FABRIC, 0));
    /* In the process that made it, as with the other types. */
    check_success(
        drv.cuMemImportFromShareableHandle(&again, bytes.data, CU_MEM_HANDLE_TYPE_FABRIC));
    check_success(drv.cuMemRelease(again));
    check_success(drv.cuMemRelease(handle));
    check_result(CUDA_ERROR_INVALID_VALUE,
                 drv.cuMemImportFromShareableHandle(&again, bytes.data, CU_MEM_HANDLE_TYPE_FABRIC));
}

Test(emulated_fabric, what_is_no_handle_is_refused) {
    CUmemGenericAllocationHandle handle = 0;
    CUmemGenericAllocationHandle imported = 5;
    CUmemFabricHandle bytes;
    emulated_start("imex=1");
    memset(&bytes, 0, sizeof(bytes));
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuMemImportFromShareableHandle(
                                               &imported, bytes.data, CU_MEM_HANDLE_TYPE_FABRIC));
    memset(&bytes, 0xff, sizeof(bytes));
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuMemImportFromShareableHandle(
                                               &imported, bytes.data, CU_MEM_HANDLE_TYPE_FABRIC));
    check_result(CUDA_ERROR_INVALID_VALUE,
                 drv.cuMemImportFromShareableHandle(&imported, NULL, CU_MEM_HANDLE_TYPE_FABRIC));
    handle = memory_create(0, GRANULE);
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuMemExportToShareableHandle(
                                               bytes.data, handle, CU_MEM_HANDLE_TYPE_FABRIC, 0));
    cr_assert_eq(imported, 5);
    check_success(drv.cuMemRelease(handle));
}

Test(emulated_fabric, a_handle_does_not_outlive_its_owner) {
    peer_process peer;
    CUmemFabricHandle bytes;
    CUmemGenericAllocationHandle imported = 0;
    emulated_start("imex=1");
    peer_start(&peer, NULL);
    peer_get_bytes(&peer, "fabric-make", bytes.data);
    check_success(
        drv.cuMemImportFromShareableHandle(&imported, bytes.data, CU_MEM_HANDLE_TYPE_FABRIC));
    peer_kill(&peer);
    check_success(drv.cuMemRelease(imported));
    check_result(CUDA_ERROR_INVALID_HANDLE, drv.cuMemImportFromShareableHandle(
                                                &imported, bytes.data, CU_MEM_HANDLE_TYPE_FABRIC));
    peer_forget(&peer);
}
