/* SPDX-License-Identifier: MIT */
/**
 * @file Tensors for other libraries, without depending on any: the two structs of DLPack, made of a buffer and a range
 * of it. Header-only. Both layouts are frozen: that of DLPack up to 0.8, and that of DLPack 1.x, which has a version and
 * flags. The names are gpuipc's own, so that dlpack.h may be included beside this.
 */
#ifndef GPUIPC_DLPACK_H
#define GPUIPC_DLPACK_H

#include <stdlib.h>

#include "gpuipc.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GPUIPC_DLPACK_CPU  1 /**< kDLCPU: a consumer may touch the memory on the host */
#define GPUIPC_DLPACK_CUDA 2 /**< kDLCUDA: on the device */

/** In gpuipc_dlpack_versioned::flags, the memory is not to be written. */
#define GPUIPC_DLPACK_READ_ONLY 0x1u

/** DLTensor. */
typedef struct gpuipc_dlpack_tensor {
    void *data;           /**< device address; of transport host, a host address */
    int32_t device_type;  /**< ::GPUIPC_DLPACK_CUDA or ::GPUIPC_DLPACK_CPU */
    int32_t device_id;    /**< the device that the buffer is mapped for */
    int32_t dimensions;   /**< how many of shape and strides there are */
    uint8_t type_kind;    /**< ::GPUIPC_ELEMENT_KIND */
    uint8_t type_bits;    /**< ::GPUIPC_ELEMENT_BITS */
    uint16_t type_lanes;  /**< ::GPUIPC_ELEMENT_LANES */
    int64_t *shape;       /**< elements in each dimension */
    int64_t *strides;     /**< in elements */
    uint64_t byte_offset; /**< 0: data is the first byte */
} gpuipc_dlpack_tensor;

/** DLManagedTensor, of DLPack up to 0.8. */
typedef struct gpuipc_dlpack_managed {
    gpuipc_dlpack_tensor tensor;                           /**< what it is */
    void *owner;                                           /**< gpuipc's own */
    void (*deleter)(struct gpuipc_dlpack_managed *tensor); /**< called by the consumer, once */
} gpuipc_dlpack_managed;

/** DLManagedTensorVersioned, of DLPack 1.x. */
typedef struct gpuipc_dlpack_versioned {
    uint32_t major;                                          /**< 1 */
    uint32_t minor;                                          /**< 0 */
    void *owner;                                             /**< gpuipc's own */
    void (*deleter)(struct gpuipc_dlpack_versioned *tensor); /**< called by the consumer, once */
    uint64_t flags;                                          /**< ::GPUIPC_DLPACK_READ_ONLY */
    gpuipc_dlpack_tensor tensor;                             /**< what it is */
} gpuipc_dlpack_versioned;

/** One allocation: what the consumer sees, and what it stands on. This header's own. */
typedef struct gpuipc_dlpack_block {
    gpuipc_dlpack_managed managed;          /**< for a consumer of DLPack up to 0.8 */
    gpuipc_dlpack_versioned versioned;      /**< for one of 1.x */
    gpuipc_buffer *buffer;                  /**< dropped with it */
    int64_t shape[GPUIPC_DIMENSIONS_MAX];   /**< what tensor.shape points to */
    int64_t strides[GPUIPC_DIMENSIONS_MAX]; /**< what tensor.strides points to */
} gpuipc_dlpack_block;

/* A consumer may call it on any thread, and while work runs: that is what gpuipc_buffer_drop() is for. */
static inline void gpuipc_dlpack_end(gpuipc_dlpack_block *block) {
    (void)gpuipc_buffer_drop(block->buffer);
    free(block);
}

static inline void gpuipc_dlpack_delete_managed(gpuipc_dlpack_managed *tensor) {
    gpuipc_dlpack_end((gpuipc_dlpack_block *)tensor->owner);
}

static inline void gpuipc_dlpack_delete_versioned(gpuipc_dlpack_versioned *tensor) {
    gpuipc_dlpack_end((gpuipc_dlpack_block *)tensor->owner);
}

/* How many elements there are room for in a range's bytes. */
static inline uint64_t gpuipc_dlpack_room(const gpuipc_range *range) {
    const uint32_t bits =
        GPUIPC_ELEMENT_BITS(range->element_type) * GPUIPC_ELEMENT_LANES(range->element_type);
    return bits == 0 ? 0 : range->bytes / bits * 8 + range->bytes % bits * 8 / bits;
}

