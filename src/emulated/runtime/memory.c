/* SPDX-License-Identifier: MIT */
/** @file The memory of devices, managed memory, and what an address stands for. */
#include <string.h>

#include "current.h"

/* Nothing gives the null pointer and success, as seen with NVIDIA's runtime; the driver refuses it. */
GPUIPC_EXPORTED cudaError_t cudaMalloc(void **address, size_t bytes) {
    CUdeviceptr made = 0;
    if (address == NULL) {
        return current_fail(cudaErrorInvalidValue);
    }
    return current_give(bytes == 0 ? RUN(cuCtxGetCurrent, &(CUcontext){NULL})
                                   : RUN(cuMemAlloc_v2, &made, bytes),
                        &made, address);
}

GPUIPC_EXPORTED cudaError_t cudaMallocPitch(void **address, size_t *pitch, size_t width,
                                            size_t height) {
    CUdeviceptr made = 0;
    if (address == NULL || pitch == NULL) {
        return current_fail(cudaErrorInvalidValue);
    }
    return current_give(RUN(cuMemAllocPitch_v2, &made, pitch, width, height, 4), &made, address);
}

GPUIPC_EXPORTED cudaError_t cudaMallocManaged(void **address, size_t bytes, unsigned int flags) {
    CUdeviceptr made = 0;
    if (address == NULL) {
        return current_fail(cudaErrorInvalidValue);
    }
    return current_give(RUN(cuMemAllocManaged, &made, bytes, flags), &made, address);
}

/* cudaFree(NULL) makes the context and nothing else: programs call it for that. */
GPUIPC_EXPORTED cudaError_t cudaFree(void *address) {
    return address == NULL ? RUN(cuCtxGetCurrent, &(CUcontext){NULL})
                           : RUN(cuMemFree_v2, number_of(address));
}

GPUIPC_EXPORTED cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
    return RUN(cuMemGetInfo_v2, free_bytes, total_bytes);
}

typedef struct pointer_facts {
    unsigned type; /* CUmemorytype; 0: memory that the driver does not know */
    unsigned is_managed;
    int device;
    CUdeviceptr device_address;
    void *host_address;
} pointer_facts;

static cudaError_t ask(const void *address, pointer_facts *out) {
    CUpointer_attribute attributes[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
        CU_POINTER_ATTRIBUTE_HOST_POINTER};
    void *values[] = {&out->type, &out->is_managed, &out->device, &out->device_address,
                      &out->host_address};
    memset(out, 0, sizeof(*out));
    return RUN(cuPointerGetAttributes, sizeof(attributes) / sizeof(attributes[0]), attributes,
               values, number_of(address));
}

/* cuda_runtime_api.h: memory that CUDA does not know is no error, and of type Unregistered. */
GPUIPC_EXPORTED cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes,
                                                     const void *address) {
    pointer_facts facts;
    if (attributes == NULL) {
        return current_fail(cudaErrorInvalidValue);
    }
    const cudaError_t result = ask(address, &facts);
    if (result != cudaSuccess) {
        return result;
    }
    memset(attributes, 0, sizeof(*attributes));
    attributes->device = facts.device;
    attributes->devicePointer = pointer_of(facts.device_address);
    attributes->hostPointer = facts.host_address;
    if (facts.type == 0) {
        attributes->type = cudaMemoryTypeUnregistered;
        attributes->hostPointer = (void *)(uintptr_t)address;
    } else if (facts.is_managed != 0) {
        attributes->type = cudaMemoryTypeManaged;
    } else {
        attributes->type =
            facts.type == CU_MEMORYTYPE_HOST ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
    }
    return cudaSuccess;
}
