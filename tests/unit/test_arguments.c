/* SPDX-License-Identifier: MIT */
/** @file Every public function with arguments that are NULL, released, of another kind or made up: it
 *  answers, and nothing crashes. */
#include "core_fixture.h"

#include <string.h>

TestSuite(arguments, .init = core_start, .fini = core_finish, .timeout = 60);

typedef struct row {
    const char *call;
    gpuipc_status got;
} row;

#define ROW(call)                                                                                  \
    { #call, (call) }

static void check_rows(const row *rows, size_t count, gpuipc_status expected) {
    for (size_t i = 0; i < count; i++) {
        cr_assert_eq(rows[i].got, expected, "%s answered %s", rows[i].call,
                     gpuipc_status_name(rows[i].got));
    }
}

#define CHECK_ROWS(rows, expected) check_rows(rows, sizeof(rows) / sizeof((rows)[0]), expected)

/* Arguments that are right, for all parameters but the one in question. */
typedef struct good {
    gpuipc_context *context;
    gpuipc_buffer *buffer;
    gpuipc_listener *listener;
    gpuipc_connection *connection;
    gpuipc_context_info context_info;
    gpuipc_device_info device_info;
    gpuipc_buffer_info buffer_info;
    gpuipc_peer_info peer_info;
    gpuipc_buffer_config buffer_config;
    gpuipc_outgoing outgoing;
    gpuipc_incoming incoming;
    gpuipc_native_layout layout;
    gpuipc_native_segment segment;
    gpuipc_uuid uuid;
    uint32_t number;
    size_t count;
    uint8_t byte;
} good;

static good good_make(void) {
    good made = {.context_info = {.struct_size = sizeof(gpuipc_context_info)},
                 .device_info = {.struct_size = sizeof(gpuipc_device_info)},
                 .buffer_info = {.struct_size = sizeof(gpuipc_buffer_info)},
                 .peer_info = {.struct_size = sizeof(gpuipc_peer_info)},
                 .buffer_config = {.struct_size = sizeof(gpuipc_buffer_config), .bytes = 1},
                 .outgoing = {.struct_size = sizeof(gpuipc_outgoing)},
                 .incoming = {.struct_size = sizeof(gpuipc_incoming)},
                 .layout = {.struct_size = sizeof(gpuipc_native_layout), .bytes = 1},
                 .segment = {{0}, 1}};
    return made;
}

/* Every call that takes an object, with @p any in its place. */
static void check_objects(void *any, gpuipc_status expected) {
    good g = good_make();
    gpuipc_context *context = any;
    gpuipc_buffer *buffer = any;
    gpuipc_listener *listener = any;
    gpuipc_connection *connection = any;
    const row rows[] = {
        ROW(gpuipc_context_get_info(context, &g.context_info)),
        ROW(gpuipc_device_count(context, &g.number)),
        ROW(gpuipc_device_get_info(context, 0, &g.device_info)),
        ROW(gpuipc_device_find(context, &g.uuid, &g.number)),
        ROW(gpuipc_buffer_create(context, &g.buffer_config, &g.buffer)),
        ROW(gpuipc_buffer_wrap(context, 1, 1, &g.buffer)),
        ROW(gpuipc_buffer_retain(buffer)),
        ROW(gpuipc_buffer_get_info(buffer, &g.buffer_info)),
        ROW(gpuipc_buffer_set_access(buffer, 0, GPUIPC_ACCESS_READ)),
        ROW(gpuipc_buffer_copy_async(buffer, 0, buffer, 0, 1, NULL)),
        ROW(gpuipc_buffer_fill_async(buffer, 0, 1, 0, 1, NULL)),
        ROW(gpuipc_buffer_write(buffer, 0, &g.byte, 1)),
        ROW(gpuipc_buffer_read(buffer, 0, &g.byte, 1)),
        ROW(gpuipc_listener_open(context, "name", NULL, &g.listener)),
        ROW(gpuipc_listener_accept(listener, 0, &g.connection)),
        ROW(gpuipc_connection_open(context, "name", NULL, 0, &g.connection)),
        ROW(gpuipc_connection_get_peer(connection, &g.peer_info)),
        ROW(gpuipc_connection_send(connection, &g.outgoing, 0)),
        ROW(gpuipc_connection_receive(connection, &g.incoming, 0)),
        ROW(gpuipc_native_export(buffer, &g.segment, 1, &g.layout, &g.count)),
        ROW(gpuipc_native_import(context, &g.segment, 1, &g.layout, 0, GPUIPC_ACCESS_READ,
                                 &g.buffer)),
    };
    CHECK_ROWS(rows, expected);
    cr_assert(g.buffer == NULL && g.listener == NULL && g.connection == NULL && g.number == 0);
}

/* The calls that give an object up take NULL for "nothing to do". */
static void check_releases(void *any, gpuipc_status expected) {
    const row rows[] = {
        ROW(gpuipc_context_destroy(any)),
        ROW(gpuipc_buffer_release(any)),
        ROW(gpuipc_listener_close(any)),
        ROW(gpuipc_connection_close(any)),
    };
    CHECK_ROWS(rows, expected);
}

Test(arguments, objects_that_are_null) {
    check_objects(NULL, GPUIPC_ERR_INVALID_ARGUMENT);
    cr_assert(strstr(gpuipc_error_get()->sentence, "NULL") != NULL);
    check_releases(NULL, GPUIPC_OK);
}

Test(arguments, objects_that_never_were) {
    static uint64_t memory[64];
    void *const values[] = {(void *)1, (void *)UINTPTR_MAX, (void *)(uintptr_t)0x12345677, memory,
                            (char *)memory + 1};
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        check_objects(values[i], GPUIPC_ERR_RELEASED);
        check_releases(values[i], GPUIPC_ERR_RELEASED);
    }
}

