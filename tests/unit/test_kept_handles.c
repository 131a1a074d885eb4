/* SPDX-License-Identifier: MIT */
/** @file Handles that stay from the first hand-over on, how a message is packed, and what a hand-over looks at. */
#include <stdlib.h>
#include <string.h>

#include "core_fixture.h"
#include "memory/buffer.h"
#include "memory/registry.h"
#include "message/connection.h"
#include "message/wire.h"
#include "sync/export_internal.h"

#define EXPORT "cuMemExportToShareableHandle"

static core_pair pair;
static gpuipc_listener *listener;
static gpuipc_connection *to_raw;
static os_connection *peer;

/* Without keep-alives, whose exports would be counted as well. @param most as max_kept_handles */
static void open_context(uint32_t most) {
    gpuipc_context_config config = core_context_config();
    config.flags = GPUIPC_CONTEXT_NO_KEEP_ALIVE;
    config.max_kept_handles = most;
    core_open_context(&config);
    core_need_emulated();
    core_pair_open(&pair, core_context, core_context);
    core_set_failures("");
}

/* A connection whose other end is this test, packet by packet. */
static void open_raw(void) {
    char name[UNIQUE_NAME_MAX];
    const os_directory directory = {core_directory, false};
    unique_name(name);
    check_ok(gpuipc_listener_open(core_context, name, NULL, &listener));
    check_ok(os_connection_open(&directory, name, os_deadline_after(SOON_MS), &peer));
    check_ok(gpuipc_listener_accept(listener, SOON_MS, &to_raw));
}

static void finish(void) {
    if (core_context != NULL) {
        core_set_failures("");
        (void)gpuipc_connection_close(to_raw);
        (void)gpuipc_listener_close(listener);
        if (peer != NULL) {
            os_connection_destroy(peer);
        }
        core_pair_close(&pair);
    }
    core_finish();
}

TestSuite(kept_handles, .init = core_start_without_context, .fini = finish, .timeout = 60);

static void hand_over(gpuipc_buffer *memory) {
    gpuipc_buffer *opened;
    check_ok(core_send(pair.client, &memory, 1));
    check_ok(core_receive(pair.server, &opened, 1));
    check_ok(gpuipc_buffer_release(opened));
}

static uint64_t exports_of(gpuipc_buffer *memory) {
    core_set_failures("");
    hand_over(memory);
    return core_calls(EXPORT);
}

static gpuipc_buffer *make(uint32_t segments) {
    return core_buffer(segments * core_unit, core_unit);
}

Test(kept_handles, a_buffer_is_exported_once) {
    open_context(0);
    gpuipc_buffer *memory = make(3);
    core_write_pattern(memory, 5);
    cr_assert_eq(exports_of(memory), 3);
    cr_assert_eq(exports_of(memory), 0);
    core_pair other;
    core_pair_open(&other, core_context, core_context);
    core_set_failures("");
    gpuipc_buffer *opened;
    check_ok(core_send(other.client, &memory, 1));
    check_ok(core_receive(other.server, &opened, 1));
    cr_assert_eq(core_calls(EXPORT), 0);
    core_check_pattern(opened, 5);
    check_ok(gpuipc_buffer_release(opened));
    core_pair_close(&other);
    check_ok(gpuipc_buffer_release(memory));
}

Test(kept_handles, there_is_a_most_and_a_release_makes_room) {
    open_context(4);
    gpuipc_buffer *first = make(3);
    gpuipc_buffer *second = make(2);
    cr_assert_eq(exports_of(first), 3);
    cr_assert_eq(exports_of(second), 2);
    cr_assert_eq(exports_of(first), 0);
    cr_assert_eq(exports_of(second), 1, "one had no room");
    check_ok(gpuipc_buffer_release(first));
    cr_assert_eq(exports_of(second), 1, "and is kept now");
    cr_assert_eq(exports_of(second), 0);
    check_ok(gpuipc_buffer_release(second));
}

Test(kept_handles, none_are_kept_when_none_are_wanted) {
    open_context(GPUIPC_KEEP_NONE);
    gpuipc_buffer *memory = make(2);
    cr_assert_eq(exports_of(memory), 2);
    cr_assert_eq(exports_of(memory), 2);
    check_ok(gpuipc_buffer_release(memory));
}

