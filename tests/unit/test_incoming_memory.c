/* SPDX-License-Identifier: MIT */
/** @file Memory of each kind as its packet comes: what a peer may say of it, and what that costs. */
#include "own_kinds.h"

#include <stdlib.h>
#include <string.h>

#include "message/incoming.h"

TestSuite(incoming_memory, .init = core_start, .fini = core_finish, .timeout = 60);

static context *inner(void) {
    context *ctx;
    check_ok(context_acquire(core_context, &ctx));
    context_unreference(ctx); /* the public handle keeps it */
    return ctx;
}

/* What one packet with one buffer and its segments says. */
typedef struct said {
    segment_memory memory;
    segment_naming naming;
    uint32_t segments;
    uint32_t group;
    uint64_t bytes;   /* of a segment */
    os_handle handle; /* none: no handle comes */
} said;

/* Takes one such message in. @return what it answers; OK and a failure that is remembered are the two
 * ways of refusing */
static gpuipc_status take(import_source *from, incoming *message, said what) {
    const wire_header header = {.kind = WIRE_MESSAGE,
                                .total_buffers = 1,
                                .total_segments = what.segments,
                                .buffers = 1,
                                .segments = (uint16_t)what.segments};
    const wire_buffer buffer = {.exporter_id = {7},
                                .bytes = 1,
                                .segment_count = what.segments,
                                .memory = (uint16_t)what.memory,
                                .handle_type = (uint16_t)os_shareable_handle_type,
                                .access = GPUIPC_ACCESS_READ_WRITE};
    const segment_record record = {
        .bytes = what.bytes, .naming = (uint16_t)what.naming, .group = what.group};
    uint8_t packet[WIRE_HEADER_BYTES + WIRE_BUFFER_BYTES + 4 * WIRE_SEGMENT_BYTES];
    os_handle handles[4];
    size_t count = 0;
    cr_assert_leq(what.segments, 4);
    wire_encode_header(&header, packet);
    wire_encode_buffer(&buffer, packet + WIRE_HEADER_BYTES);
    for (uint32_t i = 0; i < what.segments; i++) {
        wire_encode_segment(&record, packet + WIRE_HEADER_BYTES + WIRE_BUFFER_BYTES +
                                         (size_t)i * WIRE_SEGMENT_BYTES);
        if (os_handle_is_valid(what.handle)) {
            check_ok(os_handle_duplicate(what.handle, &handles[count++]));
        }
    }
    wire_packet decoded;
    check_ok(wire_decode_packet(packet, wire_packet_bytes(&header), count, &decoded));
    gpuipc_status status = incoming_add(message, from, 0, &decoded, handles, false);
    for (size_t i = 0; i < count; i++) {
        os_handle_close(&handles[i]);
    }
    return status;
}

static void check_costs_the_message(gpuipc_status expected, const char *text, import_source *from,
                                    said what) {
    incoming message = {0};
    check_ok(take(from, &message, what));
    cr_assert(message.complete);
    cr_assert_eq(message.failure.status, expected, "%s: %s",
                 gpuipc_status_name(message.failure.status), message.failure.sentence);
    cr_assert(strstr(message.failure.sentence, text) != NULL, "%s", message.failure.sentence);
    incoming_clear(&message, inner(), false);
}

static os_handle host_memory(uint64_t bytes) {
    os_handle handle;
    check_ok(os_memory_create("test", bytes, &handle));
    return handle;
}

Test(incoming_memory, a_segment_is_named_as_its_kind_of_memory_is) {
    static const said rows[] = {
        {SEGMENT_MEMORY_VMM, SEGMENT_NAMED_BY_NAME, 1, 0, 1, {-1}},
        {SEGMENT_MEMORY_VMM, SEGMENT_NAMED_BY_BOTH, 1, 0, 1, {0}},
        {SEGMENT_MEMORY_LEGACY, SEGMENT_NAMED_BY_HANDLE, 1, 0, 1, {0}},
        {SEGMENT_MEMORY_LEGACY, SEGMENT_NAMED_BY_BOTH, 1, 0, 1, {0}},
        {SEGMENT_MEMORY_POOL, SEGMENT_NAMED_BY_HANDLE, 1, 0, 1, {0}},
        {SEGMENT_MEMORY_HOST, SEGMENT_NAMED_BY_NAME, 1, 0, 1, {-1}},
        {SEGMENT_MEMORY_HOST, SEGMENT_NAMED_BY_BOTH, 1, 0, 1, {0}},
        {SEGMENT_MEMORY_FABRIC, SEGMENT_NAMED_BY_HANDLE, 1, 0, 1, {0}},
    };
    os_handle handle = host_memory(65536);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        import_source from = {.context = inner()};
        incoming message = {0};
        said what = rows[i];
        what.handle = what.naming == SEGMENT_NAMED_BY_NAME ? OS_HANDLE_NONE : handle;
        check_refused(GPUIPC_ERR_PROTOCOL, "not named as its kind of memory is",
                      take(&from, &message, what));
        incoming_clear(&message, inner(), false);
    }
    os_handle_close(&handle);
}

