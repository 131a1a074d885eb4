/* SPDX-License-Identifier: MIT */
/** @file A manifest larger than 32 bits, of an array of ranges that is the same memory again and again. */
#include <criterion/criterion.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <gpuipc/gpuipc.h>

#include "check.h"

TestSuite(posix_manifest, .timeout = 120);

/* Of one mapping: whole ranges and whole pages. */
#define CHUNK_RANGES ((size_t)1 << 17)
/* Least what a range with the longest name and all dimensions has in a manifest: docs/wire-format.md. */
#define LEAST_BYTES 416

static gpuipc_range *make_chunk(int memory, const char *name) {
    const size_t bytes = CHUNK_RANGES * sizeof(gpuipc_range);
    cr_assert_eq(ftruncate(memory, (off_t)bytes), 0);
    gpuipc_range *chunk = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    cr_assert_neq(chunk, MAP_FAILED);
    for (size_t i = 0; i < CHUNK_RANGES; i++) {
        chunk[i] = (gpuipc_range){.name = name, .dimensions = GPUIPC_DIMENSIONS_MAX};
    }
    return chunk;
}

/* So many chunks, one behind the other. */
static gpuipc_range *repeat(int memory, size_t count) {
    const size_t bytes = CHUNK_RANGES * sizeof(gpuipc_range);
    char *all =
        mmap(NULL, count * bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    cr_assert_neq(all, MAP_FAILED);
    for (size_t i = 0; i < count; i++) {
        cr_assert_neq(mmap(all + i * bytes, bytes, PROT_READ, MAP_SHARED | MAP_FIXED, memory, 0),
                      MAP_FAILED);
    }
    return (gpuipc_range *)all;
}

Test(posix_manifest, one_of_more_than_32_bits_is_refused) {
    char name[GPUIPC_RANGE_NAME_MAX + 1];
    const size_t chunks = UINT32_MAX / LEAST_BYTES / CHUNK_RANGES + 1;
    const size_t bytes = CHUNK_RANGES * sizeof(gpuipc_range);
    size_t size = 77;
    memset(name, 'n', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    const int memory = memfd_create("ranges", MFD_CLOEXEC);
    cr_assert_geq(memory, 0);
    gpuipc_range *chunk = make_chunk(memory, name);
    gpuipc_range *all = repeat(memory, chunks);
    check_status(GPUIPC_ERR_TOO_SMALL,
                 gpuipc_manifest_write(all, (chunks - 1) * CHUNK_RANGES, NULL, 0, &size));
    cr_assert_gt(size, UINT32_MAX / 2);
    check_refused(GPUIPC_ERR_LIMIT, "2^32 - 1",
                  gpuipc_manifest_write(all, chunks * CHUNK_RANGES, NULL, 0, &size));
    cr_assert_lt(size, UINT32_MAX);
    cr_assert_eq(munmap(all, chunks * bytes), 0);
    cr_assert_eq(munmap(chunk, bytes), 0);
    cr_assert_eq(close(memory), 0);
}
