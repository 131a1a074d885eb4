/* SPDX-License-Identifier: MIT */
/** @file See lifeline.h. */
#include "sync/lifeline.h"

#include "base/status.h"
#include "sync/point.h"

_Static_assert((LIFELINE_WORD + 1) * sizeof(uint64_t) == POINT_PAGE_BYTES, "it is the last word");

/* What one costs: its handle, and a mapping that is there after the page's own. */
static const quota_amount of_lifeline = {
    {[QUOTA_HANDLES] = 1, [QUOTA_MAPPINGS] = 1, [QUOTA_ADDRESSES] = POINT_PAGE_BYTES}};

/* A call walks all locks of the memory, of which a peer may take any number: 0.4 us with two of them, 2.5 ms with 20,000. A
 * thread that was not running meanwhile makes a call slow as well, so one in a hundred is forgiven. */
#define SLOW_NS     UINT64_C(1000000)
#define SLOW_COUNTS 100u
#define SLOW_MOST   (2u * SLOW_COUNTS)

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
    if (self->words == NULL && !self->is_given_up && begin(&made, of)) {
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

static bool is_unlocked(lifeline *self, lifeline_side side) {
    const uint64_t begun_ns = os_clock_ns();
    const bool is = os_memory_is_locked(self->memory, (uint64_t)side) == 0;
    if (os_clock_ns() - begun_ns > SLOW_NS) {
        self->slowness += SLOW_COUNTS;
    } else if (self->slowness > 0) {
        self->slowness--;
    }
    return is;
}

/* The lock is looked at before the word: a side that gives it up says so before. */
bool lifeline_has_ended(lifeline *self) {
    const lifeline_side other = other_side(self->side);
    const uint64_t holds = (uint64_t)LIFELINE_HOLDS << other;
    const uint64_t left = (uint64_t)LIFELINE_LEFT << other;
    if (self->words == NULL ||
        (atomic_load_explicit(&self->words[LIFELINE_WORD], memory_order_acquire) & holds) == 0) {
        return false;
    }
    const bool has_ended =
        is_unlocked(self, other) &&
        (atomic_load_explicit(&self->words[LIFELINE_WORD], memory_order_acquire) & left) == 0;
    if (self->slowness > SLOW_MOST) {
        lifeline_end(self, false);
        self->is_given_up = true;
    }
    return has_ended;
}
