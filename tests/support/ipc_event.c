/* SPDX-License-Identifier: MIT */
/** @file See ipc_event.h. */
#include "ipc_event.h"

#include <string.h>

#include "os.h"

CUresult ipc_event_get(const driver *drv, CUipcEventHandle *out_handle, CUevent event) {
    CUresult (*call)(CUipcEventHandle *, CUevent) = NULL;
    void *found = os_library_symbol(drv->library, "cuIpcGetEventHandle");
    memcpy(&call, &found, sizeof(call));
    return found == NULL ? CUDA_ERROR_NOT_FOUND : call(out_handle, event);
}

CUresult ipc_event_open(const driver *drv, CUevent *out_event, CUipcEventHandle handle) {
    CUresult (*call)(CUevent *, CUipcEventHandle) = NULL;
    void *found = os_library_symbol(drv->library, "cuIpcOpenEventHandle");
    memcpy(&call, &found, sizeof(call));
    return found == NULL ? CUDA_ERROR_NOT_FOUND : call(out_event, handle);
}
