/* SPDX-License-Identifier: MIT */
/** @file Devices, the thread's own one, errors that are kept, the context of the driver. */
#include "os.h"
#include "runtime.h"

TestSuite(device, .timeout = 60);

#if RUNTIME_MAJOR >= 13
#define get_properties cudaGetDeviceProperties
#else
#define get_properties cudaGetDeviceProperties_v2
#endif

Test(device, versions) {
    int runtime = 0, below = 0;
    OK(cudaRuntimeGetVersion(&runtime));
    OK(cudaDriverGetVersion(&below));
    cr_assert_eq(runtime / 1000, RUNTIME_MAJOR);
    cr_assert_geq(below, 12000);
    RESULT(cudaErrorInvalidValue, cudaRuntimeGetVersion(NULL));
}

Test(device, count_and_choice) {
    int count = 0, device = -1;
    OK(cudaGetDevice(&device));
    cr_assert_eq(device, 0, "the first device until another is chosen");
    OK(cudaGetDeviceCount(&count));
    cr_assert_geq(count, 1);
    OK(cudaSetDevice(count - 1));
    OK(cudaGetDevice(&device));
    cr_assert_eq(device, count - 1);
    RESULT(cudaErrorInvalidDevice, cudaSetDevice(count));
    RESULT(cudaErrorInvalidDevice, cudaSetDevice(-1));
    OK(cudaGetDevice(&device));
    cr_assert_eq(device, count - 1, "a choice that failed changes nothing");
}

static void see_device(void *argument) {
    if (cudaGetDevice(argument) != cudaSuccess) {
        *(int *)argument = -1;
    }
}

Test(device, each_thread_has_its_own) {
    int count = 0, seen = -1;
    os_thread *thread;
    OK(cudaGetDeviceCount(&count));
    if (count < 2) {
        cr_skip_test("one device only");
    }
    OK(cudaSetDevice(1));
    cr_assert_eq(os_thread_start(see_device, &seen, &thread), GPUIPC_OK);
    os_thread_join(thread);
    cr_assert_eq(seen, 0);
}

Test(device, properties_are_the_attributes) {
    struct cudaDeviceProp found;
    int value = 0;
    OK(get_properties(&found, 0));
    cr_assert_neq(found.name[0], '\0');
    cr_assert_gt(found.totalGlobalMem, 0);
    cr_assert_eq(found.warpSize, 32);
    OK(cudaDeviceGetAttribute(&value, cudaDevAttrMaxThreadsPerBlock, 0));
    cr_assert_eq(found.maxThreadsPerBlock, value);
    OK(cudaDeviceGetAttribute(&value, cudaDevAttrComputeCapabilityMajor, 0));
    cr_assert_eq(found.major, value);
    OK(cudaDeviceGetAttribute(&value, cudaDevAttrUnifiedAddressing, 0));
    cr_assert_eq(found.unifiedAddressing, value);
    OK(cudaDeviceGetAttribute(&value, cudaDevAttrIpcEventSupport, 0));
    cr_assert_eq(found.ipcEventSupported, value);
    RESULT(cudaErrorInvalidDevice, get_properties(&found, 1000));
}

Test(device, found_by_its_bus) {
    char text[32];
    int device = -1;
    OK(cudaDeviceGetPCIBusId(text, (int)sizeof text, 0));
    OK(cudaDeviceGetByPCIBusId(&device, text));
    cr_assert_eq(device, 0, "%s", text);
}

Test(device, last_error_is_kept_until_it_is_taken) {
    cr_assert_eq(cudaGetLastError(), cudaSuccess);
    RESULT(cudaErrorInvalidDevice, cudaSetDevice(1000));
    OK(cudaFree(NULL));
    cr_assert_eq(cudaPeekAtLastError(), cudaErrorInvalidDevice, "a call that succeeds leaves it");
    cr_assert_eq(cudaGetLastError(), cudaErrorInvalidDevice);
    cr_assert_eq(cudaGetLastError(), cudaSuccess);
}

Test(device, errors_have_names) {
    cr_assert_str_eq(cudaGetErrorName(cudaErrorMemoryAllocation), "cudaErrorMemoryAllocation");
    cr_assert_str_eq(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory");
    cr_assert_str_eq(cudaGetErrorName((cudaError_t)12345), "unrecognized error code");
    cr_assert_str_eq(cudaGetErrorString((cudaError_t)12345), "unrecognized error code");
}

Test(device, reset_ends_what_was_there) {
    void *memory = NULL;
    uint32_t word = 7;
    OK(cudaMalloc(&memory, MIB));
    OK(cudaDeviceReset());
    OK(cudaMalloc(&memory, MIB));
    OK(cudaMemcpy(memory, &word, sizeof word, cudaMemcpyHostToDevice));
    word = 0;
    OK(cudaMemcpy(&word, memory, sizeof word, cudaMemcpyDeviceToHost));
    cr_assert_eq(word, 7);
    OK(cudaFree(memory));
    OK(cudaDeviceReset());
    OK(cudaDeviceReset());
}

Test(device, peers) {
    int count = 0, can = -1;
    OK(cudaGetDeviceCount(&count));
    if (count < 2) {
        cr_skip_test("one device only");
    }
    OK(cudaDeviceCanAccessPeer(&can, 0, 1));
    if (can != 1) {
        cr_skip_test("no peer access");
    }
    OK(cudaDeviceEnablePeerAccess(1, 0));
    RESULT(cudaErrorPeerAccessAlreadyEnabled, cudaDeviceEnablePeerAccess(1, 0));
    OK(cudaDeviceDisablePeerAccess(1));
    RESULT(cudaErrorPeerAccessNotEnabled, cudaDeviceDisablePeerAccess(1));
    RESULT(cudaErrorInvalidDevice, cudaDeviceEnablePeerAccess(count, 0));
}

typedef CUresult (*create_context)(CUcontext *context, unsigned int flags, CUdevice device);
typedef CUresult (*destroy_context)(CUcontext context);

static void find_driver(const char *name, unsigned version, void *out) {
    void *function = NULL;
    enum cudaDriverEntryPointQueryResult status = cudaDriverEntryPointSymbolNotFound;
    OK(cudaGetDriverEntryPointByVersion(name, &function, version, 0, &status));
    cr_assert_eq(status, cudaDriverEntryPointSuccess, "%s", name);
    memcpy(out, &function, sizeof function);
}

Test(device, a_context_of_the_driver_is_worked_in) {
    create_context create;
    destroy_context destroy;
    CUcontext context = NULL;
    void *memory = NULL;
    int count = 0, device = -1;
    OK(cudaGetDeviceCount(&count));
    find_driver("cuCtxCreate", 3020, &create);
    find_driver("cuCtxDestroy", 4000, &destroy);
    cr_assert_eq(create(&context, 0, count - 1), CUDA_SUCCESS);
    OK(cudaGetDevice(&device));
    cr_assert_eq(device, count - 1, "the device of the context that is current");
    OK(cudaMalloc(&memory, MIB));
    cr_assert_eq(destroy(context), CUDA_SUCCESS);
    OK(cudaGetDevice(&device));
    cr_assert_eq(device, 0);
    RESULT(cudaErrorInvalidValue, cudaFree(memory));
}

Test(device, an_entry_point_that_is_not_there) {
    void *function = NULL;
    enum cudaDriverEntryPointQueryResult status = cudaDriverEntryPointSuccess;
    (void)cudaGetDriverEntryPointByVersion("cuNoSuchCall", &function, 12000, 0, &status);
    cr_assert_eq(status, cudaDriverEntryPointSymbolNotFound);
    cr_assert_null(function);
}
