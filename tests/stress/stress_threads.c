/* SPDX-License-Identifier: MIT */
/**
 * @file 64 threads on the same objects: one server, one channel, and two contexts, of which one keeps few mappings of what
 * it has released. Each makes so many calls (--calls, while there is time) as it draws them: it shares, opens, reads, copies, releases (so that
 * what was kept is evicted), revokes, publishes, takes, and destroys. For ThreadSanitizer above all.
 */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "form.h"
#include "os.h"
#include "stress.h"
#include "unique.h"

#define THREADS       64
#define READERS       8 /* of the threads, so many have a subscription */
#define SHARES        16
#define SLOTS         4
#define SLOT_BYTES    1024
#define SHORT_CALLS   60
#define FULL_CALLS    100000
#define SHORT_SECONDS 3u
#define FULL_SECONDS  7200u
#define MOST_CLIENTS  4096u
#define KEPT_MAPPINGS 3

/* What everybody opens: a ticket, and who shared it revokes it. */
typedef struct share {
    gpuipc_buffer *buffer;
    gpuipc_ticket ticket;
    uint32_t word;
} share;

static struct {
    os_mutex mutex; /* guards the shares */
    gpuipc_context *owner;
    gpuipc_context *opener;
    gpuipc_server *server;
    gpuipc_channel *channel;
    gpuipc_ticket channel_ticket;
    share shares[SHARES];
    uint64_t most; /* calls of each */
    atomic_uint_least64_t calls;
} all;

typedef struct actor {
    unsigned number;
    uint64_t random;
    gpuipc_subscription *subscription; /* NULL: it has none */
    gpuipc_buffer *own;                /* what it copies into */
    uint64_t calls;
    os_thread *thread;
} actor;

static const gpuipc_status revoked[] = {GPUIPC_ERR_TICKET_REVOKED, GPUIPC_OK};
static const gpuipc_status no_slot[] = {GPUIPC_ERR_TIMEOUT, GPUIPC_ERR_LIMIT, GPUIPC_ERR_BUSY,
                                        GPUIPC_OK};
static const gpuipc_status no_frame[] = {GPUIPC_ERR_TIMEOUT, GPUIPC_OK};

static void called(actor *self, const char *what) {
    stress_now(self->number, what);
    self->calls++;
}

/* Another buffer in this place: the ticket of the one before is revoked, and the buffer released. */
static void share_again(actor *self) {
    share *at = &all.shares[stress_random(&self->random, SHARES)];
    const uint32_t word = stress_random(&self->random, UINT32_MAX);
    called(self, "gpuipc_buffer_create");
    gpuipc_buffer *made = stress_buffer(all.owner, GPUIPC_TRANSPORT_DEFAULT, word);
    gpuipc_ticket ticket;
    called(self, "gpuipc_buffer_share");
    STRESS_OK(gpuipc_buffer_share(all.server, made, NULL, &ticket));
    os_mutex_lock(&all.mutex);
    gpuipc_buffer *before = at->buffer;
    const gpuipc_ticket over = at->ticket;
    at->buffer = made;
    at->ticket = ticket;
    at->word = word;
    os_mutex_unlock(&all.mutex);
    called(self, "gpuipc_server_revoke");
    STRESS_OK(gpuipc_server_revoke(all.server, &over));
    called(self, "gpuipc_buffer_release");
    STRESS_OK(gpuipc_buffer_release(before));
}

