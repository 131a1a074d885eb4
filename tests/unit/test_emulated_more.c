/* SPDX-License-Identifier: MIT */
/** @file Entry points that gpuipc itself does not call, for the ordinary programs that do. */
#include <string.h>

#include "emulated_api.h"
#include "emulated_test.h"

/* The driver of this process, by the symbols that programs link. */
#define MORE(group, name, suffix, version, parameters)                                             \
    static CUresult(*more_##name##suffix) parameters;
EMULATED_API_LIST(MORE)
#undef MORE

static void start(void) {
    emulated_start("devices=2;p2p=none");
#define MORE(group, name, suffix, version, parameters)                                             \
    emulated_symbol(drv.library, #name #suffix, &more_##name##suffix);
    EMULATED_API_LIST(MORE)
#undef MORE
}

TestSuite(emulated_more, .init = start, .timeout = 60);

Test(emulated_more, devices_by_bus) {
    char text[16];
    CUdevice device = 9;
    int major = 0;
    int minor = 9;
    const char *const forms[] = {"0000:11:00.0", "0:11:0", "11:00.0", "00000000:11:00.0"};
    const char *const wrong[] = {"eleven",  "",        "0:11:0.0x", "11:0",  "0:11:",
                                 "0:-11:0", "0:+11:0", "0:0x11:0",  ":11:0", "0:11:0."};
    check_success(more_cuDeviceGetPCIBusId(text, sizeof(text), 1));
    cr_assert_str_eq(text, "0000:11:00.0");
    check_result(CUDA_ERROR_INVALID_VALUE, more_cuDeviceGetPCIBusId(text, 12, 1));
    check_result(CUDA_ERROR_INVALID_DEVICE, more_cuDeviceGetPCIBusId(text, sizeof(text), 2));
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        device = 9;
        check_success(more_cuDeviceGetByPCIBusId(&device, forms[i]));
        cr_assert_eq(device, 1, "%s", forms[i]);
    }
    check_result(CUDA_ERROR_INVALID_DEVICE, more_cuDeviceGetByPCIBusId(&device, "0:99:0"));
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        check_result(CUDA_ERROR_INVALID_VALUE, more_cuDeviceGetByPCIBusId(&device, wrong[i]));
    }
    check_success(more_cuDeviceComputeCapability(&major, &minor, 0));
    cr_assert(major == 9 && minor == 0, "%d.%d", major, minor);
}

Test(emulated_more, contexts_of_every_version) {
    CUctxCreateParams params = {NULL, 0, NULL};
    CUcontext made[4] = {NULL};
    CUcontext current = NULL;
    const CUcontext before = context_use(0);
    CUdevice device = 9;
    unsigned value = 0;
    check_success(more_cuCtxCreate_v2(&made[0], 4, 1));
    check_success(more_cuCtxCreate_v3(&made[1], NULL, 0, 0, 1));
    check_success(more_cuCtxCreate_v4(&made[2], NULL, 0, 1));
    check_success(more_cuCtxCreate_v4(&made[3], &params, 0, 1));
    params.numExecAffinityParams = 1;
    check_result(CUDA_ERROR_NOT_SUPPORTED, more_cuCtxCreate_v4(&current, &params, 0, 1));
    check_result(CUDA_ERROR_NOT_SUPPORTED, more_cuCtxCreate_v3(&current, NULL, 1, 0, 1));
    check_result(CUDA_ERROR_INVALID_VALUE, more_cuCtxCreate_v2(&current, 0x100, 1));
    check_result(CUDA_ERROR_INVALID_VALUE, more_cuCtxCreate_v2(&current, 3, 1));
    check_result(CUDA_ERROR_INVALID_DEVICE, more_cuCtxCreate_v2(&current, 0, 2));
    check_success(more_cuCtxGetDevice_v2(&device, made[0]));
    cr_assert_eq(device, 1);
    check_success(more_cuCtxGetApiVersion(made[0], &value));
    cr_assert_eq(value, 3020);
    check_success(more_cuCtxSynchronize_v2(made[0]));
    check_success(drv.cuCtxSetCurrent(made[0]));
    check_success(more_cuCtxGetFlags(&value));
    cr_assert_eq(value, 4);
    check_success(drv.cuCtxSetCurrent(made[3]));
    for (int i = 3; i >= 0; i--) {
        check_success(more_cuCtxDestroy_v2(made[i]));
        check_result(CUDA_ERROR_INVALID_CONTEXT, more_cuCtxDestroy_v2(made[i]));
    }
    check_success(drv.cuCtxGetCurrent(&current));
    cr_assert_eq(current, before, "each was popped with its end");
    check_result(CUDA_ERROR_INVALID_CONTEXT, more_cuCtxDestroy_v2(before));
}

