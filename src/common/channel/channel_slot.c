/* SPDX-License-Identifier: MIT */
/** @file See channel.h: which slot is loaned next, and who is in the way. */
#include <inttypes.h>

#include "channel/channel.h"
#include "sync/trail.h"

/* Readers are looked at so often while a loan waits. */
#define LOOK_NS UINT64_C(10000000)
/* Who sleeps for one reader looks at the others so often. */
#define SLICE_MS 10u
/* Where the host waits for a reader's stream, which wakes nobody. */
#define STREAM_SLICE_MS 1u

#define NO_SLOT UINT32_MAX

/* Whether there is a bit from that one on. */
static bool has_more(uint32_t bits, uint32_t from) {
    return from < GPUIPC_CHANNEL_READERS_MAX && bits >> from != 0;
}

/* ---- looking for a slot ------------------------------------------------------------------------ */

/* How a reader that is among a slot's holders has it. What the reader wrote is compared, and nothing else. */
typedef enum having {
    HAS_NOT,
    HAS_DECLINED,
    HAS_BEEN_OFFERED, /* and it may be withdrawn */
    HAS_GIVEN,
    HAS
} having;

/* What was returned is known by one word, and the others are not looked at. Who takes all says in time that it has something:
 * of one that has left, before that. */
static having look_at_holder(const channel_reader *reader, uint32_t at, uint64_t number) {
    const point_word returned = channel_returned_word(reader->page, at, number);
    if (point_is_reached(&returned)) {
        return HAS_NOT;
    }
    const bool takes_all =
        reader->delivery == GPUIPC_DELIVERY_ALL && channel_read(reader->page, CHANNEL_LEFT) == 0;
    const uint64_t said = channel_said(reader->page, at);
    if (said >> 2 != number) {
        return takes_all ? HAS : HAS_BEEN_OFFERED;
    }
    if (said == channel_having_of(number, CHANNEL_DECLINED)) {
        return HAS_DECLINED;
    }
    return said == channel_having_of(number, CHANNEL_GIVEN) ? HAS_GIVEN : HAS;
}

/* The readers that have an offer which nobody has taken lose it. @return those that take it right now */
GPUIPC_COLD static uint32_t withdraw(channel *self, uint32_t at, uint32_t offered) {
    channel_slot *slot = &self->slots[at];
    uint32_t taken = 0;
    for (uint32_t i = 0; has_more(offered, i); i++) {
        const uint32_t bit = UINT32_C(1) << i;
        channel_reader *reader = &self->readers[i];
        if ((offered & bit) == 0) {
            continue;
        }
        if (channel_withdraw(reader->page, at, slot->number)) {
            slot->holders &= ~bit;
            reader->passed_over += reader->delivery == GPUIPC_DELIVERY_NEWEST;
        } else {
            taken |= bit;
        }
    }
    return taken;
}

/* Whether the stream of the latest publication has come to it, or it need not: what the same stream is given next comes
 * behind it. But not where nobody has seen that frame: who publishes for the newest would be ahead of it without end. */
static bool is_written(channel *self, uint32_t at, trail_stream *by) {
    const channel_slot *slot = &self->slots[at];
    return !slot->is_in_kernel &&
           ((slot->was_returned && trail_is_of(self->trail, TRAIL_WRITE, at, by)) ||
            trail_has_passed(self->trail, TRAIL_WRITE, at));
}

/* What is known of a slot. */
typedef struct slot_state {
    bool is_free;
    uint32_t waits;
    uint32_t in_the_way;
} slot_state;

/* The words of all of them come at the same time. */
static void prefetch_holders(const channel *self, uint32_t at, bool can_wait) {
    const uint32_t holders = self->slots[at].holders;
    for (uint32_t i = 0; has_more(holders, i); i++) {
        if ((holders >> i & 1u) != 0) {
            channel_prefetch_returned(self->readers[i].page, at, can_wait);
        }
    }
}

/* @param out what is in the way of a loan, and what the stream would wait for
 * @return who would lose an offer */
static uint32_t look_at_holders(channel *self, uint32_t at, bool can_wait, slot_state *out) {
    channel_slot *slot = &self->slots[at];
    uint32_t offered = 0;
    for (uint32_t i = 0; has_more(slot->holders, i); i++) {
        const uint32_t bit = UINT32_C(1) << i;
        if ((slot->holders & bit) == 0) {
            continue;
        }
        switch (look_at_holder(&self->readers[i], at, slot->number)) {
        case HAS_NOT:
            slot->holders &= ~bit;
            slot->was_returned = true;
            break;
        case HAS_DECLINED:
            slot->holders &= ~bit;
            self->readers[i].passed_over++;
            break;
        case HAS_BEEN_OFFERED:
            offered |= bit;
            break;
        case HAS_GIVEN:
            out->waits |= bit;
            slot->was_returned = true;
            out->in_the_way |= can_wait ? 0 : bit;
            break;
        case HAS:
            out->in_the_way |= bit;
            break;
        }
    }
    return offered;
}

