/* SPDX-License-Identifier: MIT */
/** @file See own_kinds.h. */
#include "own_kinds.h"

#include <stdlib.h>
#include <string.h>

/* cuda.h: the flag that all devices and streams reach it. */
#define ATTACH_GLOBAL 1u

typedef CUresult (*alloc_managed_fn)(CUdeviceptr *address, size_t bytes, unsigned int flags);

/* gpuipc itself never calls it, so it is in no table. */
static void allocate_managed(own_kinds *own) {
    alloc_managed_fn alloc_managed;
    CUdeviceptr address = 0;
    void *symbol = os_library_symbol(core_driver()->library, "cuMemAllocManaged");
    cr_assert_not_null(symbol);
    memcpy(&alloc_managed, &symbol, sizeof(alloc_managed));
    cr_assert_eq(alloc_managed(&address, own->bytes, ATTACH_GLOBAL), CUDA_SUCCESS);
    own->address = address;
}

static void allocate_pooled(own_kinds *own) {
    const driver *drv = core_driver();
    CUdeviceptr address = 0;
    if (!drv->has_pool) {
        cr_skip_test("the driver has no stream-ordered memory");
    }
    if (own->kind == OWN_POOL) {
        const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .handleTypes =
                                          (CUmemAllocationHandleType)os_shareable_handle_type,
                                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
        if (os_shareable_handle_type == CU_MEM_HANDLE_TYPE_WIN32) {
            cr_skip_test("Windows shares no pools");
        }
        cr_assert_eq(drv->cuMemPoolCreate(&own->pool, &props), CUDA_SUCCESS);
    } else {
        cr_assert_eq(drv->cuDeviceGetDefaultMemPool(&own->pool, 0), CUDA_SUCCESS);
    }
    cr_assert_eq(drv->cuMemAllocFromPoolAsync(&address, own->bytes, own->pool, NULL), CUDA_SUCCESS);
    cr_assert_eq(drv->cuStreamSynchronize(NULL), CUDA_SUCCESS);
    own->address = address;
}

own_kinds own_kinds_make(own_kind kind, uint64_t bytes) {
    const driver *drv = core_driver();
    own_kinds own = {.kind = kind, .bytes = bytes};
    CUdeviceptr address = 0;
    switch (kind) {
    case OWN_PLAIN:
        cr_assert_eq(drv->cuMemAlloc(&address, bytes), CUDA_SUCCESS);
        own.address = address;
        break;
    case OWN_PINNED:
        cr_assert_eq(drv->cuMemHostAlloc(&own.host, bytes, CU_MEMHOSTALLOC_PORTABLE), CUDA_SUCCESS);
        own.address = (uint64_t)(uintptr_t)own.host;
        break;
    case OWN_REGISTERED:
        own.host = malloc(bytes);
        cr_assert_not_null(own.host);
        cr_assert_eq(drv->cuMemHostRegister(own.host, bytes, CU_MEMHOSTREGISTER_PORTABLE),
                     CUDA_SUCCESS);
        own.address = (uint64_t)(uintptr_t)own.host;
        break;
    case OWN_MANAGED:
        allocate_managed(&own);
        break;
    default:
        allocate_pooled(&own);
        break;
    }
    return own;
}

void own_kinds_undo(own_kinds *own) {
    const driver *drv = core_driver();
    switch (own->kind) {
    case OWN_PINNED:
        cr_assert_eq(drv->cuMemFreeHost(own->host), CUDA_SUCCESS);
        break;
    case OWN_REGISTERED:
        cr_assert_eq(drv->cuMemHostUnregister(own->host), CUDA_SUCCESS);
        free(own->host);
        break;
    default:
        cr_assert_eq(drv->cuMemFree(own->address), CUDA_SUCCESS);
        break;
    }
    if (own->kind == OWN_POOL) {
        cr_assert_eq(drv->cuMemPoolDestroy(own->pool), CUDA_SUCCESS);
    } else if (own->kind == OWN_DEFAULT_POOL) {
        cr_assert_eq(drv->cuMemPoolTrimTo(own->pool, 0), CUDA_SUCCESS);
    }
    *own = (own_kinds){.kind = own->kind};
}

static uint32_t word(uint32_t index, uint32_t seed) {
    return index * 2654435761u + seed;
}

void own_kinds_write(const own_kinds *own, uint32_t seed) {
    uint32_t *words = malloc(own->bytes);
    cr_assert_not_null(words);
    for (uint32_t i = 0; i < own->bytes / sizeof(*words); i++) {
        words[i] = word(i, seed);
    }
    cr_assert_eq(core_driver()->cuMemcpyHtoD(own->address, words, own->bytes), CUDA_SUCCESS);
    free(words);
}

void own_kinds_check(const own_kinds *own, uint32_t seed) {
    uint32_t *words = malloc(own->bytes);
    cr_assert_not_null(words);
    cr_assert_eq(core_driver()->cuMemcpyDtoH(words, own->address, own->bytes), CUDA_SUCCESS);
    for (uint32_t i = 0; i < own->bytes / sizeof(*words); i++) {
        cr_assert_eq(words[i], word(i, seed), "word %u is %u", i, words[i]);
    }
    free(words);
}
