/* SPDX-License-Identifier: MIT */
/** @file See export_record.h: what is asked of buffers. */
#include <stdlib.h>

#include "cuda/context.h"
#include "sync/export_internal.h"

/* How many that are not returned are looked at for a count, half of them from either end. */
#define LOOKS 64u

#define RECORD(link) LIST_ITEM((link), export_record, listed)
#define HOME(link)   LIST_ITEM((link), buffer_exports, home)

/* ---- lists: the mutex is held ------------------------------------------------------------------ */

static bool has_none(const buffer_exports *self) {
    return self->unreturned.count == 0 && self->returned.count == 0 && self->homes.count == 0;
}

void export_buffer_joined(buffer_exports *of) {
    if (of->original != NULL && of->home.in == NULL) {
        list_append(&of->original->homes, &of->home);
    }
}

void export_buffer_left(buffer_exports *of) {
    if (!has_none(of)) {
        return;
    }
    if (of->home.in != NULL) {
        list_remove(&of->home);
        export_buffer_left(of->original); /* which has none itself */
    } else if (atomic_load(&of->is_lingering) && of->in_returned.in == NULL) {
        list_append(&of->context->points->returned, &of->in_returned);
    }
}

buffer_exports *export_take_returned(context *ctx) {
    return LIST_ITEM(list_take(&ctx->points->returned), buffer_exports, in_returned);
}

/* ---- questions --------------------------------------------------------------------------------- */

/* Whether the first of a list stays there, when all before it have left. */
static bool has_first(linked_list *self) {
    while (self->first != NULL) {
        if (!export_settle_listed(RECORD(self->first), true)) {
            return true;
        }
    }
    return false;
}

static bool own_has_unreturned(buffer_exports *self) {
    return has_first(&self->unreturned);
}

static bool own_is_outstanding(buffer_exports *self) {
    return has_first(&self->unreturned) || has_first(&self->returned);
}

static list_link *next_home(buffer_exports *self, list_link *next) {
    return next != NULL && next->in == NULL ? self->homes.first : next; /* it has just left */
}

/* Of the buffer, or of those that came home to it. Those that have none leave the list as that is found. */
static bool any(buffer_exports *self, bool (*holds)(buffer_exports *of)) {
    bool found;
    os_mutex_lock(&self->context->points->mutex);
    found = holds(self);
    for (list_link *next, *at = self->homes.first; at != NULL && !found;
         at = next_home(self, next)) {
        next = at->next;
        found = holds(HOME(at));
    }
    os_mutex_unlock(&self->context->points->mutex);
    return found;
}

bool export_is_outstanding(buffer_exports *self) {
    return any(self, own_is_outstanding);
}

bool export_has_unreturned(buffer_exports *self) {
    return any(self, own_has_unreturned);
}

static uint32_t settle_own(buffer_exports *self) {
    linked_list *unreturned = &self->unreturned;
    list_link *next;
    uint32_t looks = 0;
    (void)own_has_unreturned(self);
    for (list_link *at = unreturned->first; at != NULL && looks < LOOKS / 2; at = next) {
        next = at->next;
        looks += !export_settle_listed(RECORD(at), false);
    }
    looks = 0;
    for (list_link *at = unreturned->last; at != NULL && looks < LOOKS / 2; at = next) {
        next = at->previous;
        looks += !export_settle_listed(RECORD(at), false);
    }
    return (uint32_t)unreturned->count;
}

uint32_t export_count(buffer_exports *self) {
    os_mutex_lock(&self->context->points->mutex);
    uint32_t count = settle_own(self);
    for (list_link *next, *at = self->homes.first; at != NULL; at = next_home(self, next)) {
        next = at->next;
        (void)settle_own(HOME(at));
    }
    for (const list_link *at = self->homes.first; at != NULL; at = at->next) {
        count += (uint32_t)HOME(at)->unreturned.count;
    }
    os_mutex_unlock(&self->context->points->mutex);
    return count;
}

gpuipc_status export_check(const buffer_exports *self) {
    if (self->original != NULL && self->original->context != self->context) {
        return status_fail(
            GPUIPC_ERR_NOT_SHAREABLE,
            "the buffer has come home to another context of this process; send the one "
            "that was made there");
    }
    return GPUIPC_OK;
}

/* ---- what a stream waits for ------------------------------------------------------------------- */

/* A stream that was made to wait, and has not passed what it wrote behind that. */
typedef struct waiting_stream {
    list_link link;
    uint64_t id;     /* which no other stream gets, as its handle */
    uint64_t serial; /* it waits for all hand-overs up to this one */
    point_word passage;
} waiting_stream;

