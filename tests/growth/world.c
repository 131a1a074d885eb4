/* SPDX-License-Identifier: MIT */
/** @file See growth.h: what calls are made about. Both ends of a connection are in this process, but for the peer's. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "growth.h"
#include "os.h"

growth_world world;
growth_item growth_items[GROWTH_ITEMS];

void growth_fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    (void)fputs("growth.calls: ", stderr);
    (void)vfprintf(stderr, format, arguments);
    va_end(arguments);
    (void)fputc('\n', stderr);
    exit(1);
}

void growth_must(gpuipc_status status, const char *what) {
    if (status != GPUIPC_OK) {
        growth_fail("%s: %s", what, gpuipc_error_text());
    }
}

void growth_must_cuda(CUresult result, const char *what) {
    if (result != CUDA_SUCCESS) {
        growth_fail("%s: CUresult %d", what, (int)result);
    }
}

gpuipc_context *growth_context(uint32_t flags) {
    const gpuipc_context_config config = {
        .struct_size = sizeof(config), .runtime_directory = world.directory, .flags = flags};
    gpuipc_context *made = NULL;
    MUST(gpuipc_context_create(&config, &made));
    return made;
}

gpuipc_buffer *growth_buffer(gpuipc_context *within) {
    const gpuipc_buffer_config config = {.struct_size = sizeof(config), .bytes = GROWTH_BYTES};
    gpuipc_buffer *made = NULL;
    MUST(gpuipc_buffer_create(within, &config, &made));
    return made;
}

void growth_pair(gpuipc_listener *listener, const char *name, gpuipc_context *client_of,
                 gpuipc_connection **out_client, gpuipc_connection **out_accepted) {
    MUST(gpuipc_connection_open(client_of, name, NULL, GROWTH_SOON_MS, out_client));
    MUST(gpuipc_listener_accept(listener, GROWTH_SOON_MS, out_accepted));
}

gpuipc_buffer *growth_hand_over(gpuipc_buffer *sent, uint32_t send_flags, uint32_t receive_flags) {
    gpuipc_buffer *received = NULL;
    const gpuipc_outgoing out = {
        .struct_size = sizeof(out), .buffers = &sent, .buffer_count = 1, .flags = send_flags};
    gpuipc_incoming in = {.struct_size = sizeof(in),
                          .buffers = &received,
                          .buffer_capacity = 1,
                          .flags = receive_flags};
    MUST(gpuipc_connection_send(world.client, &out, GROWTH_SOON_MS));
    MUST(gpuipc_connection_receive(world.accepted, &in, GROWTH_SOON_MS));
    return received;
}

void growth_synchronize(void) {
    MUST_CUDA(world.driver.cuStreamSynchronize(NULL));
}

void growth_hear(child_process *from, const char *expected, bool serves) {
    char line[CHILD_LINE_MAX] = "";
    gpuipc_status status;
    do {
        status = child_read_line(from, line, sizeof(line), serves ? 0 : GROWTH_SOON_MS);
        if (status == GPUIPC_ERR_TIMEOUT && serves) {
            const gpuipc_status served = gpuipc_server_poll(world.server, 10);
            if (served != GPUIPC_ERR_TIMEOUT) {
                MUST(served);
            }
        }
    } while (status == GPUIPC_ERR_TIMEOUT && serves);
    MUST(status);
    if (strcmp(line, expected) != 0) {
        growth_fail("another process said \"%s\", not \"%s\"", line, expected);
    }
}

/* ---- parts ---------------------------------------------------------------------------------------------- */

static void enter_driver(void) {
    const char *choice = os_environment("GPUIPC_CUDA_DRIVER");
    CUcontext primary;
    MUST(driver_open(choice, &world.driver));
    MUST_CUDA(world.driver.cuDevicePrimaryCtxRetain(&primary, 0));
    MUST_CUDA(world.driver.cuCtxSetCurrent(primary));
    MUST_CUDA(world.driver.cuStreamCreate(&world.sends, CU_STREAM_NON_BLOCKING));
    MUST_CUDA(world.driver.cuStreamCreate(&world.receives, CU_STREAM_NON_BLOCKING));
}

