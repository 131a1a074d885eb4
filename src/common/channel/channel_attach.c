/* SPDX-License-Identifier: MIT */
/** @file See channel.h: a reader that comes, by the server's word, and the frames that are kept for it. */
#include <string.h>

#include "channel/channel.h"

/* How long the server waits for calls of the writer, whose stream may have no room. */
#define ATTACH_MS 200

/* ---- its place, and its page ------------------------------------------------------------------- */

/* A place that nobody had is better than one of a reader that is still listed. */
static channel_reader *find_place(channel *self) {
    channel_reader *found = NULL;
    for (uint32_t i = 0; i < self->config.max_readers; i++) {
        channel_reader *reader = &self->readers[i];
        if (reader->page == NULL && (found == NULL || (found->state != 0 && reader->state == 0))) {
            found = reader;
        }
    }
    return found;
}

static void write_name(const point_page *page, uint32_t at, const uint8_t name[16]) {
    uint64_t halves[2];
    memcpy(halves, name, sizeof(halves));
    channel_write(page, at, halves[0]);
    channel_write(page, at + 1, halves[1]);
}

/* After a failure the caller closes what there is. */
static gpuipc_status make_bells(channel_reader *reader) {
    uint8_t names[2][16];
    gpuipc_status status;
    if ((status = os_random(names, sizeof(names))) != GPUIPC_OK ||
        (status = os_bell_make(names[0], &reader->reader_bell)) != GPUIPC_OK ||
        (status = os_bell_make(names[1], &reader->writer_bell)) != GPUIPC_OK) {
        return status;
    }
    write_name(reader->page, CHANNEL_READER_BELL, names[0]);
    write_name(reader->page, CHANNEL_WRITER_BELL, names[1]);
    return GPUIPC_OK;
}

/* ---- what it is offered at once ----------------------------------------------------------------- */

/* What is still in its slot and ready, of the numbers above @p above: the oldest. */
static bool find_kept(channel *self, uint64_t above, uint32_t *out_slot) {
    bool found = false;
    for (uint32_t i = 0; i < self->config.slots; i++) {
        const channel_slot *slot = &self->slots[i];
        if (slot->is_intact && !slot->is_in_kernel && slot->number > above &&
            trail_has_passed(self->trail, TRAIL_WRITE, i) &&
            (!found || slot->number < self->slots[*out_slot].number)) {
            *out_slot = i;
            found = true;
        }
    }
    return found;
}

/* In order means without a gap: what comes before one that is not kept, or not ready, is not offered either. */
static uint64_t before_first(channel *self, gpuipc_first first) {
    uint64_t before = self->number;
    uint32_t slot = 0;
    if (first == GPUIPC_FIRST_NEXT) {
        return before;
    }
    while (before > 0 && find_kept(self, before - 1, &slot) && self->slots[slot].number == before) {
        before--;
        if (first == GPUIPC_FIRST_NEWEST) {
            break;
        }
    }
    return before;
}

static void offer_kept(channel *self, channel_reader *reader, gpuipc_first first) {
    const uint64_t before = before_first(self, first);
    uint64_t sequence = self->sequence;
    uint32_t slot = 0;
    if (before < self->number && find_kept(self, before, &slot)) {
        sequence = self->slots[slot].sequence - 1;
    }
    reader->before = before;
    channel_write(reader->page, CHANNEL_BEFORE, before);
    channel_write(reader->page, CHANNEL_BEFORE_SEQUENCE, sequence);
    for (uint64_t above = before; find_kept(self, above, &slot); above = self->slots[slot].number) {
        const point_word ready = channel_ready_word(reader->page, slot, self->slots[slot].number);
        point_store(&ready);
        channel_offer(self, reader, slot, true);
    }
}

/* ---- it is taken in ---------------------------------------------------------------------------- */

static uint32_t places_with(const channel *self, const channel_reader *reader) {
    const uint32_t place = (uint32_t)(reader - self->readers);
    return place < self->places ? self->places : place + 1;
}

