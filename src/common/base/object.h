/* SPDX-License-Identifier: MIT */
/**
 * @file Public objects: reference counts inside, checked handles outside.
 *
 * A public pointer is no address but a slot number and a generation (docs/adr/0004). So a handle
 * that was released, or never given out, or is of another kind, is recognised and answered, and a
 * call in one thread keeps its object alive while another thread releases it.
 */
#ifndef GPUIPC_OBJECT_H
#define GPUIPC_OBJECT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef enum object_kind {
    OBJECT_CONTEXT = 1,
    OBJECT_BUFFER,
    OBJECT_LISTENER,
    OBJECT_CONNECTION,
    OBJECT_SERVER,
    OBJECT_CHANNEL,
    OBJECT_SUBSCRIPTION
} object_kind;

/** First member of every object. */
typedef struct object {
    atomic_uint references;
    object_kind kind;
    uint32_t fork_generation; /**< os_fork_generation() when it was made */
    void (*destroy)(
        struct object *object); /**< frees all; makes no driver call in a forked child */
} object;

/** Starts an object with one reference. */
void object_init(object *self, object_kind kind, void (*destroy)(object *self));
void object_reference(object *self);
/** The same, unless it has none left and is about to end. */
bool object_try_reference(object *self);
/** Gives up one reference; the last destroys. NULL does nothing. */
static inline void object_unreference(object *self) {
    if (self != NULL &&
        atomic_fetch_sub_explicit(&self->references, 1u, memory_order_acq_rel) == 1u) {
        self->destroy(self);
    }
}
/** True in a child of the process that made it. */
int object_is_forked(const object *self);

/** Makes a public handle, which takes over the caller's reference on success. */
gpuipc_status object_publish(object *self, void **out_handle);

/** The object behind a handle, with a reference for the caller.
 *  ERR_RELEASED, ERR_FORKED, ERR_INVALID_ARGUMENT (NULL). */
gpuipc_status object_acquire(object_kind kind, const void *handle, object **out_object);

/** One more hold of the user on the handle. */
gpuipc_status object_add_hold(object_kind kind, const void *handle);

/** One hold less. When it was the last, the handle is dead and *out_last is the object with the
 *  handle's reference, now the caller's; else NULL. Allowed in a forked child. */
gpuipc_status object_remove_hold(object_kind kind, const void *handle, object **out_last);

/** The same, with the object and a reference for the caller in any case: the handle's, if it was the last hold, or one
 *  more. */
gpuipc_status object_take_hold(object_kind kind, const void *handle, object **out_object,
                               bool *out_is_last);

#endif
