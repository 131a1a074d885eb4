/* SPDX-License-Identifier: MIT */
/** @file Legacy IPC of memory on the emulated driver, between this process and another one. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "emulated_test.h"
#include "leak_gate.h"
#include "peer_process.h"

TestSuite(emulated_legacy, .timeout = 60);

#define FLAG CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS

static gpuipc_emulated_live live(void) {
    gpuipc_emulated_live now;
    get_live(&now);
    return now;
}

/* The handle of memory that the peer has made, with this word in it. */
static CUipcMemHandle peer_memory(peer_process *peer, uint32_t word) {
    CUipcMemHandle handle;
    peer_ask(peer, "0", "plain-make 5000000");
    peer_ask(peer, "0", "set-word %" PRIu32, word);
    peer_get_bytes(peer, "legacy-get", handle.reserved);
    return handle;
}

/* The default stream's thread, which it keeps, is no leak. */
static void start(const char *machine) {
    emulated_start(machine);
    const CUdeviceptr memory = memory_make(0, GRANULE);
    word_write(memory, 1);
    memory_unmake(memory, GRANULE);
}

Test(emulated_legacy, both_see_one_memory) {
    peer_process peer;
    CUdeviceptr opened = 0;
    leak_gate gate;
    char text[1024];
    char line[128];
    start(NULL);
    leak_gate_begin(&gate);
    peer_start(&peer, NULL);
    const CUipcMemHandle handle = peer_memory(&peer, 41);
    check_success(drv.cuIpcOpenMemHandle(&opened, handle, FLAG));
    cr_assert_eq(word_read(opened), 41);
    word_write(opened, 42);
    peer_ask(&peer, "0 42", "get-word");
    cr_assert_eq(live().ipc, 1);
    list_live(text, sizeof(text));
    snprintf(line, sizeof(line), "ipc 0x%" PRIx64 " size 5000000 device 0 count 1\n",
             (uint64_t)opened);
    cr_assert(strstr(text, line) != NULL, "%s", text);
    check_success(drv.cuIpcCloseMemHandle(opened));
    cr_assert_eq(live().ipc, 0);
    peer_end(&peer);
    check_success(drv.cuCtxSynchronize());
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

Test(emulated_legacy, the_other_way_round) {
    peer_process peer;
    char text[PEER_HEX_MAX];
    CUipcMemHandle handle;
    CUipcMemHandle again;
    CUdeviceptr memory = 0;
    emulated_start(NULL);
    peer_start(&peer, NULL);
    check_success(drv.cuMemAlloc(&memory, 3 * GRANULE));
    word_write(memory, 77);
    check_success(drv.cuIpcGetMemHandle(&handle, memory));
    check_success(drv.cuIpcGetMemHandle(&again, memory + GRANULE));
    cr_assert_eq(memcmp(&handle, &again, sizeof(handle)), 0, "inside: the handle of the whole");
    peer_ask(&peer, "0", "legacy-open %s", peer_hex(handle.reserved, text));
    peer_ask(&peer, "0 77", "get-word");
    peer_ask(&peer, "0", "set-word 78");
    cr_assert_eq(word_read(memory), 78);
    peer_ask(&peer, "1", "plain-free");
    peer_ask(&peer, "0", "legacy-close");
    peer_ask(&peer, "1", "legacy-close");
    peer_ask(&peer, "1", "get-word");
    peer_end(&peer);
    check_success(drv.cuMemFree(memory));
}

/* A producer that does not wait for its own work: the consumer sees what was there before. */
Test(emulated_legacy, a_missing_wait_shows_stale_data) {
    peer_process peer;
    CUdeviceptr opened = 0;
    const char *const environment[] = {"GPUIPC_EMULATED_MACHINE=stream-delay-ms=700", NULL};
    emulated_start(NULL);
    peer_start(&peer, environment);
    const CUipcMemHandle handle = peer_memory(&peer, 1);
    check_success(drv.cuIpcOpenMemHandle(&opened, handle, FLAG));
    peer_ask(&peer, "0", "fill-later 2");
    cr_assert_eq(word_read(opened), 1);
    peer_ask(&peer, "0", "synchronize");
    cr_assert_eq(word_read(opened), 2);
    check_success(drv.cuIpcCloseMemHandle(opened));
    peer_end(&peer);
}

Test(emulated_legacy, is_counted_when_opened_again) {
    peer_process peer;
    CUdeviceptr first = 0;
    CUdeviceptr second = 0;
    CUdeviceptr base = 0;
    size_t bytes = 0;
    emulated_start(NULL);
    peer_start(&peer, NULL);
    const CUipcMemHandle handle = peer_memory(&peer, 5);
    check_success(drv.cuIpcOpenMemHandle(&first, handle, FLAG));
    peer_kill(&peer);
    check_success(drv.cuIpcOpenMemHandle(&second, handle, FLAG));
    cr_assert_eq(first, second, "measured: also when its owner is dead");
    check_success(drv.cuMemGetAddressRange(&base, &bytes, first + 100));
    cr_assert(base == first && bytes == 5000000);
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuIpcCloseMemHandle(first + GRANULE));
    check_success(drv.cuIpcCloseMemHandle(first));
    cr_assert_eq(word_read(first), 5);
    check_success(drv.cuIpcCloseMemHandle(first));
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuIpcCloseMemHandle(first));
    check_result(CUDA_ERROR_INVALID_HANDLE, drv.cuIpcOpenMemHandle(&first, handle, FLAG));
    peer_forget(&peer);
}

