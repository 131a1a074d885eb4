/* SPDX-License-Identifier: MIT */
/** @file See export_record.h. The tables of connections, and what becomes of each hand-over; what is asked of buffers is in
 *  export_buffer.c. */
#include "sync/export_record.h"

#include <stdlib.h>

#include "cuda/context.h"
#include "sync/export_internal.h"
#include "sync/loan.h"

/* How many of a table are looked at with each that is taken: more than one, so that those that are over never become more
 * than a fraction of those that are not. */
#define LOOKS 4
/* How many of one are looked at, or forgotten, at most while others wait for the mutex. */
#define AT_ONCE 1024u
/* How many tables of connections that are over are looked at with each new one: more than one, so that those whose
 * peers are gone become fewer. */
#define TABLES_LOOKED_AT 2

#define RECORD(link) LIST_ITEM((link), export_record, busy)

/* A page, and the records of its points. */
typedef struct export_page {
    point_page *page;
    export_record
        *records;  /* POINT_COUNT, of which the first ones are used: no other has anything in it */
    uint32_t used; /* so many were given out at least once */
} export_page;

struct export_table {
    struct context *context; /* no reference: the connection has one, and then nothing is put in */
    point_peer *peer;
    export_page pages[POINT_PAGES_MAX];
    uint32_t page_count;
    linked_list free;
    linked_list busy; /* the one not looked at for longest first */
    size_t
        stranded; /* so many of these are to be looked at still: the peer may not have taken them in */
    list_link listed; /* in point_context::exports, or left: then it ends when nothing is busy */
};

/* ---- tables -------------------------------------------------------------------------------------- */

static bool is_left(const export_table *self) {
    return list_has(&self->context->points->left, &self->listed);
}

static void table_destroy(export_table *self, bool forked) {
    for (uint32_t i = 0; i < self->page_count; i++) {
        if (forked) {
            point_page_unreference(self->pages[i].page, true);
        } else {
            loan_page_end(self->pages[i].page);
            point_page_unreference_locked(self->pages[i].page);
        }
        free(self->pages[i].records);
    }
    point_peer_unreference(self->peer, forked);
    free(self);
}

/* The mutex is held. */
static void end_if_over(export_table *self) {
    if (is_left(self) && self->busy.count == 0) {
        list_remove(&self->listed);
        table_destroy(self, false);
    }
}

/* ---- one hand-over: the mutex is held ------------------------------------------------------------ */

static void forget_buffer(export_record *self) {
    buffer_exports *of = self->of;
    if (of != NULL) {
        list_remove(&self->listed);
        self->of = NULL;
        export_buffer_left(of);
    }
}

static void make_free(export_record *self) {
    list_remove(&self->busy);
    list_prepend(&self->table->free, &self->busy);
}

/* The ready word must have been written as well before the point is given out again: a stream that writes it later would put
 * the value of one hand-over over that of the next. Where the connection is over nothing is given out any more. What the
 * peer still has open counts as long, whether or not the buffer is there: marks and loans are for him as well. */
static void make_free_if_over(export_record *self) {
    const point_word released = point_released_word(&self->at);
    if (self->of == NULL && point_is_reached(&released) &&
        (is_left(self->table) || point_is_reached(&self->written))) {
        make_free(self);
    }
}

/* Looks what has become of it. @return whether it has left the list that it was in */
static bool export_settle(export_record *self) {
    const point_word returned = point_returned_word(&self->at);
    const point_word released = point_released_word(&self->at);
    bool is_moved = point_is_reached(&returned) && self->of != NULL &&
                    list_has(&self->of->unreturned, &self->listed);
    if (point_is_reached(&released)) {
        is_moved = self->of != NULL;
        forget_buffer(self);
    } else if (is_moved) {
        list_remove(&self->listed);
        list_append(&self->of->returned, &self->listed);
    }
    make_free_if_over(self);
    return is_moved;
}

void export_forget_buffer(export_record *self) {
    export_table *table = self->table;
    self->of = NULL;
    make_free_if_over(self);
    end_if_over(table);
}

/* ---- many of them ------------------------------------------------------------------------------ */

/* Nobody is there who would return anything. The mutex is held. */
static void forget_some(export_table *self, size_t most) {
    for (; most > 0 && self->busy.first != NULL; most--) {
        export_record *one = RECORD(self->busy.first);
        forget_buffer(one);
        make_free(one);
    }
}