Test(emulated_more, a_destroyed_context_stays_on_the_stack_below) {
    CUcontext made = NULL;
    check_success(more_cuCtxCreate_v2(&made, 0, 0));
    context_use(1);
    check_success(more_cuCtxDestroy_v2(made));
    check_success(drv.cuCtxPopCurrent(NULL));
    check_result(CUDA_ERROR_CONTEXT_IS_DESTROYED, drv.cuCtxSynchronize());
    check_result(CUDA_ERROR_INVALID_CONTEXT, drv.cuCtxPushCurrent(made));
    check_success(drv.cuCtxPopCurrent(&made));
    check_success(drv.cuCtxSynchronize());
}

Test(emulated_more, primary_contexts_have_flags_and_can_be_reset) {
    CUdeviceptr address = 0;
    unsigned flags = 0;
    int active = 9;
    check_success(more_cuDevicePrimaryCtxSetFlags_v2(1, 1));
    check_result(CUDA_ERROR_INVALID_VALUE, more_cuDevicePrimaryCtxSetFlags_v2(1, 0x1000));
    check_success(drv.cuDevicePrimaryCtxGetState(1, &flags, &active));
    cr_assert(flags == 1 && active == 0, "flags %u, active %d", flags, active);
    check_success(drv.cuMemAlloc(&address, 4));
    check_success(more_cuDevicePrimaryCtxReset_v2(0));
    check_success(drv.cuDevicePrimaryCtxGetState(0, &flags, &active));
    cr_assert_eq(active, 0);
    check_result(CUDA_ERROR_CONTEXT_IS_DESTROYED, drv.cuMemFree(address));
    check_success(drv.cuDevicePrimaryCtxRelease(0));
    check_result(CUDA_ERROR_INVALID_CONTEXT, drv.cuDevicePrimaryCtxRelease(0));
}

Test(emulated_more, streams_tell_what_they_are) {
    const struct {
        int asked;
        int got;
    } priorities[] = {{3, 0}, {0, 0}, {-2, -2}, {-99, -5}};
    int least = 9;
    int greatest = 9;
    check_success(more_cuCtxGetStreamPriorityRange(&least, &greatest));
    cr_assert(least == 0 && greatest == -5);
    for (size_t i = 0; i < sizeof(priorities) / sizeof(priorities[0]); i++) {
        CUstream stream = NULL;
        CUcontext context = NULL;
        CUgreenCtx green = (CUgreenCtx)&context;
        CUstreamCaptureStatus capturing = 9;
        unsigned flags = 9;
        int priority = 9;
        check_success(more_cuStreamCreateWithPriority(&stream, 1, priorities[i].asked));
        check_success(more_cuStreamGetPriority(stream, &priority));
        check_success(more_cuStreamGetFlags(stream, &flags));
        check_success(more_cuStreamGetCtx_v2(stream, &context, &green));
        check_success(drv.cuStreamIsCapturing(stream, &capturing));
        cr_assert(priority == priorities[i].got && flags == 1 && green == NULL && capturing == 0);
        cr_assert_not_null(context);
        check_success(drv.cuStreamDestroy(stream));
        check_result(CUDA_ERROR_INVALID_HANDLE, more_cuStreamGetFlags(stream, &flags));
    }
}

