/* SPDX-License-Identifier: MIT */
/** @file See loan.h. */
#include "sync/loan.h"

#include <stdlib.h>

#include "cuda/context.h"

/* What a page has behind the words of marks: how often a loan was taken there, times 2^16, and which was the last; and a
 * word for each. */
#define TAKES_WORD (MARK_WORDS_END)
#define FIRST_WORD (MARK_WORDS_END + 1u)
/* How many that are out are looked at with each new one: more than one, so that those that are over never become more
 * than a fraction of those that are not. */
#define LOOKS 4
/* How often it is asked whether those live who have taken something, and of how many at once. */
#define ASK_NS UINT64_C(10000000)
#define ASKS   64u
/* The last value of a loan's number, so that its words only go up. */
#define VALUE_MAX 0x7FFFFFFFu

_Static_assert(FIRST_WORD + LOAN_SLOTS <= POINT_PAGE_BYTES / 8, "the words lie in the page");

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

/* What the word of a loan is: the number, above what tells whether it was taken with the secret, returned, or closed. */
static uint64_t taken_value(uint32_t value, uint16_t secret) {
    return (uint64_t)value << 32 | (uint64_t)secret << 8 | 1u;
}

static uint64_t returned_value(uint32_t value, uint16_t secret) {
    return taken_value(value, secret) + 1;
}

/* Says nothing of the secret. */
static uint64_t closed_value(uint32_t value) {
    return (uint64_t)value << 32 | 0xFFFFFFFFu;
}

static atomic_uint_least64_t *word_at(const point_page *page, uint32_t number) {
    return &page->words[FIRST_WORD + number];
}

static uint64_t word_value(const point_page *page, uint32_t number) {
    return atomic_load_explicit(word_at(page, number), memory_order_acquire);
}

static uint32_t number_of(const mark *self) {
    return self->slot - MARK_SLOTS;
}

/* ---- what becomes of one: the mutex is held ---------------------------------------------------- */