/* The last dimension's elements side by side, and so on. @return whether there is room for so many */
static inline int gpuipc_dlpack_compact(gpuipc_dlpack_block *block, const gpuipc_range *range) {
    const uint64_t room = gpuipc_dlpack_room(range);
    uint64_t step = 1;
    for (uint32_t i = range->dimensions; i > 0; i--) {
        const uint64_t count = (uint64_t)range->shape[i - 1];
        block->strides[i - 1] = (int64_t)step;
        if (step > room / count) {
            return 0;
        }
        step *= count;
    }
    return step <= room;
}

/* @return whether the last element is in the room, and a consumer can count them all: a stride of 0 needs no room */
static inline int gpuipc_dlpack_strided(gpuipc_dlpack_block *block, const gpuipc_range *range) {
    uint64_t left = gpuipc_dlpack_room(range);
    uint64_t may_be = INT64_MAX;
    if (left == 0) {
        return 0;
    }
    left--;
    for (uint32_t i = 0; i < range->dimensions; i++) {
        const int64_t stride = range->strides[i];
        const uint64_t steps = (uint64_t)range->shape[i] - 1;
        block->strides[i] = stride;
        may_be /= steps + 1;
        if (may_be == 0 || stride < 0 || (stride > 0 && steps > left / (uint64_t)stride)) {
            return 0;
        }
        left -= steps * (uint64_t)stride;
    }
    return 1;
}

/* A consumer believes what it is told, and a range may be what a peer says. One without elements may have any strides.
 * @return whether all elements lie in the range's bytes */
static inline int gpuipc_dlpack_shape(gpuipc_dlpack_block *block, const gpuipc_range *range) {
    int has_strides = 0;
    int is_empty = 0;
    for (uint32_t i = 0; i < range->dimensions; i++) {
        if (range->shape[i] < 0) {
            return 0;
        }
        block->shape[i] = range->shape[i];
        block->strides[i] = 1;
        has_strides |= range->strides[i] != 0;
        is_empty |= range->shape[i] == 0;
    }
    return is_empty || (has_strides ? gpuipc_dlpack_strided(block, range)
                                    : gpuipc_dlpack_compact(block, range));
}

/* A kernel that reads elements at no multiple of their size ends its CUDA context. None needs more than 16 bytes (CUDA C++
 * Programming Guide, device memory accesses). */
static inline int gpuipc_dlpack_is_aligned(uint64_t address, const gpuipc_range *range) {
    const uint64_t bits = (uint64_t)GPUIPC_ELEMENT_BITS(range->element_type) *
                          GPUIPC_ELEMENT_LANES(range->element_type);
    const uint64_t bytes = bits % 8 == 0 ? bits / 8 | 16 : 1;
    return address % (bytes & (~bytes + 1)) == 0;
}

static inline gpuipc_status gpuipc_dlpack_new(gpuipc_buffer *buffer, const gpuipc_range *range,
                                              gpuipc_dlpack_block **out_block) {
    gpuipc_buffer_info info = GPUIPC_BUFFER_INFO_INIT;
    gpuipc_dlpack_block *block;
    gpuipc_dlpack_tensor *tensor;
    gpuipc_status status = gpuipc_buffer_get_info(buffer, &info);
    if (status != GPUIPC_OK) {
        return status;
    }
    if (range->dimensions > GPUIPC_DIMENSIONS_MAX || range->offset > info.bytes ||
        range->bytes > info.bytes - range->offset) {
        return GPUIPC_ERR_OUT_OF_RANGE;
    }
    if (GPUIPC_ELEMENT_BITS(range->element_type) * GPUIPC_ELEMENT_LANES(range->element_type) == 0 ||
        (info.transport != GPUIPC_TRANSPORT_HOST && range->bytes > 0 &&
         !gpuipc_dlpack_is_aligned(info.address + range->offset, range))) {
        return GPUIPC_ERR_INVALID_ARGUMENT;
    }
    block = (gpuipc_dlpack_block *)calloc(1, sizeof(*block));
    if (block == NULL) {
        return GPUIPC_ERR_OUT_OF_MEMORY;
    }
    status =
        gpuipc_dlpack_shape(block, range) ? gpuipc_buffer_retain(buffer) : GPUIPC_ERR_OUT_OF_RANGE;
    if (status != GPUIPC_OK) {
        free(block);
        return status;
    }
    block->buffer = buffer;
    tensor = &block->managed.tensor;
    tensor->data = (void *)(uintptr_t)(info.address + range->offset);
    tensor->device_type =
        info.transport == GPUIPC_TRANSPORT_HOST ? GPUIPC_DLPACK_CPU : GPUIPC_DLPACK_CUDA;
    tensor->device_id = info.transport == GPUIPC_TRANSPORT_HOST ? 0 : (int32_t)info.access_device;
    tensor->dimensions = (int32_t)range->dimensions;
    tensor->type_kind = (uint8_t)GPUIPC_ELEMENT_KIND(range->element_type);
    tensor->type_bits = (uint8_t)GPUIPC_ELEMENT_BITS(range->element_type);
    tensor->type_lanes = (uint16_t)GPUIPC_ELEMENT_LANES(range->element_type);
    tensor->shape = block->shape;
    tensor->strides = block->strides;
    block->managed.owner = block;
    block->managed.deleter = gpuipc_dlpack_delete_managed;
    block->versioned.major = 1;
    block->versioned.owner = block;
    block->versioned.deleter = gpuipc_dlpack_delete_versioned;
    block->versioned.flags = info.access == GPUIPC_ACCESS_READ ? GPUIPC_DLPACK_READ_ONLY : 0;
    block->versioned.tensor = *tensor;
    *out_block = block;
    return GPUIPC_OK;
}