Test(emulated_more, events_of_the_newer_calls) {
    CUevent event = NULL;
    float milliseconds = -1;
    check_success(drv.cuEventCreate(&event, 0));
    check_result(CUDA_ERROR_ILLEGAL_STATE, more_cuEventRecordWithFlags(event, NULL, 1));
    check_result(CUDA_ERROR_INVALID_VALUE, more_cuEventRecordWithFlags(event, NULL, 2));
    check_success(more_cuEventRecordWithFlags(event, NULL, 0));
    check_success(drv.cuEventSynchronize(event));
    check_success(more_cuEventElapsedTime_v2(&milliseconds, event, event));
    cr_assert_eq((double)milliseconds, 0.0);
    check_success(drv.cuEventDestroy(event));
}

/* Without a path between the devices: the driver carries the bytes. */
Test(emulated_more, copies_between_contexts) {
    CUdeviceptr here = 0;
    CUdeviceptr there = 0;
    CUcontext contexts[2];
    check_success(drv.cuMemAlloc(&here, 64));
    check_success(drv.cuCtxGetCurrent(&contexts[0]));
    word_write(here, 77);
    contexts[1] = context_use(1);
    check_success(drv.cuMemAlloc(&there, 64));
    check_success(more_cuMemcpyPeer(there, contexts[1], here, contexts[0], 64));
    cr_assert_eq(word_read(there), 77);
    word_write(there + 4, 78);
    check_success(more_cuMemcpyPeerAsync(here, contexts[0], there, contexts[1], 64, NULL));
    check_success(drv.cuCtxSynchronize());
    check_success(drv.cuCtxPopCurrent(NULL));
    cr_assert_eq(word_read(here + 4), 78);
    check_result(CUDA_ERROR_INVALID_CONTEXT, more_cuMemcpyPeer(there, NULL, here, contexts[0], 64));
    check_result(CUDA_ERROR_INVALID_VALUE, more_cuMemcpyPeer((CUdeviceptr)(uintptr_t)&there,
                                                             contexts[1], here, contexts[0], 8));
}

Test(emulated_more, fills_of_rows) {
    CUdeviceptr address = 0;
    size_t pitch = 0;
    check_success(more_cuMemAllocPitch_v2(&address, &pitch, 12, 2, 4));
    check_success(more_cuMemsetD2D8_v2(address, pitch, 0x11, 12, 2));
    check_success(more_cuMemsetD2D8Async(address, pitch, 0x22, 2, 2, NULL));
    check_success(more_cuMemsetD2D16Async(address + 2, pitch, 0x4433, 1, 2, NULL));
    check_success(more_cuMemsetD2D32Async(address + 4, pitch, 0x55667788, 1, 2, NULL));
    cr_assert_eq(word_read(address + pitch), 0x44332222);
    cr_assert_eq(word_read(address + pitch + 4), 0x55667788);
    cr_assert_eq(word_read(address + pitch + 8), 0x11111111);
    check_success(more_cuMemsetD2D16_v2(address, pitch, 0x9988, 2, 1));
    check_success(more_cuMemsetD2D32_v2(address + 8, pitch, 0, 1, 2));
    cr_assert_eq(word_read(address), 0x99889988);
    cr_assert_eq(word_read(address + 8), 0);
    check_result(CUDA_ERROR_INVALID_VALUE, more_cuMemsetD2D32_v2(address + 2, pitch, 0, 1, 1));
    check_result(CUDA_ERROR_INVALID_VALUE, more_cuMemAllocPitch_v2(&address, &pitch, 12, 2, 3));
}

