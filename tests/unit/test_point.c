/* SPDX-License-Identifier: MIT */
/** @file Pages of points: words that two mappings share, points that are given out once, and what streams
 *  do with them. */
#include <stdlib.h>

#include "base/quota.h"
#include "core_fixture.h"
#include "message/connection.h"
#include "sync/deferred.h"
#include "sync/point.h"

static context *ctx;
static core_pair pair;
static connection *end_of_pair;
static point_peer *self_peer; /* this process, with a handle that tells that it lives */

static void begin(void) {
    core_start();
    check_ok(context_acquire(core_context, &ctx));
    core_pair_open(&pair, core_context, core_context);
    check_ok(connection_acquire(pair.client, &end_of_pair));
    self_peer = end_of_pair->other_end;
}

static void finish(void) {
    connection_unreference(end_of_pair);
    core_pair_close(&pair);
    context_unreference(ctx);
    core_finish();
}

/* Of the pages that may be used again: the number of a word. */
#define FAREWELL 4000u

TestSuite(point, .init = begin, .fini = finish, .timeout = 60);

/* A page and the other side's mapping of it. */
typedef struct both {
    point_page *mine;
    point_page *theirs;
} both;

static both pages_make(void) {
    both made;
    check_ok(point_page_create(ctx, self_peer, &made.mine));
    check_ok(point_page_open(ctx, self_peer, made.mine->handle, &made.theirs));
    return made;
}

static void pages_end(both *pages) {
    point_page_unreference(pages->theirs, false);
    point_page_unreference(pages->mine, false);
}

/* A word as the other side's mapping has it, or this one's. */
static bool is_reached(point_page *through, const point_word *word) {
    const point_word there = {through, word->at, word->value};
    return point_is_reached(&there);
}

static void store(point_page *through, const point_word *word) {
    const point_word there = {through, word->at, word->value};
    point_store(&there);
}

/* One that was never given out, here or there. */
static point next_point(point_page *page) {
    static uint64_t value;
    value += 2;
    return (point){page, (uint32_t)(value / 2 % POINT_COUNT), value};
}

Test(point, a_word_is_seen_through_both_mappings) {
    both pages = pages_make();
    point at;
    at = next_point(pages.mine);
    const point_word ready = point_ready_word(&at);
    const point_word returned = point_returned_word(&at);
    const point_word released = point_released_word(&at);
    cr_assert_not(is_reached(pages.theirs, &ready));
    store(pages.mine, &ready);
    cr_assert(is_reached(pages.theirs, &ready));
    cr_assert_not(is_reached(pages.mine, &returned));
    store(pages.theirs, &returned);
    cr_assert(is_reached(pages.mine, &returned));
    cr_assert_not(is_reached(pages.mine, &released));
    store(pages.theirs, &released);
    cr_assert(is_reached(pages.mine, &released));
    cr_assert(is_reached(pages.mine, &returned));
    pages_end(&pages);
}

/* As streams compare: cuda.h, CU_STREAM_WAIT_VALUE_GEQ. */
Test(point, words_are_compared_in_a_circle) {
    const struct {
        uint64_t word;
        uint64_t value;
        bool reached;
    } rows[] = {{0, 0, true},
                {1, 2, false},
                {2, 2, true},
                {3, 2, true},
                {1, UINT64_MAX, true},
                {UINT64_MAX, 1, false},
                {UINT64_C(1) << 63, 1, true},
                {(UINT64_C(1) << 63) + 1, 1, false}};
    both pages = pages_make();
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const point_word stored = {pages.mine, 5, rows[i].word};
        const point_word asked = {pages.mine, 5, rows[i].value};
        store(pages.mine, &stored);
        cr_assert_eq(is_reached(pages.theirs, &asked), rows[i].reached, "row %zu", i);
    }
    pages_end(&pages);
}

Test(point, what_nobody_imported_is_returned_with_the_connection) {
    both pages = pages_make();
    point kept;
    point other;
    kept = next_point(pages.mine);
    other = next_point(pages.mine);
    const point there = {pages.theirs, kept.index, kept.value};
    point_set_open(&there, true);
    point_page_return_rest(pages.theirs, false);
    const point_word of_kept = point_returned_word(&kept);
    const point_word of_other = point_released_word(&other);
    cr_assert_not(is_reached(pages.mine, &of_kept));
    cr_assert(is_reached(pages.mine, &of_other));
    point_set_open(&there, false);
    pages_end(&pages);
}

