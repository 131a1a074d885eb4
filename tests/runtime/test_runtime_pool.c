/* SPDX-License-Identifier: MIT */
/** @file Memory in stream order, and pools. */
#include "runtime.h"

TestSuite(pool, .timeout = 60);

static cudaMemPool_t pool_make(void) {
    struct cudaMemPoolProps props;
    cudaMemPool_t made = NULL;
    memset(&props, 0, sizeof props);
    props.allocType = cudaMemAllocationTypePinned;
    props.location.type = cudaMemLocationTypeDevice;
    OK(cudaMemPoolCreate(&made, &props));
    return made;
}

static void check_memory(void *memory, cudaStream_t stream) {
    uint32_t word = 0;
    struct cudaPointerAttributes found;
    OK(cudaMemsetAsync(memory, 0x13, sizeof word, stream));
    OK(cudaStreamSynchronize(stream));
    OK(cudaMemcpy(&word, memory, sizeof word, cudaMemcpyDeviceToHost));
    cr_assert_eq(word, 0x13131313);
    OK(cudaPointerGetAttributes(&found, memory));
    cr_assert_eq(found.type, cudaMemoryTypeDevice);
}

Test(pool, memory_in_stream_order) {
    cudaStream_t stream;
    void *memory = NULL;
    OK(cudaStreamCreate(&stream));
    OK(cudaMallocAsync(&memory, MIB, stream));
    check_memory(memory, stream);
    OK(cudaFreeAsync(memory, stream));
    OK(cudaStreamSynchronize(stream));
    OK(cudaStreamDestroy(stream));
}

Test(pool, one_of_its_own) {
    cudaStream_t stream;
    void *memory = NULL;
    uint64_t used = 0, threshold = 0;
    const cudaMemPool_t pool = pool_make();
    OK(cudaStreamCreate(&stream));
    OK(cudaMallocFromPoolAsync(&memory, MIB, pool, stream));
    check_memory(memory, stream);
    OK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
    cr_assert_geq(used, MIB);
    threshold = 3 * MIB;
    OK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
    threshold = 0;
    OK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
    cr_assert_eq(threshold, 3 * MIB);
    OK(cudaFreeAsync(memory, stream));
    OK(cudaStreamSynchronize(stream));
    OK(cudaMemPoolTrimTo(pool, 0));
    OK(cudaMemPoolDestroy(pool));
    OK(cudaStreamDestroy(stream));
}

Test(pool, of_a_device) {
    cudaMemPool_t usual = NULL, current = NULL;
    const cudaMemPool_t own = pool_make();
    OK(cudaDeviceGetDefaultMemPool(&usual, 0));
    OK(cudaDeviceGetMemPool(&current, 0));
    cr_assert_eq(current, usual);
    OK(cudaDeviceSetMemPool(0, own));
    OK(cudaDeviceGetMemPool(&current, 0));
    cr_assert_eq(current, own);
    OK(cudaDeviceSetMemPool(0, usual));
    OK(cudaMemPoolDestroy(own));
}

Test(pool, access) {
    enum cudaMemAccessFlags flags = cudaMemAccessFlagsProtNone;
    struct cudaMemLocation location = {cudaMemLocationTypeDevice, 0};
    int count = 0, can = 0;
    const cudaMemPool_t pool = pool_make();
    OK(cudaMemPoolGetAccess(&flags, pool, &location));
    cr_assert_eq(flags, cudaMemAccessFlagsProtReadWrite);
    OK(cudaGetDeviceCount(&count));
    if (count > 1) {
        OK(cudaDeviceCanAccessPeer(&can, 1, 0));
    }
    if (can == 1) {
        const struct cudaMemAccessDesc both = {{cudaMemLocationTypeDevice, 1},
                                               cudaMemAccessFlagsProtReadWrite};
        OK(cudaMemPoolSetAccess(pool, &both, 1));
        location.id = 1;
        OK(cudaMemPoolGetAccess(&flags, pool, &location));
        cr_assert_eq(flags, cudaMemAccessFlagsProtReadWrite);
    }
    OK(cudaMemPoolDestroy(pool));
}
