/* SPDX-License-Identifier: MIT */
/** @file See import.h. */
#include "import.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "context.h"
#include "hash.h"

#define FIRST_SLOTS 64u
/* How many of one buffer are found at most: its generations, and those with and without handles. A peer that
 * makes more of them has each imported on its own, and makes nobody look through them. */
#define OF_BUFFER_MAX 16u

struct import_view {
    mapping mapping;
    CUdevice ordinal;
    atomic_int access; /* CUmemAccess_flags of that device: changes with import_set_access() */
    uint32_t users;    /* guarded by the import's mutex */
    import_view *next;
};

struct import_memory {
    import_key key;
    uint32_t references; /* this and the next seven: guarded by the table's mutex */
    bool may_stay;
    bool is_cached;
    import_memory *next;  /* of the same slot */
    import_memory **link; /* NULL: not in the table */
    import_memory *newer; /* of the cached */
    import_memory *older;
    os_mutex mutex;     /* held while it is mapped */
    import_view *views; /* guarded by it */
    uint32_t segment_count;
    segment segments[];
};

/* ---- the table ----------------------------------------------------------------------------- */

gpuipc_status import_table_init(import_table *self, uint32_t max_cached) {
    gpuipc_status status = os_random(&self->seed, sizeof(self->seed));
    if (status != GPUIPC_OK) {
        return status;
    }
    self->slots = calloc(FIRST_SLOTS, sizeof(import_memory *));
    if (self->slots == NULL) {
        return status_out_of_memory("import_table", FIRST_SLOTS * sizeof(import_memory *));
    }
    self->slot_count = FIRST_SLOTS;
    self->cached.most = max_cached;
    status = os_mutex_init(&self->mutex);
    if (status != GPUIPC_OK) {
        free(self->slots);
        self->slots = NULL;
    }
    return status;
}

/* Of all but the generation, so that those of one buffer are in one chain. */
static import_memory **slot_of(const import_table *self, const import_key *key) {
    uint64_t hash = hash_word(self->seed, key->connection);
    hash = hash_bytes(hash, key->exporter_id, sizeof(key->exporter_id));
    hash = hash_word(hash, key->buffer_id);
    hash = hash_word(hash, key->memory);
    return &self->slots[hash & (self->slot_count - 1)];
}

static bool is_of_buffer(const import_memory *self, const import_key *key) {
    return self->key.buffer_id == key->buffer_id && self->key.connection == key->connection &&
           self->key.memory == key->memory &&
           memcmp(self->key.exporter_id, key->exporter_id, sizeof(key->exporter_id)) == 0;
}

static void put_in(import_table *table, import_memory *self) {
    import_memory **slot = slot_of(table, &self->key);
    self->next = *slot;
    self->link = slot;
    if (self->next != NULL) {
        self->next->link = &self->next;
    }
    *slot = self;
}

static void take_out(import_table *table, import_memory *self) {
    *self->link = self->next;
    if (self->next != NULL) {
        self->next->link = self->link;
    }
    self->link = NULL;
    table->count--;
}

/* Twice as many slots as there are imports. Without memory for that, the chains grow. */
static void make_room(import_table *table) {
    const uint32_t old_count = table->slot_count;
    import_memory **old = table->slots;
    if (table->count < old_count || old_count > UINT32_MAX / 4) {
        return;
    }
    import_memory **slots = calloc((size_t)old_count * 2, sizeof(import_memory *));
    if (slots == NULL) {
        return;
    }
    table->slots = slots;
    table->slot_count = old_count * 2;
    for (uint32_t i = 0; i < old_count; i++) {
        for (import_memory *at = old[i], *next; at != NULL; at = next) {
            next = at->next;
            put_in(table, at);
        }
    }
    free(old);
}

/* ---- the cache ----------------------------------------------------------------------------- */

static void cache_add(import_table *table, import_memory *self) {
    self->is_cached = true;
    self->newer = NULL;
    self->older = table->cached.newest;
    if (self->older != NULL) {
        self->older->newer = self;
    } else {
        table->cached.oldest = self;
    }
    table->cached.newest = self;
    table->cached.count++;
}

