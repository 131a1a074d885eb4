/* SPDX-License-Identifier: MIT */
/** @file Waits for words of another process, and the thread that looks after them. */
#include <string.h>

#include "core_fixture.h"
#include "message/connection.h"
#include "sync/deferred.h"
#include "sync/watch.h"

static context *ctx;

static void begin(void) {
    core_start();
    check_ok(context_acquire(core_context, &ctx));
}

static void finish(void) {
    context_unreference(ctx);
    core_finish();
}

TestSuite(watch, .init = begin, .fini = finish, .timeout = 60);

static point_page *page_make_in(context *of, const os_peer *peer, point *out_point) {
    os_peer process = *peer;
    point_peer *other;
    point_page *page;
    if (os_handle_is_valid(peer->process)) {
        check_ok(os_handle_duplicate(peer->process, &process.process));
    }
    check_ok(point_peer_new(of, &process, NULL, &other));
    check_ok(point_page_create(of, other, &page));
    point_peer_unreference(other, false);
    *out_point = (point){page, 0, 2};
    return page;
}

static point_page *page_make(const os_peer *peer, point *out_point) {
    return page_make_in(ctx, peer, out_point);
}

static gpuipc_status begin_wait(context *of, const point_word *word, const point_word *passage,
                                import_record *record) {
    deferred_wait_begins();
    return watch_add(of, word, passage, record);
}

static void wait_until_idle(void) {
    const os_deadline deadline = os_deadline_after(SOON_MS);
    while (!deferred_is_quiet()) {
        cr_assert_not(os_deadline_passed(deadline));
        os_sleep_ms(1);
    }
}

static void wait_until_reached(const point_word *word) {
    const os_deadline deadline = os_deadline_after(SOON_MS);
    while (!point_is_reached(word)) {
        cr_assert_not(os_deadline_passed(deadline));
        os_sleep_ms(1);
    }
}

/* A process that is gone: its number is nobody's. */
static const os_peer dead = {.process_id = 0x3FFFFFFF, .process = {-1}};

static CUresult (*registered)(void *base, size_t bytes, unsigned int flags);

/* As long as it takes, the thread that looks after streams goes on, which needs this mutex. */
static CUresult register_slowly(void *base, size_t bytes, unsigned int flags) {
    cr_assert(os_mutex_try_lock(&ctx->points->mutex));
    os_mutex_unlock(&ctx->points->mutex);
    return registered(base, bytes, flags);
}

Test(watch, no_mutex_that_it_needs_is_held_while_memory_is_registered) {
    point at;
    point_word passage;
    point_page *page = page_make(&dead, &at);
    const point_word word = point_ready_word(&at);
    registered = ctx->driver.cuMemHostRegister;
    ctx->driver.cuMemHostRegister = register_slowly;
    core_enter_device(0);
    check_ok(point_write_async(&word, 1, NULL, &passage));
    wait_until_reached(&passage);
    ctx->driver.cuMemHostRegister = registered;
    cr_assert_neq(page->device, GPUIPC_DEVICE_NONE);
    point_page_unreference(page, false);
}

Test(watch, no_thread_runs_while_nothing_is_waited_for) {
    cr_assert_not(monitor_runs(MONITOR_PEERS));
    cr_assert(deferred_is_quiet());
}

Test(watch, the_thread_ends_when_the_stream_has_passed) {
    core_pair pair = {0};
    connection *end;
    core_pair_open(&pair, core_context, core_context);
    check_ok(connection_acquire(pair.client, &end));
    point at;
    point_page *page = page_make(&end->peer, &at);
    const point_word word = point_ready_word(&at);
    point_word passage;
    for (int i = 0; i < 2; i++) { /* and the next one begins another */
        const point_word next = {page, word.at, word.value + (uint64_t)i};
        check_ok(passage_take(ctx, page, &passage));
        check_ok(begin_wait(ctx, &next, &passage, NULL));
        cr_assert_not(deferred_is_quiet());
        point_store(&next);
        passage_cancel(&passage);
        wait_until_idle();
    }
    point_page_unreference(page, false);
    connection_unreference(end);
    core_pair_close(&pair);
    cr_assert_not(monitor_runs(MONITOR_PEERS), "it was dismissed");
}

