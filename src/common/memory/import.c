/* SPDX-License-Identifier: MIT */
/** @file See import.h. */
#include "memory/import.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "cuda/context.h"

struct import_view {
    mapping mapping;
    CUdevice ordinal;
    atomic_int access; /* CUmemAccess_flags of that device: changes with import_set_access() */
    uint32_t users;    /* guarded by the import's mutex */
    list_link link;
};

struct import_memory {
    import_key key;
    uint32_t references; /* this and the next four: guarded by the table's mutex */
    bool may_stay;
    table_link of_buffer; /* both or none in the table */
    table_link of_connection;
    list_link waiting; /* in the cache, or for its end, once it is in neither */
    os_mutex mutex;    /* held while it is mapped */
    linked_list views; /* guarded by it */
    uint32_t segment_count;
    segment segments[];
};

/* ---- the table ----------------------------------------------------------------------------- */

static gpuipc_status begin(context *ctx) {
    ctx->imports->most = ctx->config.max_cached_imports;
    ctx->imports->seed = ctx->seed;
    return GPUIPC_OK;
}

static uint64_t hash_of(const import_table *self, const import_key *key) {
    uint64_t hash = hash_word(self->seed, key->connection);
    hash = hash_bytes(hash, key->exporter_id, sizeof(key->exporter_id));
    hash = hash_word(hash, key->buffer_id);
    return hash_word(hash, key->memory);
}

static uint64_t hash_of_connection(const import_table *self, uint64_t connection) {
    return hash_word(self->seed, connection);
}

static bool is_of_buffer(const import_memory *self, const import_key *key) {
    return self->key.buffer_id == key->buffer_id && self->key.connection == key->connection &&
           self->key.memory == key->memory &&
           memcmp(self->key.exporter_id, key->exporter_id, sizeof(key->exporter_id)) == 0;
}

static bool is_cached(const import_table *table, const import_memory *self) {
    return list_has(&table->cached, &self->waiting);
}

static void take_out(import_table *table, import_memory *self) {
    table_remove(&table->by_buffer, &self->of_buffer);
    table_remove(&table->by_connection, &self->of_connection);
}

/* It ends when the table is unlocked. */
static void evict(import_table *table, import_memory *self, linked_list *ending) {
    list_remove(&self->waiting);
    take_out(table, self);
    list_append(ending, &self->waiting);
}

/* ---- the end ------------------------------------------------------------------------------- */

static import_view *view_of(list_link *at) {
    return LIST_ITEM(at, import_view, link);
}

static void end(context *ctx, import_memory *self, bool forked) {
    import_view *view;
    while ((view = view_of(list_take(&self->views))) != NULL) {
        if (!forked) {
            mapping_destroy(&ctx->driver, &view->mapping);
        }
        free(view);
    }
    for (uint32_t i = 0; i < self->segment_count; i++) {
        segment_release(&ctx->driver, &self->segments[i], forked);
    }
    free(self);
}

static void end_all(context *ctx, linked_list *ending, bool forked) {
    for (list_link *at; (at = list_take(ending)) != NULL;) {
        end(ctx, LIST_ITEM(at, import_memory, waiting), forked);
    }
}

static import_memory *oldest_of(const import_table *table) {
    return LIST_ITEM(table->cached.first, import_memory, waiting);
}

static void end_table(context *ctx, bool is_forked) {
    import_table *table = ctx->imports;
    linked_list ending = {0};
    /* In a child another thread of the parent's may have been in the midst of a change, for ever. */
    if (!is_forked || os_mutex_try_lock(&table->mutex)) {
        while (table->cached.first != NULL) {
            evict(table, oldest_of(table), &ending);
        }
        if (is_forked) {
            os_mutex_unlock(&table->mutex);
        }
        end_all(ctx, &ending, is_forked);
    }
    table_clear(&table->by_buffer);
    table_clear(&table->by_connection);
}

const context_part import_part = {CONTEXT_PART(imports, import_table), .begin = begin,
                                  .end = end_table};

