/* SPDX-License-Identifier: MIT */
/** @file Hand-overs in numbers: every one is returned by its own release, however many are out, and what is waited for is
 *  waited for once. Both ends are in this process. */
#include <stdatomic.h>
#include <stdlib.h>

#include "stream_gate.h"

static core_pair pair;
static gpuipc_buffer *sent;
static CUstream producer;
static gpuipc_buffer **kept;
static uint32_t kept_count;

/* Of a page that two processes share: what was the most that could be told apart. */
#define PAGE_POINTS 4095
#define MANY        (PAGE_POINTS + 64)

static void begin(void) {
    core_start();
    stream_gate_make();
    producer = stream_gate_stream();
    core_pair_open(&pair, core_context, core_context);
    sent = core_buffer(core_unit, 0);
    kept = calloc(MANY, sizeof(*kept));
    cr_assert_not_null(kept);
}

static void release_kept(void) {
    while (kept_count > 0) {
        (void)gpuipc_buffer_release(kept[--kept_count]);
    }
}

static void finish(void) {
    stream_gate_open(); /* also after a failure */
    release_kept();
    free(kept);
    (void)gpuipc_buffer_release(sent);
    core_pair_close(&pair);
    stream_gate_stream_end(producer);
    stream_gate_end();
    core_finish();
}

TestSuite(returns, .init = begin, .fini = finish, .timeout = 60);

static uint32_t unreturned(void) {
    return core_info(sent).lent_count;
}

/* The same buffer so many times. */
typedef struct message {
    gpuipc_buffer **buffers;
    uint32_t count;
} message;

static gpuipc_status send_message(void *argument) {
    const message *self = argument;
    const gpuipc_outgoing outgoing = {.struct_size = sizeof(outgoing),
                                      .buffers = self->buffers,
                                      .buffer_count = self->count,
                                      .flags = GPUIPC_SEND_READY};
    return gpuipc_connection_send(pair.client, &outgoing, SOON_MS);
}

/* Hands the buffer over so many times in one message, and keeps what was opened. A large message is more than the
 * connection holds. */
static void hand_over(uint32_t count) {
    message one = {calloc(count, sizeof(gpuipc_buffer *)), count};
    core_waiter sender;
    cr_assert_not_null(one.buffers);
    cr_assert_leq(kept_count + count, MANY);
    for (uint32_t i = 0; i < count; i++) {
        one.buffers[i] = sent;
    }
    core_waiter_begin(&sender, send_message, &one);
    check_ok(core_receive(pair.server, kept + kept_count, count));
    check_ok(core_waiter_end(&sender));
    kept_count += count;
    free(one.buffers);
}

static void hand_over_one(void) {
    message one = {&sent, 1};
    check_ok(send_message(&one));
    check_ok(core_receive(pair.server, kept + kept_count, 1));
    kept_count++;
}

/* ---- more than a page has ------------------------------------------------------------------ */

static void check_message_returns(uint32_t count) {
    hand_over(count);
    cr_assert_eq(unreturned(), count);
    release_kept();
    check_ok(gpuipc_buffer_await_returns(sent, 5000));
    cr_assert_eq(unreturned(), 0);
}

Test(returns, of_a_message_of_as_many_as_a_page_has) {
    check_message_returns(PAGE_POINTS);
}

Test(returns, of_a_message_of_one_more_than_a_page_has) {
    check_message_returns(PAGE_POINTS + 1);
}

Test(returns, of_one_beside_as_many_as_a_page_has) {
    hand_over(PAGE_POINTS);
    hand_over_one();
    cr_assert_eq(unreturned(), PAGE_POINTS + 1);
    check_ok(gpuipc_buffer_release(kept[--kept_count]));
    cr_assert_eq(unreturned(), PAGE_POINTS, "the one that came last is not returned");
    release_kept();
    check_ok(gpuipc_buffer_await_returns(sent, 5000));
}

/* Few are free, and as many again and again. */
Test(returns, of_many_one_after_the_other_beside_others_that_stay) {
    enum {
        FREE = 45,
        ROUNDS = 10000
    };
    hand_over(PAGE_POINTS - FREE);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        hand_over_one();
        check_ok(gpuipc_buffer_release(kept[--kept_count]));
    }
    cr_assert_eq(unreturned(), PAGE_POINTS - FREE, "%u of %d stay listed",
                 unreturned() - (PAGE_POINTS - FREE), ROUNDS);
}

