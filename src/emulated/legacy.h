/* SPDX-License-Identifier: MIT */
/** @file Legacy IPC: what its calls share with the rest. The driver's lock is held in every call. */
#ifndef GPUIPC_EMULATED_LEGACY_H
#define GPUIPC_EMULATED_LEGACY_H

#include "address_space.h"

/** Ends a MAPPING_OPENED, however often it was opened. */
void legacy_unmap(mapping *mapped);

#endif
