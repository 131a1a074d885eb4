/* SPDX-License-Identifier: MIT */
/** @file See turn.h. */
#include "channel/turn.h"

#include "cuda/context.h"
#include "sync/watch.h"

/* In the low half of a word. */
#define NOT_SAID 0u
#define SAID     1u
/* The high half. Waits compare the whole, cyclically (cuda.h, CU_STREAM_WAIT_VALUE_GEQ). */
#define LET_GO (UINT64_C(1) << 32)

/* So many readers that graphs wait for, with those that have ended: a graph may go on touching their pages. */
#define CAPTURED_MAX 256u

/* The slot of the trail. */
#define SLOT 0u

_Static_assert(GPUIPC_CHANNEL_READERS_MAX * 2u <= POINT_HALVES_MAX, "a turn ends in one call");

void turn_add(turn_state *self, point_page *page) {
    point_page_reference(page);
    atomic_store(&page->has_turns, true);
    self->pages[self->count++] = page;
}

void turn_clear(turn_state *self, bool forked) {
    while (self->count > 0) {
        point_page_unreference(self->pages[--self->count], forked);
    }
}

/* ---- pages ------------------------------------------------------------------------------------- */

void turn_page_begin(const point_page *page) {
    channel_write(page, TURN_READY, NOT_SAID);
    channel_write(page, TURN_FREE, SAID);
}

/* Whatever stands there: a word that is far ahead of this value is behind what streams wait for. */
void turn_let_go(point_page *page, uint32_t at) {
    const point_word passes = {page, at, LET_GO};
    point_store(&passes);
}

bool turn_is_free(const point_page *page) {
    return channel_read(page, TURN_FREE) != NOT_SAID;
}

bool turn_is_let_go(const point_page *page, uint32_t at) {
    return channel_read(page, at) >= LET_GO;
}

void turn_page_give_up(point_page *page) {
    atomic_store(&page->is_given_up,
                 true); /* what a peer takes back is set again while a stream waits */
    turn_let_go(page, TURN_READY);
    turn_let_go(page, TURN_FREE);
}

void turn_page_end(point_page *page) {
    turn_page_give_up(page);
    point_page_end_capture(page);
}

/* ---- waiting ----------------------------------------------------------------------------------- */

/* So many words as there are pages. */
static void list_words(const turn_state *self, uint32_t at, uint64_t value, point_word *out_words) {
    for (size_t i = 0; i < self->count; i++) {
        out_words[i] = (point_word){self->pages[i], at, value};
    }
}

static size_t count_new(const turn_state *self) {
    size_t count = 0;
    for (size_t i = 0; i < self->count; i++) {
        count += !atomic_load(&self->pages[i]->was_captured);
    }
    return count;
}

/* There is room for all that may come. */
static gpuipc_status check_room(point_words *captured, size_t more) {
    if (captured == NULL || more == 0) {
        return GPUIPC_OK;
    }
    if (captured->count + more > CAPTURED_MAX) {
        return status_fail(GPUIPC_ERR_LIMIT,
                           "graphs of this channel have waited for %zu readers, and may do so "
                           "until its end: make it anew",
                           captured->count);
    }
    return captured->words == NULL ? point_words_new(CAPTURED_MAX, captured) : GPUIPC_OK;
}

static void keep(const turn_end *of, point_page *page) {
    const point_word word = {page, of->turn->awaited, 0};
    const bool is_new = !atomic_exchange(&page->was_captured, true);
    if (is_new && of->captured != NULL) {
        point_words_add(of->captured, &word);
    }
}

/* The watch looks after the words for as long as a graph may wait for them. */
static gpuipc_status capture_waits(const turn_end *of, const point_word *words,
                                   const point_word *let_go, gpuipc_stream stream) {
    const turn_state *self = of->turn;
    gpuipc_status status = check_room(of->captured, count_new(self));
    for (size_t i = 0; i < self->count && status == GPUIPC_OK; i++) {
        keep(of, self->pages[i]);
        atomic_store(&self->pages[i]->is_captured, true);
        status = watch_add_slot(of->context, &let_go[i], SLOT);
    }
    return status == GPUIPC_OK ? point_capture_waits(words, self->count, stream) : status;
}

/* Another stream may not have come to the end of the turn before: the words that this one looks at would be older. */
static gpuipc_status wait_for_former(const turn_end *of, trail_stream *by) {
    trail_turn former;
    gpuipc_status status = trail_turn_begin(of->trail, TRAIL_WRITE, SLOT, by, &former);
    if (status == GPUIPC_OK) {
        trail_turn_cancel(&former);
    }
    return status;
}

