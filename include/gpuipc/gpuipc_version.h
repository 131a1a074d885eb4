/* SPDX-License-Identifier: MIT */
/** @file The version of gpuipc. CMakeLists.txt reads the three numbers from here. */
#ifndef GPUIPC_VERSION_H
#define GPUIPC_VERSION_H

#define GPUIPC_VERSION_MAJOR 0
#define GPUIPC_VERSION_MINOR 1
#define GPUIPC_VERSION_PATCH 0

#endif
