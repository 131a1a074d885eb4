/* SPDX-License-Identifier: MIT */
/** @file What a call on one object costs does not depend on how many others live. Compared is what the fastest of many rows
 *  of calls took of the processor's time, with few alive and with many, which hardly depends on what else the machine does;
 *  and with a wide margin, since what grows does so by much: with a thousand times as many alive it took hundreds of times
 *  as long. */
#include <stdlib.h>
#include <string.h>

#include "core_fixture.h"
#include "message/connection.h"
#include "sync/deferred.h"
#include "sync/watch.h"
#include "thread_time.h"

#define FEW 20u
/* How much longer a call may take with many alive: so many times, and this much besides, which is more than a call needs that
 * finds its memory outside the cache. */
#define TIMES_AT_MOST 4
#define SLACK_NS      UINT64_C(5000)

TestSuite(growth, .init = core_start, .fini = core_finish, .timeout = 110);

/* ---- time ----------------------------------------------------------------------------------- */

static void check_growth_from(const char *what, uint32_t few, uint64_t few_ns, uint32_t many,
                              uint64_t many_ns) {
    cr_log_info("%s: %llu ns with %u alive, %llu ns with %u", what, (unsigned long long)few_ns, few,
                (unsigned long long)many_ns, many);
    cr_assert_leq(many_ns, TIMES_AT_MOST * few_ns + SLACK_NS,
                  "%s takes %llu ns with %u alive, and %llu ns with %u", what,
                  (unsigned long long)few_ns, few, (unsigned long long)many_ns, many);
}

static void check_growth(const char *what, uint64_t few_ns, uint64_t many_ns, uint32_t many) {
    check_growth_from(what, FEW, few_ns, many, many_ns);
}

/* ---- hand-overs ------------------------------------------------------------------------------ */

/* The most buffers of one message, as a context admits them by default. */
#define MESSAGE_BUFFERS 4096u

typedef struct crowd {
    core_pair pair;
    gpuipc_buffer *sent; /* every one of them is of this buffer */
    gpuipc_buffer **opened;
    uint32_t count;
} crowd;

typedef struct outgoing {
    const crowd *of;
    uint32_t count;
} outgoing;

static gpuipc_status send_many(void *argument) {
    const outgoing *self = argument;
    gpuipc_buffer **same = calloc(self->count, sizeof(*same));
    const gpuipc_outgoing message = {.struct_size = sizeof(message),
                                     .buffers = same,
                                     .buffer_count = self->count,
                                     .flags = GPUIPC_SEND_READY};
    for (uint32_t i = 0; i < self->count; i++) {
        same[i] = self->of->sent;
    }
    const gpuipc_status status = gpuipc_connection_send(self->of->pair.client, &message, SOON_MS);
    free(same);
    return status;
}

static void crowd_begin(crowd *self, gpuipc_buffer *sent, uint32_t most) {
    *self = (crowd){.sent = sent, .opened = calloc(most, sizeof(gpuipc_buffer *))};
    cr_assert_not_null(self->opened);
    core_pair_open(&self->pair, core_context, core_context);
}

static void crowd_grow(crowd *self, uint32_t count) {
    while (self->count < count) {
        const uint32_t left = count - self->count;
        const outgoing part = {self, left < MESSAGE_BUFFERS ? left : MESSAGE_BUFFERS};
        core_waiter sender;
        core_waiter_begin(&sender, send_many, (void *)&part);
        check_ok(core_receive(self->pair.server, self->opened + self->count, part.count));
        check_ok(core_waiter_end(&sender));
        self->count += part.count;
    }
}

static void crowd_end(crowd *self) {
    while (self->count > 0) {
        check_ok(gpuipc_buffer_release(self->opened[--self->count]));
    }
    free(self->opened);
    core_pair_close(&self->pair);
}

static void ask_info(void *of) {
    (void)core_info(of);
}

static void ask_returns(void *of) {
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_buffer_await_returns(of, 0));
}

static void send_and_release(void *argument) {
    const crowd *self = argument;
    gpuipc_buffer *opened = NULL;
    gpuipc_buffer *sent = self->sent;
    check_ok(core_send(self->pair.client, &sent, 1));
    check_ok(core_receive(self->pair.server, &opened, 1));
    check_ok(gpuipc_buffer_release(opened));
}

