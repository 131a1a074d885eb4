/* SPDX-License-Identifier: MIT */
/** @file See watch.h. */
#include "watch.h"

#include <stdlib.h>

#include "context.h"
#include "deferred.h"

typedef struct watch_entry {
    struct watch_entry *next;
    point_page *page; /* a reference; NULL: it is of a stream that writes, and waits for nobody */
    point_word word;
    point_word passage;
    borrow *of; /* a reference, or NULL */
} watch_entry;

typedef struct watch_thread {
    watch *of;
    os_thread *thread;
    bool must_end;  /* nobody will look at it again, but for its end */
    bool has_ended; /* it no longer takes the mutex */
} watch_thread;

gpuipc_status watch_init(watch *self, struct context *ctx) {
    *self = (watch){.context = ctx};
    gpuipc_status status = os_mutex_init(&self->mutex);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = os_condition_init(&self->changed);
    if (status != GPUIPC_OK) {
        os_mutex_destroy(&self->mutex);
    }
    return status;
}

static void entry_free(watch_entry *entry, bool forked) {
    borrow_unreference(entry->of, forked);
    point_page_unreference(entry->page, forked);
    free(entry);
}

/* The stream goes on, with contents that are not valid where it is the contents that it waited for. */
static void let_go(watch_entry *entry) {
    if (!point_is_reached(entry->page, &entry->word)) {
        if (entry->of != NULL) {
            atomic_store(&entry->of->is_lost, true);
        }
        point_store(entry->page, &entry->word);
    }
}

/* Whether there is nothing more to look after. That the word is reached is not enough: a stream that comes to
 * it later finds what the peer has made of it meanwhile. The process is looked at before the word: what it
 * wrote before its end is there when its end is seen. */
static bool is_over(const watch *self, watch_entry *entry) {
    if (point_has_passed(self->context, &entry->passage)) {
        return true;
    }
    if (entry->page != NULL && point_page_peer_is_gone(entry->page)) {
        let_go(entry);
    }
    return false;
}

static void entry_end(watch_entry *entry) {
    if (entry->page != NULL) {
        deferred_wait_ends();
    } else {
        borrow_passed(entry->of);
    }
    entry_free(entry, false);
}

static void look(watch *self) {
    watch_entry **at = &self->first;
    while (*at != NULL) {
        watch_entry *entry = *at;
        if (is_over(self, entry)) {
            *at = entry->next;
            entry_end(entry);
        } else {
            at = &entry->next;
        }
    }
}

static void run(void *argument) {
    watch_thread *thread = argument;
    watch *self = thread->of;
    unsigned pause = 0;
    os_mutex_lock(&self->mutex);
    for (;;) {
        look(self);
        if (self->first == NULL || thread->must_end) {
            break;
        }
        const unsigned milliseconds = os_backoff_next(&pause, os_deadline_after(-1));
        (void)os_condition_wait(&self->changed, &self->mutex, os_deadline_after((int)milliseconds));
    }
    thread->has_ended = true;
    os_mutex_unlock(&self->mutex);
}

static void join(watch_thread *thread) {
    if (thread != NULL) {
        os_thread_join(thread->thread);
        free(thread);
    }
}

/* The mutex is held. */
static gpuipc_status start(watch *self) {
    if (self->thread != NULL && !self->thread->has_ended) {
        return GPUIPC_OK;
    }
    join(self->thread);
    self->thread = NULL;
    watch_thread *thread = calloc(1, sizeof(*thread));
    if (thread == NULL) {
        return status_out_of_memory("watch_add", sizeof(*thread));
    }
    thread->of = self;
    gpuipc_status status = os_thread_start(run, thread, &thread->thread);
    if (status != GPUIPC_OK) {
        free(thread);
        return status;
    }
    self->thread = thread;
    return GPUIPC_OK;
}

/* The mutex is held. The caller joins what comes back, when it has let go of the mutex. */
static watch_thread *dismiss(watch *self) {
    watch_thread *thread = self->thread;
    if (thread != NULL) {
        thread->must_end = true;
        self->thread = NULL;
        os_condition_signal_all(&self->changed);
    }
    return thread;
}

static gpuipc_status add(watch *self, point_page *page, const point_word *word,
                         const point_word *passage, borrow *of) {
    watch_entry *entry = malloc(sizeof(*entry));
    if (entry == NULL) {
        return status_out_of_memory("watch_add", sizeof(*entry));
    }
    os_mutex_lock(&self->mutex);
    gpuipc_status status = start(self);
    if (status == GPUIPC_OK) {
        if (page != NULL) {
            point_page_reference(page);
            deferred_wait_begins();
        }
        borrow_reference(of);
        *entry = (watch_entry){
            .next = self->first, .page = page, .word = *word, .passage = *passage, .of = of};
        self->first = entry;
    }
    os_mutex_unlock(&self->mutex);
    if (status != GPUIPC_OK) {
        free(entry);
    }
    return status;
}

gpuipc_status watch_add(watch *self, point_page *page, const point_word *word,
                        const point_word *passage, borrow *of) {
    return add(self, page, word, passage, of);
}

gpuipc_status watch_add_return(watch *self, borrow *of) {
    const point_word none = {0, 0};
    return add(self, NULL, &none, &of->passage, of);
}

void watch_collect(watch *self) {
    os_mutex_lock(&self->mutex);
    look(self);
    os_mutex_unlock(&self->mutex);
    watch_tidy(self);
}

void watch_tidy(watch *self) {
    watch_thread *thread = NULL;
    os_mutex_lock(&self->mutex);
    if (self->first == NULL) {
        thread = dismiss(self);
    }
    os_mutex_unlock(&self->mutex);
    join(thread);
}

/* The thread did not come along, and what it had locked or waits for at that moment stays so. */
static void forget(watch *self) {
    while (self->first != NULL) {
        watch_entry *entry = self->first;
        self->first = entry->next;
        entry_free(entry, true);
    }
    free(self->thread);
}

/* A stream that has other work first passes when that is done. */
static void let_all_go(watch *self, os_deadline deadline) {
    unsigned pause = 0;
    look(self);
    while (self->first != NULL && !os_deadline_passed(deadline)) {
        for (watch_entry *entry = self->first; entry != NULL; entry = entry->next) {
            if (entry->page != NULL) {
                let_go(entry);
            }
        }
        os_sleep_ms(os_backoff_next(&pause, deadline));
        look(self);
    }
}

void watch_end(watch *self, os_deadline deadline, bool forked) {
    if (forked) {
        forget(self);
        return;
    }
    os_mutex_lock(&self->mutex);
    watch_thread *thread = dismiss(self);
    os_mutex_unlock(&self->mutex);
    join(thread);
    let_all_go(self, deadline);
    while (self->first != NULL) {
        watch_entry *entry = self->first;
        self->first = entry->next;
        if (entry->page != NULL) {
            deferred_wait_ends();
        }
        entry_free(entry, false);
    }
    os_condition_destroy(&self->changed);
    os_mutex_destroy(&self->mutex);
}
