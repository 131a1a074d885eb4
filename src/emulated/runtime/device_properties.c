/* SPDX-License-Identifier: MIT */
/** @file The properties of a device, which the driver tells as attributes one by one. */
#include <string.h>

#include "current.h"

typedef struct property {
    size_t offset;
    size_t size; /* of an int or a size_t */
    int attribute;
} property;

#define PROPERTY(field, attribute)                                                                 \
    {                                                                                              \
        offsetof(struct cudaDeviceProp, field), sizeof(((struct cudaDeviceProp *)0)->field),       \
            attribute                                                                              \
    }

/* cuda.h's numbers. What is not here (textures, surfaces) is 0, as the driver here has none. */
static const property properties[] = {
    PROPERTY(maxThreadsPerBlock, 1),
    PROPERTY(maxThreadsDim[0], 2),
    PROPERTY(maxThreadsDim[1], 3),
    PROPERTY(maxThreadsDim[2], 4),
    PROPERTY(maxGridSize[0], 5),
    PROPERTY(maxGridSize[1], 6),
    PROPERTY(maxGridSize[2], 7),
    PROPERTY(sharedMemPerBlock, 8),
    PROPERTY(totalConstMem, 9),
    PROPERTY(warpSize, 10),
    PROPERTY(memPitch, 11),
    PROPERTY(regsPerBlock, 12),
    PROPERTY(textureAlignment, 14),
    PROPERTY(multiProcessorCount, 16),
    PROPERTY(integrated, 18),
    PROPERTY(canMapHostMemory, 19),
    PROPERTY(surfaceAlignment, 30),
    PROPERTY(concurrentKernels, 31),
    PROPERTY(ECCEnabled, 32),
    PROPERTY(pciBusID, 33),
    PROPERTY(pciDeviceID, 34),
    PROPERTY(tccDriver, 35),
    PROPERTY(memoryBusWidth, 37),
    PROPERTY(l2CacheSize, 38),
    PROPERTY(maxThreadsPerMultiProcessor, 39),
    PROPERTY(asyncEngineCount, 40),
    PROPERTY(unifiedAddressing, 41),
    PROPERTY(pciDomainID, 50),
    PROPERTY(texturePitchAlignment, 51),
    PROPERTY(major, 75),
    PROPERTY(minor, 76),
    PROPERTY(streamPrioritiesSupported, 78),
    PROPERTY(globalL1CacheSupported, 79),
    PROPERTY(localL1CacheSupported, 80),
    PROPERTY(sharedMemPerMultiprocessor, 81),
    PROPERTY(regsPerMultiprocessor, 82),
    PROPERTY(managedMemory, 83),
    PROPERTY(isMultiGpuBoard, 84),
    PROPERTY(multiGpuBoardGroupID, 85),
    PROPERTY(hostNativeAtomicSupported, 86),
    PROPERTY(pageableMemoryAccess, 88),
    PROPERTY(concurrentManagedAccess, 89),
    PROPERTY(computePreemptionSupported, 90),
    PROPERTY(canUseHostPointerForRegisteredMem, 91),
    PROPERTY(cooperativeLaunch, 95),
    PROPERTY(sharedMemPerBlockOptin, 97),
    PROPERTY(hostRegisterSupported, 99),
    PROPERTY(pageableMemoryAccessUsesHostPageTables, 100),
    PROPERTY(directManagedMemAccessFromHost, 101),
    PROPERTY(maxBlocksPerMultiProcessor, 106),
    PROPERTY(persistingL2CacheMaxSize, 108),
    PROPERTY(accessPolicyMaxWindowSize, 109),
    PROPERTY(reservedSharedMemPerBlock, 111),
    PROPERTY(sparseCudaArraySupported, 112),
    PROPERTY(hostRegisterReadOnlySupported, 113),
    PROPERTY(timelineSemaphoreInteropSupported, 114),
    PROPERTY(memoryPoolsSupported, 115),
    PROPERTY(gpuDirectRDMASupported, 116),
    PROPERTY(gpuDirectRDMAFlushWritesOptions, 117),
    PROPERTY(gpuDirectRDMAWritesOrdering, 118),
    PROPERTY(memoryPoolSupportedHandleTypes, 119),
    PROPERTY(clusterLaunch, 120),
    PROPERTY(deferredMappingCudaArraySupported, 121),
    PROPERTY(ipcEventSupported, 125),
    PROPERTY(unifiedFunctionPointers, 129),
#if RUNTIME_MAJOR >= 13
    PROPERTY(deviceNumaConfig, 130),
    PROPERTY(mpsEnabled, 133),
    PROPERTY(deviceNumaId, 134),
    PROPERTY(hostNumaId, 135),
#else
    PROPERTY(clockRate, 13),
    PROPERTY(deviceOverlap, 15),
    PROPERTY(kernelExecTimeoutEnabled, 17),
    PROPERTY(computeMode, 20),
    PROPERTY(memoryClockRate, 36),
    PROPERTY(singleToDoublePrecisionPerfRatio, 87),
    PROPERTY(cooperativeMultiDeviceLaunch, 96),
#endif
};

static cudaError_t fill_attributes(struct cudaDeviceProp *out, int device) {
    for (size_t i = 0; i < sizeof(properties) / sizeof(properties[0]); i++) {
        int value;
        const cudaError_t result = RUN_WITHOUT_CONTEXT(
            cuDeviceGetAttribute, &value, (CUdevice_attribute)properties[i].attribute, device);
        if (result != cudaSuccess) {
            return result;
        }
        if (properties[i].size == sizeof(size_t)) {
            const size_t wide = (size_t)value;
            memcpy((char *)out + properties[i].offset, &wide, sizeof(wide));
        } else {
            memcpy((char *)out + properties[i].offset, &value, sizeof(value));
        }
    }
    return cudaSuccess;
}

static cudaError_t get_properties(struct cudaDeviceProp *out, int device) {
    struct cudaDeviceProp found;
    memset(&found, 0, sizeof(found));
    if (out == NULL) {
        return current_fail(cudaErrorInvalidValue);
    }
    cudaError_t result =
        RUN_WITHOUT_CONTEXT(cuDeviceGetName, found.name, (int)sizeof(found.name), device);
    if (result == cudaSuccess) {
        result = RUN_WITHOUT_CONTEXT(cuDeviceGetUuid_v2, &found.uuid, device);
    }
    if (result == cudaSuccess) {
        result = RUN_WITHOUT_CONTEXT(cuDeviceTotalMem_v2, &found.totalGlobalMem, device);
    }
    if (result == cudaSuccess) {
        result = fill_attributes(&found, device);
    }
    if (result == cudaSuccess) {
        *out = found;
    }
    return result;
}

#if RUNTIME_MAJOR >= 13
GPUIPC_EXPORTED cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties_of,
                                                    int device) {
    return get_properties(properties_of, device);
}
#else
GPUIPC_EXPORTED cudaError_t cudaGetDeviceProperties_v2(struct cudaDeviceProp *properties_of,
                                                       int device) {
    return get_properties(properties_of, device);
}
#endif
