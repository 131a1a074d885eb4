/* SPDX-License-Identifier: MIT */
/** @file Buffers around memory that the program mapped itself, and memory that cannot be shared. */
#include "core_fixture.h"

#include <stdio.h>
#include <stdlib.h>

TestSuite(buffer_wrap, .init = core_start, .fini = core_finish, .timeout = 120);

enum {
    PARTS_MAX = 4
};

/* One reserved range with allocations side by side, each of one granule; a gap where there is none. */
typedef struct own_memory {
    CUdeviceptr base;
    uint64_t bytes;
    uint32_t parts;
    CUmemGenericAllocationHandle handles[PARTS_MAX]; /* 0: a gap */
} own_memory;

static void give_access(int ordinal, CUdeviceptr address, CUmemAccess_flags flags) {
    const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, ordinal}, flags};
    cr_assert_eq(core_driver()->cuMemSetAccess(address, core_unit, &access, 1), CUDA_SUCCESS);
}

static own_memory own_memory_reserve(uint32_t parts) {
    own_memory own = {.parts = parts, .bytes = parts * core_unit};
    cr_assert_eq(core_driver()->cuMemAddressReserve(&own.base, own.bytes, 0, 0, 0), CUDA_SUCCESS);
    return own;
}

static void own_memory_map(own_memory *own, uint32_t part, int ordinal, int handle_types) {
    const driver *drv = core_driver();
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .requestedHandleTypes = (CUmemAllocationHandleType)handle_types,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, ordinal}};
    const CUdeviceptr at = own->base + part * core_unit;
    const void *rights = NULL;
    if (handle_types == os_shareable_handle_type) {
        check_ok(os_handle_attributes(&rights));
    }
    prop.win32HandleMetaData = (void *)(uintptr_t)rights;
    cr_assert_eq(drv->cuMemCreate(&own->handles[part], core_unit, &prop, 0), CUDA_SUCCESS);
    cr_assert_eq(drv->cuMemMap(at, core_unit, 0, own->handles[part], 0), CUDA_SUCCESS);
    give_access(ordinal, at, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

static own_memory own_memory_make(uint32_t parts) {
    own_memory own = own_memory_reserve(parts);
    for (uint32_t i = 0; i < parts; i++) {
        own_memory_map(&own, i, 0, os_shareable_handle_type);
    }
    return own;
}

static void own_memory_undo(const own_memory *own) {
    const driver *drv = core_driver();
    for (uint32_t i = 0; i < own->parts; i++) {
        if (own->handles[i] != 0) {
            cr_assert_eq(drv->cuMemUnmap(own->base + i * core_unit, core_unit), CUDA_SUCCESS);
            cr_assert_eq(drv->cuMemRelease(own->handles[i]), CUDA_SUCCESS);
        }
    }
    cr_assert_eq(drv->cuMemAddressFree(own->base, own->bytes), CUDA_SUCCESS);
}

static gpuipc_buffer *wrap(uint64_t address, uint64_t bytes) {
    gpuipc_buffer *buffer = NULL;
    check_ok(gpuipc_buffer_wrap(core_context, address, bytes, &buffer));
    return buffer;
}

static void check_wrap_refused(gpuipc_status expected, const char *text, uint64_t address,
                               uint64_t bytes) {
    gpuipc_buffer *buffer = NULL;
    check_refused(expected, text, gpuipc_buffer_wrap(core_context, address, bytes, &buffer));
    cr_assert_neq(gpuipc_error_get()->operation[0], '\0');
    cr_assert_null(buffer);
}

Test(buffer_wrap, a_whole_mapping) {
    const own_memory own = own_memory_make(1);
    gpuipc_buffer *buffer = wrap(own.base, core_unit);
    const gpuipc_buffer_info info = core_info(buffer);
    cr_assert_eq(info.address, own.base);
    cr_assert_eq(info.bytes, core_unit);
    cr_assert_eq(info.allocated_bytes, core_unit);
    cr_assert_eq(info.segment_count, 1);
    cr_assert_eq(info.device, 0);
    cr_assert_eq(info.access_device, 0);
    cr_assert_eq(info.origin, GPUIPC_BUFFER_WRAPPED);
    core_write_pattern(buffer, 31);
    core_check_pattern(buffer, 31);
    check_ok(gpuipc_buffer_release(buffer));
    /* the caller's mapping is untouched: it can be wrapped and used again */
    buffer = wrap(own.base, core_unit);
    core_check_pattern(buffer, 31);
    check_ok(gpuipc_buffer_release(buffer));
    own_memory_undo(&own);
}

Test(buffer_wrap, the_access_is_what_the_program_gave) {
    static const struct {
        CUmemAccess_flags given;
        gpuipc_access told;
    } rows[] = {{CU_MEM_ACCESS_FLAGS_PROT_READWRITE, GPUIPC_ACCESS_READ_WRITE},
                {CU_MEM_ACCESS_FLAGS_PROT_READ, GPUIPC_ACCESS_READ}};
    const own_memory own = own_memory_make(1);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        give_access(0, own.base, rows[i].given);
        gpuipc_buffer *buffer = wrap(own.base, core_unit);
        cr_assert_eq(core_info(buffer).access, rows[i].told, "row %zu: %d", i,
                     (int)core_info(buffer).access);
        check_ok(gpuipc_buffer_release(buffer));
    }
    give_access(0, own.base, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    check_wrap_refused(GPUIPC_ERR_NOT_DEVICE_MEMORY, "no device has access", own.base, core_unit);
    gpuipc_pointer_info info = GPUIPC_POINTER_INFO_INIT;
    check_status(GPUIPC_ERR_NOT_DEVICE_MEMORY,
                 gpuipc_pointer_classify(core_context, own.base, core_unit, &info));
    own_memory_undo(&own);
}

Test(buffer_wrap, a_failing_driver_is_not_taken_for_other_memory) {
    core_need_emulated();
    const own_memory own = own_memory_make(1);
    core_set_failures("cuMemRetainAllocationHandle:1=999");
    check_wrap_refused(GPUIPC_ERR_CUDA, "", own.base, core_unit);
    cr_assert_eq(gpuipc_error_get()->native_code, 999);
    core_set_failures("");
    own_memory_undo(&own);
}

Test(buffer_wrap, a_range_inside_one_mapping) {
    const own_memory own = own_memory_make(1);
    gpuipc_buffer *whole = wrap(own.base, core_unit);
    gpuipc_buffer *part = wrap(own.base + 4096, 8192);
    const gpuipc_buffer_info info = core_info(part);
    cr_assert_eq(info.address, own.base + 4096);
    cr_assert_eq(info.bytes, 8192);
    cr_assert_eq(info.allocated_bytes, core_unit);
    cr_assert_eq(info.segment_count, 1);
    check_ok(gpuipc_buffer_fill_async(whole, 0, core_unit, 0, 4, NULL));
    check_ok(gpuipc_buffer_fill_async(part, 0, 8192, 5, 4, NULL));
    uint32_t words[2] = {1, 1};
    check_ok(gpuipc_buffer_read(whole, 4092, words, sizeof(words)));
    cr_assert_eq(words[0], 0);
    cr_assert_eq(words[1], 5);
    check_status(GPUIPC_ERR_OUT_OF_RANGE, gpuipc_buffer_read(part, 8192, words, 4));
    check_ok(gpuipc_buffer_release(part));
    check_ok(gpuipc_buffer_release(whole));
    own_memory_undo(&own);
}

Test(buffer_wrap, a_range_over_several_allocations) {
    const own_memory own = own_memory_make(3);
    static const struct {
        uint32_t first_part;
        int64_t at; /* from the start of that part; negative: from its end */
        uint64_t parts_long;
        uint32_t segments;
    } rows[] = {{0, 0, 3, 3}, {0, 4096, 1, 2}, {1, 0, 1, 1}, {1, 4, 1, 2}, {0, -4, 1, 2}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const uint64_t start = own.base + rows[i].first_part * core_unit +
                               (rows[i].at < 0 ? core_unit : 0) + (uint64_t)rows[i].at;
        gpuipc_buffer *buffer = wrap(start, rows[i].parts_long * core_unit);
        const gpuipc_buffer_info info = core_info(buffer);
        cr_assert_eq(info.address, start);
        cr_assert_eq(info.segment_count, rows[i].segments, "row %zu: %u", i, info.segment_count);
        cr_assert_eq(info.allocated_bytes, rows[i].segments * core_unit);
        core_write_pattern(buffer, (uint32_t)i);
        core_check_pattern(buffer, (uint32_t)i);
        check_ok(gpuipc_buffer_release(buffer));
    }
    own_memory_undo(&own);
}

Test(buffer_wrap, a_gap_ends_the_range) {
    own_memory own = own_memory_reserve(3);
    own_memory_map(&own, 0, 0, os_shareable_handle_type);
    own_memory_map(&own, 2, 0, os_shareable_handle_type);
    check_wrap_refused(GPUIPC_ERR_OUT_OF_RANGE, "ends at", own.base, core_unit + 1);
    check_wrap_refused(GPUIPC_ERR_OUT_OF_RANGE, "ends at", own.base, 3 * core_unit);
    check_wrap_refused(GPUIPC_ERR_NOT_DEVICE_MEMORY, "not mapped", own.base + core_unit, 1);
    gpuipc_buffer *buffer = wrap(own.base + 1, core_unit - 1);
    check_ok(gpuipc_buffer_release(buffer));
    own_memory_undo(&own);
}

/* A buffer whose memory cannot be shared: it is sent as a copy or not at all. */
static void check_copied(gpuipc_buffer *buffer, const char *why_not) {
    gpuipc_buffer *opened = NULL;
    core_pair pair;
    gpuipc_outgoing message = {
        .struct_size = sizeof(message), .buffers = &buffer, .buffer_count = 1};
    cr_assert_eq(core_info(buffer).transport, GPUIPC_TRANSPORT_HOST);
    core_write_pattern(buffer, 12);
    core_pair_open(&pair, core_context, core_context);
    check_refused(GPUIPC_ERR_NOT_SHAREABLE, why_not,
                  gpuipc_connection_send(pair.client, &message, SOON_MS));
    message.flags = GPUIPC_SEND_STAGED;
    check_ok(gpuipc_connection_send(pair.client, &message, SOON_MS));
    check_ok(core_receive(pair.server, &opened, 1));
    core_check_pattern(opened, 12);
    check_ok(gpuipc_buffer_release(opened));
    check_ok(gpuipc_buffer_set_access(buffer, 0, GPUIPC_ACCESS_DEFAULT));
    check_ok(gpuipc_buffer_release(buffer));
    core_pair_close(&pair);
}

Test(buffer_wrap, memory_that_was_not_made_to_be_shared) {
    own_memory own = own_memory_reserve(2);
    own_memory_map(&own, 0, 0, os_shareable_handle_type);
    own_memory_map(&own, 1, 0, CU_MEM_HANDLE_TYPE_NONE);
    check_copied(wrap(own.base + core_unit, core_unit), "without this system's handle type");
    check_copied(wrap(own.base, 2 * core_unit), "or part of it");
    own_memory_undo(&own);
}

Test(buffer_wrap, an_address_that_is_no_device_memory) {
    uint64_t *host = malloc(4096);
    cr_assert_not_null(host);
    core_enter_device(0);
    check_wrap_refused(GPUIPC_ERR_NOT_DEVICE_MEMORY, "", (uint64_t)(uintptr_t)host, 4096);
    check_wrap_refused(GPUIPC_ERR_NOT_DEVICE_MEMORY, "", 0, 1);
    check_wrap_refused(GPUIPC_ERR_NOT_DEVICE_MEMORY, "", 8, 8);
    free(host);
}

Test(buffer_wrap, memory_that_is_unmapped_again) {
    const own_memory own = own_memory_make(1);
    own_memory_undo(&own);
    check_wrap_refused(GPUIPC_ERR_NOT_DEVICE_MEMORY, "", own.base, core_unit);
}

Test(buffer_wrap, ranges_that_cannot_be) {
    gpuipc_buffer *buffer = NULL;
    check_wrap_refused(GPUIPC_ERR_INVALID_ARGUMENT, "bytes is 0", 1, 0);
    check_wrap_refused(GPUIPC_ERR_INVALID_ARGUMENT, "beyond 64 bits", UINT64_MAX, 1);
    check_wrap_refused(GPUIPC_ERR_INVALID_ARGUMENT, "beyond 64 bits", 2, UINT64_MAX);
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_buffer_wrap(core_context, 1, 1, NULL));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_buffer_wrap(NULL, 1, 1, &buffer));
    cr_assert_null(buffer);
}

