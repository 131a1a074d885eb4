/* SPDX-License-Identifier: MIT */
/** @file A reader that writes what it likes into its page: it harms itself, and nobody else. */
#include "channel/subscription.h"
#include "channel_case.h"

TestSuite(channel_hostile, .init = channel_start, .fini = channel_finish, .timeout = 100);

typedef struct scribbler {
    point_page *page;
    atomic_bool ends;
    uint64_t count;
} scribbler;

/* Words at random, and more often those that matter with values that might be believed. */
static gpuipc_status scribble(void *argument) {
    scribbler *self = argument;
    static const uint32_t areas[] = {CHANNEL_ENTRIES, CHANNEL_RING};
    uint64_t state = 88172645463325252u; /* xorshift64: Marsaglia, 2003 */
    while (!atomic_load(&self->ends)) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        const uint32_t at = (state >> 60) < 8
                                ? (uint32_t)(state % 8190)
                                : areas[state >> 40 & 1] + (uint32_t)(state >> 8) % 64;
        const uint64_t value = (state >> 50 & 1) != 0 ? state : state >> 52;
        if (at != CHANNEL_LEFT) { /* with which it would only go */
            channel_write(self->page, at, value);
        }
        self->count++;
    }
    return GPUIPC_OK;
}

static void run_beside(gpuipc_delivery delivery) {
    scribbler bad = {.page = NULL};
    core_waiter waiter;
    object *behind;
    channel_case_make(&(gpuipc_channel_config){
        .slots = 3, .header_bytes = 8, .full = GPUIPC_FULL_DROP, .drop_after_ms = 20});
    gpuipc_subscription *good = channel_case_open(NULL);
    uint64_t sequence = 0;
    for (int round = 0; round < 5; round++) {
        gpuipc_subscription *hostile =
            channel_case_open(&(gpuipc_subscription_config){.delivery = delivery});
        check_ok(object_acquire(OBJECT_SUBSCRIPTION, hostile, &behind));
        bad.page = ((subscription *)behind)->page;
        atomic_init(&bad.ends, false);
        core_waiter_begin(&waiter, scribble, &bad);
        for (int i = 0; i < 400; i++) {
            gpuipc_frame frame = channel_case_loan();
            sequence++;
            frame.header = &sequence;
            frame.header_bytes = sizeof(sequence);
            check_ok(gpuipc_channel_publish(channel_case_channel, &frame, GPUIPC_NO_STREAM));
            frame = channel_case_take(good);
            cr_assert_eq(frame.sequence, sequence);
            cr_assert_eq(frame.missed, 0);
            cr_assert_eq(memcmp(frame.header, &sequence, sizeof(sequence)), 0);
            check_ok(gpuipc_subscription_give_back(good, &frame, GPUIPC_NO_STREAM));
            /* what it takes itself is whatever it wrote, and lies in the slots all the same */
            gpuipc_frame own = GPUIPC_FRAME_INIT;
            if (gpuipc_subscription_take(hostile, GPUIPC_NO_STREAM, 0, &own) == GPUIPC_OK) {
                cr_assert_geq(own.address, frame.address - 2 * CHANNEL_CASE_SLOT);
                cr_assert_leq(own.address, frame.address + 2 * CHANNEL_CASE_SLOT);
                cr_assert_leq(own.bytes, CHANNEL_CASE_SLOT);
                cr_assert_leq(own.header_bytes, 8);
                check_ok(gpuipc_subscription_give_back(hostile, &own, GPUIPC_NO_STREAM));
            }
        }
        atomic_store(&bad.ends, true);
        check_ok(core_waiter_end(&waiter));
        object_unreference(behind);
        check_ok(gpuipc_subscription_close(hostile));
    }
    check_ok(gpuipc_subscription_close(good));
}

static void store(const gpuipc_word *word) {
    atomic_store((_Atomic uint64_t *)(uintptr_t)word->address, word->value);
}

/* A frame from a kernel to a kernel, both of which the test plays. The hostile reader takes for a kernel of its own, which
 * stores or does not; its page is scribbled on meanwhile. */
static void pass_by_kernels(gpuipc_subscription *good, gpuipc_subscription *hostile,
                            uint64_t sequence) {
    gpuipc_word words[GPUIPC_CHANNEL_READERS_MAX];
    gpuipc_word ready;
    gpuipc_word returned;
    size_t count = 0;
    gpuipc_frame frame = channel_case_loan();
    check_ok(gpuipc_channel_publish_by_kernel(channel_case_channel, &frame, NULL, words,
                                              GPUIPC_CHANNEL_READERS_MAX, &count));
    for (size_t i = 0; i < count; i++) {
        store(&words[i]);
    }
    check_ok(gpuipc_channel_kernel_launched(channel_case_channel, &frame, NULL));
    gpuipc_frame came = GPUIPC_FRAME_INIT;
    check_ok(gpuipc_subscription_take_for_kernel(good, NULL, SOON_MS, &came, &ready, &returned));
    cr_assert_eq(came.sequence, sequence);
    cr_assert_eq(came.address, frame.address);
    cr_assert_eq(atomic_load((_Atomic uint64_t *)(uintptr_t)ready.address), ready.value + 1);
    store(&returned);
    check_ok(gpuipc_subscription_kernel_launched(good, &came, NULL));
    gpuipc_frame own = GPUIPC_FRAME_INIT;
    gpuipc_word its[2];
    if (gpuipc_subscription_take_for_kernel(hostile, NULL, 0, &own, &its[0], &its[1]) ==
        GPUIPC_OK) {
        if (sequence % 2 == 0) {
            store(&its[1]);
        }
        const gpuipc_status status = gpuipc_subscription_kernel_launched(hostile, &own, NULL);
        cr_assert(status == GPUIPC_OK || status == GPUIPC_ERR_LOST);
    }
}

