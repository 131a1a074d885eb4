/* SPDX-License-Identifier: MIT */
/** @file What wrapping needs of legacy IPC. */
#ifndef GPUIPC_TRANSPORT_LEGACY_H
#define GPUIPC_TRANSPORT_LEGACY_H

#include "transport.h"

/** Finds the name of a buffer of cuMemAlloc memory that is mapped and has its one segment.
 *  ERR_NOT_SUPPORTED when there is no legacy IPC. */
gpuipc_status transport_legacy_name(buffer *self);

#endif
