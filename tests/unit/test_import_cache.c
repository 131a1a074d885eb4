/* SPDX-License-Identifier: MIT */
/** @file What stays of imports that are closed, and which records are of memory that is open already. */
#include "import_case.h"
#include "memory/import.h"
#include "message/incoming.h"

TestSuite(import_cache, .init = core_start_without_context, .fini = import_case_end, .timeout = 60);

static gpuipc_buffer *hand_over(gpuipc_buffer *own) {
    return import_case_hand_over(own, (import_how){0});
}

/* ---- the cache ------------------------------------------------------------------------------- */

Test(import_cache, the_cache_keeps_the_mappings_of_those_used_last) {
    import_case_begin(2);
    gpuipc_buffer *buffers[3];
    for (size_t i = 0; i < 3; i++) {
        buffers[i] = core_buffer(core_unit, 0);
        import_case_drop(hand_over(buffers[i]));
    }
    core_set_failures("");
    import_case_drop(hand_over(buffers[1]));
    import_case_calls(0, 0, 0, 0);
    import_case_drop(
        hand_over(buffers[0])); /* the one used last longest ago made room: it is 2 that goes now */
    import_case_calls(1, 1, 1, 1);
    import_case_drop(hand_over(buffers[1]));
    import_case_calls(0, 0, 0, 0);
    import_case_drop(hand_over(buffers[2]));
    import_case_calls(1, 1, 1, 1);
    cr_assert_eq(import_case_context()->imports->cached.count, 2);
    for (size_t i = 0; i < 3; i++) {
        import_case_drop(buffers[i]);
    }
}

Test(import_cache, what_is_open_is_not_counted_as_cached) {
    import_case_begin(1);
    gpuipc_buffer *buffers[3];
    gpuipc_buffer *opened[3];
    for (size_t i = 0; i < 3; i++) {
        buffers[i] = core_buffer(core_unit, 0);
        opened[i] = hand_over(buffers[i]);
    }
    cr_assert_eq(import_case_context()->imports->cached.count, 0);
    core_set_failures("");
    for (size_t i = 0; i < 3; i++) {
        import_case_drop(opened[i]);
        import_case_calls(0, 0, i > 0, i > 0);
        import_case_drop(buffers[i]);
        core_set_failures("");
    }
}

Test(import_cache, what_is_cached_of_a_connection_ends_with_it) {
    import_case_begin(8);
    gpuipc_buffer *own = core_buffer(core_unit, 0);
    gpuipc_buffer *other = core_buffer(core_unit, 0);
    import_case_drop(hand_over(own));
    gpuipc_buffer *opened = hand_over(other);
    core_set_failures("");
    core_pair_close(&import_pair);
    import_pair = (core_pair){0};
    import_case_calls(0, 0, 1, 1);
    import_case_drop(opened); /* nobody could name it any more */
    import_case_calls(0, 0, 1, 1);
    import_case_drop(own);
    import_case_drop(other);
}

Test(import_cache, one_mapping_for_each_device_and_access_stays) {
    import_case_begin(2);
    gpuipc_buffer *own = core_buffer(core_unit, 0);
    core_set_failures("");
    for (size_t i = 0; i < 8; i++) {
        gpuipc_buffer *opened =
            import_case_hand_over(own, (import_how){.access = GPUIPC_ACCESS_READ_WRITE});
        check_ok(gpuipc_buffer_set_access(opened, 0, GPUIPC_ACCESS_READ));
        import_case_drop(opened);
        import_case_calls(i == 0, 1, i > 0, 0); /* the next one to read has the first one's */
    }
    import_case_drop(import_case_hand_over(own, (import_how){.access = GPUIPC_ACCESS_READ}));
    import_case_calls(0, 0, 0, 0);
    import_case_drop(own);
}

/* ---- records made by hand ----------------------------------------------------------------------- */

typedef struct said {
    uint64_t connection;
    uint64_t buffer_id;
    uint32_t segments;
    uint64_t bytes; /* of each; 0: a unit */
    bool keeps;     /* its handles are kept */
} said;