Test(incoming_memory, names_of_another_user_are_not_taken) {
    const os_peer other = {.process_id = 1, .same_user = false, .process = OS_HANDLE_NONE};
    os_handle handle = host_memory(65536);
    import_source from = {.context = inner(), .peer = &other};
    check_costs_the_message(GPUIPC_ERR_ACCESS_DENIED, "another user", &from,
                            (said){SEGMENT_MEMORY_LEGACY, SEGMENT_NAMED_BY_NAME, 1, 0, 1, {-1}});
    check_costs_the_message(GPUIPC_ERR_ACCESS_DENIED, "another user", &from,
                            (said){SEGMENT_MEMORY_POOL, SEGMENT_NAMED_BY_BOTH, 1, 1, 1, handle});
    check_costs_the_message(GPUIPC_ERR_ACCESS_DENIED, "another user", &from,
                            (said){SEGMENT_MEMORY_FABRIC, SEGMENT_NAMED_BY_NAME, 1, 0, 1, {-1}});
    os_handle_close(&handle);
}

Test(incoming_memory, legacy_stays_in_its_namespace) {
    const os_peer other = {.process_id = 4711,
                           .same_user = true,
                           .other_pid_namespace = true,
                           .process = OS_HANDLE_NONE};
    import_source from = {.context = inner(), .peer = &other};
    check_costs_the_message(GPUIPC_ERR_NOT_SUPPORTED, "PID namespace", &from,
                            (said){SEGMENT_MEMORY_LEGACY, SEGMENT_NAMED_BY_NAME, 1, 0, 1, {-1}});
}

Test(incoming_memory, what_is_one_allocation_has_one_segment) {
    os_handle handle = host_memory(65536);
    import_source from = {.context = inner()};
    check_costs_the_message(GPUIPC_ERR_SIZE_MISMATCH, "2 allocations", &from,
                            (said){SEGMENT_MEMORY_LEGACY, SEGMENT_NAMED_BY_NAME, 2, 0, 1, {-1}});
    check_costs_the_message(
        GPUIPC_ERR_SIZE_MISMATCH, "2 allocations", &from,
        (said){SEGMENT_MEMORY_HOST, SEGMENT_NAMED_BY_HANDLE, 2, 0, 65536, handle});
    if (inner()->driver.has_pool) {
        check_costs_the_message(
            GPUIPC_ERR_SIZE_MISMATCH, "2 allocations", &from,
            (said){SEGMENT_MEMORY_POOL, SEGMENT_NAMED_BY_BOTH, 2, 1, 1, handle});
    }
    os_handle_close(&handle);
    cr_assert_eq(from.pool_count, 0);
}

Test(incoming_memory, host_memory_is_what_it_is_said_to_be) {
    static const uint64_t wrong[] = {0, 1, 4096, 65535, 65537, 131072, UINT64_MAX};
    os_handle handle = host_memory(65536);
    import_source from = {.context = inner()};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        check_costs_the_message(
            GPUIPC_ERR_SIZE_MISMATCH, "is said to have", &from,
            (said){SEGMENT_MEMORY_HOST, SEGMENT_NAMED_BY_HANDLE, 1, 0, wrong[i], handle});
    }
    os_handle_close(&handle);
}

Test(incoming_memory, gpu_memory_is_no_host_memory) {
    gpuipc_buffer *buffer = core_buffer(core_unit, 0);
    gpuipc_native_segment exported;
    gpuipc_native_layout layout = {.struct_size = sizeof(layout)};
    size_t count = 0;
    os_handle handle;
    import_source from = {.context = inner()};
    check_ok(gpuipc_native_export(buffer, &exported, 1, &layout, &count));
    check_ok(os_handle_adopt(exported.handle.value, &handle));
    core_need_emulated(); /* a real handle of memory is a device file everywhere; the emulated one is
                             memory of the system, which its header tells from host memory */
    incoming message = {0};
    check_ok(take(&from, &message,
                  (said){SEGMENT_MEMORY_HOST, SEGMENT_NAMED_BY_HANDLE, 1, 0, core_unit, handle}));
    cr_assert_neq(message.failure.status, GPUIPC_OK);
    incoming_clear(&message, inner(), false);
    os_handle_close(&handle);
    check_ok(gpuipc_buffer_release(buffer));
}

