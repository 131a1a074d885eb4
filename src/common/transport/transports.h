/* SPDX-License-Identifier: MIT */
/** @file The tables, and what they have of each other. For this folder alone: whoever else compares tables knows too
 *  much of them (ci/checks). */
#ifndef GPUIPC_TRANSPORTS_H
#define GPUIPC_TRANSPORTS_H

#include "transport/transport.h"

extern const transport transport_vmm;
extern const transport transport_pool;
extern const transport transport_legacy;
extern const transport transport_p2p;
extern const transport transport_host;
extern const transport transport_fabric;
/** Memory that was wrapped and that only a copy carries: its id is that of host, and transport_find() does
 *  not know it. */
extern const transport transport_staged;

/** ERR_NOT_SUPPORTED with this sentence, about the device, when an attribute has none of the bits of
 *  @p mask, or an older driver does not know it. */
gpuipc_status transport_check_attribute(const context *ctx, uint32_t device_index,
                                        CUdevice_attribute which, int mask, const char *call,
                                        const char *sentence);

/* ---- virtual memory management, fabric memory included ---- */

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
gpuipc_status transport_vmm_check_driver(const context *ctx);

/* ---- memory of cuMemAlloc, which legacy and p2p both reach ---- */

/** Allocates in the primary context of the buffer's device. */
gpuipc_status transport_plain_make(buffer *self, const gpuipc_buffer_config *config);

/** transport::set_access of memory of this process. */
gpuipc_status transport_plain_set_access(buffer *self, uint32_t index, gpuipc_access access);

/** Gives up what was allocated. */
void transport_plain_release(buffer *self);
/** transport::release_waits: what was allocated is freed by cuMemFree, which waits. */
bool transport_plain_release_waits(buffer *self);

/** transport::release_segment of all memory that has neither an allocation nor host memory. */
void transport_plain_release_segment(context *ctx, segment *of, bool forked);

/** transport::export_segment of memory that has a name. */
gpuipc_status transport_export_name(const buffer *self, segment *of, bool has_pool,
                                    exported_segment *out_export);
/** ERR_NOT_SHAREABLE for memory of another process, which only its owner can send on. @param what of it is the buffer */
gpuipc_status transport_check_owned(const buffer *self, const char *what);
/** ERR_SIZE_MISMATCH unless a buffer has one segment. @param what it is of */
gpuipc_status transport_check_single(const import_source *from, const char *what);
/** What a record says of memory that is opened later. */
segment transport_named_segment(const segment_record *record);

/** The first bytes of a name come from another process, and the driver does not check them: it would open
 *  something else, and work on that may end the CUDA context (measured on an H200, driver 580). So they
 *  are taken from this user's own processes only. ERR_ACCESS_DENIED */
gpuipc_status transport_check_trusted(const import_source *from);

/* ---- what wrapping needs of the others ---- */

/** Finds the name of a buffer of cuMemAlloc memory that is mapped and has its one segment.
 *  ERR_NOT_SUPPORTED when there is no legacy IPC. */
gpuipc_status transport_legacy_name(buffer *self);

/** Notes the pool of a buffer that is mapped and has its one segment, and finds its name.
 *  ERR_NOT_SHAREABLE */
gpuipc_status transport_pool_name(buffer *self, CUmemoryPool pool);

/** Makes shared host memory for a buffer, as transport_host has it, without registering it with the driver. */
gpuipc_status transport_host_make(buffer *self, uint64_t bytes);

#endif
