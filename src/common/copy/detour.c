/* SPDX-License-Identifier: MIT */
/** @file See detour.h. */
#include "copy/detour.h"

gpuipc_status detour_stream_new(const driver *drv, CUstream *out_stream) {
    return DRIVER_CALL(drv, cuStreamCreate, (out_stream, CU_STREAM_NON_BLOCKING),
                       "making a stream");
}

gpuipc_status detour_event_new(const driver *drv, CUevent *out_event) {
    return DRIVER_CALL(drv, cuEventCreate, (out_event, CU_EVENT_DISABLE_TIMING), "making an event");
}

void detour_stream_destroy(const driver *drv, CUstream stream) {
    if (stream != NULL) {
        (void)drv->cuStreamDestroy(stream);
    }
}

void detour_event_destroy(const driver *drv, CUevent event) {
    if (event != NULL) {
        (void)drv->cuEventDestroy(event);
    }
}

gpuipc_status detour_leave(const driver *drv, gpuipc_stream stream, CUevent *out_left) {
    CUevent left;
    gpuipc_status status = detour_event_new(drv, &left);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = DRIVER_CALL(drv, cuEventRecord, (left, stream), "leaving the caller's stream");
    if (status == GPUIPC_OK) {
        /* Of a stream that is being captured: CUDA_ERROR_CAPTURED_EVENT (measured on an H200, driver
         * 580). Going on would draw the library's own streams into the caller's graph. */
        const CUresult result = drv->cuEventQuery(left);
        if (result != CUDA_ERROR_NOT_READY) {
            status = driver_status(drv, result, "cuEventQuery",
                                   "leaving a stream (one that is being captured cannot be left)");
        }
    }
    if (status != GPUIPC_OK) {
        detour_event_destroy(drv, left);
        return status;
    }
    *out_left = left;
    return GPUIPC_OK;
}

gpuipc_status detour_enter(const driver *drv, CUevent left, CUstream other) {
    return DRIVER_CALL(drv, cuStreamWaitEvent, (other, left, 0), "going on with another stream");
}

gpuipc_status detour_return(const driver *drv, CUstream other, CUevent marker,
                            gpuipc_stream stream) {
    gpuipc_status status =
        DRIVER_CALL(drv, cuEventRecord, (marker, other), "coming back to the caller's stream");
    if (status == GPUIPC_OK) {
        status = DRIVER_CALL(drv, cuStreamWaitEvent, (stream, marker, 0),
                             "coming back to the caller's stream");
    }
    return status;
}
