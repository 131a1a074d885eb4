/* SPDX-License-Identifier: MIT */
/** @file Which kind of memory an address is, what carries it, and why the rest does not. */
#include "cuda/context.h"
#include "own_kinds.h"

#define BYTES          (UINT64_C(1) << 20)
#define BIT(transport) (1u << GPUIPC_TRANSPORT_##transport)

TestSuite(pointer, .init = core_start, .fini = core_finish, .timeout = 60);

static gpuipc_pointer_info classify(uint64_t address, uint64_t bytes) {
    gpuipc_pointer_info info = {.struct_size = sizeof(info)};
    check_ok(gpuipc_pointer_classify(core_context, address, bytes, &info));
    return info;
}

/* What is asked of every answer: a bit or a reason for each transport, and a sentence. */
static void check_complete(const gpuipc_pointer_info *info) {
    for (uint32_t i = 1; i <= GPUIPC_TRANSPORT_COUNT; i++) {
        cr_assert_eq((info->transports >> i & 1u) == 1, info->why_not[i] == GPUIPC_REASON_NONE,
                     "transport %u: bit and reason disagree", i);
    }
    cr_assert_neq(info->sentence[0], '\0');
}

static void check_kind(own_kind kind, gpuipc_memory_kind expected, uint32_t transports) {
    core_enter_device(0);
    own_kinds own = own_kinds_make(kind, BYTES);
    const uint64_t starts[] = {0, 1, BYTES / 2 + 5, BYTES - 1};
    for (size_t i = 0; i < sizeof(starts) / sizeof(starts[0]); i++) {
        const gpuipc_pointer_info info = classify(own.address + starts[i], BYTES - starts[i]);
        cr_assert_eq(info.kind, expected, "kind %d", (int)info.kind);
        cr_assert_eq(info.base, own.address);
        cr_assert_eq(info.allocated_bytes, BYTES);
        cr_assert_eq(info.allocation_count, 1);
        cr_assert_eq(info.device, 0);
        cr_assert_eq(info.transports, transports, "transports 0x%x", info.transports);
        check_complete(&info);
    }
    gpuipc_pointer_info info = {.struct_size = sizeof(info)};
    check_refused(GPUIPC_ERR_OUT_OF_RANGE, "reach beyond",
                  gpuipc_pointer_classify(core_context, own.address + 1, BYTES, &info));
    cr_assert_eq(info.base, 0);
    own_kinds_undo(&own);
}

Test(pointer, of_cuMemAlloc) {
    check_kind(OWN_PLAIN, GPUIPC_MEMORY_DEVICE, BIT(LEGACY) | BIT(P2P) | BIT(HOST));
}

Test(pointer, of_a_pool_that_can_be_shared) {
    check_kind(OWN_POOL, GPUIPC_MEMORY_POOL, BIT(POOL) | BIT(HOST));
}

Test(pointer, of_the_default_pool) {
    check_kind(OWN_DEFAULT_POOL, GPUIPC_MEMORY_POOL, BIT(HOST));
}

Test(pointer, of_cuMemHostAlloc) {
    check_kind(OWN_PINNED, GPUIPC_MEMORY_PINNED, BIT(HOST));
}

Test(pointer, of_registered_memory) {
    check_kind(OWN_REGISTERED, GPUIPC_MEMORY_PINNED, BIT(HOST));
}

Test(pointer, of_managed_memory) {
    check_kind(OWN_MANAGED, GPUIPC_MEMORY_MANAGED, BIT(HOST));
}

Test(pointer, of_a_buffer_of_several_allocations) {
    gpuipc_buffer *buffer = core_buffer(3 * core_unit, core_unit);
    const uint64_t address = core_info(buffer).address;
    gpuipc_pointer_info info = classify(address + 5, 3 * core_unit - 5);
    cr_assert_eq(info.kind, GPUIPC_MEMORY_VMM);
    cr_assert_eq(info.base, address);
    cr_assert_eq(info.allocation_count, 3);
    cr_assert_eq(info.allocated_bytes, 3 * core_unit);
    cr_assert_eq(info.transports, BIT(VMM) | BIT(HOST));
    check_complete(&info);
    info = classify(address + core_unit, 1);
    cr_assert_eq(info.base, address + core_unit);
    cr_assert_eq(info.allocation_count, 1);
    cr_assert_eq(info.allocated_bytes, core_unit);
    check_status(GPUIPC_ERR_OUT_OF_RANGE,
                 gpuipc_pointer_classify(core_context, address, 3 * core_unit + 1, &info));
    check_ok(gpuipc_buffer_release(buffer));
}

