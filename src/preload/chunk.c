/* SPDX-License-Identifier: MIT */
/** @file See chunk.h. */
#include "chunk.h"

#include <stdlib.h>

/* The mapping keeps the memory; the handle is got from it where it is wanted (cuMemRetainAllocationHandle). */
static CUresult map(const real_driver *driver, const owner *of, chunk *self) {
    CUmemAccessDesc rights[OWNER_DEVICES + 1];
    CUmemGenericAllocationHandle handle;
    CUresult result = driver->cuMemCreate(&handle, self->bytes, &of->prop, 0);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = driver->cuMemMap(self->base, self->bytes, 0, handle, 0);
    const CUresult released = driver->cuMemRelease(handle);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = released;
    if (result == CUDA_SUCCESS) {
        result = driver->cuMemSetAccess(self->base, self->bytes, rights, owner_rights(of, rights));
    }
    if (result != CUDA_SUCCESS) {
        (void)driver->cuMemUnmap(self->base, self->bytes);
    }
    return result;
}

CUresult chunk_create(owner *of, size_t bytes, chunk **out_chunk) {
    const real_driver *driver = real_get();
    chunk *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    self->bytes = bytes;
    CUresult result = driver->cuMemAddressReserve(&self->base, bytes, 0, 0, 0);
    if (result != CUDA_SUCCESS) {
        goto free_chunk;
    }
    result = map(driver, of, self);
    if (result != CUDA_SUCCESS) {
        goto free_address;
    }
    list_append(&of->chunks, &self->link);
    *out_chunk = self;
    return CUDA_SUCCESS;

free_address:
    (void)driver->cuMemAddressFree(self->base, bytes);
free_chunk:
    free(self);
    return result;
}

CUresult chunk_destroy(chunk *self) {
    const real_driver *driver = real_get();
    list_remove(&self->link);
    CUresult result = driver->cuMemUnmap(self->base, self->bytes);
    if (result == CUDA_SUCCESS) {
        result = driver->cuMemAddressFree(self->base, self->bytes);
    }
    free(self);
    return result;
}

CUresult chunk_set_access(const chunk *self, int device, CUmemAccess_flags flags) {
    const CUmemAccessDesc right = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
        .flags = flags,
    };
    return real_get()->cuMemSetAccess(self->base, self->bytes, &right, 1);
}
