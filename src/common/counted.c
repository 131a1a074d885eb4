/* SPDX-License-Identifier: MIT */
/** @file See counted.h. */
#include "counted.h"

#include <stdlib.h>
#include <string.h>

#include "hash.h"

/* Enough that 10,000 pointers of pools make chains of a few. */
#define SLOTS 4096u

/* Where an item is in a chain. */
typedef struct counted_link {
    counted *next;
    counted **at;
} counted_link;

struct counted {
    counted_link by_key;
    counted_link by_value;    /* where the value tells; else it is in no chain of these */
    const os_library *driver; /* two drivers in one process have nothing in common */
    counted_key key;
    counted_maker maker;
    uint64_t value;
    uint64_t count;
    uint64_t makings; /* how often it was made, under whatever key */
    counted *other;   /* what was made under another key and is the same: held as long as this is */
};

/* The mutex is held during calls of the driver, which may fork (it starts a helper when a device file is
 * missing): so it is no static mutex, which a fork would wait for. A child starts anew. */
static struct {
    os_static_mutex start;
    bool is_started;
    uint32_t fork_generation;
    os_mutex mutex;
    uint64_t seed; /* hash.h: other processes choose names */
    counted *by_key[SLOTS];
    counted *by_value[SLOTS];
} all;

_Static_assert(sizeof(counted_key) % sizeof(uint64_t) == 0, "hash_bytes() takes whole words");

static counted **slot_of(const counted_key *key) {
    return &all.by_key[hash_bytes(all.seed, (const uint8_t *)key, sizeof(*key)) % SLOTS];
}

static counted **slot_of_value(uint64_t value) {
    return &all.by_value[hash_word(all.seed, value) % SLOTS];
}

static gpuipc_status lock(void) {
    gpuipc_status status = GPUIPC_OK;
    os_static_mutex_lock(&all.start);
    if (!all.is_started || all.fork_generation != os_fork_generation()) {
        status = os_random(&all.seed, sizeof(all.seed));
        status = status == GPUIPC_OK ? os_mutex_init(&all.mutex) : status;
        all.is_started = status == GPUIPC_OK;
        all.fork_generation = os_fork_generation();
        memset(all.by_key, 0, sizeof(all.by_key));
        memset(all.by_value, 0, sizeof(all.by_value));
    }
    os_static_mutex_unlock(&all.start);
    if (status == GPUIPC_OK) {
        os_mutex_lock(&all.mutex);
    }
    return status;
}

static counted *find(const context *ctx, const counted_key *key) {
    for (counted *item = *slot_of(key); item != NULL; item = item->by_key.next) {
        if (item->driver == ctx->driver.library && memcmp(&item->key, key, sizeof(*key)) == 0) {
            return item;
        }
    }
    return NULL;
}

/* What a new one is that was made before under another key. */
static counted *find_same(const counted *made) {
    for (counted *item = *slot_of_value(made->value); item != NULL; item = item->by_value.next) {
        if (item->driver == made->driver && item->key.kind == made->key.kind &&
            item->value == made->value && item->other == NULL) {
            return item;
        }
    }
    return NULL;
}

static void put_in(counted *item) {
    item->by_key.at = slot_of(&item->key);
    item->by_key.next = *item->by_key.at;
    if (item->by_key.next != NULL) {
        item->by_key.next->by_key.at = &item->by_key.next;
    }
    *item->by_key.at = item;
    if (item->maker.value_tells) {
        item->by_value.at = slot_of_value(item->value);
        item->by_value.next = *item->by_value.at;
        if (item->by_value.next != NULL) {
            item->by_value.next->by_value.at = &item->by_value.next;
        }
        *item->by_value.at = item;
    }
}

