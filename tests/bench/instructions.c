/* SPDX-License-Identifier: MIT */
/**
 * @file Goes the paths that programs go often, for instructions_check, which counts their instructions below
 * valgrind's callgrind: those in the measured_ functions and below them, until a path_end_ function names what
 * was counted. Both sides are in one process; what is not in a measured_ function does not count.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>

#include <gpuipc/gpuipc.h>
#include <gpuipc/gpuipc_channel.h>
#include <gpuipc/gpuipc_connection.h>
#include <gpuipc/gpuipc_manifest.h>
#include <gpuipc/gpuipc_ticket.h>
#include <gpuipc/gpuipc_transport.h>

#include "bench_call.h"
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

/* A channel of one slot, and a stream at each of its ends. The writer's waits until the gate is opened. */
static gpuipc_buffer *slot;
static gpuipc_channel *channel;
static gpuipc_subscription *subscription;
static CUstream written;
static CUstream read_on;
static gpuipc_frame loaned = GPUIPC_FRAME_INIT;
static gpuipc_frame taken = GPUIPC_FRAME_INIT;
static cuuint64_t *gate;

/* ---- the paths ------------------------------------------------------------------------------- */

static void nothing(void) {
}

static void info(void) {
    gpuipc_buffer_info got = {.struct_size = sizeof(got)};
    bench_check(gpuipc_buffer_get_info(shared, &got), "asking about a buffer");
}

static void query(void) {
    const gpuipc_transport_pair pair = {.struct_size = sizeof(pair)};
    gpuipc_transport_info got = {.struct_size = sizeof(got)};
    bench_check(gpuipc_transport_query(sharer, GPUIPC_TRANSPORT_VMM, &pair, &got),
                "asking about a transport");
}

static void write_manifest(void) {
    bench_check(gpuipc_manifest_write(ranges, RANGES, manifest, sizeof(manifest), &manifest_size),
                "writing a manifest");
}

static void read_manifest(void) {
    size_t count = 0;
    bench_check(gpuipc_manifest_read(manifest, manifest_size, RANGES * UINT64_C(4096), ranges_read,
                                     RANGES, &count),
                "reading a manifest");
}

static void send_ready(void) {
    const gpuipc_outgoing message = {.struct_size = sizeof(message),
                                     .buffers = &shared,
                                     .buffer_count = 1,
                                     .flags = GPUIPC_SEND_READY};
    bench_check(gpuipc_connection_send(to_opener, &message, SOON_MS), "sending");
}

static void receive(void) {
    gpuipc_incoming message = {
        .struct_size = sizeof(message), .buffers = &received, .buffer_capacity = 1};
    bench_check(gpuipc_connection_receive(from_sharer, &message, SOON_MS), "receiving");
}

static void release(void) {
    bench_check(gpuipc_buffer_release(received), "releasing");
}

static void receive_and_release(void) {
    receive();
    release();
}

static void open_again(void) {
    gpuipc_buffer *opened = NULL;
    bench_check(gpuipc_buffer_open(opener, &ticket, NULL, &opened), "opening a ticket again");
    bench_check(gpuipc_buffer_release(opened), "releasing");
}

static void loan(void) {
    bench_check(gpuipc_channel_loan(channel, written, SOON_MS, &loaned), "a loan");
}

static void publish(void) {
    bench_check(gpuipc_channel_publish(channel, &loaned, written), "publishing");
}

static void take(void) {
    bench_check(gpuipc_subscription_take(subscription, read_on, SOON_MS, &taken), "taking");
}

static void give_back(void) {
    bench_check(gpuipc_subscription_give_back(subscription, &taken, read_on), "giving back");
}

static void close_gate(void) {
    *gate = 0;
    bench_check_cuda(bench_driver.cuStreamWaitValue64(written, (CUdeviceptr)(uintptr_t)gate, 1,
                                                      CU_STREAM_WAIT_VALUE_GEQ),
                     "a gate");
}

static void open_gate(void) {
    __atomic_store_n(gate, 1, __ATOMIC_RELEASE);
    bench_check_cuda(bench_driver.cuStreamSynchronize(written), "waiting");
    bench_check_cuda(bench_driver.cuStreamSynchronize(read_on), "waiting");
}

/* Streams have to wait or write in each of the four. */
static void before_publish(void) {
    close_gate();
    loan();
}

static void before_take(void) {
    before_publish();
    publish();
}

static void before_give_back(void) {
    before_take();
    take();
}

