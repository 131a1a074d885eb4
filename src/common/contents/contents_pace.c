/* SPDX-License-Identifier: MIT */
/** @file See contents_pace.h. */
#include "contents/contents_pace.h"

#include <stdlib.h>

#include "base/list.h"
#include "base/table.h"
#include "cuda/context.h"
#include "sync/point.h"

#define SPIN_NS UINT64_C(50000)
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
    unsigned pause_ms;
} waiting;

/* Between two looks. */
static gpuipc_status pause_a_while(waiting *self) {
    if (atomic_load(self->interrupted)) {
        return status_fail(GPUIPC_ERR_RELEASED,
                           "the connection was closed, or the context destroyed");
    }
    if (os_deadline_passed(self->deadline)) {
        return status_fail(GPUIPC_ERR_TIMEOUT,
                           "streams of this process have not passed %u pieces of contents before",
                           CONTENTS_PACE_MOST);
    }
    if (os_clock_ns() - self->begun_ns > SPIN_NS) {
        os_sleep_ms(os_backoff_next(&self->pause_ms, self->deadline));
    }
    return GPUIPC_OK;
}

gpuipc_status contents_pace_await(const contents_pace *self, uint64_t count,
                                  const atomic_bool *interrupted, os_deadline deadline) {
    const uint64_t wanted = count < CONTENTS_PACE_MOST ? count : CONTENTS_PACE_MOST;
    waiting wait = {interrupted, deadline, os_clock_ns(), 0};
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

struct contents_stream {
    table_link by_stream;
    list_link in_turn;
    gpuipc_stream stream;
    uint32_t index;
    unsigned calls;   /* so many are between enter and leave */
    unsigned entered; /* of these, so many have found room */
    contents_pace pace;
};

typedef struct contents_streams {
    os_mutex mutex; /* guards the rest */
    hash_table by_stream;
    linked_list in_turn; /* not looked at for longest: first */
} contents_streams;

static void forget(contents_streams *self, contents_stream *of) {
    table_remove(&self->by_stream, &of->by_stream);
    list_remove(&of->in_turn);
    free(of);
}

/* A stream whose handle means another one by now is idle as well. */
static void forget_some(contents_streams *self) {
    for (int i = 0; i < LOOKS && self->in_turn.count > 0; i++) {
        contents_stream *of = LIST_ITEM(list_turn(&self->in_turn), contents_stream, in_turn);
        if (of->calls == 0 && count_free(&of->pace) == CONTENTS_PACE_MOST) {
            forget(self, of);
        }
    }
}

static uint64_t hash_of(gpuipc_stream stream, uint32_t index) {
    return (uint64_t)(uintptr_t)stream ^ (uint64_t)index << 48;
}

/* NULL: no memory. */
static contents_stream *find_or_add(contents_streams *self, gpuipc_stream stream, uint32_t index) {
    const uint64_t hash = hash_of(stream, index);
    for (table_link *at = table_find(&self->by_stream, hash); at != NULL;
         at = table_find_next(at)) {
        contents_stream *found = TABLE_ITEM(at, contents_stream, by_stream);
        if (found->stream == stream && found->index == index) {
            return found;
        }
    }
    contents_stream *made = calloc(1, sizeof(*made));
    if (made != NULL) {
        made->stream = stream;
        made->index = index;
        table_add(&self->by_stream, &made->by_stream, hash);
        list_append(&self->in_turn, &made->in_turn);
    }
    return made;
}

/* The mutex is held, and given up meanwhile. */
static gpuipc_status await_room(contents_streams *of, contents_stream *self, waiting *wait) {
    gpuipc_status status = GPUIPC_OK;
    self->calls++;
    while (status == GPUIPC_OK && count_free(&self->pace) <= self->entered) {
        os_mutex_unlock(&of->mutex);
        status = pause_a_while(wait);
        os_mutex_lock(&of->mutex);
    }
    if (status == GPUIPC_OK) {
        self->entered++;
    } else {
        self->calls--;
    }
    return status;
}

gpuipc_status contents_stream_enter(struct context *ctx, gpuipc_stream stream, uint32_t index,
                                    const atomic_bool *interrupted, os_deadline deadline,
                                    contents_stream **out_stream) {
    contents_streams *of = ctx->contents_streams;
    waiting wait = {interrupted, deadline, os_clock_ns(), 0};
    os_mutex_lock(&of->mutex);
    forget_some(of);
    contents_stream *self = find_or_add(of, stream, index);
    gpuipc_status status =
        self == NULL ? status_out_of_memory(sizeof(*self)) : await_room(of, self, &wait);
    os_mutex_unlock(&of->mutex);
    if (status == GPUIPC_OK) {
        *out_stream = self;
    }
    return status;
}

/* Where a stream neither waits for words nor calls the host, nothing waits on it for a peer, and to write a passage would
 * be to wait for it. */
static gpuipc_status put_passage(struct context *ctx, const contents_stream *self,
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

void contents_stream_leave(struct context *ctx, contents_stream *self) {
    const gpuipc_error why = status_save();
    contents_streams *of = ctx->contents_streams;
    point_word passage = POINT_PASSED;
    const bool is_put = put_passage(ctx, self, &passage) == GPUIPC_OK;
    os_mutex_lock(&of->mutex);
    if (is_put) {
        contents_pace_add(&self->pace, &passage);
    }
    self->entered--;
    self->calls--;
    os_mutex_unlock(&of->mutex);
    status_restore(&why);
}

/* ---- their end --------------------------------------------------------------------------------- */

static void end(struct context *ctx, bool is_forked) {
    contents_streams *self = ctx->contents_streams;
    (void)is_forked; /* memory alone */
    while (self->in_turn.first != NULL) {
        forget(self, LIST_ITEM(self->in_turn.first, contents_stream, in_turn));
    }
    table_clear(&self->by_stream);
}

const context_part contents_streams_part = {CONTEXT_PART(contents_streams, contents_streams),
                                            .end = end};