/* What it is that was opened is told by its first word, also when it is revoked meanwhile. */
static void open_and_copy(actor *self) {
    share *at = &all.shares[stress_random(&self->random, SHARES)];
    os_mutex_lock(&all.mutex);
    const gpuipc_ticket ticket = at->ticket;
    const uint32_t word = at->word;
    os_mutex_unlock(&all.mutex);
    gpuipc_buffer *opened = NULL;
    uint32_t found = 0;
    called(self, "gpuipc_buffer_open");
    if (stress_allow(gpuipc_buffer_open(all.opener, &ticket, NULL, &opened), "gpuipc_buffer_open",
                     revoked) != GPUIPC_OK) {
        return;
    }
    called(self, "gpuipc_buffer_copy_async");
    STRESS_OK(gpuipc_buffer_copy_async(self->own, 0, opened, 0, sizeof(word), NULL));
    called(self, "gpuipc_buffer_read");
    STRESS_OK(gpuipc_buffer_read(self->own, 0, &found, sizeof(found)));
    if (found != word) {
        stress_fail("a copy begins with %" PRIu32 ", not %" PRIu32, found, word);
    }
    called(self, "gpuipc_buffer_release");
    STRESS_OK(gpuipc_buffer_release(opened));
}

static void publish(actor *self) {
    gpuipc_frame frame = {.struct_size = sizeof(frame)};
    called(self, "gpuipc_channel_loan");
    if (stress_allow(gpuipc_channel_loan(all.channel, GPUIPC_NO_STREAM, 0, &frame),
                     "gpuipc_channel_loan", no_slot) != GPUIPC_OK) {
        return;
    }
    called(self, "gpuipc_channel_publish");
    if (stress_random(&self->random, 8) == 0) {
        STRESS_OK(gpuipc_channel_discard(all.channel, &frame));
    } else {
        STRESS_OK(gpuipc_channel_publish(all.channel, &frame, GPUIPC_NO_STREAM));
    }
}

static void subscribe(actor *self) {
    const gpuipc_subscription_config config = {.struct_size = sizeof(config),
                                               .timeout_ms = STRESS_SOON_MS,
                                               .delivery = GPUIPC_DELIVERY_NEWEST};
    called(self, "gpuipc_subscription_open");
    STRESS_OK(
        gpuipc_subscription_open(all.opener, &all.channel_ticket, &config, &self->subscription));
}

static void take(actor *self) {
    gpuipc_frame frame = {.struct_size = sizeof(frame)};
    if (self->subscription == NULL) {
        publish(self);
        return;
    }
    called(self, "gpuipc_subscription_take");
    if (stress_allow(gpuipc_subscription_take(self->subscription, GPUIPC_NO_STREAM, 0, &frame),
                     "gpuipc_subscription_take", no_frame) == GPUIPC_OK) {
        called(self, "gpuipc_subscription_give_back");
        STRESS_OK(gpuipc_subscription_give_back(self->subscription, &frame, GPUIPC_NO_STREAM));
    }
    if (stress_random(&self->random, 64) == 0) {
        called(self, "gpuipc_subscription_close");
        STRESS_OK(gpuipc_subscription_close(self->subscription));
        subscribe(self);
    }
}

/* A context of its own, which opens something and ends with it. */
static void destroy(actor *self) {
    gpuipc_context *own = NULL;
    called(self, "gpuipc_context_create");
    STRESS_OK(gpuipc_context_create(NULL, &own));
    gpuipc_buffer *made = stress_buffer(own, GPUIPC_TRANSPORT_DEFAULT, 1);
    called(self, "gpuipc_buffer_release");
    STRESS_OK(gpuipc_buffer_release(made));
    called(self, "gpuipc_context_destroy");
    STRESS_OK(gpuipc_context_destroy(own));
}

static void run(void *argument) {
    actor *self = argument;
    if (self->number < READERS) {
        subscribe(self);
    }
    while (self->calls < all.most && stress_goes_on()) {
        const uint32_t draw = stress_random(&self->random, 16);
        if (draw < 6) {
            open_and_copy(self);
        } else if (draw < 9) {
            share_again(self);
        } else if (draw < 12) {
            publish(self);
        } else if (draw < 15) {
            take(self);
        } else {
            destroy(self);
        }
    }
    if (self->subscription != NULL) {
        STRESS_OK(gpuipc_subscription_close(self->subscription));
    }
    atomic_fetch_add(&all.calls, self->calls);
    stress_now(self->number, NULL);
}

