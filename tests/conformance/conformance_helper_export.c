/* SPDX-License-Identifier: MIT */
/**
 * @file The helper as the owner of memory that travels as 64 bytes. What it makes gets the numbers 0, 1,
 * ... in turn; there is one pool at a time. Commands:
 *   plain DEVICE BYTES WORD  cuMemAlloc, the word at its start; answers "RESULT RECORD", the record of
 *                            cuIpcGetMemHandle in hexadecimal digits
 *   pool DEVICE              makes a pool; answers its handle
 *   pooled BYTES WORD        the same as plain, from the pool; the record of cuMemPoolExportPointer
 *   pool-destroy             answers the CUresult
 *   peek NUMBER OFFSET, poke NUMBER OFFSET WORD  a word of it; answers the CUresult (and the word)
 *   free NUMBER              cuMemFree; answers the CUresult
 */
#include <stdio.h>
#include <string.h>

#include "conformance_helper.h"

/** More than any test makes. */
#define ALLOCATIONS_MAX 8

static CUdeviceptr made[ALLOCATIONS_MAX];
static unsigned made_count;
static CUmemoryPool pool;

/** "RESULT RECORD" */
static void answer_record(CUresult result, const void *record) {
    const unsigned char *const bytes = record;
    char line[MESSAGE_BYTES];
    size_t length = (size_t)snprintf(line, sizeof line, "%d ", (int)result);
    for (size_t i = 0; i < 64; i++) {
        length += (size_t)snprintf(line + length, sizeof line - length, "%02x", bytes[i]);
    }
    answer(line, OS_HANDLE_NONE);
}

static void do_plain(int device, size_t bytes, uint32_t word) {
    CUipcMemHandle record = {{0}};
    CUdeviceptr address = 0;
    CUresult result = use_device(device);
    if (result == CUDA_SUCCESS) {
        result = drv.cuMemAlloc(&address, bytes);
    }
    if (result == CUDA_SUCCESS) {
        made[made_count++] = address;
        result = write_word(address, word);
    }
    if (result == CUDA_SUCCESS) {
        result = drv.cuIpcGetMemHandle(&record, address);
    }
    answer_record(result, &record);
}

static void do_pool(int device) {
    const CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                       .handleTypes =
                                           (CUmemAllocationHandleType)os_shareable_handle_type,
                                       .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
    uint64_t written = 0;
    os_handle shareable = OS_HANDLE_NONE;
    CUresult result = use_device(device);
    if (result == CUDA_SUCCESS) {
        result = drv.cuMemPoolCreate(&pool, &properties);
    }
    if (result == CUDA_SUCCESS) {
        result = drv.cuMemPoolExportToShareableHandle(
            &written, pool, (CUmemAllocationHandleType)os_shareable_handle_type, 0);
    }
    if (result != CUDA_SUCCESS || os_handle_adopt_exported(&written, &shareable) != GPUIPC_OK) {
        answer_result(result);
        return;
    }
    answer("0", shareable);
    os_handle_close(&shareable);
}

static void do_pooled(size_t bytes, uint32_t word) {
    CUmemPoolPtrExportData record = {{0}};
    CUdeviceptr address = 0;
    CUresult result = drv.cuMemAllocFromPoolAsync(&address, bytes, pool, NULL);
    if (result == CUDA_SUCCESS) {
        made[made_count++] = address;
        /* Before the allocation is synchronised with: an export does not wait for that. */
        result = drv.cuMemPoolExportPointer(&record, address);
    }
    if (result == CUDA_SUCCESS) {
        result = drv.cuCtxSynchronize();
    }
    if (result == CUDA_SUCCESS) {
        result = write_word(address, word);
    }
    answer_record(result, &record);
}

bool obey_export(const char *line) {
    int device;
    unsigned number;
    size_t bytes;
    uint32_t word;
    if (made_count < ALLOCATIONS_MAX &&
        sscanf(line, "plain %d %zu %u", &device, &bytes, &word) == 3) {
        do_plain(device, bytes, word);
    } else if (sscanf(line, "pool %d", &device) == 1) {
        do_pool(device);
    } else if (made_count < ALLOCATIONS_MAX && sscanf(line, "pooled %zu %u", &bytes, &word) == 2) {
        do_pooled(bytes, word);
    } else if (strcmp(line, "pool-destroy") == 0) {
        answer_result(drv.cuMemPoolDestroy(pool));
    } else if (sscanf(line, "peek %u %zu", &number, &bytes) == 2 && number < made_count) {
        answer_word(made[number] + bytes);
    } else if (sscanf(line, "poke %u %zu %u", &number, &bytes, &word) == 3 && number < made_count) {
        answer_result(write_word(made[number] + bytes, word));
    } else if (sscanf(line, "free %u", &number) == 1 && number < made_count) {
        answer_result(drv.cuMemFree(made[number]));
    } else {
        return false;
    }
    return true;
}
