/* SPDX-License-Identifier: MIT */
/** @file Declares each function of the emulated runtime once more behind NVIDIA's header: another type is an error. */
#include <cuda_runtime_api.h>

#include "runtime/runtime_entry_points.h"

#define DECLARE_AGAIN(name, parameters) extern cudaError_t name parameters;
RUNTIME_API_LIST(DECLARE_AGAIN)
#if CUDART_VERSION >= 13000
RUNTIME_API_LIST_13(DECLARE_AGAIN)
#else
RUNTIME_API_LIST_12(DECLARE_AGAIN)
#endif

int main(void) {
    return 0;
}