static void forget_all(export_table *self) {
    forget_some(self, SIZE_MAX);
}

/* What the peer did not take in before it closed its end is not returned by anybody. */
static void forget_some_stranded(export_table *self, size_t most) {
    self->stranded = self->stranded < self->busy.count ? self->stranded : self->busy.count;
    for (; most > 0 && self->stranded > 0; most--, self->stranded--) {
        export_record *one = RECORD(list_turn(&self->busy));
        if (!point_page_is_taken(one->at.page)) {
            forget_buffer(one);
            make_free(one);
        }
    }
}

/* @return whether the peer has closed its end, and has not taken the page in */
static bool is_stranded(export_table *self, const point_page *page) {
    return !point_page_is_taken(page) && point_peer_has_closed(self->peer) &&
           !point_page_is_taken(page);
}

/* @return whether nobody is there who would return a hand-over of this page */
static bool forget_abandoned(export_table *self, const point_page *page) {
    if (point_peer_is_gone(self->peer)) {
        forget_all(self);
        return true;
    }
    if (is_stranded(self, page)) {
        self->stranded = self->busy.count;
        forget_some_stranded(self, SIZE_MAX);
        return true;
    }
    return false;
}

bool export_settle_listed(export_record *self, bool asks) {
    export_table *table = self->table;
    const bool is_settled = export_settle(self) || (asks && forget_abandoned(table, self->at.page));
    end_if_over(table);
    return is_settled;
}

/* Those that are over are looked at once, a bounded number of them. */
static void settle_left(export_table *self) {
    size_t looks = 0;
    const size_t most = self->busy.count < AT_ONCE ? self->busy.count : AT_ONCE;
    for (size_t left = most; left > 0 && looks < LOOKS; left--) {
        const size_t count = self->busy.count;
        (void)export_settle(RECORD(list_turn(&self->busy)));
        looks += self->busy.count == count;
    }
}

static void settle_some(export_table *self) {
    for (int i = 0; i < LOOKS && self->busy.count > 0; i++) {
        (void)export_settle(RECORD(list_turn(&self->busy)));
    }
}

/* All of it, once. It may be gone afterwards. */
static void settle_whole(export_table *self) {
    list_link *next;
    for (list_link *at = self->busy.first; at != NULL; at = next) {
        next = at->next;
        (void)export_settle(RECORD(at));
    }
    if (self->page_count > 0) {
        (void)forget_abandoned(self, self->pages[self->page_count - 1].page);
    }
    end_if_over(self);
}

/* Of the first of those that are left: what is over goes, and some of what a peer that is gone had. One that is looked
 * through goes to the end. @return whether it is */
static bool look_at_first(point_context *points) {
    export_table *one = LIST_ITEM(points->left.first, export_table, listed);
    if (one->stranded == 0) { /* else they are gone through in their order */
        settle_left(one);
    }
    if (one->busy.count > 0 && point_peer_is_gone(one->peer)) {
        forget_some(one, AT_ONCE);
        if (one->busy.count > 0) {
            return false;
        }
    }
    forget_some_stranded(one, AT_ONCE);
    if (one->stranded > 0) {
        return false;
    }
    (void)list_turn(&points->left);
    end_if_over(one);
    return true;
}

static void look_at_left(point_context *points) {
    for (int i = 0; i < TABLES_LOOKED_AT && points->left.count > 0; i++) {
        (void)look_at_first(points);
    }
}

void export_look_on(struct context *ctx, size_t *to_look) {
    point_context *points = ctx->points;
    if (atomic_exchange(&points->has_stranded, false)) {
        *to_look = SIZE_MAX;
    }
    if (*to_look == 0) {
        return;
    }
    os_mutex_lock(&points->mutex);
    *to_look = *to_look < points->left.count ? *to_look : points->left.count;
    for (int i = 0; i<TABLES_LOOKED_AT && * to_look> 0; i++) {
        *to_look -= look_at_first(points);
    }
    os_mutex_unlock(&points->mutex);
}

gpuipc_status export_table_new(struct context *ctx, point_peer *peer, export_table **out_table) {
    point_context *points = ctx->points;
    export_table *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return status_out_of_memory(sizeof(*self));
    }
    point_peer_reference(peer);
    self->context = ctx;
    self->peer = peer;
    os_mutex_lock(&points->mutex);
    look_at_left(points);
    list_append(&points->exports, &self->listed);
    os_mutex_unlock(&points->mutex);
    *out_table = self;
    return GPUIPC_OK;
}