#define STREAM(at) LIST_ITEM((at), waiting_stream, link)

static void stream_destroy(waiting_stream *self) {
    list_remove(&self->link);
    free(self);
}

/* There are no more than streams that wait for this buffer now. */
static waiting_stream *find_stream(buffer_exports *self, uint64_t id) {
    waiting_stream *found = NULL;
    list_link *next;
    for (list_link *at = self->streams.first; at != NULL; at = next) {
        next = at->next;
        if (point_is_reached(&STREAM(at)->passage)) {
            stream_destroy(STREAM(at));
        } else if (STREAM(at)->id == id) {
            found = STREAM(at);
        }
    }
    return found;
}

static void forget_streams(buffer_exports *self) {
    while (self->streams.first != NULL) {
        stream_destroy(STREAM(self->streams.first));
    }
}

/* In a child: another thread may have been about to change the list, so that only its order can be relied on. */
static void free_streams(buffer_exports *self) {
    list_link *next;
    for (list_link *at = self->streams.first; at != NULL; at = next) {
        next = at->next;
        free(STREAM(at));
    }
    self->streams = (linked_list){0};
}

/* Those of a list from its end on: they are in their order, but for those of a buffer that came home and ended.
 * @param words NULL: they are counted only */
static size_t copy_own(const buffer_exports *self, uint64_t awaited, point_words *words) {
    size_t count = 0;
    for (const list_link *at = self->unreturned.last; at != NULL && RECORD(at)->serial > awaited;
         at = at->previous) {
        if (words != NULL) {
            const point_word returned = point_returned_word(&RECORD(at)->at);
            point_words_add(words, &returned);
        }
        count++;
    }
    return count;
}

static size_t copy_all(const buffer_exports *self, uint64_t awaited, point_words *words) {
    size_t count = copy_own(self, awaited, words);
    for (const list_link *at = self->homes.first; at != NULL; at = at->next) {
        count += copy_own(HOME(at), awaited, words);
    }
    return count;
}

gpuipc_status export_copy_awaited(buffer_exports *self, uint64_t stream_id, point_words *out_words,
                                  uint64_t *out_serial) {
    point_context *points = self->context->points;
    os_mutex_lock(&points->mutex);
    (void)own_has_unreturned(self);
    const waiting_stream *stream = find_stream(self, stream_id);
    const uint64_t awaited = stream != NULL ? stream->serial : 0;
    gpuipc_status status = point_words_new(copy_all(self, awaited, NULL), out_words);
    if (status == GPUIPC_OK) {
        (void)copy_all(self, awaited, out_words);
        *out_serial = points->export_serial;
    }
    os_mutex_unlock(&points->mutex);
    return status;
}

/* Without memory, or an id, it waits once more when it is told again. */
void export_awaited(buffer_exports *self, uint64_t stream_id, uint64_t serial,
                    const point_word *passage) {
    os_mutex_lock(&self->context->points->mutex);
    waiting_stream *stream = find_stream(self, stream_id);
    if (stream == NULL && stream_id != 0 && (stream = calloc(1, sizeof(*stream))) != NULL) {
        list_append(&self->streams, &stream->link);
    }
    if (stream != NULL) {
        stream->id = stream_id;
        stream->serial = serial;
        stream->passage = *passage;
    }
    os_mutex_unlock(&self->context->points->mutex);
}

/* ---- the end of a buffer ----------------------------------------------------------------------- */

/* @param heir NULL: they are nobody's from now on */
static void leave_list(linked_list *from, linked_list *to, buffer_exports *heir) {
    list_link *at;
    while ((at = list_take(from)) != NULL) {
        if (heir != NULL) {
            RECORD(at)->of = heir;
            list_append(to, at);
        } else {
            export_forget_buffer(RECORD(at));
        }
    }
}

void export_forget(buffer_exports *self, bool forked) {
    if (forked) {
        free_streams(self);
        return; /* the mutex may be held for ever */
    }
    os_mutex_lock(&self->context->points->mutex);
    buffer_exports *heir = self->home.in != NULL ? self->original : NULL; /* whose memory it is */
    leave_list(&self->unreturned, heir == NULL ? NULL : &heir->unreturned, heir);
    leave_list(&self->returned, heir == NULL ? NULL : &heir->returned, heir);
    if (heir != NULL) {
        forget_streams(heir); /* the order is another one */
    }
    forget_streams(self);
    list_remove(&self->home);
    list_remove(&self->in_returned);
    os_mutex_unlock(&self->context->points->mutex);
}
