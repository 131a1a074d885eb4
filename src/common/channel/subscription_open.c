/* SPDX-License-Identifier: MIT */
/** @file See subscription.h: opening one, and its end. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/struct_size.h"
#include "channel/subscription.h"
#include "sync/trail.h"
#include "ticket/server.h"
#include "ticket/server_link.h"
#include "ticket/ticket_name.h"
#include "ticket/ticket_request.h"

#define DEFAULT_TIMEOUT_MS 5000
#define DEFAULT_LOOK_US    ((uint32_t)(OS_LOOK_NS / 1000))

/* ---- of this process itself -------------------------------------------------------------------- */

/* This process as the other end of a page. */
static gpuipc_status peer_of_self(context *ctx, point_peer **out_peer) {
    os_peer self;
    gpuipc_status status = os_peer_self(&self);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = point_peer_new(ctx, &self, NULL, out_peer);
    if (status != GPUIPC_OK) {
        os_peer_close(&self);
    }
    return status;
}

/* The reader's mapping of a page that the writer has made. */
static gpuipc_status open_page(context *ctx, point_page *of, point_page **out_page) {
    point_peer *peer;
    gpuipc_status status = peer_of_self(ctx, &peer);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = point_page_open(ctx, peer, of->handle, out_page);
    point_page_sent(of, false);
    point_peer_unreference(peer, false);
    return status;
}

static gpuipc_status open_slots(context *ctx, offer *of, const ticket *decoded,
                                const gpuipc_open_config *config, buffer **out_slots) {
    object_reference(&of->of->object);
    gpuipc_status status =
        buffer_open_view(ctx, of->of, decoded->offset, decoded->bytes, config->device,
                         config->access, GPUIPC_ACCESS_READ, out_slots);
    if (status != GPUIPC_OK) {
        buffer_unwind(of->of);
        return status;
    }
    buffer_hold(*out_slots);
    return GPUIPC_OK;
}

/* Becomes a reader of a channel of this process. */
static gpuipc_status attach(context *ctx, offer *of, const wire_request *wish,
                            point_page **out_page) {
    point_peer *peer;
    point_page *page = NULL;
    wire_answer answer = WIRE_GRANTED;
    gpuipc_status status = peer_of_self(of->of->context, &peer);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = of->channel->attach(of->channel, wish, peer, &answer, &page);
    if (status == GPUIPC_OK && answer != WIRE_GRANTED) {
        status = ticket_answer_status(answer);
    }
    if (status == GPUIPC_OK) {
        status = open_page(ctx, page, out_page);
        if (status != GPUIPC_OK) {
            of->channel->detach(of->channel, page);
        }
        point_page_unreference(page, false);
    }
    point_peer_unreference(peer, false);
    return status;
}

static gpuipc_status open_offer(context *ctx, offer *of, const ticket *decoded,
                                const gpuipc_open_config *config, const wire_request *wish,
                                buffer **out_slots, point_page **out_page) {
    if (of->channel == NULL) {
        return ticket_answer_status(WIRE_OTHER);
    }
    gpuipc_status status = open_slots(ctx, of, decoded, config, out_slots);
    if (status == GPUIPC_OK && (status = attach(ctx, of, wish, out_page)) != GPUIPC_OK) {
        buffer_release_later(*out_slots);
    }
    return status;
}

/* As ticket_open.c has it for buffers. */
static gpuipc_status open_own(context *ctx, const ticket *decoded, const gpuipc_open_config *config,
                              const wire_request *wish, buffer **out_slots, point_page **out_page,
                              bool *out_is_own) {
    server *from = server_find(decoded->server_id);
    offer *of = NULL;
    gpuipc_status status = GPUIPC_OK;
    if (from == NULL) {
        *out_is_own = false;
        return GPUIPC_OK;
    }
    const wire_answer answer = share_find(&from->shares, decoded, &of);
    *out_is_own = of == NULL || of->of->context->driver.library == ctx->driver.library;
    if (answer != WIRE_GRANTED) {
        status = ticket_answer_status(answer);
    } else if (*out_is_own) {
        status = open_offer(ctx, of, decoded, config, wish, out_slots, out_page);
    }
    offer_unreference(of, false);
    const gpuipc_error why = status_save();
    object_unreference(&from->object);
    status_restore(&why);
    return status;
}

