/* SPDX-License-Identifier: MIT */
/** @file What an address is: answered as for memory that the driver's own cuMemAlloc() made. */
#include <string.h>

#include "memory.h"
#include "state.h"

/* The driver's answer is right but for what differs between memory of cuMemAlloc() and of cuMemMap(). */
static void correct(void *data, CUpointer_attribute attribute, const memory_facts *facts) {
    /* A boolean, whose width cuda.h does not say: the driver has written all of it, so the lowest byte will do. What
     * was opened cannot be passed on. */
    const uint8_t is_capable = facts->is_opened ? 0 : 1;
    const unsigned access = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    const uint64_t none = 0;
    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        memcpy(data, &facts->context, sizeof(facts->context));
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        memcpy(data, &facts->device, sizeof(facts->device));
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        memcpy(data, &facts->base, sizeof(facts->base));
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        memcpy(data, &facts->bytes, sizeof(facts->bytes));
        break;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        memcpy(data, &is_capable, sizeof(is_capable));
        break;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        memcpy(data, &none, sizeof(none));
        break;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        memcpy(data, &access, sizeof(access));
        break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        memcpy(data, &facts->id, sizeof(facts->id));
        break;
    default:
        break;
    }
}

GPUIPC_EXPORTED CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute,
                                               CUdeviceptr address) {
    memory_facts facts;
    const CUresult result = REAL_CALL(cuPointerGetAttribute, (data, attribute, address));
    if (result == CUDA_SUCCESS && state_is_on() && memory_describe(address, &facts)) {
        correct(data, attribute, &facts);
    }
    return result;
}

GPUIPC_EXPORTED CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes,
                                                void **data, CUdeviceptr address) {
    memory_facts facts;
    const CUresult result = REAL_CALL(cuPointerGetAttributes, (count, attributes, data, address));
    if (result == CUDA_SUCCESS && state_is_on() && memory_describe(address, &facts)) {
        for (unsigned i = 0; i < count; i++) {
            correct(data[i], attributes[i], &facts);
        }
    }
    return result;
}

GPUIPC_EXPORTED CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes,
                                                 CUdeviceptr address) {
    memory_facts facts;
    const CUresult result = REAL_CALL(cuMemGetAddressRange_v2, (base, bytes, address));
    if (result == CUDA_SUCCESS && state_is_on() && memory_describe(address, &facts)) {
        if (base != NULL) {
            *base = facts.base;
        }
        if (bytes != NULL) {
            *bytes = facts.bytes;
        }
    }
    return result;
}
