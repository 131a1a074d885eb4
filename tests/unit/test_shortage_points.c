/* SPDX-License-Identifier: MIT */
/** @file Marks, loans, returns and drops, while each allocation, and then each call of the driver, fails in turn. */
#include <string.h>

#include "../fault/allocation.h"
#include "cuda/context.h"
#include "graphs.h"
#include "shortage_case.h"
#include "stream_gate.h"
#include "sync/deferred.h"
#include "sync/point.h"
#include "sync/trail.h"
#include "sync/watch.h"

static core_pair pair;
static gpuipc_buffer *sent;
static gpuipc_buffer *opened;
static CUstream produces;
static CUstream consumes;

static void start(void) {
    core_start();
    core_need_emulated();
    cr_assert(graphs_find(core_driver()));
    stream_gate_make();
    produces = stream_gate_stream();
    consumes = stream_gate_stream();
}

static void finish(void) {
    stream_gate_stream_end(produces);
    stream_gate_stream_end(consumes);
    stream_gate_end();
    core_finish();
}

TestSuite(shortage_points, .init = start, .fini = finish, .timeout = 120);

static void hand_over(void) {
    core_pair_open(&pair, core_context, core_context);
    sent = core_buffer(core_unit, 0);
    check_ok(core_send(pair.client, &sent, 1));
    check_ok(core_receive(pair.server, &opened, 1));
}

/* Who releases a buffer gives all of it back, so that no stream waits any more. */
static void release_both(void) {
    check_ok(gpuipc_buffer_release(opened));
    opened = NULL;
    stream_gate_synchronize(produces);
    stream_gate_synchronize(consumes);
    check_ok(gpuipc_buffer_release(sent));
    core_pair_close(&pair);
}

/* ---- marks ------------------------------------------------------------------------------------- */

static gpuipc_status mark_and_await(void) {
    gpuipc_mark made;
    gpuipc_status status = gpuipc_buffer_mark(sent, produces, &made);
    if (status == GPUIPC_OK) {
        status = gpuipc_buffer_await_mark_async(opened, &made, consumes);
    }
    return status == GPUIPC_OK ? gpuipc_buffer_await_mark(opened, &made, SOON_MS) : status;
}

Test(shortage_points, a_mark) {
    const shortage_operation what = {hand_over, mark_and_await, release_both};
    shortage_in_turn(&what);
}

/* A mark of a stream that is captured, and a wait for it that is. */
static void hand_over_and_capture(void) {
    hand_over();
    cr_assert(graphs_begin(produces, CU_STREAM_CAPTURE_MODE_RELAXED));
    cr_assert(graphs_begin(consumes, CU_STREAM_CAPTURE_MODE_RELAXED));
}

static gpuipc_status capture_mark_and_await(void) {
    gpuipc_mark made;
    gpuipc_status status = gpuipc_buffer_mark(sent, produces, &made);
    return status == GPUIPC_OK ? gpuipc_buffer_await_mark_async(opened, &made, consumes) : status;
}

static void end_captures(void) {
    captured graphs[2];
    cr_assert(graphs_end(produces, &graphs[0]), "the capture was made invalid");
    cr_assert(graphs_end(consumes, &graphs[1]), "the capture was made invalid");
    cr_assert(graphs_destroy(&graphs[0]));
    cr_assert(graphs_destroy(&graphs[1]));
    release_both();
}

Test(shortage_points, a_mark_that_is_captured) {
    const shortage_operation what = {hand_over_and_capture, capture_mark_and_await, end_captures};
    shortage_in_turn(&what);
}

/* Streams of a CUDA context that the program made itself: whose device they are of is asked for, which may fail. */
static CUcontext own;
static CUstream own_stream;

