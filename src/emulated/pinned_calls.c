/* SPDX-License-Identifier: MIT */
/** @file The entry points for pinned and for managed memory. With unified addressing all of it is
 *  portable and mapped, whatever the flags say (cuda.h, cuMemHostAlloc), at the host's addresses. */
#include "entry.h"
#include "pinned.h"

#define HOST_ALLOC_FLAGS                                                                           \
    (CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED)
/* READ_ONLY is a promise, which nobody checks here. IOMEMORY is refused where the memory is none. */
#define HOST_REGISTER_FLAGS                                                                        \
    (CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_READ_ONLY)

static CUdeviceptr of_pointer(const void *pointer) {
    return (CUdeviceptr)(uintptr_t)pointer;
}

static void *to_pointer(CUdeviceptr address) {
    return (void *)(uintptr_t)address;
}

static CUresult host_alloc(void **out, uint64_t bytes, unsigned flags) {
    context *current;
    pinned *made;
    CUresult result = context_current(&current);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (out == NULL || (flags & ~(unsigned)HOST_ALLOC_FLAGS) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (bytes == 0) {
        *out = NULL; /* no error (measured) */
        return CUDA_SUCCESS;
    }
    result = pinned_allocate(current, PINNED_ALLOCATED, bytes, flags, &made);
    if (result == CUDA_SUCCESS) {
        *out = to_pointer(made->at.base);
    }
    return result;
}

static CUresult free_host(const void *pointer) {
    context *current;
    const CUresult result = context_current(&current);
    if (result != CUDA_SUCCESS || pointer == NULL) {
        return result; /* freeing NULL does nothing */
    }
    return pinned_remove(of_pointer(pointer), PINNED_ALLOCATED) ? CUDA_SUCCESS
                                                                : CUDA_ERROR_INVALID_VALUE;
}

static CUresult host_register(const void *pointer, uint64_t bytes, unsigned flags) {
    context *current;
    pinned *made;
    const CUresult result = context_current(&current);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (pointer == NULL || bytes == 0 || bytes > UINTPTR_MAX - (uintptr_t)pointer ||
        address_is_device(of_pointer(pointer)) || (flags & ~(unsigned)HOST_REGISTER_FLAGS) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return pinned_register(current, of_pointer(pointer), bytes, flags, &made);
}

static CUresult host_unregister(const void *pointer) {
    context *current;
    const CUresult result = context_current(&current);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const pinned *found = pinned_find(of_pointer(pointer));
    if (pointer == NULL || (found != NULL && (found->kind != PINNED_REGISTERED ||
                                              found->at.base != of_pointer(pointer)))) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return pinned_remove(of_pointer(pointer), PINNED_REGISTERED)
               ? CUDA_SUCCESS
               : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

/* What is pinned there; managed memory has no part in these calls. */
static CUresult find_pinned(const void *pointer, pinned **out) {
    context *current;
    const CUresult result = context_current(&current);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    pinned *found = pinned_find(of_pointer(pointer));
    if (found == NULL || found->kind == PINNED_MANAGED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *out = found;
    return CUDA_SUCCESS;
}

static CUresult device_pointer(CUdeviceptr *out, const void *pointer, unsigned flags) {
    pinned *found;
    const CUresult result = find_pinned(pointer, &found);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (out == NULL || flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *out = of_pointer(pointer);
    return CUDA_SUCCESS;
}

static CUresult host_flags(unsigned *out, const void *pointer) {
    pinned *found;
    const CUresult result = find_pinned(pointer, &found);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (out == NULL || found->kind != PINNED_ALLOCATED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *out = found->flags;
    return CUDA_SUCCESS;
}

static CUresult managed_alloc(CUdeviceptr *out, uint64_t bytes, unsigned flags) {
    context *current;
    pinned *made;
    CUresult result = context_current(&current);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (out == NULL || bytes == 0 ||
        (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    result = pinned_allocate(current, PINNED_MANAGED, bytes, flags, &made);
    if (result == CUDA_SUCCESS) {
        *out = made->at.base;
    }
    return result;
}

GPUIPC_EXPORTED CUresult cuMemHostAlloc(void **out, size_t bytes, unsigned int flags) {
    const CUresult refused = ENTER_UNSAFE(cuMemHostAlloc);
    return refused != CUDA_SUCCESS ? refused : entry_leave(host_alloc(out, bytes, flags));
}

GPUIPC_EXPORTED CUresult cuMemAllocHost_v2(void **out, size_t bytes) {
    const CUresult refused = ENTER_UNSAFE(cuMemAllocHost_v2);
    return refused != CUDA_SUCCESS ? refused : entry_leave(host_alloc(out, bytes, 0));
}

GPUIPC_EXPORTED CUresult cuMemFreeHost(void *pointer) {
    const CUresult refused = ENTER_UNSAFE(cuMemFreeHost);
    return refused != CUDA_SUCCESS ? refused : entry_leave(free_host(pointer));
}

GPUIPC_EXPORTED CUresult cuMemHostRegister_v2(void *pointer, size_t bytes, unsigned int flags) {
    const CUresult refused = ENTER_UNSAFE(cuMemHostRegister_v2);
    return refused != CUDA_SUCCESS ? refused : entry_leave(host_register(pointer, bytes, flags));
}

GPUIPC_EXPORTED CUresult cuMemHostUnregister(void *pointer) {
    const CUresult refused = ENTER_UNSAFE(cuMemHostUnregister);
    return refused != CUDA_SUCCESS ? refused : entry_leave(host_unregister(pointer));
}

GPUIPC_EXPORTED CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *out, void *pointer,
                                                      unsigned int flags) {
    const CUresult refused = ENTER(cuMemHostGetDevicePointer_v2);
    return refused != CUDA_SUCCESS ? refused : entry_leave(device_pointer(out, pointer, flags));
}

GPUIPC_EXPORTED CUresult cuMemHostGetFlags(unsigned int *flags, void *pointer) {
    const CUresult refused = ENTER(cuMemHostGetFlags);
    return refused != CUDA_SUCCESS ? refused : entry_leave(host_flags(flags, pointer));
}

GPUIPC_EXPORTED CUresult cuMemAllocManaged(CUdeviceptr *out, size_t bytes, unsigned int flags) {
    const CUresult refused = ENTER_UNSAFE(cuMemAllocManaged);
    return refused != CUDA_SUCCESS ? refused : entry_leave(managed_alloc(out, bytes, flags));
}
