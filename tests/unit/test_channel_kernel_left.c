/* SPDX-License-Identifier: MIT */
/**
 * @file Readers that end while a kernel has a frame that they await, and while a stream of the writer's has yet to write the
 * number of the frame before at the same word. An event leads from that stream to theirs, so that theirs look at the word
 * behind that number, and not before.
 */
#include "base/status.h"
#include "channel/channel.h"
#include "kernel_case.h"

static CUstream makes;
static CUstream uses; /* looks at nothing before the number of the former frame is there */
static CUstream uses_of_all;
static CUevent is_written;
static gpuipc_subscription *all;
static gpuipc_word words[GPUIPC_CHANNEL_READERS_MAX];
static size_t word_count;

/* @param config NULL: one slot */
static void begin(const gpuipc_channel_config *config) {
    const gpuipc_channel_config one = {.slots = 1};
    stream_gate_make();
    channel_case_make(config != NULL ? config : &one);
    makes = stream_gate_stream();
    uses = stream_gate_stream();
    uses_of_all = stream_gate_stream();
    cr_assert_eq(core_driver()->cuEventCreate(&is_written, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
}

static void finish(void) {
    stream_gate_open(); /* a test that failed has not */
    if (makes != NULL) {
        (void)core_driver()->cuEventDestroy(is_written);
        stream_gate_stream_end(makes);
        stream_gate_stream_end(uses);
        stream_gate_stream_end(uses_of_all);
    }
    stream_gate_end();
    channel_finish();
}

TestSuite(channel_kernel_left, .init = channel_start, .fini = finish, .timeout = 60);

static gpuipc_subscription *open_newest(uint32_t max_held) {
    return channel_case_open(
        &(gpuipc_subscription_config){.delivery = GPUIPC_DELIVERY_NEWEST, .max_held = max_held});
}

/* The writer's stream does not come to it. */
static void publish_former(void) {
    stream_gate_close(makes);
    const gpuipc_frame former = kernel_case_loan(makes);
    check_ok(gpuipc_channel_publish(channel_case_channel, &former, makes));
    cr_assert_eq(core_driver()->cuEventRecord(is_written, makes), CUDA_SUCCESS);
    cr_assert_eq(core_driver()->cuStreamWaitEvent(uses, is_written, 0), CUDA_SUCCESS);
}

/* Without a look at it. */
static void give_former_back(CUstream stream) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    check_ok(gpuipc_subscription_take(all, uses_of_all, SOON_MS, &frame));
    check_ok(gpuipc_subscription_give_back(all, &frame, stream));
}

static gpuipc_frame publish_by_kernel(CUstream stream) {
    const gpuipc_frame frame = kernel_case_loan(stream);
    check_ok(gpuipc_channel_publish_by_kernel(channel_case_channel, &frame, stream, words,
                                              GPUIPC_CHANNEL_READERS_MAX, &word_count));
    return frame;
}

/* In the slot of that frame. */
static gpuipc_frame publish_behind_former(CUstream gives_back_on) {
    publish_former();
    give_former_back(gives_back_on);
    return publish_by_kernel(makes);
}

static void take(gpuipc_subscription *reader, uint64_t sequence) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    check_ok(gpuipc_subscription_take(reader, uses, SOON_MS, &frame));
    cr_assert_eq(frame.sequence, sequence);
}

/* @param readers so many there were, the latest of which closes */
static void close_and_end(gpuipc_subscription *reader, size_t readers) {
    gpuipc_reader_info infos[GPUIPC_CHANNEL_READERS_MAX];
    size_t count = 0;
    check_ok(gpuipc_subscription_close(reader));
    check_ok(
        gpuipc_channel_readers(channel_case_channel, infos, GPUIPC_CHANNEL_READERS_MAX, &count));
    cr_assert_eq(count, readers);
    cr_assert_eq(infos[readers - 1].state, GPUIPC_READER_CLOSED);
}