static gpuipc_status take(context *ctx, const counted_key *key, const counted_maker *maker,
                          void *argument, counted **out_item) {
    gpuipc_status status = lock();
    if (status != GPUIPC_OK) {
        return status;
    }
    counted *item = find(ctx, key);
    if (item == NULL) {
        item = malloc(sizeof(*item));
        if (item == NULL) {
            status = status_out_of_memory("counted_take", sizeof(*item));
            goto unlock;
        }
        *item = (counted){.driver = ctx->driver.library, .key = *key, .maker = *maker};
        status = maker->make(ctx, key, argument, &item->value);
        if (status != GPUIPC_OK) {
            free(item);
            goto unlock;
        }
        item->makings = 1;
        item->other = maker->value_tells ? find_same(item) : NULL;
        if (item->other != NULL) {
            item->other->count++;
            item->other->makings++;
        }
        put_in(item);
    }
    item->count++;
    *out_item = item;
unlock:
    os_mutex_unlock(&all.mutex);
    return status;
}

gpuipc_status counted_take(context *ctx, const counted_key *key, const counted_maker *maker,
                           void *argument, counted **out_item) {
    device_scope scope;
    if (key->device == GPUIPC_DEVICE_NONE) {
        return take(ctx, key, maker, argument, out_item);
    }
    /* also when it is there already: it is in the primary context, which each taker has to hold */
    gpuipc_status status = device_enter(ctx, key->device, &scope);
    if (status == GPUIPC_OK) {
        status = take(ctx, key, maker, argument, out_item);
        device_leave(&scope);
    }
    return status;
}

counted *counted_find(const context *ctx, const counted_key *key) {
    if (lock() != GPUIPC_OK) {
        return NULL;
    }
    counted *item = find(ctx, key);
    if (item != NULL) {
        item->count++;
    }
    os_mutex_unlock(&all.mutex);
    return item;
}

uint64_t counted_value(const counted *item) {
    return item->value;
}

const counted_key *counted_key_of(const counted *item) {
    return &item->key;
}

static void undo(context *ctx, const counted *item) {
    device_scope scope;
    if (item->key.device == GPUIPC_DEVICE_NONE) {
        item->maker.undo(ctx, &item->key, item->value);
    } else if (device_enter(ctx, item->key.device, &scope) == GPUIPC_OK) {
        item->maker.undo(ctx, &item->key, item->value);
        device_leave(&scope);
    }
}

/* Undoes one that was made several times, or does it once for all. */
static void undo_all(context *ctx, const counted *item) {
    const uint64_t times = item->maker.undo_each ? item->makings : 1;
    for (uint64_t i = 0; i < times; i++) {
        undo(ctx, item);
    }
}

/* Takes one out that nobody holds any more. */
static void take_out(counted *item) {
    *item->by_key.at = item->by_key.next;
    if (item->by_key.next != NULL) {
        item->by_key.next->by_key.at = item->by_key.at;
    }
    if (item->maker.value_tells) {
        *item->by_value.at = item->by_value.next;
        if (item->by_value.next != NULL) {
            item->by_value.next->by_value.at = item->by_value.at;
        }
    }
}

bool counted_give_unless_last(counted *item) {
    if (lock() != GPUIPC_OK) {
        return false;
    }
    const bool gives = item->count > 1;
    item->count -= gives;
    os_mutex_unlock(&all.mutex);
    return gives;
}

void counted_give(context *ctx, counted *item, bool forked) {
    if (item == NULL || forked || lock() != GPUIPC_OK) {
        return;
    }
    bool is_last = --item->count == 0;
    if (is_last) {
        take_out(item);
    }
    if (is_last && item->other != NULL) {
        counted *other = item->other;
        free(item);
        item = other;
        is_last = --item->count == 0;
        if (is_last) {
            take_out(item);
        }
    }
    if (is_last && !item->maker.undo_waits) {
        undo_all(ctx, item);
    }
    os_mutex_unlock(&all.mutex);
    if (is_last && item->maker.undo_waits) {
        undo_all(ctx, item);
    }
    if (is_last) {
        free(item);
    }
}