/* ---- what has come ----------------------------------------------------------------------------- */

/* What the writer says of the channel, each word read once. */
static gpuipc_status read_page(subscription *self) {
    const point_page *page = self->page;
    const uint64_t slots = channel_read(page, CHANNEL_SLOTS);
    const uint64_t slot_bytes = channel_read(page, CHANNEL_SLOT_BYTES);
    const uint64_t header_bytes = channel_read(page, CHANNEL_HEADER_BYTES);
    const uint64_t magic = channel_read(page, CHANNEL_MAGIC_WORD);
    if ((magic != CHANNEL_MAGIC && magic != CHANNEL_TURNS_MAGIC) || slots == 0 ||
        slots > (magic == CHANNEL_MAGIC ? GPUIPC_CHANNEL_SLOTS_MAX : 1) || slot_bytes == 0 ||
        header_bytes > GPUIPC_FRAME_HEADER_MAX) {
        return status_fail(GPUIPC_ERR_PROTOCOL, "the page of the channel says what cannot be");
    }
    if (slot_bytes > self->buffer->bytes / slots) {
        return status_fail(GPUIPC_ERR_OUT_OF_RANGE,
                           "%" PRIu64 " slots of %" PRIu64 " bytes do not lie in the %" PRIu64
                           " that the ticket stands for",
                           slots, slot_bytes, self->buffer->bytes);
    }
    self->slots = (uint32_t)slots;
    self->slot_bytes = slot_bytes;
    self->header_bytes = (uint32_t)header_bytes;
    self->has_turns = magic == CHANNEL_TURNS_MAGIC;
    self->number = channel_read(page, CHANNEL_BEFORE);
    self->sequence = channel_read(page, CHANNEL_BEFORE_SEQUENCE);
    return GPUIPC_OK;
}

static gpuipc_status find_bell(const point_page *page, uint32_t at, os_bell *out_bell) {
    const uint64_t halves[2] = {channel_read(page, at), channel_read(page, at + 1)};
    uint8_t name[16];
    memcpy(name, halves, sizeof(name));
    return os_bell_find(name, out_bell);
}

/* A writer that has ended this reader meanwhile, say as too slow, has closed the bells: the opening says so, as a take
 * would. */
static gpuipc_status find_bells(subscription *self) {
    gpuipc_status status = find_bell(self->page, CHANNEL_READER_BELL, &self->reader_bell);
    if (status == GPUIPC_OK) {
        status = find_bell(self->page, CHANNEL_WRITER_BELL, &self->writer_bell);
    }
    if (status == GPUIPC_OK) {
        return GPUIPC_OK;
    }
    const gpuipc_error why = status_save();
    const uint64_t end = channel_read(self->page, CHANNEL_END); /* written before they are closed */
    if (end != CHANNEL_IS_ON || point_page_is_abandoned(self->page)) {
        return subscription_tell_end(end);
    }
    status_restore(&why);
    return status;
}

static void destroy(object *base) {
    subscription *self = (subscription *)base;
    const bool forked = object_is_forked(base);
    buffer_release_later(self->buffer);
    turn_clear(&self->turn, forked);
    subscription_wait_end(self, forked);
    if (!forked) { /* in a child they are closed already */
        os_bell_close(&self->reader_bell);
        os_bell_close(&self->writer_bell);
    }
    point_page_unreference(self->page, forked);
    context_unreference(self->context);
    free(self);
}

/* Where a stream that gave the slot back before has not come to that, the writer's may wait for it: it learns from that word
 * that the former frame is not used any more, and from the end of this reader that this one is not. */
