/* SPDX-License-Identifier: MIT */
/** @file gpuipc_transport_query(), also of a machine of which there is no context: it makes one for the question. */
#include "api/context_create.h"
#include "base/struct_size.h"
#include "query/transport_query.h"

/* Why there is no context at all; NONE: for nothing that has to do with transports. */
static gpuipc_reason reason_of(gpuipc_status status) {
    switch (status) {
    case GPUIPC_ERR_NO_DRIVER:
        return GPUIPC_REASON_NO_DRIVER;
    case GPUIPC_ERR_DRIVER_TOO_OLD:
        return GPUIPC_REASON_DRIVER_TOO_OLD;
    case GPUIPC_ERR_DRIVER_FAILED:
        return GPUIPC_REASON_DRIVER_FAILED;
    case GPUIPC_ERR_NO_DEVICE:
        return GPUIPC_REASON_NO_DEVICE;
    default:
        return GPUIPC_REASON_NONE;
    }
}

static gpuipc_status query_installed(gpuipc_transport which, const gpuipc_transport_pair *given,
                                     gpuipc_transport_info *out_info) {
    context *ctx;
    gpuipc_status status =
        struct_size_check(given, STRUCT_SIZE_UP_TO(gpuipc_transport_pair, connection));
    if (status != GPUIPC_OK) {
        return status;
    }
    status = context_create(NULL, &ctx);
    const gpuipc_reason reason = reason_of(status);
    if (reason != GPUIPC_REASON_NONE) {
        const gpuipc_transport_info info =
            query_refusal(which, reason, gpuipc_error_get()->sentence);
        struct_size_write(out_info, &info, sizeof(info));
        return GPUIPC_OK;
    }
    if (status != GPUIPC_OK) {
        return status;
    }
    status = query_context(ctx, which, given, out_info);
    gpuipc_error saved = status_save();
    context_destroy(ctx);
    status_restore(&saved);
    return status;
}

gpuipc_status gpuipc_transport_query(gpuipc_context *handle, gpuipc_transport given,
                                     const gpuipc_transport_pair *pair,
                                     gpuipc_transport_info *out_info) {
    status_enter(__func__);
    gpuipc_transport which = GPUIPC_TRANSPORT_DEFAULT;
    gpuipc_status status =
        struct_size_check(out_info, STRUCT_SIZE_UP_TO(gpuipc_transport_info, sentence));
    if (status != GPUIPC_OK || (status = query_read_transport(given, &which)) != GPUIPC_OK) {
        return status;
    }
    if (handle == NULL) {
        return query_installed(which, pair, out_info);
    }
    context *ctx;
    if ((status = context_acquire(handle, &ctx)) == GPUIPC_OK) {
        status = query_context(ctx, which, pair, out_info);
        context_unreference(ctx);
    }
    return status;
}
