/* SPDX-License-Identifier: MIT */
/** @file Events of two processes on the emulated driver. */
#include <string.h>

#include "emulated_test.h"
#include "ipc_event.h"
#include "leak_gate.h"
#include "peer_process.h"

TestSuite(emulated_ipc_event, .timeout = 60);

#define SHARED (CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING)
/* Long beside all that a test does before it looks. */
#define DELAY_MS 700

static const char *const slow[] = {"GPUIPC_EMULATED_MACHINE=stream-delay-ms=700", NULL};

static CUevent open_event(peer_process *peer) {
    CUipcEventHandle handle;
    CUevent event = NULL;
    peer_get_bytes(peer, "event-get", handle.reserved);
    check_success(ipc_event_open(&drv, &event, handle));
    return event;
}

/* The peer has memory that is open here, and an event. */
static CUdeviceptr open_memory(peer_process *peer) {
    CUipcMemHandle handle;
    CUdeviceptr opened = 0;
    peer_ask(peer, "0", "plain-make 4096");
    peer_ask(peer, "0", "set-word 1");
    peer_get_bytes(peer, "legacy-get", handle.reserved);
    check_success(drv.cuIpcOpenMemHandle(&opened, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    peer_ask(peer, "0", "event-make");
    return opened;
}

Test(emulated_ipc_event, is_done_before_any_record) {
    peer_process peer;
    leak_gate gate;
    emulated_start(NULL);
    leak_gate_begin(&gate);
    peer_start(&peer, NULL);
    peer_ask(&peer, "0", "event-make");
    const CUevent event = open_event(&peer);
    const CUevent again = open_event(&peer);
    cr_assert_neq(event, again);
    check_success(drv.cuEventQuery(event));
    check_success(drv.cuEventSynchronize(event));
    check_success(drv.cuStreamWaitEvent(NULL, event, 0));
    check_success(drv.cuEventDestroy(event));
    check_success(drv.cuEventQuery(again));
    check_success(drv.cuEventDestroy(again));
    peer_end(&peer);
    check_success(drv.cuCtxSynchronize());
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

Test(emulated_ipc_event, holds_a_stream_until_the_owner_is_done) {
    peer_process peer;
    CUstream stream = NULL;
    uint32_t word = 0;
    emulated_start(NULL);
    peer_start(&peer, slow);
    const CUdeviceptr opened = open_memory(&peer);
    const CUevent event = open_event(&peer);
    check_success(drv.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    peer_ask(&peer, "0", "fill-later 2");
    peer_ask(&peer, "0", "event-record");
    check_result(CUDA_ERROR_NOT_READY, drv.cuEventQuery(event));
    cr_assert_eq(word_read(opened), 1, "without a wait");
    check_success(drv.cuStreamWaitEvent(stream, event, 0));
    check_result(CUDA_ERROR_NOT_READY, drv.cuStreamQuery(stream));
    check_success(drv.cuMemcpyDtoHAsync(&word, opened, sizeof(word), stream));
    cr_assert_eq(word, 2);
    check_success(drv.cuEventQuery(event));
    peer_ask(&peer, "0", "event-query");
    check_success(drv.cuIpcCloseMemHandle(opened));
    check_success(drv.cuEventDestroy(event));
    check_success(drv.cuStreamDestroy(stream));
    peer_end(&peer);
}

Test(emulated_ipc_event, can_be_waited_for_on_the_host) {
    peer_process peer;
    emulated_start(NULL);
    peer_start(&peer, slow);
    const CUdeviceptr opened = open_memory(&peer);
    const CUevent event = open_event(&peer);
    peer_ask(&peer, "0", "fill-later 2");
    peer_ask(&peer, "0", "event-record");
    check_success(drv.cuEventSynchronize(event));
    cr_assert_eq(word_read(opened), 2);
    /* The latest record counts. */
    peer_ask(&peer, "0", "fill-later 3");
    peer_ask(&peer, "0", "event-record");
    check_result(CUDA_ERROR_NOT_READY, drv.cuEventQuery(event));
    check_success(drv.cuEventSynchronize(event));
    cr_assert_eq(word_read(opened), 3);
    check_success(drv.cuIpcCloseMemHandle(opened));
    check_success(drv.cuEventDestroy(event));
    peer_end(&peer);
}

Test(emulated_ipc_event, can_be_recorded_by_the_importer) {
    peer_process peer;
    CUdeviceptr memory = 0;
    CUipcMemHandle handle;
    CUstream stream = NULL;
    char text[PEER_HEX_MAX];
    emulated_start(NULL);
    peer_start(&peer, NULL);
    check_success(drv.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    check_success(drv.cuMemAlloc(&memory, 4096));
    word_write(memory, 1);
    check_success(drv.cuIpcGetMemHandle(&handle, memory));
    peer_ask(&peer, "0", "legacy-open %s", peer_hex(handle.reserved, text));
    peer_ask(&peer, "0", "event-make");
    const CUevent event = open_event(&peer);
    set_delay(DELAY_MS);
    check_success(drv.cuMemsetD32Async(memory, 2, 1, stream));
    check_success(drv.cuEventRecord(event, stream));
    peer_ask(&peer, "600", "event-query");
    peer_ask(&peer, "0", "event-wait");
    peer_ask(&peer, "0 2", "get-word");
    peer_ask(&peer, "0", "event-query");
    check_success(drv.cuEventQuery(event));
    peer_ask(&peer, "0", "legacy-close");
    check_success(drv.cuEventDestroy(event));
    check_success(drv.cuStreamDestroy(stream));
    check_success(drv.cuMemFree(memory));
    peer_end(&peer);
}

Test(emulated_ipc_event, goes_on_when_the_owner_destroys_it) {
    peer_process peer;
    CUstream stream = NULL;
    emulated_start(NULL);
    peer_start(&peer, slow);
    const CUdeviceptr opened = open_memory(&peer);
    const CUevent event = open_event(&peer);
    check_success(drv.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    peer_ask(&peer, "0", "fill-later 2");
    peer_ask(&peer, "0", "event-record");
    peer_ask(&peer, "0", "event-destroy");
    check_result(CUDA_ERROR_NOT_READY, drv.cuEventQuery(event));
    check_success(drv.cuEventSynchronize(event));
    cr_assert_eq(word_read(opened), 2);
    check_success(drv.cuEventRecord(event, stream));
    check_success(drv.cuEventSynchronize(event));
    check_success(drv.cuIpcCloseMemHandle(opened));
    check_success(drv.cuEventDestroy(event));
    check_success(drv.cuStreamDestroy(stream));
    peer_end(&peer);
}

/* Measured on an H200: the record of a process that was killed is never done. */
Test(emulated_ipc_event, of_a_killed_owner_is_never_done) {
    peer_process peer;
    CUstream stuck = NULL;
    CUstream other = NULL;
    CUdeviceptr memory = 0;
    emulated_start(NULL);
    peer_start(&peer, slow);
    const CUdeviceptr opened = open_memory(&peer);
    const CUevent event = open_event(&peer);
    check_success(drv.cuStreamCreate(&stuck, CU_STREAM_NON_BLOCKING));
    check_success(drv.cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    peer_ask(&peer, "0", "fill-later 2");
    peer_ask(&peer, "0", "event-record");
    peer_kill(&peer);
    check_success(drv.cuStreamWaitEvent(stuck, event, 0));
    check_success(drv.cuMemAlloc(&memory, 64));
    check_success(drv.cuMemsetD32Async(memory, 5, 1, other));
    check_success(drv.cuStreamSynchronize(other));
    check_result(CUDA_ERROR_NOT_READY, drv.cuEventQuery(event));
    check_result(CUDA_ERROR_NOT_READY, drv.cuStreamQuery(stuck));
    check_success(drv.cuEventDestroy(event));
    check_success(drv.cuStreamDestroy(stuck));
    cr_assert_neq(opened, 0);
    check_success(drv.cuStreamDestroy(other));
    peer_forget(&peer);
}

Test(emulated_ipc_event, what_cannot_be_shared_is_refused) {
    CUevent plain = NULL;
    CUevent shared = NULL;
    CUevent opened = NULL;
    CUipcEventHandle handle;
    CUipcEventHandle again;
    CUipcMemHandle memory_handle;
    CUdeviceptr memory = 0;
    const CUresult map_failed = (CUresult)205;
    float milliseconds;
    emulated_start(NULL);
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuEventCreate(&plain, CU_EVENT_INTERPROCESS));
    check_success(drv.cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING));
    check_success(drv.cuEventCreate(&shared, SHARED));
    check_result(CUDA_ERROR_INVALID_HANDLE, ipc_event_get(&drv, &handle, plain));
    check_result(CUDA_ERROR_INVALID_VALUE, ipc_event_get(&drv, &handle, NULL));
    check_result(CUDA_ERROR_INVALID_VALUE, ipc_event_get(&drv, NULL, shared));
    check_success(ipc_event_get(&drv, &handle, shared));
    check_success(ipc_event_get(&drv, &again, shared));
    cr_assert_eq(memcmp(&handle, &again, sizeof(handle)), 0);
    check_result(CUDA_ERROR_INVALID_CONTEXT, ipc_event_open(&drv, &opened, handle));
    check_result(CUDA_ERROR_INVALID_VALUE, ipc_event_open(&drv, NULL, handle));
    memset(&handle, 0xff, sizeof(handle));
    check_result(map_failed, ipc_event_open(&drv, &opened, handle));
    check_success(drv.cuMemAlloc(&memory, 64));
    check_success(drv.cuIpcGetMemHandle(&memory_handle, memory));
    memcpy(&handle, &memory_handle, sizeof(handle));
    check_result(map_failed, ipc_event_open(&drv, &opened, handle));
    check_success(drv.cuEventRecord(shared, NULL));
    check_result(CUDA_ERROR_INVALID_HANDLE, drv.cuEventElapsedTime(&milliseconds, shared, shared));
    check_success(drv.cuMemFree(memory));
    check_success(drv.cuEventDestroy(plain));
    check_success(drv.cuEventDestroy(shared));
}

Test(emulated_ipc_event, an_imported_one_is_not_exported) {
    peer_process peer;
    CUipcEventHandle handle;
    emulated_start(NULL);
    peer_start(&peer, NULL);
    peer_ask(&peer, "0", "event-make");
    const CUevent event = open_event(&peer);
    check_result(CUDA_ERROR_INVALID_HANDLE, ipc_event_get(&drv, &handle, event));
    check_success(drv.cuEventDestroy(event));
    peer_end(&peer);
}

/* One descriptor is enough for many; those that come later take other places than those before. */
Test(emulated_ipc_event, there_may_be_thousands) {
    enum {
        MANY = 3000
    };
    static CUevent events[MANY];
    leak_gate gate;
    CUipcEventHandle first;
    CUipcEventHandle last;
    emulated_start(NULL);
    leak_gate_begin(&gate);
    for (int i = 0; i < MANY; i++) {
        check_success(drv.cuEventCreate(&events[i], SHARED));
        check_success(drv.cuEventQuery(events[i]));
    }
    check_success(ipc_event_get(&drv, &first, events[0]));
    check_success(ipc_event_get(&drv, &last, events[MANY - 1]));
    cr_assert_neq(memcmp(&first, &last, sizeof(first)), 0);
    for (int i = 0; i < MANY; i++) {
        check_success(drv.cuEventDestroy(events[i]));
    }
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}