Test(pointer, of_nothing_that_cuda_knows) {
    uint32_t on_the_stack = 0;
    const uint64_t addresses[] = {0, 1, (uint64_t)(uintptr_t)&on_the_stack, UINT64_C(1) << 62};
    for (size_t i = 0; i < sizeof(addresses) / sizeof(addresses[0]); i++) {
        const gpuipc_pointer_info info = classify(addresses[i], sizeof(on_the_stack));
        cr_assert_eq(info.kind, GPUIPC_MEMORY_UNKNOWN);
        cr_assert_eq(info.allocation_count, 0);
        cr_assert_eq(info.transports, 0);
        cr_assert_eq(info.device, GPUIPC_DEVICE_NONE);
        check_complete(&info);
    }
}

Test(pointer, calls_that_cannot_be) {
    gpuipc_pointer_info info = {.struct_size = sizeof(info)};
    /* one byte less than the first release had */
    gpuipc_pointer_info small = {.struct_size = offsetof(gpuipc_pointer_info, sentence) + 303};
    check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "bytes is 0",
                  gpuipc_pointer_classify(core_context, 1, 0, &info));
    check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "beyond 64 bits",
                  gpuipc_pointer_classify(core_context, 2, UINT64_MAX, &info));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_pointer_classify(NULL, 1, 1, &info));
    check_status(GPUIPC_ERR_STRUCT_SIZE, gpuipc_pointer_classify(core_context, 1, 1, &small));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_pointer_classify(core_context, 1, 1, NULL));
}

Test(pointer, the_callers_context_stays) {
    CUcontext before = NULL;
    CUcontext after = NULL;
    core_enter_device(0);
    own_kinds own = own_kinds_make(OWN_PLAIN, BYTES);
    cr_assert_eq(core_driver()->cuCtxGetCurrent(&before), CUDA_SUCCESS);
    (void)classify(own.address, 1);
    cr_assert_eq(core_driver()->cuCtxGetCurrent(&after), CUDA_SUCCESS);
    cr_assert_eq(before, after);
    own_kinds_undo(&own);
}

Test(pointer, every_call_of_the_driver_may_fail) {
    core_need_emulated();
    static const char *const plain[] = {"cuMemRetainAllocationHandle:1=999",
                                        "cuPointerGetAttribute:1=999"};
    static const char *const mapped[] = {"cuMemGetAllocationPropertiesFromHandle:1=999",
                                         "cuMemGetAddressRange:1=999", "cuCtxPushCurrent:1=999"};
    gpuipc_pointer_info info = {.struct_size = sizeof(info)};
    core_enter_device(0);
    own_kinds own = own_kinds_make(OWN_PLAIN, BYTES);
    gpuipc_buffer *buffer = core_buffer(core_unit, 0);
    for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++) {
        core_set_failures(plain[i]);
        check_status(GPUIPC_ERR_CUDA, gpuipc_pointer_classify(core_context, own.address, 1, &info));
    }
    for (size_t i = 0; i < sizeof(mapped) / sizeof(mapped[0]); i++) {
        core_set_failures(mapped[i]);
        check_status(GPUIPC_ERR_CUDA,
                     gpuipc_pointer_classify(core_context, core_info(buffer).address, 1, &info));
    }
    core_set_failures("");
    check_ok(gpuipc_buffer_release(buffer));
    own_kinds_undo(&own);
}

Test(pointer, of_a_buffer_opened_from_its_handles) {
    gpuipc_buffer *created = core_buffer(core_unit, 0);
    gpuipc_buffer *opened = NULL;
    core_pair pair;
    core_pair_open(&pair, core_context, core_context);
    check_ok(core_send(pair.client, &created, 1));
    check_ok(core_receive(pair.server, &opened, 1));
    const gpuipc_pointer_info info = classify(core_info(opened).address, core_unit);
    cr_assert_eq(info.kind, GPUIPC_MEMORY_VMM);
    cr_assert_eq(info.transports, BIT(HOST));
    cr_assert_eq(info.why_not[GPUIPC_TRANSPORT_VMM], GPUIPC_REASON_NOT_SHAREABLE_ALLOCATION);
    check_complete(&info);
    check_ok(gpuipc_buffer_release(opened));
    check_ok(gpuipc_buffer_release(created));
    core_pair_close(&pair);
}

Test(pointer, every_kind_has_a_name_of_its_own) {
    for (int i = GPUIPC_MEMORY_UNKNOWN; i <= GPUIPC_MEMORY_IMPORTED; i++) {
        for (int k = GPUIPC_MEMORY_UNKNOWN; k < i; k++) {
            cr_assert_str_neq(gpuipc_memory_kind_name((gpuipc_memory_kind)i),
                              gpuipc_memory_kind_name((gpuipc_memory_kind)k));
        }
    }
    cr_assert_str_eq(gpuipc_memory_kind_name(GPUIPC_MEMORY_PINNED), "pinned");
    cr_assert_str_eq(gpuipc_memory_kind_name((gpuipc_memory_kind)-1), "unknown");
    cr_assert_str_eq(gpuipc_memory_kind_name((gpuipc_memory_kind)7), "unknown");
}

