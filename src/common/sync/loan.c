/* SPDX-License-Identifier: MIT */
/** @file See loan.h: the lender's side. */
#include "sync/loan.h"

#include <stdlib.h>

#include "cuda/context.h"

/* How many that are out are looked at with each new one: more than one, so that those that are over never become more
 * than a fraction of those that are not. */
#define LOOKS 4
/* How often it is asked whether those live who have taken something, and of how many at once. */
#define ASK_NS UINT64_C(10000000)
#define ASKS   64u
/* The last value of a loan's number, so that its words only go up. */
#define VALUE_MAX 0x7FFFFFFFu

/* Of an own page, as long as its connection may return something. */
typedef struct loan_page {
    list_link listed;
    point_page *page; /* no reference: it ends this */
    uint64_t takes;   /* as last looked at */
    bool has_taken;   /* anything, ever */
    bool has_guessed; /* it named a loan without its secret: it is not believed any more */
} loan_page;

typedef struct loan {
    list_link listed; /* of those that are free, or are not */
    list_link of;     /* of its buffer's, while that is there */
    uint32_t value;   /* given out last */
    uint16_t secret;
    bool is_out;        /* the part may not be written yet, as far as is known */
    loan_page *taker;   /* one who has it; NULL: nobody is known */
    point_word written; /* where its ready word is written */
} loan;

/* Guarded by the mutex of points. */
typedef struct loan_table {
    linked_list pages;
    linked_list free;
    linked_list busy; /* the one not looked at for longest first */
    uint32_t used;    /* so many were given out at least once */
    uint64_t asked_ns;
    uint16_t secrets[64]; /* of the system's, not used yet */
    size_t secrets_left;
    loan loans[LOAN_SLOTS];
} loan_table;

const context_part loan_part = {CONTEXT_PART(loans, loan_table)};

/* ---- words ----------------------------------------------------------------------------------- */

static uint64_t taken_value(const loan *self) {
    return loan_taken_value(self->value, self->secret);
}

/* Says nothing of the secret. */
static uint64_t closed_value(uint32_t value) {
    return (uint64_t)value << 32 | 0xFFFFFFFFu;
}

static uint32_t number_of(const loan_table *table, const loan *self) {
    return (uint32_t)(self - table->loans);
}

static uint64_t word_value(const point_page *page, uint32_t number) {
    return atomic_load_explicit(loan_word(page, number), memory_order_acquire);
}

/* ---- what becomes of one: the mutex is held ---------------------------------------------------- */

/* Who has not taken it over this page cannot any more. @return whether somebody has it there */
static bool close_at(const loan_page *at, uint32_t number, const loan *one) {
    atomic_uint_least64_t *word = loan_word(at->page, number);
    uint64_t now = atomic_load_explicit(word, memory_order_acquire);
    do {
        if (now >> 32 == one->value) {
            return now == taken_value(one) && (!at->has_guessed || one->taker == at);
        }
    } while (!atomic_compare_exchange_weak_explicit(word, &now, closed_value(one->value),
                                                    memory_order_acq_rel, memory_order_acquire));
    return false;
}

static void set_taker(loan *self, loan_page *by) {
    self->taker = by;
    by->has_taken = true;
}

/* @return whether it is over: nobody has it, and nobody can take it */
static bool try_end(loan_table *table, loan *self) {
    const uint32_t number = number_of(table, self);
    for (list_link *at = table->pages.first; at != NULL; at = at->next) {
        loan_page *page = LIST_ITEM(at, loan_page, listed);
        if (close_at(page, number, self)) {
            set_taker(self, page);
            return false;
        }
    }
    self->taker = NULL;
    self->is_out = false;
    list_remove(&self->of);
    return true;
}

static bool is_over(loan_table *table, loan *self) {
    const uint32_t number = number_of(table, self);
    if (!self->is_out || self->taker == NULL) {
        return !self->is_out;
    }
    return word_value(self->taker->page, number) != taken_value(self) && try_end(table, self);
}

/* ---- what is to be seen in the pages: the mutex is held ---------------------------------------- */

