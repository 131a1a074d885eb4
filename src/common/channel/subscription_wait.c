/* SPDX-License-Identifier: MIT */
/**
 * @file See subscription.h: the wait handle. What wakes a reader is a word of the page, which no event loop can wait for.
 * So a thread of the subscription sleeps there in its place, and makes the handle ready. Every call that takes leaves the
 * handle as it should be: so the thread never looks at what those calls guard, and rests while one waits by itself.
 */
#include "channel/subscription.h"

/* Who sleeps looks so often whether the writer lives. */
#define SLICE_MS 50u

/* ---- the thread -------------------------------------------------------------------------------- */

/* The mutex is held in this and the next two. */
static void tell(subscription_wait *wait, bool is_ready) {
    if (wait->is_told != is_ready) {
        wait->is_told = is_ready;
        wait_handle_tell(&wait->handle, is_ready);
    }
}

static void tell_and_rest(subscription_wait *wait) {
    tell(wait, true);
    wait->awaits = AWAITS_NOTHING;
}

static void set_out(subscription_wait *wait, subscription_awaits what) {
    tell(wait, false);
    wait->awaits = what;
    wait->begun_ns = os_clock_ns();
    os_condition_signal_all(&wait->changed);
}

/* Without the mutex. Where a call has begun to wait meanwhile, what has come was for it: on Windows a bell wakes one. */
static bool has_news(subscription *self) {
    point_page *page = self->page;
    os_bell_wait(&self->reader_bell, &page->words[CHANNEL_READER_SLEEPS], SLICE_MS);
    return channel_read(page, CHANNEL_READER_SLEEPS) != 1 ||
           channel_read(page, CHANNEL_END) != CHANNEL_IS_ON || point_page_is_abandoned(page);
}

static bool has_contents(const subscription *self, const point_word *contents, uint64_t begun_ns) {
    os_pause(begun_ns, OS_PAUSE_MS, os_deadline_after(-1));
    const bool is_early = os_clock_ns() - begun_ns <= OS_LOOK_NS; /* no system is asked yet */
    return point_is_reached(contents) || (!is_early && point_page_is_abandoned(self->page));
}

/* The mutex is held, and given up meanwhile. */
static void look_out(subscription *self) {
    subscription_wait *wait = &self->waited;
    const subscription_awaits what = wait->awaits;
    const point_word contents = wait->contents;
    const uint64_t begun_ns = wait->begun_ns;
    os_mutex_unlock(&wait->mutex);
    const bool has_come =
        what == AWAITS_NEWS ? has_news(self) : has_contents(self, &contents, begun_ns);
    os_mutex_lock(&wait->mutex);
    if (has_come && wait->awaits == what) {
        tell_and_rest(wait);
    } else if (has_come && what == AWAITS_NEWS && wait->awaits == AWAITS_NOTHING) {
        os_bell_ring(&self->reader_bell, &self->page->words[CHANNEL_READER_SLEEPS]);
    }
}

static void attend(void *argument) {
    subscription *self = argument;
    subscription_wait *wait = &self->waited;
    os_mutex_lock(&wait->mutex);
    while (wait->awaits != AWAITS_NO_MORE) {
        if (wait->awaits == AWAITS_NEWS || wait->awaits == AWAITS_CONTENTS) {
            look_out(self);
        } else {
            (void)os_condition_wait(&wait->changed, &wait->mutex, os_deadline_after(-1));
        }
    }
    os_mutex_unlock(&wait->mutex);
}

/* ---- what calls leave -------------------------------------------------------------------------- */

void subscription_wait_pause(subscription *self) {
    subscription_wait *wait = &self->waited;
    if (!atomic_load(&wait->is_asked_for)) {
        return;
    }
    os_mutex_lock(&wait->mutex);
    wait->awaits = AWAITS_NOTHING;
    os_mutex_unlock(&wait->mutex);
}

static bool is_at_end(const subscription *self) {
    return self->is_writer_gone || channel_read(self->page, CHANNEL_END) != CHANNEL_IS_ON;
}

/* The taking mutex is held as well. */
static void settle_news(subscription *self) {
    uint64_t number;
    uint32_t slot;
    if (!subscription_find(self, &number, &slot) && !is_at_end(self)) {
        set_out(&self->waited, AWAITS_NEWS); /* not ready any more, before what makes it so again */
        channel_will_sleep(self->page, CHANNEL_READER_SLEEPS);
    }
    if (subscription_find(self, &number, &slot) || is_at_end(self)) {
        tell_and_rest(&self->waited);
    }
}

/* A channel that has ended leaves what was taken, and its contents still come, or are said to be lost. A process that has ended
 * makes none. */
