/* SPDX-License-Identifier: MIT */
/**
 * @file Many threads of one program, whose first calls come at once, on devices that they change. A program without a
 * test framework, for ThreadSanitizer. Exit code 0: every word came back.
 */
#include <stdio.h>
#include <stdlib.h>

#include "os.h"
#include "runtime/runtime_api.h"
#include "runtime_words.h"

#define THREADS 8
#define TURNS   50
#define WORDS   1000

static void check(cudaError_t result, const char *call) {
    if (result != cudaSuccess) {
        fprintf(stderr, "%s answered %s\n", call, cudaGetErrorName(result));
        exit(1);
    }
}
#define CHECK(call) check((call), #call)

static void turn(int device, uint32_t first) {
    uint32_t out[WORDS];
    uint32_t back[WORDS] = {0};
    void *memory;
    int found;
    fill_words(out, WORDS, first);
    CHECK(cudaSetDevice(device));
    CHECK(cudaMalloc(&memory, sizeof(out)));
    CHECK(cudaMemcpy(memory, out, sizeof(out), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(back, memory, sizeof(back), cudaMemcpyDeviceToHost));
    CHECK(cudaFree(memory));
    CHECK(cudaGetDevice(&found));
    if (found != device || first_wrong(back, WORDS, first) != WORDS) {
        fprintf(stderr, "device %d, word %zu\n", found, first_wrong(back, WORDS, first));
        exit(1);
    }
}

static void run(void *argument) {
    const int number = *(const int *)argument;
    for (int i = 0; i < TURNS; i++) {
        turn((number + i) % 2, (uint32_t)(number * TURNS + i) * WORDS);
    }
}

int main(void) {
    os_thread *threads[THREADS];
    int numbers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        if (os_thread_start(run, &numbers[i], &threads[i]) != GPUIPC_OK) {
            return 1;
        }
    }
    for (int i = 0; i < THREADS; i++) {
        os_thread_join(threads[i]);
    }
    return cudaGetLastError() == cudaSuccess ? 0 : 1;
}