Test(emulated_more, attributes_of_a_pointer) {
    const struct {
        int attribute;
        unsigned long long plain;
        unsigned long long mapped;
    } rows[] = {
        {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_DEVICE},
        {CU_POINTER_ATTRIBUTE_IS_MANAGED, 0, 0},
        {CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, 1, 0},
        {CU_POINTER_ATTRIBUTE_MAPPED, 1, 1},
        {CU_POINTER_ATTRIBUTE_RANGE_SIZE, 100, GRANULE},
        {18 /* MAPPING_SIZE */, GRANULE, GRANULE}, /* of a block */
        {CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, 3, 3},
        {CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, 0, 0},
        {17 /* MEMPOOL_HANDLE */, 0, 0},
        {15 /* IS_GPU_DIRECT_RDMA_CAPABLE */, 1, 0},
    };
    CUdeviceptr plain = 0;
    check_success(drv.cuMemAlloc(&plain, 100));
    const CUdeviceptr mapped = memory_make(0, GRANULE);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        unsigned long long values[2] = {0, 0};
        CUpointer_attribute attribute = (CUpointer_attribute)rows[i].attribute;
        void *data[] = {&values[1]};
        check_success(drv.cuPointerGetAttribute(&values[0], attribute, plain + 9));
        check_success(more_cuPointerGetAttributes(1, &attribute, data, mapped + 9));
        cr_assert_eq(values[0], rows[i].plain, "attribute %d: %llu", rows[i].attribute, values[0]);
        cr_assert_eq(values[1], rows[i].mapped, "attribute %d: %llu", rows[i].attribute, values[1]);
    }
    unsigned long long value = 0;
    check_result(CUDA_ERROR_INVALID_VALUE,
                 drv.cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_HOST_POINTER, plain));
    check_success(drv.cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_CONTEXT, plain));
    cr_assert_neq(value, 0);
    check_success(drv.cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_CONTEXT, mapped));
    cr_assert_eq(value, 0);
    check_success(
        drv.cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, plain + 5));
    cr_assert_eq(value, plain + 5);
    unsigned long long other = 0;
    check_success(drv.cuPointerGetAttribute(&value, (CUpointer_attribute)7, plain));
    check_success(drv.cuPointerGetAttribute(&other, (CUpointer_attribute)7, mapped));
    cr_assert_neq(value, other, "every allocation has an id of its own");
}

Test(emulated_more, synchronous_operations_that_wait) {
    const CUpointer_attribute syncs = CU_POINTER_ATTRIBUTE_SYNC_MEMOPS;
    const unsigned yes = 1;
    unsigned said = 0;
    CUdeviceptr waits = 0, other = 0;
    CUmemoryPool pool = NULL;
    CUdeviceptr pooled = 0;
    void *pinned = NULL;
    check_success(drv.cuMemAlloc(&waits, 100));
    check_success(drv.cuMemAlloc(&other, 100));
    check_success(drv.cuMemsetD8(waits, 0, 100));
    check_success(drv.cuCtxSynchronize());
    set_delay(30);
    check_success(drv.cuMemsetD8(other, 1, 100));
    check_result(CUDA_ERROR_NOT_READY, drv.cuStreamQuery(NULL));
    check_success(more_cuPointerSetAttribute(&yes, syncs, waits));
    check_success(drv.cuStreamQuery(NULL)); /* cuda.h: it has waited for those before it */
    check_success(drv.cuMemsetD8(waits, 1, 100));
    check_success(drv.cuStreamQuery(NULL));
    check_success(drv.cuMemcpyDtoD(other, waits, 100));
    check_success(drv.cuStreamQuery(NULL));
    check_success(drv.cuMemsetD8Async(waits, 2, 100, NULL));
    check_result(CUDA_ERROR_NOT_READY, drv.cuStreamQuery(NULL));
    set_delay(0);
    check_success(drv.cuCtxSynchronize());
    check_success(drv.cuMemHostAlloc(&pinned, 100, 0));
    check_success(more_cuPointerSetAttribute(&yes, syncs, (CUdeviceptr)(uintptr_t)pinned));
    check_success(drv.cuPointerGetAttribute(&said, syncs, (CUdeviceptr)(uintptr_t)pinned));
    cr_assert_eq(said, 1);
    check_success(drv.cuDeviceGetDefaultMemPool(&pool, 0));
    check_success(drv.cuMemAllocFromPoolAsync(&pooled, 100, pool, NULL));
    check_result(CUDA_ERROR_NOT_SUPPORTED, more_cuPointerSetAttribute(&yes, syncs, pooled));
    check_result(CUDA_ERROR_INVALID_VALUE, more_cuPointerSetAttribute(NULL, syncs, waits));
}

