/* SPDX-License-Identifier: MIT */
/** @file The version of gpuipc. CMakeLists.txt reads the three numbers from here. */
#ifndef GPUIPC_VERSION_H
#define GPUIPC_VERSION_H

#include <stdint.h>

#include "gpuipc_export.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GPUIPC_VERSION_MAJOR 0 /**< another one: another interface */
#define GPUIPC_VERSION_MINOR 1 /**< another one: more interface, and before 1.0 another one */
#define GPUIPC_VERSION_PATCH 0 /**< another one: the same interface */

/** The three in one number: 10000 * major + 100 * minor + patch. What gpuipc_version() answers. */
#define GPUIPC_VERSION                                                                             \
    (10000 * GPUIPC_VERSION_MAJOR + 100 * GPUIPC_VERSION_MINOR + GPUIPC_VERSION_PATCH)

/**
 * The version of the library that the program runs with, to be compared with ::GPUIPC_VERSION, that of the header it
 * was compiled with.
 * @return 10000 * major + 100 * minor + patch
 * @errors none  @ownership a value  @threads any  @blocking no  @since 0.1
 */
GPUIPC_API uint32_t gpuipc_version(void);

#ifdef __cplusplus
}
#endif

#endif