Test(emulated_legacy, each_context_opens_for_itself) {
    peer_process peer;
    CUdeviceptr first = 0;
    CUdeviceptr second = 0;
    int device = -1;
    emulated_start(NULL);
    peer_start(&peer, NULL);
    const CUipcMemHandle handle = peer_memory(&peer, 6);
    check_success(drv.cuIpcOpenMemHandle(&first, handle, FLAG));
    context_use(1);
    check_success(drv.cuIpcOpenMemHandle(&second, handle, FLAG));
    cr_assert_neq(first, second);
    check_success(drv.cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, second));
    cr_assert_eq(device, 1, "measured: the opener's, not the owner's");
    check_success(drv.cuMemsetD32(second, 7, 1));
    check_success(drv.cuCtxSynchronize());
    cr_assert_eq(word_read(second), 7);
    check_success(drv.cuIpcCloseMemHandle(second));
    cr_assert_eq(live().ipc, 1);
    check_success(drv.cuDevicePrimaryCtxRelease(0));
    cr_assert_eq(live().ipc, 0, "with a context goes what it has opened");
    peer_end(&peer);
}

Test(emulated_legacy, a_device_out_of_reach_is_refused) {
    peer_process peer;
    CUdeviceptr opened = 0;
    emulated_start("p2p=none");
    peer_start(&peer, NULL);
    const CUipcMemHandle handle = peer_memory(&peer, 6);
    context_use(1);
    check_result(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, drv.cuIpcOpenMemHandle(&opened, handle, FLAG));
    peer_end(&peer);
}

Test(emulated_legacy, a_handle_outlives_neither_memory_nor_process) {
    peer_process peer;
    CUdeviceptr opened = 9;
    emulated_start(NULL);
    peer_start(&peer, NULL);
    const CUipcMemHandle freed = peer_memory(&peer, 6);
    peer_ask(&peer, "0", "plain-free");
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuIpcOpenMemHandle(&opened, freed, FLAG));
    const CUipcMemHandle orphaned = peer_memory(&peer, 7);
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuIpcOpenMemHandle(&opened, freed, FLAG));
    peer_kill(&peer);
    check_result(CUDA_ERROR_INVALID_HANDLE, drv.cuIpcOpenMemHandle(&opened, orphaned, FLAG));
    cr_assert_eq(opened, 9);
    peer_forget(&peer);
}

Test(emulated_legacy, memory_outlives_its_owner_where_it_is_open) {
    peer_process peer;
    CUdeviceptr opened = 0;
    emulated_start(NULL);
    peer_start(&peer, NULL);
    const CUipcMemHandle handle = peer_memory(&peer, 8);
    check_success(drv.cuIpcOpenMemHandle(&opened, handle, FLAG));
    peer_kill(&peer);
    cr_assert_eq(word_read(opened), 8);
    check_success(drv.cuIpcCloseMemHandle(opened));
    peer_forget(&peer);
}