/* That others will open it makes the handle early, where it is kept. */
static uint64_t exports_of_making(void) {
    gpuipc_device_info info = {.struct_size = sizeof(info)};
    gpuipc_buffer *memory = NULL;
    check_ok(gpuipc_device_get_info(core_context, 0, &info));
    const gpuipc_buffer_config config = {.struct_size = sizeof(config),
                                         .bytes = core_unit,
                                         .openers = &info.uuid,
                                         .opener_count = 1};
    core_set_failures("");
    check_ok(gpuipc_buffer_create(core_context, &config, &memory));
    const uint64_t made = core_calls(EXPORT);
    cr_assert_eq(exports_of(memory), 1 - made);
    check_ok(gpuipc_buffer_release(memory));
    return made;
}

Test(kept_handles, memory_that_others_will_open_has_its_handle_early) {
    open_context(1);
    cr_assert_eq(exports_of_making(), 1);
    gpuipc_buffer *memory = make(1);
    cr_assert_eq(exports_of(memory), 1);
    cr_assert_eq(exports_of_making(), 0, "there is no room");
    check_ok(gpuipc_buffer_release(memory));
}

Test(kept_handles, an_export_that_fails_is_told_and_works_the_next_time) {
    open_context(0);
    gpuipc_buffer *memory = make(2);
    core_set_failures(EXPORT ":2=999");
    check_status(GPUIPC_ERR_CUDA, core_send(pair.client, &memory, 1));
    core_set_failures("");
    cr_assert_eq(exports_of(memory), 1);
    check_ok(gpuipc_buffer_release(memory));
}

/* The caller's are his: closing them takes nothing away. */
Test(kept_handles, a_native_export_gives_handles_of_its_own) {
    gpuipc_native_layout layout = {.struct_size = sizeof(layout)};
    gpuipc_native_segment segments[2];
    size_t count;
    open_context(0);
    gpuipc_buffer *memory = make(1);
    cr_assert_eq(exports_of(memory), 1);
    core_set_failures("");
    for (size_t i = 0; i < 2; i++) {
        check_ok(gpuipc_native_export(memory, &segments[i], 1, &layout, &count));
    }
    cr_assert_eq(core_calls(EXPORT), 0);
    cr_assert_neq(segments[0].handle.value, segments[1].handle.value);
    for (size_t i = 0; i < 2; i++) {
        os_handle handle;
        check_ok(os_handle_adopt(segments[i].handle.value, &handle));
        os_handle_close(&handle);
    }
    cr_assert_eq(exports_of(memory), 0);
    check_ok(gpuipc_buffer_release(memory));
}

typedef struct sending {
    gpuipc_connection *to;
    gpuipc_buffer *memory;
} sending;

static gpuipc_status send_often(void *argument) {
    const sending *self = argument;
    gpuipc_status status = GPUIPC_OK;
    for (unsigned i = 0; i < 20 && status == GPUIPC_OK; i++) {
        status = core_send(self->to, &self->memory, 1);
    }
    return status;
}

Test(kept_handles, many_connections_send_one_buffer_at_once) {
    enum {
        CONSUMERS = 4
    };
    core_pair pairs[CONSUMERS];
    core_waiter waiters[CONSUMERS];
    sending jobs[CONSUMERS];
    gpuipc_buffer *opened;
    open_context(0);
    gpuipc_buffer *memory = make(1);
    core_set_failures(EXPORT ":1=delay50");
    for (size_t i = 0; i < CONSUMERS; i++) {
        core_pair_open(&pairs[i], core_context, core_context);
        jobs[i] = (sending){pairs[i].client, memory};
        core_waiter_begin(&waiters[i], send_often, &jobs[i]);
    }
    for (size_t i = 0; i < CONSUMERS; i++) {
        for (unsigned number = 0; number < 20; number++) {
            check_ok(core_receive(pairs[i].server, &opened, 1));
            check_ok(gpuipc_buffer_release(opened));
        }
        check_ok(core_waiter_end(&waiters[i]));
        core_pair_close(&pairs[i]);
    }
    cr_assert_eq(core_calls(EXPORT), 1);
    check_ok(gpuipc_buffer_release(memory));
}

/* ---- packing ----------------------------------------------------------------------------- */

typedef struct mailing {
    gpuipc_buffer **buffers;
    size_t count;
    const void *bytes;
    size_t bytes_size;
} mailing;