static void open_gate(void) {
    stream_gate_open();
    stream_gate_synchronize(makes);
    stream_gate_synchronize(uses);
}

static uint32_t count_left(void) {
    channel *of;
    check_ok(channel_acquire(channel_case_channel, &of));
    channel_lock(of);
    const uint32_t count = of->left_count;
    os_mutex_unlock(&of->mutex);
    object_unreference(&of->object);
    return count;
}

/* As the process's thread does. @return whether there is nothing to be looked after */
static bool look(void) {
    channel *of;
    check_ok(channel_acquire(channel_case_channel, &of));
    const bool is_over = channel_readers_look(&of->object);
    object_unreference(&of->object);
    return is_over;
}

/* Makes a reader of the newest that has ended wait for the kernel's frame. */
static gpuipc_frame leave_one(void) {
    all = channel_case_open(NULL);
    gpuipc_subscription *newest = open_newest(1);
    const gpuipc_frame made = publish_behind_former(uses_of_all);
    take(newest, 2);
    close_and_end(newest, 2);
    return made;
}

Test(channel_kernel_left, the_number_of_the_frame_before_takes_nothing_back) {
    begin(NULL);
    const gpuipc_frame made = leave_one();
    open_gate();
    cr_assert_eq(count_left(), 0);
    check_ok(gpuipc_channel_publish(channel_case_channel, &made, GPUIPC_NO_STREAM));
    check_ok(gpuipc_subscription_close(all));
}

/* Nothing but what they have left is looked at then. */
Test(channel_kernel_left, the_last_readers_are_gone_before_that_number_comes) {
    begin(NULL);
    all = channel_case_open(NULL);
    gpuipc_subscription *newest = open_newest(1);
    (void)publish_behind_former(GPUIPC_NO_STREAM);
    take(newest, 2);
    check_ok(gpuipc_subscription_close(all));
    close_and_end(newest, 2);
    cr_assert_neq(channel_case_reader().state, GPUIPC_READER_ACTIVE);
    cr_assert_not(look(), "there is somebody to be looked after");
    open_gate();
    while (!look()) {
    }
    cr_assert_eq(count_left(), 0);
}

Test(channel_kernel_left, a_reader_is_dropped_before_that_number_comes) {
    begin(&(gpuipc_channel_config){
        .slots = 2, .max_held = 2, .full = GPUIPC_FULL_DROP, .drop_after_ms = 1});
    gpuipc_subscription *slow = open_newest(2);
    all = channel_case_open(NULL);
    channel_case_send();
    (void)channel_case_take(slow); /* it keeps it */
    cr_assert_eq(channel_case_receive(all), 1);
    const gpuipc_frame made = publish_behind_former(uses_of_all);
    take(slow, 3);
    const gpuipc_frame other = channel_case_loan();
    cr_assert_eq(channel_case_reader().state, GPUIPC_READER_DROPPED);
    open_gate();
    check_ok(gpuipc_channel_publish(channel_case_channel, &made, GPUIPC_NO_STREAM));
    check_ok(gpuipc_channel_discard(channel_case_channel, &other));
    check_ok(gpuipc_subscription_close(slow));
    check_ok(gpuipc_subscription_close(all));
}

/* It writes the words of those that have ended, too: nobody need look whether it has come to the former frame. */
Test(channel_kernel_left, a_stream_publishes_in_the_kernels_place) {
    begin(NULL);
    const gpuipc_frame made = leave_one();
    check_ok(gpuipc_channel_publish(channel_case_channel, &made, makes));
    cr_assert_eq(count_left(), 0);
    stream_gate_check_waits(makes);
    open_gate();
    check_ok(gpuipc_subscription_close(all));
}

