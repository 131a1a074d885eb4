/* SPDX-License-Identifier: MIT */
/** @file The bytes by which memory is named to another process: what is in them, and that one allocation may
 *  have several. */
#include "own_kinds.h"

#include <stdlib.h>
#include <string.h>

#include "memory/buffer.h"
#include "transport/transport.h"

TestSuite(transport_names, .init = core_start, .fini = core_finish, .timeout = 60);

static context *inner(void) {
    context *ctx;
    check_ok(context_acquire(core_context, &ctx));
    context_unreference(ctx); /* the public handle keeps it */
    return ctx;
}

static os_handle pool_handle(const own_kinds *own) {
    uint64_t written = 0;
    os_handle handle;
    cr_assert_eq(core_driver()->cuMemPoolExportToShareableHandle(
                     &written, own->pool, (CUmemAllocationHandleType)os_shareable_handle_type, 0),
                 CUDA_SUCCESS);
    check_ok(os_handle_adopt_exported(&written, &handle));
    return handle;
}

static void dirty_the_stack(uint8_t value) {
    volatile uint8_t room[8192];
    for (size_t i = 0; i < sizeof(room); i++) {
        room[i] = value;
    }
}

/* The driver leaves part of a name as it was: what the stack holds is nothing for the peer. */
Test(transport_names, names_have_nothing_of_the_stack) {
    static const own_kind kinds[] = {OWN_POOL, OWN_PLAIN};
    core_enter_device(0);
    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        own_kinds own = own_kinds_make(kinds[k], 4096);
        uint8_t names[2][SEGMENT_NAME_BYTES];
        for (size_t i = 0; i < 2; i++) {
            gpuipc_buffer *wrapped = NULL;
            buffer *seen;
            dirty_the_stack(i == 0 ? 0xa5 : 0x5a);
            check_ok(gpuipc_buffer_wrap(core_context, own.address, own.bytes, &wrapped));
            check_ok(buffer_acquire(wrapped, &seen));
            memcpy(names[i], seen->segments[0].name, sizeof(names[i]));
            buffer_unreference(seen);
            check_ok(gpuipc_buffer_release(wrapped));
        }
        cr_assert_arr_eq(names[0], names[1], sizeof(names[0]));
        for (size_t i = 48; i < SEGMENT_NAME_BYTES && kinds[k] == OWN_POOL && core_is_emulated;
             i++) {
            cr_assert_eq(names[0][i], 0, "byte %zu is 0x%02x", i, names[0][i]);
        }
        own_kinds_undo(&own);
    }
}

/* Memory of the pool, as a process opens it that got this name of it over a connection. */
static buffer *open_named(import_source *from, uint8_t exporter, os_handle handle,
                          const uint8_t *name) {
    segment_record piece = {.bytes = 4096, .naming = SEGMENT_NAMED_BY_BOTH, .group = 1};
    buffer_source source = {.transport = transport_find(GPUIPC_TRANSPORT_POOL),
                            .from = from,
                            .owner_uuid = inner()->devices[0].info.uuid,
                            .bytes = 4096,
                            .access_limit = GPUIPC_ACCESS_READ_WRITE,
                            .exporter_id = {exporter}};
    buffer *opened = NULL;
    segment *segments = malloc(sizeof(*segments));
    cr_assert_not_null(segments);
    memcpy(piece.name, name, sizeof(piece.name));
    from->exporter_id = source.exporter_id;
    from->segment_count = 1;
    check_ok(source.transport->import_segment(from, &piece, &handle, false, &segments[0]));
    check_ok(buffer_open(inner(), &source, segments, 1, GPUIPC_DEVICE_OWNER, GPUIPC_ACCESS_DEFAULT,
                         &opened));
    from->exporter_id = NULL;
    return opened;
}

static bool is_there(CUdeviceptr address) {
    CUdeviceptr base = 0;
    size_t bytes = 0;
    return core_driver()->cuMemGetAddressRange(&base, &bytes, address) == CUDA_SUCCESS;
}

