/* SPDX-License-Identifier: MIT */
/** @file What tells one kind of memory from another: the attributes of a pointer, and three calls. */
#include <string.h>

#include "conformance_share.h"

TestSuite(kind, .init = conformance_start, .fini = conformance_finish, .timeout = 60);

/** What the driver says of an address; the expectations are written with the same type. */
typedef struct facts {
    CUresult known;                 /**< cuPointerGetAttribute of the memory's type */
    CUmemorytype type;              /**< the type */
    bool has_context;               /**< a context owns it */
    bool is_legacy;                 /**< suits cuIpcGetMemHandle */
    unsigned long long types;       /**< handle types allowed for an export */
    CUresult host;                  /**< cuPointerGetAttribute of the host's address */
    bool has_pool;                  /**< it comes from a pool */
    unsigned access;                /**< of the current context's device: 3 reads and writes */
    CUresult retained;              /**< cuMemRetainAllocationHandle */
    CUresult ranged;                /**< cuMemGetAddressRange */
    CUdeviceptr base, start;        /**< of that, and of the attribute */
    unsigned long long bytes, size; /**< likewise */
} facts;

static facts ask(CUdeviceptr address) {
    facts said = {.retained = CUDA_ERROR_INVALID_VALUE};
    CUcontext context = NULL;
    CUmemoryPool pool = NULL;
    CUmemGenericAllocationHandle handle = 0;
    void *host = NULL;
    int legacy = 0;
    size_t bytes = 0, size = 0;
    said.known = drv.cuPointerGetAttribute(&said.type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address);
    said.host = drv.cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, address);
    said.ranged = drv.cuMemGetAddressRange(&said.base, &bytes, address);
    said.retained = drv.cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)address);
    if (said.retained == CUDA_SUCCESS) {
        OK(drv.cuMemRelease(handle));
    }
    if (said.known != CUDA_SUCCESS) {
        return said;
    }
    OK(drv.cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, address));
    OK(drv.cuPointerGetAttribute(&legacy, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
                                 address));
    OK(drv.cuPointerGetAttribute(&said.types, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, address));
    OK(drv.cuPointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address));
    OK(drv.cuPointerGetAttribute(&said.access, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, address));
    OK(drv.cuPointerGetAttribute(&said.start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address));
    OK(drv.cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address));
    said.has_context = context != NULL;
    said.has_pool = pool != NULL;
    said.is_legacy = legacy != 0;
    said.bytes = bytes;
    said.size = size;
    cr_assert(said.host != CUDA_SUCCESS || host == (void *)(uintptr_t)address,
              "measured: unified addresses are equal");
    return said;
}

/** Asserts everything about an address whose memory is known. */
static void check(const char *what, CUdeviceptr address, const facts *wanted) {
    const facts said = ask(address);
    CHECK(what, CUDA_SUCCESS, said.known);
    CHECK(what, wanted->host, said.host);
    CHECK(what, wanted->retained, said.retained);
    CHECK(what, wanted->ranged, said.ranged);
    cr_assert_eq(said.type, wanted->type, "%s: type %d", what, said.type);
    cr_assert_eq(said.has_context, wanted->has_context, "%s: a context %d", what, said.has_context);
    cr_assert_eq(said.is_legacy, wanted->is_legacy, "%s: suits legacy IPC %d", what,
                 said.is_legacy);
    cr_assert_eq(said.types, wanted->types, "%s: handle types %llu", what, said.types);
    cr_assert_eq(said.has_pool, wanted->has_pool, "%s: a pool %d", what, said.has_pool);
    cr_assert_eq(said.access, wanted->access, "%s: access %u", what, said.access);
    cr_assert(said.start == wanted->start && said.size == wanted->size,
              "%s: the attributes' range is %llu bytes from %llx", what, said.size, said.start);
    cr_assert(wanted->ranged != CUDA_SUCCESS ||
                  (said.base == wanted->base && said.bytes == wanted->bytes),
              "%s: cuMemGetAddressRange says %llu bytes from %llx", what, said.bytes, said.base);
}

/** Asserts that nothing is known about an address. */
static void check_unknown(const char *what, CUdeviceptr address) {
    const facts said = ask(address);
    CHECK(what, CUDA_ERROR_INVALID_VALUE, said.known);
    CHECK(what, CUDA_ERROR_INVALID_VALUE, said.host);
    CHECK(what, CUDA_ERROR_INVALID_VALUE, said.retained);
    CHECK(what, CUDA_ERROR_NOT_FOUND, said.ranged);
}