void import_unreference(context *ctx, import_memory *self, bool forked) {
    import_table *table = ctx->imports;
    linked_list ending = {0};
    if (self == NULL) {
        return;
    }
    if (!forked) {
        os_mutex_lock(&table->mutex);
    }
    if (--self->references == 0) {
        if (table_has(&self->of_buffer) && self->may_stay && !forked && table->most > 0) {
            list_append(&table->cached, &self->waiting);
            if (table->cached.count > table->most) {
                evict(table, oldest_of(table), &ending);
            }
        } else {
            evict(table, self, &ending);
        }
    }
    if (!forked) {
        os_mutex_unlock(&table->mutex);
    }
    end_all(ctx, &ending, forked);
}

void import_forget_connection(context *ctx, uint64_t connection) {
    import_table *table = ctx->imports;
    linked_list ending = {0};
    if (table->most == 0) {
        return;
    }
    os_mutex_lock(&table->mutex);
    table_link *at = table_find(&table->by_connection, hash_of_connection(table, connection));
    for (table_link *next; at != NULL; at = next) { /* no two connections have one hash: hash.h */
        import_memory *self = TABLE_ITEM(at, import_memory, of_connection);
        next = table_find_next(at);
        self->may_stay = false;
        if (is_cached(table, self)) {
            evict(table, self, &ending);
        }
    }
    os_mutex_unlock(&table->mutex);
    end_all(ctx, &ending, false);
}

/* ---- finding and entering ------------------------------------------------------------------ */

static bool has_all_handles(const import_memory *self) {
    uint32_t i = 0;
    while (i < self->segment_count && os_handle_is_valid(self->segments[i].kept)) {
        i++;
    }
    return i == self->segment_count;
}

import_memory *import_find(context *ctx, const import_key *key, bool has_handles) {
    import_table *table = ctx->imports;
    import_memory *found = NULL;
    os_mutex_lock(&table->mutex);
    table_link *at = table_find(&table->by_buffer, hash_of(table, key));
    for (; at != NULL; at = table_find_next(at)) {
        import_memory *self = TABLE_ITEM(at, import_memory, of_buffer);
        if (is_of_buffer(self, key) && (!has_handles || has_all_handles(self))) {
            found = self;
            break;
        }
    }
    if (found != NULL) {
        list_remove(&found->waiting);
        found->references++;
    }
    os_mutex_unlock(&table->mutex);
    return found;
}

gpuipc_status import_new(const import_key *key, uint32_t segment_count, bool may_stay,
                         import_memory **out_import) {
    const size_t size = sizeof(import_memory) + segment_count * sizeof(segment);
    import_memory *self = malloc(size);
    if (self == NULL) {
        return status_out_of_memory(size);
    }
    *self = (import_memory){.references = 1, .may_stay = may_stay};
    if (key != NULL) {
        self->key = *key;
    }
    self->segment_count = segment_count;
    for (uint32_t i = 0; i < segment_count; i++) {
        self->segments[i] = SEGMENT_NONE;
    }
    *out_import = self;
    return GPUIPC_OK;
}

segment *import_segments(import_memory *self, uint32_t *out_count) {
    *out_count = self->segment_count;
    return self->segments;
}

void import_enter(context *ctx, import_memory *self) {
    import_table *table = ctx->imports;
    os_mutex_lock(&table->mutex);
    table_add(&table->by_buffer, &self->of_buffer, hash_of(table, &self->key));
    table_add(&table->by_connection, &self->of_connection,
              hash_of_connection(table, self->key.connection));
    os_mutex_unlock(&table->mutex);
}

void import_close_handles(context *ctx, import_memory *self) {
    os_mutex_lock(&ctx->imports->mutex);
    for (uint32_t i = 0; i < self->segment_count && self->references == 1; i++) {
        os_handle_close(&self->segments[i].kept);
    }
    os_mutex_unlock(&ctx->imports->mutex);
}

/* ---- views --------------------------------------------------------------------------------- */

/* One that is mapped so, beside @p but. The mutex is held, here and in the next. */
static import_view *find_view(const import_memory *self, const import_view *but, CUdevice ordinal,
                              int access) {
    import_view *found = view_of(self->views.first);
    while (found != NULL &&
           (found == but || found->ordinal != ordinal || atomic_load(&found->access) != access)) {
        found = view_of(found->link.next);
    }
    return found;
}