/* Its peer may give a point out again that was open at the first look. */
Test(point, what_is_given_out_again_after_the_first_look_is_returned_by_the_last) {
    both pages = pages_make();
    point given = next_point(pages.mine);
    const point there = {pages.theirs, given.index, given.value};
    const point_word closed = point_released_word(&there);
    point_set_open(&there, true);
    point_page_return_rest(pages.theirs, false);
    point_set_open(&there, false);
    point_raise(&closed);
    given.value += 2;
    const point_word returned = point_returned_word(&given);
    cr_assert_not(is_reached(pages.mine, &returned));
    point_page_return_rest(pages.theirs, true);
    cr_assert(is_reached(pages.mine, &returned));
    pages_end(&pages);
}

/* So much as the page says. What is given out later is returned by a later call. */
Test(point, what_was_never_given_out_is_not_touched) {
    const uint32_t given[] = {3, 5, 5};
    both pages = pages_make();
    for (size_t i = 0; i < sizeof(given) / sizeof(given[0]); i++) {
        point_page_give_out(pages.mine, given[i]);
        point_page_return_rest(pages.theirs, false);
        for (uint32_t index = 0; index < POINT_COUNT; index++) {
            const point at = {pages.mine, index, 2};
            const point_word released = point_released_word(&at);
            cr_assert_eq(is_reached(pages.mine, &released), index < given[i], "point %u", index);
        }
    }
    pages_end(&pages);
}

/* Who says that he has given out more than there are, or none, has all returned. */
Test(point, a_number_given_out_that_cannot_be_stands_for_all) {
    const uint32_t given[] = {0, POINT_COUNT + 1, UINT32_MAX};
    for (size_t i = 0; i < sizeof(given) / sizeof(given[0]); i++) {
        both pages = pages_make();
        const point last = {pages.mine, POINT_COUNT - 1, 2};
        const point_word released = point_released_word(&last);
        point_page_give_out(pages.mine, given[i]);
        point_page_return_rest(pages.theirs, false);
        cr_assert(is_reached(pages.mine, &released), "%u", given[i]);
        pages_end(&pages);
    }
}

Test(point, no_page_is_made_of_other_memory) {
    const uint64_t sizes[] = {4096, POINT_PAGE_BYTES * 2};
    point_page *page = NULL;
    os_handle handle;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        check_ok(os_memory_create("test", sizes[i], &handle));
        check_refused(GPUIPC_ERR_PROTOCOL, "bytes", point_page_open(ctx, self_peer, handle, &page));
        os_handle_close(&handle);
    }
    gpuipc_buffer *buffer = core_buffer(core_unit, 0);
    gpuipc_native_segment exported;
    gpuipc_native_layout layout = {.struct_size = sizeof(layout)};
    size_t count = 0;
    check_ok(gpuipc_native_export(buffer, &exported, 1, &layout, &count));
    check_ok(os_handle_adopt(exported.handle.value, &handle));
    check_status(GPUIPC_ERR_PROTOCOL, point_page_open(ctx, self_peer, handle, &page));
    os_handle_close(&handle);
    check_ok(gpuipc_buffer_release(buffer));
    cr_assert_null(page);
}

Test(point, waiting_on_the_host_has_an_end) {
    both pages = pages_make();
    atomic_bool interrupted;
    point at;
    atomic_init(&interrupted, false);
    at = next_point(pages.mine);
    const point_word ready = point_ready_word(&at);
    check_status(GPUIPC_ERR_TIMEOUT, point_await(&ready, 1, &interrupted, os_deadline_after(5)));
    atomic_store(&interrupted, true);
    check_status(GPUIPC_ERR_RELEASED, point_await(&ready, 1, &interrupted, os_deadline_after(-1)));
    store(pages.mine, &ready);
    check_ok(point_await(&ready, 1, &interrupted, os_deadline_after(0)));
    pages_end(&pages);
}

/* ---- streams ------------------------------------------------------------------------------- */

