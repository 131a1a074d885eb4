/* SPDX-License-Identifier: MIT */
/**
 * @file Manifests: many named ranges of one buffer, such as the tensors of a model. A manifest is bytes, made
 * here and read here, and travels as the bytes of a message or with a ticket
 * (gpuipc_share_config::attachment); the ranges cost no handles. Part of gpuipc.h, which includes it. The rules
 * that hold everywhere stand there.
 */
#ifndef GPUIPC_GPUIPC_MANIFEST_H
#define GPUIPC_GPUIPC_MANIFEST_H

#include "gpuipc.h"

#ifdef __cplusplus
extern "C" {
#endif

/** The most dimensions that a range has. */
#define GPUIPC_DIMENSIONS_MAX 8
/** The longest name of a range, in bytes without its end. */
#define GPUIPC_RANGE_NAME_MAX 255

/** A named range of a buffer. What it holds is carried and not interpreted. */
typedef struct gpuipc_range {
    const char *name;      /**< 1 to ::GPUIPC_RANGE_NAME_MAX bytes, UTF-8 by custom, ended by 0 */
    uint64_t offset;       /**< in the buffer */
    uint64_t bytes;        /**< may be 0: an empty tensor */
    uint32_t element_type; /**< the program's own number for it */
    uint32_t dimensions;   /**< how many of shape and strides are used */
    int64_t shape[GPUIPC_DIMENSIONS_MAX];   /**< elements in each dimension; the unused ones 0 */
    int64_t strides[GPUIPC_DIMENSIONS_MAX]; /**< in elements, by custom; the unused ones 0 */
} gpuipc_range;

/**
 * Writes a manifest.
 * @param bytes room for @p capacity bytes; may be NULL when that is 0, to ask for the size
 * @param out_size how many it has; also written with ::GPUIPC_ERR_TOO_SMALL
 * @errors ::GPUIPC_ERR_TOO_SMALL, ::GPUIPC_ERR_NAME_INVALID (empty), ::GPUIPC_ERR_NAME_TOO_LONG,
 *         ::GPUIPC_ERR_LIMIT (more than 2^32 - 1 bytes)
 * @ownership copies  @threads any  @blocking no  @since 0.1
 */
GPUIPC_API gpuipc_status gpuipc_manifest_write(const gpuipc_range *ranges, size_t count,
                                               void *bytes, size_t capacity, size_t *out_size);

/**
 * Reads a manifest, which another process may have written: all of it is checked before anything is
 * given out.
 * @param bytes not where another process can write meanwhile: copy them first
 * @param buffer_bytes length of the buffer that it describes: every range lies in it
 * @param ranges room for @p capacity ranges; may be NULL when that is 0, to ask for the count
 * @param out_count how many there are; also written with ::GPUIPC_ERR_TOO_SMALL
 * @errors ::GPUIPC_ERR_TOO_SMALL, ::GPUIPC_ERR_PROTOCOL (no manifest, or a damaged one),
 *         ::GPUIPC_ERR_VERSION, ::GPUIPC_ERR_OUT_OF_RANGE (a range does not lie in the buffer)
 * @ownership the names are in @p bytes  @threads any  @blocking no  @since 0.1
 */
GPUIPC_API gpuipc_status gpuipc_manifest_read(const void *bytes, size_t size, uint64_t buffer_bytes,
                                              gpuipc_range *ranges, size_t capacity,
                                              size_t *out_count);

#ifdef __cplusplus
}
#endif

#endif
