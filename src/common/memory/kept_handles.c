/* SPDX-License-Identifier: MIT */
/** @file See kept_handles.h. */
#include "memory/kept_handles.h"

#include "cuda/context.h"

const context_part kept_handles_part = {CONTEXT_PART(kept_handles, kept_handles)};

/* The mutex is held, also while the driver makes the handle: whoever wants it at the same time gets it then. */
static gpuipc_status keep(context *ctx, segment *of) {
    gpuipc_status status = segment_export(&ctx->driver, of, &of->kept);
    if (status == GPUIPC_OK) {
        of->has_place = true;
        ctx->kept_handles->count++;
    }
    return status;
}

gpuipc_status kept_handles_export(struct context *ctx, segment *of, bool is_imported,
                                  os_handle *out_handle, bool *out_is_kept) {
    kept_handles *self = ctx->kept_handles;
    gpuipc_status status = GPUIPC_OK;
    if (is_imported) { /* it came with its handle, else it would not be exported */
        *out_handle = of->kept;
        *out_is_kept = true;
        return GPUIPC_OK;
    }
    os_mutex_lock(&self->mutex);
    if (!os_handle_is_valid(of->kept) && self->count < ctx->config.max_kept_handles) {
        status = keep(ctx, of);
    }
    const os_handle kept = of->kept;
    os_mutex_unlock(&self->mutex);
    if (status == GPUIPC_OK && os_handle_is_valid(kept)) {
        *out_handle = kept;
        *out_is_kept = true;
    } else if (status == GPUIPC_OK) {
        status = segment_export(&ctx->driver, of, out_handle);
        *out_is_kept = false;
    }
    return status;
}

void kept_handles_prepare(struct context *ctx, segment *of) {
    const gpuipc_error why = status_save();
    os_mutex_lock(&ctx->kept_handles->mutex);
    if (ctx->kept_handles->count < ctx->config.max_kept_handles) {
        (void)keep(ctx, of);
    }
    os_mutex_unlock(&ctx->kept_handles->mutex);
    status_restore(&why);
}

gpuipc_status kept_handles_copy(struct context *ctx, const segment *of, os_handle *out_handle) {
    os_mutex_lock(&ctx->kept_handles->mutex);
    const os_handle kept = of->kept;
    os_mutex_unlock(&ctx->kept_handles->mutex);
    return os_handle_is_valid(kept) ? os_handle_duplicate(kept, out_handle)
                                    : segment_export(&ctx->driver, of, out_handle);
}

void kept_handles_remove(struct context *ctx, const segment *of) {
    if (of->has_place) {
        os_mutex_lock(&ctx->kept_handles->mutex);
        ctx->kept_handles->count--;
        os_mutex_unlock(&ctx->kept_handles->mutex);
    }
}
