/* SPDX-License-Identifier: MIT */
/** @file The entry points that say what an address is. */
#include <string.h>

#include "address_space.h"
#include "context.h"
#include "entry.h"
#include "pinned.h"
#include "pool.h"
#include "stream.h"

/* Any attribute's value; its size tells how much of it the caller wants. */
typedef struct attribute_value {
    union {
        unsigned long long number;
        void *pointer;
        unsigned int word;
        int integer;
    } as;
    size_t size;
} attribute_value;

static attribute_value of_word(unsigned int word) {
    return (attribute_value){.as.word = word, .size = sizeof(word)};
}

static attribute_value of_integer(int integer) {
    return (attribute_value){.as.integer = integer, .size = sizeof(integer)};
}

static attribute_value of_number(unsigned long long number) {
    return (attribute_value){.as.number = number, .size = sizeof(number)};
}

static attribute_value of_pointer(void *pointer) {
    return (attribute_value){.as.pointer = pointer, .size = sizeof(pointer)};
}

/* cuda.h says "boolean" and no more; public callers give room for an unsigned int. */
static attribute_value of_boolean(bool value) {
    return of_word(value);
}

static unsigned long long buffer_id(const allocation *memory) {
    unsigned long long id;
    memcpy(&id, memory->id, sizeof(id));
    return id;
}

/* Where memory of cuMemAlloc is one range, that of cuMemMap is a mapping in a reserved range.
 * False: the attribute is none of a range. */
static bool describe_range(CUpointer_attribute attribute, const mapping *mapped,
                           attribute_value *out) {
    const range *whole =
        mapped->kind != MAPPING_VIRTUAL ? &mapped->at : &address_reservation(mapped->at.base)->at;
    /* The block, or the chunk, that memory which was not mapped by the caller lies in. */
    const range *block =
        mapped->kind == MAPPING_VIRTUAL ? &mapped->at : &address_reservation(mapped->at.base)->at;
    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *out = of_number(whole->base);
        return true;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *out = of_number(whole->size);
        return true;
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        *out = of_number(block->base);
        return true;
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        *out = of_number(block->size);
        return true;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *out = of_boolean(true);
        return true;
    default:
        return false;
    }
}

/* Of what was opened through cuIpc... it is the opener (measured). */
static int ordinal_of(const mapping *mapped) {
    switch (mapped->kind) {
    case MAPPING_OPENED:
        return mapped->owner->device;
    case MAPPING_POOLED:
        return mapped->block->chunk->owner->device;
    default:
        return mapped->memory->device;
    }
}

static unsigned long long handle_types(const mapping *mapped) {
    return (unsigned long long)(mapped->block == NULL ? mapped->memory->handle_types
                                                      : mapped->block->chunk->owner->handle_types);
}

/* False: the attribute is none of the memory behind an address. */
static bool describe_memory(CUpointer_attribute attribute, const mapping *mapped,
                            attribute_value *out) {
    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *out = of_word(mapped->memory->is_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
        return true;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *out = of_integer(ordinal_of(mapped));
        return true;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *out = of_boolean(false);
        return true;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *out = of_boolean(mapped->kind == MAPPING_PLAIN && state_has_ipc());
        return true;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *out = of_number(handle_types(mapped));
        return true;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        *out = of_number(buffer_id(mapped->memory));
        return true;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        *out = of_boolean(mapped->syncs);
        return true;
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        *out = of_boolean(mapped->owner != NULL || mapped->memory->is_rdma_capable);
        return true;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *out =
            of_pointer(mapped->block == NULL ? NULL : (void *)mapped->block->chunk->owner->handle);
        return true;
    default:
        return false;
    }
}

static CUresult describe(CUpointer_attribute attribute, CUdeviceptr address, const mapping *mapped,
                         attribute_value *out) {
    context *current;
    CUresult result;
    if (describe_range(attribute, mapped, out) || describe_memory(attribute, mapped, out)) {
        return CUDA_SUCCESS;
    }
    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *out = of_pointer(mapped->owner == NULL ? NULL : (void *)mapped->owner->handle);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        result = context_current(&current);
        if (result != CUDA_SUCCESS) {
            return result == CUDA_ERROR_ILLEGAL_ADDRESS ? result : CUDA_ERROR_INVALID_CONTEXT;
        }
        if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_POINTER) {
            *out = of_number(address);
            return context_sees(current, mapped) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
        }
        /* Measured: for memory of cuMemMap alone it depends on the device. */
        *out = of_word(mapped->kind == MAPPING_VIRTUAL ? mapped->access[current->device]
                                                       : CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE; /* HOST_POINTER too: the host cannot reach it */
    }
}

