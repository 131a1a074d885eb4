/* SPDX-License-Identifier: MIT */
/** @file The names and descriptions of results, and the last one that was none. */
#include "current.h"

static const struct {
    cudaError_t code;
    const char *name;
    const char *text;
} errors[] = {
#define ERROR_ROW(name, code, text) {name, #name, text},
    RUNTIME_ERROR_LIST(ERROR_ROW)
#undef ERROR_ROW
};

/* cuda_runtime_api.h: for another code "unrecognized error code". */
static const char *find(cudaError_t code, bool wants_name) {
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        if (errors[i].code == code) {
            return wants_name ? errors[i].name : errors[i].text;
        }
    }
    return "unrecognized error code";
}

GPUIPC_EXPORTED const char *cudaGetErrorName(cudaError_t error) {
    return find(error, true);
}

GPUIPC_EXPORTED const char *cudaGetErrorString(cudaError_t error) {
    return find(error, false);
}

GPUIPC_EXPORTED cudaError_t cudaGetLastError(void) {
    return current_take_error();
}

GPUIPC_EXPORTED cudaError_t cudaPeekAtLastError(void) {
    return current_see_error();
}
