/* SPDX-License-Identifier: MIT */
/** @file See trail.h. */
#include "sync/trail.h"

#include <stdlib.h>

#include "cuda/context.h"
#include "cuda/device_event.h"
#include "sync/point.h"
#include "sync/trail_event.h"
#include "sync/watch.h"

/* An event may be late (device_event.h), and so may a thread on a machine that is busy. */
#define SOON_MS  100
#define PAUSE_MS 1u

/* Each use of a slot is a turn: who asks meanwhile, and finds another one afterwards, has learned nothing. */
typedef struct trail_mark {
    atomic_uint_least64_t turn;   /* odd while something is put on a stream */
    atomic_uint_least64_t passed; /* the turn that is known to have passed */
    _Atomic(trail_event *) last;
    uint64_t stream_id; /* of the last turn, for who gives the slot to streams; 0: not known */
} trail_mark;

/* Of all slots. */
typedef struct trail_progress {
    atomic_uint ended; /* so many turns were */
    _Atomic(trail_event *)
        milestones[2]; /* of the latest two turns that ended a period, alternately;
                                           * NULL: none, or it was found to have passed */
} trail_progress;

struct trail {
    atomic_uint references;
    struct context *context; /* no reference: whoever holds a trail holds the context */
    trail_events events;
    trail_mark marks[TRAIL_USES][TRAIL_SLOTS];
    trail_progress progress[TRAIL_USES];
};

gpuipc_status trail_new(struct context *ctx, trail **out_trail) {
    trail *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return status_out_of_memory(sizeof(*self));
    }
    atomic_init(&self->references, 1u);
    self->context = ctx;
    self->events.context = ctx;
    *out_trail = self;
    return GPUIPC_OK;
}

void trail_reference(trail *self) {
    atomic_fetch_add_explicit(&self->references, 1u, memory_order_relaxed);
}

void trail_unreference(trail *self, bool forked) {
    if (self == NULL ||
        atomic_fetch_sub_explicit(&self->references, 1u, memory_order_acq_rel) != 1u) {
        return;
    }
    trail_events_end(&self->events, forked);
    free(self);
}

/* ---- asking ------------------------------------------------------------------------------------ */

/* Of a turn that goes on nothing is recorded yet: the event stands behind the one that ended last.
 * @param turn the mark's, by now */
static bool has_ended_one_passed(trail *self, trail_mark *mark, uint64_t turn) {
    const uint64_t ended = turn & ~UINT64_C(1);
    if (atomic_load(&mark->passed) == ended) {
        return true;
    }
    trail_event *last = atomic_load(&mark->last);
    if (last == NULL || !trail_event_has_come(&self->events, last) ||
        atomic_load(&mark->turn) != turn) {
        return false;
    }
    atomic_store(&mark->passed, ended);
    return true;
}

bool trail_has_passed(trail *self, trail_use use, uint32_t slot) {
    trail_mark *mark = &self->marks[use][slot];
    const uint64_t turn = atomic_load(&mark->turn);
    return (turn & 1u) == 0 && has_ended_one_passed(self, mark, turn);
}

bool trail_had_passed(trail *self, trail_use use, uint32_t slot) {
    trail_mark *mark = &self->marks[use][slot];
    return has_ended_one_passed(self, mark, atomic_load(&mark->turn));
}

/* While a period goes on, the last but one is over. */
static bool is_far_behind(trail *self, trail_progress *of) {
    const unsigned periods = atomic_load(&of->ended) / TRAIL_PERIOD;
    _Atomic(trail_event *) *older = &of->milestones[(periods + 1) % 2];
    trail_event *event = atomic_load(older);
    if (event == NULL) {
        return false;
    }
    if (!trail_event_has_come(&self->events, event)) {
        return true;
    }
    if (atomic_compare_exchange_strong(older, &event, NULL)) {
        trail_event_let_go(&self->events, event);
    }
    return false;
}

bool trail_is_far_behind(trail *self) {
    return is_far_behind(self, &self->progress[TRAIL_WAIT]) ||
           is_far_behind(self, &self->progress[TRAIL_WRITE]);
}

bool trail_is_untouched(trail *self) {
    return trail_events_are_none(&self->events);
}

bool trail_have_all_passed(trail *self, trail_set *seen) {
    bool all = true;
    for (uint32_t use = 0; use < TRAIL_USES; use++) {
        for (uint32_t slot = 0; slot < TRAIL_SLOTS; slot++) {
            const uint64_t bit = UINT64_C(1) << slot;
            if ((seen->slots[use] & bit) == 0 && trail_has_passed(self, (trail_use)use, slot)) {
                seen->slots[use] |= bit;
            }
        }
        all = all && seen->slots[use] == UINT64_MAX;
    }
    return all;
}

bool trail_passes_soon(trail *self, trail_use use, uint32_t slot) {
    if (trail_has_passed(self, use, slot)) {
        return true; /* mostly, which needs no clock */
    }
    const uint64_t begun_ns = os_clock_ns();
    const os_deadline deadline = os_deadline_after(SOON_MS);
    bool has_passed;
    while (!(has_passed = trail_has_passed(self, use, slot)) && !os_deadline_passed(deadline)) {
        os_pause(begun_ns, PAUSE_MS, deadline);
    }
    return has_passed;
}

