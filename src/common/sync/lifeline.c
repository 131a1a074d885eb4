/* SPDX-License-Identifier: MIT */
/** @file See lifeline.h. */
#include "sync/lifeline.h"

#include "base/status.h"
#include "sync/point.h"

_Static_assert((LIFELINE_WORD + 1) * sizeof(uint64_t) == POINT_PAGE_BYTES, "it is the last word");

/* What one costs: its handle, and a mapping that is there after the page's own. */
static const quota_amount of_lifeline = {
    {[QUOTA_HANDLES] = 1, [QUOTA_MAPPINGS] = 1, [QUOTA_ADDRESSES] = POINT_PAGE_BYTES}};

static lifeline_side other_side(lifeline_side side) {
    return side == LIFELINE_SENDER ? LIFELINE_RECEIVER : LIFELINE_SENDER;
}

static void state(const lifeline *self, uint64_t what) {
    atomic_fetch_or_explicit(&self->words[LIFELINE_WORD], what << self->side, memory_order_acq_rel);
}

/* After a failure the caller closes the handle, which releases the lock. */
static bool begin(lifeline *made, quota *of) {
    void *words;
    if (!quota_take_spare(of, &of_lifeline, &made->charge)) {
        return false;
    }
    if (os_memory_lock(made->memory, (uint64_t)made->side) != GPUIPC_OK ||
        os_memory_map(made->memory, POINT_PAGE_BYTES, true, &words) != GPUIPC_OK) {
        quota_return(&made->charge);
        return false;
    }
    made->words = words;
    state(made, LIFELINE_HOLDS);
    return true;
}

void lifeline_begin(lifeline *self, os_handle *memory, lifeline_side side, quota *of) {
    const gpuipc_error why = status_save();
    lifeline made = {.memory = *memory, .side = side};
    if (self->words == NULL && begin(&made, of)) {
        *self = made;
        *memory = OS_HANDLE_NONE;
    }
    os_handle_close(memory);
    status_restore(&why);
}

void lifeline_end(lifeline *self, bool forked) {
    if (self->words == NULL) {
        return;
    }
    if (!forked) { /* in a child the handle is closed already, and the lock is the parent's */
        state(self, LIFELINE_LEFT);
        os_handle_close(&self->memory);
    }
    os_memory_unmap(self->words, POINT_PAGE_BYTES);
    quota_return(&self->charge);
    *self = (lifeline){0};
}

/* The lock is looked at before the word: a side that gives it up says so before. */
bool lifeline_has_ended(const lifeline *self) {
    if (self->words == NULL) {
        return false;
    }
    const lifeline_side other = other_side(self->side);
    const atomic_uint_least64_t *word = &self->words[LIFELINE_WORD];
    const uint64_t holds = (uint64_t)LIFELINE_HOLDS << other;
    const uint64_t left = (uint64_t)LIFELINE_LEFT << other;
    return (atomic_load_explicit(word, memory_order_acquire) & holds) != 0 &&
           os_memory_is_locked(self->memory, (uint64_t)other) == 0 &&
           (atomic_load_explicit(word, memory_order_acquire) & left) == 0;
}
