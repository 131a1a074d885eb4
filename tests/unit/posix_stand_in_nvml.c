/* SPDX-License-Identifier: MIT */
/** @file An NVML that knows no device and keeps what it has opened, as an installed one does (seen on H200s,
 *  driver 580): some at its start, and more when it is first asked for a device. */
#include <fcntl.h>

#include "base/compiler.h"
#include "query/nvml_api.h"

static int opened = -1;

GPUIPC_EXPORTED nvmlReturn_t nvmlInit_v2(void);
GPUIPC_EXPORTED nvmlReturn_t nvmlInit_v2(void) {
    return open("/dev/null", O_RDWR | O_CLOEXEC) >= 0 ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

GPUIPC_EXPORTED nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device);
GPUIPC_EXPORTED nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    (void)uuid;
    (void)device;
    if (opened < 0) {
        opened = open("/dev/zero", O_RDWR | O_CLOEXEC);
    }
    return NVML_ERROR_NOT_FOUND;
}
