/* SPDX-License-Identifier: MIT */
/**
 * @file Virtual memory management: physical allocations, their handles, and how those travel to
 * other processes. tests/conformance says what each call answers. None of them needs a current context.
 */
#include <string.h>

#include "address_space.h"
#include "entry.h"
#include "handle_rights.h"

/* An H200 does not look at other bits, in cuMemCreate and for the granularity (measured). */
#define KNOWN_HANDLE_TYPES                                                                         \
    (CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_WIN32 |                         \
     CU_MEM_HANDLE_TYPE_WIN32_KMT | CU_MEM_HANDLE_TYPE_FABRIC)

/* What a caller may ask memory to be exported as: what this system has, and FABRIC where there is an IMEX
 * channel (the answer where there is none is an H200's). */
static CUresult check_handle_types(const CUmemAllocationProp *prop) {
    const int types = (int)prop->requestedHandleTypes & KNOWN_HANDLE_TYPES;
    const int own = types & ~CU_MEM_HANDLE_TYPE_FABRIC;
    const bool wants_metadata = own == CU_MEM_HANDLE_TYPE_WIN32;
    if (own != types && !driver.computer.has_imex) {
        return CUDA_ERROR_NOT_PERMITTED;
    }
    if ((own & ~os_shareable_handle_type) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!wants_metadata && prop->win32HandleMetaData != NULL) {
        return CUDA_ERROR_INVALID_VALUE; /* cuda.h: zero but for that type */
    }
    const CUresult result =
        wants_metadata ? handle_rights_check(prop->win32HandleMetaData) : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (own != 0 && !driver.computer.has_shareable_handles) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    return CUDA_SUCCESS;
}