Test(emulated_legacy, what_is_no_handle_is_refused) {
    CUipcMemHandle handle;
    CUdeviceptr memory = 0;
    CUdeviceptr opened = 9;
    emulated_start(NULL);
    memset(&handle, 0, sizeof(handle));
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuIpcOpenMemHandle(&opened, handle, FLAG));
    memset(&handle, 0xff, sizeof(handle));
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuIpcOpenMemHandle(&opened, handle, FLAG));
    check_success(drv.cuMemAlloc(&memory, 64));
    check_success(drv.cuIpcGetMemHandle(&handle, memory));
    check_result(CUDA_ERROR_INVALID_CONTEXT, drv.cuIpcOpenMemHandle(&opened, handle, FLAG));
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuIpcOpenMemHandle(&opened, handle, 0));
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuIpcOpenMemHandle(NULL, handle, FLAG));
    cr_assert_eq(opened, 9);
    check_success(drv.cuMemFree(memory));
}

/* Whatever a process has under a number, a pipe that nobody writes to among it, looking waits for nothing. */
Test(emulated_legacy, a_name_that_leads_elsewhere_is_refused) {
    peer_process peer;
    CUdeviceptr opened = 9;
    uint32_t process = 0;
    emulated_start(NULL);
    peer_start(&peer, NULL);
    CUipcMemHandle handle = peer_memory(&peer, 6);
    memcpy(&process, handle.reserved + 8, sizeof(process));
    cr_assert_eq(process, (uint32_t)child_process_id(peer.child));
    peer_ask(&peer, "0", "plain-free");
    for (uint32_t number = 0; number < 400; number++) {
        memcpy(handle.reserved + 12, &number, sizeof(number));
        check_result(CUDA_ERROR_INVALID_VALUE, drv.cuIpcOpenMemHandle(&opened, handle, FLAG));
    }
    cr_assert_eq(opened, 9);
    peer_end(&peer);
}

Test(emulated_legacy, is_for_memory_of_cuMemAlloc_alone) {
    CUipcMemHandle handle;
    CUdeviceptr pooled = 0;
    CUdeviceptr plain = 0;
    int host = 0;
    CUcontext popped = NULL;
    emulated_start(NULL);
    const CUdeviceptr memory = memory_make(0, GRANULE);
    check_success(drv.cuMemAllocAsync(&pooled, 64, NULL));
    check_success(drv.cuMemAlloc(&plain, 64));
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuIpcGetMemHandle(&handle, memory));
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuIpcGetMemHandle(&handle, pooled));
    check_result(CUDA_ERROR_INVALID_VALUE,
                 drv.cuIpcGetMemHandle(&handle, (CUdeviceptr)(uintptr_t)&host));
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuIpcGetMemHandle(&handle, 0));
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuIpcGetMemHandle(NULL, plain));
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuIpcCloseMemHandle(plain));
    check_success(drv.cuCtxPopCurrent(&popped));
    check_result(CUDA_ERROR_INVALID_CONTEXT, drv.cuIpcGetMemHandle(&handle, plain));
    check_success(drv.cuCtxPushCurrent(popped));
    check_success(drv.cuMemFree(plain));
    check_success(drv.cuMemFree(pooled));
    memory_unmake(memory, GRANULE);
}

Test(emulated_legacy, wsl_has_none) {
    CUipcMemHandle handle;
    CUdeviceptr memory = 0;
    int capable = 1;
    emulated_start("wsl=1");
    memset(&handle, 0, sizeof(handle));
    check_success(drv.cuMemAlloc(&memory, 64));
    check_result(CUDA_ERROR_NOT_SUPPORTED, drv.cuIpcGetMemHandle(&handle, memory));
    check_result(CUDA_ERROR_NOT_SUPPORTED, drv.cuIpcOpenMemHandle(&memory, handle, FLAG));
    check_result(CUDA_ERROR_NOT_SUPPORTED, drv.cuIpcCloseMemHandle(memory));
    check_success(drv.cuPointerGetAttribute(
        &capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, memory));
    cr_assert_eq(capable, 0);
    check_success(drv.cuMemFree(memory));
}
