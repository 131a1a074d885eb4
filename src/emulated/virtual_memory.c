/* SPDX-License-Identifier: MIT */
/**
 * @file Virtual memory management: addresses, mappings, access. tests/conformance says what each call
 * answers. None of these calls needs a current context.
 */
#include "address_space.h"
#include "context.h"
#include "entry.h"

static bool is_granular(uint64_t value) {
    return value % STATE_GRANULE == 0;
}

static CUresult reserve(CUdeviceptr *out, size_t bytes, size_t alignment, CUdeviceptr hint,
                        unsigned long long flags) {
    reservation *reserved;
    if (!state_has_vmm()) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (out == NULL || flags != 0 || bytes == 0 || !is_granular(bytes) ||
        (alignment & (alignment - 1)) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = address_reserve(bytes, alignment, hint, &reserved);
    if (result == CUDA_SUCCESS) {
        driver.live.reservations++;
        *out = reserved->at.base;
    }
    return result;
}

static CUresult unreserve(CUdeviceptr address, size_t bytes) {
    reservation *reserved = address_reservation(address);
    if (!state_has_vmm()) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (reserved == NULL || reserved->is_plain || reserved->at.base != address ||
        reserved->at.size != bytes || address_is_mapped(address, bytes)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    address_unreserve(reserved);
    driver.live.reservations--;
    return CUDA_SUCCESS;
}

/* Whether a range lies in what cuMemAddressReserve gave out. */
static bool is_reserved(CUdeviceptr address, size_t bytes) {
    const reservation *reserved = address_reservation(address);
    return reserved != NULL && !reserved->is_plain &&
           bytes <= reserved->at.size - (address - reserved->at.base);
}

static CUresult map(CUdeviceptr address, size_t bytes, size_t offset,
                    CUmemGenericAllocationHandle handle, unsigned long long flags) {
    allocation *memory;
    mapping *mapped;
    if (!state_has_vmm()) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    CUresult result = allocation_find(handle, "cuMemMap", &memory);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (flags != 0 || !is_granular(address)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (bytes != memory->size || offset != 0) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (!is_reserved(address, bytes) || address_is_mapped(address, bytes)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    result = address_map(address, bytes, memory, &mapped);
    if (result == CUDA_SUCCESS) {
        driver.live.mappings++;
    }
    return result;
}

/* Mappings are taken whole; parts of the range without any are no error (measured). */
static CUresult unmap(CUdeviceptr address, size_t bytes) {
    mapping *mapped;
    if (!state_has_vmm()) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (bytes == 0 || !is_granular(address) || !is_granular(bytes) ||
        !is_reserved(address, bytes)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const CUdeviceptr end = address + bytes;
    for (CUdeviceptr at = address; at < end;) {
        mapped = address_mapping_from(at);
        if (mapped == NULL || mapped->at.base >= end) {
            break;
        }
        if (mapped->at.base < address || mapped->at.size > end - mapped->at.base) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        at = mapped->at.base + mapped->at.size;
    }
    while ((mapped = address_mapping_from(address)) != NULL && mapped->at.base < end) {
        address_unmap(mapped);
        driver.live.mappings--;
    }
    return CUDA_SUCCESS;
}

/* Whether a device may be given access to what is mapped in a range. */
static CUresult check_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *wanted) {
    device *accessor;
    if (wanted->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        (wanted->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
         wanted->flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
         wanted->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (state_device(wanted->location.id, &accessor) != CUDA_SUCCESS) {
        return CUDA_ERROR_INVALID_VALUE; /* measured; INVALID_DEVICE is for those out of reach */
    }
    if (wanted->flags == CU_MEM_ACCESS_FLAGS_PROT_NONE) {
        return CUDA_SUCCESS;
    }
    for (CUdeviceptr at = address; at != address + bytes;) {
        const mapping *mapped = address_mapping(at);
        const int owner = mapped->memory->physical;
        if (!mapped->memory->is_host && owner != (int)accessor->physical &&
            !context_devices_are_peers((int)accessor->physical, owner)) {
            return CUDA_ERROR_INVALID_DEVICE;
        }
        at += mapped->at.size;
    }
    return CUDA_SUCCESS;
}

static CUresult set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *wanted,
                           size_t count) {
    if (!state_has_vmm()) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (wanted == NULL || count == 0 || !address_is_whole_mappings(address, bytes)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < count; i++) {
        CUresult result = check_access(address, bytes, &wanted[i]);
        if (result != CUDA_SUCCESS) {
            return result;
        }
    }
    for (CUdeviceptr at = address; at != address + bytes;) {
        mapping *mapped = address_mapping(at);
        for (size_t i = 0; i < count; i++) {
            address_set_access(mapped, wanted[i].location.id, wanted[i].flags);
        }
        at += mapped->at.size;
    }
    return CUDA_SUCCESS;
}

static CUresult get_access(unsigned long long *out, const CUmemLocation *location,
                           CUdeviceptr address) {
    device *accessor;
    const mapping *mapped = address_mapping(address);
    if (!state_has_vmm()) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (out == NULL || location == NULL || location->type != CU_MEM_LOCATION_TYPE_DEVICE ||
        mapped == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = state_device(location->id, &accessor);
    if (result == CUDA_SUCCESS) {
        *out = mapped->access[location->id];
    }
    return result;
}

GPUIPC_EXPORTED CUresult cuMemAddressReserve(CUdeviceptr *address, size_t bytes, size_t alignment,
                                             CUdeviceptr hint, unsigned long long flags) {
    const CUresult refused = ENTER(cuMemAddressReserve);
    return refused != CUDA_SUCCESS ? refused
                                   : entry_leave(reserve(address, bytes, alignment, hint, flags));
}

GPUIPC_EXPORTED CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
    const CUresult refused = ENTER(cuMemAddressFree);
    return refused != CUDA_SUCCESS ? refused : entry_leave(unreserve(address, bytes));
}

GPUIPC_EXPORTED CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                                  CUmemGenericAllocationHandle handle, unsigned long long flags) {
    const CUresult refused = ENTER(cuMemMap);
    return refused != CUDA_SUCCESS ? refused
                                   : entry_leave(map(address, bytes, offset, handle, flags));
}

GPUIPC_EXPORTED CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
    const CUresult refused = ENTER(cuMemUnmap);
    return refused != CUDA_SUCCESS ? refused : entry_leave(unmap(address, bytes));
}

GPUIPC_EXPORTED CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes,
                                        const CUmemAccessDesc *wanted, size_t count) {
    const CUresult refused = ENTER(cuMemSetAccess);
    return refused != CUDA_SUCCESS ? refused
                                   : entry_leave(set_access(address, bytes, wanted, count));
}

GPUIPC_EXPORTED CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location,
                                        CUdeviceptr address) {
    const CUresult refused = ENTER(cuMemGetAccess);
    return refused != CUDA_SUCCESS ? refused : entry_leave(get_access(flags, location, address));
}
