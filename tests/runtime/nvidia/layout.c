/* SPDX-License-Identifier: MIT */
/**
 * @file Prints what the types of the runtime are like: values, sizes, offsets. Compiled behind NVIDIA's header (THEIRS) and
 * behind ours, the two must print the same.
 */
#ifdef THEIRS
#include <cuda_runtime_api.h>
#else
#include "runtime/runtime_types.h"
#endif

#include <stddef.h>
#include <stdio.h>

#include "runtime/runtime_errors.h"

/* clang-format off */
#define VALUES(X) \
    X(cudaMemcpyHostToHost) \
    X(cudaMemcpyHostToDevice) \
    X(cudaMemcpyDeviceToHost) \
    X(cudaMemcpyDeviceToDevice) \
    X(cudaMemcpyDefault) \
    X(cudaMemoryTypeUnregistered) \
    X(cudaMemoryTypeHost) \
    X(cudaMemoryTypeDevice) \
    X(cudaMemoryTypeManaged) \
    X(cudaDevAttrMaxThreadsPerBlock) \
    X(cudaDevAttrWarpSize) \
    X(cudaDevAttrUnifiedAddressing) \
    X(cudaDevAttrComputeCapabilityMajor) \
    X(cudaDevAttrMemoryPoolsSupported) \
    X(cudaDevAttrIpcEventSupport) \
    X(cudaDevP2PAttrPerformanceRank) \
    X(cudaDevP2PAttrAccessSupported) \
    X(cudaStreamCaptureModeGlobal) \
    X(cudaStreamCaptureModeThreadLocal) \
    X(cudaStreamCaptureModeRelaxed) \
    X(cudaStreamCaptureStatusNone) \
    X(cudaStreamCaptureStatusActive) \
    X(cudaStreamCaptureStatusInvalidated) \
    X(cudaMemPoolAttrReleaseThreshold) \
    X(cudaMemPoolAttrUsedMemCurrent) \
    X(cudaMemAccessFlagsProtNone) \
    X(cudaMemAccessFlagsProtRead) \
    X(cudaMemAccessFlagsProtReadWrite) \
    X(cudaMemHandleTypeNone) \
    X(cudaMemHandleTypePosixFileDescriptor) \
    X(cudaMemAllocationTypeInvalid) \
    X(cudaMemAllocationTypePinned) \
    X(cudaMemLocationTypeInvalid) \
    X(cudaMemLocationTypeDevice) \
    X(cudaDriverEntryPointSuccess) \
    X(cudaDriverEntryPointSymbolNotFound) \
    X(cudaDriverEntryPointVersionNotSufficent) \
    X(cudaStreamNonBlocking) \
    X(cudaEventDisableTiming) \
    X(cudaEventInterprocess) \
    X(cudaHostAllocMapped) \
    X(cudaHostRegisterMapped) \
    X(cudaIpcMemLazyEnablePeerAccess) \
    X(cudaMemAttachGlobal)

#define SIZES(X) \
    X(struct cudaDeviceProp) \
    X(struct cudaMemLocation) \
    X(struct cudaMemAccessDesc) \
    X(struct cudaMemPoolProps) \
    X(struct cudaMemPoolPtrExportData) \
    X(struct cudaIpcMemHandle_st) \
    X(struct cudaIpcEventHandle_st) \
    X(struct cudaPointerAttributes) \
    X(dim3) \
    X(cudaIpcMemHandle_t) \
    X(cudaIpcEventHandle_t) \
    X(cudaError_t)

#define FIELDS(X) \
    X(struct cudaMemLocation, type) \
    X(struct cudaMemLocation, id) \
    X(struct cudaMemAccessDesc, location) \
    X(struct cudaMemAccessDesc, flags) \
    X(struct cudaMemPoolProps, allocType) \
    X(struct cudaMemPoolProps, handleTypes) \
    X(struct cudaMemPoolProps, location) \
    X(struct cudaMemPoolProps, win32SecurityAttributes) \
    X(struct cudaMemPoolProps, maxSize) \
    X(struct cudaMemPoolProps, usage) \
    X(struct cudaMemPoolProps, reserved) \
    X(struct cudaMemPoolPtrExportData, reserved) \
    X(struct cudaIpcMemHandle_st, reserved) \
    X(struct cudaIpcEventHandle_st, reserved) \
    X(struct cudaPointerAttributes, type) \
    X(struct cudaPointerAttributes, device) \
    X(struct cudaPointerAttributes, devicePointer) \
    X(struct cudaPointerAttributes, hostPointer)

