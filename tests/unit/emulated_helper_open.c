/* SPDX-License-Identifier: MIT */
/** @file See emulated_helper.h. */
#include "emulated_helper.h"

#include <stdlib.h>

driver drv;

void emulated_helper_open(const char *choice) {
    CUcontext context;
    if (driver_open(choice, &drv) != GPUIPC_OK ||
        drv.cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
        drv.cuCtxPushCurrent(context) != CUDA_SUCCESS) {
        helper_say("no driver: %s", gpuipc_error_get()->sentence);
        exit(4);
    }
}