/* Each of them once, some at a time: the mutex is given back in between. */
static void settle_in_steps(export_table *self, size_t most) {
    os_mutex *mutex = &self->context->points->mutex;
    os_mutex_lock(mutex);
    const bool is_gone = point_peer_is_gone(self->peer);
    size_t left = self->busy.count < most ? self->busy.count : most;
    for (size_t step = 1; left > 0 && self->busy.count > 0; left--, step++) {
        if (is_gone) {
            forget_some(self, 1);
        } else {
            (void)export_settle(RECORD(list_turn(&self->busy)));
        }
        if (step % AT_ONCE == 0) {
            os_mutex_unlock(mutex);
            os_mutex_lock(mutex);
        }
    }
    os_mutex_unlock(mutex);
}

/* All of it, or where others wait, what can be done at once: the rest is looked on for. The mutex is held. */
static void forget_what_nobody_returns(export_table *self, bool is_served) {
    const point_page *newest = self->page_count > 0 ? self->pages[self->page_count - 1].page : NULL;
    if (newest != NULL && (!is_served || self->busy.count <= AT_ONCE)) {
        (void)forget_abandoned(self, newest);
    } else if (newest != NULL && is_stranded(self, newest)) {
        self->stranded = self->busy.count;
        atomic_store(&self->context->points->has_stranded, true);
    }
}

void export_table_leave(export_table *self, bool is_served, bool forked) {
    if (self == NULL || forked) {
        return; /* in a child the context ends it: export_end_all() */
    }
    point_context *points = self->context->points;
    settle_in_steps(self, is_served ? AT_ONCE : SIZE_MAX);
    os_mutex_lock(&points->mutex);
    list_remove(&self->listed);
    list_append(&points->left, &self->listed);
    forget_what_nobody_returns(self, is_served);
    end_if_over(self);
    look_at_left(points);
    os_mutex_unlock(&points->mutex);
}

void export_look_at_left(struct context *ctx) {
    os_mutex_lock(&ctx->points->mutex);
    look_at_left(ctx->points);
    os_mutex_unlock(&ctx->points->mutex);
}

static void settle_tables(linked_list *tables) {
    list_link *next;
    for (list_link *at = tables->first; at != NULL; at = next) {
        next = at->next;
        settle_whole(LIST_ITEM(at, export_table, listed));
    }
}

void export_settle_all(struct context *ctx) {
    os_mutex_lock(&ctx->points->mutex);
    settle_tables(&ctx->points->exports);
    settle_tables(&ctx->points->left);
    os_mutex_unlock(&ctx->points->mutex);
}

/* In a child buffers end without a word to their hand-overs (export_forget()), and may have ended. */
static void leave_buffers(export_table *self) {
    for (list_link *at = self->busy.first; at != NULL; at = at->next) {
        RECORD(at)->of = NULL;
    }
}

void export_end_all(struct context *ctx, bool forked) {
    linked_list *const each[] = {&ctx->points->exports, &ctx->points->left};
    for (size_t i = 0; i < 2; i++) {
        list_link *at;
        while ((at = list_take(each[i])) != NULL) {
            export_table *one = LIST_ITEM(at, export_table, listed);
            if (forked) {
                leave_buffers(one);
            }
            forget_all(one);
            table_destroy(one, forked);
        }
    }
}

/* ---- hand-overs -------------------------------------------------------------------------------- */

static gpuipc_status add_page(export_table *self) {
    if (self->page_count == POINT_PAGES_MAX) {
        return status_fail(GPUIPC_ERR_LIMIT,
                           "%u buffers that were sent over this connection are not returned yet; "
                           "let the receiver release some",
                           POINT_PAGES_MAX * POINT_COUNT);
    }
    export_page *made = &self->pages[self->page_count];
    *made = (export_page){.records = malloc(POINT_COUNT * sizeof(export_record))};
    if (made->records == NULL) {
        return status_out_of_memory(POINT_COUNT * sizeof(export_record));
    }
    gpuipc_status status = point_page_create(self->context, self->peer, &made->page);
    if (status != GPUIPC_OK) {
        free(made->records);
        return status;
    }
    self->page_count++;
    return GPUIPC_OK;
}

