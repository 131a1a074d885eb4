/* SPDX-License-Identifier: MIT */
/**
 * @file Libraries that are no usable CUDA driver, for test_driver.c. STAND_IN chooses:
 * 1: no driver at all; 2: a driver that is too old; 3: one that does not start and has no words for
 * it; 4: one that finds entry points but no device; 5: one that finds an entry point at no address; 6: as 3, and says that
 * it has words.
 */
#include <stddef.h>
#include <string.h>

#include "base/compiler.h"
#include "cuda/cuda_api.h"

#if STAND_IN == 1
GPUIPC_EXPORTED int gpuipc_stand_in_is_no_driver(void);

int gpuipc_stand_in_is_no_driver(void) {
    return 1;
}
#else
GPUIPC_EXPORTED CUresult cuGetProcAddress(const char *symbol, void **function, int cuda_version,
                                          cuuint64_t flags);

static CUresult answer_success(void) {
    return CUDA_SUCCESS;
}

static CUresult answer_failure(void) {
    return STAND_IN == 3 || STAND_IN == 6 ? CUDA_ERROR_SYSTEM_DRIVER_MISMATCH
                                          : CUDA_ERROR_INVALID_VALUE;
}

static CUresult count_no_device(int *count) {
    *count = 0;
    return CUDA_SUCCESS;
}

/* Only the form of CUDA 11.3, without a word about why something was not found. */
CUresult cuGetProcAddress(const char *symbol, void **function, int cuda_version, cuuint64_t flags) {
    CUresult (*found)(void) = answer_success;
    (void)flags;
    if (STAND_IN == 2 && cuda_version > 11030) {
        return CUDA_ERROR_NOT_FOUND;
    }
    if ((STAND_IN == 3 || STAND_IN == 6) && strcmp(symbol, "cuInit") == 0) {
        found = answer_failure;
    }
    if (STAND_IN == 3 && strncmp(symbol, "cuGetError", 10) == 0) {
        found = answer_failure;
    }
    memcpy(function, &found, sizeof(found));
    if (STAND_IN == 5 && strcmp(symbol, "cuStreamQuery") == 0) {
        memset(function, 0, sizeof(found));
    }
    if (STAND_IN == 4 && strcmp(symbol, "cuDeviceGetCount") == 0) {
        CUresult (*count)(int *) = count_no_device;
        memcpy(function, &count, sizeof(count));
    }
    return CUDA_SUCCESS;
}
#endif