Test(watch, the_end_of_the_context_lets_every_stream_go) {
    core_pair pair = {0};
    connection *end;
    gpuipc_context *made = core_context_new();
    context *second;
    check_ok(context_acquire(made, &second));
    core_pair_open(&pair, core_context, core_context);
    check_ok(connection_acquire(pair.client, &end));
    point at;
    point_word passage;
    point_page *page = page_make_in(second, &end->peer, &at);
    const point_word word = point_ready_word(&at);
    check_ok(passage_take(second, page, &passage));
    check_ok(begin_wait(second, &word, &passage, NULL));
    passage_cancel(&passage); /* there is no stream in this test */
    point_page_unreference(page, false);
    check_ok(gpuipc_context_destroy(made));
    context_unreference(second);
    connection_unreference(end);
    core_pair_close(&pair);
}

Test(watch, a_dead_process_lets_the_stream_go_and_the_buffer_is_lost) {
    point at;
    point_page *page = page_make(&dead, &at);
    const point_word word = point_ready_word(&at);
    const point none = {NULL, 0, 0};
    point_word passage;
    import_record *of;
    check_ok(import_record_new(&none, false, &of));
    check_ok(passage_take(ctx, page, &passage));
    check_ok(begin_wait(ctx, &word, &passage, of));
    wait_until_reached(&word);
    cr_assert(atomic_load(&of->is_lost));
    passage_cancel(&passage);
    wait_until_idle();
    import_record_unreference(of, false);
    point_page_unreference(page, false);
}

/* Its last deed counts. */
Test(watch, a_word_that_came_before_the_end_is_no_loss) {
    point at;
    point_page *page = page_make(&dead, &at);
    const point_word word = point_ready_word(&at);
    const point none = {NULL, 0, 0};
    point_word passage;
    import_record *of;
    check_ok(import_record_new(&none, false, &of));
    check_ok(passage_take(ctx, page, &passage));
    point_store(&word);
    check_ok(begin_wait(ctx, &word, &passage, of));
    watch_sweep(ctx); /* has looked */
    cr_assert_not(atomic_load(&of->is_lost));
    passage_cancel(&passage);
    wait_until_idle();
    cr_assert_not(atomic_load(&of->is_lost));
    import_record_unreference(of, false);
    point_page_unreference(page, false);
}

/* Before the stream came to it, the peer took back what it had written; and somebody who has the page from it
 * does so again. */
Test(watch, a_word_that_is_taken_back_is_stored_again) {
    point at;
    point_page *page = page_make(&dead, &at);
    const point_word word = point_ready_word(&at);
    const point_word taken_back = {page, word.at, 0};
    point_word passage;
    check_ok(passage_take(ctx, page, &passage));
    point_store(&word);
    check_ok(begin_wait(ctx, &word, &passage, NULL));
    for (int i = 0; i < 2; i++) {
        watch_sweep(ctx); /* has seen the word */
        cr_assert_not(deferred_is_quiet());
        point_store(&taken_back);
        wait_until_reached(&word);
    }
    passage_cancel(&passage);
    wait_until_idle();
    point_page_unreference(page, false);
}

#define MANY_WAITS 1000u /* more than one look looks at */

/* Waits for words that nobody has written, the first of the page's. */
static void begin_waits(point_page *page, point_word *passages, uint32_t first, uint32_t end) {
    for (uint32_t i = first; i < end; i++) {
        const point_word word = {page, i, 1};
        check_ok(passage_take(ctx, page, &passages[i]));
        check_ok(begin_wait(ctx, &word, &passages[i], NULL));
    }
}

static uint32_t count_reached(point_page *page) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < MANY_WAITS; i++) {
        const point_word word = {page, i, 1};
        count += point_is_reached(&word);
    }
    return count;
}

static void end_waits(const point_word *passages) {
    for (uint32_t i = 0; i < MANY_WAITS; i++) {
        passage_cancel(&passages[i]);
    }
    wait_until_idle();
}

/* However many wait: in the look that sees the end, and later ones as they are added. */
Test(watch, the_end_of_a_process_lets_all_streams_go_at_once) {
    static point_word passages[MANY_WAITS];
    point at;
    point_page *page = page_make(&dead, &at);
    begin_waits(page, passages, 0, MANY_WAITS / 2);
    watch_sweep(ctx);
    cr_assert_eq(count_reached(page), MANY_WAITS / 2);
    begin_waits(page, passages, MANY_WAITS / 2, MANY_WAITS);
    cr_assert_eq(count_reached(page), MANY_WAITS);
    end_waits(passages);
    point_page_unreference(page, false);
}