/* The mutex is given up meanwhile. */
static gpuipc_status wait_on_stream(const turn_end *of, const point_word *words,
                                    const point_word *let_go, trail_stream *by) {
    const size_t count = of->turn->count;
    if (trail_is_far_behind(of->trail)) {
        return status_fail(GPUIPC_ERR_TIMEOUT,
                           "the streams of this end are more than %u turns behind the host",
                           TRAIL_PERIOD);
    }
    os_mutex_unlock(of->mutex);
    gpuipc_status status = wait_for_former(of, by);
    if (status == GPUIPC_OK && count > 0) {
        status = trail_wait(of->trail, SLOT, words, let_go, count, by);
    }
    os_mutex_lock(of->mutex);
    return status;
}

/* ERR_CUDA: its capture is no good any more, or it is a default stream while another is captured */
static gpuipc_status look_at_stream(const turn_end *of, gpuipc_stream stream,
                                    bool *out_is_captured) {
    *out_is_captured = device_is_captured(of->context, stream);
    return *out_is_captured ? GPUIPC_OK : device_check_capture(of->context, stream);
}

static gpuipc_status enter(const turn_end *of, gpuipc_stream stream, trail_stream *out_by,
                           bool *out_is_captured) {
    trail_stream by = {.stream = stream};
    if (stream == GPUIPC_NO_STREAM) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT,
                           "the channel is one of turns, which streams take: there is none");
    }
    gpuipc_status status = device_enter_stream(of->context, stream, of->device, &by.scope);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = look_at_stream(of, stream, out_is_captured);
    if (status != GPUIPC_OK) {
        device_leave(&by.scope);
        return status;
    }
    by.can_wait = point_has_stream_waits(of->context);
    *out_by = by;
    return GPUIPC_OK;
}

gpuipc_status turn_begin(const turn_end *of, gpuipc_stream stream) {
    point_word words[GPUIPC_CHANNEL_READERS_MAX];
    point_word let_go[GPUIPC_CHANNEL_READERS_MAX];
    turn_state *self = of->turn;
    trail_stream by;
    gpuipc_status status = enter(of, stream, &by, &self->is_captured);
    if (status != GPUIPC_OK) {
        return status;
    }
    list_words(self, self->awaited, SAID, words);
    list_words(self, self->awaited, LET_GO, let_go);
    if (!by.can_wait) {
        status = status_fail(GPUIPC_ERR_NOT_SUPPORTED,
                             "streams of this device do not wait for words by themselves");
    } else {
        status = self->is_captured ? capture_waits(of, words, let_go, stream)
                                   : wait_on_stream(of, words, let_go, &by);
    }
    trail_stream_leave(&by);
    return status;
}

/* ---- the end of a turn ------------------------------------------------------------------------- */

static gpuipc_status write_turn(const turn_end *of, const point_word *words, size_t count,
                                trail_stream *by) {
    trail_turn at;
    gpuipc_status status = trail_turn_begin(of->trail, TRAIL_WRITE, SLOT, by, &at);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = point_write_halves(words, count, by->stream);
    if (status == GPUIPC_OK) {
        trail_turn_end(&at);
    } else {
        trail_turn_cancel(&at);
    }
    return status;
}

/* The mutex is given up meanwhile. */
static gpuipc_status write_on_stream(const turn_end *of, const point_word *words, size_t count,
                                     trail_stream *by) {
    os_mutex_unlock(of->mutex);
    const gpuipc_status status = write_turn(of, words, count, by);
    os_mutex_lock(of->mutex);
    return status;
}

/* What was awaited is set back before the other side may say it again. */
gpuipc_status turn_pass(const turn_end *of, gpuipc_stream stream) {
    point_word words[POINT_HALVES_MAX];
    const turn_state *self = of->turn;
    const size_t count = self->count;
    trail_stream by;
    bool is_captured = false;
    gpuipc_status status = enter(of, stream, &by, &is_captured);
    if (status != GPUIPC_OK) {
        return status;
    }
    list_words(self, self->awaited, NOT_SAID, words);
    list_words(self, self->awaited == TURN_FREE ? TURN_READY : TURN_FREE, SAID, &words[count]);
    if (is_captured != self->is_captured) {
        status = status_fail(GPUIPC_ERR_INVALID_ARGUMENT,
                             "a turn is either captured or not: one of its two calls was made on "
                             "a stream that is being captured, the other was not");
    } else {
        status = self->is_captured ? point_write_halves(words, count * 2, stream)
                                   : write_on_stream(of, words, count * 2, &by);
    }
    trail_stream_leave(&by);
    return status;
}
