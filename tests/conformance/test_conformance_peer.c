/* SPDX-License-Identifier: MIT */
/** @file Two GPUs of one process: what reaches what. */
#include "conformance.h"

/** Every test here needs a second device; the reason of the skip says so. */
static void start_with_two(void) {
    conformance_start();
    conformance_need_devices(2);
}

TestSuite(peer, .init = start_with_two, .fini = conformance_finish, .timeout = 60);

/** Skips where the first two devices have no direct path, as the measured machine has. */
static void need_path(void) {
    int can = -1;
    CHECK("cuda.h: cuDeviceCanAccessPeer", CUDA_SUCCESS, drv.cuDeviceCanAccessPeer(&can, 0, 1));
    if (can == 0) {
        cr_assert_not(conformance_is_measured_machine(), "measured: device 0 reaches device 1");
        cr_skip_test("devices 0 and 1 have no peer access");
    }
}

Test(peer, can_access) {
    int can = -1;
    need_path();
    CHECK("cuda.h: cuDeviceCanAccessPeer", CUDA_SUCCESS, drv.cuDeviceCanAccessPeer(&can, 1, 0));
    cr_assert_eq(can, 1, "reading: a path has two ways");
    CHECK("reading: a device is no peer of itself", CUDA_SUCCESS,
          drv.cuDeviceCanAccessPeer(&can, 0, 0));
    cr_assert_eq(can, 0, "reading: a device is no peer of itself");
    CHECK("cuda.h: an invalid device", CUDA_ERROR_INVALID_DEVICE,
          drv.cuDeviceCanAccessPeer(&can, 0, device_count));
}

Test(peer, attributes_of_the_path) {
    const struct {
        CUdevice_P2PAttribute attribute;
        int value;
        const char *name;
    } facts[] = {
        {CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, 0, "rank"},
        {CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 1, "access"},
        {CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, 1, "native atomics"},
        {CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED, 1, "array access"},
    };
    const bool measured = conformance_is_measured_machine();
    int value = -1;
    for (size_t i = 0; i < sizeof facts / sizeof facts[0]; i++) {
        CHECK("measured: P2P attributes", CUDA_SUCCESS,
              drv.cuDeviceGetP2PAttribute(&value, facts[i].attribute, 0, 1));
        cr_assert(!measured || value == facts[i].value, "measured: P2P attribute %s is %d, not %d",
                  facts[i].name, facts[i].value, value);
    }
    CHECK("cuda.h: source and destination are one device", CUDA_ERROR_INVALID_DEVICE,
          drv.cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 0));
    CHECK("cuda.h: an invalid device", CUDA_ERROR_INVALID_DEVICE,
          drv.cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0,
                                      device_count));
    CHECK("cuda.h: an invalid attribute", CUDA_ERROR_INVALID_VALUE,
          drv.cuDeviceGetP2PAttribute(&value, (CUdevice_P2PAttribute)999, 0, 1));
}

Test(peer, access_of_contexts) {
    need_path();
    const CUcontext here = conformance_context(0), there = conformance_context(1);
    CHECK("cuda.h: flags must be 0", CUDA_ERROR_INVALID_VALUE, drv.cuCtxEnablePeerAccess(there, 1));
    CHECK("measured: the current context is no peer", CUDA_ERROR_PEER_ACCESS_UNSUPPORTED,
          drv.cuCtxEnablePeerAccess(here, 0));
    CHECK("cuda.h: not enabled yet", CUDA_ERROR_PEER_ACCESS_NOT_ENABLED,
          drv.cuCtxDisablePeerAccess(there));
    CHECK("cuda.h: cuCtxEnablePeerAccess", CUDA_SUCCESS, drv.cuCtxEnablePeerAccess(there, 0));
    CHECK("cuda.h: enabled already", CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED,
          drv.cuCtxEnablePeerAccess(there, 0));
    conformance_use(1);
    CHECK("cuda.h: access is of one direction", CUDA_ERROR_PEER_ACCESS_NOT_ENABLED,
          drv.cuCtxDisablePeerAccess(here));
    conformance_use(0);
    CHECK("cuda.h: cuCtxDisablePeerAccess", CUDA_SUCCESS, drv.cuCtxDisablePeerAccess(there));
    CHECK("cuda.h: no more", CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, drv.cuCtxDisablePeerAccess(there));
}