static void look_at_word(loan_page *self, loan *one, uint64_t now) {
    if (now >> 32 != one->value || now == closed_value(one->value)) {
        return;
    }
    if (now == taken_value(one) || now == taken_value(one) + LOAN_RETURNED) {
        set_taker(one, self);
    } else {
        self->has_guessed = true;
    }
}

/* What was taken there since the last look: if it was one, it says which. */
static void look_at_page(loan_table *table, loan_page *self) {
    const uint64_t takes =
        atomic_load_explicit(&self->page->words[LOAN_TAKES_WORD], memory_order_acquire);
    if (takes == self->takes) {
        return;
    }
    const bool is_one = takes >> 16 == (self->takes >> 16) + 1;
    const uint32_t last = (uint32_t)(takes & 0xFFFFu);
    const uint32_t end = is_one && last < table->used ? last + 1 : table->used;
    self->takes = takes;
    for (uint32_t i = is_one ? last : 0; i < end && !self->has_guessed; i++) {
        loan *one = &table->loans[i];
        if (one->is_out && one->taker == NULL) {
            look_at_word(self, one, word_value(self->page, i));
        }
    }
}

static void ask_for_the_living(loan_table *table) {
    const uint64_t now = os_clock_ns();
    if (now - table->asked_ns < ASK_NS) {
        return;
    }
    table->asked_ns = now;
    const size_t count = table->pages.count < ASKS ? table->pages.count : ASKS;
    for (size_t i = 0; i < count && table->pages.count > 0; i++) {
        loan_page *one = LIST_ITEM(list_turn(&table->pages), loan_page, listed);
        if (one->has_taken && point_peer_is_gone(one->page->peer)) {
            loan_page_end(one->page);
        }
    }
}

/* Who lives is asked first: what a process wrote before its end is there when its end is seen. */
static void look(loan_table *table) {
    ask_for_the_living(table);
    for (list_link *at = table->pages.first; at != NULL; at = at->next) {
        look_at_page(table, LIST_ITEM(at, loan_page, listed));
    }
}

/* Of a loan that nobody is known to have, anybody may have taken it since, and wrote so in a page of his own. Of one whose taker
 * is known his word says all. */
static bool must_look(const loan *one) {
    return one != NULL && one->is_out && one->taker == NULL;
}

static void look_for(loan_table *table, bool must) {
    if (must) {
        look(table);
    } else {
        ask_for_the_living(table);
    }
}

/* A page that comes later is as if it had been there before. */
static void fill_page(const loan_table *table, point_page *page) {
    for (uint32_t i = 0; i < table->used; i++) {
        const loan *one = &table->loans[i];
        atomic_store_explicit(loan_word(page, i),
                              closed_value(one->is_out ? one->value - 1 : one->value),
                              memory_order_release);
    }
}

gpuipc_status loan_page_begin(struct context *ctx, point_page *page) {
    loan_page *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return status_out_of_memory(sizeof(*self));
    }
    self->page = page;
    os_mutex_lock(&ctx->points->mutex);
    fill_page(ctx->loans, page);
    list_append(&ctx->loans->pages, &self->listed);
    page->loans = self;
    os_mutex_unlock(&ctx->points->mutex);
    return GPUIPC_OK;
}

void loan_page_end(point_page *page) {
    loan_page *self = page->loans;
    loan_table *table = page->context->loans;
    if (self == NULL) {
        return;
    }
    look_at_page(table, self); /* also what was taken and returned since the last look */
    list_remove(&self->listed);
    for (uint32_t i = 0; i < table->used && self->has_taken; i++) {
        if (table->loans[i].taker == self) {
            (void)try_end(table, &table->loans[i]);
        }
    }
    page->loans = NULL;
    free(self);
}

/* ---- lending ---------------------------------------------------------------------------------- */

/* Its ready word must have been written as well before it is given out again. The mutex is held. */
static void make_free_if_over(loan_table *table, loan *self) {
    if (is_over(table, self) && point_is_reached(&self->written)) {
        list_remove(&self->listed);
        if (self->value < VALUE_MAX) {
            list_append(&table->free, &self->listed);
        }
    }
}

