/* SPDX-License-Identifier: MIT */
/**
 * @file Physical memory of an emulated device: shared memory of the operating system with a header
 * of its own, so that handles really travel between processes and anything else is refused.
 * The driver's lock is held in every call.
 */
#ifndef GPUIPC_EMULATED_ALLOCATION_H
#define GPUIPC_EMULATED_ALLOCATION_H

#include "shared_handle.h"
#include "state.h"

/** The id of a device that this process does not see, in CUmemLocation (measured on an H200). */
#define ALLOCATION_DEVICE_HIDDEN (-2)

/** The ordinal of memory of the host: CU_DEVICE_CPU. */
#define ALLOCATION_DEVICE_HOST (-1)

/** Ways into another process beside those of CUmemAllocationHandleType, which have the bits below. */
#define ALLOCATION_HANDLE_TYPES 0xffff
#define ALLOCATION_AS_LEGACY    0x10000 /**< cuIpcGetMemHandle */
#define ALLOCATION_AS_POOL      0x20000 /**< cuMemPoolExportToShareableHandle */
#define ALLOCATION_AS_EVENT     0x40000 /**< cuIpcGetEventHandle */

typedef struct allocation {
    uint64_t references;   /**< mappings, pending work, and one for all handles together */
    uint64_t handle;       /**< its value, stays the same for as long as it lives */
    uint64_t handle_count; /**< creations, imports and retains not released */
    os_handle memory;      /**< none unless other processes may have it */
    void *mapped;          /**< header and bytes in this process */
    uint8_t *bytes;
    uint64_t size;
    uint64_t accounted;   /**< what it takes of its device's memory in this process */
    bool is_host;         /**< of the host: no device owns it */
    int device;           /**< ordinal of its owner, or ALLOCATION_DEVICE_... */
    int physical;         /**< the owner's number in the machine, -1: not of this machine */
    int handle_types;     /**< mask of CUmemAllocationHandleType that it was made for */
    bool is_rdma_capable; /**< as asked for in cuMemCreate */
    uint8_t id[16];       /**< random; the same in every process that has it */
} allocation;

/** Makes memory on a device, with one reference and no handle.
 *  @param ways how other processes may come to it: CUmemAllocationHandleType, ALLOCATION_AS_..., or 0 */
CUresult allocation_create(int ordinal, uint64_t size, int ways, allocation **out);

/** The same for memory of the host, which no other process can have. */
CUresult allocation_create_host(uint64_t size, allocation **out);

/** The same for what takes nothing of the device's memory by itself. */
CUresult allocation_create_room(int ordinal, uint64_t size, int way, allocation **out);

/** Opens what another process (or this one) exported, with one reference and no handle. The native
 *  handle stays the caller's. CUDA_ERROR_UNKNOWN for anything that is no such memory. */
CUresult allocation_import(intptr_t native, allocation **out);
/** The same for what was made for this way. */
CUresult allocation_import_as(intptr_t native, int way, allocation **out);

/** The same for what 64 bytes say. CUDA_ERROR_INVALID_HANDLE: its owner has ended (measured with legacy
 *  handles). CUDA_ERROR_INVALID_VALUE: it has been freed (the same), or was not made for this way. */
CUresult allocation_open(const shared_handle *which, int way, allocation **out);
/** The 64 bytes for memory that was made for some way. */
void allocation_describe(const allocation *memory, shared_handle_kind kind, shared_handle *out);

void allocation_retain(allocation *memory);
/** Frees it with the last reference. NULL is allowed. */
void allocation_release(allocation *memory);

/** Gives out the handle once more. The first one takes a reference. */
CUresult allocation_handle_retain(allocation *memory);
/** Takes one back; the last gives its reference back. */
void allocation_handle_release(allocation *memory);

/**
 * The allocation behind a handle that a caller passed in. CUDA_ERROR_INVALID_VALUE for 0 and for
 * one that was released. Ends the process, as the real driver does, for one never given out.
 */
CUresult allocation_find(CUmemGenericAllocationHandle handle, const char *call, allocation **out);

#endif