static void cache_remove(import_table *table, import_memory *self) {
    if (self->newer != NULL) {
        self->newer->older = self->older;
    } else {
        table->cached.newest = self->older;
    }
    if (self->older != NULL) {
        self->older->newer = self->newer;
    } else {
        table->cached.oldest = self->newer;
    }
    self->is_cached = false;
    table->cached.count--;
}

/* It goes to the list of those that end when the table is unlocked, which is by next. */
static void evict(import_table *table, import_memory *self, import_memory **ending) {
    cache_remove(table, self);
    take_out(table, self);
    self->next = *ending;
    *ending = self;
}

/* ---- the end ------------------------------------------------------------------------------- */

static void end(context *ctx, import_memory *self, bool forked) {
    for (import_view *view = self->views, *next; view != NULL; view = next) {
        next = view->next;
        if (!forked) {
            mapping_destroy(&ctx->driver, &view->mapping);
        }
        free(view);
    }
    for (uint32_t i = 0; i < self->segment_count; i++) {
        segment_release(&ctx->driver, &self->segments[i], forked);
    }
    os_mutex_destroy(&self->mutex);
    free(self);
}

static void end_all(context *ctx, import_memory *ending, bool forked) {
    while (ending != NULL) {
        import_memory *next = ending->next;
        end(ctx, ending, forked);
        ending = next;
    }
}

void import_table_end(context *ctx, bool forked) {
    import_table *table = &ctx->imports;
    import_memory *ending = NULL;
    /* In a child another thread of the parent's may have been in the midst of a change, for ever. */
    if (!forked || os_mutex_try_lock(&table->mutex)) {
        while (table->cached.oldest != NULL) {
            evict(table, table->cached.oldest, &ending);
        }
        if (forked) {
            os_mutex_unlock(&table->mutex);
        }
        end_all(ctx, ending, forked);
    }
    free(table->slots);
    table->slots = NULL;
    os_mutex_destroy(&table->mutex);
}

void import_unreference(context *ctx, import_memory *self, bool forked) {
    import_table *table = &ctx->imports;
    import_memory *ending = NULL;
    if (self == NULL) {
        return;
    }
    if (!forked) {
        os_mutex_lock(&table->mutex);
    }
    if (--self->references == 0) {
        const bool is_found = self->link != NULL;
        if (is_found && self->may_stay && !forked && table->cached.most > 0) {
            cache_add(table, self);
            if (table->cached.count > table->cached.most) {
                evict(table, table->cached.oldest, &ending);
            }
        } else {
            if (is_found) {
                take_out(table, self);
            }
            self->next = NULL;
            ending = self;
        }
    }
    if (!forked) {
        os_mutex_unlock(&table->mutex);
    }
    end_all(ctx, ending, forked);
}

void import_forget_connection(context *ctx, uint64_t connection) {
    import_table *table = &ctx->imports;
    import_memory *ending = NULL;
    if (table->cached.most == 0) {
        return;
    }
    os_mutex_lock(&table->mutex);
    for (uint32_t i = 0; i < table->slot_count; i++) {
        for (import_memory *at = table->slots[i], *next; at != NULL; at = next) {
            next = at->next;
            if (at->key.connection != connection) {
                continue;
            }
            at->may_stay = false;
            if (at->is_cached) {
                evict(table, at, &ending);
            }
        }
    }
    os_mutex_unlock(&table->mutex);
    end_all(ctx, ending, false);
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
    import_table *table = &ctx->imports;
    os_mutex_lock(&table->mutex);
    import_memory *found = *slot_of(table, key);
    while (found != NULL &&
           !(is_of_buffer(found, key) && found->key.generation == key->generation &&
             (!has_handles || has_all_handles(found)))) {
        found = found->next;
    }
    if (found != NULL) {
        if (found->is_cached) {
            cache_remove(table, found);
        }
        found->references++;
    }
    os_mutex_unlock(&table->mutex);
    return found;
}

