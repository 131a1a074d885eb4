/* SPDX-License-Identifier: MIT */
/** @file See answers.h. */
#include "query/answers.h"

#include <stdlib.h>

#include "base/status.h"
#include "cuda/context.h"

static gpuipc_status begin(context *ctx) {
    ctx->answers->device_count = ctx->device_count;
    return GPUIPC_OK;
}

static void end(context *ctx, bool is_forked) {
    (void)is_forked;
    free(ctx->answers->entries);
}

const context_part answers_part = {CONTEXT_PART(answers, answers), .begin = begin, .end = end};

static size_t position_of(const answers *self, gpuipc_transport transport, uint32_t owner,
                          uint32_t user) {
    const size_t row = (size_t)transport * self->device_count + owner;
    return row * self->device_count + user;
}

bool answers_find(answers *self, gpuipc_transport transport, uint32_t owner, uint32_t user,
                  gpuipc_transport_info *out_info) {
    bool is_known = false;
    os_mutex_lock(&self->mutex);
    if (self->entries != NULL) {
        const gpuipc_transport_info *entry =
            &self->entries[position_of(self, transport, owner, user)];
        is_known = entry->struct_size != 0;
        if (is_known) {
            *out_info = *entry;
        }
    }
    os_mutex_unlock(&self->mutex);
    return is_known;
}

gpuipc_status answers_keep(answers *self, uint32_t owner, uint32_t user,
                           const gpuipc_transport_info *info) {
    const size_t count = (size_t)GPUIPC_TRANSPORT_ROOM * self->device_count * self->device_count;
    gpuipc_status status = GPUIPC_OK;
    os_mutex_lock(&self->mutex);
    if (self->entries == NULL) {
        self->entries = calloc(count, sizeof(*self->entries));
    }
    if (self->entries == NULL) {
        status = status_out_of_memory(count * sizeof(*self->entries));
    } else {
        gpuipc_transport_info *entry =
            &self->entries[position_of(self, info->transport, owner, user)];
        *entry = *info;
        entry->struct_size = sizeof(*entry);
    }
    os_mutex_unlock(&self->mutex);
    return status;
}
