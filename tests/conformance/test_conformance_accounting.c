/* SPDX-License-Identifier: MIT */
/**
 * @file The device's free memory, which every process on the machine changes: these tests run alone.
 * The emulated driver deviates: it counts per process what that process made or imported, so what
 * happens in the helper does not show here.
 */
#include <string.h>

#include "conformance_share.h"

TestSuite(accounting, .init = conformance_start, .fini = conformance_finish, .timeout = 60);

/** Large enough to be seen beside what the driver itself takes. */
#define BIG_BYTES (64 * GRANULE)
#define BIG       ((long long)BIG_BYTES)

static size_t free_now(void) {
    size_t free_bytes = 0, total = 0;
    OK(drv.cuMemGetInfo(&free_bytes, &total));
    return free_bytes;
}

/** Asserts that the free memory fell by @p fall, give or take less than 2 MiB: page tables and the
 *  driver's own small pieces. */
static void check_fall(size_t before, long long fall, const char *row) {
    const long long seen = (long long)before - (long long)free_now();
    const long long allowed = (long long)GRANULE;
    cr_assert(seen > fall - allowed && seen < fall + allowed,
              "%s: free memory fell by %lld, not by %lld", row, seen, fall);
}

Test(accounting, made_and_released) {
    memory warm_up = memory_make(0, BIG_BYTES);
    memory_undo(&warm_up);
    const size_t before = free_now();
    memory made = memory_make(0, BIG_BYTES);
    check_fall(before, BIG, "cuda.h: cuMemCreate takes memory");
    OK(drv.cuMemRelease(made.handle));
    check_fall(before, BIG, "cuda.h: a mapping keeps released memory");
    memory_unmap(made.address, made.bytes);
    check_fall(before, 0, "cuda.h: the memory returns with the last mapping");
}

Test(accounting, opening_is_no_copy) {
    memory made = memory_make(0, BIG_BYTES);
    os_handle shareable = memory_export(made.handle);
    CUmemGenericAllocationHandle imported = 0;
    const size_t before = free_now();
    OK(memory_import(shareable, &imported));
    const CUdeviceptr address = memory_map(imported, BIG_BYTES);
    OK(memory_access(address, BIG_BYTES, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    check_fall(before, 0, "measured: an import is the same memory");
    memory_unmap(address, BIG_BYTES);
    OK(drv.cuMemRelease(imported));
    os_handle_close(&shareable);
    memory_undo(&made);
    check_fall(before, -BIG, "cuda.h: the last reference is gone");
}

Test(accounting, importer_holds_what_the_exporter_released) {
    helper *importer = helper_start(NULL);
    /* Its context takes hundreds of megabytes: made before anything is measured. */
    CHECK("a step on the way", CUDA_SUCCESS, helper_result(importer, "context 0"));
    const size_t before = free_now();
    memory made = memory_make(0, BIG_BYTES);
    os_handle shareable = memory_export(made.handle);
    const import_report report = helper_import(importer, shareable, 0, BIG_BYTES);
    cr_assert_eq(report.copied, (int)CUDA_SUCCESS);
    os_handle_close(&shareable);
    memory_undo(&made);
    if (drv.is_emulated) {
        check_fall(before, 0, "emulated: memory is counted per process, and this one has none");
    } else {
        check_fall(before, BIG,
                   "measured: while the importer maps what the exporter released, it stays taken");
    }
    CHECK("a step on the way", CUDA_SUCCESS, helper_result(importer, "close"));
    check_fall(before, 0, "measured: the memory returns when the importer closes");
    const helper_ending ending = helper_end(importer);
    cr_assert_eq(ending.exit_code, 0);
}

Test(accounting, descriptor_holds_memory) {
    memory warm_up = memory_make(0, BIG_BYTES);
    memory_undo(&warm_up);
    const size_t before = free_now();
    memory made = memory_make(0, BIG_BYTES);
    os_handle shareable = memory_export(made.handle);
    memory_undo(&made);
    if (!drv.is_emulated) { /* which counts handles and mappings of this process, not descriptors */
        check_fall(before, BIG, "measured: an fd alone keeps memory alive");
    }
    os_handle_close(&shareable);
    check_fall(before, 0, "cuda.h: the memory returns with the last descriptor");
}

static CUdeviceptr pooled(CUmemoryPool from) {
    CUdeviceptr address = 0;
    OK(drv.cuMemAllocFromPoolAsync(&address, BIG_BYTES, from, NULL));
    OK(drv.cuStreamSynchronize(NULL));
    return address;
}

Test(accounting, pool_memory_returns_with_the_free_that_names_no_stream) {
    need_pools();
    CUmemPoolProps properties;
    CUmemoryPool from = NULL;
    memset(&properties, 0, sizeof properties);
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    OK(drv.cuMemPoolCreate(&from, &properties));
    OK(drv.cuMemFree(pooled(from))); /* warms up */
    const size_t before = free_now();
    const CUdeviceptr address = pooled(from);
    check_fall(before, BIG, "cuda.h: a pool takes memory from the device");
    OK(drv.cuMemFree(address));
    check_fall(before, 0, "measured: it is back before anything was waited for");
    OK(drv.cuMemPoolDestroy(from));
}
