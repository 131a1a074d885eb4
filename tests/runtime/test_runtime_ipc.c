/* SPDX-License-Identifier: MIT */
/** @file Legacy IPC between two processes that know the runtime alone. */
#include "runtime.h"
#include "runtime_handle.h"
#include "runtime_other.h"

TestSuite(ipc, .timeout = 60);

static child_process *helper;

static void tell(const char *verb, const void *handle, size_t size) {
    static char text[2 * 64 + 1];
    char line[256];
    cr_assert_leq(size, 64);
    handle_write(text, handle, size);
    snprintf(line, sizeof line, "%s %s", verb, text);
    other_tell(helper, line);
}

Test(ipc, memory_is_the_same_in_both) {
    static uint32_t words[RUNTIME_WORDS];
    cudaIpcMemHandle_t handle;
    void *memory = NULL;
    OK(cudaMalloc(&memory, sizeof words));
    fill_words(words, RUNTIME_WORDS, 100);
    OK(cudaMemcpy(memory, words, sizeof words, cudaMemcpyHostToDevice));
    OK(cudaDeviceSynchronize());
    OK(cudaIpcGetMemHandle(&handle, memory));
    helper = other_start(NULL);
    for (uint32_t turn = 1; turn <= 2; turn++) {
        tell("memory", &handle, sizeof handle);
        other_expect(helper, "done");
        OK(cudaMemcpy(words, memory, sizeof words, cudaMemcpyDeviceToHost));
        cr_assert_eq(first_wrong(words, RUNTIME_WORDS, 100 + turn), RUNTIME_WORDS);
    }
    other_end(helper);
    OK(cudaFree(memory));
}

static void wait_line(void *data) {
    (void)data;
    other_expect(helper, "cudaErrorNotReady");
}

Test(ipc, an_event_is_seen_by_both) {
    cudaIpcEventHandle_t handle;
    cudaEvent_t event;
    cudaStream_t stream;
    OK(cudaStreamCreate(&stream));
    OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventInterprocess));
    OK(cudaIpcGetEventHandle(&handle, event));
    helper = other_start(NULL);
    /* The stream goes on when the other process has seen that it has not come to the event. */
    OK(cudaLaunchHostFunc(stream, wait_line, NULL));
    OK(cudaEventRecord(event, stream));
    tell("event", &handle, sizeof handle);
    OK(cudaStreamSynchronize(stream));
    other_tell(helper, "wait");
    other_expect(helper, "done");
    other_end(helper);
    OK(cudaEventDestroy(event));
    OK(cudaStreamDestroy(stream));
}

Test(ipc, what_is_refused) {
    cudaIpcMemHandle_t handle;
    cudaIpcEventHandle_t of_event;
    cudaEvent_t event;
    void *memory = NULL, *opened = NULL, *pinned = NULL;
    OK(cudaMalloc(&memory, MIB));
    OK(cudaMallocHost(&pinned, MIB));
    RESULT(cudaErrorInvalidValue, cudaIpcGetMemHandle(&handle, pinned));
    OK(cudaIpcGetMemHandle(&handle, memory));
    /* cudart's name for CUDA_ERROR_INVALID_CONTEXT */
    RESULT(cudaErrorDeviceUninitialized,
           cudaIpcOpenMemHandle(&opened, handle, cudaIpcMemLazyEnablePeerAccess));
    RESULT(cudaErrorInvalidValue, cudaIpcCloseMemHandle(memory));
    OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    RESULT(cudaErrorInvalidResourceHandle, cudaIpcGetEventHandle(&of_event, event));
    OK(cudaEventDestroy(event));
    OK(cudaFreeHost(pinned));
    OK(cudaFree(memory));
}
