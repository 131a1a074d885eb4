/* SPDX-License-Identifier: MIT */
/** @file See loan_taken.h. */
#include "sync/loan_taken.h"

#include <stdlib.h>

#include "cuda/context.h"
#include "sync/drop.h"
#include "sync/loan_word.h"

/* What this process has of the loans in a page of a lender's. */
typedef struct loan_taken {
    list_link listed; /* in import_record::loans, while it is taken and not returned */
    uint32_t value;
    uint16_t secret;
    dropped dropped;  /* while it is returned behind work */
    object *of;       /* likewise: a reference on the buffer; else NULL */
    point_page *page; /* likewise: the reference keeps it */
} loan_taken;

static uint32_t number_of(const mark *self) {
    return self->slot - MARK_SLOTS;
}

static point_word returned_word(import_record *by, const mark *self) {
    return loan_returned_word(by->marks, number_of(self), self->value, self->secret);
}

/* The mutex is held. */
static gpuipc_status find(point_page *page, uint32_t number, loan_taken **out_one) {
    void **all = &page->loans;
    if (*all == NULL && (*all = calloc(LOAN_SLOTS, sizeof(loan_taken))) == NULL) {
        return status_out_of_memory(LOAN_SLOTS * sizeof(loan_taken));
    }
    *out_one = (loan_taken *)*all + number;
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
    atomic_uint_least64_t *word = &page->words[LOAN_TAKES_WORD];
    const uint64_t takes = atomic_load_explicit(word, memory_order_relaxed) >> 16;
    atomic_store_explicit(word, (takes + 1) << 16 | number, memory_order_release);
}

/* The lender may close it at the same time: one of the two is first. */
static bool take_word(point_page *page, const mark *self) {
    const uint64_t taken = loan_taken_value(self->value, self->secret);
    atomic_uint_least64_t *word = loan_word(page, number_of(self));
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
    loan_taken *one = NULL;
    gpuipc_status status = check_is_loan(by, self);
    if (status != GPUIPC_OK) {
        return status;
    }
    os_mutex *mutex = &by->marks->context->points->mutex;
    os_mutex_lock(mutex);
    status = find(by->marks, number_of(self), &one);
    /* What is owed is given out anew by no lender that keeps to the rules. */
    const bool is_owed = status == GPUIPC_OK && (one->listed.in != NULL || one->of != NULL);
    if (status == GPUIPC_OK && (is_owed || !take_word(by->marks, self))) {
        status = status_fail(GPUIPC_ERR_RELEASED,
                             is_owed && one->value == self->value
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

/* It is not taken any more, as far as this process is concerned. @param keeps for whoever owes it until later: whose buffer it
 * is */
static gpuipc_status take_out(import_record *by, const mark *self, object *keeps,
                              loan_taken **out_one) {
    gpuipc_status status = check_is_loan(by, self);
    if (status != GPUIPC_OK) {
        return status;
    }
    os_mutex *mutex = &by->marks->context->points->mutex;
    os_mutex_lock(mutex);
    status = find(by->marks, number_of(self), out_one);
    if (status == GPUIPC_OK &&
        (!list_has(&by->loans, &(*out_one)->listed) || (*out_one)->value != self->value)) {
        status = status_fail(GPUIPC_ERR_INVALID_ARGUMENT,
                             "the loan was not taken by this buffer, or has been returned");
    } else if (status == GPUIPC_OK) {
        list_remove(&(*out_one)->listed);
        (*out_one)->of = keeps;
        (*out_one)->page = by->marks;
    }
    os_mutex_unlock(mutex);
    return status;
}

gpuipc_status loan_return(import_record *by, const mark *self) {
    loan_taken *one;
    gpuipc_status status = take_out(by, self, NULL, &one);
    if (status == GPUIPC_OK) {
        const point_word returned = returned_word(by, self);
        point_store(&returned);
    }
    return status;
}

gpuipc_status loan_return_async(import_record *by, const mark *self, gpuipc_stream stream) {
    loan_taken *one;
    point_word passage;
    gpuipc_status status = take_out(by, self, NULL, &one);
    if (status != GPUIPC_OK) {
        return status;
    }
    const point_word returned = returned_word(by, self);
    status = point_write_async(&returned, 1, stream, &passage);
    if (status != GPUIPC_OK) {
        os_mutex *mutex = &by->marks->context->points->mutex;
        os_mutex_lock(mutex);
        list_append(&by->loans, &one->listed);
        os_mutex_unlock(mutex);
    }
    return status;
}

static void give_up(void *what) {
    loan_taken *self = what;
    object *of = self->of;
    const uint32_t number = (uint32_t)(self - (const loan_taken *)self->page->loans);
    const point_word returned = loan_returned_word(self->page, number, self->value, self->secret);
    os_mutex *mutex = &self->page->context->points->mutex;
    os_mutex_lock(mutex);
    self->of = NULL; /* the lender may lend it anew as soon as it sees the word */
    point_store(&returned);
    os_mutex_unlock(mutex);
    object_unreference(of);
}

gpuipc_status loan_drop(import_record *by, const mark *self, object *of, uint32_t behind) {
    loan_taken *one;
    object_reference(of);
    gpuipc_status status = take_out(by, self, of, &one);
    if (status == GPUIPC_OK) {
        drop_add(by->marks->context, &one->dropped, one, give_up, behind);
    } else {
        object_unreference(of); /* the caller has one */
    }
    return status;
}

void loan_return_all(import_record *by) {
    if (by->marks == NULL) {
        return;
    }
    os_mutex *mutex = &by->marks->context->points->mutex;
    const loan_taken *all = by->marks->loans;
    os_mutex_lock(mutex);
    for (list_link *at; (at = list_take(&by->loans)) != NULL;) {
        const loan_taken *one = LIST_ITEM(at, loan_taken, listed);
        const point_word returned =
            loan_returned_word(by->marks, (uint32_t)(one - all), one->value, one->secret);
        point_store(&returned);
    }
    os_mutex_unlock(mutex);
}