Test(arguments, objects_that_were_released) {
    gpuipc_buffer *buffer = core_buffer(1, 0);
    check_ok(gpuipc_buffer_release(buffer));
    check_objects(buffer, GPUIPC_ERR_RELEASED);
    check_releases(buffer, GPUIPC_ERR_RELEASED);
}

Test(arguments, objects_of_another_kind) {
    good g = good_make();
    gpuipc_buffer *buffer = core_buffer(1, 0);
    core_pair pair;
    core_pair_open(&pair, core_context, core_context);
    void *const as_context[] = {buffer, pair.listener, pair.client};
    void *const as_buffer[] = {core_context, pair.listener, pair.client};
    void *const as_listener[] = {core_context, buffer, pair.client};
    void *const as_connection[] = {core_context, buffer, pair.listener};
    for (size_t i = 0; i < 3; i++) {
        const row rows[] = {
            ROW(gpuipc_context_get_info(as_context[i], &g.context_info)),
            ROW(gpuipc_context_destroy(as_context[i])),
            ROW(gpuipc_buffer_get_info(as_buffer[i], &g.buffer_info)),
            ROW(gpuipc_buffer_release(as_buffer[i])),
            ROW(gpuipc_listener_accept(as_listener[i], 0, &g.connection)),
            ROW(gpuipc_listener_close(as_listener[i])),
            ROW(gpuipc_connection_receive(as_connection[i], &g.incoming, 0)),
            ROW(gpuipc_connection_close(as_connection[i])),
        };
        CHECK_ROWS(rows, GPUIPC_ERR_RELEASED);
    }
    check_ok(gpuipc_buffer_release(buffer));
    core_pair_close(&pair);
}