/* ---- streams ----------------------------------------------------------------------------------- */

/* A handle is used again, and an id is not. */
bool trail_is_of(const trail *self, trail_use use, uint32_t slot, const trail_stream *stream) {
    const uint64_t id = stream->scope.stream_id;
    return id != 0 && self->marks[use][slot].stream_id == id;
}

gpuipc_status trail_stream_enter(struct context *ctx, gpuipc_stream stream, uint32_t index,
                                 trail_stream *entered) {
    const gpuipc_status status = device_event_enter(ctx, stream, index, &entered->scope);
    entered->stream = stream;
    entered->has_rested = false;
    entered->can_wait = status == GPUIPC_OK && point_has_stream_waits_on(ctx, entered->scope.index);
    return status;
}

void trail_stream_rest(trail_stream *self) {
    self->has_rested = true;
}

/* What was put into the capture would be done at each launch. */
static gpuipc_status check_rested(const trail *self, trail_stream *stream) {
    gpuipc_status status = GPUIPC_OK;
    if (stream->has_rested) {
        status = device_check_capture(self->context, stream->stream);
        stream->has_rested = status != GPUIPC_OK;
    }
    return status;
}

/* ---- turns ------------------------------------------------------------------------------------- */

static bool is_milestone(const trail_turn *of, const trail_event *event) {
    const trail_progress *progress = &of->of->progress[of->use];
    return event == atomic_load(&progress->milestones[0]) ||
           event == atomic_load(&progress->milestones[1]);
}

/* One of the stream's device: the mark's own, mostly. */
static gpuipc_status find_event(trail_turn *self) {
    trail_event *last = atomic_load(&self->mark->last);
    uint32_t index = self->by->scope.index;
    gpuipc_status status =
        index == GPUIPC_DEVICE_NONE ? device_current(self->of->context, &index) : GPUIPC_OK;
    if (status != GPUIPC_OK) {
        return status;
    }
    const bool is_good = last != NULL && last->device == index && !atomic_load(&last->is_over) &&
                         !is_milestone(self, last);
    if (is_good) {
        self->event = last;
        return GPUIPC_OK;
    }
    return trail_event_take(&self->of->events, index, &self->event);
}

/* Where streams do not wait for words, none waits for a peer: the host may wait for what is in its way. */
GPUIPC_COLD static gpuipc_status wait_for_passage(const trail_turn *self, const trail_event *last) {
    const point_word passage = trail_event_passage(&self->of->events, last);
    return self->by->can_wait ? point_capture_waits(&passage, 1, self->by->stream)
                              : point_await(&passage, 1, NULL, os_deadline_after(-1));
}

/* Where another stream had the slot before. */
static gpuipc_status wait_for_former(const trail_turn *self, trail_use use, uint32_t slot) {
    if (trail_is_of(self->of, use, slot, self->by) || trail_has_passed(self->of, use, slot)) {
        return GPUIPC_OK;
    }
    const trail_event *last = atomic_load(&self->mark->last);
    if (trail_event_is_passage(last)) {
        return wait_for_passage(self, last);
    }
    return DRIVER_CALL(&self->of->context->driver, cuStreamWaitEvent,
                       (self->by->stream, last->event, 0),
                       "waiting for what another stream does with a slot");
}

/* One thread at a time does so. Who asks, and does not see it yet, learns of the turn before. Another event than that turn's is
 * stored behind this, so that the second look at the turn finds it. The same one, recorded anew, stands behind that turn, too. */
static void begin_turn(trail_mark *mark) {
    const uint64_t last = atomic_load_explicit(&mark->turn, memory_order_relaxed);
    atomic_store_explicit(&mark->turn, last + 1, memory_order_relaxed);
}

/* The event stands behind both then. It is made before anything is put on the stream: to make one waits while another
 * thread frees memory. */
gpuipc_status trail_turn_begin(trail *self, trail_use use, uint32_t slot, trail_stream *by,
                               trail_turn *turn) {
    gpuipc_status status = check_rested(self, by);
    *turn = (trail_turn){.of = self, .use = use, .by = by, .mark = &self->marks[use][slot]};
    if (status == GPUIPC_OK) {
        status = wait_for_former(turn, use, slot);
    }
    if (status == GPUIPC_OK) {
        status = find_event(turn);
    }
    if (status == GPUIPC_OK) {
        begin_turn(turn->mark);
    }
    return status;
}

/* The event is for others. */
static void let_go_unused(const trail_turn *self) {
    if (self->event != atomic_load(&self->mark->last)) {
        trail_event_let_go(&self->of->events, self->event);
    }
}

void trail_turn_cancel(const trail_turn *self) {
    const uint64_t now = atomic_load_explicit(&self->mark->turn, memory_order_relaxed);
    let_go_unused(self);
    atomic_store_explicit(&self->mark->turn, now - 1, memory_order_release);
}

