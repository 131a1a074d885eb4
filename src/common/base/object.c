/* SPDX-License-Identifier: MIT */
/** @file See object.h. */
#include "base/object.h"

#include <stdlib.h>

#include "os.h"

/* handle = generation << 25 | slot << 1 | 1: never NULL, never an aligned address. */
#define SLOT_BITS      24
#define SLOT_MAX       ((1u << SLOT_BITS) - 1u)
#define GENERATION_MAX ((UINT64_C(1) << (63 - SLOT_BITS)) - 1u)
#define NO_SLOT        UINT32_MAX

_Static_assert(sizeof(void *) == 8, "handles need 64 bits");

typedef struct slot {
    object *object;      /* NULL: free */
    uint64_t generation; /* of the handle given out last, or given out next when free */
    uint64_t holds;      /* how often the user may still release it */
    uint32_t next_free;
} slot;

/* One table for the process. Slots are never given back, so a stale handle is always looked up in
 * memory that is still a slot. */
static struct {
    os_static_mutex mutex;
    slot *slots;
    uint32_t count;
    uint32_t capacity;
    uint32_t first_free;
} table = {.first_free = NO_SLOT};

void object_init(object *self, object_kind kind, void (*destroy)(object *self)) {
    atomic_init(&self->references, 1u);
    self->kind = kind;
    self->fork_generation = os_fork_generation();
    self->destroy = destroy;
}

void object_reference(object *self) {
    atomic_fetch_add_explicit(&self->references, 1u, memory_order_relaxed);
}

bool object_try_reference(object *self) {
    unsigned now = atomic_load_explicit(&self->references, memory_order_relaxed);
    while (now > 0 &&
           !atomic_compare_exchange_weak_explicit(&self->references, &now, now + 1,
                                                  memory_order_relaxed, memory_order_relaxed)) {
    }
    return now > 0;
}

void object_unreference(object *self) {
    if (self != NULL &&
        atomic_fetch_sub_explicit(&self->references, 1u, memory_order_acq_rel) == 1u) {
        self->destroy(self);
    }
}

int object_is_forked(const object *self) {
    return self->fork_generation != os_fork_generation();
}

static void *handle_of(uint32_t index) {
    uint64_t value = table.slots[index].generation << (SLOT_BITS + 1) | (uint64_t)index << 1 | 1u;
    return (void *)(uintptr_t)value;
}

/* The live slot of a handle of this kind, or NULL. The table is locked. */
static slot *find(object_kind kind, const void *handle) {
    uint64_t value = (uint64_t)(uintptr_t)handle;
    uint64_t index = value >> 1 & SLOT_MAX;
    if ((value & 1u) == 0 || index >= table.count) {
        return NULL;
    }
    slot *found = &table.slots[index];
    if (found->object == NULL || found->generation != value >> (SLOT_BITS + 1) ||
        found->object->kind != kind) {
        return NULL;
    }
    return found;
}

/* A free slot's number, or NO_SLOT. The table is locked. */
static uint32_t take_slot(void) {
    if (table.first_free != NO_SLOT) {
        uint32_t index = table.first_free;
        table.first_free = table.slots[index].next_free;
        return index;
    }
    if (table.count == table.capacity) {
        uint32_t capacity = table.capacity == 0 ? 64 : table.capacity * 2;
        slot *slots = capacity > SLOT_MAX ? NULL : realloc(table.slots, capacity * sizeof(*slots));
        if (slots == NULL) {
            return NO_SLOT;
        }
        table.slots = slots;
        table.capacity = capacity;
    }
    table.slots[table.count] = (slot){.generation = 1};
    return table.count++;
}

gpuipc_status object_publish(object *self, void **out_handle) {
    os_static_mutex_lock(&table.mutex);
    uint32_t index = take_slot();
    void *handle = NULL;
    if (index != NO_SLOT) {
        table.slots[index].object = self;
        table.slots[index].holds = 1;
        handle = handle_of(index);
    }
    os_static_mutex_unlock(&table.mutex);
    if (handle == NULL) {
        return status_out_of_memory(sizeof(slot));
    }
    *out_handle = handle;
    return GPUIPC_OK;
}

/* Parameters are called what they are, but where there are two of a kind. */
static gpuipc_status not_an_object(object_kind kind, const void *handle) {
    static const char *const names[] = {[OBJECT_CONTEXT] = "context",
                                        [OBJECT_BUFFER] = "buffer",
                                        [OBJECT_LISTENER] = "listener",
                                        [OBJECT_CONNECTION] = "connection",
                                        [OBJECT_SERVER] = "server",
                                        [OBJECT_CHANNEL] = "channel",
                                        [OBJECT_SUBSCRIPTION] = "subscription"};
    if (handle == NULL) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "%s is NULL", names[kind]);
    }
    return status_fail(GPUIPC_ERR_RELEASED,
                       "%p is no live object of this kind: it was released, or is not from gpuipc",
                       handle);
}

gpuipc_status object_acquire(object_kind kind, const void *handle, object **out_object) {
    os_static_mutex_lock(&table.mutex);
    slot *found = find(kind, handle);
    object *self = found == NULL ? NULL : found->object;
    int forked = self != NULL && object_is_forked(self);
    if (self != NULL && !forked) {
        object_reference(self);
    }
    os_static_mutex_unlock(&table.mutex);
    if (self == NULL) {
        return not_an_object(kind, handle);
    }
    if (forked) {
        return status_fail(GPUIPC_ERR_FORKED, "the object belongs to the parent process");
    }
    *out_object = self;
    return GPUIPC_OK;
}

gpuipc_status object_add_hold(object_kind kind, const void *handle) {
    os_static_mutex_lock(&table.mutex);
    slot *found = find(kind, handle);
    if (found != NULL) {
        found->holds++;
    }
    os_static_mutex_unlock(&table.mutex);
    return found == NULL ? not_an_object(kind, handle) : GPUIPC_OK;
}

/* The table is locked. @return the object with the handle's reference, if it was the last; else NULL */
static object *remove_hold(slot *of) {
    if (--of->holds != 0) {
        return NULL;
    }
    object *last = of->object;
    of->object = NULL;
    of->generation = of->generation % GENERATION_MAX + 1; /* never 0 */
    of->next_free = table.first_free;
    table.first_free = (uint32_t)(of - table.slots);
    return last;
}

gpuipc_status object_remove_hold(object_kind kind, const void *handle, object **out_last) {
    object *last = NULL;
    os_static_mutex_lock(&table.mutex);
    slot *found = find(kind, handle);
    if (found != NULL) {
        last = remove_hold(found);
    }
    os_static_mutex_unlock(&table.mutex);
    if (found == NULL) {
        return not_an_object(kind, handle);
    }
    *out_last = last;
    return GPUIPC_OK;
}

gpuipc_status object_take_hold(object_kind kind, const void *handle, object **out_object,
                               bool *out_is_last) {
    object *self = NULL;
    bool is_last = false;
    os_static_mutex_lock(&table.mutex);
    slot *found = find(kind, handle);
    if (found != NULL) {
        self = found->object;
        is_last = remove_hold(found) != NULL;
        if (!is_last) {
            object_reference(self);
        }
    }
    os_static_mutex_unlock(&table.mutex);
    if (self == NULL) {
        return not_an_object(kind, handle);
    }
    *out_object = self;
    *out_is_last = is_last;
    return GPUIPC_OK;
}
