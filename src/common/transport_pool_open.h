/* SPDX-License-Identifier: MIT */
/** @file The importer's side of pools, for the table in transport_pool.c. */
#ifndef GPUIPC_TRANSPORT_POOL_OPEN_H
#define GPUIPC_TRANSPORT_POOL_OPEN_H

#include "transport.h"

gpuipc_status transport_pool_import(sender *from, const wire_segment *record, os_handle *handle,
                                    bool keep_handle, segment *out_segment);
gpuipc_status transport_pool_open(buffer *self, const buffer_source *source, gpuipc_access access);
gpuipc_status transport_pool_set_access(buffer *self, uint32_t index, gpuipc_access access);

#endif
