/* SPDX-License-Identifier: MIT */
/** @file Streams, events, functions of the host, captures. */
#include "os.h"
#include "runtime.h"

TestSuite(stream, .timeout = 60);

/* What holds a stream up until a test lets it go. */
typedef struct hold {
    os_mutex mutex;
    os_condition condition;
    bool is_over;
} hold;

static void hold_begin(hold *held) {
    memset(held, 0, sizeof *held);
    cr_assert_eq(os_condition_init(&held->condition), GPUIPC_OK);
}

static void hold_wait(void *argument) {
    hold *const held = argument;
    os_mutex_lock(&held->mutex);
    while (!held->is_over) {
        os_condition_wait(&held->condition, &held->mutex, os_deadline_after(-1));
    }
    os_mutex_unlock(&held->mutex);
}

static void hold_end(hold *held) {
    os_mutex_lock(&held->mutex);
    held->is_over = true;
    os_condition_signal_all(&held->condition);
    os_mutex_unlock(&held->mutex);
}

static void hold_destroy(hold *held) {
    os_condition_destroy(&held->condition);
}

Test(stream, work_comes_in_turn) {
    cudaStream_t stream;
    void *memory = NULL, *pinned = NULL;
    hold held;
    hold_begin(&held);
    OK(cudaMalloc(&memory, MIB));
    OK(cudaMallocHost(&pinned, MIB));
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    memset(pinned, 0, MIB);
    OK(cudaLaunchHostFunc(stream, hold_wait, &held));
    OK(cudaMemsetAsync(memory, 0x77, MIB, stream));
    OK(cudaMemcpyAsync(pinned, memory, MIB, cudaMemcpyDeviceToHost, stream));
    RESULT(cudaErrorNotReady, cudaStreamQuery(stream));
    cr_assert_eq(cudaGetLastError(), cudaSuccess, "measured: not ready is no error that is kept");
    cr_assert_eq(((unsigned char *)pinned)[5], 0, "nothing behind the function has begun");
    hold_end(&held);
    OK(cudaStreamSynchronize(stream));
    OK(cudaStreamQuery(stream));
    cr_assert_eq(((unsigned char *)pinned)[MIB - 1], 0x77);
    OK(cudaStreamDestroy(stream));
    OK(cudaFreeHost(pinned));
    OK(cudaFree(memory));
    hold_destroy(&held);
}

Test(stream, one_waits_for_another_by_an_event) {
    cudaStream_t first, second;
    cudaEvent_t event;
    hold held;
    hold_begin(&held);
    OK(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
    OK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
    OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    OK(cudaEventQuery(event));
    OK(cudaLaunchHostFunc(first, hold_wait, &held));
    OK(cudaEventRecord(event, first));
    OK(cudaStreamWaitEvent(second, event, 0));
    RESULT(cudaErrorNotReady, cudaStreamQuery(second));
    RESULT(cudaErrorNotReady, cudaEventQuery(event));
    hold_end(&held);
    OK(cudaStreamSynchronize(second));
    OK(cudaEventQuery(event));
    OK(cudaEventDestroy(event));
    OK(cudaStreamDestroy(second));
    OK(cudaStreamDestroy(first));
    hold_destroy(&held);
}

Test(stream, events_have_times) {
    cudaEvent_t start, end;
    cudaStream_t stream;
    float milliseconds = -1;
    OK(cudaStreamCreate(&stream));
    OK(cudaEventCreate(&start));
    OK(cudaEventCreate(&end));
    RESULT(cudaErrorInvalidResourceHandle, cudaEventElapsedTime(&milliseconds, start, end));
    OK(cudaEventRecord(start, stream));
    OK(cudaEventRecord(end, stream));
    OK(cudaEventSynchronize(end));
    OK(cudaEventElapsedTime(&milliseconds, start, end));
    cr_assert_geq(milliseconds, 0);
    OK(cudaEventDestroy(end));
    OK(cudaEventDestroy(start));
    OK(cudaStreamDestroy(stream));
}

typedef struct call {
    cudaStream_t stream;
    cudaError_t status;
    cudaError_t inside;
} call;

static void note_call(cudaStream_t stream, cudaError_t status, void *data) {
    void *memory;
    *(call *)data = (call){stream, status, cudaMalloc(&memory, MIB)};
}

Test(stream, calls_back) {
    cudaStream_t stream;
    call noted = {NULL, cudaErrorUnknown, cudaSuccess};
    OK(cudaStreamCreate(&stream));
    OK(cudaStreamAddCallback(stream, note_call, &noted, 0));
    OK(cudaStreamSynchronize(stream));
    cr_assert_eq(noted.stream, stream);
    cr_assert_eq(noted.status, cudaSuccess);
    cr_assert_eq(noted.inside, cudaErrorNotPermitted, "CUDA is not to be called there");
    OK(cudaStreamDestroy(stream));
}

Test(stream, tells_how_it_was_made) {
    cudaStream_t stream;
    unsigned flags = 0;
    int least = 1, greatest = 1, priority = 1;
    OK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    OK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest));
    OK(cudaStreamGetFlags(stream, &flags));
    cr_assert_eq(flags, cudaStreamNonBlocking);
    OK(cudaStreamGetPriority(stream, &priority));
    cr_assert_eq(priority, greatest);
    OK(cudaStreamDestroy(stream));
}

Test(stream, what_is_captured_runs_when_it_is_launched) {
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    void *memory = NULL, *pinned = NULL;
    size_t nodes = 0;
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    OK(cudaMalloc(&memory, MIB));
    OK(cudaMallocHost(&pinned, MIB));
    memset(pinned, 0, MIB);
    OK(cudaStreamCreate(&stream));
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    OK(cudaMemsetAsync(memory, 0x42, MIB, stream));
    OK(cudaMemcpyAsync(pinned, memory, MIB, cudaMemcpyDeviceToHost, stream));
    OK(cudaStreamIsCapturing(stream, &status));
    cr_assert_eq(status, cudaStreamCaptureStatusActive);
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphGetNodes(graph, NULL, &nodes));
    cr_assert_eq(nodes, 2);
    cr_assert_eq(((unsigned char *)pinned)[0], 0);
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphLaunch(exec, stream));
    OK(cudaStreamSynchronize(stream));
    cr_assert_eq(((unsigned char *)pinned)[MIB - 1], 0x42);
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphDestroy(graph));
    OK(cudaStreamDestroy(stream));
    OK(cudaFreeHost(pinned));
    OK(cudaFree(memory));
}