#define ASKS    3
#define MANY_HO 20000u

/* Asks about one buffer while few and then many hand-overs of another, or of itself, are out. */
static void check_asking(gpuipc_buffer *asked, gpuipc_buffer *handed) {
    static const char *const names[ASKS] = {"gpuipc_buffer_get_info", "gpuipc_buffer_await_returns",
                                            "a hand-over there and back"};
    uint64_t few_ns[ASKS];
    uint64_t many_ns[ASKS];
    crowd all;
    crowd one;
    crowd_begin(&all, handed, MANY_HO);
    crowd_begin(&one, asked, 1);
    crowd_grow(&one, 1);
    crowd_grow(&all, FEW);
    for (int i = 0; i < 2; i++) {
        uint64_t *const ns = i == 0 ? few_ns : many_ns;
        ns[0] = thread_time_of(ask_info, asked, 20);
        ns[1] = thread_time_of(ask_returns, asked, 20);
        ns[2] = thread_time_of(send_and_release, &one, 5);
        crowd_grow(&all, MANY_HO);
    }
    cr_assert_eq(core_info(asked).lent_count, asked == handed ? MANY_HO + 1 : 1);
    crowd_end(&all);
    crowd_end(&one);
    for (int i = 0; i < ASKS; i++) {
        check_growth(names[i], few_ns[i], many_ns[i], MANY_HO);
    }
}

Test(growth, of_asking_a_buffer_with_its_own_hand_overs) {
    gpuipc_buffer *own = core_buffer(core_unit, 0);
    check_asking(own, own);
    check_ok(gpuipc_buffer_release(own));
}

Test(growth, of_asking_a_buffer_with_those_of_another) {
    gpuipc_buffer *own = core_buffer(core_unit, 0);
    gpuipc_buffer *other = core_buffer(core_unit, 0);
    check_asking(own, other);
    check_ok(gpuipc_buffer_release(other));
    check_ok(gpuipc_buffer_release(own));
}

/* ---- loans ------------------------------------------------------------------------------------- */

#define MANY_LOANS                                                                                 \
    1500u /* of 2,047 that there may be, with those whose marks streams have not come to */
#define LOAN_WAYS 3

static gpuipc_mark known_loan; /* that is out all the time, and taken */

static void ask_loan(void *of) {
    const crowd *self = of;
    gpuipc_loan_state state;
    check_ok(gpuipc_buffer_get_loan_states(self->sent, &known_loan, 1, &state));
    cr_assert_eq(state, GPUIPC_LOAN_TAKEN);
}

/* A loan has its place until its stream has written the mark: then there is room. */
static void lend(const crowd *self, gpuipc_mark *out_mark) {
    gpuipc_status status = gpuipc_buffer_lend(self->sent, NULL, out_mark);
    if (status == GPUIPC_ERR_LIMIT) {
        core_enter_device(0);
        cr_assert_eq(core_driver()->cuStreamSynchronize(NULL), CUDA_SUCCESS);
        status = gpuipc_buffer_lend(self->sent, NULL, out_mark);
    }
    check_ok(status);
}

static void lend_and_cancel(void *of) {
    const crowd *self = of;
    gpuipc_mark made;
    lend(self, &made);
    check_ok(gpuipc_buffer_cancel_loan(self->sent, &made));
}

static void lend_and_return(void *of) {
    const crowd *self = of;
    gpuipc_mark made;
    lend(self, &made);
    check_ok(gpuipc_buffer_take_loan(self->opened[0], &made));
    check_ok(gpuipc_buffer_return_loan(self->opened[0], &made));
    check_ok(gpuipc_buffer_await_loan(self->sent, &made, SOON_MS));
}