static gpuipc_status write_one(const point_word *word, point_word *out_passage) {
    device_scope scope;
    check_ok(device_enter(ctx, 0, &scope));
    gpuipc_status status = point_write_async(word, 1, NULL, out_passage);
    device_leave(&scope);
    return status;
}

static void stream_done(void) {
    device_scope scope;
    check_ok(device_enter(ctx, 0, &scope));
    cr_assert_eq(ctx->driver.cuStreamSynchronize(NULL), CUDA_SUCCESS);
    device_leave(&scope);
}

static void check_written(both *pages, const point_word *word, const point_word *passage) {
    stream_done();
    cr_assert(is_reached(pages->theirs, word));
    cr_assert(point_is_reached(passage));
}

Test(point, a_stream_writes_a_word) {
    both pages = pages_make();
    point at;
    point_word passage;
    at = next_point(pages.mine);
    const point_word word = point_ready_word(&at);
    check_ok(write_one(&word, &passage));
    check_written(&pages, &word, &passage);
    pages_end(&pages);
}

/* A stream waits for a word of the other side; in that stream's CUDA context from here on. */
static void begin_wait(both *pages, point_word *out_word, point_word *out_passage,
                       device_scope *out_scope) {
    const point at = next_point(pages->mine);
    *out_word = point_ready_word(&at);
    check_ok(device_enter(ctx, 0, out_scope));
    if (!point_has_stream_waits(ctx)) {
        device_leave(out_scope);
        pages_end(pages);
        cr_skip_test("the device has no 64-bit stream memory operations");
    }
    const point_word there = {pages->theirs, out_word->at, out_word->value};
    check_ok(passage_take(ctx, pages->theirs, out_passage));
    check_ok(point_submit_waits(ctx, &there, 1, NULL, out_passage, true));
}