/* A message with one buffer, whose segments are all the same memory. */
static void take(incoming *message, said what, os_handle memory) {
    import_source from = {.context = import_case_context(), .connection = what.connection};
    const wire_header header = {.kind = WIRE_MESSAGE,
                                .total_buffers = 1,
                                .total_segments = what.segments,
                                .buffers = 1,
                                .segments = (uint16_t)what.segments};
    const wire_buffer said_buffer = {.exporter_id = {9},
                                     .buffer_id = what.buffer_id,
                                     .bytes = 1,
                                     .segment_count = what.segments,
                                     .memory = SEGMENT_MEMORY_VMM,
                                     .handle_type = (uint16_t)os_shareable_handle_type,
                                     .access = GPUIPC_ACCESS_READ_WRITE};
    const segment_record record = {.bytes = what.bytes == 0 ? core_unit : what.bytes};
    uint8_t packet[WIRE_HEADER_BYTES + WIRE_BUFFER_BYTES + 4 * WIRE_SEGMENT_BYTES];
    os_handle handles[4];
    *message = (incoming){0};
    wire_encode_header(&header, packet);
    wire_encode_buffer(&said_buffer, packet + WIRE_HEADER_BYTES);
    for (uint32_t i = 0; i < what.segments; i++) {
        wire_encode_segment(&record, packet + WIRE_HEADER_BYTES + WIRE_BUFFER_BYTES +
                                         (size_t)i * WIRE_SEGMENT_BYTES);
        check_ok(os_handle_duplicate(memory, &handles[i]));
    }
    wire_packet decoded;
    check_ok(wire_decode_packet(packet, wire_packet_bytes(&header), what.segments, &decoded));
    check_ok(incoming_add(message, &from, 0, &decoded, handles, what.keeps));
    for (uint32_t i = 0; i < what.segments; i++) {
        os_handle_close(&handles[i]);
    }
    cr_assert(message->complete);
}

static void clear(incoming *message) {
    incoming_clear(message, import_case_context(), false);
}

/* A handle of a buffer of one unit. */
static os_handle memory_of(gpuipc_buffer *own) {
    gpuipc_native_segment exported;
    gpuipc_native_layout layout = {.struct_size = sizeof(layout)};
    size_t count = 0;
    os_handle memory;
    check_ok(gpuipc_native_export(own, &exported, 1, &layout, &count));
    check_ok(os_handle_adopt(exported.handle.value, &memory));
    core_set_failures("");
    return memory;
}

Test(import_cache, what_comes_again_is_found_and_what_another_connection_brought_is_not) {
    import_case_begin(8);
    gpuipc_buffer *own = core_buffer(core_unit, 0);
    os_handle memory = memory_of(own);
    incoming message;
    static const struct {
        said what;
        uint64_t imports;
    } rows[] = {
        {{1, 5, 1, 0, false}, 1}, {{1, 5, 1, 0, false}, 0}, /* the same */
        {{1, 6, 1, 0, false}, 1},                           /* another buffer */
        {{2, 5, 1, 0, false}, 1},                           /* another connection's */
        {{1, 6, 1, 0, false}, 0}, {{2, 5, 1, 0, false}, 0},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        take(&message, rows[i].what, memory);
        clear(&message);
        import_case_calls(rows[i].imports, 0, 0, 0);
    }
    import_forget_connection(import_case_context(), 1);
    import_case_calls(0, 0, 0, 2);
    cr_assert_eq(import_case_context()->imports->cached.count, 1);
    os_handle_close(&memory);
    import_case_drop(own);
}