/* What kind of memory, and where. */
static CUresult check_place(const CUmemAllocationProp *prop) {
    device *owner;
    if (prop == NULL || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (prop->location.type == CU_MEM_LOCATION_TYPE_HOST) {
        /* measured: only memory of a NUMA node has handles */
        return prop->requestedHandleTypes == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    if (prop->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA) {
        return CUDA_ERROR_NOT_SUPPORTED; /* this machine has no host memory of that kind */
    }
    if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return state_device(prop->location.id, &owner);
}

static CUresult check_properties(const CUmemAllocationProp *prop) {
    static const unsigned char zero[sizeof(prop->allocFlags.reserved)];
    CUresult result = check_place(prop);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (memcmp(prop->allocFlags.reserved, zero, sizeof(zero)) != 0 ||
        prop->allocFlags.gpuDirectRDMACapable > 1) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (prop->allocFlags.compressionType != 0 || prop->allocFlags.usage != 0) {
        return CUDA_ERROR_NOT_SUPPORTED; /* neither compression nor tile pools */
    }
    return check_handle_types(prop);
}

static CUresult get_granularity(size_t *out, const CUmemAllocationProp *prop,
                                CUmemAllocationGranularity_flags option) {
    if (!state_has_vmm()) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (out == NULL || (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM &&
                        option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = check_place(prop);
    if (result == CUDA_SUCCESS) {
        *out = STATE_GRANULE;
    }
    return result;
}

/* Gives out the handle of new memory; on failure the memory is freed. */
static CUresult give_out(allocation *memory, CUmemGenericAllocationHandle *out) {
    CUresult result = allocation_handle_retain(memory);
    if (result == CUDA_SUCCESS) {
        *out = memory->handle;
    }
    allocation_release(memory); /* the handle's own reference is enough */
    return result;
}

static CUresult create(CUmemGenericAllocationHandle *out, size_t bytes,
                       const CUmemAllocationProp *prop, unsigned long long flags) {
    allocation *memory;
    if (!state_has_vmm()) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (out == NULL || flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = check_properties(prop);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (bytes == 0 || bytes % STATE_GRANULE != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    result =
        prop->location.type == CU_MEM_LOCATION_TYPE_HOST
            ? allocation_create_host(bytes, &memory)
            : allocation_create(prop->location.id, bytes, (int)prop->requestedHandleTypes, &memory);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    memory->is_rdma_capable = prop->allocFlags.gpuDirectRDMACapable == 1;
    return give_out(memory, out);
}

static CUresult release(CUmemGenericAllocationHandle handle) {
    allocation *memory;
    if (!state_has_vmm()) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    CUresult result = allocation_find(handle, "cuMemRelease", &memory);
    if (result == CUDA_SUCCESS) {
        allocation_handle_release(memory);
    }
    return result;
}

static CUresult retain(CUmemGenericAllocationHandle *out, void *address) {
    const mapping *mapped = address_mapping((CUdeviceptr)(uintptr_t)address);
    if (!state_has_vmm()) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (out == NULL || mapped == NULL || mapped->kind != MAPPING_VIRTUAL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = allocation_handle_retain(mapped->memory);
    if (result == CUDA_SUCCESS) {
        *out = mapped->memory->handle;
    }
    return result;
}

static CUresult get_properties(CUmemAllocationProp *out, CUmemGenericAllocationHandle handle) {
    allocation *memory;
    if (!state_has_vmm()) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    CUresult result = allocation_find(handle, "cuMemGetAllocationPropertiesFromHandle", &memory);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (out == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    memset(out, 0, sizeof(*out));
    out->type = CU_MEM_ALLOCATION_TYPE_PINNED;
    out->requestedHandleTypes = (CUmemAllocationHandleType)memory->handle_types;
    out->location.type =
        memory->is_host ? CU_MEM_LOCATION_TYPE_HOST_NUMA : CU_MEM_LOCATION_TYPE_DEVICE;
    out->location.id = memory->is_host ? 0 : memory->device;
    out->allocFlags.gpuDirectRDMACapable = memory->is_rdma_capable;
    return CUDA_SUCCESS;
}

static CUresult export(void *shareable, CUmemGenericAllocationHandle handle,
                       CUmemAllocationHandleType type, unsigned long long flags) {
    allocation *memory;
    os_handle copy;
    shared_handle about;
    if (!state_has_vmm()) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    CUresult result = allocation_find(handle, "cuMemExportToShareableHandle", &memory);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    /* What was imported was made with no handle type, so it cannot be exported again. */
    if (shareable == NULL || flags != 0 || (memory->handle_types & (int)type) == 0 ||
        ((int)type != os_shareable_handle_type && type != CU_MEM_HANDLE_TYPE_FABRIC)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (type == CU_MEM_HANDLE_TYPE_FABRIC) {
        allocation_describe(memory, SHARED_HANDLE_FABRIC, &about);
        shared_handle_encode(&about, shareable);
        return CUDA_SUCCESS;
    }
    gpuipc_status status = os_handle_duplicate(memory->memory, &copy);
    if (status != GPUIPC_OK) {
        return state_result(status);
    }
    /* cuda.h: the type of what is written depends on the handle type: int, or HANDLE. */
    const intptr_t native = os_handle_give_up(&copy);
    const int number = (int)native;
    if (type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
        memcpy(shareable, &number, sizeof(number));
    } else {
        memcpy(shareable, &native, sizeof(native));
    }
    return CUDA_SUCCESS;
}

static CUresult import_fabric(CUmemGenericAllocationHandle *out, const void *shareable) {
    allocation *memory;
    shared_handle which;
    if (shareable == NULL || !shared_handle_decode(shareable, SHARED_HANDLE_FABRIC, &which)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const CUresult result = allocation_open(&which, CU_MEM_HANDLE_TYPE_FABRIC, &memory);
    return result == CUDA_SUCCESS ? give_out(memory, out) : result;
}

static CUresult import(CUmemGenericAllocationHandle *out, void *shareable,
                       CUmemAllocationHandleType type) {
    allocation *memory;
    if (!state_has_vmm()) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (type == CU_MEM_HANDLE_TYPE_FABRIC && !driver.computer.has_imex) {
        return CUDA_ERROR_NOT_SUPPORTED; /* measured, unlike cuMemCreate */
    }
    if (out != NULL && type == CU_MEM_HANDLE_TYPE_FABRIC) {
        return import_fabric(out, shareable);
    }
    if (out == NULL || (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR &&
                        type != CU_MEM_HANDLE_TYPE_WIN32 && type != CU_MEM_HANDLE_TYPE_WIN32_KMT)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if ((int)type != os_shareable_handle_type || !driver.computer.has_shareable_handles) {
        return CUDA_ERROR_NOT_SUPPORTED; /* the type of another system: measured */
    }
    CUresult result = allocation_import((intptr_t)shareable, &memory);
    return result == CUDA_SUCCESS ? give_out(memory, out) : result;
}

GPUIPC_EXPORTED CUresult cuMemGetAllocationGranularity(size_t *bytes,
                                                       const CUmemAllocationProp *prop,
                                                       CUmemAllocationGranularity_flags option) {
    const CUresult refused = ENTER(cuMemGetAllocationGranularity);
    return refused != CUDA_SUCCESS ? refused : entry_leave(get_granularity(bytes, prop, option));
}

GPUIPC_EXPORTED CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                                     const CUmemAllocationProp *prop, unsigned long long flags) {
    const CUresult refused = ENTER(cuMemCreate);
    return refused != CUDA_SUCCESS ? refused : entry_leave(create(handle, bytes, prop, flags));
}

GPUIPC_EXPORTED CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    const CUresult refused = ENTER(cuMemRelease);
    return refused != CUDA_SUCCESS ? refused : entry_leave(release(handle));
}

GPUIPC_EXPORTED CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle,
                                                     void *address) {
    const CUresult refused = ENTER(cuMemRetainAllocationHandle);
    return refused != CUDA_SUCCESS ? refused : entry_leave(retain(handle, address));
}

GPUIPC_EXPORTED CUresult cuMemGetAllocationPropertiesFromHandle(
    CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle) {
    const CUresult refused = ENTER(cuMemGetAllocationPropertiesFromHandle);
    return refused != CUDA_SUCCESS ? refused : entry_leave(get_properties(prop, handle));
}

GPUIPC_EXPORTED CUresult cuMemExportToShareableHandle(void *shareable,
                                                      CUmemGenericAllocationHandle handle,
                                                      CUmemAllocationHandleType type,
                                                      unsigned long long flags) {
    const CUresult refused = ENTER(cuMemExportToShareableHandle);
    return refused != CUDA_SUCCESS ? refused : entry_leave(export(shareable, handle, type, flags));
}

GPUIPC_EXPORTED CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle,
                                                        void *shareable,
                                                        CUmemAllocationHandleType type) {
    const CUresult refused = ENTER(cuMemImportFromShareableHandle);
    return refused != CUDA_SUCCESS ? refused : entry_leave(import(handle, shareable, type));
}
