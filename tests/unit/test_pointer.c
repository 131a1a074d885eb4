/* SPDX-License-Identifier: MIT */
/** @file Which kind of memory an address is, what carries it, and why the rest does not. */
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
