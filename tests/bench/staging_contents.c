/* SPDX-License-Identifier: MIT */
/** @file Contents between two processes: this program, and itself once more. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "child.h"
#include "helper.h"
#include "staging.h"
#include "unique.h"

#define PATIENCE_MS 60000

typedef struct receiving {
    gpuipc_connection *from;
    gpuipc_buffer *into;
    uint64_t bytes;
} receiving;

static void put_received(void *argument, CUstream stream) {
    const receiving *self = argument;
    const gpuipc_contents contents = {.struct_size = sizeof(contents),
                                      .buffer = self->into,
                                      .bytes = self->bytes,
                                      .stream = stream};
    bench_check(gpuipc_connection_receive_contents(self->from, &contents, PATIENCE_MS),
                "gpuipc_connection_receive_contents");
}

double bench_contents(gpuipc_context *context, const char *directory, uint32_t device,
                      uint64_t bytes, gpuipc_transport way) {
    char name[UNIQUE_NAME_MAX];
    char size[32];
    char transport[16];
    gpuipc_listener *listener = NULL;
    gpuipc_connection *connection = NULL;
    child_process *other = NULL;
    child_end how;
    CUstream stream;
    unique_name(name);
    (void)snprintf(size, sizeof(size), "%llu", (unsigned long long)bytes);
    (void)snprintf(transport, sizeof(transport), "%d", (int)way);
    const char *const arguments[] = {"send", directory, name, size, transport, NULL};
    bench_check(gpuipc_listener_open(context, name, NULL, &listener), "a listener");
    bench_check(child_start("bench_staging", arguments, NULL, &other), "the other process");
    bench_check(gpuipc_listener_accept(listener, PATIENCE_MS, &connection), "a connection");
    receiving self = {connection, bench_buffer(context, device, bytes, 0), bytes};
    bench_enter((int)device);
    bench_check_cuda(bench_driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "a stream");
    const double milliseconds = bench_time(put_received, &self, stream);
    bench_verify(self.into, bytes, BENCH_VALUE);
    bench_check_cuda(bench_driver.cuStreamDestroy(stream), "a stream");
    bench_check(child_wait(other, PATIENCE_MS, &how), "the other process");
    if (!how.exited || how.code != 0) {
        (void)fprintf(stderr, "the other process ended with %d\n", how.code);
        exit(1);
    }
    child_destroy(other);
    bench_check(gpuipc_buffer_release(self.into), "a buffer");
    bench_check(gpuipc_connection_close(connection), "a connection");
    bench_check(gpuipc_listener_close(listener), "a listener");
    return (double)bytes / milliseconds / 1e6;
}

int bench_contents_sender(const char *directory, const char *name, uint64_t bytes, int way) {
    const gpuipc_context_config config = {.struct_size = sizeof(config),
                                          .runtime_directory = directory};
    gpuipc_context *context = NULL;
    gpuipc_connection *connection = NULL;
    CUstream stream;
    helper_begin();
    bench_check(gpuipc_context_create(&config, &context), "a context");
    gpuipc_buffer *from = bench_buffer(context, 0, bytes, BENCH_VALUE);
    bench_check(gpuipc_connection_open(context, name, NULL, PATIENCE_MS, &connection),
                "a connection");
    bench_enter(0);
    bench_check_cuda(bench_driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "a stream");
    const gpuipc_contents contents = {.struct_size = sizeof(contents),
                                      .buffer = from,
                                      .bytes = bytes,
                                      .stream = stream,
                                      .transport = (gpuipc_transport)way};
    for (int i = 0; i < BENCH_ROUNDS + 1; i++) {
        bench_check(gpuipc_connection_send_contents(connection, &contents, PATIENCE_MS),
                    "gpuipc_connection_send_contents");
    }
    bench_check_cuda(bench_driver.cuStreamSynchronize(stream), "waiting");
    bench_check_cuda(bench_driver.cuStreamDestroy(stream), "a stream");
    bench_check(gpuipc_buffer_release(from), "a buffer");
    bench_check(gpuipc_connection_close(connection), "a connection");
    bench_check(gpuipc_context_destroy(context), "the context");
    return 0;
}
