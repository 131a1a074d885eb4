/* SPDX-License-Identifier: MIT */
/** @file See device_memory.h. */
#include "device_memory.h"

#include "driver.h"
#include "os.h"

static bool open_driver(driver *out_driver) {
    const char *choice = os_environment("GPUIPC_CUDA_DRIVER");
    return out_driver->library != NULL ||
           driver_open(choice == NULL || choice[0] == '\0' ? "auto" : choice, out_driver) ==
               GPUIPC_OK;
}

bool device_memory_get_used(uint64_t *out_bytes) {
    static driver drv;
    size_t left = 0;
    size_t total = 0;
    CUcontext primary;
    CUcontext popped;
    if (!open_driver(&drv) || drv.cuDevicePrimaryCtxRetain(&primary, 0) != CUDA_SUCCESS) {
        return false;
    }
    const bool is_known = drv.cuCtxPushCurrent(primary) == CUDA_SUCCESS &&
                          drv.cuMemGetInfo(&left, &total) == CUDA_SUCCESS &&
                          drv.cuCtxPopCurrent(&popped) == CUDA_SUCCESS;
    *out_bytes = total - left;
    return drv.cuDevicePrimaryCtxRelease(0) == CUDA_SUCCESS && is_known;
}