Test(buffer_wrap, a_created_buffer_can_be_wrapped_again) {
    gpuipc_buffer *created = core_buffer(core_unit * 2, core_unit);
    const gpuipc_buffer_info info = core_info(created);
    gpuipc_buffer *buffer = wrap(info.address + 16, core_unit);
    core_write_pattern(buffer, 6);
    core_check_pattern(buffer, 6);
    check_ok(gpuipc_buffer_release(buffer));
    check_ok(gpuipc_buffer_release(created));
}

Test(buffer_wrap, a_range_over_two_devices) {
    core_need_devices(2);
    own_memory own = own_memory_reserve(2);
    own_memory_map(&own, 0, 0, os_shareable_handle_type);
    own_memory_map(&own, 1, 1, os_shareable_handle_type);
    check_wrap_refused(GPUIPC_ERR_NOT_SHAREABLE, "spans devices 0 and 1", own.base, 2 * core_unit);
    gpuipc_buffer *second = wrap(own.base + core_unit, core_unit);
    cr_assert_eq(core_info(second).device, 1);
    check_ok(gpuipc_buffer_release(second));
    own_memory_undo(&own);
}

Test(buffer_wrap, opened_memory_is_not_passed_on_by_wrapping) {
    gpuipc_buffer *created = core_buffer(core_unit, 0);
    gpuipc_buffer *opened;
    core_pair pair;
    core_pair_open(&pair, core_context, core_context);
    check_ok(core_send(pair.client, &created, 1));
    check_ok(core_receive(pair.server, &opened, 1));
    check_copied(wrap(core_info(opened).address, core_unit), "opened from another process");
    check_ok(gpuipc_buffer_release(opened));
    check_ok(gpuipc_buffer_release(created));
    core_pair_close(&pair);
}

