/* SPDX-License-Identifier: MIT */
/** @file What all public headers are written with: the one public place that knows compilers. */
#ifndef GPUIPC_EXPORT_H
#define GPUIPC_EXPORT_H

/** @def GPUIPC_API
 * GPUIPC_STATIC: the program links the static library (the CMake target and pkg-config set it).
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

/** @def GPUIPC_CHECKED
 * gcc and clang warn where the status of such a call is not looked at. Calls that give something up
 * (release, close, destroy, drop) are not marked. What they answer is that it had been given up before, and no program
 * can do anything about that. */
#if defined(__GNUC__)
#define GPUIPC_CHECKED __attribute__((warn_unused_result))
#else
#define GPUIPC_CHECKED
#endif

/** @def GPUIPC_SIZED
 * The start of a struct whose struct_size is set and whose other members are zero, in C and in
 * C++, without a warning of missing members. Each struct has a name for its own, such as
 * GPUIPC_BUFFER_CONFIG_INIT. */
#ifdef __cplusplus
extern "C++" template <typename type> inline type gpuipc_sized() {
    type made = type();
    made.struct_size = sizeof(type);
    return made;
}
#define GPUIPC_SIZED(type) gpuipc_sized<type>()
#else
#define GPUIPC_SIZED(type)                                                                         \
    { .struct_size = sizeof(type) }
#endif

#endif