static gpuipc_status take_in(channel *self, channel_reader *reader, const wire_request *wish,
                             point_peer *peer) {
    channel_reader made = {.delivery = (gpuipc_delivery)wish->delivery,
                           .max_held = wish->held,
                           .state = GPUIPC_READER_ACTIVE,
                           .reader_bell = OS_BELL_NONE,
                           .writer_bell = OS_BELL_NONE,
                           .process_id = peer->process.process_id,
                           .since_ms = os_time_unix_ms()};
    gpuipc_status status =
        peer->process.same_user
            ? point_page_create_lasting(self->context, peer, CHANNEL_LEFT, &made.page)
            : point_page_create(self->context, peer, &made.page);
    if (status != GPUIPC_OK) {
        return status;
    }
    made.page->trail = self->trail;
    trail_reference(self->trail);
    if ((status = make_bells(&made)) != GPUIPC_OK) {
        goto close_bells;
    }
    channel_write(made.page, CHANNEL_SLOTS, self->config.slots);
    channel_write(made.page, CHANNEL_SLOT_BYTES, self->config.slot_bytes);
    channel_write(made.page, CHANNEL_HEADER_BYTES, self->config.header_bytes);
    channel_write(made.page, CHANNEL_MAGIC_WORD,
                  self->config.turns != 0 ? CHANNEL_TURNS_MAGIC : CHANNEL_MAGIC);
    if (self->config.turns != 0) {
        turn_page_begin(made.page);
    }
    status =
        monitor_begin(&self->monitored, MONITOR_FREES, &self->object, channel_readers_look, NULL);
    if (status != GPUIPC_OK) {
        goto close_bells;
    }
    *reader = made;
    self->places = places_with(self, reader);
    offer_kept(self, reader, (gpuipc_first)wish->first);
    return GPUIPC_OK;

close_bells:
    os_bell_close(&made.reader_bell);
    os_bell_close(&made.writer_bell);
    point_page_unreference(made.page, false);
    return status;
}

/* ---- what the server calls ---------------------------------------------------------------------- */

static channel *channel_of(offer_channel *offered) {
    return (channel *)(void *)((unsigned char *)offered - offsetof(channel, offered));
}

/* Writers in many threads leave it free often, and never for long: pauses that grow would miss that. */
static bool lock_in_time(channel *self) {
    const os_deadline deadline = os_deadline_after(ATTACH_MS);
    while (!channel_try_lock(self)) {
        if (os_deadline_passed(deadline)) {
            return false;
        }
        os_sleep_ms(1);
    }
    return true;
}

static gpuipc_status attach(offer_channel *offered, const wire_request *wish, point_peer *peer,
                            wire_answer *out_answer, point_page **out_page) {
    channel *self = channel_of(offered);
    gpuipc_status status = GPUIPC_OK;
    if (!lock_in_time(self)) {
        *out_answer = WIRE_BUSY;
        return GPUIPC_OK;
    }
    (void)channel_look_at_readers(self);
    channel_reader *reader = find_place(self);
    if (self->has_ended) {
        *out_answer = WIRE_REVOKED;
    } else if (wish->held == 0 || wish->held > self->config.max_held) {
        *out_answer = WIRE_TOO_MANY;
    } else if (reader == NULL) {
        *out_answer = WIRE_FULL;
    } else if ((status = take_in(self, reader, wish, peer)) == GPUIPC_OK) {
        point_page_reference(reader->page);
        *out_page = reader->page;
    }
    os_mutex_unlock(&self->mutex);
    return status;
}

static void detach(offer_channel *offered, point_page *page) {
    channel *self = channel_of(offered);
    os_mutex_lock(&self->mutex);
    for (uint32_t i = 0; i < self->places; i++) {
        if (self->readers[i].page == page) {
            channel_reader_end(self, &self->readers[i], GPUIPC_READER_CLOSED);
        }
    }
    os_mutex_unlock(&self->mutex);
}

static void leave(offer_channel *offered, bool forked) {
    (void)forked; /* the object knows */
    object_unreference(&channel_of(offered)->object);
}

const offer_channel channel_offered = {.attach = attach, .detach = detach, .leave = leave};