/* ---- pools ------------------------------------------------------------------------------- */

static os_handle pool_handle(const own_kinds *own) {
    uint64_t written = 0;
    os_handle handle;
    cr_assert_eq(core_driver()->cuMemPoolExportToShareableHandle(
                     &written, own->pool, (CUmemAllocationHandleType)os_shareable_handle_type, 0),
                 CUDA_SUCCESS);
    check_ok(os_handle_adopt_exported(&written, &handle));
    return handle;
}

static said pooled(uint32_t group, os_handle handle) {
    return (said){SEGMENT_MEMORY_POOL,
                  os_handle_is_valid(handle) ? SEGMENT_NAMED_BY_BOTH : SEGMENT_NAMED_BY_NAME,
                  1,
                  group,
                  1,
                  handle};
}

Test(incoming_memory, a_pool_comes_before_its_memory) {
    core_enter_device(0);
    own_kinds own = own_kinds_make(OWN_POOL, 4096);
    os_handle handle = pool_handle(&own);
    os_handle wrong = host_memory(65536);
    import_source from = {.context = inner()};
    check_costs_the_message(GPUIPC_ERR_NOT_GPU_MEMORY, "pool 3 of the peer", &from,
                            pooled(3, OS_HANDLE_NONE));
    check_costs_the_message(GPUIPC_ERR_NOT_GPU_MEMORY, "is no pool", &from, pooled(3, wrong));
    check_costs_the_message(GPUIPC_ERR_NOT_GPU_MEMORY, "pool 3 of the peer", &from,
                            pooled(3, OS_HANDLE_NONE));
    check_costs_the_message(GPUIPC_OK, "", &from, pooled(3, handle));
    check_costs_the_message(GPUIPC_OK, "", &from, pooled(3, OS_HANDLE_NONE));
    check_costs_the_message(GPUIPC_OK, "", &from, pooled(3, handle)); /* again: no matter */
    check_costs_the_message(GPUIPC_ERR_NOT_GPU_MEMORY, "pool 4", &from, pooled(4, OS_HANDLE_NONE));
    cr_assert_eq(from.pool_count, 1);
    import_source_release(&from, false);
    os_handle_close(&wrong);
    os_handle_close(&handle);
    own_kinds_undo(&own);
}

Test(incoming_memory, two_connections_bring_one_pool) {
    core_enter_device(0);
    own_kinds own = own_kinds_make(OWN_POOL, 4096);
    os_handle handle = pool_handle(&own);
    import_source first = {.context = inner()};
    import_source second = {.context = inner()};
    check_costs_the_message(GPUIPC_OK, "", &first, pooled(1, handle));
    /* a name alone is good on the connection that brought the pool only */
    check_costs_the_message(GPUIPC_ERR_NOT_GPU_MEMORY, "pool 1", &second,
                            pooled(1, OS_HANDLE_NONE));
    check_costs_the_message(GPUIPC_OK, "", &second, pooled(1, handle));
    import_source_release(&first, false);
    check_costs_the_message(GPUIPC_OK, "", &second, pooled(1, OS_HANDLE_NONE));
    import_source_release(&second, false);
    os_handle_close(&handle);
    own_kinds_undo(&own);
}

Test(incoming_memory, pools_have_a_limit) {
    core_enter_device(0);
    own_kinds own = own_kinds_make(OWN_POOL, 4096);
    os_handle handle = pool_handle(&own);
    import_source from = {.context = inner()};
    for (uint32_t i = 0; i < IMPORT_SOURCE_POOLS_MAX; i++) {
        check_costs_the_message(GPUIPC_OK, "", &from, pooled(i, handle));
    }
    check_costs_the_message(GPUIPC_ERR_LIMIT, "more than 256 pools", &from,
                            pooled(IMPORT_SOURCE_POOLS_MAX, handle));
    check_costs_the_message(GPUIPC_OK, "", &from, pooled(0, OS_HANDLE_NONE));
    import_source_release(&from, false);
    os_handle_close(&handle);
    own_kinds_undo(&own);
}

/* Of whom nothing is known, it is not said that he has ended. */
Test(incoming_memory, a_source_has_ended_when_its_process_has) {
    const os_peer self = {
        .process_id = os_process_id(), .same_user = true, .process = OS_HANDLE_NONE};
    cr_assert_not(import_source_has_ended(&(import_source){.context = inner()}));
    cr_assert_not(import_source_has_ended(&(import_source){.context = inner(), .peer = &self}));
}
