/* SPDX-License-Identifier: MIT */
/** @file The version of the library that is loaded, which may be another than that of the header. */
#include <gpuipc/gpuipc_version.h>

uint32_t gpuipc_version(void) {
    return GPUIPC_VERSION;
}
