/* SPDX-License-Identifier: MIT */
/** @file See emulated_test.h. */
#include "emulated_test.h"

#include <string.h>

#include "core_fixture.h"

driver drv;
gpuipc_emulated_live_fn get_live;
gpuipc_emulated_list_live_fn list_live;
gpuipc_emulated_fail_fn set_fail;
gpuipc_emulated_calls_fn get_calls;
gpuipc_emulated_delay_fn set_delay;

void environment_set(const char *name, const char *value) {
    core_environment_set(name, value);
}

void emulated_symbol(os_library *library, const char *name, void *function) {
    void *symbol = os_library_symbol(library, name);
    cr_assert_not_null(symbol, "the emulated driver has no %s", name);
    memcpy(function, &symbol, sizeof(symbol));
}

os_library *emulated_load(const char *machine) {
    static os_library *library;
    environment_set("GPUIPC_EMULATED_MACHINE", machine);
    if (library == NULL) {
        check_ok(os_library_open_own(os_emulated_driver_name, &library));
    }
    emulated_symbol(library, GPUIPC_EMULATED_LIVE, &get_live);
    emulated_symbol(library, GPUIPC_EMULATED_LIST_LIVE, &list_live);
    emulated_symbol(library, GPUIPC_EMULATED_SET_FAIL, &set_fail);
    emulated_symbol(library, GPUIPC_EMULATED_CALLS, &get_calls);
    emulated_symbol(library, GPUIPC_EMULATED_SET_DELAY, &set_delay);
    return library;
}

void emulated_start(const char *machine) {
    emulated_load(machine);
    check_ok(driver_open("emulated", &drv));
    cr_assert(drv.is_emulated);
    context_use(0);
}

CUresult emulated_init(const char *machine) {
    CUresult (*init)(unsigned);
    emulated_symbol(emulated_load(machine), "cuInit", &init);
    return init(0);
}

CUcontext context_use(int device) {
    CUcontext context = NULL;
    check_success(drv.cuDevicePrimaryCtxRetain(&context, device));
    check_success(drv.cuCtxPushCurrent(context));
    return context;
}

CUmemAllocationProp shareable_on(int device) {
    CUmemAllocationProp prop;
    const void *rights;
    check_ok(os_handle_attributes(&rights));
    memset(&prop, 0, sizeof(prop));
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.requestedHandleTypes = (CUmemAllocationHandleType)os_shareable_handle_type;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = device;
    prop.win32HandleMetaData = (void *)(uintptr_t)rights;
    return prop;
}

CUmemGenericAllocationHandle memory_create(int device, size_t bytes) {
    const CUmemAllocationProp prop = shareable_on(device);
    CUmemGenericAllocationHandle handle = 0;
    check_success(drv.cuMemCreate(&handle, bytes, &prop, 0));
    return handle;
}

CUdeviceptr memory_map(CUmemGenericAllocationHandle handle, size_t bytes) {
    CUdeviceptr address = 0;
    check_success(drv.cuMemAddressReserve(&address, bytes, 0, 0, 0));
    check_success(drv.cuMemMap(address, bytes, 0, handle, 0));
    return address;
}

CUresult memory_allow(CUdeviceptr address, size_t bytes, int device, CUmemAccess_flags flags) {
    const CUmemAccessDesc desc = {{CU_MEM_LOCATION_TYPE_DEVICE, device}, flags};
    return drv.cuMemSetAccess(address, bytes, &desc, 1);
}

CUdeviceptr memory_make(int device, size_t bytes) {
    const CUmemGenericAllocationHandle handle = memory_create(device, bytes);
    const CUdeviceptr address = memory_map(handle, bytes);
    check_success(memory_allow(address, bytes, device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    check_success(drv.cuMemRelease(handle));
    return address;
}

void memory_unmake(CUdeviceptr address, size_t bytes) {
    check_success(drv.cuMemUnmap(address, bytes));
    check_success(drv.cuMemAddressFree(address, bytes));
}

void word_write(CUdeviceptr address, uint32_t word) {
    check_success(drv.cuMemcpyHtoD(address, &word, sizeof(word)));
    check_success(drv.cuCtxSynchronize()); /* the word may still be on its way */
}

uint32_t word_read(CUdeviceptr address) {
    uint32_t word = 0;
    check_success(drv.cuMemcpyDtoH(&word, address, sizeof(word)));
    return word;
}
