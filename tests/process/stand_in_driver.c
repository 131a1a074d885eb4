/* SPDX-License-Identifier: MIT */
/** @file A CUDA driver that does not start: cuInit answers what STAND_IN_INIT says. */
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "cuda/cuda_api.h"

GPUIPC_EXPORTED CUresult cuGetProcAddress(const char *symbol, void **function, int cuda_version,
                                          cuuint64_t flags);

static CUresult answer_invalid(void) {
    return CUDA_ERROR_INVALID_VALUE;
}

static CUresult initialize(unsigned int flags) {
    const char *code = getenv("STAND_IN_INIT");
    (void)flags;
    return code == NULL ? CUDA_ERROR_UNKNOWN : (CUresult)strtol(code, NULL, 10);
}

/* Everything is there, and nothing works. */
CUresult cuGetProcAddress(const char *symbol, void **function, int cuda_version, cuuint64_t flags) {
    CUresult (*found)(void) = answer_invalid;
    CUresult (*init)(unsigned int) = initialize;
    (void)cuda_version;
    (void)flags;
    memcpy(function, &found, sizeof(found));
    if (strcmp(symbol, "cuInit") == 0) {
        memcpy(function, &init, sizeof(init));
    }
    return CUDA_SUCCESS;
}