static void make_some_free(loan_table *table, size_t most) {
    const size_t count = table->busy.count < most ? table->busy.count : most;
    for (size_t i = 0; i < count; i++) {
        make_free_if_over(table, LIST_ITEM(list_turn(&table->busy), loan, listed));
    }
}

static loan *take_free(loan_table *table) {
    if (table->free.count == 0 && table->used < LOAN_SLOTS) {
        return &table->loans[table->used++];
    }
    if (table->free.count == 0) {
        make_some_free(table, table->busy.count);
    }
    return LIST_ITEM(list_take(&table->free), loan, listed);
}

static gpuipc_status next_secret(loan_table *table, uint16_t *out_secret) {
    if (table->secrets_left == 0) {
        gpuipc_status status = os_random(table->secrets, sizeof(table->secrets));
        if (status != GPUIPC_OK) {
            return status;
        }
        table->secrets_left = sizeof(table->secrets) / sizeof(table->secrets[0]);
    }
    *out_secret = table->secrets[--table->secrets_left];
    return GPUIPC_OK;
}

/* One that nobody can name yet. */
static gpuipc_status take(context *ctx, loan **out_loan, mark *out_mark) {
    loan_table *table = ctx->loans;
    uint16_t secret = 0;
    gpuipc_status status = next_secret(table, &secret);
    if (status != GPUIPC_OK) {
        return status;
    }
    look(table);
    make_some_free(table, LOOKS);
    loan *one = take_free(table);
    if (one == NULL) {
        return status_fail(GPUIPC_ERR_LIMIT,
                           "%u loans are not over; let them be returned, or cancel some",
                           LOAN_SLOTS);
    }
    one->value++;
    one->secret = secret;
    one->is_out = true;
    *out_loan = one;
    *out_mark = (mark){.slot = MARK_SLOTS + number_of(table, one),
                       .exporter = mark_exporter(ctx),
                       .value = one->value,
                       .secret = secret};
    return GPUIPC_OK;
}

/* The mutex is held. */
static void begin_loan(loan_table *table, linked_list *of, loan *one, point_word written) {
    one->written = written;
    list_append(&table->busy, &one->listed);
    list_append(of, &one->of);
}

gpuipc_status loan_lend(struct context *ctx, linked_list *of, gpuipc_stream stream,
                        mark *out_mark) {
    os_mutex *mutex = &ctx->points->mutex;
    loan *one = NULL;
    mark made;
    point_word written;
    os_mutex_lock(mutex);
    gpuipc_status status = take(ctx, &one, &made);
    os_mutex_unlock(mutex);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = mark_write_loan(ctx, &made, stream, &written);
    os_mutex_lock(mutex);
    begin_loan(ctx->loans, of, one, written);
    if (status == GPUIPC_OK) {
        *out_mark = made;
    } else {
        (void)try_end(ctx->loans, one);
    }
    os_mutex_unlock(mutex);
    return status;
}

gpuipc_status loan_lend_ready(struct context *ctx, linked_list *of, mark *out_mark) {
    loan *one = NULL;
    os_mutex_lock(&ctx->points->mutex);
    gpuipc_status status = take(ctx, &one, out_mark);
    if (status == GPUIPC_OK) {
        begin_loan(ctx->loans, of, one, POINT_PASSED);
    }
    os_mutex_unlock(&ctx->points->mutex);
    if (status == GPUIPC_OK) {
        mark_store_loan(ctx, out_mark); /* nobody can name it before */
    }
    return status;
}

void loan_forget(struct context *ctx, linked_list *of, bool forked) {
    if (forked) {
        return; /* the mutex may be held for ever */
    }
    os_mutex_lock(&ctx->points->mutex); /* also for none: the last may just be leaving the list */
    if (of->count > 0) {
        look(ctx->loans);
    }
    for (list_link *at; (at = list_take(of)) != NULL;) {
        loan *one = LIST_ITEM(at, loan, of);
        if (one->taker == NULL) {
            (void)try_end(ctx->loans, one);
        }
    }
    os_mutex_unlock(&ctx->points->mutex);
}

