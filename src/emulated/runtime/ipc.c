/* SPDX-License-Identifier: MIT */
/** @file Legacy IPC: handles of memory and of events, which are the driver's. */
#include <string.h>

#include "current.h"

GPUIPC_EXPORTED cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *address) {
    CUipcMemHandle made;
    if (handle == NULL) {
        return current_fail(cudaErrorInvalidValue);
    }
    const cudaError_t result = RUN(cuIpcGetMemHandle, &made, number_of(address));
    if (result == cudaSuccess) {
        memcpy(handle, &made, sizeof(*handle));
    }
    return result;
}

GPUIPC_EXPORTED cudaError_t cudaIpcOpenMemHandle(void **address, cudaIpcMemHandle_t handle,
                                                 unsigned int flags) {
    CUipcMemHandle given;
    CUdeviceptr opened = 0;
    if (address == NULL) {
        return current_fail(cudaErrorInvalidValue);
    }
    memcpy(&given, &handle, sizeof(given));
    return current_give(RUN(cuIpcOpenMemHandle_v2, &opened, given, flags), &opened, address);
}

GPUIPC_EXPORTED cudaError_t cudaIpcCloseMemHandle(void *address) {
    return RUN(cuIpcCloseMemHandle, number_of(address));
}

GPUIPC_EXPORTED cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t *handle, cudaEvent_t event) {
    CUipcEventHandle made;
    if (handle == NULL) {
        return current_fail(cudaErrorInvalidValue);
    }
    const cudaError_t result = RUN(cuIpcGetEventHandle, &made, event);
    if (result == cudaSuccess) {
        memcpy(handle, &made, sizeof(*handle));
    }
    return result;
}

GPUIPC_EXPORTED cudaError_t cudaIpcOpenEventHandle(cudaEvent_t *event,
                                                   cudaIpcEventHandle_t handle) {
    CUipcEventHandle given;
    memcpy(&given, &handle, sizeof(given));
    return RUN(cuIpcOpenEventHandle, event, given);
}
