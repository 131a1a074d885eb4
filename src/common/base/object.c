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
/* Slots come so many at a time. */
#define BLOCK_BITS  14
#define BLOCK_SLOTS (1u << BLOCK_BITS)
#define BLOCKS      (1u << (SLOT_BITS - BLOCK_BITS))
/* Who has a slot's lock has it for a few instructions, unless the system takes the processor away in between. */
#define LOCK_TRIES    1000u
#define LOCK_PAUSE_US 50u

_Static_assert(sizeof(void *) == 8, "handles need 64 bits");

/* Every call looks a handle up, and finds no lock there that calls on other objects take. The lock guards the object and the
 * generation, which are changed with the table's mutex held as well; that guards the others. */
typedef struct slot {
    atomic_uint lock;    /* 0: free; else 1 + os_fork_generation() of whose thread has it */
    uint32_t index;      /* its own */
    object *object;      /* NULL: free */
    uint64_t generation; /* of the handle given out last, or given out next when free */
    uint64_t holds;      /* how often the user may still release it */
    uint32_t next_free;
    unsigned char apart[24]; /* so that calls on the next one do not wait for a cache line */
} slot;

_Static_assert(sizeof(slot) == 64, "a slot is as long as a cache line");

/* One table for the process. Slots stay where they are and are never given back, so a stale handle is always looked up in
 * memory that is still a slot. */
static struct {
    os_static_mutex mutex; /* guards the rest; held over fork(), so that nothing is half changed */
    uint32_t count;
    uint32_t first_free;
    _Atomic(void *) blocks[BLOCKS]; /* as allocated */
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

int object_is_forked(const object *self) {
    return self->fork_generation != os_fork_generation();
}

/* ---- slots ------------------------------------------------------------------------------------- */

/* What a thread of the parent process had locked when it forked is nobody's here, and so is what a thread had locked that has
 * ended there. (It may have taken a reference, so that the object is kept to the end.) */
static void lock(slot *self) {
    const unsigned mine = os_fork_generation() + 1u;
    unsigned seen = 0;
    unsigned tries = 0;
    while (!atomic_compare_exchange_weak_explicit(&self->lock, &seen, mine, memory_order_acquire,
                                                  memory_order_relaxed)) {
        while (seen == mine) { /* to look leaves the line with who has it */
            if (++tries % LOCK_TRIES == 0) {
                if (os_other_threads_have_ended()) {
                    return;
                }
                os_sleep_us(LOCK_PAUSE_US); /* on Windows a tick */
            }
            seen = atomic_load_explicit(&self->lock, memory_order_relaxed);
        }
    }
}

static void unlock(slot *self) {
    atomic_store_explicit(&self->lock, 0, memory_order_release);
}

static void *block_of(uint32_t index) {
    return atomic_load_explicit(&table.blocks[index >> BLOCK_BITS], memory_order_acquire);
}

/* In a block that is there, from its first cache line on. */
static slot *slot_in(const void *block, uint32_t index) {
    const uintptr_t first = ((uintptr_t)block + sizeof(slot) - 1) / sizeof(slot) * sizeof(slot);
    return &((slot *)first)[index % BLOCK_SLOTS];
}

static void *handle_of(const slot *self) {
    uint64_t value = self->generation << (SLOT_BITS + 1) | (uint64_t)self->index << 1 | 1u;
    return (void *)(uintptr_t)value;
}

/* The slot that a handle names, or NULL. */
static slot *named(const void *handle) {
    uint64_t value = (uint64_t)(uintptr_t)handle;
    const uint32_t index = (uint32_t)(value >> 1 & SLOT_MAX);
    const void *block = block_of(index);
    return (value & 1u) == 0 || block == NULL ? NULL : slot_in(block, index);
}

/* Whether the handle is one of a live object of this kind. The slot is locked, or the table. */
static bool is_live(const slot *self, object_kind kind, const void *handle) {
    uint64_t value = (uint64_t)(uintptr_t)handle;
    return self->object != NULL && self->generation == value >> (SLOT_BITS + 1) &&
           self->object->kind == kind;
}

/* The live slot of a handle of this kind, or NULL. The table is locked. */
static slot *find(object_kind kind, const void *handle) {
    slot *found = named(handle);
    return found != NULL && is_live(found, kind, handle) ? found : NULL;
}

/* Room for the next ones, and for beginning with a cache line. The table is locked. */
static bool add_block(uint32_t number) {
    void *block = number < BLOCKS ? calloc(BLOCK_SLOTS + 1, sizeof(slot)) : NULL;
    if (block != NULL) {
        atomic_store_explicit(&table.blocks[number], block, memory_order_release);
    }
    return block != NULL;
}

/* A free one, or NULL. The table is locked. */
static slot *take_slot(void) {
    if (table.first_free != NO_SLOT) {
        slot *taken = slot_in(block_of(table.first_free), table.first_free);
        table.first_free = taken->next_free;
        return taken;
    }
    if (table.count % BLOCK_SLOTS == 0 && !add_block(table.count / BLOCK_SLOTS)) {
        return NULL;
    }
    slot *made = slot_in(block_of(table.count), table.count);
    made->index = table.count++;
    made->generation = 1; /* who looks at it has found no object */
    return made;
}

/* ---- handles ----------------------------------------------------------------------------------- */

gpuipc_status object_publish(object *self, void **out_handle) {
    os_static_mutex_lock(&table.mutex);
    slot *taken = take_slot();
    void *handle = NULL;
    if (taken != NULL) {
        lock(taken);
        taken->object = self;
        unlock(taken);
        taken->holds = 1;
        handle = handle_of(taken);
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
    slot *found = named(handle);
    object *self = NULL;
    bool is_forked = false;
    if (found != NULL) {
        lock(found);
        self = is_live(found, kind, handle) ? found->object : NULL;
        is_forked = self != NULL && object_is_forked(self);
        if (self != NULL && !is_forked) {
            object_reference(self);
        }
        unlock(found);
    }
    if (self == NULL) {
        return not_an_object(kind, handle);
    }
    if (is_forked) {
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
    lock(of);
    of->object = NULL;
    of->generation = of->generation % GENERATION_MAX + 1; /* never 0 */
    unlock(of);
    of->next_free = table.first_free;
    table.first_free = of->index;
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