/* Two contexts of a sender share its pool, and what each says of it is its own; and the driver leaves bytes
 * of a name as they were. There is one pool and one pointer all the same, which the driver does not count. */
Test(transport_names, one_allocation_may_have_several_names) {
    core_enter_device(0);
    own_kinds own = own_kinds_make(OWN_POOL, 4096);
    os_handle handle = pool_handle(&own);
    import_source first = {.context = inner()};
    import_source second = {.context = inner()};
    CUmemPoolPtrExportData name = {{0}};
    cr_assert_eq(core_driver()->cuMemPoolExportPointer(&name, own.address), CUDA_SUCCESS);
    buffer *one = open_named(&first, 7, handle, name.reserved);
    name.reserved[63] = 0xa5;
    buffer *other = open_named(&second, 8, handle, name.reserved);
    const CUdeviceptr address = one->mapping.base;
    cr_assert_eq(other->mapping.base, address);
    buffer_unreference(one);
    import_source_release(&first, false);
    cr_assert(is_there(address), "the other buffer's memory was closed");
    buffer_unreference(other);
    cr_assert(!is_there(address));
    import_source_release(&second, false);
    os_handle_close(&handle);
    own_kinds_undo(&own);
}

/* ---- what comes home --------------------------------------------------------------------------- */

static buffer *own_buffer(gpuipc_buffer **out_handle) {
    const gpuipc_buffer_config config = {
        .struct_size = sizeof(config), .transport = GPUIPC_TRANSPORT_LEGACY, .bytes = 65536};
    buffer *self;
    check_ok(gpuipc_buffer_create(core_context, &config, out_handle));
    check_ok(buffer_acquire(*out_handle, &self));
    check_ok(buffer_check_export(self, NULL));
    buffer_unreference(self);
    return self;
}

/* Of the segments, what a message says the buffer is. */
static uint64_t range_offset;
static uint64_t range_bytes = 1;

/* As a message says it that names this buffer of this process. */
static gpuipc_status open_own(context *ctx, const buffer *named, gpuipc_transport as,
                              const segment *piece, uint32_t count) {
    import_source from = {.context = ctx};
    buffer_source source = {.transport = transport_find(as),
                            .from = &from,
                            .owner_uuid = ctx->devices[0].info.uuid,
                            .offset = range_offset,
                            .bytes = range_bytes,
                            .access_limit = GPUIPC_ACCESS_READ_WRITE,
                            .buffer_id = named->buffer_id};
    buffer *opened = NULL;
    segment *segments = malloc(count * sizeof(*segments));
    cr_assert_not_null(segments);
    memcpy(source.exporter_id, named->exporter_id, sizeof(source.exporter_id));
    for (uint32_t i = 0; i < count; i++) {
        segments[i] = SEGMENT_NONE;
        segments[i].bytes = piece->bytes;
        memcpy(segments[i].name, piece->name, sizeof(piece->name));
    }
    const gpuipc_status status = buffer_open(ctx, &source, segments, count, GPUIPC_DEVICE_OWNER,
                                             GPUIPC_ACCESS_DEFAULT, &opened);
    if (status == GPUIPC_OK) {
        cr_assert_eq(opened->original, named);
        buffer_unreference(opened);
    } else {
        free(segments);
    }
    return status;
}

static void check_is_not_given(context *ctx, const buffer *named, gpuipc_transport as,
                               const segment *piece, uint32_t count) {
    check_refused(GPUIPC_ERR_NOT_GPU_MEMORY, "that it does not have",
                  open_own(ctx, named, as, piece, count));
}

