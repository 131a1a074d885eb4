/* SPDX-License-Identifier: MIT */
/**
 * @file What the driver holds once in a process however often it is wanted: memory opened by a legacy
 * handle, imported pools and their pointers, peer access. Made at the first taking, undone at the last
 * giving back, whichever contexts of gpuipc they came from.
 */
#ifndef GPUIPC_DRIVER_REFERENCE_H
#define GPUIPC_DRIVER_REFERENCE_H

#include "cuda/context.h"

typedef enum driver_reference_kind {
    REFERENCE_LEGACY = 1, /**< name: the handle; value: the address */
    REFERENCE_POOL,       /**< number: the peer's process, exporter and group; value: the pool */
    REFERENCE_POINTER,    /**< number: the pool, name: the pointer's data; value: the address */
    REFERENCE_PEER,       /**< number: the context reached; value: 1 if it was we who enabled it */
    REFERENCE_OWN_POOL,   /**< value: the pool */
    REFERENCE_GROUP       /**< number: the pool; value: the group */
} driver_reference_kind;

/** What tells one from another. Members that a kind does not use are zero. */
typedef struct driver_reference_key {
    uint32_t kind;   /**< driver_reference_kind */
    uint32_t device; /**< in whose primary context it is; UINT32_MAX: in none */
    uint64_t number;
    uint32_t group;
    uint32_t reserved;
    uint8_t exporter_id[16];
    uint8_t name[64];
} driver_reference_key;

typedef struct driver_reference driver_reference;

/** How one is made and undone. Both are called in the primary context of key->device. */
typedef struct driver_reference_maker {
    gpuipc_status (*make)(context *ctx, const driver_reference_key *key, void *argument,
                          uint64_t *out_value);
    void (*undo)(context *ctx, const driver_reference_key *key, uint64_t value);
    /** Undoing waits for the device's work, so it must not keep others waiting: what the work waits for may
     *  be theirs to do. The driver counts by itself, so that making it again meanwhile does no harm. */
    bool undo_waits;
    /** One thing may be made under several keys, which the value tells: it is undone when none of them holds
     *  it any more. */
    bool value_tells;
    /** Then it is undone as often as it was made: the driver counts that. */
    bool undo_each;
} driver_reference_maker;

/** Takes one more hold, making it when there is none yet. @param argument for make */
gpuipc_status driver_reference_take(context *ctx, const driver_reference_key *key,
                                    const driver_reference_maker *maker, void *argument,
                                    driver_reference **out_item);
/** The same, of one that is there; NULL when it is not. Makes no driver call. */
driver_reference *driver_reference_find(const context *ctx, const driver_reference_key *key);

uint64_t driver_reference_value(const driver_reference *item);
const driver_reference_key *driver_reference_key_of(const driver_reference *item);

/** Gives up a hold, unless it is the last. @return whether it did */
bool driver_reference_release_unless_last(const context *ctx, driver_reference *item);

/** Gives up a hold; the last undoes it. NULL does nothing.
 *  @param forked in a child, where no driver call may be made and nothing of the parent's counts */
void driver_reference_release(context *ctx, driver_reference *item, bool forked);

#endif