static void turn_is_over(const trail_turn *self, bool has_passed) {
    const uint64_t turn = atomic_load_explicit(&self->mark->turn, memory_order_relaxed) + 1;
    self->mark->stream_id = self->by->scope.stream_id;
    if (has_passed) {
        atomic_store(&self->mark->passed, turn);
    }
    atomic_store_explicit(&self->mark->turn, turn, memory_order_release);
}

/* The last one of a period stays as it is for the next two. (Turns of one use end at the same time only where a kernel's does
 * while frames are taken. Then what one counts may be lost, and a period is longer or shorter by that.) */
static void count_turn(const trail_turn *self, trail_event *stands_for_it) {
    trail_progress *of = &self->of->progress[self->use];
    const unsigned ended = atomic_load_explicit(&of->ended, memory_order_relaxed) + 1u;
    atomic_store_explicit(&of->ended, ended, memory_order_relaxed);
    if (ended % TRAIL_PERIOD == 0) {
        trail_event_keep(&self->of->events, stands_for_it);
        trail_event_let_go(
            &self->of->events,
            atomic_exchange(&of->milestones[ended / TRAIL_PERIOD % 2], stands_for_it));
    }
}

/* @param stands_for_it an event that is recorded, or a passage on its way */
static void end_with(const trail_turn *self, trail_event *stands_for_it) {
    trail_event *last = atomic_load(&self->mark->last);
    atomic_store_explicit(&self->mark->last, stands_for_it, memory_order_release);
    if (last != stands_for_it) {
        trail_event_let_go(&self->of->events, last);
    }
    count_turn(self, stands_for_it);
    turn_is_over(self, false);
}

gpuipc_status trail_turn_try_end(const trail_turn *self) {
    gpuipc_status status = device_event_record(self->of->context, self->event->event,
                                               self->event->device, self->by->stream);
    if (status == GPUIPC_OK) {
        end_with(self, self->event);
    }
    return status;
}

static gpuipc_status write_passage(const trail_turn *self, trail_event *event) {
    context *ctx = self->of->context;
    point_word passage;
    gpuipc_status status = point_write_begin(ctx, NULL, 0, &passage);
    if (status == GPUIPC_OK) {
        status = point_submit_writes(ctx, NULL, 0, self->by->stream, &passage);
    }
    if (status == GPUIPC_OK) {
        trail_event_set_passage(&self->of->events, event, &passage);
    }
    return status;
}

GPUIPC_COLD static gpuipc_status end_with_passage(const trail_turn *self) {
    trail_event *event;
    gpuipc_status status = trail_event_take(&self->of->events, GPUIPC_DEVICE_NONE, &event);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = write_passage(self, event);
    if (status == GPUIPC_OK) {
        let_go_unused(self);
        end_with(self, event);
    } else {
        trail_event_let_go(&self->of->events, event);
    }
    return status;
}

/* What was put on the stream is there. It may be waiting for a peer, as long as that likes: so who cannot record an event
 * lets it write a word, and does not wait for it. Where that fails as well, it is waited for: the CUDA context is dead
 * then, and the stream has nothing to do, or memory or descriptors have run out at that very moment. */
void trail_turn_end(const trail_turn *self) {
    if (trail_turn_try_end(self) != GPUIPC_OK && end_with_passage(self) != GPUIPC_OK) {
        point_settle(self->of->context, self->by->stream);
        let_go_unused(self);
        turn_is_over(self, true);
    }
}

/* ---- what streams do --------------------------------------------------------------------------- */

/* Where streams do not write words. */
GPUIPC_COLD static gpuipc_status write_otherwise(const trail_turn *self, const point_word *words,
                                                 size_t count) {
    const point_word none = POINT_PASSED;
    return point_submit_writes(self->of->context, words, count, self->by->stream, &none);
}

gpuipc_status trail_turn_write(const trail_turn *self, const point_word *words, size_t count) {
    if (count == 0) {
        return GPUIPC_OK;
    }
    return self->by->can_wait
               ? point_submit_words(self->of->context, words, count, self->by->stream)
               : write_otherwise(self, words, count);
}

static gpuipc_status submit_waits(trail *self, uint32_t slot, const point_word *words,
                                  const point_word *let_go, size_t count, gpuipc_stream stream) {
    const point_word none = POINT_PASSED;
    gpuipc_status status = GPUIPC_OK;
    for (size_t i = 0; i < count && status == GPUIPC_OK; i++) {
        status = watch_add_slot(self->context, &let_go[i], slot);
    }
    return status == GPUIPC_OK
               ? point_submit_waits(self->context, words, count, stream, &none, false)
               : status;
}

gpuipc_status trail_wait(trail *self, uint32_t slot, const point_word *words,
                         const point_word *let_go, size_t count, trail_stream *by) {
    trail_turn turn;
    gpuipc_status status = trail_turn_begin(self, TRAIL_WAIT, slot, by, &turn);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = submit_waits(self, slot, words, let_go, count, by->stream);
    if (status == GPUIPC_OK) {
        trail_turn_end(&turn);
    } else {
        trail_turn_cancel(&turn);
    }
    return status;
}
