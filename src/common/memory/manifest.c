/* SPDX-License-Identifier: MIT */
/** @file Manifests: named ranges of a buffer as bytes and back. docs/wire-format.md has the table. */
#include <stdbool.h>
#include <string.h>

#include <gpuipc/gpuipc_manifest.h>

#include "base/status.h"

#define MAJOR 1u
#define MINOR 0u

static const uint8_t magic[4] = {'G', 'P', 'I', 'M'};

/* Positions in the head, and in a record. */
enum {
    HEAD_MAGIC = 0,
    HEAD_MAJOR = 4,
    HEAD_MINOR = 6,
    HEAD_LENGTH = 8,
    HEAD_COUNT = 12,
    HEAD_BYTES = 16,

    RECORD_LENGTH = 0,
    RECORD_NAME_LENGTH = 4,
    RECORD_DIMENSIONS = 6,
    RECORD_ELEMENT_TYPE = 8,
    RECORD_RESERVED = 12,
    RECORD_OFFSET = 16,
    RECORD_SIZE = 24,
    RECORD_SHAPE = 32, /* then the strides, then the name */
    DIMENSION_BYTES = 8
};

static void put16(uint8_t *at, uint32_t value) {
    at[0] = (uint8_t)value;
    at[1] = (uint8_t)(value >> 8);
}

static void put32(uint8_t *at, uint32_t value) {
    put16(at, value & 0xFFFFu);
    put16(at + 2, value >> 16);
}

static void put64(uint8_t *at, uint64_t value) {
    put32(at, (uint32_t)value);
    put32(at + 4, (uint32_t)(value >> 32));
}

static uint32_t get16(const uint8_t *at) {
    return at[0] | (uint32_t)at[1] << 8;
}

static uint32_t get32(const uint8_t *at) {
    return get16(at) | get16(at + 2) << 16;
}

static uint64_t get64(const uint8_t *at) {
    return get32(at) | (uint64_t)get32(at + 4) << 32;
}

static size_t name_at(uint32_t dimensions) {
    return RECORD_SHAPE + 2 * (size_t)dimensions * DIMENSION_BYTES;
}

/* What this version writes, and the least that a later minor version has. */
static size_t record_bytes(uint32_t dimensions, size_t name_length) {
    return name_at(dimensions) + name_length + 1;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Ends at the longest that it may be; one that has no end there is too long. */
static size_t length_of(const char *name) {
    const char *end = memchr(name, '\0', GPUIPC_RANGE_NAME_MAX + 1);
    return end == NULL ? GPUIPC_RANGE_NAME_MAX + 1u : (size_t)(end - name);
}

static gpuipc_status measure_range(const gpuipc_range *range, size_t index, size_t *out_bytes) {
    if (range->name == NULL) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "range %zu has no name", index);
    }
    const size_t length = length_of(range->name);
    if (length == 0) {
        return status_fail(GPUIPC_ERR_NAME_INVALID, "the name of range %zu is empty", index);
    }
    if (length > GPUIPC_RANGE_NAME_MAX) {
        return status_fail(GPUIPC_ERR_NAME_TOO_LONG,
                           "the name of range %zu is longer than %d bytes", index,
                           GPUIPC_RANGE_NAME_MAX);
    }
    if (range->dimensions > GPUIPC_DIMENSIONS_MAX) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT,
                           "range %zu has %u dimensions; at most %d are possible", index,
                           (unsigned)range->dimensions, GPUIPC_DIMENSIONS_MAX);
    }
    *out_bytes = record_bytes(range->dimensions, length);
    return GPUIPC_OK;
}

/* The size of all of it, in 32 bits; every range can be written. */
static gpuipc_status measure_all(const gpuipc_range *ranges, size_t count, uint32_t *out_bytes) {
    uint64_t sum = HEAD_BYTES;
    for (size_t i = 0; i < count; i++) {
        size_t bytes = 0;
        gpuipc_status status = measure_range(&ranges[i], i, &bytes);
        if (status != GPUIPC_OK) {
            return status;
        }
        sum += bytes;
        if (sum > UINT32_MAX) {
            return status_fail(GPUIPC_ERR_LIMIT,
                               "the manifest would have more than 2^32 - 1 bytes");
        }
    }
    *out_bytes = (uint32_t)sum;
    return GPUIPC_OK;
}