#define PROPERTIES(X) \
    X(struct cudaDeviceProp, name) \
    X(struct cudaDeviceProp, uuid) \
    X(struct cudaDeviceProp, luid) \
    X(struct cudaDeviceProp, luidDeviceNodeMask) \
    X(struct cudaDeviceProp, totalGlobalMem) \
    X(struct cudaDeviceProp, sharedMemPerBlock) \
    X(struct cudaDeviceProp, regsPerBlock) \
    X(struct cudaDeviceProp, warpSize) \
    X(struct cudaDeviceProp, memPitch) \
    X(struct cudaDeviceProp, maxThreadsPerBlock) \
    X(struct cudaDeviceProp, maxThreadsDim) \
    X(struct cudaDeviceProp, maxGridSize) \
    X(struct cudaDeviceProp, totalConstMem) \
    X(struct cudaDeviceProp, major) \
    X(struct cudaDeviceProp, minor) \
    X(struct cudaDeviceProp, textureAlignment) \
    X(struct cudaDeviceProp, texturePitchAlignment) \
    X(struct cudaDeviceProp, multiProcessorCount) \
    X(struct cudaDeviceProp, integrated) \
    X(struct cudaDeviceProp, canMapHostMemory) \
    X(struct cudaDeviceProp, maxTexture1D) \
    X(struct cudaDeviceProp, maxTexture1DMipmap) \
    X(struct cudaDeviceProp, maxTexture2D) \
    X(struct cudaDeviceProp, maxTexture2DMipmap) \
    X(struct cudaDeviceProp, maxTexture2DLinear) \
    X(struct cudaDeviceProp, maxTexture2DGather) \
    X(struct cudaDeviceProp, maxTexture3D) \
    X(struct cudaDeviceProp, maxTexture3DAlt) \
    X(struct cudaDeviceProp, maxTextureCubemap) \
    X(struct cudaDeviceProp, maxTexture1DLayered) \
    X(struct cudaDeviceProp, maxTexture2DLayered) \
    X(struct cudaDeviceProp, maxTextureCubemapLayered) \
    X(struct cudaDeviceProp, maxSurface1D) \
    X(struct cudaDeviceProp, maxSurface2D) \
    X(struct cudaDeviceProp, maxSurface3D) \
    X(struct cudaDeviceProp, maxSurface1DLayered) \
    X(struct cudaDeviceProp, maxSurface2DLayered) \
    X(struct cudaDeviceProp, maxSurfaceCubemap) \
    X(struct cudaDeviceProp, maxSurfaceCubemapLayered) \
    X(struct cudaDeviceProp, surfaceAlignment) \
    X(struct cudaDeviceProp, concurrentKernels) \
    X(struct cudaDeviceProp, ECCEnabled) \
    X(struct cudaDeviceProp, pciBusID) \
    X(struct cudaDeviceProp, pciDeviceID) \
    X(struct cudaDeviceProp, pciDomainID) \
    X(struct cudaDeviceProp, tccDriver) \
    X(struct cudaDeviceProp, asyncEngineCount) \
    X(struct cudaDeviceProp, unifiedAddressing) \
    X(struct cudaDeviceProp, memoryBusWidth) \
    X(struct cudaDeviceProp, l2CacheSize) \
    X(struct cudaDeviceProp, persistingL2CacheMaxSize) \
    X(struct cudaDeviceProp, maxThreadsPerMultiProcessor) \
    X(struct cudaDeviceProp, streamPrioritiesSupported) \
    X(struct cudaDeviceProp, globalL1CacheSupported) \
    X(struct cudaDeviceProp, localL1CacheSupported) \
    X(struct cudaDeviceProp, sharedMemPerMultiprocessor) \
    X(struct cudaDeviceProp, regsPerMultiprocessor) \
    X(struct cudaDeviceProp, managedMemory) \
    X(struct cudaDeviceProp, isMultiGpuBoard) \
    X(struct cudaDeviceProp, multiGpuBoardGroupID) \
    X(struct cudaDeviceProp, hostNativeAtomicSupported) \
    X(struct cudaDeviceProp, pageableMemoryAccess) \
    X(struct cudaDeviceProp, concurrentManagedAccess) \
    X(struct cudaDeviceProp, computePreemptionSupported) \
    X(struct cudaDeviceProp, canUseHostPointerForRegisteredMem) \
    X(struct cudaDeviceProp, cooperativeLaunch) \
    X(struct cudaDeviceProp, sharedMemPerBlockOptin) \
    X(struct cudaDeviceProp, pageableMemoryAccessUsesHostPageTables) \
    X(struct cudaDeviceProp, directManagedMemAccessFromHost) \
    X(struct cudaDeviceProp, maxBlocksPerMultiProcessor) \
    X(struct cudaDeviceProp, accessPolicyMaxWindowSize) \
    X(struct cudaDeviceProp, reservedSharedMemPerBlock) \
    X(struct cudaDeviceProp, hostRegisterSupported) \
    X(struct cudaDeviceProp, sparseCudaArraySupported) \
    X(struct cudaDeviceProp, hostRegisterReadOnlySupported) \
    X(struct cudaDeviceProp, timelineSemaphoreInteropSupported) \
    X(struct cudaDeviceProp, memoryPoolsSupported) \
    X(struct cudaDeviceProp, gpuDirectRDMASupported) \
    X(struct cudaDeviceProp, gpuDirectRDMAFlushWritesOptions) \
    X(struct cudaDeviceProp, gpuDirectRDMAWritesOrdering) \
    X(struct cudaDeviceProp, memoryPoolSupportedHandleTypes) \
    X(struct cudaDeviceProp, deferredMappingCudaArraySupported) \
    X(struct cudaDeviceProp, ipcEventSupported) \
    X(struct cudaDeviceProp, clusterLaunch) \
    X(struct cudaDeviceProp, unifiedFunctionPointers)

