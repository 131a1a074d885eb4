/* SPDX-License-Identifier: MIT */
/** @file The entry points for pools. None of them needs a current context. */
#include <string.h>

#include "context.h"
#include "entry.h"
#include "pool.h"

/* CUmemPool_attribute values that cuda_api.h leaves out. */
#define POOL_REUSE_FIRST                                                                           \
    1 /* FOLLOW_EVENT_DEPENDENCIES, ALLOW_OPPORTUNISTIC, INTERNAL_DEPENDENCIES */
#define POOL_REUSE_LAST    3
#define POOL_RESERVED_HIGH 6
#define POOL_USED_HIGH     8

static CUresult get_default(CUmemoryPool *out, CUdevice ordinal) {
    device *of;
    pool *found;
    CUresult result = state_device(ordinal, &of);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!state_has_pools()) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (out == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    result = pool_default(of, &found);
    if (result == CUDA_SUCCESS) {
        *out = found->handle;
    }
    return result;
}

static CUresult get_current(CUmemoryPool *out, CUdevice ordinal) {
    device *of;
    const CUresult result = get_default(out, ordinal);
    if (result == CUDA_SUCCESS && state_device(ordinal, &of) == CUDA_SUCCESS &&
        of->current_pool != NULL) {
        *out = of->current_pool->handle;
    }
    return result;
}

