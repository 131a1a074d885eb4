/* SPDX-License-Identifier: MIT */
/** @file See growth.h: what there is so much of. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "growth.h"
#include "process_size.h"

/* Handles of a world beside its population, with what a row of calls makes. */
#define OTHER_HANDLES 600u
/* A user may have half of a process's handles (docs/adr/0022). */
#define PARTS_OF_USER 2u
#define PROCESSES     4u

#define ANY_NUMBER "more are not asked for"

static uint32_t any_number(uint64_t handles) {
    (void)handles;
    return UINT32_MAX;
}

static uint32_t one_handle_each(uint64_t handles) {
    const uint64_t most = handles > OTHER_HANDLES ? handles - OTHER_HANDLES : 0;
    return most < UINT32_MAX ? (uint32_t)most : UINT32_MAX;
}

static uint32_t part_of_user(uint64_t handles) {
    return one_handle_each(handles / PARTS_OF_USER);
}

static growth_item *live;

static void make_room(void) {
    live = calloc(world.count, sizeof(*live));
    if (live == NULL) {
        growth_fail("there is no memory for %u objects", world.count);
    }
}

static void free_room(void) {
    free(live);
    live = NULL;
}

/* ---- buffers ------------------------------------------------------------------------------------------ */

static void begin_created(void) {
    make_room();
    for (uint32_t i = 0; i < world.count; i++) {
        live[i].buffer = growth_buffer(world.context);
    }
}

static void begin_opened(void) {
    const gpuipc_open_config config = {.struct_size = sizeof(config), .timeout_ms = GROWTH_SOON_MS};
    gpuipc_ticket part;
    make_room();
    for (uint32_t i = 0; i < world.count; i++) {
        MUST(gpuipc_ticket_narrow(&world.peer_ticket, i, 64, &part));
        MUST(gpuipc_buffer_open(world.context, &part, &config, &live[i].buffer));
    }
}

static void begin_handed(void) {
    make_room();
    for (uint32_t i = 0; i < world.count; i++) {
        live[i].buffer = growth_hand_over(world.own, GPUIPC_SEND_READY, 0);
    }
}

static void end_buffers(void) {
    for (uint32_t i = 0; i < world.count; i++) {
        MUST(gpuipc_buffer_release(live[i].buffer));
    }
    free_room();
}

/* ---- a server's ------------------------------------------------------------------------------------------ */

static void begin_tickets(void) {
    const gpuipc_share_config config = {.struct_size = sizeof(config), .flags = GPUIPC_SEND_READY};
    make_room();
    for (uint32_t i = 0; i < world.count; i++) {
        MUST(gpuipc_buffer_share(world.server, world.own, &config, &live[i].ticket));
    }
}

static void end_tickets(void) {
    for (uint32_t i = 0; i < world.count; i++) {
        MUST(gpuipc_server_revoke(world.server, &live[i].ticket));
    }
    free_room();
}

static child_process *processes[PROCESSES];

static void begin_clients(void) {
    char text[GPUIPC_TICKET_TEXT_SIZE];
    char count[16];
    const char *const arguments[] = {"clients", world.directory, text, count, NULL};
    MUST(gpuipc_ticket_to_text(&world.ticket, text));
    for (uint32_t i = 0; i < PROCESSES; i++) {
        const uint32_t of_one = world.count / PROCESSES + (i < world.count % PROCESSES ? 1 : 0);
        (void)snprintf(count, sizeof(count), "%u", of_one);
        processes[i] = growth_peer_start(arguments);
    }
    for (uint32_t i = 0; i < PROCESSES; i++) {
        growth_hear(processes[i], "joined", true);
    }
}

static void end_clients(void) {
    for (uint32_t i = 0; i < PROCESSES; i++) {
        growth_peer_end(processes[i]);
    }
}

static void begin_channels(void) {
    const gpuipc_channel_config config = {.struct_size = sizeof(config),
                                          .buffer = world.arena,
                                          .slots = 1,
                                          .slot_bytes = 4096,
                                          .header_bytes = 16};
    make_room();
    for (uint32_t i = 0; i < world.count; i++) {
        MUST(gpuipc_channel_create(world.server, &config, &live[i].channel, &live[i].ticket));
    }
}

static void end_channels(void) {
    for (uint32_t i = 0; i < world.count; i++) {
        MUST(gpuipc_channel_destroy(live[i].channel));
    }
    free_room();
}

/* ---- connections ------------------------------------------------------------------------------------------- */

/* Both ends are this process's, so that there are two of each pair. */
static void begin_connections(void) {
    make_room();
    for (uint32_t i = 0; i < world.count / 2; i++) {
        growth_pair(world.listener, world.listener_name, world.context, &live[i].connection,
                    &live[i].accepted);
    }
}

static void end_connections(void) {
    for (uint32_t i = 0; i < world.count / 2; i++) {
        MUST(gpuipc_connection_close(live[i].connection));
        MUST(gpuipc_connection_close(live[i].accepted));
    }
    free_room();
}

static const growth_population populations[] = {
    {"created", "buffers that this process made", one_handle_each,
     "each has a descriptor in the emulated driver", begin_created, end_buffers},
    {"opened", "buffers of another process that are open here", any_number, ANY_NUMBER,
     begin_opened, end_buffers},
    {"handed", "hand-overs of one buffer that are out", any_number, ANY_NUMBER, begin_handed,
     end_buffers},
    {"tickets", "tickets of one server", any_number, ANY_NUMBER, begin_tickets, end_tickets},
    {"clients", "clients of one server, in four other processes", part_of_user,
     "each takes a descriptor, and one user may have half", begin_clients, end_clients},
    {"connections", "connections with this process itself", one_handle_each,
     "each end takes a descriptor", begin_connections, end_connections},
    {"channels", "channels of one server", any_number, ANY_NUMBER, begin_channels, end_channels},
};

const growth_population *growth_population_at(size_t index) {
    return index < sizeof(populations) / sizeof(populations[0]) ? &populations[index] : NULL;
}

const growth_population *growth_population_named(const char *name) {
    const growth_population *found = NULL;
    for (size_t i = 0; found == NULL && growth_population_at(i) != NULL; i++) {
        found = strcmp(populations[i].name, name) == 0 ? &populations[i] : NULL;
    }
    return found;
}