Test(growth, of_loans_with_those_that_are_out) {
    static void (*const ways[LOAN_WAYS])(void *) = {ask_loan, lend_and_cancel, lend_and_return};
    static const char *const names[LOAN_WAYS] = {"gpuipc_buffer_get_loan_states",
                                                 "lending and taking back",
                                                 "lending, taking, returning and asking"};
    uint64_t ns[2][LOAN_WAYS];
    uint32_t out = 0;
    crowd one;
    crowd_begin(&one, core_buffer(core_unit, 0), 1);
    crowd_grow(&one, 1);
    check_ok(gpuipc_buffer_lend(one.sent, NULL, &known_loan));
    check_ok(gpuipc_buffer_take_loan(one.opened[0], &known_loan));
    for (int i = 0; i < 2; i++) {
        for (; out < (i == 0 ? FEW : MANY_LOANS); out++) {
            gpuipc_mark made;
            lend(&one, &made);
            if (out % 2 == 0) {
                check_ok(gpuipc_buffer_take_loan(one.opened[0], &made));
            }
        }
        for (int way = 0; way < LOAN_WAYS; way++) {
            ns[i][way] = thread_time_of(ways[way], &one, 20);
        }
    }
    for (int way = 0; way < LOAN_WAYS; way++) {
        check_growth(names[way], ns[0][way], ns[1][way], MANY_LOANS);
    }
    gpuipc_buffer *sent = one.sent;
    crowd_end(&one);
    check_ok(gpuipc_buffer_release(sent));
}

/* ---- connections ----------------------------------------------------------------------------- */

#define MANY_PAIRS 200u /* each takes descriptors, of which a process may have 1,024 */

/* Each has a hand-over of the one buffer. */
static void pairs_grow(crowd *pairs, uint32_t *count, uint32_t wanted, gpuipc_buffer *sent) {
    for (; *count < wanted; ++*count) {
        crowd_begin(&pairs[*count], sent, 1);
        crowd_grow(&pairs[*count], 1);
    }
}

static uint64_t close_unused(void) {
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < THREAD_TIME_ROWS; i++) {
        core_pair pair;
        core_pair_open(&pair, core_context, core_context);
        const uint64_t begun = thread_time_ns();
        check_ok(gpuipc_connection_close(pair.client));
        const uint64_t took = thread_time_ns() - begun;
        least = took < least ? took : least;
        pair.client = NULL;
        core_pair_close(&pair);
    }
    return least;
}

static uint64_t destroy_unrelated(void) {
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < THREAD_TIME_ROWS; i++) {
        gpuipc_context *other = core_context_new();
        const uint64_t begun = thread_time_ns();
        check_ok(gpuipc_context_destroy(other));
        const uint64_t took = thread_time_ns() - begun;
        least = took < least ? took : least;
    }
    return least;
}

#define WAYS 4

/* Taken by the first of them. */
static gpuipc_mark taken_loan;

static void ask_taken_loan(void *buffer) {
    gpuipc_loan_state state;
    check_ok(gpuipc_buffer_get_loan_states(buffer, &taken_loan, 1, &state));
    cr_assert_eq(state, GPUIPC_LOAN_TAKEN);
}

static void measure(gpuipc_buffer *asked, uint64_t ns[WAYS]) {
    ns[0] = thread_time_of(ask_info, asked, 20);
    ns[1] = thread_time_of(ask_returns, asked, 20);
    ns[2] = close_unused();
    ns[3] = destroy_unrelated();
}

/* All rows of one measuring lie in a fifth of a millisecond, in which what runs beside it may slow down each of them. */
static uint64_t least_loan_ns(gpuipc_buffer *asked) {
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < 100; i++) {
        const uint64_t ns = thread_time_of(ask_taken_loan, asked, 20);
        least = ns < least ? ns : least;
    }
    return least;
}

static const char *const way_names[WAYS] = {"gpuipc_buffer_get_info", "gpuipc_buffer_await_returns",
                                            "gpuipc_connection_close of an unused one",
                                            "gpuipc_context_destroy of an unrelated one"};

