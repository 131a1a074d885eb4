/* SPDX-License-Identifier: MIT */
/** @file See host_function.h; and the entry point. */
#include "host_function.h"

#include "entry.h"
#include "operation.h"

static GPUIPC_THREAD_LOCAL bool is_running;

void host_function_run(CUhostFn function, void *data) {
    is_running = true;
    function(data);
    is_running = false;
}

bool host_function_is_running(void) {
    return is_running;
}

static CUresult launch(CUstream handle, CUhostFn function, void *data) {
    stream *on;
    const CUresult result = stream_find(handle, &on);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (function == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return operation_submit(on, &(operation){.type = CU_GRAPH_NODE_TYPE_HOST,
                                             .by = on->owner->handle,
                                             .as.call = {function, data}});
}

GPUIPC_EXPORTED CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void *data) {
    const CUresult refused = ENTER(cuLaunchHostFunc);
    return refused != CUDA_SUCCESS ? refused : entry_leave(launch(handle, function, data));
}