/* Who has not taken it over this page cannot any more. @return whether somebody has it there */
static bool close_at(const loan_page *at, uint32_t number, const loan *one) {
    atomic_uint_least64_t *word = word_at(at->page, number);
    uint64_t now = atomic_load_explicit(word, memory_order_acquire);
    do {
        if (now >> 32 == one->value) {
            return now == taken_value(one->value, one->secret) &&
                   (!at->has_guessed || one->taker == at);
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
    const uint32_t number = (uint32_t)(self - table->loans);
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
    const uint32_t number = (uint32_t)(self - table->loans);
    if (!self->is_out || self->taker == NULL) {
        return !self->is_out;
    }
    return word_value(self->taker->page, number) != taken_value(self->value, self->secret) &&
           try_end(table, self);
}

/* ---- what is to be seen in the pages: the mutex is held ---------------------------------------- */

static void look_at_word(loan_page *self, loan *one, uint64_t now) {
    if (now >> 32 != one->value || now == closed_value(one->value)) {
        return;
    }
    if (now == taken_value(one->value, one->secret) ||
        now == returned_value(one->value, one->secret)) {
        set_taker(one, self);
    } else {
        self->has_guessed = true;
    }
}

/* What was taken there since the last look: if it was one, it says which. */
static void look_at_page(loan_table *table, loan_page *self) {
    const uint64_t takes =
        atomic_load_explicit(&self->page->words[TAKES_WORD], memory_order_acquire);
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

/* A page that comes later is as if it had been there before. */
static void fill_page(const loan_table *table, point_page *page) {
    for (uint32_t i = 0; i < table->used; i++) {
        const loan *one = &table->loans[i];
        atomic_store_explicit(word_at(page, i),
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
static void free_if_over(loan_table *table, loan *self) {
    if (is_over(table, self) && point_is_reached(&self->written)) {
        list_remove(&self->listed);
        if (self->value < VALUE_MAX) {
            list_append(&table->free, &self->listed);
        }
    }
}

static void free_some(loan_table *table, size_t most) {
    const size_t count = table->busy.count < most ? table->busy.count : most;
    for (size_t i = 0; i < count; i++) {
        free_if_over(table, LIST_ITEM(list_turn(&table->busy), loan, listed));
    }
}

static loan *take_free(loan_table *table) {
    if (table->free.count == 0 && table->used < LOAN_SLOTS) {
        return &table->loans[table->used++];
    }
    if (table->free.count == 0) {
        free_some(table, table->busy.count);
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
static gpuipc_status take(loan_table *table, loan **out_loan) {
    uint16_t secret = 0;
    gpuipc_status status = next_secret(table, &secret);
    if (status != GPUIPC_OK) {
        return status;
    }
    look(table);
    free_some(table, LOOKS);
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
    return GPUIPC_OK;
}

gpuipc_status loan_lend(struct context *ctx, linked_list *of, gpuipc_stream stream,
                        mark *out_mark) {
    loan_table *table = ctx->loans;
    os_mutex *mutex = &ctx->points->mutex;
    loan *one = NULL;
    point_word written;
    os_mutex_lock(mutex);
    gpuipc_status status = take(table, &one);
    os_mutex_unlock(mutex);
    if (status != GPUIPC_OK) {
        return status;
    }
    const mark made = {.slot = MARK_SLOTS + (uint32_t)(one - table->loans),
                       .exporter = mark_exporter(ctx),
                       .value = one->value,
                       .secret = one->secret};
    status = mark_write_loan(ctx, &made, stream, &written);
    os_mutex_lock(mutex);
    one->written = written;
    list_append(&table->busy, &one->listed);
    list_append(of, &one->of);
    if (status == GPUIPC_OK) {
        *out_mark = made;
    } else {
        (void)try_end(table, one);
    }
    os_mutex_unlock(mutex);
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
    loan *one = read.slot < MARK_SLOTS ? NULL : &ctx->loans->loans[number_of(&read)];
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

static size_t copy_taken(loan_table *table, loan *one, point_word *words) {
    const uint32_t number = (uint32_t)(one - table->loans);
    size_t count = 0;
    for (list_link *at = table->pages.first; at != NULL; at = at->next) {
        const loan_page *page = LIST_ITEM(at, loan_page, listed);
        if (close_at(page, number, one)) {
            words[count++] = (point_word){page->page, FIRST_WORD + number,
                                          returned_value(one->value, one->secret)};
            point_page_reference(page->page);
        }
    }
    return count;
}

gpuipc_status loan_look(struct context *ctx, const gpuipc_mark *loans, size_t count,
                        gpuipc_loan_state *out_states) {
    gpuipc_status status = GPUIPC_OK;
    loan *one = NULL;
    os_mutex_lock(&ctx->points->mutex);
    for (size_t i = 0; i < count && status == GPUIPC_OK; i++) {
        status = find(ctx, &loans[i], &one);
    }
    if (status == GPUIPC_OK) {
        look(ctx->loans);
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
        look(ctx->loans);
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
                                point_word **out_words, size_t *out_count,
                                gpuipc_loan_state *out_state) {
    loan *one = NULL;
    *out_count = 0;
    *out_words = NULL;
    os_mutex_lock(&ctx->points->mutex);
    gpuipc_status status = find(ctx, bytes, &one);
    if (status == GPUIPC_OK) {
        look(ctx->loans);
        *out_state = state_of(ctx->loans, one);
    }
    if (status == GPUIPC_OK && *out_state == GPUIPC_LOAN_TAKEN) {
        const size_t size = ctx->loans->pages.count * sizeof(**out_words);
        if ((*out_words = malloc(size)) != NULL) {
            *out_count = copy_taken(ctx->loans, one, *out_words);
        } else {
            status = status_out_of_memory(size);
        }
    }
    os_mutex_unlock(&ctx->points->mutex);
    return status;
}

/* ---- borrowing ---------------------------------------------------------------------------------- */

/* What this process has of the loans in a page of a lender's. */
typedef struct borrowed {
    list_link listed; /* in import_record::loans, while it is taken and not returned */
    uint32_t value;
    uint16_t secret;
} borrowed;

static point_word returned_word(point_page *page, const mark *self) {
    return (point_word){page, FIRST_WORD + number_of(self),
                        returned_value(self->value, self->secret)};
}

/* The mutex is held. */
static gpuipc_status borrowed_at(point_page *page, uint32_t number, borrowed **out_one) {
    void **all = &page->loans;
    if (*all == NULL && (*all = calloc(LOAN_SLOTS, sizeof(borrowed))) == NULL) {
        return status_out_of_memory(LOAN_SLOTS * sizeof(borrowed));
    }
    *out_one = (borrowed *)*all + number;
    return GPUIPC_OK;
}

static gpuipc_status check_is_loan(const import_record *of, const mark *self) {
    point_word ignored;
    gpuipc_status status = mark_word(of, self, &ignored);
    if (status == GPUIPC_OK && self->slot < MARK_SLOTS) {
        status = status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "the mark is no loan");
    }
    return status;
}

/* The mutex is held, so that nobody else here counts. */
static void count_take(point_page *page, uint32_t number) {
    atomic_uint_least64_t *word = &page->words[TAKES_WORD];
    const uint64_t takes = atomic_load_explicit(word, memory_order_relaxed) >> 16;
    atomic_store_explicit(word, (takes + 1) << 16 | number, memory_order_release);
}

/* The lender may close it at the same time: one of the two is first. */
static bool take_word(point_page *page, const mark *self) {
    const uint64_t taken = taken_value(self->value, self->secret);
    atomic_uint_least64_t *word = word_at(page, number_of(self));
    uint64_t now = atomic_load_explicit(word, memory_order_acquire);
    while (now - taken >= UINT64_C(1) << 63) {
        if (atomic_compare_exchange_weak_explicit(word, &now, taken, memory_order_acq_rel,
                                                  memory_order_acquire)) {
            count_take(page, number_of(self));
            return true;
        }
    }
    return false;
}

gpuipc_status loan_take(import_record *by, const mark *self) {
    borrowed *one = NULL;
    gpuipc_status status = check_is_loan(by, self);
    if (status != GPUIPC_OK) {
        return status;
    }
    os_mutex *mutex = &by->marks->context->points->mutex;
    os_mutex_lock(mutex);
    status = borrowed_at(by->marks, number_of(self), &one);
    if (status == GPUIPC_OK && (one->listed.in != NULL || !take_word(by->marks, self))) {
        status = status_fail(GPUIPC_ERR_RELEASED,
                             one->listed.in != NULL && one->value == self->value
                                 ? "this process has taken the loan already"
                                 : "the loan is over: it was returned, or its lender took it back");
    } else if (status == GPUIPC_OK) {
        one->value = self->value;
        one->secret = self->secret;
        list_append(&by->loans, &one->listed);
    }
    os_mutex_unlock(mutex);
    return status;
}

/* It is not taken any more, as far as this process is concerned. */
static gpuipc_status take_out(import_record *by, const mark *self, borrowed **out_one) {
    gpuipc_status status = check_is_loan(by, self);
    if (status != GPUIPC_OK) {
        return status;
    }
    os_mutex *mutex = &by->marks->context->points->mutex;
    os_mutex_lock(mutex);
    status = borrowed_at(by->marks, number_of(self), out_one);
    if (status == GPUIPC_OK &&
        (!list_has(&by->loans, &(*out_one)->listed) || (*out_one)->value != self->value)) {
        status = status_fail(GPUIPC_ERR_INVALID_ARGUMENT,
                             "the loan was not taken by this buffer, or has been returned");
    } else if (status == GPUIPC_OK) {
        list_remove(&(*out_one)->listed);
    }
    os_mutex_unlock(mutex);
    return status;
}

gpuipc_status loan_return(import_record *by, const mark *self) {
    borrowed *one;
    gpuipc_status status = take_out(by, self, &one);
    if (status == GPUIPC_OK) {
        const point_word returned = returned_word(by->marks, self);
        point_store(&returned);
    }
    return status;
}

gpuipc_status loan_return_async(import_record *by, const mark *self, gpuipc_stream stream) {
    borrowed *one;
    point_word passage;
    gpuipc_status status = take_out(by, self, &one);
    if (status != GPUIPC_OK) {
        return status;
    }
    const point_word returned = returned_word(by->marks, self);
    status = point_write_async(&returned, 1, stream, &passage);
    if (status != GPUIPC_OK) {
        os_mutex *mutex = &by->marks->context->points->mutex;
        os_mutex_lock(mutex);
        list_append(&by->loans, &one->listed);
        os_mutex_unlock(mutex);
    }
    return status;
}

void loan_return_all(import_record *by) {
    if (by->marks == NULL) {
        return;
    }
    os_mutex *mutex = &by->marks->context->points->mutex;
    const borrowed *all = by->marks->loans;
    os_mutex_lock(mutex);
    for (list_link *at; (at = list_take(&by->loans)) != NULL;) {
        const borrowed *one = LIST_ITEM(at, borrowed, listed);
        const point_word returned = {by->marks, FIRST_WORD + (uint32_t)(one - all),
                                     returned_value(one->value, one->secret)};
        point_store(&returned);
    }
    os_mutex_unlock(mutex);
}
