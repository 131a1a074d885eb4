/* SPDX-License-Identifier: MIT */
/** @file See watch.h. */
#include "sync/watch.h"

#include <stdlib.h>

#include "cuda/context.h"
#include "sync/deferred.h"

/* How many of a queue are looked at in a round, and how many peers. */
#define LOOKS 64

typedef struct watch_entry {
    list_link link;
    point_word word; /* a reference on its page; no page: it is of a stream that writes */
    point_word passage;
    import_record *of; /* a reference, or NULL */
    point_word stored; /* behind a stream that writes: a reference on its page; or no page */
} watch_entry;

/* The streams that wait for the words of a channel's page. */
typedef struct watch_page {
    list_link link;
    struct watch_group *by;        /* that it is in */
    point_page *page;              /* a reference */
    uint64_t slots;                /* a bit for each that a stream may be waiting for */
    bool is_kept;                  /* only a graph may, which is not to be launched any more */
    uint32_t next;                 /* where the next look begins */
    point_word words[TRAIL_SLOTS]; /* what the latest waits for */
} watch_page;

/* What is known of a peer: each is for good, and says more than those before it. */
typedef enum peer_end {
    PEER_IS_THERE,
    PEER_HAS_CLOSED,
    PEER_IS_GONE
} peer_end;

/* The streams that wait for one peer. */
typedef struct watch_group {
    list_link link;
    point_peer *peer; /* a reference */
    peer_end end;
    linked_list waits; /* the one not looked at for longest first */
    linked_list pages; /* likewise */
} watch_group;

/* ---- entries: the mutex is held ---------------------------------------------------------------- */

static watch_entry *entry_of(list_link *at) {
    return LIST_ITEM(at, watch_entry, link);
}

static watch_group *group_at(list_link *at) {
    return LIST_ITEM(at, watch_group, link);
}

static void entry_destroy(watch_entry *entry, bool forked) {
    list_remove(&entry->link);
    import_record_unreference(entry->of, forked);
    point_page_unreference(entry->word.page, forked);
    point_page_unreference(entry->stored.page, forked);
    free(entry);
}

static void entry_end(watch_entry *entry) {
    if (entry->word.page != NULL) {
        deferred_wait_ends();
    } else if (entry->stored.page != NULL) {
        point_raise(&entry->stored);
    } else {
        import_record_passed(entry->of);
    }
    entry_destroy(entry, false);
}

/* The stream goes on, with contents that are not valid where it is the contents that it waited for. */
static void let_go(const watch_entry *entry) {
    if (!point_is_reached(&entry->word)) {
        if (entry->of != NULL) {
            atomic_store(&entry->of->is_lost, true);
        }
        point_store(&entry->word);
    }
}

static watch_page *page_at(list_link *at) {
    return LIST_ITEM(at, watch_page, link);
}

static void page_destroy(watch_page *self, bool forked) {
    list_remove(&self->link);
    self->page->watched = NULL;
    point_page_unreference(self->page, forked);
    free(self);
}

static void let_page_go(const watch_page *self) {
    for (uint32_t slot = 0; slot < TRAIL_SLOTS; slot++) {
        if ((self->slots >> slot & 1u) == 0) {
            continue;
        }
        if (atomic_load(&self->page->has_turns)) {
            point_store(&self->words[slot]); /* whatever stands there */
        } else {
            point_raise(&self->words[slot]);
        }
    }
}

/* Whether nobody is there any more to write words of the page's. One that closed before it took the page in never
 * takes it in. */
static bool is_abandoned(const watch_group *by, const point_page *page) {
    return by->end == PEER_IS_GONE ||
           (by->end == PEER_HAS_CLOSED && page->opened == NULL && !point_page_is_taken(page));
}

static void let_abandoned_go(const watch_group *by, const watch_entry *entry) {
    if (is_abandoned(by, entry->word.page)) {
        let_go(entry);
    }
}

/* Of one that was given up, too: a peer that lives may take back what let the streams go. */
static void let_abandoned_page_go(const watch_page *page) {
    if (is_abandoned(page->by, page->page) || atomic_load(&page->page->is_given_up)) {
        let_page_go(page);
    }
}