/* ---- questions: the mutex is held in the first three ------------------------------------------- */

/* @param out_loan NULL: it was given out again since, so that it is over */
static gpuipc_status find(context *ctx, const gpuipc_mark *bytes, loan **out_loan) {
    mark read;
    gpuipc_status status = mark_decode(bytes, &read);
    if (status != GPUIPC_OK) {
        return status;
    }
    loan *one = read.slot < MARK_SLOTS ? NULL : &ctx->loans->loans[read.slot - MARK_SLOTS];
    if (one == NULL || read.exporter != mark_exporter(ctx) || read.value == 0 ||
        read.value > one->value || (read.value == one->value && read.secret != one->secret)) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT,
                           "the mark is no loan that this context has made");
    }
    *out_loan = read.value == one->value ? one : NULL;
    return GPUIPC_OK;
}

static gpuipc_loan_state state_of(loan_table *table, loan *self) {
    if (self == NULL || is_over(table, self)) {
        return GPUIPC_LOAN_OVER;
    }
    return self->taker != NULL ? GPUIPC_LOAN_TAKEN : GPUIPC_LOAN_LENT;
}

static void add_taken(loan_table *table, loan *one, point_words *words) {
    const uint32_t number = number_of(table, one);
    for (list_link *at = table->pages.first; at != NULL; at = at->next) {
        const loan_page *page = LIST_ITEM(at, loan_page, listed);
        if (close_at(page, number, one)) {
            const point_word returned =
                loan_returned_word(page->page, number, one->value, one->secret);
            point_words_add(words, &returned);
        }
    }
}

gpuipc_status loan_look(struct context *ctx, const gpuipc_mark *loans, size_t count,
                        gpuipc_loan_state *out_states) {
    gpuipc_status status = GPUIPC_OK;
    loan *one = NULL;
    bool must = false;
    os_mutex_lock(&ctx->points->mutex);
    for (size_t i = 0; i < count && status == GPUIPC_OK; i++) {
        status = find(ctx, &loans[i], &one);
        must = must || (status == GPUIPC_OK && must_look(one));
    }
    if (status == GPUIPC_OK) {
        look_for(ctx->loans, must);
    }
    for (size_t i = 0; i < count && status == GPUIPC_OK; i++) {
        status = find(ctx, &loans[i], &one);
        out_states[i] = state_of(ctx->loans, one);
    }
    os_mutex_unlock(&ctx->points->mutex);
    return status;
}

gpuipc_status loan_cancel(struct context *ctx, const gpuipc_mark *bytes) {
    loan *one = NULL;
    os_mutex_lock(&ctx->points->mutex);
    gpuipc_status status = find(ctx, bytes, &one);
    if (status == GPUIPC_OK) {
        look_for(ctx->loans, must_look(one));
        const gpuipc_loan_state state = state_of(ctx->loans, one);
        if (state == GPUIPC_LOAN_TAKEN ||
            (state == GPUIPC_LOAN_LENT && !try_end(ctx->loans, one))) {
            status = status_fail(GPUIPC_ERR_BUSY, "the loan was taken, and is not returned yet");
        }
    }
    os_mutex_unlock(&ctx->points->mutex);
    return status;
}

gpuipc_status loan_copy_awaited(struct context *ctx, const gpuipc_mark *bytes,
                                point_words *out_words, gpuipc_loan_state *out_state) {
    loan *one = NULL;
    os_mutex_lock(&ctx->points->mutex);
    gpuipc_status status = find(ctx, bytes, &one);
    if (status == GPUIPC_OK) {
        look_for(ctx->loans, must_look(one));
        *out_state = state_of(ctx->loans, one);
    }
    if (status == GPUIPC_OK && *out_state == GPUIPC_LOAN_TAKEN &&
        (status = point_words_new(ctx->loans->pages.count, out_words)) == GPUIPC_OK) {
        add_taken(ctx->loans, one, out_words);
    }
    os_mutex_unlock(&ctx->points->mutex);
    return status;
}
