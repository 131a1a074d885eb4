/* SPDX-License-Identifier: MIT */
/** @file Pools in other processes: the pool travels once, as a handle, and then each allocation of it as
 *  64 bytes. */
#include <string.h>

#include "entry.h"
#include "pool.h"
#include "pool_chunk.h"

static CUresult export_pool(void *shareable, CUmemoryPool handle, CUmemAllocationHandleType type,
                            unsigned long long flags) {
    pool *of;
    os_handle copy;
    shared_handle about;
    if (!state_has_pools()) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    const CUresult result = pool_find(handle, &of);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    /* What was imported was made with no handle type. */
    if (shareable == NULL || flags != 0 || (of->handle_types & (int)type) == 0 ||
        (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR && type != CU_MEM_HANDLE_TYPE_FABRIC)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    /* Also as a descriptor, if it was made for both. */
    if ((of->handle_types & CU_MEM_HANDLE_TYPE_FABRIC) != 0 && !driver.computer.has_imex) {
        return CUDA_ERROR_NOT_PERMITTED;
    }
    if (type == CU_MEM_HANDLE_TYPE_FABRIC) {
        allocation_describe(of->room, SHARED_HANDLE_POOL, &about);
        shared_handle_encode(&about, shareable);
    } else {
        const gpuipc_status status = os_handle_duplicate(of->room->memory, &copy);
        if (status != GPUIPC_OK) {
            return state_result(status);
        }
        const int number = (int)os_handle_give_up(&copy);
        memcpy(shareable, &number, sizeof(number));
    }
    of->was_exported = true;
    return CUDA_SUCCESS;
}

/* The answers are those of an H200 without an IMEX channel. */
static CUresult open_room(void *shareable, CUmemAllocationHandleType type, allocation **out) {
    shared_handle which;
    if (type == CU_MEM_HANDLE_TYPE_FABRIC && driver.computer.has_imex) {
        return shareable != NULL && shared_handle_decode(shareable, SHARED_HANDLE_POOL, &which)
                   ? allocation_open(&which, ALLOCATION_AS_POOL, out)
                   : CUDA_ERROR_INVALID_VALUE;
    }
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
        os_shareable_handle_type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
        !driver.computer.has_shareable_handles) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    return allocation_import_as((intptr_t)shareable, ALLOCATION_AS_POOL, out);
}

/* An owner that is hidden is called device 0, which has access if it can reach it (measured; unlike memory of
 * cuMemCreate). */
static int ordinal_of(const allocation *room) {
    const int first = (int)driver.devices[0].physical;
    return room->device == ALLOCATION_DEVICE_HIDDEN &&
                   context_devices_are_peers(first, room->physical)
               ? 0
               : room->device;
}

/* All of its room, in which its memory has the place that it has in the exporter. */
static CUresult add_imported(allocation *room, pool **out) {
    pool_chunk *all;
    CUresult result = pool_create(ordinal_of(room), room->physical, room, out);
    if (result != CUDA_SUCCESS) {
        allocation_release(room);
        return result;
    }
    (*out)->is_imported = true;
    result = pool_add_chunk(*out, room, 0, room->size, &all);
    if (result != CUDA_SUCCESS) {
        driver.live.pools++; /* destroying counts one down */
        pool_destroy(*out);
    }
    return result;
}

static CUresult import_pool(CUmemoryPool *out, void *shareable, CUmemAllocationHandleType type,
                            unsigned long long flags) {
    allocation *room;
    if (!state_has_pools()) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (out == NULL || flags != 0 || type == CU_MEM_HANDLE_TYPE_NONE) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = open_room(shareable, type, &room);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    pool *found = pool_find_imported(room->id); /* the same one each time, counted: measured */
    if (found != NULL) {
        allocation_release(room);
    } else {
        result = add_imported(room, &found);
    }
    if (result == CUDA_SUCCESS) {
        found->imports++;
        driver.live.pools++;
        *out = found->handle;
    }
    return result;
}

static CUresult export_pointer(CUmemPoolPtrExportData *out, CUdeviceptr address) {
    shared_handle about;
    const mapping *mapped = address_mapping(address);
    if (!state_has_pools()) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    /* The pool itself first: measured. */
    if (out == NULL || mapped == NULL || mapped->kind != MAPPING_POOLED ||
        mapped->at.base != address || !mapped->block->chunk->owner->was_exported) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    allocation_describe(mapped->memory, SHARED_HANDLE_POOLED, &about);
    about.offset = mapped->offset;
    about.bytes = mapped->at.size;
    shared_handle_encode(&about, out->reserved);
    return CUDA_SUCCESS;
}

static CUresult import_block(pool_chunk *all, const shared_handle *which, CUdeviceptr *out) {
    pool_block *block;
    if (which->bytes == 0 || which->offset > all->memory->size ||
        which->bytes > all->memory->size - which->offset) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const CUdeviceptr address = all->at->at.base + which->offset;
    const mapping *known = address_mapping(address);
    if (known != NULL && known->at.base == address && known->at.size == which->bytes) {
        *out = address; /* again, and not counted: measured */
        return CUDA_SUCCESS;
    }
    if (address_is_mapped(address, which->bytes)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = pool_block_add(all, which->offset, which->bytes, &block);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = pool_map_block(block, which->bytes, out);
    if (result != CUDA_SUCCESS) {
        pool_block_remove(block);
    }
    return result;
}

static CUresult import_pointer(CUdeviceptr *out, CUmemoryPool handle,
                               const CUmemPoolPtrExportData *data) {
    pool *to;
    shared_handle which;
    if (!state_has_pools()) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    const CUresult result = pool_find(handle, &to);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (out == NULL || data == NULL || !to->is_imported ||
        !shared_handle_decode(data->reserved, SHARED_HANDLE_POOLED, &which) ||
        memcmp(which.id, to->room->id, sizeof(which.id)) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return import_block(to->chunks, &which, out);
}

GPUIPC_EXPORTED CUresult cuMemPoolExportToShareableHandle(void *shareable, CUmemoryPool handle,
                                                          CUmemAllocationHandleType type,
                                                          unsigned long long flags) {
    const CUresult refused = ENTER(cuMemPoolExportToShareableHandle);
    return refused != CUDA_SUCCESS ? refused
                                   : entry_leave(export_pool(shareable, handle, type, flags));
}

GPUIPC_EXPORTED CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *out, void *shareable,
                                                            CUmemAllocationHandleType type,
                                                            unsigned long long flags) {
    const CUresult refused = ENTER(cuMemPoolImportFromShareableHandle);
    return refused != CUDA_SUCCESS ? refused
                                   : entry_leave(import_pool(out, shareable, type, flags));
}

GPUIPC_EXPORTED CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *data, CUdeviceptr address) {
    const CUresult refused = ENTER(cuMemPoolExportPointer);
    return refused != CUDA_SUCCESS ? refused : entry_leave(export_pointer(data, address));
}

GPUIPC_EXPORTED CUresult cuMemPoolImportPointer(CUdeviceptr *address, CUmemoryPool handle,
                                                CUmemPoolPtrExportData *data) {
    const CUresult refused = ENTER(cuMemPoolImportPointer);
    return refused != CUDA_SUCCESS ? refused : entry_leave(import_pointer(address, handle, data));
}
