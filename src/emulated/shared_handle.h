/* SPDX-License-Identifier: MIT */
/** @file The 64 bytes that stand for memory in other processes: CUipcMemHandle, CUipcEventHandle,
 *  CUmemFabricHandle, CUmemPoolPtrExportData. */
#ifndef GPUIPC_EMULATED_SHARED_HANDLE_H
#define GPUIPC_EMULATED_SHARED_HANDLE_H

#include "shared_name.h"

#define SHARED_HANDLE_BYTES 64

typedef enum shared_handle_kind {
    SHARED_HANDLE_LEGACY = 1,
    SHARED_HANDLE_EVENT,
    SHARED_HANDLE_FABRIC,
    SHARED_HANDLE_POOL,
    SHARED_HANDLE_POOLED /**< memory of a pool; the id is the pool's */
} shared_handle_kind;

typedef struct shared_handle {
    shared_handle_kind kind;
    shared_name name;
    uint8_t id[16]; /**< of the memory: a name may lead to other memory by now */
    uint64_t offset;
    uint64_t bytes;
} shared_handle;

void shared_handle_encode(const shared_handle *from, void *bytes);
/** False: these bytes are no handle of this kind. */
bool shared_handle_decode(const void *bytes, shared_handle_kind kind, shared_handle *out);

#endif