Test(arguments, places_for_results_that_are_null) {
    good g = good_make();
    gpuipc_buffer *buffer = core_buffer(1, 0);
    core_pair pair;
    core_pair_open(&pair, core_context, core_context);
    const row rows[] = {
        ROW(gpuipc_context_create(NULL, NULL)),
        ROW(gpuipc_context_get_info(core_context, NULL)),
        ROW(gpuipc_device_count(core_context, NULL)),
        ROW(gpuipc_device_get_info(core_context, 0, NULL)),
        ROW(gpuipc_device_find(core_context, &g.uuid, NULL)),
        ROW(gpuipc_device_find(core_context, NULL, &g.number)),
        ROW(gpuipc_buffer_create(core_context, &g.buffer_config, NULL)),
        ROW(gpuipc_buffer_create(core_context, NULL, &g.buffer)),
        ROW(gpuipc_buffer_wrap(core_context, 1, 1, NULL)),
        ROW(gpuipc_buffer_get_info(buffer, NULL)),
        ROW(gpuipc_buffer_copy_async(buffer, 0, NULL, 0, 1, NULL)),
        ROW(gpuipc_buffer_copy_async(NULL, 0, buffer, 0, 1, NULL)),
        ROW(gpuipc_buffer_write(buffer, 0, NULL, 1)),
        ROW(gpuipc_buffer_read(buffer, 0, NULL, 1)),
        ROW(gpuipc_listener_open(core_context, "name", NULL, NULL)),
        ROW(gpuipc_listener_open(core_context, NULL, NULL, &g.listener)),
        ROW(gpuipc_listener_accept(pair.listener, 0, NULL)),
        ROW(gpuipc_connection_open(core_context, "name", NULL, 0, NULL)),
        ROW(gpuipc_connection_open(core_context, NULL, NULL, 0, &g.connection)),
        ROW(gpuipc_connection_get_peer(pair.client, NULL)),
        ROW(gpuipc_connection_send(pair.client, NULL, 0)),
        ROW(gpuipc_connection_receive(pair.client, NULL, 0)),
        ROW(gpuipc_native_export(buffer, NULL, 1, &g.layout, &g.count)),
        ROW(gpuipc_native_export(buffer, &g.segment, 1, NULL, &g.count)),
        ROW(gpuipc_native_export(buffer, &g.segment, 1, &g.layout, NULL)),
        ROW(gpuipc_native_import(core_context, NULL, 1, &g.layout, 0, GPUIPC_ACCESS_READ,
                                 &g.buffer)),
        ROW(gpuipc_native_import(core_context, &g.segment, 1, NULL, 0, GPUIPC_ACCESS_READ,
                                 &g.buffer)),
        ROW(gpuipc_native_import(core_context, &g.segment, 1, &g.layout, 0, GPUIPC_ACCESS_READ,
                                 NULL)),
    };
    CHECK_ROWS(rows, GPUIPC_ERR_INVALID_ARGUMENT);
    cr_assert(g.buffer == NULL && g.listener == NULL && g.connection == NULL);
    check_ok(gpuipc_buffer_release(buffer));
    core_pair_close(&pair);
}

Test(arguments, struct_sizes_that_are_zero) {
    good g = good_make();
    gpuipc_context_config context_config = {0};
    gpuipc_endpoint_config endpoint_config = {0};
    gpuipc_buffer *buffer = core_buffer(1, 0);
    core_pair pair;
    core_pair_open(&pair, core_context, core_context);
    g.context_info.struct_size = g.device_info.struct_size = g.buffer_info.struct_size = 0;
    g.peer_info.struct_size = g.buffer_config.struct_size = g.layout.struct_size = 0;
    g.outgoing.struct_size = g.incoming.struct_size = 0;
    const row rows[] = {
        ROW(gpuipc_context_create(&context_config, &g.context)),
        ROW(gpuipc_context_get_info(core_context, &g.context_info)),
        ROW(gpuipc_device_get_info(core_context, 0, &g.device_info)),
        ROW(gpuipc_buffer_create(core_context, &g.buffer_config, &g.buffer)),
        ROW(gpuipc_buffer_get_info(buffer, &g.buffer_info)),
        ROW(gpuipc_listener_open(core_context, "name", &endpoint_config, &g.listener)),
        ROW(gpuipc_connection_open(core_context, "name", &endpoint_config, 0, &g.connection)),
        ROW(gpuipc_connection_get_peer(pair.client, &g.peer_info)),
        ROW(gpuipc_connection_send(pair.client, &g.outgoing, 0)),
        ROW(gpuipc_connection_receive(pair.client, &g.incoming, 0)),
        ROW(gpuipc_native_export(buffer, &g.segment, 1, &g.layout, &g.count)),
        ROW(gpuipc_native_import(core_context, &g.segment, 1, &g.layout, 0, GPUIPC_ACCESS_READ,
                                 &g.buffer)),
    };
    CHECK_ROWS(rows, GPUIPC_ERR_STRUCT_SIZE);
    check_ok(gpuipc_buffer_release(buffer));
    core_pair_close(&pair);
}

/* ---- programs that were compiled against version 0.1 -------------------------------------- */

