/* SPDX-License-Identifier: MIT */
/**
 * @file How fast memory goes from one GPU to another through host memory: both directions on their own and
 * at once, the driver's copy without peer access, gpuipc's copy inside a process and its contents between
 * two. One run, so that the figures can be compared.
 */
#include "staging.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "helper.h"
#include "unique.h"

#define MIB UINT64_C(1048576)

typedef struct figures {
    double to_host, to_device, both, driver_copy, copy, contents,
        memory; /* GB/s; 0: not measured */
} figures;

static int compare(const void *left, const void *right) {
    const float a = *(const float *)left;
    const float b = *(const float *)right;
    return (a > b) - (a < b);
}

double bench_time(void (*put)(void *argument, CUstream stream), void *argument, CUstream stream) {
    const driver *drv = &bench_driver;
    float times[BENCH_ROUNDS + 1];
    CUevent marks[BENCH_ROUNDS + 2];
    for (int i = 0; i < BENCH_ROUNDS + 2; i++) {
        bench_check_cuda(drv->cuEventCreate(&marks[i], CU_EVENT_DEFAULT), "an event");
    }
    bench_check_cuda(drv->cuEventRecord(marks[0], stream), "an event");
    for (int i = 0; i < BENCH_ROUNDS + 1; i++) {
        put(argument, stream);
        bench_check_cuda(drv->cuEventRecord(marks[i + 1], stream), "an event");
    }
    bench_check_cuda(drv->cuStreamSynchronize(stream), "waiting");
    for (int i = 0; i < BENCH_ROUNDS + 1; i++) {
        bench_check_cuda(drv->cuEventElapsedTime(&times[i], marks[i], marks[i + 1]), "a time");
    }
    for (int i = 0; i < BENCH_ROUNDS + 2; i++) {
        bench_check_cuda(drv->cuEventDestroy(marks[i]), "an event");
    }
    /* the first one warms up */
    qsort(times + 1, BENCH_ROUNDS, sizeof(times[0]), compare);
    return (double)times[1 + BENCH_ROUNDS / 2];
}

gpuipc_buffer *bench_buffer(gpuipc_context *context, uint32_t device, uint64_t bytes,
                            uint32_t value) {
    const gpuipc_buffer_config config = {
        .struct_size = sizeof(config), .device = GPUIPC_DEVICE(device), .bytes = bytes};
    gpuipc_buffer *made = NULL;
    uint8_t last = 0;
    bench_check(gpuipc_buffer_create(context, &config, &made), "a buffer");
    bench_check(gpuipc_buffer_fill_async(made, 0, bytes, value, 1, NULL), "filling a buffer");
    bench_check(gpuipc_buffer_read(made, bytes - 1, &last, 1), "filling a buffer");
    return made;
}

void bench_verify(gpuipc_buffer *buffer, uint64_t bytes, uint32_t value) {
    uint8_t *found = malloc(bytes);
    if (found == NULL) {
        bench_check(GPUIPC_ERR_OUT_OF_MEMORY, "verifying");
        return;
    }
    bench_check(gpuipc_buffer_read(buffer, 0, found, bytes), "verifying");
    for (uint64_t i = 0; i < bytes; i++) {
        if (found[i] != value) {
            (void)fprintf(stderr, "WRONG DATA: byte %llu is %u\n", (unsigned long long)i, found[i]);
            exit(1);
        }
    }
    free(found);
}

/* ---- plain copies ------------------------------------------------------------------------- */

typedef struct plain_copy {
    CUdeviceptr into;
    CUdeviceptr from;
    uint64_t bytes;
    /* at the same time, on another stream, that this one waits for; bytes 0: nothing */
    CUstream other;
    CUevent begin;
    CUevent end;
    CUdeviceptr other_into;
    CUdeviceptr other_from;
} plain_copy;

static void put_plain(void *argument, CUstream stream) {
    const driver *drv = &bench_driver;
    const plain_copy *self = argument;
    if (self->other != NULL) {
        bench_check_cuda(drv->cuEventRecord(self->begin, stream), "an event");
        bench_check_cuda(drv->cuStreamWaitEvent(self->other, self->begin, 0), "an event");
        bench_check_cuda(
            drv->cuMemcpyAsync(self->other_into, self->other_from, self->bytes, self->other),
            "a copy");
        bench_check_cuda(drv->cuEventRecord(self->end, self->other), "an event");
    }
    bench_check_cuda(drv->cuMemcpyAsync(self->into, self->from, self->bytes, stream), "a copy");
    if (self->other != NULL) {
        bench_check_cuda(drv->cuStreamWaitEvent(stream, self->end, 0), "an event");
    }
}

static double rate(uint64_t bytes, double milliseconds) {
    return (double)bytes / milliseconds / 1e6;
}

