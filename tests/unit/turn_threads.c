/* SPDX-License-Identifier: MIT */
/**
 * @file A channel of turns from many threads at once: one writes, some read all the time by calls and by graphs, some come
 * and go, and one asks. Then the writer ends it, while streams wait. A plain program, so that it runs under
 * ThreadSanitizer. Exit code 0: every answer was one that may be, and each stream came to its end.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include <gpuipc/gpuipc.h>

#include "driver.h"
#include "graphs.h"
#include "unique.h"

#define READERS  3 /* the last one comes and goes */
#define TURNS    150
#define LAUNCHES 4

static driver drv;
static CUcontext primary;
static gpuipc_context *shared;
static gpuipc_channel *channel;
static gpuipc_ticket ticket;
static atomic_bool ends;

static void fail(const char *what) {
    fprintf(stderr, "%s: %s: %s\n", what, gpuipc_error_get()->operation,
            gpuipc_error_get()->sentence);
    exit(1);
}

#define CHECK(is_so)                                                                               \
    do {                                                                                           \
        if (!(is_so)) {                                                                            \
            fail(#is_so);                                                                          \
        }                                                                                          \
    } while (0)

static CUstream stream_make(void) {
    CUstream made;
    CHECK(drv.cuCtxSetCurrent(primary) == CUDA_SUCCESS);
    CHECK(drv.cuStreamCreate(&made, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    return made;
}

static void stream_end(CUstream stream) {
    CHECK(drv.cuStreamSynchronize(stream) == CUDA_SUCCESS);
    CHECK(drv.cuStreamDestroy(stream) == CUDA_SUCCESS);
}

/* By calls, and now and then by a graph of the readers that there are. */
static void write_turns(CUstream stream) {
    for (unsigned i = 0; i < TURNS; i++) {
        gpuipc_frame frame = GPUIPC_FRAME_INIT;
        captured graph = {NULL, NULL};
        const bool is_captured = i % 10 == 9;
        CHECK(!is_captured || graphs_begin(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        CHECK(gpuipc_channel_loan(channel, stream, 0, &frame) == GPUIPC_OK);
        CHECK(drv.cuMemsetD32Async(frame.address, i, 64, stream) == CUDA_SUCCESS);
        CHECK(gpuipc_channel_publish(channel, &frame, stream) == GPUIPC_OK);
        if (is_captured) {
            CHECK(graphs_end(stream, &graph));
            for (unsigned launch = 0; launch < LAUNCHES; launch++) {
                CHECK(graphs_launch(&graph, stream));
            }
            CHECK(drv.cuStreamSynchronize(stream) == CUDA_SUCCESS);
            CHECK(graphs_destroy(&graph));
        }
    }
    CHECK(drv.cuStreamSynchronize(stream) == CUDA_SUCCESS);
}

/* False: the writer has ended. */
static bool read_turn(gpuipc_subscription *reader, CUstream stream) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    const gpuipc_status status = gpuipc_subscription_take(reader, stream, 0, &frame);
    if (status != GPUIPC_OK) {
        CHECK(status == GPUIPC_ERR_PEER_CLOSED);
        return false;
    }
    const gpuipc_status given = gpuipc_subscription_give_back(reader, &frame, stream);
    CHECK(given == GPUIPC_OK || given == GPUIPC_ERR_LOST);
    CHECK(drv.cuStreamSynchronize(stream) == CUDA_SUCCESS);
    return true;
}

static void read_by_graph(gpuipc_subscription *reader, CUstream stream) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    captured graph = {NULL, NULL};
    CHECK(graphs_begin(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    const bool is_taken = gpuipc_subscription_take(reader, stream, 0, &frame) == GPUIPC_OK;
    if (is_taken) {
        const gpuipc_status given = gpuipc_subscription_give_back(reader, &frame, stream);
        CHECK(given == GPUIPC_OK || given == GPUIPC_ERR_LOST);
    }
    CHECK(graphs_end(stream, &graph));
    while (is_taken && gpuipc_subscription_check(reader) == GPUIPC_OK) {
        CHECK(graphs_launch(&graph, stream));
        CHECK(drv.cuStreamSynchronize(stream) == CUDA_SUCCESS);
    }
    CHECK(graphs_destroy(&graph));
}

static void read_turns(void *argument) {
    const unsigned number = *(const unsigned *)argument;
    CUstream stream = stream_make();
    bool goes_on = true;
    while (goes_on && !atomic_load(&ends)) {
        gpuipc_subscription *reader = NULL;
        const gpuipc_status status = gpuipc_subscription_open(shared, &ticket, NULL, &reader);
        if (status != GPUIPC_OK) { /* the writer has ended, or is in its calls all the time */
            CHECK(status == GPUIPC_ERR_SERVER_BUSY || atomic_load(&ends));
            continue;
        }
        if (number == 0) {
            read_by_graph(reader, stream);
        }
        const unsigned most = number == READERS - 1 ? 5 : 1000000;
        for (unsigned i = 0; i < most && (goes_on = read_turn(reader, stream)); i++) {
        }
        CHECK(gpuipc_subscription_close(reader) == GPUIPC_OK);
    }
    stream_end(stream);
}

static size_t count_readers(void) {
    gpuipc_reader_info infos[GPUIPC_CHANNEL_READERS_MAX];
    size_t count = 0;
    CHECK(gpuipc_channel_readers(channel, infos, GPUIPC_CHANNEL_READERS_MAX, &count) == GPUIPC_OK);
    return count;
}

static void ask(void *argument) {
    (void)argument;
    while (!atomic_load(&ends)) {
        (void)count_readers();
    }
}

int main(void) {
    static unsigned numbers[READERS] = {0, 1, 2};
    os_thread *threads[READERS + 1];
    char directory[RUNTIME_DIRECTORY_MAX];
    gpuipc_context_config where = GPUIPC_CONTEXT_CONFIG_INIT;
    const gpuipc_buffer_config memory = {.struct_size = sizeof(memory), .bytes = 4096};
    gpuipc_channel_config config = {
        .struct_size = sizeof(config), .slots = 1, .slot_bytes = 4096, .turns = 1};
    gpuipc_server *server;
    CHECK(runtime_directory_make(directory));
    where.runtime_directory = directory;
    where.driver = "emulated";
    CHECK(gpuipc_context_create(&where, &shared) == GPUIPC_OK);
    CHECK(driver_open("emulated", &drv) == GPUIPC_OK && graphs_find(&drv));
    CHECK(drv.cuDevicePrimaryCtxRetain(&primary, 0) == CUDA_SUCCESS);
    CHECK(gpuipc_server_create(shared, NULL, &server) == GPUIPC_OK);
    CHECK(gpuipc_buffer_create(shared, &memory, &config.buffer) == GPUIPC_OK);
    CHECK(gpuipc_channel_create(server, &config, &channel, &ticket) == GPUIPC_OK);
    CUstream stream = stream_make();
    for (unsigned i = 0; i < READERS; i++) {
        CHECK(os_thread_start(read_turns, &numbers[i], &threads[i]) == GPUIPC_OK);
    }
    CHECK(os_thread_start(ask, NULL, &threads[READERS]) == GPUIPC_OK);
    while (count_readers() < READERS) { /* or nobody would be waited for */
    }
    write_turns(stream);
    atomic_store(&ends, true);
    os_thread_join(threads[READERS]);
    CHECK(gpuipc_channel_destroy(channel) == GPUIPC_OK); /* while streams of readers wait */
    for (unsigned i = 0; i < READERS; i++) {
        os_thread_join(threads[i]);
    }
    stream_end(stream);
    CHECK(gpuipc_buffer_release(config.buffer) == GPUIPC_OK);
    CHECK(gpuipc_server_destroy(server) == GPUIPC_OK);
    CHECK(gpuipc_context_destroy(shared) == GPUIPC_OK);
    CHECK(drv.cuDevicePrimaryCtxRelease(0) == CUDA_SUCCESS);
    runtime_directory_remove(directory);
    printf("all is well\n");
    return 0;
}