static gpuipc_buffer *begin_channel(void) {
    gpuipc_buffer *slots = stress_buffer(all.owner, GPUIPC_TRANSPORT_DEFAULT, 0);
    const gpuipc_channel_config config = {.struct_size = sizeof(config),
                                          .buffer = slots,
                                          .slots = SLOTS,
                                          .slot_bytes = SLOT_BYTES,
                                          .full = GPUIPC_FULL_SKIP};
    STRESS_OK(gpuipc_channel_create(all.server, &config, &all.channel, &all.channel_ticket));
    return slots;
}

static void begin_shares(void) {
    for (uint32_t i = 0; i < SHARES; i++) {
        share *at = &all.shares[i];
        at->word = i;
        at->buffer = stress_buffer(all.owner, GPUIPC_TRANSPORT_DEFAULT, i);
        STRESS_OK(gpuipc_buffer_share(all.server, at->buffer, NULL, &at->ticket));
    }
}

static void end_shares(void) {
    for (uint32_t i = 0; i < SHARES; i++) {
        STRESS_OK(gpuipc_buffer_release(all.shares[i].buffer));
    }
}

static void run_all(actor *actors) {
    for (unsigned i = 0; i < THREADS; i++) {
        actors[i].number = i;
        actors[i].random = stress_state(i);
        actors[i].own = stress_buffer(all.opener, GPUIPC_TRANSPORT_DEFAULT, 0);
        STRESS_OK(os_thread_start(run, &actors[i], &actors[i].thread));
    }
    for (unsigned i = 0; i < THREADS; i++) {
        os_thread_join(actors[i].thread);
        STRESS_OK(gpuipc_buffer_release(actors[i].own));
    }
}

/* The full form is so many calls, not so long: with fewer of them it has shown less than it says. An action is of some calls,
 * and so may be more than were left. */
static void expect_all_calls(void) {
    const uint64_t made = atomic_load(&all.calls);
    if (form_is_full() && made < all.most * THREADS) {
        stress_fail("%" PRIu64 " calls in %u s, not %" PRIu64, made, stress_seconds(),
                    all.most * THREADS);
    }
}

int main(int argc, char **argv) {
    static actor actors[THREADS];
    char directory[RUNTIME_DIRECTORY_MAX];
    gpuipc_context_config keeps = GPUIPC_CONTEXT_CONFIG_INIT;
    stress_set_seconds((unsigned)form_choose(SHORT_SECONDS, FULL_SECONDS));
    stress_begin("threads", argc, argv);
    STRESS_EXPECT(runtime_directory_make(directory));
    all.most = stress_calls(form_choose(SHORT_CALLS, FULL_CALLS));
    keeps.runtime_directory = directory;
    keeps.max_cached_imports = KEPT_MAPPINGS;
    all.owner = stress_context(directory);
    STRESS_OK(gpuipc_context_create(&keeps, &all.opener));
    /* A reader that has closed counts as a client until the server has seen it. */
    gpuipc_server_config for_many = GPUIPC_SERVER_CONFIG_INIT;
    for_many.flags = GPUIPC_SERVER_THREAD;
    for_many.max_connections_per_user = MOST_CLIENTS;
    STRESS_OK(gpuipc_server_create(all.owner, &for_many, &all.server));
    begin_shares();
    gpuipc_buffer *slots = begin_channel();
    run_all(actors);
    expect_all_calls();
    STRESS_OK(gpuipc_channel_destroy(all.channel));
    STRESS_OK(gpuipc_server_destroy(all.server));
    end_shares();
    STRESS_OK(gpuipc_buffer_release(slots));
    STRESS_OK(gpuipc_context_destroy(all.opener));
    STRESS_OK(gpuipc_context_destroy(all.owner));
    runtime_directory_remove(directory);
    return stress_end("%d threads, %" PRIu64 " calls", THREADS, (uint64_t)atomic_load(&all.calls));
}
