/* SPDX-License-Identifier: MIT */
/** @file What a program on Windows says in cuMemCreate about the rights of the handles that will be made
 *  of memory. */
#ifndef GPUIPC_EMULATED_HANDLE_RIGHTS_H
#define GPUIPC_EMULATED_HANDLE_RIGHTS_H

#include "cuda/cuda_api.h"

/**
 * Whether @p attributes, of CUmemAllocationProp::win32HandleMetaData, are an OBJECT_ATTRIBUTES that can be
 * followed. They are read, and not kept: handles are made with the rights that os_memory_create gives.
 * @return CUDA_ERROR_INVALID_VALUE: they are none; CUDA_ERROR_NOT_SUPPORTED: they ask for what there is
 * not here, a name or handles that child processes inherit
 */
CUresult handle_rights_check(const void *attributes);

#endif
