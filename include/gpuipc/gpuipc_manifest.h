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

/** A type of elements as DLPack has it (DLDataType), in the order of its bytes. They are a kind (::GPUIPC_ELEMENT_FLOAT
 *  and its like), the bits of one element, and how many of them make one (1, but for vectors). */
#define GPUIPC_ELEMENT_TYPE(kind, bits, lanes)                                                     \
    ((uint32_t)(kind) | (uint32_t)(bits) << 8 | (uint32_t)(lanes) << 16)
#define GPUIPC_ELEMENT_INT         0u /**< signed */
#define GPUIPC_ELEMENT_UINT        1u /**< unsigned */
#define GPUIPC_ELEMENT_FLOAT       2u /**< IEEE 754 */
#define GPUIPC_ELEMENT_BFLOAT      4u /**< bfloat16 */
#define GPUIPC_ELEMENT_COMPLEX     5u /**< two floats; the bits of both together */
#define GPUIPC_ELEMENT_BOOL        6u /**< 8 bits each */
#define GPUIPC_ELEMENT_KIND(type)  ((uint32_t)(type)&0xFFu) /**< GPUIPC_ELEMENT_FLOAT and its like */
#define GPUIPC_ELEMENT_BITS(type)  ((uint32_t)(type) >> 8 & 0xFFu) /**< of one lane */
#define GPUIPC_ELEMENT_LANES(type) ((uint32_t)(type) >> 16)        /**< 1: no vector */

/** A named range of a buffer. What it holds is carried and not interpreted. */
typedef struct gpuipc_range {
    const char *name; /**< 1 to ::GPUIPC_RANGE_NAME_MAX bytes, UTF-8 by custom, ended by 0 */
    uint64_t offset;  /**< in the buffer */
    uint64_t bytes;   /**< may be 0: an empty tensor */
    uint32_t
        element_type; /**< by convention ::GPUIPC_ELEMENT_TYPE, which every language knows how to read */
    uint32_t dimensions;                    /**< how many of shape and strides are used */
    int64_t shape[GPUIPC_DIMENSIONS_MAX];   /**< elements in each dimension; the unused ones 0 */
    int64_t strides[GPUIPC_DIMENSIONS_MAX]; /**< in elements, by custom; the unused ones 0 */
} gpuipc_range;

/**
 * Writes a manifest.
 * @param ranges what is written; NULL where @p count is 0
 * @param count how many they are
 * @param capacity how many @p bytes there is room for
 * @param bytes room for @p capacity bytes; may be NULL when that is 0, to ask for the size
 * @param out_size how many it has; also written with ::GPUIPC_ERR_TOO_SMALL
 * @errors ::GPUIPC_ERR_TOO_SMALL, ::GPUIPC_ERR_NAME_INVALID (empty), ::GPUIPC_ERR_NAME_TOO_LONG,
 *         ::GPUIPC_ERR_LIMIT (more than 2^32 - 1 bytes)
 * @ownership copies  @threads any  @blocking no  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_manifest_write(const gpuipc_range *ranges,
                                                              size_t count, void *bytes,
                                                              size_t capacity, size_t *out_size);

/**
 * Reads a manifest, which another process may have written: all of it is checked before anything is
 * given out.
 * @param size how many @p bytes there are
 * @param capacity how many @p ranges has room for
 * @param bytes not where another process can write meanwhile: copy them first
 * @param buffer_bytes length of the buffer that it describes: every range lies in it
 * @param ranges room for @p capacity ranges; may be NULL when that is 0, to ask for the count
 * @param out_count how many there are; also written with ::GPUIPC_ERR_TOO_SMALL
 * @errors ::GPUIPC_ERR_TOO_SMALL, ::GPUIPC_ERR_PROTOCOL (no manifest, or a damaged one),
 *         ::GPUIPC_ERR_VERSION, ::GPUIPC_ERR_OUT_OF_RANGE (a range does not lie in the buffer)
 * @ownership the names are in @p bytes  @threads any  @blocking no  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_manifest_read(const void *bytes, size_t size,
                                                             uint64_t buffer_bytes,
                                                             gpuipc_range *ranges, size_t capacity,
                                                             size_t *out_count);

/**
 * Finds one range of a manifest by its name. It looks at the records one after the other until it is there, so it needs
 * room for one, and checks no more than it has looked at. Of several of this name, the first.
 * @param bytes the manifest, not where another process can write meanwhile: copy them first
 * @param size how many they are
 * @param buffer_bytes length of the buffer that it describes: the range lies in it
 * @param name of the range, ended by 0
 * @param out_range what the manifest says of it
 * @errors ::GPUIPC_ERR_NOT_FOUND (there is none), ::GPUIPC_ERR_PROTOCOL (no manifest, or damaged before that range),
 *         ::GPUIPC_ERR_VERSION, ::GPUIPC_ERR_OUT_OF_RANGE (a range does not lie in the buffer)
 * @ownership the name is in @p bytes  @threads any  @blocking no  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_manifest_find(const void *bytes, size_t size,
                                                             uint64_t buffer_bytes,
                                                             const char *name,
                                                             gpuipc_range *out_range);

#ifdef __cplusplus
}
#endif

#endif