/* ---- memory that a driver has, and the emulated one has not -------------------------------------- */

static driver whole;                /* as it was found */
static CUmemAllocationProp said[2]; /* of the first allocation that is asked for, and of others */
static unsigned asked;
static const CUpointer_attribute
    *unknown_attributes; /* which this driver does not know; ends with 0 */

static CUresult say_properties(CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle) {
    (void)handle;
    *prop = said[asked++ == 0 ? 0 : 1];
    return CUDA_SUCCESS;
}

static CUresult know_few_attributes(void *data, CUpointer_attribute attribute,
                                    CUdeviceptr address) {
    for (size_t i = 0; unknown_attributes[i] != 0; i++) {
        if (unknown_attributes[i] == attribute) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    return whole.cuPointerGetAttribute(data, attribute, address);
}

/* The table of core_context, which only this test uses. */
static driver *table(void) {
    context *ctx;
    check_ok(context_acquire(core_context, &ctx));
    whole = ctx->driver;
    driver *found = &ctx->driver;
    context_unreference(ctx);
    return found;
}

static CUmemAllocationProp on_device(int ordinal, int types) {
    return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .requestedHandleTypes = (CUmemAllocationHandleType)types,
                                 .location = {CU_MEM_LOCATION_TYPE_DEVICE, ordinal}};
}

static gpuipc_pointer_info classify_said(gpuipc_buffer *of, uint64_t bytes,
                                         CUmemAllocationProp first, CUmemAllocationProp next) {
    said[0] = first;
    said[1] = next;
    asked = 0;
    const gpuipc_pointer_info info = classify(core_info(of).address, bytes);
    check_complete(&info);
    return info;
}

Test(pointer, of_virtual_memory_of_other_kinds) {
    core_need_emulated();
    const int own = os_shareable_handle_type;
    const int both = own | CU_MEM_HANDLE_TYPE_FABRIC;
    gpuipc_buffer *buffer = core_buffer(2 * core_unit, core_unit);
    table()->cuMemGetAllocationPropertiesFromHandle = say_properties;

    CUmemAllocationProp in_host = on_device(0, own);
    in_host.location.type = CU_MEM_LOCATION_TYPE_HOST;
    gpuipc_pointer_info info = classify_said(buffer, 1, in_host, in_host);
    cr_assert_eq(info.transports, 0);
    cr_assert_eq(info.device, GPUIPC_DEVICE_NONE);
    cr_assert_not_null(strstr(info.sentence, "lies in the host"));
    in_host.requestedHandleTypes = (CUmemAllocationHandleType)both;
    cr_assert_eq(classify_said(buffer, 1, in_host, in_host).transports, 0);

    info = classify_said(buffer, 2 * core_unit, on_device(0, both), on_device(0, both));
    cr_assert_eq(info.transports, BIT(VMM) | BIT(FABRIC) | BIT(HOST));
    info = classify_said(buffer, 2 * core_unit, on_device(0, both), on_device(0, own));
    cr_assert_eq(info.transports, BIT(VMM) | BIT(HOST));
    cr_assert_eq(info.allocation_count, 2);
    info = classify_said(buffer, 2 * core_unit, on_device(0, own), on_device(0, 0));
    cr_assert_eq(info.transports, BIT(HOST));
    cr_assert_not_null(strstr(info.sentence, "of which one has not"));

    info = classify_said(buffer, 1, on_device(99, own), on_device(99, own));
    cr_assert_eq(info.device, GPUIPC_DEVICE_NONE, "this process does not see it");
    check_ok(gpuipc_buffer_release(buffer));
}

Test(pointer, of_a_range_that_two_devices_share) {
    core_need_emulated();
    gpuipc_pointer_info info = {.struct_size = sizeof(info)};
    gpuipc_buffer *buffer = core_buffer(2 * core_unit, core_unit);
    table()->cuMemGetAllocationPropertiesFromHandle = say_properties;
    said[0] = on_device(0, os_shareable_handle_type);
    said[1] = on_device(99, os_shareable_handle_type); /* which this process does not see */
    asked = 0;
    check_status(
        GPUIPC_ERR_OUT_OF_RANGE,
        gpuipc_pointer_classify(core_context, core_info(buffer).address, 2 * core_unit, &info));
    core_set_failures("cuMemRetainAllocationHandle:2=999");
    check_status(GPUIPC_ERR_CUDA, gpuipc_pointer_classify(core_context, core_info(buffer).address,
                                                          2 * core_unit, &info));
    core_set_failures("");
    check_ok(gpuipc_buffer_release(buffer));
}