static size_t put_range(const gpuipc_range *range, uint8_t *at) {
    const size_t length = length_of(range->name);
    const size_t bytes = record_bytes(range->dimensions, length);
    uint8_t *shape = at + RECORD_SHAPE;
    uint8_t *strides = shape + (size_t)range->dimensions * DIMENSION_BYTES;
    put32(at + RECORD_LENGTH, (uint32_t)bytes);
    put16(at + RECORD_NAME_LENGTH, (uint32_t)length);
    put16(at + RECORD_DIMENSIONS, range->dimensions);
    put32(at + RECORD_ELEMENT_TYPE, range->element_type);
    put32(at + RECORD_RESERVED, 0);
    put64(at + RECORD_OFFSET, range->offset);
    put64(at + RECORD_SIZE, range->bytes);
    for (uint32_t i = 0; i < range->dimensions; i++) {
        put64(shape + (size_t)i * DIMENSION_BYTES, (uint64_t)range->shape[i]);
        put64(strides + (size_t)i * DIMENSION_BYTES, (uint64_t)range->strides[i]);
    }
    memcpy(at + name_at(range->dimensions), range->name, length + 1);
    return bytes;
}

gpuipc_status gpuipc_manifest_write(const gpuipc_range *ranges, size_t count, void *bytes,
                                    size_t capacity, size_t *out_size) {
    status_enter(__func__);
    uint32_t size = 0;
    if (out_size == NULL || (ranges == NULL && count > 0) || (bytes == NULL && capacity > 0)) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT,
                           "out_size is NULL, or ranges or bytes is although its size is not 0");
    }
    gpuipc_status status = measure_all(ranges, count, &size);
    if (status != GPUIPC_OK) {
        return status;
    }
    *out_size = size;
    if (capacity < size) {
        return status_fail(GPUIPC_ERR_TOO_SMALL, "the manifest has %u bytes, not %zu",
                           (unsigned)size, capacity);
    }
    uint8_t *at = bytes;
    memcpy(at + HEAD_MAGIC, magic, sizeof(magic));
    put16(at + HEAD_MAJOR, MAJOR);
    put16(at + HEAD_MINOR, MINOR);
    put32(at + HEAD_LENGTH, size);
    put32(at + HEAD_COUNT, (uint32_t)count); /* a record has more than one byte: it fits */
    at += HEAD_BYTES;
    for (size_t i = 0; i < count; i++) {
        at += put_range(&ranges[i], at);
    }
    return GPUIPC_OK;
}

/* ---- reading --------------------------------------------------------------------------------- */

static gpuipc_status bad(const char *sentence) {
    return status_fail(GPUIPC_ERR_PROTOCOL, "%s", sentence);
}

static gpuipc_status check_head(const uint8_t *bytes, size_t size) {
    if (size < HEAD_BYTES || memcmp(bytes + HEAD_MAGIC, magic, sizeof(magic)) != 0) {
        return bad("these bytes are no manifest");
    }
    if (get16(bytes + HEAD_MAJOR) != MAJOR) {
        return status_fail(GPUIPC_ERR_VERSION, "the manifest is of version %u, not %u",
                           (unsigned)get16(bytes + HEAD_MAJOR), MAJOR);
    }
    if (get32(bytes + HEAD_LENGTH) != size) {
        return bad("the manifest was cut short, or something was added to it");
    }
    return GPUIPC_OK;
}

/* @param left bytes from the record on  @param exact nothing of a later version may be in it */
static gpuipc_status check_record(const uint8_t *at, size_t left, bool exact, uint64_t buffer_bytes,
                                  size_t *out_length) {
    if (left < RECORD_SHAPE) {
        return bad("a record of the manifest was cut short");
    }
    const uint32_t length = get32(at + RECORD_LENGTH);
    const uint32_t name_length = get16(at + RECORD_NAME_LENGTH);
    const uint32_t dimensions = get16(at + RECORD_DIMENSIONS);
    if (name_length == 0 || name_length > GPUIPC_RANGE_NAME_MAX ||
        dimensions > GPUIPC_DIMENSIONS_MAX) {
        return bad("a range of the manifest has no name, too long a one, or too many dimensions");
    }
    const size_t known = record_bytes(dimensions, name_length);
    if (length > left || length < known || (exact && length != known)) {
        return bad("a record of the manifest has not the length that it says");
    }
    const uint8_t *name = at + name_at(dimensions);
    if (memchr(name, '\0', (size_t)name_length + 1) != name + name_length) {
        return bad("a name in the manifest does not end where it says");
    }
    if (exact && get32(at + RECORD_RESERVED) != 0) {
        return bad("the reserved part of a record of the manifest is not zero");
    }
    const uint64_t offset = get64(at + RECORD_OFFSET);
    const uint64_t bytes = get64(at + RECORD_SIZE);
    if (offset > buffer_bytes || bytes > buffer_bytes - offset) {
        return status_fail(GPUIPC_ERR_OUT_OF_RANGE,
                           "the range \"%s\" of the manifest does not lie in the buffer",
                           (const char *)name);
    }
    *out_length = length;
    return GPUIPC_OK;
}

