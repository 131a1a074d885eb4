/* SPDX-License-Identifier: MIT */
/** @file What wrapping needs of pools. */
#ifndef GPUIPC_TRANSPORT_POOL_H
#define GPUIPC_TRANSPORT_POOL_H

#include "transport.h"

/** Notes the pool of a buffer that is mapped and has its one segment, and finds its name.
 *  ERR_NOT_SHAREABLE */
gpuipc_status transport_pool_name(buffer *self, CUmemoryPool pool);

/** Gives up a context's own pool of a device. NULL does nothing. */
void transport_pool_end(context *ctx, device *of, bool forked);

#endif
