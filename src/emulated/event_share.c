/* SPDX-License-Identifier: MIT */
/** @file Legacy IPC of events: those made for it, opened by other processes through 64 bytes. */
#include "entry.h"
#include "event.h"

static CUresult get_handle(CUipcEventHandle *out, CUevent handle) {
    context *current;
    event *what;
    shared_handle about;
    if (!state_has_ipc()) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    CUresult result = context_current(&current);
    if (result == CUDA_SUCCESS && (out == NULL || handle == NULL)) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS) {
        result = event_find(handle, &what);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if ((what->flags & CU_EVENT_INTERPROCESS) == 0) {
        return CUDA_ERROR_INVALID_HANDLE; /* also an opened one: measured */
    }
    allocation_describe(what->shared.page, SHARED_HANDLE_EVENT, &about);
    about.offset = what->shared.offset;
    shared_handle_encode(&about, out->reserved);
    return CUDA_SUCCESS;
}

static CUresult open_handle(CUevent *out, const CUipcEventHandle *handle) {
    context *current;
    event *what;
    event_state shared;
    shared_handle which;
    if (!state_has_ipc()) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    CUresult result = context_current(&current);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (out == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!shared_handle_decode(handle->reserved, SHARED_HANDLE_EVENT, &which)) {
        return CUDA_ERROR_MAP_FAILED;
    }
    if (which.name.process == (uint32_t)os_process_id()) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    result = event_state_open(&which, &shared);
    if (result != CUDA_SUCCESS) {
        return result == CUDA_ERROR_INVALID_HANDLE || result == CUDA_ERROR_INVALID_VALUE
                   ? CUDA_ERROR_MAP_FAILED
                   : result;
    }
    /* cuda.h: it "behaves like a locally created event with the CU_EVENT_DISABLE_TIMING flag". */
    result = event_create(current, CU_EVENT_DISABLE_TIMING, shared, &what);
    if (result != CUDA_SUCCESS) {
        event_state_close(&shared);
        return result;
    }
    *out = what->handle;
    return CUDA_SUCCESS;
}

GPUIPC_EXPORTED CUresult cuIpcGetEventHandle(CUipcEventHandle *out, CUevent exported) {
    const CUresult refused = ENTER(cuIpcGetEventHandle);
    return refused != CUDA_SUCCESS ? refused : entry_leave(get_handle(out, exported));
}

GPUIPC_EXPORTED CUresult cuIpcOpenEventHandle(CUevent *out, CUipcEventHandle handle) {
    const CUresult refused = ENTER(cuIpcOpenEventHandle);
    return refused != CUDA_SUCCESS ? refused : entry_leave(open_handle(out, &handle));
}