/* Once for all that there is: from here on each is let go as it is added, and again as it is looked at in turn. */
static void group_set_end(watch_group *self, peer_end end) {
    self->end = end;
    for (list_link *at = self->waits.first; at != NULL; at = at->next) {
        let_abandoned_go(self, entry_of(at));
    }
    for (list_link *at = self->pages.first; at != NULL; at = at->next) {
        let_abandoned_page_go(page_at(at));
    }
}

/* ---- looking: the mutex is held ---------------------------------------------------------------- */

/* Asks the driver, which does not keep it waiting: not even while another thread waits for room in a stream's queue
 * (measured on an H200, driver 580). An answer takes 2 us, and who takes a frame waits meanwhile: so the look ends at the
 * first slot whose stream has not passed, behind which the next one begins. */
static void look_at_page(watch_page *self) {
    bool have_passed = true;
    if (atomic_load(&self->page->is_captured)) {
        return; /* there is no telling when a graph is launched */
    }
    const bool is_kept = point_page_is_kept(self->page);
    for (uint32_t left = TRAIL_SLOTS; left > 0 && have_passed; left--) {
        const uint32_t slot = self->next++ % TRAIL_SLOTS;
        if ((self->slots >> slot & 1u) == 0) {
            continue;
        }
        have_passed =
            !monitor_is_exiting() && trail_has_passed(self->page->trail, TRAIL_WAIT, slot);
        if (have_passed && !is_kept) {
            self->slots &= ~(UINT64_C(1) << slot);
        }
    }
    if (have_passed && !self->is_kept) {
        self->is_kept = true; /* from here on nobody waits for it but for moments */
        deferred_wait_ends();
    }
    if (have_passed && !is_kept) {
        page_destroy(self, false);
    }
}

static void look_at_pages(watch_group *self) {
    for (size_t left = self->pages.count < LOOKS ? self->pages.count : LOOKS; left > 0; left--) {
        watch_page *page = page_at(list_turn(&self->pages));
        let_abandoned_page_go(page);
        look_at_page(page);
    }
}

/* Ends those whose streams have passed. That a word is reached is not enough: a stream that comes to it later finds what
 * the peer has made of it meanwhile. So is one that was let go.
 * @param by of streams that wait; NULL: of those that write */
static void look_at_queue(linked_list *self, const watch_group *by) {
    size_t looks = 0;
    for (size_t left = self->count; left > 0 && looks < LOOKS; left--) {
        watch_entry *entry = entry_of(list_turn(self));
        if (point_is_reached(&entry->passage)) {
            entry_end(entry);
            continue;
        }
        looks++;
        if (by != NULL) {
            let_abandoned_go(by, entry);
        }
    }
}

/* The peer is looked at before its words: what a process wrote before its end is there when its end is seen. */
static void look_at_group(watch *self, watch_group *group) {
    os_mutex_lock(&self->context->points->mutex);
    const peer_end end = point_peer_is_gone(group->peer)      ? PEER_IS_GONE
                         : point_peer_has_closed(group->peer) ? PEER_HAS_CLOSED
                                                              : PEER_IS_THERE;
    os_mutex_unlock(&self->context->points->mutex);
    look_at_queue(&group->waits, group);
    if (end > group->end) {
        group_set_end(group, end);
    }
    look_at_pages(group);
}

static void group_end(watch_group *group, bool forked) {
    list_remove(&group->link);
    if (!forked) {
        group->peer->watched = NULL;
    }
    point_peer_unreference(group->peer, forked);
    free(group);
}

static void look(watch *self) {
    const size_t count = self->groups.count;
    look_at_queue(&self->returns, NULL);
    for (size_t left = count < LOOKS ? count : LOOKS; left > 0; left--) {
        watch_group *group = group_at(list_turn(&self->groups));
        look_at_group(self, group);
        if (group->waits.count + group->pages.count == 0) {
            group_end(group, false);
        }
    }
}