static void enter_own(void) {
    void *symbol = os_library_symbol(core_driver()->library, "cuCtxCreate_v2");
    CUresult (*create)(CUcontext *, unsigned, CUdevice);
    cr_assert_not_null(symbol);
    memcpy(&create, &symbol, sizeof(create));
    cr_assert_eq(create(&own, 0, 0), CUDA_SUCCESS);
    cr_assert_eq(core_driver()->cuStreamCreate(&own_stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
}

static void leave_own(void) {
    void *symbol = os_library_symbol(core_driver()->library, "cuCtxDestroy_v2");
    CUresult (*destroy)(CUcontext);
    cr_assert_not_null(symbol);
    memcpy(&destroy, &symbol, sizeof(destroy));
    cr_assert_eq(core_driver()->cuStreamSynchronize(own_stream), CUDA_SUCCESS);
    cr_assert_eq(destroy(own), CUDA_SUCCESS);
}

static gpuipc_status mark_and_await_in_own(void) {
    gpuipc_mark made;
    gpuipc_status status = gpuipc_buffer_mark(sent, own_stream, &made);
    return status == GPUIPC_OK ? gpuipc_buffer_await_mark_async(opened, &made, own_stream) : status;
}

static void hand_over_in_own(void) {
    hand_over();
    enter_own();
}

static void release_both_of_own(void) {
    leave_own();
    release_both();
}

Test(shortage_points, a_mark_in_a_context_of_the_programs_own) {
    const shortage_operation what = {hand_over_in_own, mark_and_await_in_own, release_both_of_own};
    shortage_in_turn(&what);
}

/* ---- loans ------------------------------------------------------------------------------------- */

static gpuipc_status lend_take_and_return(void) {
    gpuipc_mark loan;
    gpuipc_status status;
    if ((status = gpuipc_buffer_lend(sent, produces, &loan)) != GPUIPC_OK ||
        (status = gpuipc_buffer_take_loan(opened, &loan)) != GPUIPC_OK ||
        (status = gpuipc_buffer_await_loan_async(sent, &loan, produces, 0)) != GPUIPC_OK) {
        return status;
    }
    status = gpuipc_buffer_return_loan_async(opened, &loan, consumes);
    return status == GPUIPC_OK ? gpuipc_buffer_await_loan(sent, &loan, SOON_MS) : status;
}

Test(shortage_points, a_loan) {
    const shortage_operation what = {hand_over, lend_take_and_return, release_both};
    shortage_in_turn(&what);
}

static gpuipc_status lend_what_is_ready(void) {
    gpuipc_mark loan;
    gpuipc_status status = gpuipc_buffer_lend_ready(sent, &loan);
    if (status == GPUIPC_OK) {
        status = gpuipc_buffer_take_loan(opened, &loan);
    }
    return status == GPUIPC_OK ? gpuipc_buffer_return_loan(opened, &loan) : status;
}

Test(shortage_points, a_loan_of_what_is_ready) {
    const shortage_operation what = {hand_over, lend_what_is_ready, release_both};
    shortage_of_memory(&what);
}

/* ---- returns ----------------------------------------------------------------------------------- */

/* A stream waits for what is lent still. */
static gpuipc_status await_returns(void) {
    intptr_t handle;
    gpuipc_status status = gpuipc_buffer_get_returns_wait_handle(sent, &handle);
    if (status == GPUIPC_OK) {
        status = gpuipc_buffer_return_async(opened, consumes);
    }
    return status == GPUIPC_OK ? gpuipc_buffer_await_returns_async(sent, produces) : status;
}

Test(shortage_points, returns_that_streams_make_and_await) {
    const shortage_operation what = {hand_over, await_returns, release_both};
    shortage_in_turn(&what);
}

/* More words than one, which take memory. */
static gpuipc_buffer *opened_again;

static void hand_over_twice(void) {
    hand_over();
    check_ok(core_send(pair.client, &sent, 1));
    check_ok(core_receive(pair.server, &opened_again, 1));
}

static gpuipc_status await_both(void) {
    return gpuipc_buffer_await_returns_async(sent, produces);
}

static void release_all(void) {
    check_ok(gpuipc_buffer_release(opened_again));
    opened_again = NULL;
    release_both();
}

Test(shortage_points, returns_of_several_that_a_stream_awaits) {
    const shortage_operation what = {hand_over_twice, await_both, release_all};
    shortage_in_turn(&what);
}

/* The buffer is released whatever fails, at the latest when the stream is waited for. */
static gpuipc_status release_behind(void) {
    gpuipc_status status = gpuipc_buffer_retain(opened);
    if (status == GPUIPC_OK) {
        status = gpuipc_buffer_release_async(opened, consumes);
        if (status != GPUIPC_OK) {
            const gpuipc_error why = *gpuipc_error_get();
            check_ok(gpuipc_buffer_release(opened));
            return why.status;
        }
    }
    return status;
}

Test(shortage_points, a_release_behind_a_stream) {
    const shortage_operation what = {hand_over, release_behind, release_both};
    shortage_of_memory(&what);
}

/* ---- messages behind streams that are not done ---------------------------------------------------- */

static gpuipc_buffer *late[2];
static gpuipc_buffer *came[2];

static void open_behind_a_gate(void) {
    core_pair_open(&pair, core_context, core_context);
    late[0] = core_buffer(core_unit, 0);
    late[1] = core_buffer(core_unit, 0);
    stream_gate_close(produces);
}

static gpuipc_status send_late(void) {
    const gpuipc_outgoing message = {.struct_size = sizeof(message),
                                     .buffers = late,
                                     .buffer_count = 2,
                                     .flags = GPUIPC_SEND_ASYNC,
                                     .stream = produces};
    return gpuipc_connection_send(pair.client, &message, SOON_MS);
}

static void open_and_send_late(void) {
    open_behind_a_gate();
    check_ok(send_late());
}

static gpuipc_status receive_late(void) {
    gpuipc_incoming message = {.struct_size = sizeof(message),
                               .buffers = came,
                               .buffer_capacity = 2,
                               .flags = GPUIPC_RECEIVE_ASYNC,
                               .stream = consumes};
    return gpuipc_connection_receive(pair.server, &message, SOON_MS);
}

static void end_of_late(void) {
    stream_gate_open();
    stream_gate_synchronize(produces);
    stream_gate_synchronize(consumes);
    for (size_t i = 0; i < 2; i++) {
        check_ok(gpuipc_buffer_release(came[i]));
        check_ok(gpuipc_buffer_release(late[i]));
        came[i] = NULL;
    }
    core_pair_close(&pair);
}

Test(shortage_points, a_message_behind_a_stream_that_is_not_done) {
    const shortage_operation what = {open_behind_a_gate, send_late, end_of_late};
    shortage_in_turn(&what);
}

Test(shortage_points, a_message_that_is_not_ready_before_a_stream) {
    const shortage_operation what = {open_and_send_late, receive_late, end_of_late};
    shortage_in_turn(&what);
}

/* ---- more buffers than fit a call's own room -------------------------------------------------------- */

#define MANY 40u

static gpuipc_buffer *many[MANY];

static void open_and_send_many(void) {
    core_pair_open(&pair, core_context, core_context);
    sent = core_buffer(core_unit, 0);
    for (size_t i = 0; i < MANY; i++) {
        many[i] = sent;
    }
    check_ok(core_send(pair.client, many, MANY));
    memset(many, 0, sizeof(many));
}

static gpuipc_status receive_many(void) {
    return core_receive(pair.server, many, MANY);
}

static void end_of_many(void) {
    for (size_t i = 0; i < MANY; i++) {
        check_ok(gpuipc_buffer_release(many[i]));
        many[i] = NULL;
    }
    check_ok(gpuipc_buffer_release(sent));
    core_pair_close(&pair);
}

Test(shortage_points, a_message_of_many_buffers) {
    const shortage_operation what = {open_and_send_many, receive_many, end_of_many};
    shortage_of_memory(&what);
}

/* ---- the last word of a page ------------------------------------------------------------------------ */

enum {
    PASSAGES_OF_PAGE = POINT_PAGE_BYTES / sizeof(uint64_t)
};

/* Three words are taken at a time, of which any may need another page: then those before it are given back. All ways to
 * meet the end of a page are tried: the first time there is none, and later pages have fewer words left. */
Test(shortage_points, words_of_several_pages_that_do_not_fit) {
    static point_word taken[4 * PASSAGES_OF_PAGE];
    size_t count = 0;
    point_page *pages[3];
    context *ctx;
    check_ok(context_acquire(core_context, &ctx));
    for (size_t i = 0; i < 3; i++) {
        check_ok(point_page_create(ctx, NULL, &pages[i]));
    }
    const point_word words[] = {{pages[0], 1, 1}, {pages[1], 1, 1}, {pages[2], 1, 1}};
    for (unsigned refused = 0; refused < 6; refused++) {
        int64_t live;
        gpuipc_status status = GPUIPC_OK;
        while (status == GPUIPC_OK) {
            cr_assert_lt(count + 8, sizeof(taken) / sizeof(taken[0]));
            allocation_watch(1);
            status = point_write_begin(ctx, words, 3, &taken[count]);
            (void)allocation_unwatch(&live);
            count += status == GPUIPC_OK;
        }
        check_refused(GPUIPC_ERR_OUT_OF_MEMORY, "", status);
        check_ok(point_write_begin(ctx, words, 3, &taken[count++]));
        for (unsigned i = 0; i < refused / 2; i++) {
            check_ok(point_write_begin(ctx, words, 1, &taken[count++]));
        }
    }
    for (size_t i = 0; i < count; i++) {
        passage_cancel(&taken[i]);
    }
    for (size_t i = 0; i < 3; i++) {
        point_page_unreference(pages[i], false);
    }
    context_unreference(ctx);
}

/* ---- a stream that is to wait for a slot ------------------------------------------------------------ */

static context *inside;
static point_page *page;

static void make_page(void) {
    const os_peer peer = {.process_id = 0x3FFFFFFF, .process = {-1}};
    point_peer *other;
    check_ok(context_acquire(core_context, &inside));
    check_ok(point_peer_new(inside, &peer, NULL, &other));
    check_ok(point_page_create(inside, other, &page));
    check_ok(trail_new(inside, &page->trail));
    point_peer_unreference(other, false);
}

static gpuipc_status wait_for_slots(void) {
    const point_word word = {page, 1, 1};
    gpuipc_status status = GPUIPC_OK;
    for (uint32_t slot = 0; slot < 3 && status == GPUIPC_OK; slot++) {
        status = watch_add_slot(inside, &word, slot);
    }
    return status;
}

static void unreference_page(void) {
    watch_sweep(inside);
    cr_assert(deferred_is_quiet());
    point_page_unreference(page, false);
    context_unreference(inside);
}

Test(shortage_points, a_wait_for_a_slot) {
    const shortage_operation what = {make_page, wait_for_slots, unreference_page};
    shortage_of_memory(&what);
}