Test(emulated_more, managed_memory_is_prefetched_and_attached) {
    const CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
    const CUmemLocation nowhere = {CU_MEM_LOCATION_TYPE_DEVICE, 2};
    const CUmemLocation host = {CU_MEM_LOCATION_TYPE_HOST, 0};
    const CUmemLocation node = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
    const CUmemLocation no_node = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 7};
    const CUmemLocation invalid = {CU_MEM_LOCATION_TYPE_INVALID, 0};
    CUdeviceptr managed = 0;
    CUstream stream = NULL;
    int concurrent = 0;
    check_success(more_cuMemAllocManaged(&managed, 100, CU_MEM_ATTACH_GLOBAL));
    check_success(drv.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    check_success(
        drv.cuDeviceGetAttribute(&concurrent, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 0));
    const CUresult to_device = concurrent != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    check_result(to_device, more_cuMemPrefetchAsync(managed, 100, 1, stream));
    check_success(more_cuMemPrefetchAsync(managed + 50, 50, CU_DEVICE_CPU, stream));
    check_result(to_device, more_cuMemPrefetchAsync_v2(managed, 100, here, 0, NULL));
    check_success(more_cuMemPrefetchAsync_v2(managed, 100, host, 0, stream));
    check_success(more_cuMemPrefetchAsync_v2(managed, 100, node, 0, stream));
    check_result(CUDA_ERROR_INVALID_DEVICE,
                 more_cuMemPrefetchAsync_v2(managed, 100, nowhere, 0, stream));
    check_result(CUDA_ERROR_INVALID_VALUE,
                 more_cuMemPrefetchAsync_v2(managed, 100, no_node, 0, stream));
    check_result(CUDA_ERROR_INVALID_VALUE,
                 more_cuMemPrefetchAsync_v2(managed, 100, invalid, 0, stream));
    check_result(CUDA_ERROR_INVALID_VALUE,
                 more_cuMemPrefetchAsync_v2(managed, 100, host, 1, stream));
    check_result(CUDA_ERROR_INVALID_VALUE,
                 more_cuMemPrefetchAsync_v2(managed + 50, 51, host, 0, stream));
    check_result(CUDA_ERROR_INVALID_VALUE, more_cuMemPrefetchAsync_v2(managed, 0, host, 0, stream));
    check_success(more_cuStreamAttachMemAsync(stream, managed, 0, CU_MEM_ATTACH_SINGLE));
    check_success(more_cuStreamAttachMemAsync(NULL, managed, 100, CU_MEM_ATTACH_GLOBAL));
    check_success(more_cuStreamAttachMemAsync(stream, managed, 0, CU_MEM_ATTACH_HOST));
    check_result(CUDA_ERROR_INVALID_VALUE,
                 more_cuStreamAttachMemAsync(NULL, managed, 0, CU_MEM_ATTACH_SINGLE));
    check_result(CUDA_ERROR_INVALID_VALUE,
                 more_cuStreamAttachMemAsync(stream, managed, 99, CU_MEM_ATTACH_GLOBAL));
    check_result(CUDA_ERROR_INVALID_VALUE, more_cuStreamAttachMemAsync(stream, managed, 0, 3));
    check_success(drv.cuStreamDestroy(stream));
}
