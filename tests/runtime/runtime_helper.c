/* SPDX-License-Identifier: MIT */
/**
 * @file The second process of test_runtime_ipc.c: opens what the test has, by lines of hexadecimal digits.
 * memory HANDLE      opens memory, adds 1 to each of its words, and closes it
 * event HANDLE       opens an event and answers what it is asked for; "wait" waits for it
 * try                answers what the first calls of a program do
 * fork               a child of it, made behind the first call, answers what another one does
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "helper.h"
#include "runtime/runtime_api.h"
#include "runtime_handle.h"

static void must(cudaError_t result, const char *what) {
    if (result != cudaSuccess) {
        helper_say("%s: %s", what, cudaGetErrorName(result));
        exit(1);
    }
}

static void use_memory(const char *text) {
    static uint32_t words[RUNTIME_WORDS];
    cudaIpcMemHandle_t handle;
    void *memory;
    handle_read(text, &handle, sizeof handle);
    must(cudaIpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess), "open");
    must(cudaMemcpy(words, memory, sizeof words, cudaMemcpyDeviceToHost), "read");
    for (size_t i = 0; i < RUNTIME_WORDS; i++) {
        words[i]++;
    }
    must(cudaMemcpy(memory, words, sizeof words, cudaMemcpyHostToDevice), "write");
    must(cudaDeviceSynchronize(), "wait");
    must(cudaIpcCloseMemHandle(memory), "close");
    helper_say("done");
}

static void use_event(const char *text) {
    cudaIpcEventHandle_t handle;
    cudaEvent_t event;
    handle_read(text, &handle, sizeof handle);
    must(cudaIpcOpenEventHandle(&event, handle), "open");
    helper_say("%s", cudaGetErrorName(cudaEventQuery(event)));
    helper_await("wait");
    must(cudaEventSynchronize(event), "wait");
    must(cudaEventDestroy(event), "destroy");
    helper_say("done");
}

static void try_calls(void) {
    int count = -1;
    void *memory = NULL;
    const cudaError_t counted = cudaGetDeviceCount(&count);
    helper_say("count %s %d", cudaGetErrorName(counted), count);
    helper_say("malloc %s", cudaGetErrorName(cudaMalloc(&memory, 1 << 20)));
    helper_say("async %s", cudaGetErrorName(cudaMallocAsync(&memory, 1 << 20, NULL)));
    helper_say("last %s", cudaGetErrorName(cudaGetLastError()));
}

static void try_fork(void) {
    void *memory;
    must(cudaFree(NULL), "context");
    const pid_t child = fork();
    if (child == 0) {
        helper_say("child %s", cudaGetErrorName(cudaMalloc(&memory, 1 << 20)));
        _exit(0);
    }
    must(child > 0 && waitpid(child, NULL, 0) == child ? cudaSuccess : cudaErrorOperatingSystem,
         "fork");
    must(cudaMalloc(&memory, 1 << 20), "malloc");
    helper_say("done");
}

int main(void) {
    static char line[256];
    helper_begin();
    while (helper_hear(line, sizeof line)) {
        if (strncmp(line, "memory ", 7) == 0) {
            use_memory(line + 7);
        } else if (strncmp(line, "event ", 6) == 0) {
            use_event(line + 6);
        } else if (strcmp(line, "try") == 0) {
            try_calls();
        } else if (strcmp(line, "fork") == 0) {
            try_fork();
        } else {
            return 2;
        }
    }
    return 0;
}
