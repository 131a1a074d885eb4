/* SPDX-License-Identifier: MIT */
/** @file Memory of cuMemAlloc, which legacy and p2p both reach. */
#ifndef GPUIPC_TRANSPORT_PLAIN_H
#define GPUIPC_TRANSPORT_PLAIN_H

#include "transport.h"

/** Allocates in the primary context of the buffer's device. */
gpuipc_status transport_plain_make(buffer *self, const gpuipc_buffer_config *config);

/** Lets a device reach memory of another CUDA context, until it is given back as often as it was taken. */
gpuipc_status transport_plain_enable(context *ctx, uint32_t user, CUcontext reached,
                                     struct counted **out_access);

/** At the end of a context: gives back the access that a device was given for buffers. */
void transport_plain_end(context *ctx, device *user, bool forked);

/** Lets a device reach it by peer access, until the buffer's context ends: the application, too, may have
 *  come to rely on that, since it can no longer enable it (CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED). */
gpuipc_status transport_plain_reach(buffer *self, uint32_t index);

/** transport::set_access of memory of this process. */
gpuipc_status transport_plain_set_access(buffer *self, uint32_t index, gpuipc_access access);

/** Gives up what was allocated. */
void transport_plain_release(buffer *self);
/** transport::release_waits: what was allocated is freed by cuMemFree, which waits. */
bool transport_plain_release_waits(buffer *self);

/** transport::release_segment of all memory that has neither an allocation nor host memory. */
void transport_plain_release_segment(context *ctx, segment *of, bool forked);

/** The first bytes of a name come from another process, and the driver does not check them: it would open
 *  something else, and work on that may end the CUDA context (measured on an H200, driver 580). So they
 *  are taken from this user's own processes only. ERR_ACCESS_DENIED */
gpuipc_status transport_check_trusted(const sender *from);

#endif
