/* SPDX-License-Identifier: MIT */
/** @file What fabric memory has in common with other memory of virtual memory management. */
#ifndef GPUIPC_TRANSPORT_VMM_H
#define GPUIPC_TRANSPORT_VMM_H

#include "transport.h"

/** Allocates, maps and gives the owner access. @param prop of each allocation */
gpuipc_status transport_vmm_make(buffer *self, const gpuipc_buffer_config *config,
                                 const CUmemAllocationProp *prop);
gpuipc_status transport_vmm_open(buffer *self, const buffer_source *source, gpuipc_access access);
gpuipc_status transport_vmm_set_access(buffer *self, uint32_t index, gpuipc_access access);
void transport_vmm_release(buffer *self);
void transport_vmm_release_segment(context *ctx, segment *of, bool forked);

/** Makes a buffer of mapped segments, allocated with the type FABRIC, one of fabric. */
gpuipc_status transport_fabric_name(buffer *self);

/** ERR_VMM_UNSUPPORTED when the driver lacks the calls. */
gpuipc_status transport_vmm_check_driver(const context *ctx, const char *operation);

#endif