/** What memory on a device that is mapped as one piece says. */
static facts device_facts(CUdeviceptr base, unsigned long long bytes) {
    return (facts){.type = CU_MEMORYTYPE_DEVICE,
                   .host = CUDA_ERROR_INVALID_VALUE,
                   .access = 3,
                   .retained = CUDA_ERROR_INVALID_VALUE,
                   .base = base,
                   .start = base,
                   .bytes = bytes,
                   .size = bytes};
}

Test(kind, plain) {
    CUdeviceptr address = 0;
    OK(drv.cuMemAlloc(&address, 3 * GRANULE + 512));
    facts wanted = device_facts(address, 3 * GRANULE + 512);
    wanted.has_context = true;
    wanted.is_legacy = true;
    check("measured: cuMemAlloc", address, &wanted);
    check("measured: the middle of it", address + GRANULE + 1, &wanted);
    check("measured: the last byte of it", address + 3 * GRANULE + 511, &wanted);
    check_unknown("measured: one past the end", address + 3 * GRANULE + 512);
    OK(drv.cuMemFree(address));
    check_unknown("measured: freed", address);
}

Test(kind, opened) {
    helper *owner = helper_start(NULL);
    CUipcMemHandle record;
    CUdeviceptr address = 0;
    helper_make(owner, &record, "plain 0 %zu 1", GRANULE + 512);
    OK(drv.cuIpcOpenMemHandle(&address, record, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    facts wanted = device_facts(address, GRANULE + 512);
    wanted.has_context = true;
    check("measured: legacy memory of another process", address + 600, &wanted);
    check_unknown("measured: one past the end", address + GRANULE + 512);
    OK(drv.cuIpcCloseMemHandle(address));
    check_unknown("measured: closed", address);
    helper_end(owner);
}

Test(kind, virtual) {
    const CUmemGenericAllocationHandle handle = memory_create(0, GRANULE);
    CUmemGenericAllocationHandle imported = 0;
    CUdeviceptr range = 0;
    os_handle shareable = memory_export(handle);
    OK(memory_import(shareable, &imported));
    OK(drv.cuMemAddressReserve(&range, 4 * GRANULE, 0, 0, 0));
    check_unknown("measured: reserved", range);
    OK(drv.cuMemMap(range + GRANULE, GRANULE, 0, handle, 0));
    OK(drv.cuMemMap(range + 2 * GRANULE, GRANULE, 0, imported, 0));
    OK(memory_access(range + GRANULE, GRANULE, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    facts wanted = device_facts(range + GRANULE, GRANULE);
    wanted.start = range;
    wanted.size = 4 * GRANULE;
    wanted.retained = CUDA_SUCCESS;
    wanted.types = (unsigned long long)SYSTEM_TYPE;
    check("measured: VMM memory", range + GRANULE + 5, &wanted);
    wanted.base += GRANULE;
    wanted.types = 0;
    wanted.access = 0;
    wanted.ranged = CUDA_ERROR_NOT_FOUND;
    check("measured: imported, without access", range + 2 * GRANULE + 5, &wanted);
    OK(memory_access(range + 2 * GRANULE, GRANULE, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    wanted.access = 3;
    wanted.ranged = CUDA_SUCCESS;
    check("measured: imported, the neighbour of another", range + 2 * GRANULE + 5, &wanted);
    check_unknown("measured: a hole of the range", range + 3 * GRANULE);
    OK(drv.cuMemUnmap(range + GRANULE, 2 * GRANULE));
    OK(drv.cuMemAddressFree(range, 4 * GRANULE));
    os_handle_close(&shareable);
    OK(drv.cuMemRelease(imported));
    OK(drv.cuMemRelease(handle));
}

Test(kind, pooled) {
    need_shareable_pools();
    const CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                       .handleTypes = SYSTEM_TYPE,
                                       .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemoryPool pool = NULL, imported = NULL;
    CUdeviceptr address = 0, other = 0;
    OK(drv.cuMemPoolCreate(&pool, &properties));
    OK(drv.cuMemAllocFromPoolAsync(&address, 1000, pool, NULL));
    OK(drv.cuMemAllocAsync(&other, 1000, NULL));
    OK(drv.cuCtxSynchronize());
    facts wanted = device_facts(address, 1000);
    wanted.has_pool = true;
    wanted.types = (unsigned long long)SYSTEM_TYPE;
    check("measured: memory of an exportable pool", address + 999, &wanted);
    check_unknown("measured: one past the end", address + 1000);
    wanted = device_facts(other, 1000);
    wanted.has_pool = true;
    check("measured: memory of the default pool", other, &wanted);
    OK(drv.cuMemFree(other));
    OK(drv.cuMemFree(address));
    check_unknown("measured: freed", address);
    OK(drv.cuMemPoolDestroy(pool));

    helper *owner = helper_start(NULL);
    CUmemPoolPtrExportData record;
    os_handle shareable = helper_pool(owner, 0);
    helper_make(owner, &record, "pooled 1000 1");
    OK(drv.cuMemPoolImportFromShareableHandle(&imported, (void *)shareable.value, SYSTEM_TYPE, 0));
    OK(drv.cuMemPoolImportPointer(&address, imported, &record));
    wanted = device_facts(address, 1000);
    wanted.has_pool = true;
    check("measured: imported memory of a pool", address + 999, &wanted);
    OK(drv.cuMemFree(address));
    OK(drv.cuCtxSynchronize());
    OK(drv.cuMemPoolDestroy(imported));
    os_handle_close(&shareable);
    helper_end(owner);
}

Test(kind, of_the_host) {
    void *pinned = NULL;
    int local = 0;
    shared_page page = page_make();
    OK(drv.cuMemHostAlloc(&pinned, 10000, 0));
    facts wanted = device_facts((CUdeviceptr)(uintptr_t)pinned, 10000);
    wanted.type = CU_MEMORYTYPE_HOST;
    wanted.has_context = true;
    wanted.host = CUDA_SUCCESS;
    check("measured: cuMemHostAlloc", (CUdeviceptr)(uintptr_t)pinned + 9999, &wanted);
    check_unknown("measured: one past the end", (CUdeviceptr)(uintptr_t)pinned + 10000);
    wanted.base = wanted.start = page.device;
    wanted.bytes = wanted.size = PAGE;
    check("measured: cuMemHostRegister", page.device + 9, &wanted);
    OK(drv.cuMemFreeHost(pinned));
    check_unknown("measured: ordinary memory", (CUdeviceptr)(uintptr_t)&local);
    check_unknown("measured: address 0", 0);
    check_unknown("measured: address 1", 1);
    page_undo(&page);
}

Test(kind, without_a_context) {
    CUdeviceptr address = 0, out = 0;
    CUmemorytype type = CU_MEMORYTYPE_HOST;
    int legacy = 0;
    OK(drv.cuMemAlloc(&address, GRANULE));
    OK(drv.cuCtxSetCurrent(NULL));
    CHECK("measured: most attributes need no context", CUDA_SUCCESS,
          drv.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
    CHECK("measured: most attributes need no context", CUDA_SUCCESS,
          drv.cuPointerGetAttribute(&legacy, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
                                    address));
    CHECK("measured: how a context reaches it", CUDA_ERROR_INVALID_CONTEXT,
          drv.cuPointerGetAttribute(&out, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, address));
    CHECK("measured: how a context reaches it", CUDA_ERROR_INVALID_CONTEXT,
          drv.cuMemGetAddressRange(&out, &(size_t){0}, address));
    conformance_use(0);
    OK(drv.cuMemFree(address));
}

Test(kind, of_another_device) {
    conformance_need_devices(2);
    int can = 0, ordinal = -1;
    CUdeviceptr address = 0, base = 0;
    CUipcMemHandle record;
    OK(drv.cuDeviceCanAccessPeer(&can, 0, 1));
    conformance_use(1);
    OK(drv.cuMemAlloc(&address, GRANULE));
    conformance_use(0);
    OK(drv.cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address));
    cr_assert_eq(ordinal, 1, "measured: its owner, in any context");
    CHECK("measured: not reached from here", CUDA_ERROR_INVALID_VALUE,
          drv.cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, address));
    CHECK("measured: not reached from here", CUDA_ERROR_NOT_FOUND,
          drv.cuMemGetAddressRange(&base, &(size_t){0}, address));
    CHECK("measured: it is exported from any context", CUDA_SUCCESS,
          drv.cuIpcGetMemHandle(&record, address));
    if (can != 0) {
        OK(drv.cuCtxEnablePeerAccess(conformance_context(1), 0));
        CHECK("measured: reached with peer access", CUDA_SUCCESS,
              drv.cuMemGetAddressRange(&base, &(size_t){0}, address));
        cr_assert_eq(base, address);
        OK(drv.cuCtxDisablePeerAccess(conformance_context(1)));
    }
    OK(drv.cuMemFree(address));
}

/* ---- calls that gpuipc itself does not make ----------------------------------------------- */

Test(kind, attributes_of_what_is_not_known) {
    CUresult (*get)(unsigned, CUpointer_attribute *, void **, CUdeviceptr) = NULL;
    conformance_find("cuPointerGetAttributes", &get);
    CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                    CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_CONTEXT};
    unsigned type = 99;
    size_t size = 99;
    CUcontext context = conformance_context(0);
    void *data[] = {&type, &size, &context};
    CHECK("cuda.h: an address that CUDA does not know is no error", CUDA_SUCCESS,
          get(3, wanted, data, (CUdeviceptr)(uintptr_t)&type));
    cr_assert_eq(type, 0, "cuda.h: the default of an attribute is 0");
    cr_assert_null(context, "cuda.h: the default of an attribute is 0");
    cr_assert_eq(size, 99, "measured: the size of its range is left as it was: %zu", size);
}

Test(kind, synchronous_operations_that_always_wait) {
    CUresult (*set)(const void *, CUpointer_attribute, CUdeviceptr) = NULL;
    conformance_find("cuPointerSetAttribute", &set);
    const CUpointer_attribute syncs = (CUpointer_attribute)6; /* SYNC_MEMOPS */
    const unsigned yes = 1, no = 0;
    unsigned said = 9;
    int local = 0;
    CUdeviceptr plain = 0;
    OK(drv.cuMemAlloc(&plain, GRANULE));
    const memory mapped = memory_make(0, GRANULE);
    OK(drv.cuPointerGetAttribute(&said, syncs, plain));
    cr_assert_eq(said, 0, "cuda.h: not set at first");
    CHECK("cuda.h: cuPointerSetAttribute", CUDA_SUCCESS, set(&yes, syncs, plain + 512));
    OK(drv.cuPointerGetAttribute(&said, syncs, plain));
    cr_assert_eq(said, 1, "cuda.h: of the whole region");
    OK(drv.cuMemsetD32(plain, 7, GRANULE / 4));
    CHECK("cuda.h: a synchronous fill has been waited for", CUDA_SUCCESS, drv.cuStreamQuery(NULL));
    cr_assert_eq(word_read(plain + GRANULE - 4), 7);
    CHECK("cuda.h: cuPointerSetAttribute", CUDA_SUCCESS, set(&no, syncs, plain));
    OK(drv.cuPointerGetAttribute(&said, syncs, plain));
    cr_assert_eq(said, 0);
    CHECK("reported (openucx/ucx issue 9895): not of virtual memory", CUDA_ERROR_NOT_SUPPORTED,
          set(&yes, syncs, mapped.address));
    CHECK("cuda.h: the one attribute that is set", CUDA_ERROR_INVALID_VALUE,
          set(&yes, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, plain));
    CHECK("cuda.h: memory of CUDA", CUDA_ERROR_INVALID_VALUE,
          set(&yes, syncs, (CUdeviceptr)(uintptr_t)&local));
    memory_undo(&mapped);
    OK(drv.cuMemFree(plain));
}

/** Managed memory itself is not touched. */
Test(kind, what_is_for_managed_memory_alone) {
    CUresult (*prefetch)(CUdeviceptr, size_t, CUdevice, CUstream) = NULL;
    CUresult (*attach)(CUstream, CUdeviceptr, size_t, unsigned) = NULL;
    conformance_find("cuMemPrefetchAsync", &prefetch);
    conformance_find("cuStreamAttachMemAsync", &attach);
    int concurrent = 0;
    OK(drv.cuDeviceGetAttribute(&concurrent, (CUdevice_attribute)89, 0));
    const CUresult to_device =
        concurrent != 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_DEVICE;
    CUdeviceptr plain = 0;
    void *pinned = NULL;
    CUstream stream = NULL;
    OK(drv.cuMemAlloc(&plain, GRANULE));
    OK(drv.cuMemHostAlloc(&pinned, PAGE, 0));
    OK(drv.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    const CUdeviceptr of_host = (CUdeviceptr)(uintptr_t)pinned;
    CHECK("cuda.h: managed memory alone is prefetched", to_device,
          prefetch(plain, GRANULE, 0, stream));
    CHECK("cuda.h: managed memory alone is prefetched", to_device,
          prefetch(of_host, PAGE, 0, stream));
    CHECK("cuda.h: managed memory alone is prefetched", CUDA_ERROR_INVALID_VALUE,
          prefetch(plain, GRANULE, -1 /* CU_DEVICE_CPU */, stream));
    CHECK("cuda.h: an unknown device", CUDA_ERROR_INVALID_DEVICE,
          prefetch(plain, GRANULE, device_count, stream));
    CHECK("reading: managed memory alone is attached", CUDA_ERROR_INVALID_VALUE,
          attach(stream, plain, 0, 4 /* SINGLE */));
    CHECK("reading: managed memory alone is attached", CUDA_ERROR_INVALID_VALUE,
          attach(stream, of_host, 0, 1 /* GLOBAL */));
    OK(drv.cuStreamSynchronize(stream));
    OK(drv.cuStreamDestroy(stream));
    OK(drv.cuMemFreeHost(pinned));
    OK(drv.cuMemFree(plain));
}