static gpuipc_status take(export_table *self, export_record **out_record) {
    if (self->free.count > 0) {
        *out_record = RECORD(list_take(&self->free));
        return GPUIPC_OK;
    }
    if (self->page_count == 0 || self->pages[self->page_count - 1].used == POINT_COUNT) {
        gpuipc_status status = add_page(self);
        if (status != GPUIPC_OK) {
            return status;
        }
    }
    export_page *newest = &self->pages[self->page_count - 1];
    export_record *one = &newest->records[newest->used];
    *one = (export_record){.table = self, .at = {newest->page, newest->used, 0}};
    newest->used++;
    point_page_give_out(newest->page, newest->used);
    *out_record = one;
    return GPUIPC_OK;
}

gpuipc_status export_begin(export_table *self, buffer_exports *of, export_record **out_record,
                           point *out_point) {
    point_context *points = self->context->points;
    export_record *one = NULL;
    os_mutex_lock(&points->mutex);
    settle_some(self);
    gpuipc_status status = take(self, &one);
    if (status == GPUIPC_OK) {
        one->at.value += 2;
        one->written = POINT_PASSED;
        one->of = of;
        one->serial = ++points->export_serial;
        list_append(&self->busy, &one->busy);
        list_append(&of->unreturned, &one->listed);
        export_buffer_joined(of);
        *out_record = one;
        *out_point = one->at;
    }
    os_mutex_unlock(&points->mutex);
    return status;
}

/* The peer has the page: what it writes there may have given the point back, and out again, before anything was sent. */
static bool is_still(const export_record *self, const point *at) {
    return list_has(&self->table->busy, &self->busy) && self->at.value == at->value;
}

void export_cancel(export_record *self, const point *at) {
    os_mutex *mutex = &self->table->context->points->mutex;
    os_mutex_lock(mutex);
    if (is_still(self, at)) {
        const point_word released = point_released_word(at);
        point_store(&released);
        (void)export_settle(self);
    }
    os_mutex_unlock(mutex);
}

void export_set_written(export_record *self, const point *at, const point_word *passage) {
    os_mutex *mutex = &self->table->context->points->mutex;
    os_mutex_lock(mutex);
    if (is_still(self, at)) {
        self->written = *passage;
    }
    os_mutex_unlock(mutex);
}

point_page *export_table_unsent(const export_table *self) {
    for (uint32_t i = self->page_count; i > 0; i--) {
        /* They are sent in their order: only the last ones may be left. */
        if (!os_handle_is_valid(self->pages[i - 1].page->handle)) {
            return i < self->page_count ? self->pages[i].page : NULL;
        }
    }
    return self->page_count > 0 ? self->pages[0].page : NULL;
}

uint32_t export_table_number(const export_table *self, const point *at) {
    uint32_t page = 0;
    while (self->pages[page].page != at->page) {
        page++;
    }
    return page * POINT_COUNT + at->index;
}

/* The mutex is held. */
static void store_words(const linked_list *tables, uint32_t at, uint64_t value) {
    for (list_link *link = tables->first; link != NULL; link = link->next) {
        const export_table *one = LIST_ITEM(link, export_table, listed);
        if (one->page_count > 0) {
            const point_word word = {one->pages[0].page, at, value};
            point_store(&word);
        }
    }
}

void export_store_words(struct context *ctx, uint32_t at, uint64_t value) {
    os_mutex_lock(&ctx->points->mutex);
    store_words(&ctx->points->exports, at, value);
    store_words(&ctx->points->left, at, value);
    os_mutex_unlock(&ctx->points->mutex);
}

/* The mutex is held. */
static void add_words(const linked_list *tables, uint32_t at, uint64_t value, point_words *words) {
    for (list_link *link = tables->first; link != NULL; link = link->next) {
        const export_table *one = LIST_ITEM(link, export_table, listed);
        if (one->page_count > 0) {
            point_words_add(words, &(point_word){one->pages[0].page, at, value});
        }
    }
}

gpuipc_status export_copy_words(struct context *ctx, uint32_t at, uint64_t value,
                                point_words *out_words) {
    point_context *points = ctx->points;
    os_mutex_lock(&points->mutex);
    gpuipc_status status = point_words_new(points->exports.count + points->left.count, out_words);
    if (status == GPUIPC_OK) {
        add_words(&points->exports, at, value, out_words);
        add_words(&points->left, at, value, out_words);
    }
    os_mutex_unlock(&points->mutex);
    return status;
}