static gpuipc_status mail(void *argument) {
    const mailing *self = argument;
    const gpuipc_outgoing message = {.struct_size = sizeof(message),
                                     .bytes = self->bytes,
                                     .bytes_size = self->bytes_size,
                                     .buffers = self->buffers,
                                     .buffer_count = self->count,
                                     .flags = GPUIPC_SEND_READY};
    return gpuipc_connection_send(to_raw, &message, SOON_MS);
}

typedef struct tally {
    uint32_t packets;
    uint32_t handles;
    uint64_t bytes;
    wire_header header; /* of the last */
} tally;

/* Takes packets until the message is whole. A buffer's record must have come before its segments, of which
 * each has @p segments. */
static tally take_message(uint32_t segments_each, uint8_t *bytes) {
    static uint8_t packet[OS_PACKET_BYTES_MAX];
    tally seen = {0};
    uint32_t buffers = 0;
    uint32_t segments = 0;
    do {
        os_handle handles[OS_PACKET_HANDLES_MAX];
        wire_packet decoded;
        size_t size;
        size_t count;
        check_ok(os_connection_receive(peer, packet, sizeof(packet), &size, handles, &count,
                                       os_deadline_after(SOON_MS)));
        check_ok(wire_decode_packet(packet, size, count, &decoded));
        for (size_t i = 0; i < count; i++) {
            os_handle_close(&handles[i]);
        }
        seen.packets++;
        if (decoded.header.kind != WIRE_MESSAGE) {
            continue;
        }
        seen.header = decoded.header;
        seen.handles += (uint32_t)count;
        if (bytes != NULL) {
            memcpy(bytes + seen.bytes, decoded.bytes, decoded.header.bytes);
        }
        seen.bytes += decoded.header.bytes;
        buffers += decoded.header.buffers;
        segments += decoded.header.segments;
        cr_assert_leq(segments, buffers * segments_each);
    } while (seen.header.kind != WIRE_MESSAGE || seen.bytes < seen.header.total_bytes ||
             buffers < seen.header.total_buffers || segments < seen.header.total_segments);
    return seen;
}

static tally send_same(gpuipc_buffer *memory, size_t count, uint32_t segments_each,
                       const void *bytes, size_t bytes_size, uint8_t *came) {
    mailing job = {calloc(count, sizeof(*job.buffers)), count, bytes, bytes_size};
    core_waiter waiter;
    cr_assert_not_null(job.buffers);
    for (size_t i = 0; i < count; i++) {
        job.buffers[i] = memory;
    }
    core_waiter_begin(&waiter, mail, &job);
    const tally seen = take_message(segments_each, came);
    check_ok(core_waiter_end(&waiter));
    free(job.buffers);
    return seen;
}

Test(kept_handles, a_thousand_buffers_take_five_packets) {
    open_context(0);
    open_raw();
    gpuipc_buffer *memory = make(1);
    core_set_failures("");
    const tally seen = send_same(memory, 1000, 1, "text", 4, NULL);
    cr_assert_eq(seen.packets, 5, "with that of the page: %u", seen.packets);
    cr_assert_eq(seen.handles, 1000);
    cr_assert_eq(core_calls(EXPORT), 1);
    cr_assert_eq(core_calls("cuDevicePrimaryCtxGetState"), 0, "they are said to be ready");
    cr_assert_eq(core_calls(NULL), 1, "no other call of the driver");
    cr_assert_eq(send_same(memory, 1000, 1, NULL, 0, NULL).packets, 4);
    check_ok(gpuipc_buffer_release(memory));
}

Test(kept_handles, the_segments_of_a_buffer_may_span_packets) {
    open_context(0);
    open_raw();
    gpuipc_buffer *memory = make(100);
    const tally seen = send_same(memory, 6, 100, NULL, 0, NULL);
    cr_assert_eq(seen.handles, 600);
    cr_assert_eq(seen.packets, 1 + 3);
    check_ok(gpuipc_buffer_release(memory));
}