static slot_state look_at_slot(channel *self, uint32_t at, trail_stream *by) {
    slot_state state = {.is_free = false};
    const uint32_t offered = look_at_holders(self, at, by->can_wait, &state);
    if (state.in_the_way == 0 && is_written(self, at, by)) {
        state.in_the_way = offered == 0 ? 0 : withdraw(self, at, offered);
        state.is_free = state.in_the_way == 0;
    }
    return state;
}

static channel_slot *slot_of(const list_link *link) {
    return LIST_ITEM(link, channel_slot, by_age);
}

void channel_prefetch_oldest(const channel *self, bool can_wait) {
    /* Of one that has ended there are no pages. */
    const list_link *link = self->has_ended ? NULL : self->by_age.first;
    while (link != NULL && slot_of(link)->is_on_loan) {
        link = link->next;
    }
    if (link != NULL) {
        prefetch_holders(self, (uint32_t)(slot_of(link) - self->slots), can_wait);
    }
}

/* The oldest first. */
static void look_for_slot(channel *self, slot_search *what) {
    what->slot = NO_SLOT;
    what->wanted = NO_SLOT;
    what->in_the_way = 0;
    what->is_behind = trail_is_far_behind(self->trail);
    for (const list_link *link = self->by_age.first; link != NULL; link = link->next) {
        const channel_slot *slot = slot_of(link);
        const uint32_t at = (uint32_t)(slot - self->slots);
        if (slot->is_on_loan) {
            continue;
        }
        if (what->is_behind) {
            what->wanted = at;
            return;
        }
        if (what->wanted != NO_SLOT) { /* those of the first are on their way */
            prefetch_holders(self, at, what->by->can_wait);
        }
        const slot_state state = look_at_slot(self, at, what->by);
        if (state.is_free) {
            what->slot = at;
            what->waits = state.waits;
            return;
        }
        if (what->wanted == NO_SLOT) {
            what->wanted = at;
            what->in_the_way = state.in_the_way;
        }
    }
}

/* ---- no slot ----------------------------------------------------------------------------------- */

/* NULL: it is none that is in the way. */
static channel_reader *first_in_the_way(channel *self, const slot_search *what) {
    for (uint32_t i = 0; has_more(what->in_the_way, i); i++) {
        if ((what->in_the_way >> i & 1u) != 0) {
            return &self->readers[i];
        }
    }
    return NULL;
}

GPUIPC_COLD static gpuipc_status no_slot(channel *self, gpuipc_status status,
                                         const slot_search *what) {
    const channel_reader *reader = first_in_the_way(self, what);
    if (what->is_behind) {
        return status_fail(status, "the writer's streams are more than %u frames behind the host",
                           TRAIL_PERIOD);
    }
    return reader == NULL
               ? status_fail(status,
                             "a stream has not come to the end of what was published in any "
                             "slot that no reader has")
               : status_fail(status, "readers have all slots; process %" PRIu64 " has the oldest",
                             reader->process_id);
}

GPUIPC_COLD static void drop_slow(channel *self, const slot_search *what) {
    for (uint32_t i = 0; has_more(what->in_the_way, i); i++) {
        channel_reader *reader = &self->readers[i];
        if ((what->in_the_way >> i & 1u) != 0) {
            context_log_peer(self->context,
                             "channel: dropped the reader of process %" PRIu64
                             ", which was too slow",
                             reader->process_id);
            channel_reader_end(self, reader, GPUIPC_READER_DROPPED);
        }
    }
}

static uint32_t count_bits(uint64_t of) {
    uint32_t count = 0;
    for (; of != 0; of &= of - 1) {
        count++;
    }
    return count;
}

/* One look takes a frame that the reader gave back, and the next one that it took for that, for two. A frame that it has at
 * both looks it has had between them. */
static bool has_too_many(const channel *self, const channel_reader *reader) {
    const uint64_t held = channel_list_held(self, reader);
    return count_bits(held) > reader->max_held &&
           count_bits(held & channel_list_held(self, reader)) > reader->max_held;
}

/* A reader that takes more frames than it asked for does not keep to the rules. */
GPUIPC_COLD static void drop_greedy(channel *self) {
    for (uint32_t i = 0; i < self->places; i++) {
        channel_reader *reader = &self->readers[i];
        if (reader->page != NULL && has_too_many(self, reader)) {
            context_log_peer(self->context,
                             "channel: dropped the reader of process %" PRIu64
                             ", which has taken more than it may",
                             reader->process_id);
            channel_reader_end(self, reader, GPUIPC_READER_DROPPED);
        }
    }
}