Test(channel_kernel_left, the_kernel_is_launched_all_the_same) {
    begin(NULL);
    const gpuipc_frame made = leave_one();
    kernel_case writes = {.stores = {words[0], words[1]}, .count = word_count};
    kernel_case_launch(&writes, makes);
    kernel_case_say_written(&made, makes);
    cr_assert_eq(count_left(), 0);
    stream_gate_check_waits(makes);
    open_gate();
    check_ok(gpuipc_subscription_close(all));
}

/* What has become of another slot's frame says nothing of this one. */
Test(channel_kernel_left, two_slots_have_a_kernel_each) {
    begin(&(gpuipc_channel_config){.slots = 2, .max_held = 2});
    all = channel_case_open(NULL);
    gpuipc_subscription *newest = open_newest(1);
    CUstream others = stream_gate_stream();
    publish_former();
    give_former_back(uses_of_all);
    const gpuipc_frame other = publish_by_kernel(others); /* in a slot without a former frame */
    const gpuipc_frame made = publish_by_kernel(makes);
    cr_assert_neq(made.address, other.address);
    take(newest, 3);
    close_and_end(newest, 2);
    check_ok(gpuipc_channel_publish(channel_case_channel, &other, GPUIPC_NO_STREAM));
    cr_assert_eq(count_left(), 1);
    open_gate();
    cr_assert_eq(count_left(), 0);
    check_ok(gpuipc_channel_publish(channel_case_channel, &made, GPUIPC_NO_STREAM));
    check_ok(gpuipc_subscription_close(all));
    stream_gate_stream_end(others);
}

/* It was not offered that frame. */
Test(channel_kernel_left, a_reader_that_comes_later_leaves_nothing) {
    begin(NULL);
    all = channel_case_open(NULL);
    const gpuipc_frame made = publish_behind_former(uses_of_all);
    close_and_end(open_newest(1), 2);
    cr_assert_eq(count_left(), 0);
    open_gate();
    check_ok(gpuipc_channel_publish(channel_case_channel, &made, GPUIPC_NO_STREAM));
    check_ok(gpuipc_subscription_close(all));
}

#define NEWEST_MAX (GPUIPC_CHANNEL_READERS_MAX - 1)

/* Of readers that are there and of such that have ended, no more than a channel may have. */
Test(channel_kernel_left, no_more_are_left_than_there_may_be_readers) {
    gpuipc_subscription *newest[NEWEST_MAX];
    gpuipc_subscription *refused = NULL;
    begin(NULL);
    all = channel_case_open(NULL);
    for (size_t i = 0; i < NEWEST_MAX; i++) {
        newest[i] = open_newest(1);
    }
    const gpuipc_frame made = publish_behind_former(uses_of_all);
    for (size_t i = 0; i < NEWEST_MAX; i++) {
        take(newest[i], 2);
    }
    for (size_t i = 0; i < NEWEST_MAX; i++) {
        check_ok(gpuipc_subscription_close(newest[i]));
    }
    cr_assert_eq(channel_case_reader().state, GPUIPC_READER_ACTIVE);
    cr_assert_eq(count_left(), NEWEST_MAX);
    const gpuipc_subscription_config config = {.struct_size = sizeof(config)};
    check_status(GPUIPC_ERR_LIMIT,
                 gpuipc_subscription_open(core_context, &channel_case_ticket, &config, &refused));
    open_gate();
    check_ok(gpuipc_subscription_close(channel_case_open(NULL)));
    cr_assert_eq(count_left(), 0);
    check_ok(gpuipc_channel_publish(channel_case_channel, &made, GPUIPC_NO_STREAM));
    check_ok(gpuipc_subscription_close(all));
}