Test(kept_handles, bytes_take_as_many_packets_as_they_need) {
    open_context(0);
    open_raw();
    gpuipc_buffer *memory = make(1);
    uint8_t *bytes = malloc(2 * (size_t)GPUIPC_MESSAGE_BYTES_MAX);
    cr_assert_not_null(bytes);
    uint8_t *came = bytes + GPUIPC_MESSAGE_BYTES_MAX;
    for (size_t i = 0; i < GPUIPC_MESSAGE_BYTES_MAX; i++) {
        bytes[i] = (uint8_t)(i * 7 + i / 251);
    }
    const size_t sizes[] = {GPUIPC_MESSAGE_BYTES_MAX, OS_PACKET_BYTES_MAX - WIRE_HEADER_BYTES,
                            OS_PACKET_BYTES_MAX - WIRE_HEADER_BYTES - WIRE_BUFFER_BYTES, 1};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        memset(came, 0, GPUIPC_MESSAGE_BYTES_MAX);
        const tally seen = send_same(memory, 1, 1, bytes, sizes[i], came);
        cr_assert_eq(seen.bytes, sizes[i]);
        cr_assert_eq(seen.handles, 1);
        cr_assert_eq(memcmp(bytes, came, sizes[i]), 0);
    }
    free(bytes);
    check_ok(gpuipc_buffer_release(memory));
}

/* ---- nothing grows with what is exported ------------------------------------------------------- */

/* Exported and given back, but for the forgetting: that is done a few at a time, and reaches all. */
Test(kept_handles, a_hand_over_forgets_a_few_of_those_that_came_back) {
    enum {
        COUNT = 100
    };
    buffer *exporting;
    gpuipc_buffer *handle = NULL;
    export_table *table;
    export_record *one;
    point at;
    context *ctx;
    connection *end;
    open_context(0);
    check_ok(context_acquire(core_context, &ctx));
    check_ok(connection_acquire(pair.client, &end));
    check_ok(export_table_new(ctx, end->other_end, &table));
    handle = core_buffer(core_unit, 0);
    check_ok(buffer_acquire(handle, &exporting));
    for (size_t i = 0; i < COUNT; i++) {
        check_ok(export_begin(table, &exporting->exports, &one, &at));
        const point_word released = point_released_word(&at);
        if (i % 2 == 0) {
            point_store(&released);
        }
    }
    for (unsigned call = 0; call < COUNT; call++) {
        const size_t before = exporting->exports.unreturned.count;
        check_ok(export_begin(table, &exporting->exports, &one, &at));
        cr_assert_leq(before + 1 - exporting->exports.unreturned.count, 4, "in one call");
        const point_word released = point_released_word(&at);
        point_store(&released);
    }
    cr_assert_lt(exporting->exports.unreturned.count, COUNT, "it comes round to all");
    export_forget(&exporting->exports, false);
    export_table_leave(table, false, false);
    buffer_unreference(exporting);
    check_ok(gpuipc_buffer_release(handle));
    connection_unreference(end);
    context_unreference(ctx);
}

/* Memory that ends with its owner lingers until it has come back. A release looks at a few that do, and in the
 * end at all. */
Test(kept_handles, a_release_looks_at_a_few_that_linger) {
    enum {
        COUNT = 20,
        SOME = 8
    };
    gpuipc_buffer *handles[COUNT];
    point points[COUNT];
    open_context(0);
    open_raw();
    for (size_t i = 0; i < COUNT; i++) {
        const gpuipc_buffer_config config = {.struct_size = sizeof(config),
                                             .transport = GPUIPC_TRANSPORT_FABRIC,
                                             .bytes = core_unit};
        check_ok(gpuipc_buffer_create(core_context, &config, &handles[i]));
    }
    mailing job = {handles, COUNT, NULL, 0};
    core_waiter waiter;
    core_waiter_begin(&waiter, mail, &job);
    cr_assert_eq(take_message(1, NULL).handles, 0);
    check_ok(core_waiter_end(&waiter));
    core_set_failures("");
    for (size_t i = 0; i < COUNT; i++) {
        buffer *exporting;
        check_ok(buffer_acquire(handles[i], &exporting));
        points[i] = LIST_ITEM(exporting->exports.unreturned.first, export_record, listed)->at;
        buffer_unreference(exporting);
        check_ok(gpuipc_buffer_release(handles[i]));
    }
    registry_sweep_some(NULL, false);
    cr_assert_eq(core_calls("cuMemRelease"), 0, "nothing has come back");
    for (size_t i = 0; i < COUNT; i++) {
        const point_word released = point_released_word(&points[i]);
        point_store(&released);
    }
    for (uint64_t calls = 1, ended = 0; ended < COUNT; calls++) {
        cr_assert_leq(calls, (COUNT + SOME - 1) / SOME, "it does not come round to all");
        registry_sweep_some(NULL, false);
        cr_assert_leq(core_calls("cuMemRelease") - ended, SOME);
        ended = core_calls("cuMemRelease");
    }
}