/* ---- waited for by a stream ------------------------------------------------------------------ */

/* A call that must not wait, in a thread of its own. */
typedef struct prompt_call {
    gpuipc_buffer *of;
    CUstream stream;
    atomic_bool is_over;
} prompt_call;

static gpuipc_status await_async(void *argument) {
    prompt_call *self = argument;
    const gpuipc_status status = gpuipc_buffer_await_returns_async(self->of, self->stream);
    atomic_store(&self->is_over, true);
    return status;
}

static void check_does_not_wait(gpuipc_buffer *of, CUstream stream) {
    const os_deadline deadline = os_deadline_after(SOON_MS);
    prompt_call call = {.of = of, .stream = stream};
    core_waiter thread;
    core_waiter_begin(&thread, await_async, &call);
    while (!atomic_load(&call.is_over)) {
        cr_assert_not(os_deadline_passed(deadline), "the call still waits, with %u hand-overs out",
                      kept_count);
        os_sleep_ms(1);
    }
    check_ok(core_waiter_end(&thread));
}

/* A producer's loop over one buffer whose consumer keeps all: the stream waits for each hand-over once. */
Test(returns, are_waited_for_once_by_a_stream_that_is_told_again_and_again) {
    enum {
        MESSAGES = 300
    };
    uint64_t waits = 0;
    if (core_is_emulated) {
        core_set_failures("");
    }
    for (int i = 0; i < MESSAGES; i++) {
        hand_over_one();
        check_does_not_wait(sent, producer);
    }
    if (core_is_emulated) {
        waits = core_calls("cuStreamWaitValue64") + core_calls("cuStreamBatchMemOp");
        cr_assert_leq(waits, 2 * MESSAGES, "%llu waits for %d hand-overs",
                      (unsigned long long)waits, MESSAGES);
    }
    CUstream second = stream_gate_stream();
    check_does_not_wait(sent, second); /* what one stream waits for is no matter of another's */
    for (uint32_t i = kept_count; i > 1; i--) {
        check_ok(gpuipc_buffer_release(kept[--kept_count]));
    }
    cr_assert_eq(unreturned(), 1);
    stream_gate_check_waits(producer); /* for the first one, which was said first */
    stream_gate_check_waits(second);
    release_kept();
    stream_gate_synchronize(producer);
    stream_gate_synchronize(second);
    stream_gate_stream_end(second);
}

/* The same with streams in turn: each waits for each hand-over once. */
Test(returns, are_waited_for_once_by_each_of_streams_that_are_told_in_turn) {
    enum {
        MESSAGES = 200,
        STREAMS = 3
    };
    CUstream streams[STREAMS] = {producer, stream_gate_stream(), stream_gate_stream()};
    if (core_is_emulated) {
        core_set_failures("");
    }
    for (int i = 0; i < MESSAGES; i++) {
        hand_over_one();
        for (int k = 0; k < STREAMS; k++) {
            check_does_not_wait(sent, streams[k]);
        }
    }
    if (core_is_emulated) {
        const uint64_t waits = core_calls("cuStreamWaitValue64") + core_calls("cuStreamBatchMemOp");
        cr_assert_leq(waits, 2 * STREAMS * MESSAGES, "%llu waits", (unsigned long long)waits);
    }
    for (int k = 0; k < STREAMS; k++) {
        stream_gate_check_waits(streams[k]);
    }
    release_kept();
    for (int k = 0; k < STREAMS; k++) {
        stream_gate_synchronize(streams[k]);
    }
    stream_gate_stream_end(streams[1]);
    stream_gate_stream_end(streams[2]);
}

Test(returns, are_waited_for_by_a_stream_however_many_are_out) {
    hand_over(PAGE_POINTS + 1);
    check_does_not_wait(sent, producer);
    for (uint32_t i = kept_count; i > 1; i--) {
        check_ok(gpuipc_buffer_release(kept[--kept_count]));
    }
    stream_gate_check_waits(producer);
    release_kept();
    stream_gate_synchronize(producer);
}