/* What is pinned or managed: host and devices reach it at the same address. */
static CUresult describe_pinned(CUpointer_attribute attribute, CUdeviceptr address,
                                const pinned *at, attribute_value *out) {
    context *current;
    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *out = of_pointer((void *)at->owner->handle);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *out = of_word(at->kind == PINNED_MANAGED ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *out = of_number(address);
        return context_current(&current);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        *out = of_number(address);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *out = of_boolean(at->kind == PINNED_MANAGED);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *out = of_integer(at->device);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        *out = of_number(at->at.base);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        *out = of_number(at->at.size);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *out = of_boolean(true);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        *out = of_boolean(false);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        *out = of_boolean(at->syncs);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *out = of_number(0);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        *out = of_word(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *out = of_pointer(NULL);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        *out = of_number(at->id);
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static CUresult get_attribute(void *data, CUpointer_attribute attribute, CUdeviceptr address) {
    attribute_value value;
    const mapping *mapped = address_mapping(address);
    const pinned *host = mapped == NULL ? pinned_find(address) : NULL;
    if (data == NULL || (mapped == NULL && host == NULL)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const CUresult result = mapped != NULL ? describe(attribute, address, mapped, &value)
                                           : describe_pinned(attribute, address, host, &value);
    if (result == CUDA_SUCCESS) {
        memcpy(data, &value.as, value.size);
    }
    return result;
}

/* What cuPointerGetAttributes writes where there is no value; 0 when it knows no such attribute. */
static size_t attribute_size(CUpointer_attribute attribute) {
    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        return sizeof(unsigned int);
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        return sizeof(unsigned long long);
    default:
        return 0;
    }
}

/* cuda.h: an address that CUDA does not know is no error here. Its attributes are zero. The size of its range
 * is left as it was (measured). */
static CUresult get_attributes(unsigned count, const CUpointer_attribute *attributes, void **data,
                               CUdeviceptr address) {
    if (count == 0 || attributes == NULL || data == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (unsigned i = 0; i < count; i++) {
        if (data[i] == NULL || attribute_size(attributes[i]) == 0) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    for (unsigned i = 0; i < count; i++) {
        if (get_attribute(data[i], attributes[i], address) == CUDA_SUCCESS ||
            attributes[i] == CU_POINTER_ATTRIBUTE_RANGE_SIZE) {
            continue;
        }
        memset(data[i], 0, attribute_size(attributes[i]));
        if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) {
            const int none = -2; /* CU_DEVICE_INVALID; 0 is a device */
            memcpy(data[i], &none, sizeof(none));
        }
    }
    return CUDA_SUCCESS;
}

/* What a synchronous call has left to do is on the default stream of the memory's context. */
static CUresult finish_synchronous(context *owner) {
    stream *on;
    const CUresult result = owner == NULL ? CUDA_SUCCESS : stream_legacy(owner, &on);
    return owner == NULL || result != CUDA_SUCCESS ? result : stream_synchronize(on);
}

/* Of virtual memory, and what pools are made of, the attribute cannot be set (public reports of drivers 535 and later:
 * NOT_SUPPORTED for memory of cuMemMap). */
static CUresult set_attribute(const void *value, CUpointer_attribute attribute,
                              CUdeviceptr address) {
    unsigned int wanted;
    mapping *mapped = address_mapping(address);
    pinned *host = mapped == NULL ? pinned_find(address) : NULL;
    if (value == NULL || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS ||
        (mapped == NULL && host == NULL)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (mapped != NULL && mapped->owner == NULL) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    memcpy(&wanted, value, sizeof(wanted));
    if (mapped != NULL) {
        mapped->syncs = wanted != 0;
    } else {
        host->syncs = wanted != 0;
    }
    return wanted == 0 ? CUDA_SUCCESS
                       : finish_synchronous(mapped != NULL ? mapped->owner : host->owner);
}

GPUIPC_EXPORTED CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute,
                                               CUdeviceptr address) {
    const CUresult refused = ENTER(cuPointerGetAttribute);
    return refused != CUDA_SUCCESS ? refused : entry_leave(get_attribute(data, attribute, address));
}

GPUIPC_EXPORTED CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes,
                                                void **data, CUdeviceptr address) {
    const CUresult refused = ENTER(cuPointerGetAttributes);
    return refused != CUDA_SUCCESS ? refused
                                   : entry_leave(get_attributes(count, attributes, data, address));
}

GPUIPC_EXPORTED CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute,
                                               CUdeviceptr address) {
    const CUresult refused = ENTER(cuPointerSetAttribute);
    return refused != CUDA_SUCCESS ? refused
                                   : entry_leave(set_attribute(value, attribute, address));
}