/* On the streams of the second device, which the first one's copies are put on too. */
static void measure_plain(int second, uint64_t bytes, figures *out) {
    const driver *drv = &bench_driver;
    CUdeviceptr memory[2];
    CUstream streams[2];
    void *host[2];
    CUevent begin;
    CUevent end;
    for (int i = 0; i < 2; i++) {
        bench_enter(i == 0 ? 0 : second);
        bench_check_cuda(drv->cuMemAlloc(&memory[i], bytes), "memory");
        bench_check_cuda(drv->cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING), "a stream");
        bench_check_cuda(drv->cuMemHostAlloc(&host[i], bytes, CU_MEMHOSTALLOC_PORTABLE),
                         "pinned memory");
        memset(host[i], i, bytes);
        if (i == 0) {
            bench_check_cuda(drv->cuEventCreate(&end, CU_EVENT_DISABLE_TIMING), "an event");
            plain_copy alone = {
                (CUdeviceptr)(uintptr_t)host[0], memory[0], bytes, NULL, 0, 0, 0, 0};
            out->to_host = rate(bytes, bench_time(put_plain, &alone, streams[0]));
        } else {
            bench_check_cuda(drv->cuEventCreate(&begin, CU_EVENT_DISABLE_TIMING), "an event");
        }
    }
    plain_copy alone = {memory[1], (CUdeviceptr)(uintptr_t)host[1], bytes, NULL, 0, 0, 0, 0};
    out->to_device = rate(bytes, bench_time(put_plain, &alone, streams[1]));
    plain_copy both = {
        memory[1], alone.from, bytes, streams[0], begin, end, (CUdeviceptr)(uintptr_t)host[0],
        memory[0]};
    out->both = rate(bytes, bench_time(put_plain, &both, streams[1]));
    if (second != 0) {
        plain_copy across = {memory[1], memory[0], bytes, NULL, 0, 0, 0, 0};
        out->driver_copy = rate(bytes, bench_time(put_plain, &across, streams[1]));
    }
    bench_check_cuda(drv->cuEventDestroy(begin), "an event");
    bench_check_cuda(drv->cuEventDestroy(end), "an event");
    for (int i = 0; i < 2; i++) {
        bench_enter(i == 0 ? 0 : second);
        bench_check_cuda(drv->cuMemFreeHost(host[i]), "pinned memory");
        bench_check_cuda(drv->cuStreamDestroy(streams[i]), "a stream");
        bench_check_cuda(drv->cuMemFree(memory[i]), "memory");
    }
}

/* ---- gpuipc's copy inside the process ----------------------------------------------------- */

typedef struct staged_copy {
    gpuipc_buffer *into;
    gpuipc_buffer *from;
    uint64_t bytes;
} staged_copy;

static void put_staged(void *argument, CUstream stream) {
    const staged_copy *self = argument;
    bench_check(gpuipc_buffer_copy_async(self->into, 0, self->from, 0, self->bytes, stream),
                "gpuipc_buffer_copy_async");
}

static void measure_staged(gpuipc_context *context, int second, uint64_t bytes, figures *out) {
    CUstream stream;
    staged_copy copy = {bench_buffer(context, (uint32_t)second, bytes, 0),
                        bench_buffer(context, 0, bytes, BENCH_VALUE), bytes};
    bench_enter(second);
    bench_check_cuda(bench_driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "a stream");
    out->copy = rate(bytes, bench_time(put_staged, &copy, stream));
    bench_verify(copy.into, bytes, BENCH_VALUE);
    bench_check_cuda(bench_driver.cuStreamDestroy(stream), "a stream");
    bench_check(gpuipc_buffer_release(copy.into), "a buffer");
    bench_check(gpuipc_buffer_release(copy.from), "a buffer");
}

/* ---- the whole ---------------------------------------------------------------------------- */

static void print(uint64_t bytes, const figures *of) {
    const double slower = of->to_host < of->to_device ? of->to_host : of->to_device;
    (void)printf("%5llu MiB: to host %6.2f, to device %6.2f, both %6.2f, driver's copy %6.2f, "
                 "copy %6.2f (%.3f), contents by host %6.2f (%.3f), by vmm %6.2f GB/s\n",
                 (unsigned long long)(bytes / MIB), of->to_host, of->to_device, of->both,
                 of->driver_copy, of->copy, of->copy / slower, of->contents, of->contents / slower,
                 of->memory);
    (void)printf("{\"bytes\":%llu,\"to_host\":%.3f,\"to_device\":%.3f,\"both\":%.3f,"
                 "\"driver_copy\":%.3f,\"copy\":%.3f,\"contents_host\":%.3f,\"contents_vmm\":%.3f,"
                 "\"emulated\":%d}\n",
                 (unsigned long long)bytes, of->to_host, of->to_device, of->both, of->driver_copy,
                 of->copy, of->contents, of->memory, (int)bench_driver.is_emulated);
    (void)fflush(stdout);
}

int main(int count, char **arguments) {
    static const uint64_t large[] = {16 * MIB, 64 * MIB, 256 * MIB, 1024 * MIB};
    static const uint64_t small[] = {6 * MIB + 13};
    const bool is_smoke = count > 1 && strcmp(arguments[1], "smoke") == 0;
    const uint64_t *sizes = is_smoke ? small : large;
    char directory[RUNTIME_DIRECTORY_MAX];
    gpuipc_context *context = NULL;
    uint32_t devices = 0;
    bench_driver_open();
    if (count == 6 && strcmp(arguments[1], "send") == 0) {
        return bench_contents_sender(arguments[2], arguments[3], strtoull(arguments[4], NULL, 10),
                                     atoi(arguments[5]));
    }
    if (!runtime_directory_make(directory)) {
        return 1;
    }
    const gpuipc_context_config config = {.struct_size = sizeof(config),
                                          .runtime_directory = directory};
    bench_check(gpuipc_context_create(&config, &context), "a context");
    bench_check(gpuipc_device_count(context, &devices), "devices");
    const int second = devices > 1 ? 1 : 0;
    for (size_t i = 0; i < (is_smoke ? 1u : sizeof(large) / sizeof(large[0])); i++) {
        figures of = {0, 0, 0, 0, 0, 0, 0};
        measure_plain(second, sizes[i], &of);
        if (second != 0) {
            measure_staged(context, second, sizes[i], &of);
        }
        of.contents =
            bench_contents(context, directory, (uint32_t)second, sizes[i], GPUIPC_TRANSPORT_HOST);
        of.memory =
            bench_contents(context, directory, (uint32_t)second, sizes[i], GPUIPC_TRANSPORT_VMM);
        print(sizes[i], &of);
    }
    bench_check(gpuipc_context_destroy(context), "the context");
    runtime_directory_remove(directory);
    return 0;
}