static void return_at_end(const subscription *self, uint32_t slot) {
    if (trail_has_passed(self->page->trail, TRAIL_WRITE, slot)) {
        const point_word returned =
            channel_returned_word(self->page, slot, self->frames[slot].number);
        point_store(&returned);
    }
}

void subscription_end(subscription *self) {
    atomic_store(&self->is_over, true);
    channel_write(self->page, CHANNEL_READER_SLEEPS, 0);
    os_bell_ring(&self->reader_bell, &self->page->words[CHANNEL_READER_SLEEPS]);
    if (self->has_turns) {
        turn_page_give_up(self->page); /* who takes may be waiting for room on a stream */
    }
    os_mutex_lock(&self->taking); /* who takes has seen it by now */
    subscription_wait_settle(self);
    os_mutex_lock(&self->mutex);
    if (self->has_turns) {
        subscription_turns_end(self);
    }
    for (uint32_t i = 0; i < self->slots; i++) {
        if (subscription_has_taken(self, i)) {
            subscription_kernel_end(self, i);
            return_at_end(self, i);
            subscription_set_taken(self, i, false);
        }
    }
    if (self->has_pending) {
        return_at_end(self, self->pending);
        self->has_pending = false;
    }
    channel_write(self->page, CHANNEL_LEFT, 1);
    GPUIPC_FULL_FENCE();
    channel_wake(self->page, CHANNEL_WRITER_SLEEPS, &self->writer_bell);
    os_mutex_unlock(&self->mutex);
    os_mutex_unlock(&self->taking);
}

static gpuipc_status check_turns(const gpuipc_subscription_config *config) {
    return config->delivery != GPUIPC_DELIVERY_ALL || config->first != GPUIPC_FIRST_NEXT
               ? status_fail(GPUIPC_ERR_INVALID_ARGUMENT,
                             "the channel is one of turns: its readers take each turn, from the "
                             "next on")
               : GPUIPC_OK;
}

/* @param slots, page taken over, whatever comes of it */
static gpuipc_status make(context *ctx, const gpuipc_subscription_config *config, buffer *slots,
                          point_page *page, subscription **out) {
    subscription *self = calloc(1, sizeof(*self));
    page->farewell = CHANNEL_LEFT;
    if (self == NULL) {
        buffer_release_later(slots);
        channel_write(page, CHANNEL_LEFT, 1);
        point_page_unreference(page, false);
        return status_out_of_memory(sizeof(*self));
    }
    atomic_init(&self->is_over, false);
    atomic_init(&self->taken, 0);
    atomic_init(&self->waited.is_asked_for, false);
    self->context = ctx;
    self->buffer = slots;
    self->page = page;
    self->reader_bell = OS_BELL_NONE;
    self->writer_bell = OS_BELL_NONE;
    self->delivery = config->delivery;
    self->look_ns = config->look_us * UINT64_C(1000);
    object_reference(&ctx->object);
    object_init(&self->object, OBJECT_SUBSCRIPTION, destroy);
    gpuipc_status status = trail_new(ctx, &page->trail);
    if (status == GPUIPC_OK) {
        status = read_page(self);
    }
    self->max_held = config->max_held < self->slots ? config->max_held : self->slots;
    if (status == GPUIPC_OK && self->has_turns) {
        status = check_turns(config);
        subscription_turns_begin(self);
    }
    if (status == GPUIPC_OK) {
        status = find_bells(self);
    }
    if (status != GPUIPC_OK) {
        channel_write(page, CHANNEL_LEFT, 1);
        object_unreference(&self->object);
        return status;
    }
    *out = self;
    return GPUIPC_OK;
}

/* ---- the calls --------------------------------------------------------------------------------- */

