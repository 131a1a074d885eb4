/* SPDX-License-Identifier: MIT */
/** @file See contents_pace.h. */
#include "contents/contents_pace.h"

#include <stdlib.h>

#include "base/hash.h"
#include "base/list.h"
#include "base/table.h"
#include "cuda/context.h"
#include "sync/point_wait.h"

/* How many streams are looked at whenever one is entered: more than one, so that idle ones never become many. */
#define LOOKS 2

/* ---- room -------------------------------------------------------------------------------------- */

static uint64_t count_free(const contents_pace *self) {
    uint64_t count = 0;
    for (uint32_t i = 0; i < CONTENTS_PACE_MOST; i++) {
        count += point_is_reached(&self->passages[i]);
    }
    return count;
}

/* A wait for room. */
typedef struct waiting {
    const atomic_bool *interrupted;
    os_deadline deadline;
    uint64_t begun_ns;
} waiting;

/* Between two looks. */
static gpuipc_status pause_a_while(const waiting *self) {
    if (atomic_load(self->interrupted)) {
        return status_fail(GPUIPC_ERR_RELEASED, "the connection was closed");
    }
    if (os_deadline_passed(self->deadline)) {
        return status_fail(GPUIPC_ERR_TIMEOUT,
                           "streams of this process have not passed %u pieces of contents before",
                           CONTENTS_PACE_MOST);
    }
    os_pause(self->begun_ns, OS_PAUSE_MS, self->deadline);
    return GPUIPC_OK;
}

gpuipc_status contents_pace_await(const contents_pace *self, uint64_t count,
                                  const atomic_bool *interrupted, os_deadline deadline) {
    const uint64_t wanted = count < CONTENTS_PACE_MOST ? count : CONTENTS_PACE_MOST;
    const waiting wait = {interrupted, deadline, os_clock_ns()};
    gpuipc_status status = GPUIPC_OK;
    while (status == GPUIPC_OK && count_free(self) < wanted) {
        status = pause_a_while(&wait);
    }
    return status;
}

void contents_pace_add(contents_pace *self, const point_word *passage) {
    uint32_t at = self->next;
    for (uint32_t i = 0; i < CONTENTS_PACE_MOST && !point_is_reached(&self->passages[at]); i++) {
        at = (at + 1) % CONTENTS_PACE_MOST;
    }
    self->passages[at] = *passage;
    self->next = (at + 1) % CONTENTS_PACE_MOST;
}

/* ---- streams of callers ------------------------------------------------------------------------ */

typedef struct contents_stream {
    table_link by_id;
    list_link in_turn;
    uint64_t id;
    unsigned calls; /* so many have a turn, or wait for one */
    unsigned begun; /* so many have one */
    contents_pace pace;
} contents_stream;

typedef struct contents_streams {
    os_mutex mutex; /* guards the rest */
    hash_table by_id;
    linked_list in_turn; /* not looked at for longest: first */
} contents_streams;

static void forget(contents_streams *self, contents_stream *of) {
    table_remove(&self->by_id, &of->by_id);
    list_remove(&of->in_turn);
    free(of);
}

/* Streams that were destroyed come to their end as well. */
static void forget_some(contents_streams *self) {
    for (int i = 0; i < LOOKS && self->in_turn.count > 0; i++) {
        contents_stream *of = LIST_ITEM(list_turn(&self->in_turn), contents_stream, in_turn);
        if (of->calls == 0 && count_free(&of->pace) == CONTENTS_PACE_MOST) {
            forget(self, of);
        }
    }
}

/* The driver's number where it has them. Else a handle, which may be another stream's by now, and means a default stream of
 * some device if it is small (cuda.h). */
static gpuipc_status find_id(struct context *ctx, const contents_turn *of, uint64_t *out_id) {
    const point_waiter by = {.context = ctx, .stream = of->stream, .device = of->index};
    const uint64_t handle = (uint64_t)(uintptr_t)of->stream;
    bool can;
    gpuipc_status status = point_can_wait(&by, &can, out_id);
    if (status == GPUIPC_OK && *out_id == 0) {
        *out_id = handle > 2 ? handle : hash_word(of->index, handle == 2);
    }
    return status;
}