/* Who knows the number of a buffer of this process, but not its name, is not given it. */
Test(transport_names, a_peer_that_names_a_buffer_of_this_process_must_know_it) {
    gpuipc_buffer *handle = NULL;
    const buffer *named = own_buffer(&handle);
    segment piece = SEGMENT_NONE;
    piece.bytes = named->segments[0].bytes;
    memcpy(piece.name, named->segments[0].name, sizeof(piece.name));
    check_ok(open_own(inner(), named, GPUIPC_TRANSPORT_LEGACY, &piece, 1));
    check_is_not_given(inner(), named, GPUIPC_TRANSPORT_POOL, &piece, 1);
    check_is_not_given(inner(), named, GPUIPC_TRANSPORT_LEGACY, &piece, 2);
    piece.bytes++;
    check_is_not_given(inner(), named, GPUIPC_TRANSPORT_LEGACY, &piece, 1);
    piece.bytes--;
    piece.name[SEGMENT_NAME_BYTES - 1] ^= 1;
    check_is_not_given(inner(), named, GPUIPC_TRANSPORT_LEGACY, &piece, 1);
    check_ok(gpuipc_buffer_release(handle));
}

/* Two drivers in one process have nothing in common: an address of one is none of the other. */
Test(transport_names, a_buffer_of_another_driver_is_not_given) {
    gpuipc_buffer *handle = NULL;
    gpuipc_context *other = NULL;
    context *ctx;
    segment piece = SEGMENT_NONE;
    const buffer *named = own_buffer(&handle);
    gpuipc_context_config config = core_context_config();
    config.driver = os_library_path(core_driver()->library);
    check_ok(gpuipc_context_create(&config, &other));
    check_ok(context_acquire(other, &ctx));
    piece.bytes = named->segments[0].bytes;
    memcpy(piece.name, named->segments[0].name, sizeof(piece.name));
    check_is_not_given(ctx, named, GPUIPC_TRANSPORT_LEGACY, &piece, 1);
    context_unreference(ctx);
    check_ok(gpuipc_context_destroy(other));
    check_ok(gpuipc_buffer_release(handle));
}

Test(transport_names, a_buffer_lies_in_the_segments_that_came_with_it) {
    gpuipc_buffer *handle = NULL;
    const buffer *named = own_buffer(&handle);
    segment piece = SEGMENT_NONE;
    piece.bytes = named->segments[0].bytes;
    memcpy(piece.name, named->segments[0].name, sizeof(piece.name));
    const struct {
        uint64_t offset;
        uint64_t bytes;
    } rows[] = {{0, 0},          {piece.bytes + 1, 1}, {piece.bytes, 1}, {0, piece.bytes + 1},
                {1, UINT64_MAX}, {UINT64_MAX, 1}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        range_offset = rows[i].offset;
        range_bytes = rows[i].bytes;
        check_refused(GPUIPC_ERR_SIZE_MISMATCH, "does not lie in the segments",
                      open_own(inner(), named, GPUIPC_TRANSPORT_LEGACY, &piece, 1));
    }
    range_offset = 0;
    range_bytes = piece.bytes;
    check_ok(open_own(inner(), named, GPUIPC_TRANSPORT_LEGACY, &piece, 1));
    check_ok(gpuipc_buffer_release(handle));
}

/* Each of two drivers has its pool, although both are called alike. */
Test(transport_names, two_drivers_have_two_pools) {
    gpuipc_context *other = NULL;
    gpuipc_buffer *made[2] = {NULL, NULL};
    const gpuipc_buffer_config config = {
        .struct_size = sizeof(config), .transport = GPUIPC_TRANSPORT_POOL, .bytes = 65536};
    gpuipc_context_config by_path = core_context_config();
    gpuipc_status status = gpuipc_buffer_create(core_context, &config, &made[0]);
    if (status == GPUIPC_ERR_NOT_SUPPORTED) {
        cr_skip_test("this system shares no pools");
    }
    check_ok(status);
    by_path.driver = os_library_path(core_driver()->library);
    check_ok(gpuipc_context_create(&by_path, &other));
    if (core_is_emulated) {
        core_set_failures("");
    }
    check_ok(gpuipc_buffer_create(other, &config, &made[1]));
    cr_assert(!core_is_emulated || core_calls("cuMemPoolCreate") == 1);
    check_ok(gpuipc_buffer_release(made[1]));
    check_ok(gpuipc_buffer_release(made[0]));
    check_ok(gpuipc_context_destroy(other));
}