/* What a living one has closed without having taken the page in, and what it had taken in. */
static void check_closing(bool has_taken) {
    static point_word passages[MANY_WAITS];
    core_pair pair;
    connection *end;
    point_page *page;
    point_page *theirs = NULL;
    core_pair_open(&pair, core_context, core_context);
    check_ok(connection_acquire(pair.client, &end));
    check_ok(point_page_create(ctx, end->other_end, &page));
    if (has_taken) {
        check_ok(point_page_open(ctx, end->other_end, page->handle, &theirs));
    }
    begin_waits(page, passages, 0, MANY_WAITS / 2);
    watch_sweep(ctx);
    cr_assert_eq(count_reached(page), 0);
    check_ok(gpuipc_connection_close(pair.server));
    pair.server = NULL;
    watch_sweep(ctx);
    cr_assert_eq(count_reached(page), has_taken ? 0 : MANY_WAITS / 2);
    begin_waits(page, passages, MANY_WAITS / 2, MANY_WAITS);
    cr_assert_eq(count_reached(page), has_taken ? 0 : MANY_WAITS);
    end_waits(passages);
    point_page_unreference(theirs, false);
    point_page_unreference(page, false);
    connection_unreference(end);
    core_pair_close(&pair);
}

Test(watch, who_closes_without_a_page_lets_its_streams_go) {
    check_closing(false);
}

Test(watch, who_closes_and_has_a_page_still_writes_it) {
    check_closing(true);
}

/* Where nobody can say whether the process lives, the end of the connection is its end. */
Test(watch, a_connection_that_ended_counts_where_the_process_is_not_known) {
    point at;
    const os_peer peer = {.process_id = os_process_id(),
                          .process = {-1}}; /* a number proves nothing */
    point_page *page = page_make(&peer, &at);
    const point_word word = point_ready_word(&at);
    point_word passage;
    check_ok(passage_take(ctx, page, &passage));
    check_ok(begin_wait(ctx, &word, &passage, NULL));
    wait_until_reached(&word);
    passage_cancel(&passage);
    wait_until_idle();
    point_page_unreference(page, false);
}

/* ---- a context whose streams do not pass -------------------------------------------------------------- */

/* Of the context that ends. */
static struct {
    context *of;
    point_word passage;
    point_page *pages[2];
    point_word words[2];
    bool is_told;
} stuck;

/* The last word of a context that ends. What it leaves behind is brought to an end here, as the stream would. */
static void let_pass(void *user_data, gpuipc_log_level level, const char *sentence) {
    (void)user_data;
    if (level != GPUIPC_LOG_WARNING || strstr(sentence, "left to the end of the process") == NULL) {
        return;
    }
    stuck.is_told = true;
    cr_assert(deferred_is_quiet(), "no stream is said to wait any more");
    passage_cancel(&stuck.passage);
    for (size_t i = 0; i < 2; i++) {
        cr_assert(point_is_reached(&stuck.words[i]), "the stream goes on");
        point_page_unreference(stuck.pages[i], false); /* what the watch has left, */
        point_page_unreference(stuck.pages[i], false); /* and what the test has */
    }
    (void)deferred_run(stuck.of->deferred);
}

/* The stream may still touch the pages, of a wait that was made and of one in a graph: they stay where they are. The end of
 * the context waits for a second. */
Test(watch, what_a_stream_has_not_passed_stays_at_the_end_of_the_context) {
    gpuipc_context_config config = core_context_config();
    gpuipc_context *second = NULL;
    point points[2];
    config.log = let_pass;
    check_ok(gpuipc_context_create(&config, &second));
    check_ok(context_acquire(second, &stuck.of));
    for (size_t i = 0; i < 2; i++) {
        stuck.pages[i] = page_make_in(stuck.of, &dead, &points[i]);
        stuck.words[i] = point_ready_word(&points[i]);
    }
    check_ok(passage_take(stuck.of, stuck.pages[0], &stuck.passage));
    check_ok(begin_wait(stuck.of, &stuck.words[0], &stuck.passage, NULL));
    atomic_store(&stuck.pages[1]->is_captured, true);
    check_ok(watch_add_slot(stuck.of, &stuck.words[1], 3));
    check_ok(watch_add_store(stuck.of, &stuck.words[0], &stuck.passage)); /* of one that writes */
    cr_assert_not(deferred_is_quiet());
    check_ok(gpuipc_context_destroy(second));
    context_unreference(stuck.of);
    cr_assert(stuck.is_told);
}