Test(peer, copies_of_plain_memory) {
    CUdeviceptr here = 0, there = 0;
    OK(drv.cuMemAlloc(&here, GRANULE));
    conformance_use(1);
    OK(drv.cuMemAlloc(&there, GRANULE));
    word_write(there + 100, 0x9EE4);
    conformance_use(0);
    CHECK("measured: the driver copies between GPUs without peer access", CUDA_SUCCESS,
          drv.cuMemcpy(here, there, GRANULE));
    OK(drv.cuCtxSynchronize());
    cr_assert_eq(word_read(here + 100), 0x9EE4);
    cr_assert_eq(word_read(there + 100), 0x9EE4, "reading: a host copy finds the owner's context");
    OK(drv.cuMemFree(here));
    CHECK("reading: cuMemFree finds the owner's context", CUDA_SUCCESS, drv.cuMemFree(there));
}

Test(peer, mapping_of_a_peers_memory) {
    need_path();
    const CUmemGenericAllocationHandle handle = memory_create(0, GRANULE);
    const CUdeviceptr address = memory_map(handle, GRANULE);
    const CUmemLocation locations[] = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                       {CU_MEM_LOCATION_TYPE_DEVICE, 1}};
    const CUmemAccessDesc both[] = {{locations[0], CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
                                    {locations[1], CU_MEM_ACCESS_FLAGS_PROT_READ}};
    unsigned long long flags = 99;
    CHECK("measured: access of a peer", CUDA_SUCCESS,
          memory_access(address, GRANULE, 1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    CHECK("cuda.h: access is told per location", CUDA_SUCCESS,
          drv.cuMemGetAccess(&flags, &locations[0], address));
    cr_assert_eq(flags, 0, "reading: the owner has no access unless it is given: %llu", flags);
    CHECK("cuda.h: access of several locations in one call", CUDA_SUCCESS,
          drv.cuMemSetAccess(address, GRANULE, both, 2));
    for (unsigned i = 0; i < 2; i++) {
        OK(drv.cuMemGetAccess(&flags, &locations[i], address));
        cr_assert_eq(flags, (unsigned long long)both[i].flags, "cuda.h: device %u has %llu", i,
                     flags);
    }
    memory_unmap(address, GRANULE);
    OK(drv.cuMemRelease(handle));
}

Test(peer, copies_through_a_mapping) {
    need_path();
    memory made = memory_make(0, GRANULE);
    CUdeviceptr local = 0;
    CUmemGenericAllocationHandle imported = 0;
    os_handle shareable = memory_export(made.handle);
    OK(drv.cuMemsetD32(made.address, 0x11112222, GRANULE / 4));
    OK(drv.cuCtxSynchronize());
    conformance_use(1);
    OK(memory_import(shareable, &imported));
    const CUdeviceptr address = memory_map(imported, GRANULE);
    CHECK("measured: imported on a peer GPU", CUDA_SUCCESS,
          memory_access(address, GRANULE, 1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    OK(drv.cuMemAlloc(&local, GRANULE));
    CHECK("measured: copy through an imported mapping of a peer", CUDA_SUCCESS,
          drv.cuMemcpyDtoD(local, address, GRANULE));
    OK(drv.cuCtxSynchronize());
    cr_assert_eq(word_read(local + GRANULE - 4), 0x11112222);
    OK(drv.cuMemsetD32(address, 0x33334444, GRANULE / 4));
    OK(drv.cuCtxSynchronize());
    OK(drv.cuMemFree(local));
    memory_unmap(address, GRANULE);
    conformance_use(0);
    cr_assert_eq(word_read(made.address + GRANULE - 4), 0x33334444,
                 "measured: the importer writes the exporter's memory");
    OK(drv.cuMemRelease(imported));
    os_handle_close(&shareable);
    memory_undo(&made);
}

Test(peer, no_access_of_its_own) {
    memory made = memory_make(0, GRANULE);
    uint32_t word = 0;
    conformance_use(1);
    CHECK("reading: access of device 0 is not access of device 1's context",
          CUDA_ERROR_INVALID_VALUE, drv.cuMemsetD32(made.address, 5, 4));
    CHECK("reading: access of device 0 is not access of device 1's context",
          CUDA_ERROR_INVALID_VALUE, drv.cuMemcpyDtoH(&word, made.address, sizeof word));
    conformance_use(0);
    memory_undo(&made);
}

Test(peer, set_access_without_a_path) {
    int can = -1;
    OK(drv.cuDeviceCanAccessPeer(&can, 1, 0));
    if (can == 1) {
        cr_skip_test("devices 0 and 1 have peer access");
    }
    const CUmemGenericAllocationHandle handle = memory_create(0, GRANULE);
    const CUdeviceptr address = memory_map(handle, GRANULE);
    CHECK("reading: access of a device that cannot reach the memory", CUDA_ERROR_INVALID_DEVICE,
          memory_access(address, GRANULE, 1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    memory_unmap(address, GRANULE);
    OK(drv.cuMemRelease(handle));
}
