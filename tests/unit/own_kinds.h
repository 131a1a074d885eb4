/* SPDX-License-Identifier: MIT */
/** @file Memory of every kind that a program may have beside gpuipc, allocated with the driver itself. */
#ifndef GPUIPC_TEST_OWN_KINDS_H
#define GPUIPC_TEST_OWN_KINDS_H

#include "core_fixture.h"

/** How memory was allocated. */
typedef enum own_kind {
    OWN_PLAIN,        /**< cuMemAlloc */
    OWN_POOL,         /**< of a pool with this system's handle type; Linux only */
    OWN_DEFAULT_POOL, /**< of the device's default pool */
    OWN_PINNED,       /**< cuMemHostAlloc */
    OWN_REGISTERED,   /**< ordinary memory, registered */
    OWN_MANAGED,      /**< cuMemAllocManaged */
    OWN_KINDS
} own_kind;

typedef struct own_kinds {
    own_kind kind;
    uint64_t address;
    uint64_t bytes;
    void *host;
    CUmemoryPool pool;
} own_kinds;

/** Allocates on device 0, whose primary context must be current (core_enter_device). Skips the test where
 *  the driver has no such memory. */
own_kinds own_kinds_make(own_kind kind, uint64_t bytes);
void own_kinds_undo(own_kinds *own);

/** Writes and checks words, by the driver alone. */
void own_kinds_write(const own_kinds *own, uint32_t seed);
void own_kinds_check(const own_kinds *own, uint32_t seed);

#endif
