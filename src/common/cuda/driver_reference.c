/* SPDX-License-Identifier: MIT */
/** @file See driver_reference.h. */
#include "cuda/driver_reference.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/table.h"

struct driver_reference {
    table_link by_key;
    table_link by_value;      /* where the value tells; else it is in none */
    const os_library *driver; /* two drivers in one process have nothing in common */
    driver_reference_key key;
    driver_reference_maker maker;
    uint64_t value;
    uint64_t count;
    uint64_t makings; /* how often it was made, under whatever key */
    driver_reference
        *other; /* what was made under another key and is the same: held as long as this is */
};

/* The mutex is held during calls of the driver, which may fork (it starts a helper when a device file is
 * missing): so it is no static mutex, which a fork would wait for. A child starts anew. */
static struct {
    os_static_mutex start;
    bool is_started;
    uint32_t fork_generation;
    os_mutex mutex;
    uint64_t seed; /* hash.h: other processes choose names; that of the context which came first */
    hash_table by_key;
    hash_table by_value;
} all;

_Static_assert(sizeof(driver_reference_key) % sizeof(uint64_t) == 0,
               "hash_bytes() takes whole words");

static uint64_t hash_of(const driver_reference_key *key) {
    return hash_bytes(all.seed, (const uint8_t *)key, sizeof(*key));
}

static void lock(const context *ctx) {
    os_static_mutex_lock(&all.start);
    if (!all.is_started || all.fork_generation != os_fork_generation()) {
        all.seed = ctx->seed;
        all.mutex = (os_mutex){0};
        all.is_started = true;
        all.fork_generation = os_fork_generation();
        table_clear(&all.by_key);
        table_clear(&all.by_value);
    }
    os_static_mutex_unlock(&all.start);
    os_mutex_lock(&all.mutex);
}

static driver_reference *find(const context *ctx, const driver_reference_key *key) {
    table_link *at = table_find(&all.by_key, hash_of(key));
    for (; at != NULL; at = table_find_next(at)) {
        driver_reference *item = TABLE_ITEM(at, driver_reference, by_key);
        if (item->driver == ctx->driver.library && memcmp(&item->key, key, sizeof(*key)) == 0) {
            return item;
        }
    }
    return NULL;
}

/* What a new one is that was made before under another key. */
static driver_reference *find_same(const driver_reference *made) {
    table_link *at = table_find(&all.by_value, hash_word(all.seed, made->value));
    for (; at != NULL; at = table_find_next(at)) {
        driver_reference *item = TABLE_ITEM(at, driver_reference, by_value);
        if (item->driver == made->driver && item->key.kind == made->key.kind &&
            item->value == made->value && item->other == NULL) {
            return item;
        }
    }
    return NULL;
}

static gpuipc_status take(context *ctx, const driver_reference_key *key,
                          const driver_reference_maker *maker, void *argument,
                          driver_reference **out_item) {
    gpuipc_status status = GPUIPC_OK;
    lock(ctx);
    driver_reference *item = find(ctx, key);
    if (item == NULL) {
        item = malloc(sizeof(*item));
        if (item == NULL) {
            status = status_out_of_memory(sizeof(*item));
            goto unlock;
        }
        *item = (driver_reference){.driver = ctx->driver.library, .key = *key, .maker = *maker};
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
        table_add(&all.by_key, &item->by_key, hash_of(key));
        if (maker->value_tells) {
            table_add(&all.by_value, &item->by_value, hash_word(all.seed, item->value));
        }
    }
    item->count++;
    *out_item = item;
unlock:
    os_mutex_unlock(&all.mutex);
    return status;
}

gpuipc_status driver_reference_take(context *ctx, const driver_reference_key *key,
                                    const driver_reference_maker *maker, void *argument,
                                    driver_reference **out_item) {
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

driver_reference *driver_reference_find(const context *ctx, const driver_reference_key *key) {
    lock(ctx);
    driver_reference *item = find(ctx, key);
    if (item != NULL) {
        item->count++;
    }
    os_mutex_unlock(&all.mutex);
    return item;
}

uint64_t driver_reference_value(const driver_reference *item) {
    return item->value;
}

const driver_reference_key *driver_reference_key_of(const driver_reference *item) {
    return &item->key;
}

static void undo(context *ctx, const driver_reference *item) {
    device_scope scope;
    if (item->key.device == GPUIPC_DEVICE_NONE) {
        item->maker.undo(ctx, &item->key, item->value);
    } else if (device_enter(ctx, item->key.device, &scope) == GPUIPC_OK) {
        item->maker.undo(ctx, &item->key, item->value);
        device_leave(&scope);
    }
}

/* Undoes one that was made several times, or does it once for all. */
static void undo_all(context *ctx, const driver_reference *item) {
    const uint64_t times = item->maker.undo_each ? item->makings : 1;
    for (uint64_t i = 0; i < times; i++) {
        undo(ctx, item);
    }
}

/* Takes one out that nobody holds any more. */
static void take_out(driver_reference *item) {
    table_remove(&all.by_key, &item->by_key);
    table_remove(&all.by_value, &item->by_value);
}

bool driver_reference_release_unless_last(const context *ctx, driver_reference *item) {
    lock(ctx);
    const bool gives = item->count > 1;
    item->count -= gives;
    os_mutex_unlock(&all.mutex);
    return gives;
}

void driver_reference_release(context *ctx, driver_reference *item, bool forked) {
    if (item == NULL || forked) {
        return;
    }
    lock(ctx);
    bool is_last = --item->count == 0;
    if (is_last) {
        take_out(item);
    }
    if (is_last && item->other != NULL) {
        driver_reference *other = item->other;
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