Test(channel_hostile, a_reader_whose_kernels_do_what_they_like) {
    scribbler bad = {.page = NULL};
    core_waiter waiter;
    object *behind;
    uint64_t sequence = 0;
    core_enter_device(0);
    channel_case_make(
        &(gpuipc_channel_config){.slots = 3, .full = GPUIPC_FULL_DROP, .drop_after_ms = 20});
    gpuipc_subscription *good = channel_case_open(NULL);
    for (int round = 0; round < 3; round++) {
        gpuipc_subscription *hostile = channel_case_open(NULL);
        check_ok(object_acquire(OBJECT_SUBSCRIPTION, hostile, &behind));
        bad.page = ((subscription *)behind)->page;
        atomic_init(&bad.ends, false);
        core_waiter_begin(&waiter, scribble, &bad);
        for (int i = 0; i < 200; i++) {
            pass_by_kernels(good, hostile, ++sequence);
        }
        atomic_store(&bad.ends, true);
        check_ok(core_waiter_end(&waiter));
        object_unreference(behind);
        check_ok(gpuipc_subscription_close(hostile));
    }
    check_ok(gpuipc_subscription_close(good));
}

/* The writer's words are in the same page. */
Test(channel_hostile, a_frame_larger_than_its_slot_is_none) {
    object *behind;
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    channel_case_make(&(gpuipc_channel_config){.slots = 1});
    gpuipc_subscription *reader = channel_case_open(NULL);
    check_ok(object_acquire(OBJECT_SUBSCRIPTION, reader, &behind));
    channel_case_send();
    channel_write(((subscription *)behind)->page, channel_offered_at(1, CHANNEL_USED),
                  CHANNEL_CASE_SLOT + 1);
    check_status(GPUIPC_ERR_PROTOCOL,
                 gpuipc_subscription_take(reader, GPUIPC_NO_STREAM, 0, &frame));
    channel_case_send(); /* its slot is back */
    cr_assert_eq(channel_case_receive(reader), 2);
    object_unreference(behind);
    check_ok(gpuipc_subscription_close(reader));
}

typedef struct loser {
    point_page *page;
    atomic_bool ends;
} loser;

/* A writer that leaves frames to kernels, and says of each that it will never be ready. */
static gpuipc_status lose_frames(void *argument) {
    loser *self = argument;
    gpuipc_status status = GPUIPC_OK;
    for (uint64_t number = 1; status == GPUIPC_OK && !atomic_load(&self->ends); number++) {
        const point_word awaited = channel_awaited_word(self->page, 0, number);
        const point_word returned = channel_returned_word(self->page, 0, number);
        gpuipc_frame frame = GPUIPC_FRAME_INIT;
        gpuipc_word ready;
        size_t count;
        check_ok(gpuipc_channel_loan(channel_case_channel, NULL, SOON_MS, &frame));
        check_ok(gpuipc_channel_publish_by_kernel(channel_case_channel, &frame, NULL, &ready, 1,
                                                  &count));
        point_raise(&awaited);
        status = gpuipc_channel_kernel_launched(channel_case_channel, &frame, NULL);
        while (!point_is_reached(&returned) && !atomic_load(&self->ends)) {
        }
    }
    return status;
}

Test(channel_hostile, a_writer_whose_frames_are_all_lost_keeps_nobody) {
    loser bad = {.page = NULL};
    core_waiter waiter;
    object *behind;
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    channel_case_make(&(gpuipc_channel_config){.slots = 1});
    gpuipc_subscription *reader = channel_case_open(NULL);
    check_ok(object_acquire(OBJECT_SUBSCRIPTION, reader, &behind));
    bad.page = ((subscription *)behind)->page;
    core_waiter_begin(&waiter, lose_frames, &bad);
    check_status(GPUIPC_ERR_PROTOCOL,
                 gpuipc_subscription_take(reader, GPUIPC_NO_STREAM, SOON_MS, &frame));
    atomic_store(&bad.ends, true);
    check_ok(core_waiter_end(&waiter));
    object_unreference(behind);
    check_ok(gpuipc_subscription_close(reader));
}

/* It may hold one. What it says is none of the words that there are. */
Test(channel_hostile, who_says_anything_of_a_frame_has_it) {
    object *behind;
    channel_case_make(&(gpuipc_channel_config){.slots = 2, .max_held = 1});
    gpuipc_subscription *reader =
        channel_case_open(&(gpuipc_subscription_config){.delivery = GPUIPC_DELIVERY_NEWEST});
    check_ok(object_acquire(OBJECT_SUBSCRIPTION, reader, &behind));
    for (uint32_t number = 1; number <= 2; number++) {
        const gpuipc_frame frame = channel_case_loan();
        check_ok(gpuipc_channel_publish(channel_case_channel, &frame, GPUIPC_NO_STREAM));
        channel_write(((subscription *)behind)->page, CHANNEL_HAVING + (uint32_t)(frame.id & 255u),
                      number << 2);
    }
    cr_assert_eq(channel_case_reader().held, 2);
    channel_case_send(); /* waits until it is dropped */
    cr_assert_eq(channel_case_reader().state, GPUIPC_READER_DROPPED);
    object_unreference(behind);
    check_ok(gpuipc_subscription_close(reader));
}

Test(channel_hostile, a_reader_of_every_frame) {
    run_beside(GPUIPC_DELIVERY_ALL);
}

Test(channel_hostile, a_reader_of_the_newest) {
    run_beside(GPUIPC_DELIVERY_NEWEST);
}
