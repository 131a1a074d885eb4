/* SPDX-License-Identifier: MIT */
/** @file See buffer_table.h; and what is told of an address. */
#include "memory/buffer_table.h"

#include <inttypes.h>
#include <stddef.h>

typedef struct buffer_table {
    os_mutex mutex;
    range_node *root;
    os_mutex access_mutex;
} buffer_table;

const context_part buffer_table_part = {CONTEXT_PART(buffers, buffer_table)};

void buffer_table_enter(buffer *self) {
    buffer_table *table = self->context->buffers;
    self->range.begin = buffer_address(self, 0);
    self->range.end = self->range.begin + self->bytes;
    os_mutex_lock(&table->mutex);
    range_tree_add(&table->root, &self->range, self->context->seed);
    os_mutex_unlock(&table->mutex);
}

void buffer_table_leave(buffer *self) {
    buffer_table *table = self->context->buffers;
    if (self->range.end == 0) {
        return;
    }
    os_mutex_lock(&table->mutex);
    range_tree_remove(&table->root, &self->range);
    os_mutex_unlock(&table->mutex);
    self->range.end = 0;
}

static buffer *buffer_of(range_node *node) {
    return node == NULL ? NULL : (buffer *)((char *)node - offsetof(buffer, range));
}

/* One that is ending is in the table until it is told so. */
static bool take(range_node *node) {
    return object_try_reference(&buffer_of(node)->object);
}

/* Nor is one found that is just being made. What is held may have no handle yet, such as one whose contents are awaited. */
static bool take_published(range_node *node) {
    return atomic_load(&buffer_of(node)->handles) > 0 && take(node);
}

static buffer *find(const context *ctx, uint64_t address, bool (*takes)(range_node *node)) {
    buffer_table *table = ctx->buffers;
    os_mutex_lock(&table->mutex);
    range_node *node = range_tree_find(table->root, address, takes);
    os_mutex_unlock(&table->mutex);
    return buffer_of(node);
}

buffer *buffer_table_find(const context *ctx, uint64_t address) {
    return find(ctx, address, take);
}

void buffer_table_lock_access(const context *ctx) {
    os_mutex_lock(&ctx->buffers->access_mutex);
}

void buffer_table_unlock_access(const context *ctx) {
    os_mutex_unlock(&ctx->buffers->access_mutex);
}

/* ---- the calls ------------------------------------------------------------------------------ */

/* One hold more on the handle that it was given out by first, so that who frees by address can give that one up; where
 * that is released and others are not, a handle of its own. Takes over the reference. */
static gpuipc_status hold(buffer *found, gpuipc_buffer **out_buffer) {
    gpuipc_buffer *first = atomic_load(&found->handle);
    if (object_add_hold(OBJECT_BUFFER, first) == GPUIPC_OK) {
        *out_buffer = first;
        buffer_unreference(found);
        return GPUIPC_OK;
    }
    if (atomic_load(&found->handles) > 0) {
        return buffer_publish(found, out_buffer);
    }
    buffer_unreference(found);
    return GPUIPC_ERR_NOT_FOUND;
}

gpuipc_status gpuipc_buffer_find(gpuipc_context *handle, uint64_t address,
                                 gpuipc_buffer **out_buffer, uint64_t *out_offset) {
    status_enter(__func__);
    context *ctx;
    if (out_buffer == NULL || out_offset == NULL) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "out_buffer or out_offset is NULL");
    }
    gpuipc_status status = context_acquire(handle, &ctx);
    if (status != GPUIPC_OK) {
        return status;
    }
    buffer *found = find(ctx, address, take_published);
    const uint64_t offset = found == NULL ? 0 : address - found->range.begin;
    status = found == NULL ? GPUIPC_ERR_NOT_FOUND : hold(found, out_buffer);
    if (status == GPUIPC_OK) {
        *out_offset = offset;
    } else if (status == GPUIPC_ERR_NOT_FOUND) {
        status = status_fail(
            status, "no buffer that this context made or opened has the address 0x%" PRIx64,
            address);
    }
    context_unreference(ctx);
    return status;
}

uint64_t gpuipc_buffer_address(gpuipc_buffer *handle) {
    status_enter(__func__);
    buffer *self;
    if (buffer_acquire(handle, &self) != GPUIPC_OK) {
        return 0;
    }
    const uint64_t address = buffer_address(self, 0);
    buffer_unreference(self);
    return address;
}