Test(buffer_wrap, a_wrapped_range_is_shared_as_it_is) {
    const own_memory own = own_memory_make(3);
    const uint64_t start = own.base + core_unit + 4096;
    gpuipc_buffer *buffer = wrap(start, core_unit);
    gpuipc_buffer *opened;
    core_pair pair;
    core_write_pattern(buffer, 41);
    core_pair_open(&pair, core_context, core_context);
    check_ok(core_send(pair.client, &buffer, 1));
    check_ok(core_receive(pair.server, &opened, 1));
    const gpuipc_buffer_info info = core_info(opened);
    cr_assert_eq(info.bytes, core_unit);
    cr_assert_eq(info.segment_count, 2);
    cr_assert_eq(info.address % core_unit, 4096);
    core_check_pattern(opened, 41);
    core_write_pattern(opened, 42); /* one memory, seen from both sides */
    core_check_pattern(buffer, 42);
    check_ok(gpuipc_buffer_release(buffer));
    own_memory_undo(&own);
    core_check_pattern(opened, 42); /* what another has open stays alive there */
    check_ok(gpuipc_buffer_release(opened));
    core_pair_close(&pair);
}

/* What is behind the mapping is asked for, which may fail. */
Test(buffer_wrap, a_range_that_goes_on_where_the_driver_does_not_say) {
    static const char *const names[] = {"cuPointerGetAttribute", "cuPointerGetAttributes",
                                        "cuMemGetAddressRange"};
    core_need_emulated();
    own_memory own = own_memory_reserve(2);
    gpuipc_buffer *none = NULL;
    unsigned refused = 0;
    own_memory_map(&own, 0, 0, os_shareable_handle_type);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        uint64_t calls;
        unsigned number = 0;
        do {
            char failure[64];
            (void)snprintf(failure, sizeof(failure), "%s:%u=999", names[i], ++number);
            core_set_failures(failure);
            const gpuipc_status status =
                gpuipc_buffer_wrap(core_context, own.base, own.bytes, &none);
            calls = core_calls(names[i]);
            core_set_failures("");
            cr_assert_eq(status, calls < number ? GPUIPC_ERR_OUT_OF_RANGE : GPUIPC_ERR_CUDA,
                         "%s: %s", failure, gpuipc_error_get()->sentence);
            refused += status == GPUIPC_ERR_CUDA;
        } while (calls >= number);
    }
    cr_assert_geq(refused, 2);
    own_memory_undo(&own);
}