gpuipc_status import_new(context *ctx, const import_key *key, uint32_t segment_count, bool may_stay,
                         import_memory **out_import) {
    const size_t size = sizeof(import_memory) + segment_count * sizeof(segment);
    (void)ctx;
    import_memory *self = malloc(size);
    if (self == NULL) {
        return status_out_of_memory("import", size);
    }
    *self = (import_memory){.references = 1, .may_stay = may_stay && key != NULL};
    gpuipc_status status = os_mutex_init(&self->mutex);
    if (status != GPUIPC_OK) {
        free(self);
        return status;
    }
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
    import_table *table = &ctx->imports;
    import_memory *ending = NULL;
    uint32_t of_buffer = 0;
    os_mutex_lock(&table->mutex);
    for (import_memory *at = *slot_of(table, &self->key), *next; at != NULL; at = next) {
        next = at->next;
        if (!is_of_buffer(at, &self->key)) {
            continue;
        }
        if (at->is_cached && at->key.generation < self->key.generation) {
            evict(table, at, &ending);
        } else {
            of_buffer++;
        }
    }
    if (of_buffer < OF_BUFFER_MAX) {
        make_room(table);
        put_in(table, self);
        table->count++;
    }
    os_mutex_unlock(&table->mutex);
    end_all(ctx, ending, false);
}

void import_drop_handles(context *ctx, import_memory *self) {
    os_mutex_lock(&ctx->imports.mutex);
    for (uint32_t i = 0; i < self->segment_count && self->references == 1; i++) {
        os_handle_close(&self->segments[i].kept);
    }
    os_mutex_unlock(&ctx->imports.mutex);
}

/* ---- views --------------------------------------------------------------------------------- */

static import_view *find_view(const import_memory *self, CUdevice ordinal,
                              CUmemAccess_flags flags) {
    import_view *found = self->views;
    while (found != NULL &&
           (found->ordinal != ordinal || atomic_load(&found->access) != (int)flags)) {
        found = found->next;
    }
    return found;
}

static gpuipc_status make_view(const driver *drv, import_memory *self, CUdevice ordinal,
                               CUmemAccess_flags flags, import_view **out_view) {
    import_view *view = malloc(sizeof(*view));
    if (view == NULL) {
        return status_out_of_memory("import_view", sizeof(*view));
    }
    *view = (import_view){.ordinal = ordinal, .next = self->views};
    atomic_init(&view->access, (int)flags);
    gpuipc_status status = mapping_create(drv, self->segments, self->segment_count, &view->mapping);
    if (status != GPUIPC_OK) {
        goto free_view;
    }
    status = mapping_set_access(drv, &view->mapping, ordinal, flags);
    if (status != GPUIPC_OK) {
        goto destroy_mapping;
    }
    self->views = view;
    *out_view = view;
    return GPUIPC_OK;

destroy_mapping:
    mapping_destroy(drv, &view->mapping);
free_view:
    free(view);
    return status;
}

gpuipc_status import_map(context *ctx, import_memory *self, CUdevice ordinal,
                         CUmemAccess_flags flags, import_view **out_view) {
    gpuipc_status status = GPUIPC_OK;
    os_mutex_lock(&self->mutex);
    import_view *view = find_view(self, ordinal, flags);
    if (view == NULL) {
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

/* Whether nobody else has, or left, one that is mapped so. The mutex is held. */
static bool is_the_only_one(const import_memory *self, const import_view *view) {
    const int access = atomic_load(&view->access);
    const import_view *other = self->views;
    while (other != NULL && (other == view || other->ordinal != view->ordinal ||
                             atomic_load(&other->access) != access)) {
        other = other->next;
    }
    return other == NULL;
}

void import_unmap(context *ctx, import_memory *self, import_view *view) {
    if (view == NULL) {
        return;
    }
    bool ends = false;
    os_mutex_lock(&self->mutex);
    /* Where imports may stay, their mappings do: they are what opening costs. But no second one that
     * import_set_access() has made alike. */
    if (--view->users == 0 && !(ctx->imports.cached.most > 0 && is_the_only_one(self, view))) {
        import_view **link = &self->views;
        while (*link != view) {
            link = &(*link)->next;
        }
        *link = view->next;
        ends = true;
    }
    os_mutex_unlock(&self->mutex);
    if (ends) {
        mapping_destroy(&ctx->driver, &view->mapping);
        free(view);
    }
}
