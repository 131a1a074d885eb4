/* SPDX-License-Identifier: MIT */
/** @file What the tests of the CUDA runtime share. They know nothing of the driver below it, and run on NVIDIA's runtime
 *  as well, where the loader finds that. */
#ifndef GPUIPC_TEST_RUNTIME_H
#define GPUIPC_TEST_RUNTIME_H

#include <criterion/criterion.h>
#include <string.h>

#include "runtime/runtime_api.h"
#include "runtime_words.h"

#define RESULT(expected, call)                                                                     \
    do {                                                                                           \
        const cudaError_t result_ = (call);                                                        \
        cr_assert_eq(result_, expected, "%s: %s", #call, cudaGetErrorName(result_));               \
    } while (0)
#define OK(call) RESULT(cudaSuccess, call)

#define MIB ((size_t)1 << 20)

#endif