static gpuipc_status make_view(const driver *drv, import_memory *self, CUdevice ordinal,
                               CUmemAccess_flags flags, import_view **out_view) {
    import_view *view = malloc(sizeof(*view));
    if (view == NULL) {
        return status_out_of_memory(sizeof(*view));
    }
    *view = (import_view){.ordinal = ordinal};
    atomic_init(&view->access, (int)flags);
    gpuipc_status status = mapping_create(drv, self->segments, self->segment_count, &view->mapping);
    if (status != GPUIPC_OK) {
        goto free_view;
    }
    status = mapping_set_access(drv, &view->mapping, ordinal, flags);
    if (status != GPUIPC_OK) {
        goto destroy_mapping;
    }
    list_prepend(&self->views, &view->link);
    *out_view = view;
    return GPUIPC_OK;

destroy_mapping:
    mapping_destroy(drv, &view->mapping);
free_view:
    free(view);
    return status;
}

/* Whose memory it is is the peer's own word, which the driver can confirm. It says -2 of a device that this process does
 * not see (measured on an H200, driver 580). */
static gpuipc_status check_owner(const driver *drv, const import_memory *self, CUdevice owner) {
    gpuipc_status status = GPUIPC_OK;
    for (uint32_t i = 0; i < self->segment_count && status == GPUIPC_OK; i++) {
        CUmemAllocationProp prop;
        status = DRIVER_CALL(drv, cuMemGetAllocationPropertiesFromHandle,
                             (&prop, self->segments[i].allocation), "asking where memory lies");
        if (status == GPUIPC_OK && prop.location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
            prop.location.id >= 0 && prop.location.id != owner) {
            status = status_fail(GPUIPC_ERR_NOT_GPU_MEMORY,
                                 "the memory lies on device %d, and not on device %d as its sender "
                                 "says (as the driver numbers them)",
                                 prop.location.id, owner);
        }
    }
    return status;
}

gpuipc_status import_map(context *ctx, import_memory *self, CUdevice owner, CUdevice ordinal,
                         CUmemAccess_flags flags, import_view **out_view) {
    gpuipc_status status = GPUIPC_OK;
    os_mutex_lock(&self->mutex);
    import_view *view = find_view(self, NULL, ordinal, (int)flags);
    if (view == NULL && self->views.count == 0 && owner >= 0) {
        status = check_owner(&ctx->driver, self, owner);
    }
    if (view == NULL && status == GPUIPC_OK) {
        status = make_view(&ctx->driver, self, ordinal, flags, &view);
    }
    if (status == GPUIPC_OK) {
        view->users++;
        *out_view = view;
    }
    os_mutex_unlock(&self->mutex);
    return status;
}

const mapping *import_view_mapping(const import_view *view) {
    return &view->mapping;
}

CUmemAccess_flags import_view_access(const import_view *view) {
    return (CUmemAccess_flags)atomic_load(&view->access);
}

gpuipc_status import_set_access(context *ctx, import_memory *self, import_view *view,
                                CUdevice ordinal, CUmemAccess_flags flags) {
    os_mutex_lock(&self->mutex);
    gpuipc_status status = mapping_set_access(&ctx->driver, &view->mapping, ordinal, flags);
    if (status == GPUIPC_OK && ordinal == view->ordinal) {
        atomic_store(&view->access, (int)flags);
    }
    os_mutex_unlock(&self->mutex);
    return status;
}

void import_unmap(context *ctx, import_memory *self, import_view *view) {
    if (view == NULL) {
        return;
    }
    bool ends = false;
    os_mutex_lock(&self->mutex);
    /* Where imports may stay, their mappings do: they are what opening costs. A second one that
     * import_set_access() has made alike does not. */
    if (--view->users == 0 &&
        (ctx->imports->most == 0 ||
         find_view(self, view, view->ordinal, atomic_load(&view->access)) != NULL)) {
        list_remove(&view->link);
        ends = true;
    }
    os_mutex_unlock(&self->mutex);
    if (ends) {
        mapping_destroy(&ctx->driver, &view->mapping);
        free(view);
    }
}