Test(growth, with_connections_that_have_something) {
    static crowd pairs[MANY_PAIRS];
    uint32_t count = 0;
    uint64_t few_ns[WAYS];
    uint64_t many_ns[WAYS];
    gpuipc_buffer *sent = core_buffer(core_unit, 0);
    pairs_grow(pairs, &count, FEW, sent);
    check_ok(gpuipc_buffer_lend(sent, NULL, &taken_loan));
    check_ok(gpuipc_buffer_take_loan(pairs[0].opened[0], &taken_loan));
    measure(sent, few_ns);
    const uint64_t few_loan_ns = least_loan_ns(sent);
    pairs_grow(pairs, &count, MANY_PAIRS, sent);
    measure(sent, many_ns);
    const uint64_t many_loan_ns = least_loan_ns(sent);
    while (count > 0) {
        crowd_end(&pairs[--count]);
    }
    check_ok(gpuipc_buffer_release(sent));
    for (int i = 0; i < WAYS; i++) {
        check_growth(way_names[i], few_ns[i], many_ns[i], MANY_PAIRS);
    }
    /* A look at the page of each takes too little to be seen with that slack. */
    cr_assert_lt(many_loan_ns, 2 * few_loan_ns + 100, "the state of a taken loan: %llu and %llu ns",
                 (unsigned long long)few_loan_ns, (unsigned long long)many_loan_ns);
}

/* ---- streams that wait ------------------------------------------------------------------------- */

#define MANY_WAITS 4000u

static void look(void *of) {
    watch_sweep(of);
}

/* Streams that have not passed; no word of theirs is written. */
static void waits_grow(context *ctx, point_page *page, point_word *passages, uint32_t *count,
                       uint32_t wanted) {
    for (; *count < wanted; ++*count) {
        const point_word word = {page, *count, 1};
        check_ok(passage_take(ctx, page, &passages[*count]));
        deferred_wait_begins();
        check_ok(watch_add(ctx, &word, &passages[*count], NULL));
    }
}

/* A look at few and then many of them. The peer is this process, which lives. */
static void check_looking(const char *what, bool has_peer_closed) {
    static point_word passages[MANY_WAITS];
    const os_deadline deadline = os_deadline_after(SOON_MS);
    uint32_t count = 0;
    core_pair pair;
    connection *end;
    point_page *page;
    context *ctx;
    check_ok(context_acquire(core_context, &ctx));
    core_pair_open(&pair, core_context, core_context);
    check_ok(connection_acquire(pair.client, &end));
    check_ok(point_page_create(ctx, end->other_end, &page));
    if (has_peer_closed) {
        check_ok(gpuipc_connection_close(pair.server));
        pair.server = NULL;
    }
    waits_grow(ctx, page, passages, &count, FEW);
    const uint64_t few_ns = thread_time_of(look, ctx, 20);
    waits_grow(ctx, page, passages, &count, MANY_WAITS);
    const uint64_t many_ns = thread_time_of(look, ctx, 20);
    while (count > 0) {
        passage_cancel(&passages[--count]);
    }
    while (!deferred_is_quiet()) {
        cr_assert_not(os_deadline_passed(deadline));
        watch_sweep(ctx);
    }
    point_page_unreference(page, false);
    connection_unreference(end);
    core_pair_close(&pair);
    context_unreference(ctx);
    check_growth(what, few_ns, many_ns, MANY_WAITS);
}

Test(growth, of_a_look_after_streams_that_wait) {
    check_looking("a look after streams", false);
}

Test(growth, of_a_look_after_streams_whose_peer_has_closed) {
    check_looking("a look after streams whose peer has closed", true);
}

/* A look is at 64 of them at most: fewer would be less work, and not less growth. */
#define FEW_PAGES  100u
#define MANY_PAGES 2000u

/* Pages of channels that were given up, which graphs may still touch. */
static void pages_grow(context *ctx, point_peer *peer, trail *of, point_page **pages,
                       uint32_t *count, uint32_t wanted) {
    for (; *count < wanted; ++*count) {
        point_page **page = &pages[*count];
        check_ok(point_page_create(ctx, peer, page));
        (*page)->trail = of;
        trail_reference(of);
        point_page_sent(*page, false); /* so that it has no descriptor */
        atomic_store(&(*page)->is_captured, true);
        atomic_store(&(*page)->is_given_up, true);
        const point_word word = {*page, 0, 1};
        check_ok(watch_add_slot(ctx, &word, 0));
    }
}