static gpuipc_status read_config(const gpuipc_subscription_config *config,
                                 gpuipc_subscription_config *out_known) {
    gpuipc_subscription_config known = {0};
    if (config != NULL) {
        gpuipc_status status = struct_size_read(
            config, STRUCT_SIZE_UP_TO(gpuipc_subscription_config, policy_user_data), &known,
            sizeof(known));
        if (status != GPUIPC_OK) {
            return status;
        }
    }
    if (known.delivery > GPUIPC_DELIVERY_NEWEST || known.first > GPUIPC_FIRST_OLDEST ||
        known.timeout_ms < -1) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT,
                           "delivery or first is none that there is, or timeout_ms is below -1");
    }
    if (known.look_us > GPUIPC_LOOK_US_MAX) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT,
                           "look_us is %u; a take looks for %u at most before it sleeps",
                           known.look_us, GPUIPC_LOOK_US_MAX);
    }
    if (known.max_held > GPUIPC_CHANNEL_SLOTS_MAX) {
        return status_fail(GPUIPC_ERR_LIMIT, "no channel has %u slots to hold", known.max_held);
    }
    known.max_held = known.max_held == 0 ? 1 : known.max_held;
    known.look_us = known.look_us == 0 ? DEFAULT_LOOK_US : known.look_us;
    known.timeout_ms = known.timeout_ms == 0 ? DEFAULT_TIMEOUT_MS : known.timeout_ms;
    *out_known = known;
    return GPUIPC_OK;
}

/* The slots, and the page, over the one way or the other. */
static gpuipc_status open_either_way(context *ctx, const gpuipc_ticket *bytes,
                                     const gpuipc_subscription_config *config, os_deadline deadline,
                                     buffer **out_slots, point_page **out_page) {
    const gpuipc_open_config how = {.struct_size = sizeof(how),
                                    .device = config->device,
                                    .access = GPUIPC_ACCESS_READ,
                                    .policy = config->policy,
                                    .policy_user_data = config->policy_user_data};
    const wire_request wish = {.wish = WIRE_SUBSCRIBE,
                               .delivery = (uint8_t)config->delivery,
                               .first = (uint8_t)config->first,
                               .held = config->max_held};
    ticket decoded;
    bool is_own = false;
    gpuipc_status status = ticket_decode(bytes, &decoded);
    if (status == GPUIPC_OK && decoded.offset != 0) {
        status = status_fail(GPUIPC_ERR_OUT_OF_RANGE,
                             "the ticket was narrowed: a channel is opened whole");
    }
    if (status == GPUIPC_OK) {
        status = open_own(ctx, &decoded, &how, &wish, out_slots, out_page, &is_own);
    }
    return status != GPUIPC_OK || is_own ? status
                                         : server_link_subscribe(ctx, bytes, &decoded, &how, &wish,
                                                                 deadline, out_slots, out_page);
}

static gpuipc_status open_channel(context *ctx, const gpuipc_ticket *bytes,
                                  const gpuipc_subscription_config *config, os_deadline deadline,
                                  gpuipc_subscription **out_subscription) {
    buffer *slots = NULL;
    point_page *page = NULL;
    subscription *self = NULL; /* as gcc -O3 wants it */
    void *handle;
    point_say_farewells(ctx); /* the page of a former subscription may come again */
    gpuipc_status status = device_check_field(ctx, config->device);
    if (status == GPUIPC_OK) {
        status = open_either_way(ctx, bytes, config, deadline, &slots, &page);
    }
    if (status != GPUIPC_OK || (status = make(ctx, config, slots, page, &self)) != GPUIPC_OK) {
        return status;
    }
    status = object_publish(&self->object, &handle);
    if (status != GPUIPC_OK) {
        subscription_end(self);
        object_unreference(&self->object);
        return status;
    }
    *out_subscription = handle;
    return GPUIPC_OK;
}