static void settle_contents(subscription *self) {
    const uint64_t number = self->frames[self->pending].number;
    const point_word awaited = channel_awaited_word(self->page, self->pending, number);
    if (point_is_reached(&awaited) || self->is_writer_gone) { /* or lost */
        tell_and_rest(&self->waited);
        return;
    }
    self->waited.contents = awaited;
    set_out(&self->waited, AWAITS_CONTENTS);
}

void subscription_wait_settle(subscription *self) {
    subscription_wait *wait = &self->waited;
    if (!atomic_load(&wait->is_asked_for)) {
        return;
    }
    os_mutex_lock(&wait->mutex);
    if (atomic_load(&self->is_over)) {
        tell_and_rest(wait);
    } else if (subscription_count_held(self) >= self->max_held) {
        set_out(wait, AWAITS_ROOM);
    } else if (self->has_pending) {
        settle_contents(self);
    } else {
        settle_news(self);
    }
    os_mutex_unlock(&wait->mutex);
}

/* It may be for nothing: who takes finds out, and only he may look for frames. */
void subscription_wait_given(subscription *self) {
    subscription_wait *wait = &self->waited;
    if (!atomic_load(&wait->is_asked_for)) {
        return;
    }
    os_mutex_lock(&wait->mutex);
    if (wait->awaits == AWAITS_ROOM) {
        tell_and_rest(wait);
    }
    os_mutex_unlock(&wait->mutex);
}

void subscription_wait_end(subscription *self, bool forked) {
    subscription_wait *wait = &self->waited;
    if (!atomic_load(&wait->is_asked_for)) {
        return;
    }
    if (!forked) {
        os_mutex_lock(&wait->mutex);
        wait->awaits = AWAITS_NO_MORE;
        os_condition_signal_all(&wait->changed);
        os_mutex_unlock(&wait->mutex);
        channel_write(self->page, CHANNEL_READER_SLEEPS, 0);
        os_bell_ring(&self->reader_bell, &self->page->words[CHANNEL_READER_SLEEPS]);
        os_thread_join(wait->thread);
        os_condition_destroy(&wait->changed);
    } else {
        os_thread_forget(wait->thread);
    }
    wait_handle_destroy(&wait->handle);
}

/* ---- asking for it ----------------------------------------------------------------------------- */

/* The taking mutex is held. */
static gpuipc_status begin(subscription *self) {
    subscription_wait *wait = &self->waited;
    intptr_t native;
    gpuipc_status status = os_condition_init(&wait->changed);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = wait_handle_get(&wait->handle, NULL, NULL, &native);
    if (status != GPUIPC_OK) {
        goto destroy_condition;
    }
    status = os_thread_start(attend, self, &wait->thread);
    if (status != GPUIPC_OK) {
        goto destroy_handle;
    }
    atomic_store(&wait->is_asked_for, true);
    return GPUIPC_OK;

destroy_handle:
    wait_handle_destroy(&wait->handle);
destroy_condition:
    os_condition_destroy(&wait->changed);
    return status;
}

static gpuipc_status get(subscription *self, intptr_t *out_handle) {
    subscription_wait *wait = &self->waited;
    gpuipc_status status = GPUIPC_OK;
    if (atomic_load(&self->is_over)) {
        return status_fail(GPUIPC_ERR_RELEASED, "the subscription was closed meanwhile");
    }
    if (self->has_turns) {
        return status_fail(GPUIPC_ERR_NOT_SUPPORTED,
                           "the channel is one of turns, which streams take: nothing tells the "
                           "host of one");
    }
    if (!atomic_load(&wait->is_asked_for)) {
        status = begin(self);
    }
    if (status == GPUIPC_OK) {
        os_mutex_lock(&wait->mutex);
        status = wait_handle_get(&wait->handle, NULL, NULL, out_handle);
        wait->is_told = false; /* getting it takes back what was told */
        os_mutex_unlock(&wait->mutex);
        subscription_wait_settle(self);
    }
    return status;
}

gpuipc_status gpuipc_subscription_get_wait_handle(gpuipc_subscription *handle,
                                                  intptr_t *out_handle) {
    status_enter(__func__);
    subscription *self;
    if (out_handle == NULL) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "out_handle is NULL");
    }
    gpuipc_status status = subscription_acquire(handle, &self);
    if (status != GPUIPC_OK) {
        return status;
    }
    if (os_mutex_try_lock(&self->taking)) {
        status = get(self, out_handle);
        os_mutex_unlock(&self->taking);
    } else {
        status = status_fail(GPUIPC_ERR_BUSY, "another thread is taking from it");
    }
    object_unreference(&self->object);
    return status;
}
