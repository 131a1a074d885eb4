/* SPDX-License-Identifier: MIT */
/**
 * @file The helper as the owner of what orders work: an event for other processes, a stream of its own,
 * and a word that a test shares with it. Commands:
 *   event DEVICE      makes the event and the stream; answers "RESULT RECORD", the record of
 *                     cuIpcGetEventHandle in hexadecimal digits
 *   record            records the event on the stream; answers the CUresult
 *   query             cuEventQuery; answers the CUresult
 *   await-event       the stream waits for the event; answers the CUresult
 *   synchronize       cuStreamSynchronize; answers the CUresult
 *   event-destroy     answers the CUresult
 *   word DEVICE BYTES maps the shared memory that came along and registers it; answers the CUresult
 *   hold VALUE        the stream waits until the first word is at least that; answers the CUresult
 *   put VALUE         the stream writes the first word; answers the CUresult
 *   store VALUE       the program itself writes it; answers 0
 */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "conformance_helper.h"
#include "ipc_event.h"

static CUevent event;
static CUstream stream;
static CUdeviceptr word_device;
static void *word_host;

static CUresult need_stream(void) {
    return stream != NULL ? CUDA_SUCCESS : drv.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
}

static void do_event(int device) {
    CUipcEventHandle record = {{0}};
    char line[MESSAGE_BYTES];
    CUresult result = use_device(device);
    if (result == CUDA_SUCCESS) {
        result = need_stream();
    }
    if (result == CUDA_SUCCESS) {
        result = drv.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS);
    }
    if (result == CUDA_SUCCESS) {
        result = ipc_event_get(&drv, &record, event);
    }
    size_t length = (size_t)snprintf(line, sizeof line, "%d ", (int)result);
    for (size_t i = 0; i < sizeof record.reserved; i++) {
        length += (size_t)snprintf(line + length, sizeof line - length, "%02x",
                                   (unsigned)(unsigned char)record.reserved[i]);
    }
    answer(line, OS_HANDLE_NONE);
}

static void do_word(int device, size_t bytes, os_handle shared) {
    CUresult result = use_device(device);
    if (result == CUDA_SUCCESS && os_memory_map(shared, bytes, true, &word_host) != GPUIPC_OK) {
        result = CUDA_ERROR_OPERATING_SYSTEM;
    }
    if (result == CUDA_SUCCESS) {
        result = need_stream();
    }
    if (result == CUDA_SUCCESS) {
        result = drv.cuMemHostRegister(word_host, bytes,
                                       CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
    }
    if (result == CUDA_SUCCESS) {
        result = drv.cuMemHostGetDevicePointer(&word_device, word_host, 0);
    }
    answer_result(result);
}

bool obey_order(const char *line, os_handle handle) {
    int device;
    size_t bytes;
    uint64_t value;
    if (sscanf(line, "event %d", &device) == 1) {
        do_event(device);
    } else if (strcmp(line, "record") == 0) {
        answer_result(drv.cuEventRecord(event, stream));
    } else if (strcmp(line, "query") == 0) {
        answer_result(drv.cuEventQuery(event));
    } else if (strcmp(line, "await-event") == 0) {
        answer_result(drv.cuStreamWaitEvent(stream, event, 0));
    } else if (strcmp(line, "synchronize") == 0) {
        answer_result(drv.cuStreamSynchronize(stream));
    } else if (strcmp(line, "event-destroy") == 0) {
        answer_result(drv.cuEventDestroy(event));
    } else if (sscanf(line, "word %d %zu", &device, &bytes) == 2) {
        do_word(device, bytes, handle);
    } else if (sscanf(line, "hold %" SCNu64, &value) == 1) {
        answer_result(
            drv.cuStreamWaitValue64(stream, word_device, value, CU_STREAM_WAIT_VALUE_GEQ));
    } else if (sscanf(line, "put %" SCNu64, &value) == 1) {
        answer_result(
            drv.cuStreamWriteValue64(stream, word_device, value, CU_STREAM_WRITE_VALUE_DEFAULT));
    } else if (sscanf(line, "store %" SCNu64, &value) == 1) {
        atomic_store((_Atomic uint64_t *)word_host, value);
        answer_result(CUDA_SUCCESS);
    } else {
        return false;
    }
    return true;
}