/* Up to the last member of each struct there, without what may pad it; these never change. */
enum {
    CONTEXT_CONFIG_0_1 = 56,
    CONTEXT_INFO_0_1 = 548,
    DEVICE_INFO_0_1 = 476,
    BUFFER_CONFIG_0_1 = 32,
    BUFFER_INFO_0_1 = 96,
    ENDPOINT_CONFIG_0_1 = 24,
    PEER_INFO_0_1 = 216,
    OUTGOING_0_1 = 56,
    INCOMING_0_1 = 72,
    NATIVE_LAYOUT_0_1 = 40
};

/* Every call that takes a struct, with one that is @p less than it was. */
static void check_first_release(size_t less, gpuipc_status expected) {
    good g = good_make();
    gpuipc_context_config context_config = {.runtime_directory = core_directory};
    gpuipc_endpoint_config endpoint_config = {0};
    gpuipc_buffer *opened = NULL;
    gpuipc_buffer *const buffer = core_buffer(1, 0);
    core_pair pair;
    core_pair_open(&pair, core_context, core_context);
    context_config.struct_size = CONTEXT_CONFIG_0_1 - less;
    g.context_info.struct_size = CONTEXT_INFO_0_1 - less;
    g.device_info.struct_size = DEVICE_INFO_0_1 - less;
    g.buffer_config.struct_size = BUFFER_CONFIG_0_1 - less;
    g.buffer_info.struct_size = BUFFER_INFO_0_1 - less;
    endpoint_config.struct_size = ENDPOINT_CONFIG_0_1 - less;
    g.peer_info.struct_size = PEER_INFO_0_1 - less;
    g.outgoing.struct_size = OUTGOING_0_1 - less;
    g.incoming.struct_size = INCOMING_0_1 - less;
    g.layout.struct_size = NATIVE_LAYOUT_0_1 - less;

    check_status(expected, gpuipc_context_create(&context_config, &g.context));
    check_status(expected, gpuipc_context_get_info(core_context, &g.context_info));
    check_status(expected, gpuipc_device_get_info(core_context, 0, &g.device_info));
    check_status(expected, gpuipc_buffer_create(core_context, &g.buffer_config, &g.buffer));
    check_status(expected, gpuipc_buffer_get_info(buffer, &g.buffer_info));
    check_status(expected,
                 gpuipc_listener_open(core_context, "name", &endpoint_config, &g.listener));
    check_status(expected, gpuipc_connection_open(core_context, pair.name, &endpoint_config,
                                                  SOON_MS, &g.connection));
    check_status(expected, gpuipc_connection_get_peer(pair.client, &g.peer_info));
    check_status(expected, gpuipc_connection_send(pair.client, &g.outgoing, SOON_MS));
    check_status(expected,
                 gpuipc_connection_receive(expected == GPUIPC_OK ? pair.server : pair.client,
                                           &g.incoming, SOON_MS));
    check_status(expected, gpuipc_native_export(buffer, &g.segment, 1, &g.layout, &g.count));
    check_status(expected, gpuipc_native_import(core_context, &g.segment, 1, &g.layout, 0,
                                                GPUIPC_ACCESS_DEFAULT, &opened));
    if (expected == GPUIPC_OK) {
        os_handle handle;
        check_ok(os_handle_adopt(g.segment.handle.value, &handle));
        os_handle_close(&handle);
        cr_assert_eq(g.context_info.device_count, core_device_count);
        cr_assert_eq(g.device_info.granularity_bytes, core_unit);
        cr_assert_eq(g.buffer_info.bytes, 1);
    }
    check_ok(gpuipc_buffer_release(opened));
    check_ok(gpuipc_connection_close(g.connection));
    check_ok(gpuipc_listener_close(g.listener));
    check_ok(gpuipc_buffer_release(g.buffer));
    check_ok(gpuipc_context_destroy(g.context));
    check_ok(gpuipc_buffer_release(buffer));
    core_pair_close(&pair);
}

Test(arguments, structs_of_the_first_release_are_understood) {
    check_first_release(0, GPUIPC_OK);
}

Test(arguments, structs_shorter_than_in_the_first_release_are_refused) {
    for (size_t less = 1; less <= ENDPOINT_CONFIG_0_1; less++) {
        check_first_release(less, GPUIPC_ERR_STRUCT_SIZE);
    }
}
