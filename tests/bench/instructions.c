/* SPDX-License-Identifier: MIT */
/**
 * @file Goes the paths that programs go often, for instructions_check, which counts their instructions below
 * valgrind's callgrind: those in the measured_ functions and below them, until a path_end_ function names what
 * was counted. Both sides are in one process; what is not in a measured_ function does not count.
 */
#include <stdio.h>
#include <stdlib.h>

#include <gpuipc/gpuipc.h>
#include <gpuipc/gpuipc_connection.h>
#include <gpuipc/gpuipc_manifest.h>
#include <gpuipc/gpuipc_ticket.h>
#include <gpuipc/gpuipc_transport.h>

#include "unique.h"

/* How often each path is counted, after it was gone once. instructions_check divides by it. */
#define ROUNDS  64
#define RANGES  256
#define SOON_MS 60000

static gpuipc_context *sharer;
static gpuipc_context *opener;
static gpuipc_connection *to_opener;
static gpuipc_connection *from_sharer;
static gpuipc_buffer *shared;
static gpuipc_buffer *received;
static gpuipc_ticket ticket;
static gpuipc_range ranges[RANGES];
static gpuipc_range ranges_read[RANGES];
static char names[RANGES][32];
static uint8_t manifest[RANGES * 256];
static size_t manifest_size;

static void must(gpuipc_status status, const char *what) {
    if (status != GPUIPC_OK) {
        (void)fprintf(stderr, "%s: %s (%s)\n", what, gpuipc_status_name(status),
                      gpuipc_error_get()->sentence);
        exit(1);
    }
}

/* ---- the paths ------------------------------------------------------------------------------- */

static void nothing(void) {
}

static void info(void) {
    gpuipc_buffer_info got = {.struct_size = sizeof(got)};
    must(gpuipc_buffer_get_info(shared, &got), "asking about a buffer");
}

static void query(void) {
    const gpuipc_transport_pair pair = {.struct_size = sizeof(pair)};
    gpuipc_transport_info got = {.struct_size = sizeof(got)};
    must(gpuipc_transport_query(sharer, GPUIPC_TRANSPORT_VMM, &pair, &got),
         "asking about a transport");
}

static void write_manifest(void) {
    must(gpuipc_manifest_write(ranges, RANGES, manifest, sizeof(manifest), &manifest_size),
         "writing a manifest");
}

static void read_manifest(void) {
    size_t count = 0;
    must(gpuipc_manifest_read(manifest, manifest_size, RANGES * UINT64_C(4096), ranges_read, RANGES,
                              &count),
         "reading a manifest");
}

static void send_ready(void) {
    const gpuipc_outgoing message = {.struct_size = sizeof(message),
                                     .buffers = &shared,
                                     .buffer_count = 1,
                                     .flags = GPUIPC_SEND_READY};
    must(gpuipc_connection_send(to_opener, &message, SOON_MS), "sending");
}

static void receive(void) {
    gpuipc_incoming message = {
        .struct_size = sizeof(message), .buffers = &received, .buffer_capacity = 1};
    must(gpuipc_connection_receive(from_sharer, &message, SOON_MS), "receiving");
}

static void release(void) {
    must(gpuipc_buffer_release(received), "releasing");
}

static void receive_and_release(void) {
    receive();
    release();
}

static void open_again(void) {
    gpuipc_buffer *opened = NULL;
    must(gpuipc_buffer_open(opener, &ticket, NULL, &opened), "opening a ticket again");
    must(gpuipc_buffer_release(opened), "releasing");
}

/* Callgrind finds functions by their names: these have external ones, and are called through a table that is
 * not constant, so that the compiler neither renames them nor puts them into their callers. What the ends print
 * keeps them apart. */
#define PATH(path)                                                                                 \
    void measured_##path(void);                                                                    \
    void path_end_##path(void);                                                                    \
    void measured_##path(void) {                                                                   \
        path();                                                                                    \
    }                                                                                              \
    void path_end_##path(void) {                                                                   \
        (void)puts(#path);                                                                         \
    }
PATH(info)
PATH(query)
PATH(write_manifest)
PATH(read_manifest)
PATH(send_ready)
PATH(receive)
PATH(open_again)

struct row {
    void (*before)(void);
    void (*first)(void); /**< the same as measured, uncounted */
    void (*measured)(void);
    void (*after)(void);
    void (*end)(void);
} rows[] = {
    {nothing, info, measured_info, nothing, path_end_info},
    {nothing, query, measured_query, nothing, path_end_query},
    {nothing, write_manifest, measured_write_manifest, nothing, path_end_write_manifest},
    {nothing, read_manifest, measured_read_manifest, nothing, path_end_read_manifest},
    {nothing, send_ready, measured_send_ready, receive_and_release, path_end_send_ready},
    {send_ready, receive, measured_receive, release, path_end_receive},
    {nothing, open_again, measured_open_again, nothing, path_end_open_again},
};

/* ---- what they need -------------------------------------------------------------------------- */

static gpuipc_context *context_in(const char *directory) {
    const gpuipc_context_config config = {
        .struct_size = sizeof(config), .driver = "emulated", .runtime_directory = directory};
    gpuipc_context *made = NULL;
    must(gpuipc_context_create(&config, &made), "a context");
    return made;
}

static void name_ranges(void) {
    for (size_t i = 0; i < RANGES; i++) {
        (void)snprintf(names[i], sizeof(names[i]), "layers.%zu.attention.weight", i);
        ranges[i] = (gpuipc_range){.name = names[i],
                                   .offset = i * 4096,
                                   .bytes = 4096,
                                   .dimensions = 2,
                                   .shape = {32, 32},
                                   .strides = {32, 1}};
    }
}

int main(void) {
    char directory[RUNTIME_DIRECTORY_MAX];
    const gpuipc_buffer_config config = {.struct_size = sizeof(config), .bytes = RANGES * 4096};
    gpuipc_listener *listener = NULL;
    gpuipc_server *server = NULL;
    gpuipc_buffer *held = NULL;
    if (!runtime_directory_make(directory)) {
        (void)fprintf(stderr, "no runtime directory can be made\n");
        return 1;
    }
    name_ranges();
    sharer = context_in(directory);
    opener = context_in(directory);
    must(gpuipc_buffer_create(sharer, &config, &shared), "a buffer");
    must(gpuipc_listener_open(sharer, "instructions", NULL, &listener), "listening");
    must(gpuipc_connection_open(opener, "instructions", NULL, SOON_MS, &from_sharer), "connecting");
    must(gpuipc_listener_accept(listener, SOON_MS, &to_opener), "accepting");
    must(gpuipc_server_create(sharer, NULL, &server), "a server");
    must(gpuipc_buffer_share(server, shared, NULL, &ticket), "a ticket");
    must(gpuipc_buffer_open(opener, &ticket, NULL, &held), "opening a ticket");

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        rows[i].before();
        rows[i].first();
        rows[i].after();
        for (int round = 0; round < ROUNDS; round++) {
            rows[i].before();
            rows[i].measured();
            rows[i].after();
        }
        rows[i].end();
    }

    must(gpuipc_buffer_release(held), "releasing");
    must(gpuipc_connection_close(from_sharer), "closing");
    must(gpuipc_connection_close(to_opener), "closing");
    must(gpuipc_listener_close(listener), "closing");
    must(gpuipc_server_destroy(server), "ending the server");
    must(gpuipc_buffer_release(shared), "releasing");
    must(gpuipc_context_destroy(opener), "ending a context");
    must(gpuipc_context_destroy(sharer), "ending a context");
    runtime_directory_remove(directory);
    return 0;
}