#if RUNTIME_MAJOR >= 13
#define PROPERTIES_OF_MAJOR(X) \
    X(struct cudaDeviceProp, deviceNumaConfig) \
    X(struct cudaDeviceProp, deviceNumaId) \
    X(struct cudaDeviceProp, mpsEnabled) \
    X(struct cudaDeviceProp, hostNumaId) \
    X(struct cudaDeviceProp, gpuPciDeviceID) \
    X(struct cudaDeviceProp, gpuPciSubsystemID) \
    X(struct cudaDeviceProp, hostNumaMultinodeIpcSupported) \
    X(struct cudaDeviceProp, reserved)
#else
#define PROPERTIES_OF_MAJOR(X) \
    X(struct cudaDeviceProp, clockRate) \
    X(struct cudaDeviceProp, deviceOverlap) \
    X(struct cudaDeviceProp, kernelExecTimeoutEnabled) \
    X(struct cudaDeviceProp, computeMode) \
    X(struct cudaDeviceProp, maxTexture1DLinear) \
    X(struct cudaDeviceProp, memoryClockRate) \
    X(struct cudaDeviceProp, singleToDoublePrecisionPerfRatio) \
    X(struct cudaDeviceProp, cooperativeMultiDeviceLaunch) \
    X(struct cudaDeviceProp, reserved)
#endif
/* clang-format on */

int main(void) {
#define PRINT_VALUE(name)             printf("%s %lld\n", #name, (long long)(name));
#define PRINT_ERROR(name, code, text) PRINT_VALUE(name)
#define PRINT_SIZE(type)              printf("sizeof %s %zu\n", #type, sizeof(type));
#define PRINT_FIELD(type, field)                                                                   \
    printf("%s.%s at %zu of %zu\n", #type, #field, offsetof(type, field),                          \
           sizeof(((type *)0)->field));
    RUNTIME_ERROR_LIST(PRINT_ERROR)
    VALUES(PRINT_VALUE)
    PRINT_VALUE((size_t)cudaStreamLegacy)
    PRINT_VALUE((size_t)cudaStreamPerThread)
    SIZES(PRINT_SIZE)
    FIELDS(PRINT_FIELD)
    PROPERTIES(PRINT_FIELD)
    PROPERTIES_OF_MAJOR(PRINT_FIELD)
    return 0;
}
