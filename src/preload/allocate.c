/* SPDX-License-Identifier: MIT */
/** @file Allocating and freeing: what stands before cuMemAlloc() and its kin. */
#include <stdlib.h>

#include "capture.h"
#include "ipc.h"
#include "log.h"
#include "state.h"

/* From here on an allocation is a chunk of its own. */
#define WHOLE_BYTES (SLAB_BYTES / 2 + 1)
/* So many slabs are asked for a place: however many there are, an allocation costs no more. */
#define SLABS_TRIED 16
/* Rows of cuMemAllocPitch() begin at multiples of this on every device since CUDA has a VMM (measured). */
#define PITCH_ALIGNMENT 512u

/* A place in one of the next slabs with free parts, or in a new one. The owner's mutex is held. */
static CUresult take_part(owner *of, memory *self, unsigned count) {
    chunk *from;
    CUresult result;
    for (size_t tried = 0; tried < SLABS_TRIED && tried < of->open.count; tried++) {
        from = LIST_ITEM(of->open.first, chunk, link);
        const bool was_empty = from->parts.taken_count == 0;
        if (slab_take(&from->parts, count, &self->first_part)) {
            of->empty_count -= was_empty ? 1 : 0;
            goto taken;
        }
        list_remove(&from->link); /* the others come first next time */
        list_append(&of->open, &from->link);
    }
    result = chunk_create(of, SLAB_BYTES, &from);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    list_remove(&from->link);
    list_prepend(&of->open, &from->link);
    if (!slab_take(&from->parts, count, &self->first_part)) {
        return CUDA_ERROR_UNKNOWN; /* not with count <= SLAB_UNITS */
    }

taken:
    self->chunk = from;
    self->part_count = count;
    if (from->parts.taken_count == SLAB_UNITS) {
        list_remove(&from->link);
        list_append(&of->chunks, &from->link);
    }
    return CUDA_SUCCESS;
}

/* The slab that is kept for the next small allocation. The owner's mutex is held. */
static bool give_up_empty(owner *of) {
    for (list_link *at = of->open.first; at != NULL && of->empty_count > 0; at = at->next) {
        chunk *empty = LIST_ITEM(at, chunk, link);
        if (empty->parts.taken_count == 0) {
            of->empty_count--;
            return chunk_destroy(empty) == CUDA_SUCCESS;
        }
    }
    return false;
}

static CUresult take_place(owner *of, memory *self, size_t bytes) {
    CUresult result;
    pthread_mutex_lock(&of->mutex);
    do {
        if (bytes < WHOLE_BYTES) {
            const unsigned count = (unsigned)((bytes + SLAB_UNIT_BYTES - 1) / SLAB_UNIT_BYTES);
            result = take_part(of, self, count);
        } else {
            result = chunk_create(of, (bytes + of->granule - 1) / of->granule * of->granule,
                                  &self->chunk);
        }
    } while (result == CUDA_ERROR_OUT_OF_MEMORY && give_up_empty(of));
    pthread_mutex_unlock(&of->mutex);
    return result;
}

/* False: the driver is to do it. */
static bool allocate(CUdeviceptr *out_address, size_t bytes) {
    if (!state_is_on() || out_address == NULL || bytes == 0 || bytes > SIZE_MAX / 2) {
        return false;
    }
    if (capture_is_underway()) {
        return false;
    }
    capture_work_off();
    owner *of = owner_current();
    memory *self = of != NULL && of->takes ? calloc(1, sizeof(*self)) : NULL;
    if (self == NULL) {
        return false;
    }
    const CUresult result = take_place(of, self, bytes);
    if (result != CUDA_SUCCESS) {
        free(self);
        if (result != CUDA_ERROR_OUT_OF_MEMORY) {
            log_line("device %d: %zu bytes are left to the driver: CUDA code %d", of->device, bytes,
                     (int)result);
        }
        return false;
    }
    self->owner = of;
    self->at.begin = self->chunk->base + (CUdeviceptr)self->first_part * SLAB_UNIT_BYTES;
    self->at.end = self->at.begin + bytes;
    *out_address = self->at.begin;
    memory_lock();
    memory_enter(self);
    memory_unlock();
    log_count(self->part_count > 0 ? COUNT_PIECES : COUNT_WHOLE);
    return true;
}

/* Takes what begins at an address, unless another thread frees it as well. NULL: it is for the driver to answer. */
static memory *take(CUdeviceptr address) {
    memory_lock();
    memory *self = memory_find(address);
    if (self != NULL && (self->at.begin != address || self->chunk == NULL)) {
        self = NULL;
    }
    if (self != NULL) {
        memory_take_out(self);
    }
    memory_unlock();
    return self;
}

static void put_back(memory *self) {
    memory_lock();
    memory_enter(self);
    memory_enter_ticket(self);
    memory_unlock();
}

/* As cuMemFree() does, it waits for all work that may use the memory. */
static CUresult release(memory *self) {
    log_count(COUNT_FREES);
    if (capture_is_underway()) {
        capture_hold_back(self);
        return CUDA_SUCCESS;
    }
    CUresult result = owner_wait(self->owner);
    if (result != CUDA_SUCCESS) {
        put_back(self);
        return result;
    }
    ipc_lock();
    result = memory_end(self);
    ipc_unlock();
    return result;
}

/* ---- what stands before the driver's ----------------------------------------------------------- */

GPUIPC_EXPORTED CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes) {
    if (allocate(address, bytes)) {
        return CUDA_SUCCESS;
    }
    log_count(COUNT_PASSED);
    return REAL_CALL(cuMemAlloc_v2, (address, bytes));
}

GPUIPC_EXPORTED CUresult cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width,
                                            size_t height, unsigned int element) {
    const bool is_good = pitch != NULL && width > 0 && height > 0 && width < SIZE_MAX / 2 &&
                         (element == 4 || element == 8 || element == 16);
    const size_t row =
        is_good ? (width + PITCH_ALIGNMENT - 1) / PITCH_ALIGNMENT * PITCH_ALIGNMENT : 0;
    if (is_good && height <= SIZE_MAX / row && allocate(address, row * height)) {
        *pitch = row;
        return CUDA_SUCCESS;
    }
    log_count(COUNT_PASSED);
    return REAL_CALL(cuMemAllocPitch_v2, (address, pitch, width, height, element));
}

GPUIPC_EXPORTED CUresult cuMemFree_v2(CUdeviceptr address) {
    memory *self = state_is_on() ? take(address) : NULL;
    if (self == NULL) {
        return REAL_CALL(cuMemFree_v2, (address));
    }
    capture_work_off();
    return release(self);
}

/* Behind the work of the stream; then as cuMemFree(). */
static CUresult release_behind(memory *self, CUstream stream) {
    const CUresult result =
        capture_is_underway() ? CUDA_SUCCESS : real_get()->cuStreamSynchronize(stream);
    if (result != CUDA_SUCCESS) {
        put_back(self);
        return result;
    }
    return release(self);
}

GPUIPC_EXPORTED CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
    memory *self = state_is_on() ? take(address) : NULL;
    return self != NULL ? release_behind(self, stream)
                        : REAL_CALL(cuMemFreeAsync, (address, stream));
}

GPUIPC_EXPORTED CUresult cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream) {
    memory *self = state_is_on() ? take(address) : NULL;
    /* cuda.h: in this variant 0 is the thread's own default stream. */
    return self != NULL ? release_behind(self, stream == NULL ? CU_STREAM_PER_THREAD : stream)
                        : REAL_CALL(cuMemFreeAsync_ptsz, (address, stream));
}