gpuipc_status gpuipc_subscription_open(gpuipc_context *handle, const gpuipc_ticket *bytes,
                                       const gpuipc_subscription_config *config,
                                       gpuipc_subscription **out_subscription) {
    status_enter(__func__);
    gpuipc_subscription_config known = {0};
    os_interrupt interrupt;
    context *ctx;
    gpuipc_status status;
    if (bytes == NULL || out_subscription == NULL) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "ticket or out_subscription is NULL");
    }
    if ((status = read_config(config, &known)) != GPUIPC_OK ||
        (status = context_acquire(handle, &ctx)) != GPUIPC_OK) {
        return status;
    }
    const os_deadline deadline =
        context_interruptible(ctx, os_deadline_after(known.timeout_ms), &interrupt);
    status = context_answer(ctx, &interrupt,
                            open_channel(ctx, bytes, &known, deadline, out_subscription));
    context_unreference(ctx);
    return status;
}

/* Whoever had the name has it no more, or nobody has it yet: that may pass. */
static bool is_nobody(gpuipc_status status) {
    return status == GPUIPC_ERR_NOT_FOUND || status == GPUIPC_ERR_TICKET_UNKNOWN ||
           status == GPUIPC_ERR_TICKET_REVOKED || status == GPUIPC_ERR_EXPORTER_GONE;
}

/* Until somebody has the name. One who is just ending may be found by it, and answer no more. */
static gpuipc_status open_named(context *ctx, const char *name,
                                const gpuipc_subscription_config *config, os_deadline deadline,
                                gpuipc_subscription **out_subscription) {
    const gpuipc_endpoint_config whom = {.struct_size = sizeof(whom),
                                         .policy = config->policy,
                                         .policy_user_data = config->policy_user_data};
    gpuipc_ticket found;
    unsigned pause = 0;
    for (;;) {
        gpuipc_status status = ticket_name_ask(ctx, name, &whom, deadline, &found);
        if (status == GPUIPC_OK) {
            status = open_channel(ctx, &found, config, deadline, out_subscription);
        }
        if (!is_nobody(status)) {
            return status;
        }
        if (os_deadline_passed(deadline)) {
            return status_fail(GPUIPC_ERR_NOT_FOUND,
                               "nobody had a channel of the name \"%s\" before the time ran out",
                               name);
        }
        if (atomic_load(&ctx->is_over)) {
            return status_fail(GPUIPC_ERR_RELEASED, "the context was destroyed meanwhile");
        }
        os_sleep_ms(os_backoff_next(&pause, deadline));
    }
}

gpuipc_status gpuipc_subscription_open_named(gpuipc_context *handle, const char *name,
                                             const gpuipc_subscription_config *config,
                                             gpuipc_subscription **out_subscription) {
    status_enter(__func__);
    gpuipc_subscription_config known = {0};
    os_interrupt interrupt;
    context *ctx;
    gpuipc_status status;
    if (out_subscription == NULL) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "out_subscription is NULL");
    }
    if ((status = ticket_name_check(name)) != GPUIPC_OK ||
        (status = read_config(config, &known)) != GPUIPC_OK ||
        (status = context_acquire(handle, &ctx)) != GPUIPC_OK) {
        return status;
    }
    const os_deadline deadline =
        context_interruptible(ctx, os_deadline_after(known.timeout_ms), &interrupt);
    status =
        context_answer(ctx, &interrupt, open_named(ctx, name, &known, deadline, out_subscription));
    context_unreference(ctx);
    return status;
}

gpuipc_status gpuipc_subscription_close(gpuipc_subscription *handle) {
    status_enter(__func__);
    object *last = NULL;
    if (handle == NULL) {
        return GPUIPC_OK;
    }
    gpuipc_status status = object_remove_hold(OBJECT_SUBSCRIPTION, handle, &last);
    context *ctx = NULL;
    if (last != NULL && !object_is_forked(last)) {
        subscription_end((subscription *)last);
        ctx = ((subscription *)last)->context;
        object_reference(&ctx->object);
    }
    object_unreference(last);
    if (ctx != NULL) {
        point_say_farewells(ctx);
        deferred_tidy(ctx);
        context_unreference(ctx);
    }
    return status;
}