/* ---- what it is wrapped as --------------------------------------------------------------------- */

static void check_wrap(gpuipc_status expected, const char *sentence, uint64_t address) {
    gpuipc_buffer *wrapped = NULL;
    check_refused(expected, sentence, gpuipc_buffer_wrap(core_context, address, 4096, &wrapped));
    cr_assert_null(wrapped);
}

Test(pointer, an_old_driver_knows_fewer_attributes) {
    core_need_emulated();
    static const CUpointer_attribute none[] = {
        CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
        CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, CU_POINTER_ATTRIBUTE_IS_MANAGED, 0};
    static const CUpointer_attribute no_ordinal[] = {CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, 0};
    static const CUpointer_attribute no_end[] = {CU_POINTER_ATTRIBUTE_RANGE_SIZE, 0};
    gpuipc_pointer_info info = {.struct_size = sizeof(info)};
    core_enter_device(0);
    own_kinds own = own_kinds_make(OWN_PLAIN, BYTES);
    driver *drv = table();
    drv->cuPointerGetAttribute = know_few_attributes;
    unknown_attributes = none;
    drv->has_legacy = false;
    info = classify(own.address, 1);
    cr_assert_eq(info.kind, GPUIPC_MEMORY_DEVICE);
    cr_assert_eq(info.transports, BIT(P2P) | BIT(HOST));
    cr_assert_eq(info.why_not[GPUIPC_TRANSPORT_LEGACY], GPUIPC_REASON_NOT_SUPPORTED);
    check_complete(&info);
    unknown_attributes = no_ordinal;
    cr_assert_eq(classify(own.address, 1).device, GPUIPC_DEVICE_NONE);
    check_wrap(GPUIPC_ERR_DEVICE_NOT_FOUND, "does not see", own.address);
    unknown_attributes = no_end;
    check_status(GPUIPC_ERR_CUDA, gpuipc_pointer_classify(core_context, own.address, 1, &info));
    own_kinds_undo(&own);
}

/* Such memory travels as a copy, and says why. */
Test(pointer, memory_without_legacy_ipc_is_sent_as_a_copy) {
    core_need_emulated();
    core_pair pair;
    gpuipc_buffer *wrapped = NULL;
    core_need_devices(2);
    core_enter_device(0);
    own_kinds own = own_kinds_make(OWN_PLAIN, BYTES);
    table()->has_legacy = false;
    check_ok(gpuipc_buffer_wrap(core_context, own.address, BYTES, &wrapped));
    core_pair_open(&pair, core_context, core_context);
    check_refused(GPUIPC_ERR_NOT_SHAREABLE, "no legacy IPC", core_send(pair.client, &wrapped, 1));
    check_ok(gpuipc_buffer_set_access(wrapped, 0, GPUIPC_ACCESS_READ_WRITE));
    check_ok(gpuipc_buffer_set_access(wrapped, 1, GPUIPC_ACCESS_READ_WRITE));
    core_pair_close(&pair);
    check_ok(gpuipc_buffer_release(wrapped));
    own_kinds_undo(&own);
}

Test(pointer, memory_of_a_host_allocation_is_not_wrapped) {
    core_need_emulated();
    core_enter_device(0);
    driver *drv = table();
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address = 0;
    CUmemAllocationProp prop = on_device(0, CU_MEM_HANDLE_TYPE_NONE);
    prop.location.type = CU_MEM_LOCATION_TYPE_HOST;
    const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                    CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    cr_assert_eq(drv->cuMemCreate(&handle, core_unit, &prop, 0), CUDA_SUCCESS);
    cr_assert_eq(drv->cuMemAddressReserve(&address, core_unit, 0, 0, 0), CUDA_SUCCESS);
    cr_assert_eq(drv->cuMemMap(address, core_unit, 0, handle, 0), CUDA_SUCCESS);
    cr_assert_eq(drv->cuMemSetAccess(address, core_unit, &access, 1), CUDA_SUCCESS);
    check_wrap(GPUIPC_ERR_NOT_DEVICE_MEMORY, "host memory", address);
    drv->cuMemGetAllocationPropertiesFromHandle = say_properties;
    said[0] = said[1] = on_device(0, CU_MEM_HANDLE_TYPE_FABRIC); /* of which it has no name */
    check_wrap(GPUIPC_ERR_CUDA, "naming fabric memory", address);
    cr_assert_eq(drv->cuMemUnmap(address, core_unit), CUDA_SUCCESS);
    cr_assert_eq(drv->cuMemAddressFree(address, core_unit), CUDA_SUCCESS);
    cr_assert_eq(drv->cuMemRelease(handle), CUDA_SUCCESS);
}