Test(growth, of_a_look_after_pages_that_were_given_up) {
    static point_page *pages[MANY_PAGES];
    const os_deadline deadline = os_deadline_after(SOON_MS);
    uint32_t count = 0;
    core_pair pair;
    connection *end;
    context *ctx;
    trail *of;
    check_ok(context_acquire(core_context, &ctx));
    core_pair_open(&pair, core_context, core_context);
    check_ok(connection_acquire(pair.client, &end));
    check_ok(trail_new(ctx, &of));
    pages_grow(ctx, end->other_end, of, pages, &count, FEW_PAGES);
    const uint64_t few_ns = thread_time_of(look, ctx, 20);
    pages_grow(ctx, end->other_end, of, pages, &count, MANY_PAGES);
    const uint64_t many_ns = thread_time_of(look, ctx, 20);
    while (count > 0) {
        atomic_store(&pages[--count]->is_captured, false);
    }
    while (!deferred_is_quiet()) {
        cr_assert_not(os_deadline_passed(deadline));
        watch_sweep(ctx);
    }
    while (count < MANY_PAGES) {
        point_page_unreference(pages[count++], false);
    }
    trail_unreference(of, false);
    connection_unreference(end);
    core_pair_close(&pair);
    context_unreference(ctx);
    check_growth_from("a look after pages that were given up", FEW_PAGES, few_ns, MANY_PAGES,
                      many_ns);
}

/* ---- what lingers ---------------------------------------------------------------------------- */

#define MANY_LINGER                                                                                \
    300u /* each takes a descriptor of the emulated driver here and one where it is open */

/* Memory that ends with its owner: released, and kept because it is on its way to somebody. */
static void linger_grow(const core_pair *by, uint32_t *count, uint32_t wanted) {
    const gpuipc_buffer_config config = {
        .struct_size = sizeof(config), .transport = GPUIPC_TRANSPORT_LEGACY, .bytes = 4096};
    static gpuipc_buffer *made[MANY_LINGER];
    const uint32_t first = *count;
    for (; *count < wanted; ++*count) {
        check_ok(gpuipc_buffer_create(core_context, &config, &made[*count]));
    }
    check_ok(core_send(by->client, made + first, wanted - first));
    for (uint32_t i = first; i < wanted; i++) {
        check_ok(gpuipc_buffer_release(made[i]));
    }
}

Test(growth, with_released_memory_that_others_have) {
    core_pair by;
    uint32_t count = 0;
    uint64_t few_ns[WAYS];
    uint64_t many_ns[WAYS];
    gpuipc_buffer *asked = core_buffer(core_unit, 0);
    core_pair_open(&by, core_context, core_context);
    check_ok(core_send(by.client, &asked, 1)); /* nobody receives it either */
    linger_grow(&by, &count, FEW);
    measure(asked, few_ns);
    linger_grow(&by, &count, MANY_LINGER);
    measure(asked, many_ns);
    core_pair_close(&by);
    check_ok(gpuipc_buffer_release(asked));
    for (int i = 0; i < WAYS; i++) {
        check_growth(way_names[i], few_ns[i], many_ns[i], MANY_LINGER);
    }
}

/* ---- what waits for the devices ----------------------------------------------------------------- */

#define MANY_DEFERRED 1000u

/* Memory whose freeing waits for all streams, so that it is kept while one of them waits for a peer. */
static void make_and_release(void *unused) {
    const gpuipc_buffer_config config = {
        .struct_size = sizeof(config), .transport = GPUIPC_TRANSPORT_HOST, .bytes = 4096};
    gpuipc_buffer *made = NULL;
    (void)unused;
    check_ok(gpuipc_buffer_create(core_context, &config, &made));
    check_ok(gpuipc_buffer_release(made));
}

static void make_and_release_many(uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        make_and_release(NULL);
    }
}

Test(growth, of_a_release_with_what_waits_for_the_devices) {
    context *ctx;
    check_ok(context_acquire(core_context, &ctx));
    deferred_wait_begins();
    make_and_release_many(FEW);
    const uint64_t few_ns = thread_time_of(make_and_release, NULL, 20);
    make_and_release_many(MANY_DEFERRED);
    cr_assert(deferred_are_many(ctx->deferred), "nothing was kept");
    const uint64_t many_ns = thread_time_of(make_and_release, NULL, 20);
    deferred_wait_ends();
    (void)deferred_run(ctx->deferred);
    context_unreference(ctx);
    check_growth("making and releasing", few_ns, many_ns, MANY_DEFERRED);
}