static CUresult set_current(CUdevice ordinal, CUmemoryPool handle) {
    device *of;
    pool *chosen;
    CUresult result = state_device(ordinal, &of);
    if (result == CUDA_SUCCESS) {
        result = state_has_pools() ? pool_find(handle, &chosen) : CUDA_ERROR_NOT_SUPPORTED;
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (chosen->is_imported || chosen->device != ordinal) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    of->current_pool = chosen;
    return CUDA_SUCCESS;
}

/* How it may be exported: by the handles of Linux. That an IMEX channel is missing is not noticed here
 * (measured). */
static CUresult check_handle_types(const CUmemPoolProps *props) {
    const int types = (int)props->handleTypes;
    const int own = types & ~CU_MEM_HANDLE_TYPE_FABRIC;
    if ((own & ~os_shareable_handle_type) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (props->win32SecurityAttributes != NULL && own != CU_MEM_HANDLE_TYPE_WIN32) {
        return CUDA_ERROR_INVALID_VALUE; /* cuda.h: zero but for that type */
    }
    if (types != 0 && (os_shareable_handle_type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
                       !driver.computer.has_shareable_handles)) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    return CUDA_SUCCESS;
}

static CUresult check_properties(const CUmemPoolProps *props) {
    static const unsigned char zero[sizeof(props->reserved)];
    device *owner;
    if (props == NULL || props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
        memcmp(props->reserved, zero, sizeof(zero)) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (props->location.type == CU_MEM_LOCATION_TYPE_HOST ||
        props->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA) {
        return CUDA_ERROR_NOT_SUPPORTED; /* this machine has no host memory of that kind */
    }
    if (props->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        state_device(props->location.id, &owner) != CUDA_SUCCESS) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return check_handle_types(props);
}

/* Twice the memory of the device: see find_room in pool.c. No memory is used until it is touched. */
static CUresult create_room(int ordinal, allocation **out) {
    return allocation_create_room(ordinal, 2 * driver.computer.memory_bytes, ALLOCATION_AS_POOL,
                                  out);
}

static CUresult create(CUmemoryPool *out, const CUmemPoolProps *props) {
    pool *made;
    allocation *room = NULL;
    if (!state_has_pools()) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (out == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = check_properties(props);
    if (result == CUDA_SUCCESS && (int)props->handleTypes != 0) {
        result = create_room(props->location.id, &room);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const device *owner = &driver.devices[props->location.id];
    result = pool_create(props->location.id, (int)owner->physical, room, &made);
    if (result != CUDA_SUCCESS) {
        allocation_release(room);
        return result;
    }
    made->handle_types = (int)props->handleTypes;
    made->max_bytes = props->maxSize;
    driver.live.pools++;
    *out = made->handle;
    return CUDA_SUCCESS;
}

static CUresult destroy(CUmemoryPool handle) {
    pool *what;
    if (!state_has_pools()) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    const CUresult result = pool_find(handle, &what);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    /* cuda.h: the default one "cannot be destroyed"; the other was measured. */
    if (what->is_default || (what->is_imported && what->outstanding > 0)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (unsigned i = 0; i < driver.device_count; i++) {
        if (driver.devices[i].current_pool == what) {
            driver.devices[i].current_pool = NULL; /* the default one */
        }
    }
    pool_destroy(what);
    return CUDA_SUCCESS;
}

/* The attributes of 64 bits, or NULL. */
static uint64_t *wide_attribute(pool *of, CUmemPool_attribute attribute) {
    switch ((int)attribute) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        return &of->threshold;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        return &of->reserved;
    case POOL_RESERVED_HIGH:
        return &of->reserved_high;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        return &of->used;
    case POOL_USED_HIGH:
        return &of->used_high;
    default:
        return NULL;
    }
}

static bool is_reuse(CUmemPool_attribute attribute) {
    return (int)attribute >= POOL_REUSE_FIRST && (int)attribute <= POOL_REUSE_LAST;
}

static CUresult find_with(CUmemoryPool handle, const void *value, pool **out) {
    if (!state_has_pools()) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    const CUresult result = pool_find(handle, out);
    return result == CUDA_SUCCESS && value == NULL ? CUDA_ERROR_INVALID_VALUE : result;
}

/* An imported pool has none (measured). */
static CUresult find_for_attribute(CUmemoryPool handle, const void *value, pool **out) {
    const CUresult result = find_with(handle, value, out);
    return result == CUDA_SUCCESS && (*out)->is_imported ? CUDA_ERROR_INVALID_VALUE : result;
}

static CUresult get_attribute(CUmemoryPool handle, CUmemPool_attribute attribute, void *value) {
    pool *of;
    const CUresult result = find_for_attribute(handle, value, &of);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (is_reuse(attribute)) {
        memcpy(value, &of->reuse[(int)attribute - POOL_REUSE_FIRST], sizeof(of->reuse[0]));
        return CUDA_SUCCESS;
    }
    const uint64_t *wide = wide_attribute(of, attribute);
    if (wide == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    memcpy(value, wide, sizeof(*wide));
    return CUDA_SUCCESS;
}

/* Of the counters the high marks alone can be set, and only to 0: "reset" to the current values. */
static CUresult set_counter(pool *of, CUmemPool_attribute attribute, uint64_t number) {
    if (number != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    switch ((int)attribute) {
    case POOL_RESERVED_HIGH:
        of->reserved_high = of->reserved;
        return CUDA_SUCCESS;
    case POOL_USED_HIGH:
        of->used_high = of->used;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static CUresult set_attribute(CUmemoryPool handle, CUmemPool_attribute attribute,
                              const void *value) {
    pool *of;
    uint64_t number;
    const CUresult result = find_for_attribute(handle, value, &of);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (is_reuse(attribute)) {
        memcpy(&of->reuse[(int)attribute - POOL_REUSE_FIRST], value, sizeof(of->reuse[0]));
        return CUDA_SUCCESS;
    }
    if (wide_attribute(of, attribute) == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    memcpy(&number, value, sizeof(number));
    if (attribute != CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
        return set_counter(of, attribute, number);
    }
    of->threshold = number;
    return CUDA_SUCCESS;
}

/* Measured, but for the device out of reach. */
static CUresult check_access(const pool *of, const CUmemAccessDesc *wanted) {
    device *accessor;
    if (wanted->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        (wanted->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
         wanted->flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
         wanted->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const CUresult result = state_device(wanted->location.id, &accessor);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (wanted->flags == CU_MEM_ACCESS_FLAGS_PROT_READ) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    const int from = (int)accessor->physical;
    if (from == of->physical) {
        return wanted->flags == CU_MEM_ACCESS_FLAGS_PROT_NONE ? CUDA_ERROR_INVALID_DEVICE
                                                              : CUDA_SUCCESS;
    }
    return wanted->flags == CU_MEM_ACCESS_FLAGS_PROT_NONE ||
                   context_devices_are_peers(from, of->physical)
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult set_access(CUmemoryPool handle, const CUmemAccessDesc *wanted, size_t count) {
    pool *of;
    CUresult result = find_with(handle, wanted, &of);
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        result = check_access(of, &wanted[i]);
    }
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        pool_set_access(of, wanted[i].location.id, wanted[i].flags);
    }
    return result;
}

static CUresult get_access(CUmemAccess_flags *out, CUmemoryPool handle,
                           const CUmemLocation *location) {
    pool *of;
    device *accessor;
    CUresult result = find_with(handle, out, &of);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (location == NULL || location->type != CU_MEM_LOCATION_TYPE_DEVICE) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    result = state_device(location->id, &accessor);
    if (result == CUDA_SUCCESS) {
        *out = (CUmemAccess_flags)of->access[location->id];
    }
    return result;
}

static CUresult trim(CUmemoryPool handle, size_t keep) {
    pool *of;
    if (!state_has_pools()) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (pool_find(handle, &of) != CUDA_SUCCESS || of->is_imported) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    pool_trim(of, keep);
    return CUDA_SUCCESS;
}

GPUIPC_EXPORTED CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *out, CUdevice ordinal) {
    const CUresult refused = ENTER(cuDeviceGetDefaultMemPool);
    return refused != CUDA_SUCCESS ? refused : entry_leave(get_default(out, ordinal));
}

GPUIPC_EXPORTED CUresult cuDeviceGetMemPool(CUmemoryPool *out, CUdevice ordinal) {
    const CUresult refused = ENTER(cuDeviceGetMemPool);
    return refused != CUDA_SUCCESS ? refused : entry_leave(get_current(out, ordinal));
}

GPUIPC_EXPORTED CUresult cuDeviceSetMemPool(CUdevice ordinal, CUmemoryPool handle) {
    const CUresult refused = ENTER(cuDeviceSetMemPool);
    return refused != CUDA_SUCCESS ? refused : entry_leave(set_current(ordinal, handle));
}

GPUIPC_EXPORTED CUresult cuMemPoolCreate(CUmemoryPool *out, const CUmemPoolProps *props) {
    const CUresult refused = ENTER(cuMemPoolCreate);
    return refused != CUDA_SUCCESS ? refused : entry_leave(create(out, props));
}

GPUIPC_EXPORTED CUresult cuMemPoolDestroy(CUmemoryPool handle) {
    const CUresult refused = ENTER(cuMemPoolDestroy);
    return refused != CUDA_SUCCESS ? refused : entry_leave(destroy(handle));
}

GPUIPC_EXPORTED CUresult cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute,
                                               void *value) {
    const CUresult refused = ENTER(cuMemPoolSetAttribute);
    return refused != CUDA_SUCCESS ? refused : entry_leave(set_attribute(handle, attribute, value));
}

GPUIPC_EXPORTED CUresult cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute,
                                               void *value) {
    const CUresult refused = ENTER(cuMemPoolGetAttribute);
    return refused != CUDA_SUCCESS ? refused : entry_leave(get_attribute(handle, attribute, value));
}

GPUIPC_EXPORTED CUresult cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc *wanted,
                                            size_t count) {
    const CUresult refused = ENTER(cuMemPoolSetAccess);
    return refused != CUDA_SUCCESS ? refused : entry_leave(set_access(handle, wanted, count));
}

GPUIPC_EXPORTED CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool handle,
                                            CUmemLocation *location) {
    const CUresult refused = ENTER(cuMemPoolGetAccess);
    return refused != CUDA_SUCCESS ? refused : entry_leave(get_access(flags, handle, location));
}

GPUIPC_EXPORTED CUresult cuMemPoolTrimTo(CUmemoryPool handle, size_t bytes_to_keep) {
    const CUresult refused = ENTER(cuMemPoolTrimTo);
    return refused != CUDA_SUCCESS ? refused : entry_leave(trim(handle, bytes_to_keep));
}
