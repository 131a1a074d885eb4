/* SPDX-License-Identifier: MIT */
/** @file A manifest. The first 8 bytes say how large the buffer is. */
#include <stdlib.h>
#include <string.h>

#include <gpuipc/gpuipc.h>

#include "base/little_endian.h"
#include "fuzz.h"

enum {
    AT_MINOR = 6,
    RECORD_LEAST = 32 /* bytes, without a name */
};

typedef struct manifest {
    const uint8_t *bytes;
    size_t size;
    uint64_t buffer_bytes;
} manifest;

static void check_range(const manifest *of, const gpuipc_range *range) {
    const char *end = (const char *)of->bytes + of->size;
    FUZZ_CHECK(range->name >= (const char *)of->bytes && range->name < end);
    FUZZ_CHECK(range->name[0] != '\0' &&
               memchr(range->name, '\0', (size_t)(end - range->name)) != NULL);
    FUZZ_CHECK(range->offset <= of->buffer_bytes &&
               range->bytes <= of->buffer_bytes - range->offset);
    FUZZ_CHECK(range->dimensions <= GPUIPC_DIMENSIONS_MAX);
}

/* The first of a name is the one that is found. */
static void check_find(const manifest *of, const gpuipc_range *ranges, size_t index) {
    gpuipc_range found;
    size_t first = 0;
    FUZZ_CHECK(gpuipc_manifest_find(of->bytes, of->size, of->buffer_bytes, ranges[index].name,
                                    &found) == GPUIPC_OK);
    while (strcmp(ranges[first].name, ranges[index].name) != 0) {
        first++;
    }
    FUZZ_CHECK(found.name == ranges[first].name && found.offset == ranges[first].offset &&
               found.bytes == ranges[first].bytes &&
               found.element_type == ranges[first].element_type &&
               found.dimensions == ranges[first].dimensions);
}

/* What a later minor version has in addition is not written again. */
static void check_write(const manifest *of, const gpuipc_range *ranges, size_t count,
                        const uint8_t *data, size_t size) {
    uint8_t *again = malloc(of->size);
    size_t written = 0;
    FUZZ_CHECK(again != NULL);
    FUZZ_CHECK(gpuipc_manifest_write(ranges, count, again, of->size, &written) == GPUIPC_OK);
    FUZZ_CHECK(written <= of->size);
    if (of->bytes[AT_MINOR] == 0 && of->bytes[AT_MINOR + 1] == 0) {
        FUZZ_CHECK(written == of->size);
        fuzz_check_same(again, of->bytes, written, data, size);
    }
    free(again);
}

static void check_manifest(const manifest *of, size_t count, const uint8_t *data, size_t size) {
    gpuipc_range *ranges = calloc(count + 1, sizeof(*ranges));
    size_t read = 0;
    FUZZ_CHECK(ranges != NULL);
    FUZZ_CHECK(gpuipc_manifest_read(of->bytes, of->size, of->buffer_bytes, ranges, count, &read) ==
               GPUIPC_OK);
    FUZZ_CHECK(read == count);
    for (size_t i = 0; i < count; i++) {
        check_range(of, &ranges[i]);
        check_find(of, ranges, i);
    }
    check_write(of, ranges, count, data, size);
    free(ranges);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    manifest given;
    gpuipc_range found;
    size_t count = 0;
    if (size < sizeof(uint64_t)) {
        return 0;
    }
    given = (manifest){data + 8, size - 8, little_endian_get(data, 8)};
    gpuipc_status status =
        gpuipc_manifest_read(given.bytes, given.size, given.buffer_bytes, NULL, 0, &count);
    if (status == GPUIPC_OK || status == GPUIPC_ERR_TOO_SMALL) {
        FUZZ_CHECK(count <= given.size / RECORD_LEAST);
        check_manifest(&given, count, data, size);
    } else {
        /* also of what is damaged further on, a range that is found lies in the buffer */
        if (gpuipc_manifest_find(given.bytes, given.size, given.buffer_bytes, "e", &found) ==
            GPUIPC_OK) {
            check_range(&given, &found);
        }
    }
    return 0;
}