/* What its stream gave back in order it still looks at, when that is ready and not before. */
Test(channel_kernel_left, a_close_lets_go_nobody_who_awaits_the_frame_before) {
    kernel_case uses_it = {.count = 0};
    begin(NULL);
    all = channel_case_open(NULL);
    publish_former();
    give_former_back(uses_of_all);
    const gpuipc_frame next = kernel_case_loan(makes);
    check_ok(gpuipc_channel_publish(channel_case_channel, &next, makes));
    (void)kernel_case_take(all, uses, &uses_it); /* which is not launched */
    check_ok(gpuipc_subscription_close(all));
    cr_assert_not(kernel_case_is_reached(&uses_it.awaits));
    stream_gate_check_waits(uses_of_all);
    open_gate();
    stream_gate_synchronize(uses_of_all);
}

/* Nothing of them stays. */
Test(channel_kernel_left, the_channel_ends_before_that_number_comes) {
    kernel_case uses_it = {.count = 0};
    begin(NULL);
    all = channel_case_open(NULL);
    gpuipc_subscription *newest = open_newest(1);
    (void)publish_behind_former(uses_of_all);
    (void)kernel_case_take(newest, uses, &uses_it); /* which is not launched */
    close_and_end(newest, 2);
    cr_assert_eq(count_left(), 1);
    check_ok(gpuipc_channel_destroy(channel_case_channel));
    channel_case_channel = NULL;
    open_gate();
    check_ok(gpuipc_subscription_close(all));
}

/* Nobody has looked in between. */
Test(channel_kernel_left, the_host_publishes_in_the_kernels_place) {
    channel *of;
    begin(NULL);
    const gpuipc_frame made = leave_one();
    check_ok(channel_acquire(channel_case_channel, &of));
    channel_lock(of);
    stream_gate_open();
    stream_gate_synchronize(makes);
    os_mutex_unlock(&of->mutex);
    object_unreference(&of->object);
    check_ok(gpuipc_channel_publish(channel_case_channel, &made, GPUIPC_NO_STREAM));
    stream_gate_synchronize(uses);
    check_ok(gpuipc_subscription_close(all));
}

static void destroy_channel(void) {
    check_ok(gpuipc_channel_destroy(channel_case_channel));
    channel_case_channel = NULL;
}

Test(channel_kernel_left, the_channel_ends_when_that_number_has_come) {
    begin(NULL);
    (void)leave_one();
    stream_gate_open();
    stream_gate_synchronize(makes);
    destroy_channel();
    stream_gate_synchronize(uses);
    check_ok(gpuipc_subscription_close(all));
}

/* Nobody is left that could look: a stream lets them go. */
Test(channel_kernel_left, the_channel_ends_and_a_reader_that_has_left_goes_on) {
    begin(NULL);
    (void)leave_one();
    destroy_channel();
    open_gate();
    check_ok(gpuipc_subscription_close(all));
}

Test(channel_kernel_left, the_channel_ends_and_a_reader_that_is_there_goes_on) {
    begin(NULL);
    all = channel_case_open(NULL);
    gpuipc_subscription *newest = open_newest(1);
    (void)publish_behind_former(uses_of_all);
    take(newest, 2);
    destroy_channel();
    stream_gate_check_waits(uses_of_all);
    open_gate();
    stream_gate_synchronize(uses_of_all);
    check_ok(gpuipc_subscription_close(newest));
    check_ok(gpuipc_subscription_close(all));
}

/* What it was offered is known to the writer alone. */
Test(channel_kernel_left, a_reader_that_comes_later_cannot_say_otherwise) {
    channel *of;
    begin(NULL);
    all = channel_case_open(NULL);
    const gpuipc_frame made = publish_behind_former(uses_of_all);
    gpuipc_subscription *late = open_newest(1);
    check_ok(channel_acquire(channel_case_channel, &of));
    channel_write(of->readers[1].page, CHANNEL_BEFORE, 0);
    object_unreference(&of->object);
    close_and_end(late, 2);
    cr_assert_eq(count_left(), 0);
    open_gate();
    check_ok(gpuipc_channel_publish(channel_case_channel, &made, GPUIPC_NO_STREAM));
    check_ok(gpuipc_subscription_close(all));
}