static bool has_nothing(const watch *self) {
    return self->groups.count == 0 && self->returns.count == 0;
}

/* ---- the thread -------------------------------------------------------------------------------- */

static bool run(object *of) {
    watch *self = ((context *)of)->watch;
    os_mutex_lock(&self->mutex);
    look(self);
    const bool is_over = has_nothing(self);
    self->is_monitored = !is_over;
    os_mutex_unlock(&self->mutex);
    return is_over;
}

/* The mutex is held. */
static gpuipc_status start(watch *self) {
    if (self->is_monitored) {
        return GPUIPC_OK;
    }
    const gpuipc_status status =
        monitor_begin(&self->monitored, MONITOR_PEERS, &self->context->object, run, NULL);
    self->is_monitored = status == GPUIPC_OK;
    return status;
}

/* The mutex is held. */
static void dismiss(watch *self) {
    monitor_end(&self->monitored);
    self->is_monitored = false;
}

/* ---- what is looked after ---------------------------------------------------------------------- */

/* The mutex is held. */
static gpuipc_status group_of(watch *self, point_peer *peer, watch_group **out_group) {
    watch_group **known = &peer->watched;
    if (*known == NULL) {
        watch_group *made = calloc(1, sizeof(*made));
        if (made == NULL) {
            return status_out_of_memory(sizeof(*made));
        }
        point_peer_reference(peer);
        made->peer = peer;
        list_append(&self->groups, &made->link);
        *known = made;
    }
    *out_group = *known;
    return GPUIPC_OK;
}

/* A stream that waits, or with no page one that writes. */
static gpuipc_status add(watch *self, const watch_entry *what) {
    point_page *page = what->word.page;
    watch_group *group = NULL;
    watch_entry *entry = malloc(sizeof(*entry));
    if (entry == NULL) {
        return status_out_of_memory(sizeof(*entry));
    }
    os_mutex_lock(&self->mutex);
    gpuipc_status status = start(self);
    if (status == GPUIPC_OK && page != NULL) {
        status = group_of(self, page->peer, &group);
    }
    if (status == GPUIPC_OK) {
        if (page != NULL) {
            point_page_reference(page);
        }
        if (what->stored.page != NULL) {
            point_page_reference(what->stored.page);
        }
        import_record_reference(what->of);
        *entry = *what;
        list_append(group != NULL ? &group->waits : &self->returns, &entry->link);
        if (group != NULL) {
            let_abandoned_go(group, entry);
        }
    }
    os_mutex_unlock(&self->mutex);
    if (status != GPUIPC_OK) {
        free(entry);
    }
    return status;
}

gpuipc_status watch_add(struct context *ctx, const point_word *word, const point_word *passage,
                        import_record *of) {
    const watch_entry entry = {.word = *word, .passage = *passage, .of = of};
    return add(ctx->watch, &entry);
}

gpuipc_status watch_add_return(struct context *ctx, import_record *of) {
    const watch_entry entry = {.passage = of->passage, .of = of};
    return add(ctx->watch, &entry);
}

gpuipc_status watch_add_store(struct context *ctx, const point_word *word,
                              const point_word *passage) {
    const watch_entry entry = {.passage = *passage, .stored = *word};
    return add(ctx->watch, &entry);
}

/* Whether something on the page is waited for, and counts. The mutex is held. */
static bool counts(const point_page *page) {
    return page->watched != NULL && !page->watched->is_kept;
}

/* The mutex is held. */
static gpuipc_status add_page(watch *self, point_page *page) {
    watch_group *group = NULL;
    gpuipc_status status = start(self);
    if (status == GPUIPC_OK) {
        status = group_of(self, page->peer, &group);
    }
    if (status != GPUIPC_OK || page->watched != NULL) {
        return status;
    }
    watch_page *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        return status_out_of_memory(sizeof(*made));
    }
    point_page_reference(page);
    made->by = group;
    made->page = page;
    page->watched = made;
    list_append(&group->pages, &made->link);
    return GPUIPC_OK;
}

