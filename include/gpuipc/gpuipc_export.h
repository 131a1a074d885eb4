/* SPDX-License-Identifier: MIT */
/** @file GPUIPC_API marks what the library exports: the one public place that knows compilers. */
#ifndef GPUIPC_EXPORT_H
#define GPUIPC_EXPORT_H

/* GPUIPC_STATIC: the program links the static library (the CMake target and pkg-config set it).
 * GPUIPC_BUILDING: set only while the shared library itself is compiled. */
#if defined(GPUIPC_STATIC)
#define GPUIPC_API
#elif defined(_WIN32) && defined(GPUIPC_BUILDING)
#define GPUIPC_API __declspec(dllexport)
#elif defined(_WIN32)
#define GPUIPC_API __declspec(dllimport)
#elif defined(__GNUC__)
#define GPUIPC_API __attribute__((visibility("default")))
#else
#define GPUIPC_API
#endif

#endif