static void before_loan(void) {
    before_give_back();
    give_back();
}

static void after_take(void) {
    give_back();
    open_gate();
}

static void after_publish(void) {
    take();
    after_take();
}

static void after_loan(void) {
    publish();
    after_publish();
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
PATH(loan)
PATH(publish)
PATH(take)
PATH(give_back)

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
    {before_loan, loan, measured_loan, after_loan, path_end_loan},
    {before_publish, publish, measured_publish, after_publish, path_end_publish},
    {before_take, take, measured_take, after_take, path_end_take},
    {before_give_back, give_back, measured_give_back, open_gate, path_end_give_back},
};

/* ---- what they need -------------------------------------------------------------------------- */

static gpuipc_context *context_in(const char *directory) {
    const gpuipc_context_config config = {
        .struct_size = sizeof(config), .driver = "emulated", .runtime_directory = directory};
    gpuipc_context *made = NULL;
    bench_check(gpuipc_context_create(&config, &made), "a context");
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

/* valgrind 3.19 knows no pidfd_open. What never becomes readable stands for a process that lives. */
gpuipc_status
__wrap_os_peer_self(os_peer *out_peer); /* NOLINT(bugprone-reserved-identifier): the linker's */
gpuipc_status __wrap_os_peer_self(os_peer *out_peer) { /* NOLINT(bugprone-reserved-identifier) */
    const int lives = eventfd(0, EFD_CLOEXEC);
    *out_peer =
        (os_peer){.process_id = os_process_id(), .same_user = true, .process = (os_handle){lives}};
    os_own_user(out_peer->user, sizeof(out_peer->user));
    return lives < 0 ? GPUIPC_ERR_OS : GPUIPC_OK;
}

static void begin_channel(gpuipc_server *server) {
    const gpuipc_buffer_config memory = {.struct_size = sizeof(memory), .bytes = 4096};
    const gpuipc_subscription_config reader = {.struct_size = sizeof(reader)};
    gpuipc_ticket to_channel;
    void *word = NULL;
    bench_check(gpuipc_buffer_create(sharer, &memory, &slot), "a buffer");
    const gpuipc_channel_config config = {
        .struct_size = sizeof(config), .buffer = slot, .slots = 1, .slot_bytes = 4096};
    bench_check(gpuipc_channel_create(server, &config, &channel, &to_channel), "a channel");
    bench_check(gpuipc_subscription_open(opener, &to_channel, &reader, &subscription), "a reader");
    bench_driver_open();
    bench_enter(0);
    bench_check_cuda(bench_driver.cuStreamCreate(&written, CU_STREAM_NON_BLOCKING), "a stream");
    bench_check_cuda(bench_driver.cuStreamCreate(&read_on, CU_STREAM_NON_BLOCKING), "a stream");
    bench_check_cuda(bench_driver.cuMemHostAlloc(&word, sizeof(*gate), 0), "a word");
    gate = word;
}

static void end_channel(void) {
    bench_check(gpuipc_subscription_close(subscription), "closing");
    bench_check(gpuipc_channel_destroy(channel), "ending a channel");
    bench_check(gpuipc_buffer_release(slot), "releasing");
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
    bench_check(gpuipc_buffer_create(sharer, &config, &shared), "a buffer");
    bench_check(gpuipc_listener_open(sharer, "instructions", NULL, &listener), "listening");
    bench_check(gpuipc_connection_open(opener, "instructions", NULL, SOON_MS, &from_sharer),
                "connecting");
    bench_check(gpuipc_listener_accept(listener, SOON_MS, &to_opener), "accepting");
    bench_check(gpuipc_server_create(sharer, NULL, &server), "a server");
    bench_check(gpuipc_buffer_share(server, shared, NULL, &ticket), "a ticket");
    bench_check(gpuipc_buffer_open(opener, &ticket, NULL, &held), "opening a ticket");

    begin_channel(server);

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

    end_channel();
    bench_check(gpuipc_buffer_release(held), "releasing");
    bench_check(gpuipc_connection_close(from_sharer), "closing");
    bench_check(gpuipc_connection_close(to_opener), "closing");
    bench_check(gpuipc_listener_close(listener), "closing");
    bench_check(gpuipc_server_destroy(server), "ending the server");
    bench_check(gpuipc_buffer_release(shared), "releasing");
    bench_check(gpuipc_context_destroy(opener), "ending a context");
    bench_check(gpuipc_context_destroy(sharer), "ending a context");
    runtime_directory_remove(directory);
    return 0;
}