/* Of a page that is watched. The mutex is held. */
static void add_slot(const point_word *word, uint32_t slot) {
    watch_page *page = word->page->watched;
    page->is_kept = false;
    page->slots |= UINT64_C(1) << slot;
    page->words[slot] = *word;
    let_abandoned_page_go(page);
}

/* Those for one page count as one that waits for another process. */
static gpuipc_status begin_page(watch *self, const point_word *word, uint32_t slot) {
    deferred_wait_begins(); /* under no lock; another thread may have come first meanwhile */
    os_mutex_lock(&self->mutex);
    const bool is_counted = counts(word->page);
    const gpuipc_status status = add_page(self, word->page);
    if (status == GPUIPC_OK) {
        add_slot(word, slot);
    }
    os_mutex_unlock(&self->mutex);
    if (status != GPUIPC_OK || is_counted) {
        deferred_wait_ends();
    }
    return status;
}

gpuipc_status watch_add_slot(struct context *ctx, const point_word *word, uint32_t slot) {
    watch *self = ctx->watch;
    os_mutex_lock(&self->mutex);
    const bool is_counted = counts(word->page);
    if (is_counted) {
        add_slot(word, slot);
    }
    os_mutex_unlock(&self->mutex);
    return is_counted ? GPUIPC_OK : begin_page(self, word, slot);
}

void watch_sweep(struct context *ctx) {
    os_mutex_lock(&ctx->watch->mutex);
    look(ctx->watch);
    os_mutex_unlock(&ctx->watch->mutex);
    watch_tidy(ctx);
}

void watch_tidy(struct context *ctx) {
    watch *self = ctx->watch;
    os_mutex_lock(&self->mutex);
    const bool is_over = has_nothing(self);
    if (is_over) {
        dismiss(self);
    }
    os_mutex_unlock(&self->mutex);
    if (is_over) {
        monitor_dismiss(MONITOR_PEERS);
    }
}

/* ---- the end ----------------------------------------------------------------------------------- */

static void queue_clear(linked_list *self, bool forked) {
    while (self->first != NULL) {
        watch_entry *entry = entry_of(self->first);
        /* What a stream has not passed by now it may still touch: the page stays, to the end of the process. */
        if (!forked && entry->word.page != NULL) {
            point_page_reference(entry->word.page);
            deferred_wait_ends();
        }
        entry_destroy(entry, forked);
    }
}

static void pages_clear(linked_list *self, bool forked) {
    while (self->first != NULL) {
        watch_page *page = page_at(self->first);
        if (!forked && !page->is_kept) {
            point_page_reference(page->page);
            deferred_wait_ends();
        }
        page_destroy(page, forked);
    }
}

static void clear_all(watch *self, bool forked) {
    queue_clear(&self->returns, forked);
    while (self->groups.first != NULL) {
        watch_group *group = group_at(self->groups.first);
        queue_clear(&group->waits, forked);
        pages_clear(&group->pages, forked);
        group_end(group, forked);
    }
}

/* A stream that has other work first passes when that is done. */
static void let_all_go(watch *self, os_deadline deadline) {
    unsigned pause = 0;
    look(self);
    for (list_link *at = self->groups.first; at != NULL; at = at->next) {
        group_set_end(group_at(at), PEER_IS_GONE);
    }
    for (; !has_nothing(self) && !os_deadline_passed(deadline); look(self)) {
        os_sleep_ms(os_backoff_next(&pause, deadline));
    }
}

static gpuipc_status begin(context *ctx) {
    ctx->watch->context = ctx;
    return GPUIPC_OK;
}

static void end(context *ctx, bool is_forked) {
    watch *self = ctx->watch;
    /* No other thread has the context. Only a look may be in progress. */
    monitor_end(&self->monitored);
    if (!is_forked) {
        monitor_settle(&self->monitored);
        monitor_dismiss(MONITOR_PEERS);
        let_all_go(self, ctx->ends_by);
    }
    clear_all(self, is_forked);
}

const context_part watch_part = {CONTEXT_PART(watch, watch), .begin = begin, .end = end};