Test(point, a_stream_waits_for_a_word) {
    both pages = pages_make();
    point_word word;
    point_word passage;
    device_scope scope;
    begin_wait(&pages, &word, &passage, &scope);
    cr_assert_eq(ctx->driver.cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
    cr_assert_not(point_is_reached(&passage));
    store(pages.mine, &word);
    cr_assert_eq(ctx->driver.cuStreamSynchronize(NULL), CUDA_SUCCESS);
    cr_assert(point_is_reached(&passage));
    device_leave(&scope);
    pages_end(&pages);
}

/* Neither a stream's write nor a stream's wait finds its memory gone. */
Test(point, a_page_stays_while_a_stream_may_touch_it) {
    both pages = pages_make();
    point_word word;
    point_word passage;
    device_scope scope;
    begin_wait(&pages, &word, &passage, &scope);
    point_page_unreference(pages.theirs, false);
    cr_assert_not(deferred_run(ctx->deferred));
    cr_assert_not_null(ctx->deferred->in_use.first);
    cr_assert_eq(ctx->driver.cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
    store(pages.mine, &word);
    cr_assert_eq(ctx->driver.cuStreamSynchronize(NULL), CUDA_SUCCESS);
    device_leave(&scope);
    point_page_unreference(pages.mine, false);
    cr_assert(deferred_run(ctx->deferred));
    cr_assert_null(ctx->deferred->in_use.first);
}

/* Registered memory goes to the next page, empty, as soon as no stream can touch it. */
Test(point, memory_of_a_dead_process_s_page_is_used_again_when_no_stream_touches_it) {
    const os_peer dead = {.process_id = 0x3FFFFFFF, .process = {-1}};
    point_peer *gone;
    point_page *pages[3];
    point_page *through;
    point_word passage;
    device_scope scope;
    check_ok(device_enter(ctx, 0, &scope));
    if (!point_has_stream_waits(ctx)) {
        device_leave(&scope);
        cr_skip_test("the device has no 64-bit stream memory operations");
    }
    check_ok(point_peer_new(ctx, &dead, NULL, &gone));
    check_ok(point_page_create_lasting(ctx, gone, FAREWELL, &pages[0]));
    check_ok(point_page_open(ctx, self_peer, pages[0]->handle, &through));
    const point at = next_point(pages[0]);
    const point_word word = point_ready_word(&at);
    const atomic_uint_least64_t *memory = pages[0]->words;
    check_ok(passage_take(ctx, pages[0], &passage));
    check_ok(point_submit_waits(ctx, &word, 1, NULL, &passage, true));
    point_page_unreference(pages[0], false);

    check_ok(point_page_create_lasting(ctx, gone, FAREWELL, &pages[1]));
    cr_assert_neq(pages[1]->words, memory, "a stream waits for a word of it");
    store(through, &word);
    cr_assert_eq(ctx->driver.cuStreamSynchronize(NULL), CUDA_SUCCESS);
    check_ok(point_page_create_lasting(ctx, gone, FAREWELL, &pages[2]));
    cr_assert_eq(pages[2]->words, memory);
    cr_assert_eq(pages[2]->device, 0);
    cr_assert_not(is_reached(through, &word), "the former page's words are gone");
    cr_assert(deferred_is_empty(ctx->deferred));
    device_leave(&scope);
    point_page_unreference(through, false);
    point_page_unreference(pages[1], false);
    point_page_unreference(pages[2], false);
    point_peer_unreference(gone, false);
    cr_assert(deferred_run(ctx->deferred));
    cr_assert(deferred_is_empty(ctx->deferred));
}

/* This process, by another number. */
static point_peer *living_as(uint64_t process_id) {
    os_peer living;
    point_peer *other;
    check_ok(os_peer_self(&living));
    living.process_id = process_id;
    check_ok(point_peer_new(ctx, &living, NULL, &other));
    return other;
}

static point_peer *living_other(void) {
    return living_as(0x3FFFFFFF);
}

/* A stream writes a word of it. */
static point_page *page_registered(point_peer *peer) {
    point_page *page;
    point_word passage;
    check_ok(point_page_create_lasting(ctx, peer, FAREWELL, &page));
    const point at = next_point(page);
    const point_word word = point_ready_word(&at);
    check_ok(write_one(&word, &passage));
    stream_done();
    return page;
}

/* Who lives may still write its last words, on its streams too. */
Test(point, memory_of_a_living_process_s_page_is_not_used_again) {
    point_peer *other = living_other();
    point_page *pages[2];
    pages[0] = page_registered(other);
    point_page_unreference(pages[0], false);
    cr_assert_not(deferred_is_empty(ctx->deferred), "it is registered");
    check_ok(point_page_create_lasting(ctx, other, FAREWELL, &pages[1]));
    cr_assert_neq(pages[1], pages[0]);
    cr_assert_eq(pages[1]->device, GPUIPC_DEVICE_NONE, "its memory is new");
    point_page_unreference(pages[1], false);
    point_peer_unreference(other, false);
    cr_assert(deferred_run(ctx->deferred));
}

static const atomic_uint_least64_t *next_memory(point_peer *peer) {
    point_page *page;
    check_ok(point_page_create_lasting(ctx, peer, FAREWELL, &page));
    const atomic_uint_least64_t *memory = page->words;
    point_page_unreference(page, false);
    return memory;
}

/* As its reader has it open. */
static point_page *open_with_farewell(const point_page *page) {
    point_page *through;
    check_ok(point_page_open(ctx, self_peer, page->handle, &through));
    through->farewell = FAREWELL;
    return through;
}

/* It binds nobody to say so, so that no other process gets it. */
Test(point, memory_of_a_living_process_s_page_is_its_own_again_when_it_touches_it_no_more) {
    point_peer *other = living_other();
    point_peer *third = living_as(0x3FFFFFFE);
    point_page *page = page_registered(other);
    point_page *through = open_with_farewell(page);
    const atomic_uint_least64_t *memory = page->words;
    point_page_unreference(page, false);
    cr_assert_neq(next_memory(other), memory, "it has it open");
    point_page_unreference(through, false);
    cr_assert_neq(next_memory(third), memory, "it is another process");
    cr_assert_eq(next_memory(other), memory);
    point_peer_unreference(third, false);
    point_peer_unreference(other, false);
    cr_assert(deferred_run(ctx->deferred));
    cr_assert(deferred_is_empty(ctx->deferred));
}

/* It may be any process of another PID namespace. */
Test(point, memory_of_a_page_goes_to_no_process_of_which_no_number_is_known) {
    point_peer *unknown = living_as(0);
    point_page *page = page_registered(unknown);
    point_page *through = open_with_farewell(page);
    const atomic_uint_least64_t *memory = page->words;
    point_page_unreference(page, false);
    point_page_unreference(through, false);
    cr_assert_neq(next_memory(unknown), memory);
    point_peer_unreference(unknown, false);
    cr_assert(deferred_run(ctx->deferred));
}

/* Its own memory waits to be unregistered, which may be late. */
Test(point, farewell_is_said_when_no_stream_touches_the_page) {
    point_peer *other = living_other();
    point_page *page = page_registered(other);
    both pages = {.mine = page, .theirs = open_with_farewell(page)};
    point_word word;
    point_word passage;
    device_scope scope;
    const atomic_uint_least64_t *memory = page->words;
    begin_wait(&pages, &word, &passage, &scope);
    point_page_unreference(pages.theirs, false);
    point_say_farewells(ctx);
    store(page, &word);
    point_page_unreference(page, false);
    cr_assert_eq(ctx->driver.cuStreamSynchronize(NULL), CUDA_SUCCESS);
    cr_assert_neq(next_memory(other), memory, "it has not been said yet");
    point_say_farewells(ctx);
    cr_assert_eq(next_memory(other), memory);
    cr_assert_eq(ctx->points->leaving.count, 0);
    device_leave(&scope);
    point_peer_unreference(other, false);
    cr_assert(deferred_run(ctx->deferred));
    cr_assert(deferred_is_empty(ctx->deferred));
}

/* It would wait for the end of this process. */
Test(point, a_page_of_this_process_keeps_no_descriptor) {
    point_page *page = page_registered(self_peer);
    point_page_unreference(page, false);
    cr_assert_eq(ctx->points->spares.count, 0);
    cr_assert_null(page->peer);
    cr_assert_not(os_handle_is_valid(page->handle));
    cr_assert_not(deferred_is_empty(ctx->deferred), "it is registered");
    cr_assert(deferred_run(ctx->deferred));
}

/* Each has two descriptors. */
Test(point, pages_that_wait_to_be_used_again_are_bounded) {
    enum {
        MANY = GPUIPC_CHANNEL_READERS_MAX + 8
    };
    point_peer *other = living_other();
    point_page *pages[MANY];
    for (int i = 0; i < MANY; i++) {
        pages[i] = page_registered(other);
    }
    for (int i = 0; i < MANY; i++) {
        point_page_unreference(pages[i], false);
    }
    cr_assert_eq(ctx->points->spares.count, GPUIPC_CHANNEL_READERS_MAX);
    cr_assert_eq(ctx->deferred->in_use.count, MANY);
    check_ok(
        point_page_create_lasting(ctx, other, FAREWELL, &pages[0])); /* looks at some of them */
    cr_assert_eq(ctx->points->spares.count, GPUIPC_CHANNEL_READERS_MAX);
    point_page_unreference(pages[0], false);
    point_peer_unreference(other, false);
    cr_assert(deferred_run(ctx->deferred));
    cr_assert_eq(ctx->points->spares.count, 0);
}

Test(point, calls_that_fail_leave_nothing_on_the_stream) {
    const char *const failures[] = {"cuStreamBatchMemOp:1=999",      "cuMemHostRegister:1=304",
                                    "cuMemHostGetDevicePointer:1=1", "cuMemHostRegister:2=304",
                                    "cuMemHostGetDevicePointer:2=1", "cuStreamBatchMemOp:1=801"};
    core_need_emulated();
    for (size_t i = 0; i < sizeof(failures) / sizeof(failures[0]); i++) {
        both pages = pages_make();
        point at;
        point_word passage;
        at = next_point(pages.mine);
        const point_word word = point_ready_word(&at);
        core_set_failures(failures[i]);
        gpuipc_status status = write_one(&word, &passage);
        core_set_failures("");
        /* the context's own page is registered once, and asked about */
        cr_assert(status == GPUIPC_ERR_CUDA || status == GPUIPC_ERR_NOT_SUPPORTED ||
                      status == GPUIPC_ERR_OS || status == GPUIPC_ERR_TOO_MANY_HANDLES ||
                      ((i == 3 || i == 4) && status == GPUIPC_OK),
                  "%s: %s", failures[i], gpuipc_status_name(status));
        check_ok(write_one(&word, &passage));
        check_written(&pages, &word, &passage);
        pages_end(&pages);
        (void)deferred_run(ctx->deferred);
        cr_assert_null(ctx->deferred->in_use.first, "%s", failures[i]);
    }
}

/* One more than goes to a stream in one call. */
Test(point, waits_that_fail_leave_nothing_on_the_stream) {
    enum {
        WORDS = 65
    };
    const char *const failures[] = {"cuMemHostRegister:1=304", "cuMemHostGetDevicePointer:1=1",
                                    "cuStreamBatchMemOp:1=801", "cuStreamBatchMemOp:2=801"};
    core_need_emulated();
    for (size_t i = 0; i < sizeof(failures) / sizeof(failures[0]); i++) {
        both pages = pages_make();
        point_word words[WORDS];
        point_word passage;
        device_scope scope;
        for (int k = 0; k < WORDS; k++) {
            point at = next_point(pages.mine);
            at.page = pages.theirs;
            words[k] = point_ready_word(&at);
        }
        check_ok(device_enter(ctx, 0, &scope));
        check_ok(passage_take(ctx, pages.theirs, &passage));
        core_set_failures(failures[i]);
        gpuipc_status status = point_submit_waits(ctx, words, WORDS, NULL, &passage, true);
        core_set_failures("");
        cr_assert_neq(status, GPUIPC_OK, "%s", failures[i]);
        cr_assert_eq(ctx->driver.cuStreamQuery(NULL), CUDA_SUCCESS, "%s", failures[i]);
        cr_assert(point_is_reached(&passage));
        device_leave(&scope);
        pages_end(&pages);
        (void)deferred_run(ctx->deferred);
        cr_assert_null(ctx->deferred->in_use.first, "%s", failures[i]);
    }
}

/* Each stream that is given something has a word to write: they are bounded, and used again. */
Test(point, as_many_words_of_streams_as_there_may_be) {
    enum {
        MOST = POINT_PAGES_MAX * (POINT_PAGE_BYTES / sizeof(uint64_t))
    };
    point_word *taken = malloc((MOST + 1u) * sizeof(*taken));
    size_t count = 0;
    gpuipc_status status;
    cr_assert_not_null(taken);
    while ((status = passage_take(ctx, NULL, &taken[count])) == GPUIPC_OK) {
        count++;
        cr_assert_leq(count, MOST);
    }
    check_refused(GPUIPC_ERR_LIMIT, "let them", status);
    cr_assert_eq(count, MOST);
    for (size_t i = 0; i < count; i++) {
        passage_cancel(&taken[i]);
    }
    for (size_t i = 0; i < 3; i++) {
        check_ok(passage_take(ctx, NULL, &taken[0]));
        passage_cancel(&taken[0]);
    }
    free(taken);
}

/* As it counts against the peer, whoever has made it. */
Test(point, a_page_for_a_peer_that_has_too_much_is_refused) {
    const os_peer whose = {.process_id = 1, .process = {-1}, .user = "1000"};
    const quota_amount little = {{100, 100, 100, 100}};
    point_peer *peer;
    point_page *page = NULL;
    quota_pretend(&little);
    check_ok(point_peer_new(ctx, &whose, NULL, &peer));
    check_refused(GPUIPC_ERR_LIMIT, "user 1000", point_page_create(ctx, peer, &page));
    cr_assert_null(page);
    point_peer_unreference(peer, false);
    quota_pretend(NULL);
}

Test(point, the_first_word_that_is_late_ends_the_wait_for_all) {
    both pages = pages_make();
    const point_word words[] = {{pages.mine, 3, 1}, {pages.mine, 4, 1}};
    check_status(GPUIPC_ERR_TIMEOUT, point_await(words, 2, NULL, os_deadline_after(0)));
    point_store(&words[0]);
    check_status(GPUIPC_ERR_TIMEOUT, point_await(words, 2, NULL, os_deadline_after(0)));
    point_store(&words[1]);
    check_ok(point_await(words, 2, NULL, os_deadline_after(0)));
    pages_end(&pages);
}
