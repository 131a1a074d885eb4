/* SPDX-License-Identifier: MIT */
/** @file Memory of cuMemAlloc. The driver's lock is held in every call. */
#ifndef GPUIPC_EMULATED_PLAIN_MEMORY_H
#define GPUIPC_EMULATED_PLAIN_MEMORY_H

#include "address_space.h"

/** Ends a MAPPING_PLAIN. */
void plain_unmap(mapping *mapped);

#endif