static gpuipc_status check_all(const uint8_t *bytes, size_t size, uint64_t buffer_bytes,
                               uint32_t *out_count) {
    gpuipc_status status = check_head(bytes, size);
    if (status != GPUIPC_OK) {
        return status;
    }
    const uint32_t count = get32(bytes + HEAD_COUNT);
    const bool exact = get16(bytes + HEAD_MINOR) == MINOR;
    size_t at = HEAD_BYTES;
    for (uint32_t i = 0; i < count; i++) {
        size_t length = 0;
        status = check_record(bytes + at, size - at, exact, buffer_bytes, &length);
        if (status != GPUIPC_OK) {
            return status;
        }
        at += length;
    }
    if (at != size) {
        return bad("there is something behind the last record of the manifest");
    }
    *out_count = count;
    return GPUIPC_OK;
}

/* A record that has been checked. @return its length */
static size_t get_range(const uint8_t *at, gpuipc_range *out_range) {
    const uint32_t dimensions = get16(at + RECORD_DIMENSIONS);
    const uint8_t *shape = at + RECORD_SHAPE;
    const uint8_t *strides = shape + (size_t)dimensions * DIMENSION_BYTES;
    *out_range = (gpuipc_range){.name = (const char *)at + name_at(dimensions),
                                .offset = get64(at + RECORD_OFFSET),
                                .bytes = get64(at + RECORD_SIZE),
                                .element_type = get32(at + RECORD_ELEMENT_TYPE),
                                .dimensions = dimensions};
    for (uint32_t i = 0; i < dimensions; i++) {
        out_range->shape[i] = (int64_t)get64(shape + (size_t)i * DIMENSION_BYTES);
        out_range->strides[i] = (int64_t)get64(strides + (size_t)i * DIMENSION_BYTES);
    }
    return get32(at + RECORD_LENGTH);
}

gpuipc_status gpuipc_manifest_read(const void *bytes, size_t size, uint64_t buffer_bytes,
                                   gpuipc_range *ranges, size_t capacity, size_t *out_count) {
    status_enter(__func__);
    uint32_t count = 0;
    if (bytes == NULL || out_count == NULL || (ranges == NULL && capacity > 0)) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT,
                           "bytes or out_count is NULL, or ranges is although there is room");
    }
    gpuipc_status status = check_all(bytes, size, buffer_bytes, &count);
    if (status != GPUIPC_OK) {
        return status;
    }
    *out_count = count;
    if (capacity < count) {
        return status_fail(GPUIPC_ERR_TOO_SMALL, "the manifest has %u ranges, not %zu",
                           (unsigned)count, capacity);
    }
    const uint8_t *at = (const uint8_t *)bytes + HEAD_BYTES;
    for (uint32_t i = 0; i < count; i++) {
        at += get_range(at, &ranges[i]);
    }
    return GPUIPC_OK;
}

/* Whether a record that has been checked is of this name. */
static bool is_called(const uint8_t *at, const char *name, size_t length) {
    return get16(at + RECORD_NAME_LENGTH) == length &&
           memcmp(at + name_at(get16(at + RECORD_DIMENSIONS)), name, length) == 0;
}

gpuipc_status gpuipc_manifest_find(const void *bytes, size_t size, uint64_t buffer_bytes,
                                   const char *name, gpuipc_range *out_range) {
    status_enter(__func__);
    if (bytes == NULL || name == NULL || out_range == NULL) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "bytes, name or out_range is NULL");
    }
    gpuipc_status status = check_head(bytes, size);
    if (status != GPUIPC_OK) {
        return status;
    }
    const uint8_t *first = bytes;
    const bool exact = get16(first + HEAD_MINOR) == MINOR;
    const size_t name_length = length_of(name);
    size_t at = HEAD_BYTES;
    for (uint32_t left = get32(first + HEAD_COUNT); left > 0; left--) {
        size_t length = 0;
        status = check_record(first + at, size - at, exact, buffer_bytes, &length);
        if (status != GPUIPC_OK) {
            return status;
        }
        if (is_called(first + at, name, name_length)) {
            (void)get_range(first + at, out_range);
            return GPUIPC_OK;
        }
        at += length;
    }
    return status_fail(GPUIPC_ERR_NOT_FOUND, "the manifest has no range \"%.64s\"", name);
}
