/* SPDX-License-Identifier: MIT */
/** @file Memory of cuMemAlloc, and how much there is. */
#include "plain_memory.h"

#include "context.h"
#include "entry.h"
#include "pinned.h"
#include "pool.h"
#include "stream.h"

/* CUDA programming guide, "Device Memory Accesses": such addresses are aligned to 256 bytes or
 * more, and rows of cuMemAllocPitch likewise. */
#define PITCH_ALIGNMENT 512

/* Maps memory for a context into a range of its own. */
static CUresult map_plain(context *owner, allocation *memory, uint64_t bytes, CUdeviceptr *out) {
    reservation *reserved;
    mapping *mapped;
    const uint64_t room = (bytes + STATE_GRANULE - 1) / STATE_GRANULE * STATE_GRANULE;
    CUresult result = address_reserve(room, STATE_GRANULE, 0, &reserved);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = address_map(reserved->at.base, bytes, memory, &mapped);
    if (result != CUDA_SUCCESS) {
        address_unreserve(reserved);
        return result;
    }
    reserved->is_plain = true;
    mapped->kind = MAPPING_PLAIN;
    mapped->owner = owner;
    mapped->access[owner->device] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    *out = reserved->at.base;
    return CUDA_SUCCESS;
}

static CUresult allocate(CUdeviceptr *out, uint64_t bytes) {
    context *current;
    allocation *memory;
    CUresult result = context_current(&current);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (out == NULL || bytes == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    result = allocation_create(current->device, bytes, state_has_ipc() ? ALLOCATION_AS_LEGACY : 0,
                               &memory);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = map_plain(current, memory, bytes, out);
    allocation_release(memory); /* the mapping keeps it */
    if (result == CUDA_SUCCESS) {
        driver.live.plain++;
    }
    return result;
}

static CUresult allocate_rows(CUdeviceptr *out, size_t *pitch, size_t width, size_t height,
                              unsigned element) {
    if (pitch == NULL || width == 0 || height == 0 || width > SIZE_MAX - PITCH_ALIGNMENT ||
        (element != 4 && element != 8 && element != 16)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const size_t row = (width + PITCH_ALIGNMENT - 1) / PITCH_ALIGNMENT * PITCH_ALIGNMENT;
    if (height > SIZE_MAX / row) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = allocate(out, (uint64_t)row * height);
    if (result == CUDA_SUCCESS) {
        *pitch = row;
    }
    return result;
}

/* The mapping that starts at an address, if it is of a cuMemAlloc. */
static mapping *find_plain(CUdeviceptr address) {
    mapping *mapped = address_mapping(address);
    return mapped == NULL || mapped->kind != MAPPING_PLAIN || mapped->at.base != address ? NULL
                                                                                         : mapped;
}

void plain_unmap(mapping *mapped) {
    reservation *reserved = address_reservation(mapped->at.base);
    address_unmap(mapped);
    address_unreserve(reserved);
    driver.live.plain--;
}

static CUresult managed_free(pinned *managed) {
    const CUdeviceptr address = managed->at.base;
    stream_wait_context(managed->owner);
    return pinned_remove(address, PINNED_MANAGED) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static mapping *find_pooled(CUdeviceptr address) {
    mapping *mapped = address_mapping(address);
    return mapped == NULL || mapped->kind != MAPPING_POOLED || mapped->at.base != address ? NULL
                                                                                          : mapped;
}

/* cuda.h: cuMemFree takes memory of cuMemAllocAsync, too. It waits for nothing, and the memory is free at once,
 * whatever is pending (measured on an H100, driver 580). */
static CUresult free_pooled(CUdeviceptr address) {
    mapping *mapped = find_pooled(address);
    if (mapped == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    pool_free(mapped, NULL, NULL);
    return CUDA_SUCCESS;
}

static CUresult plain_free(CUdeviceptr address) {
    context *current;
    CUresult result = context_current(&current);
    mapping *mapped = find_plain(address);
    if (result == CUDA_ERROR_INVALID_CONTEXT && mapped != NULL) {
        result = CUDA_SUCCESS; /* it has its own context: none need be current (measured) */
    }
    if (result != CUDA_SUCCESS || address == 0) {
        return result; /* freeing 0 does nothing */
    }
    pinned *managed = pinned_find(address);
    if (managed != NULL && managed->kind == PINNED_MANAGED && managed->at.base == address) {
        return managed_free(managed);
    }
    if (mapped == NULL) {
        return free_pooled(address);
    }
    stream_wait_context_alone(mapped->owner);
    mapped = find_plain(address); /* the lock was released */
    if (mapped == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    result = context_health(mapped->owner->handle);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    plain_unmap(mapped);
    return CUDA_SUCCESS;
}

static CUresult get_info(size_t *free_bytes, size_t *total_bytes) {
    context *current;
    const CUresult result = context_current(&current);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (free_bytes == NULL || total_bytes == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const uint64_t total = driver.computer.memory_bytes;
    *total_bytes = (size_t)total;
    *free_bytes = (size_t)(total - driver.devices[current->device].used_bytes);
    return CUDA_SUCCESS;
}

/* Memory is not found from a context that has no access to it (measured). */
static CUresult get_range(CUdeviceptr *base, size_t *bytes, CUdeviceptr address) {
    context *current;
    const mapping *mapped = address_mapping(address);
    const CUresult result = context_current(&current);
    if (result != CUDA_SUCCESS || (base == NULL && bytes == NULL)) {
        return result; /* who asks for nothing is answered so of any address (measured) */
    }
    const pinned *host = pinned_find(address);
    if (host == NULL && (mapped == NULL || !context_sees(current, mapped))) {
        return CUDA_ERROR_NOT_FOUND;
    }
    const range *at = host != NULL ? &host->at : &mapped->at;
    if (base != NULL) {
        *base = at->base;
    }
    if (bytes != NULL) {
        *bytes = (size_t)at->size;
    }
    return CUDA_SUCCESS;
}

GPUIPC_EXPORTED CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes) {
    const CUresult refused = ENTER_UNSAFE(cuMemAlloc_v2);
    return refused != CUDA_SUCCESS ? refused : entry_leave(allocate(address, bytes));
}

GPUIPC_EXPORTED CUresult cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width,
                                            size_t height, unsigned int element) {
    const CUresult refused = ENTER_UNSAFE(cuMemAllocPitch_v2);
    return refused != CUDA_SUCCESS
               ? refused
               : entry_leave(allocate_rows(address, pitch, width, height, element));
}

GPUIPC_EXPORTED CUresult cuMemFree_v2(CUdeviceptr address) {
    const CUresult refused = ENTER_UNSAFE(cuMemFree_v2);
    return refused != CUDA_SUCCESS ? refused : entry_leave(plain_free(address));
}

GPUIPC_EXPORTED CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes) {
    const CUresult refused = ENTER(cuMemGetInfo_v2);
    return refused != CUDA_SUCCESS ? refused : entry_leave(get_info(free_bytes, total_bytes));
}

GPUIPC_EXPORTED CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes,
                                                 CUdeviceptr address) {
    const CUresult refused = ENTER(cuMemGetAddressRange_v2);
    return refused != CUDA_SUCCESS ? refused : entry_leave(get_range(base, bytes, address));
}