/**
 * Makes a tensor of DLPack up to 0.8 for a range of a buffer. That form cannot say that memory is not to be written, so
 * a buffer that may only be read is refused.
 * @param buffer a live buffer; the tensor has a reference on it
 * @param range what the tensor is: offset, shape, strides (all 0: compact) and element_type
 *        (::GPUIPC_ELEMENT_TYPE); its name is not looked at
 * @param out_tensor its deleter drops the buffer (gpuipc_buffer_drop()), on any thread
 * @errors ::GPUIPC_ERR_OUT_OF_RANGE (the range does not lie in the buffer, or its elements not in its bytes),
 *         ::GPUIPC_ERR_INVALID_ARGUMENT (elements without a size, or of one that does not lie at such an address of a GPU), ::GPUIPC_ERR_ACCESS_DENIED (to
 *         be read only), ::GPUIPC_ERR_OUT_OF_MEMORY; these leave the error record as it was
 * @ownership the caller's, or the consumer's to whom it is given: one of them calls the deleter, once
 * @threads any  @blocking no  @since 0.1
 */
static inline gpuipc_status gpuipc_dlpack_make(gpuipc_buffer *buffer, const gpuipc_range *range,
                                               gpuipc_dlpack_managed **out_tensor) {
    gpuipc_dlpack_block *block;
    gpuipc_status status = gpuipc_dlpack_new(buffer, range, &block);
    if (status == GPUIPC_OK && block->versioned.flags != 0) {
        gpuipc_dlpack_end(block);
        status = GPUIPC_ERR_ACCESS_DENIED;
    }
    if (status == GPUIPC_OK) {
        *out_tensor = &block->managed;
    }
    return status;
}

/**
 * Makes a tensor of DLPack 1.x for a range of a buffer; one that may only be read says so in its flags.
 * @param buffer a live buffer; the tensor has a reference on it
 * @param range what the tensor is: offset, shape, strides (all 0: compact) and element_type
 *        (::GPUIPC_ELEMENT_TYPE); its name is not looked at
 * @param out_tensor its deleter drops the buffer (gpuipc_buffer_drop()), on any thread
 * @errors ::GPUIPC_ERR_OUT_OF_RANGE (the range does not lie in the buffer, or its elements not in its bytes),
 *         ::GPUIPC_ERR_INVALID_ARGUMENT (elements without a size, or of one that does not lie at such an address of a GPU), ::GPUIPC_ERR_OUT_OF_MEMORY; these
 *         leave the error record as it was
 * @ownership the caller's, or the consumer's to whom it is given: one of them calls the deleter, once
 * @threads any  @blocking no  @since 0.1
 */
static inline gpuipc_status gpuipc_dlpack_make_versioned(gpuipc_buffer *buffer,
                                                         const gpuipc_range *range,
                                                         gpuipc_dlpack_versioned **out_tensor) {
    gpuipc_dlpack_block *block;
    gpuipc_status status = gpuipc_dlpack_new(buffer, range, &block);
    if (status == GPUIPC_OK) {
        *out_tensor = &block->versioned;
    }
    return status;
}

#ifdef __cplusplus
}
#endif

#endif