static void begin_messages(void) {
    unique_name(world.listener_name);
    MUST(gpuipc_listener_open(world.context, world.listener_name, NULL, &world.listener));
    growth_pair(world.listener, world.listener_name, world.context, &world.client, &world.accepted);
    growth_pair(world.listener, world.listener_name, world.other, &world.contents_client,
                &world.contents_accepted);
    world.imported = growth_hand_over(world.arena, 0, 0);
    MUST(gpuipc_buffer_release(growth_hand_over(world.idle, 0, 0)));
    MUST(gpuipc_buffer_await_returns(world.idle, GROWTH_SOON_MS));
}

static void begin_server(void) {
    const gpuipc_server_config config = {
        .struct_size = sizeof(config), .max_connections = 60000, .max_connections_per_user = 60000};
    MUST(gpuipc_server_create(world.context, &config, &world.server));
    MUST(gpuipc_buffer_share(world.server, world.own, NULL, &world.ticket));
}

static void begin_channels(void) {
    const gpuipc_subscription_config reads = {.struct_size = sizeof(reads),
                                              .max_held = GROWTH_ITEMS};
    gpuipc_channel_config config = {.struct_size = sizeof(config),
                                    .buffer = world.arena,
                                    .slots = 2 * GROWTH_ITEMS,
                                    .slot_bytes = 4096};
    gpuipc_ticket unused;
    MUST(gpuipc_channel_create(world.server, &config, &world.channel, &unused));
    unique_name(world.read_name);
    config.name = world.read_name;
    MUST(gpuipc_channel_create(world.server, &config, &world.read, &world.read_ticket));
    MUST(gpuipc_subscription_open(world.context, &world.read_ticket, &reads, &world.reader));
}

static void begin_peer(void) {
    char text[GPUIPC_TICKET_TEXT_SIZE];
    char line[CHILD_LINE_MAX];
    const char *const arguments[] = {"peer", world.directory, text, NULL};
    MUST(gpuipc_ticket_to_text(&world.ticket, text));
    world.peer = growth_peer_start(arguments);
    MUST(child_read_line(world.peer, line, sizeof(line), GROWTH_SOON_MS));
    MUST(gpuipc_ticket_from_text(line, &world.peer_ticket));
}

void growth_world_begin(void) {
    if (!runtime_directory_make(world.directory)) {
        growth_fail("no runtime directory could be made");
    }
    enter_driver();
    world.context = growth_context(0);
    world.interruptible = growth_context(GPUIPC_CONTEXT_INTERRUPTIBLE);
    world.other = growth_context(0);
    world.own = growth_buffer(world.context);
    world.idle = growth_buffer(world.context);
    world.arena = growth_buffer(world.context);
    world.into = growth_buffer(world.other);
    begin_messages();
    begin_server();
    begin_channels();
    begin_peer();
}

/* ---- the end ---------------------------------------------------------------------------------------------- */

void growth_world_end(void) {
    growth_peer_end(world.peer);
    MUST(gpuipc_subscription_close(world.reader));
    MUST(gpuipc_channel_destroy(world.read));
    MUST(gpuipc_channel_destroy(world.channel));
    MUST(gpuipc_server_destroy(world.server));
    MUST(gpuipc_buffer_release(world.imported));
    MUST(gpuipc_connection_close(world.client));
    MUST(gpuipc_connection_close(world.accepted));
    MUST(gpuipc_connection_close(world.contents_client));
    MUST(gpuipc_connection_close(world.contents_accepted));
    MUST(gpuipc_listener_close(world.listener));
    MUST(gpuipc_buffer_release(world.into));
    MUST(gpuipc_buffer_release(world.arena));
    MUST(gpuipc_buffer_release(world.idle));
    MUST(gpuipc_buffer_release(world.own));
    MUST(gpuipc_context_destroy(world.other));
    MUST(gpuipc_context_destroy(world.interruptible));
    MUST(gpuipc_context_destroy(world.context));
    MUST_CUDA(world.driver.cuStreamDestroy(world.receives));
    MUST_CUDA(world.driver.cuStreamDestroy(world.sends));
    MUST_CUDA(world.driver.cuCtxSetCurrent(NULL));
    MUST_CUDA(world.driver.cuDevicePrimaryCtxRelease(0));
    runtime_directory_remove(world.directory);
}
