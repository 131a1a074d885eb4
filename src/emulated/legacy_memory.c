/* SPDX-License-Identifier: MIT */
/** @file Legacy IPC of memory: what cuMemAlloc made, opened by other processes through 64 bytes. */
#include <string.h>

#include "address_space.h"
#include "context.h"
#include "entry.h"
#include "legacy.h"
#include "stream.h"

static CUresult get_handle(CUipcMemHandle *out, CUdeviceptr address) {
    context *current;
    shared_handle about;
    const mapping *mapped = address_mapping(address);
    if (!state_has_ipc()) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    const CUresult result = context_current(&current);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (out == NULL || mapped == NULL || mapped->kind != MAPPING_PLAIN) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    allocation_describe(mapped->memory, SHARED_HANDLE_LEGACY, &about);
    shared_handle_encode(&about, out->reserved);
    return CUDA_SUCCESS;
}

/* What this context has opened of the same memory, or NULL. */
static mapping *find_opened(const context *by, const uint8_t id[16]) {
    mapping *next;
    for (CUdeviceptr at = 0; (next = address_mapping_from(at)) != NULL;
         at = next->at.base + next->at.size) {
        if (next->kind == MAPPING_OPENED && next->owner == by &&
            memcmp(next->memory->id, id, sizeof(next->memory->id)) == 0) {
            return next;
        }
    }
    return NULL;
}

/* Measured on an H200: CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS must be set, and other flags are not looked at. */
static CUresult check_reach(const context *by, const allocation *memory) {
    const int from = (int)driver.devices[by->device].physical;
    return memory->physical == from || context_devices_are_peers(from, memory->physical)
               ? CUDA_SUCCESS
               : CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
}

static CUresult map_opened(context *by, allocation *memory, mapping **out) {
    reservation *reserved;
    const uint64_t room = (memory->size + STATE_GRANULE - 1) / STATE_GRANULE * STATE_GRANULE;
    CUresult result = address_reserve(room, STATE_GRANULE, 0, &reserved);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = address_map(reserved->at.base, memory->size, memory, out);
    if (result != CUDA_SUCCESS) {
        address_unreserve(reserved);
        return result;
    }
    reserved->is_plain = true;
    (*out)->kind = MAPPING_OPENED;
    (*out)->owner = by;
    (*out)->access[by->device] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return CUDA_SUCCESS;
}

static CUresult open_new(context *by, const shared_handle *which, mapping **out) {
    allocation *memory;
    CUresult result = allocation_open(which, ALLOCATION_AS_LEGACY, &memory);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = check_reach(by, memory);
    if (result == CUDA_SUCCESS) {
        result = map_opened(by, memory, out);
    }
    allocation_release(memory); /* the mapping keeps it */
    return result;
}

static CUresult open_handle(CUdeviceptr *out, const CUipcMemHandle *handle, unsigned flags) {
    context *current;
    shared_handle which;
    if (!state_has_ipc()) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    CUresult result = context_current(&current);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (out == NULL || (flags & CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) == 0 ||
        !shared_handle_decode(handle->reserved, SHARED_HANDLE_LEGACY, &which)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (which.name.process == (uint32_t)os_process_id()) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    mapping *mapped = find_opened(current, which.id);
    if (mapped == NULL) {
        result = open_new(current, &which, &mapped);
    }
    if (result == CUDA_SUCCESS) {
        mapped->opens++;
        driver.live.ipc++;
        *out = mapped->at.base;
    }
    return result;
}

static mapping *find_address(CUdeviceptr address) {
    mapping *mapped = address_mapping(address);
    return mapped == NULL || mapped->kind != MAPPING_OPENED || mapped->at.base != address ? NULL
                                                                                          : mapped;
}

void legacy_unmap(mapping *mapped) {
    reservation *reserved = address_reservation(mapped->at.base);
    driver.live.ipc -= mapped->opens;
    address_unmap(mapped);
    address_unreserve(reserved);
}

static CUresult close_handle(CUdeviceptr address) {
    context *current;
    if (!state_has_ipc()) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    CUresult result = context_current(&current);
    mapping *mapped = find_address(address);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (mapped == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (mapped->opens == 1) {
        stream_wait_context(mapped->owner); /* as cuMemFree does */
        mapped = find_address(address);     /* the lock was released */
        if (mapped == NULL) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        result = context_health(mapped->owner->handle);
        if (result != CUDA_SUCCESS) {
            return result;
        }
    }
    if (mapped->opens == 1) {
        legacy_unmap(mapped);
    } else {
        mapped->opens--;
        driver.live.ipc--;
    }
    return CUDA_SUCCESS;
}

GPUIPC_EXPORTED CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address) {
    const CUresult refused = ENTER(cuIpcGetMemHandle);
    return refused != CUDA_SUCCESS ? refused : entry_leave(get_handle(handle, address));
}

GPUIPC_EXPORTED CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *address, CUipcMemHandle handle,
                                               unsigned int flags) {
    const CUresult refused = ENTER(cuIpcOpenMemHandle_v2);
    return refused != CUDA_SUCCESS ? refused : entry_leave(open_handle(address, &handle, flags));
}

GPUIPC_EXPORTED CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
    const CUresult refused = ENTER(cuIpcCloseMemHandle);
    return refused != CUDA_SUCCESS ? refused : entry_leave(close_handle(address));
}
