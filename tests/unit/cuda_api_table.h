/* SPDX-License-Identifier: MIT */
/**
 * @file Makes the static array cuda_api_rows from whichever header was included before: cuda_api.h
 * or the real cuda.h. Included once in each of two translation units, because the two headers
 * cannot be in one.
 */
#ifndef GPUIPC_TEST_CUDA_API_TABLE_H
#define GPUIPC_TEST_CUDA_API_TABLE_H

#include <stdalign.h>

#include "cuda_api_names.h"
#include "cuda_api_rows.h"

/** Every member of every struct in cuda_api.h: X(type, member); those that came after CUDA 12.0 are
 *  CUDA_API_LATER_MEMBERS, in cuda_api_names.h. */
/* clang-format off */
#define CUDA_API_MEMBERS(X) \
    X(CUuuid, bytes) \
    X(CUmemLocation, type) \
    X(CUmemLocation, id) \
    X(CUmemAllocationProp, type) \
    X(CUmemAllocationProp, requestedHandleTypes) \
    X(CUmemAllocationProp, location) \
    X(CUmemAllocationProp, win32HandleMetaData) \
    X(CUmemAllocationProp, allocFlags) \
    X(CUmemAllocationProp, allocFlags.compressionType) \
    X(CUmemAllocationProp, allocFlags.gpuDirectRDMACapable) \
    X(CUmemAllocationProp, allocFlags.usage) \
    X(CUmemAllocationProp, allocFlags.reserved) \
    X(CUmemAccessDesc, location) \
    X(CUmemAccessDesc, flags) \
    X(CUipcMemHandle, reserved) \
    X(CUipcEventHandle, reserved) \
    X(CUmemPoolPtrExportData, reserved) \
    X(CUmemPoolProps, allocType) \
    X(CUmemPoolProps, handleTypes) \
    X(CUmemPoolProps, location) \
    X(CUmemPoolProps, win32SecurityAttributes)
/* clang-format on */

#define TYPE_ROWS(type) {"sizeof " #type, sizeof(type)}, {"alignof " #type, alignof(type)},
#define MEMBER_ROWS(type, member)                                                                  \
    {"offsetof " #type "." #member, offsetof(type, member)},                                       \
        {"sizeof " #type "." #member, sizeof(((type *)0)->member)},
#define VALUE_ROW(name) {#name, (uint64_t)(name)},

static const cuda_api_row cuda_api_rows[] = {
    CUDA_API_TYPES(TYPE_ROWS) CUDA_API_MEMBERS(MEMBER_ROWS) CUDA_API_LATER_MEMBERS(MEMBER_ROWS)
        CUDA_API_VALUES(VALUE_ROW)
    /* A pointer to a function, which the pattern for types does not see. */
    TYPE_ROWS(CUhostFn)
    /* These two are macros in both headers. */
    {"CU_STREAM_LEGACY", (uint64_t)(uintptr_t)CU_STREAM_LEGACY},
    {"CU_STREAM_PER_THREAD", (uint64_t)(uintptr_t)CU_STREAM_PER_THREAD},
};

#endif