static unsigned slice_ms(const slot_search *what, os_deadline deadline) {
    const int left = os_deadline_slice_ms(deadline);
    const unsigned most = what->by->can_wait ? SLICE_MS : STREAM_SLICE_MS;
    return left < 0 || (unsigned)left > most ? most : (unsigned)left;
}

/* Until the holder rings, or it is time to look again. The mutex is held, and given up meanwhile. The page stays, whatever
 * becomes of the reader. */
GPUIPC_COLD static void sleep_for(channel *self, slot_search *what, os_deadline deadline) {
    channel_reader *awaited = first_in_the_way(self, what);
    const unsigned milliseconds = slice_ms(what, deadline);
    point_page *page = awaited->page;
    os_bell bell = OS_BELL_NONE;
    channel_will_sleep(page, CHANNEL_WRITER_SLEEPS);
    look_for_slot(self, what);
    if (what->slot != NO_SLOT || first_in_the_way(self, what) != awaited ||
        os_bell_copy(&awaited->writer_bell, &bell) != GPUIPC_OK) {
        return;
    }
    point_page_reference(page);
    os_mutex_unlock(&self->mutex);
    os_bell_wait(&bell, &page->words[CHANNEL_WRITER_SLEEPS], milliseconds);
    channel_lock(self);
    os_bell_close(&bell);
    point_page_unreference(page, false);
}

/* Whether it is readers that are in the way: what they have is ready. Else it is the writer's own stream. */
static bool is_theirs(channel *self, const slot_search *what) {
    return what->in_the_way != 0 && trail_has_passed(self->trail, TRAIL_WRITE, what->wanted);
}

/* Whether the time is over that slow readers are given. */
static bool is_patience_over(const channel *self, uint64_t now_ns) {
    return self->config.full == GPUIPC_FULL_DROP &&
           now_ns - self->full_since_ns >= self->config.drop_after_ms * UINT64_C(1000000);
}

/* What is there at once needs no clock. */
gpuipc_status channel_await_slot(channel *self, slot_search *what, time_limit *limit) {
    uint64_t begun_ns = 0;
    for (;;) {
        if (self->has_ended) {
            return status_fail(GPUIPC_ERR_RELEASED, "the channel was destroyed meanwhile");
        }
        look_for_slot(self, what);
        if (what->slot != NO_SLOT) {
            self->full_since_ns = 0;
            return GPUIPC_OK;
        }
        if (what->wanted == NO_SLOT) {
            return status_fail(GPUIPC_ERR_LIMIT, "all slots are on loan");
        }
        trail_stream_rest(what->by);
        const uint64_t now_ns = os_clock_ns();
        begun_ns = begun_ns == 0 ? now_ns : begun_ns;
        const bool are_slow = is_theirs(self, what);
        if (self->full_since_ns == 0 || !are_slow) {
            self->full_since_ns = now_ns;
        }
        if (are_slow && is_patience_over(self, now_ns)) {
            drop_slow(self, what);
        } else if (now_ns - self->looked_ns > LOOK_NS) {
            drop_greedy(self);
            (void)channel_look_at_readers(self);
        } else if (are_slow && self->config.full == GPUIPC_FULL_SKIP) {
            self->sequence++;
            return no_slot(self, GPUIPC_ERR_BUSY, what);
        } else if (os_deadline_passed(time_limit_deadline(limit))) {
            return no_slot(self, GPUIPC_ERR_TIMEOUT, what);
        } else if (what->in_the_way != 0 && now_ns - begun_ns > OS_LOOK_NS) {
            sleep_for(self, what, time_limit_deadline(limit));
        } else {
            os_mutex_unlock(&self->mutex); /* others may want to publish */
            os_pause(begun_ns, CHANNEL_PAUSE_MS, time_limit_deadline(limit));
            channel_lock(self);
        }
    }
}

/* ---- readers that gave it back in the order of their streams ----------------------------------- */

/* One that has done so by now costs the stream a microsecond to see, and the host nothing. */
gpuipc_status channel_await_readers(channel *self, const slot_search *what) {
    channel_slot *slot = &self->slots[what->slot];
    point_word words[GPUIPC_CHANNEL_READERS_MAX];
    size_t count = 0;
    uint32_t awaited = 0;
    for (uint32_t i = 0; has_more(what->waits, i); i++) {
        if ((what->waits >> i & 1u) != 0) {
            words[count] = channel_returned_word(self->readers[i].page, what->slot, slot->number);
            if (!point_is_reached(&words[count])) {
                awaited |= UINT32_C(1) << i;
                count++;
            }
        }
    }
    slot->loan_awaits = 0;
    if (count == 0) {
        return GPUIPC_OK;
    }
    const gpuipc_status status = trail_wait(self->trail, what->slot, words, words, count, what->by);
    if (status == GPUIPC_OK) {
        slot->loan_awaits = awaited;
        slot->awaited |= awaited;
        slot->awaited_number = slot->number;
    }
    return status;
}
