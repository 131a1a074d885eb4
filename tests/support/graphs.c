/* SPDX-License-Identifier: MIT */
/** @file See graphs.h. */
#include "graphs.h"

#include <string.h>

static struct {
    CUresult (*begin)(CUstream, CUstreamCaptureMode);
    CUresult (*end)(CUstream, void **);
    CUresult (*instantiate)(void **, void *, unsigned long long);
    CUresult (*launch)(void *, CUstream);
    CUresult (*exec_destroy)(void *);
    CUresult (*destroy)(void *);
} calls;

static bool find(const driver *drv, const char *name, void *out_function) {
    void *symbol = os_library_symbol(drv->library, name);
    memcpy(out_function, &symbol, sizeof(symbol));
    return symbol != NULL;
}

bool graphs_find(const driver *drv) {
    return find(drv, "cuStreamBeginCapture_v2", &calls.begin) &&
           find(drv, "cuStreamEndCapture", &calls.end) &&
           find(drv, "cuGraphInstantiateWithFlags", &calls.instantiate) &&
           find(drv, "cuGraphLaunch", &calls.launch) &&
           find(drv, "cuGraphExecDestroy", &calls.exec_destroy) &&
           find(drv, "cuGraphDestroy", &calls.destroy);
}

bool graphs_begin(CUstream stream, CUstreamCaptureMode mode) {
    return calls.begin(stream, mode) == CUDA_SUCCESS;
}

bool graphs_end(CUstream stream, captured *out_made) {
    captured made = {NULL, NULL};
    if (calls.end(stream, &made.graph) != CUDA_SUCCESS) {
        return false;
    }
    if (calls.instantiate(&made.exec, made.graph, 0) != CUDA_SUCCESS) {
        (void)graphs_destroy(&made);
        return false;
    }
    *out_made = made;
    return true;
}

bool graphs_launch(const captured *self, CUstream stream) {
    return calls.launch(self->exec, stream) == CUDA_SUCCESS;
}

bool graphs_destroy(captured *self) {
    if (self->exec != NULL && calls.exec_destroy(self->exec) == CUDA_SUCCESS) {
        self->exec = NULL;
    }
    if (self->exec == NULL && self->graph != NULL && calls.destroy(self->graph) == CUDA_SUCCESS) {
        self->graph = NULL;
    }
    return self->graph == NULL;
}