/* NULL: no memory. */
static contents_stream *find_or_add(contents_streams *self, uint64_t id) {
    const uint64_t hash = hash_word(0, id);
    for (table_link *at = table_find(&self->by_id, hash); at != NULL; at = table_find_next(at)) {
        contents_stream *found = TABLE_ITEM(at, contents_stream, by_id);
        if (found->id == id) {
            return found;
        }
    }
    contents_stream *made = calloc(1, sizeof(*made));
    if (made != NULL) {
        made->id = id;
        table_add(&self->by_id, &made->by_id, hash);
        list_append(&self->in_turn, &made->in_turn);
    }
    return made;
}

/* The mutex is held, and given up meanwhile. */
static gpuipc_status await_room(contents_streams *of, contents_stream *self, const waiting *wait) {
    gpuipc_status status = GPUIPC_OK;
    self->calls++;
    while (status == GPUIPC_OK && count_free(&self->pace) <= self->begun) {
        os_mutex_unlock(&of->mutex);
        status = pause_a_while(wait);
        os_mutex_lock(&of->mutex);
    }
    if (status == GPUIPC_OK) {
        self->begun++;
    } else {
        self->calls--;
    }
    return status;
}

gpuipc_status contents_turn_begin(struct context *ctx, contents_turn *self,
                                  const atomic_bool *interrupted, os_deadline deadline) {
    contents_streams *all = ctx->contents_streams;
    const waiting wait = {interrupted, deadline, os_clock_ns()};
    uint64_t id;
    gpuipc_status status = find_id(ctx, self, &id);
    if (status != GPUIPC_OK) {
        return status;
    }
    os_mutex_lock(&all->mutex);
    forget_some(all);
    self->of = find_or_add(all, id);
    status = self->of == NULL ? status_out_of_memory(sizeof(*self->of))
                              : await_room(all, self->of, &wait);
    os_mutex_unlock(&all->mutex);
    return status;
}

/* Where a stream neither waits for words nor calls the host, nothing waits on it for a peer, and to write a passage would
 * be to wait for it. */
static gpuipc_status put_passage(struct context *ctx, const contents_turn *self,
                                 point_word *out_passage) {
    device_scope scope;
    gpuipc_status status = device_enter_stream(ctx, self->stream, self->index, &scope);
    if (status != GPUIPC_OK) {
        return status;
    }
    if (point_has_stream_waits(ctx) || ctx->driver.has_hostfunc) {
        status = point_write_begin(ctx, NULL, 0, out_passage);
        if (status == GPUIPC_OK) {
            status = point_submit_writes(ctx, NULL, 0, self->stream, out_passage);
        }
    }
    device_leave(&scope);
    return status;
}

void contents_turn_end(struct context *ctx, const contents_turn *self) {
    const gpuipc_error why = status_save();
    contents_streams *all = ctx->contents_streams;
    point_word passage = POINT_PASSED;
    const bool is_put = put_passage(ctx, self, &passage) == GPUIPC_OK;
    os_mutex_lock(&all->mutex);
    if (is_put) {
        contents_pace_add(&self->of->pace, &passage);
    }
    self->of->begun--;
    self->of->calls--;
    os_mutex_unlock(&all->mutex);
    status_restore(&why);
}

/* ---- their end --------------------------------------------------------------------------------- */

static void end(struct context *ctx, bool is_forked) {
    contents_streams *self = ctx->contents_streams;
    (void)is_forked; /* memory alone */
    while (self->in_turn.first != NULL) {
        forget(self, LIST_ITEM(self->in_turn.first, contents_stream, in_turn));
    }
    table_clear(&self->by_id);
}

const context_part contents_streams_part = {CONTEXT_PART(contents_streams, contents_streams),
                                            .end = end};