Test(import_cache, what_is_open_must_be_what_the_message_says) {
    import_case_begin(0);
    gpuipc_buffer *own = core_buffer(core_unit, 0);
    os_handle memory = memory_of(own);
    incoming open;
    incoming other;
    static const said rows[] = {{1, 5, 1, 0, false}, {1, 5, 3, 0, false}, {1, 5, 2, 4096, false}};
    take(&open, (said){1, 5, 2, 0, false}, memory);
    check_ok(open.failure.status);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        core_set_failures("");
        take(&other, rows[i], memory);
        cr_assert_eq(other.failure.status, GPUIPC_ERR_SIZE_MISMATCH, "row %zu", i);
        clear(&other);
        import_case_calls(0, 0, 0, 0);
    }
    take(&other, (said){1, 5, 2, 0, false}, memory);
    check_ok(other.failure.status);
    cr_assert_eq(other.imports[0], open.imports[0]);
    clear(&open);
    clear(&other);
    os_handle_close(&memory);
    import_case_drop(own);
}

Test(import_cache, a_handle_that_nobody_imported_is_not_kept) {
    import_case_begin(0);
    gpuipc_buffer *own = core_buffer(core_unit, 0);
    os_handle memory = memory_of(own);
    os_handle other;
    incoming messages[4];
    const said plain = {1, 5, 1, 0, false};
    const said kept = {1, 5, 1, 0, true};
    check_ok(os_memory_create("gpuipc-test", 65536, &other));
    take(&messages[0], plain, memory);
    take(&messages[1], kept, other); /* what is open has none that could be kept */
    cr_assert_eq(messages[1].failure.status, GPUIPC_ERR_NOT_GPU_MEMORY);
    take(&messages[2], kept, memory);
    check_ok(messages[2].failure.status);
    cr_assert_neq(messages[2].imports[0], messages[0].imports[0]);
    core_set_failures("");
    take(&messages[3], kept, other); /* it is not looked at: the other's serves */
    check_ok(messages[3].failure.status);
    cr_assert_eq(messages[3].imports[0], messages[2].imports[0]);
    import_case_calls(0, 0, 0, 0);
    for (size_t i = 0; i < 4; i++) {
        clear(&messages[i]);
    }
    os_handle_close(&other);
    os_handle_close(&memory);
    import_case_drop(own);
}

Test(import_cache, one_kind_of_memory_is_not_taken_for_another) {
    import_case_begin(0);
    gpuipc_buffer *own = core_buffer(core_unit, 0);
    os_handle memory = memory_of(own);
    incoming message;
    import_key key = {.connection = 1, .exporter_id = {9}, .buffer_id = 5};
    take(&message, (said){.connection = 1, .buffer_id = 5, .segments = 1}, memory);
    key.memory = SEGMENT_MEMORY_FABRIC;
    cr_assert_null(import_find(import_case_context(), &key, false));
    key.memory = SEGMENT_MEMORY_VMM;
    import_memory *found = import_find(import_case_context(), &key, false);
    cr_assert_eq(found, message.imports[0]);
    import_unreference(import_case_context(), found, false);
    clear(&message);
    os_handle_close(&memory);
    import_case_drop(own);
}

Test(import_cache, ten_thousand_cost_what_ten_do) {
    enum {
        MANY = 10000
    };
    static incoming messages[MANY];
    import_case_begin(0);
    gpuipc_buffer *own = core_buffer(core_unit, 0);
    os_handle memory = memory_of(own);
    const import_table *table = import_case_context()->imports;
    for (uint64_t i = 0; i < MANY; i++) {
        take(&messages[i], (said){1, i, 1, 0, false}, memory);
        check_ok(messages[i].failure.status);
    }
    import_case_calls(MANY, 0, 0, 0);
    cr_assert_eq(table->by_buffer.count, MANY);
    cr_assert_geq(table->by_buffer.slot_count, MANY);
    for (uint64_t i = 0; i < MANY; i++) {
        const import_key key = {
            .connection = 1, .exporter_id = {9}, .buffer_id = i, .memory = SEGMENT_MEMORY_VMM};
        import_memory *found = import_find(import_case_context(), &key, false);
        cr_assert_eq(found, messages[i].imports[0], "%llu", (unsigned long long)i);
        import_unreference(import_case_context(), found, false);
        clear(&messages[i]);
    }
    import_case_calls(0, 0, 0, MANY);
    cr_assert_eq(table->by_buffer.count, 0);
    os_handle_close(&memory);
    import_case_drop(own);
}
