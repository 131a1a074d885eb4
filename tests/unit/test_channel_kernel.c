/* SPDX-License-Identifier: MIT */
/**
 * @file Frames whose words kernels await and store. The emulated driver runs no kernels: a host function of the stream plays
 * each, with the loads and stores that a kernel makes, in the order of its stream. (A real driver runs all host functions
 * in one thread, and one may not wait for another there.)
 */
#include "base/status.h"
#include "channel/channel.h"
#include "kernel_case.h"

TestSuite(channel_kernel, .init = channel_start, .fini = channel_finish, .timeout = 60);

/* ---- what it is for ---------------------------------------------------------------------------- */

Test(channel_kernel, a_frame_is_ready_when_the_kernel_says_so) {
    gpuipc_frame came = GPUIPC_FRAME_INIT;
    kernel_case writes = {.count = 0};
    stream_gate_make();
    channel_case_make(&(gpuipc_channel_config){.slots = 2});
    CUstream makes = stream_gate_stream();
    gpuipc_subscription *reader = channel_case_open(NULL);
    const gpuipc_frame frame = kernel_case_loan(makes);
    kernel_case_publish(&frame, makes, &writes);
    cr_assert_eq(writes.count, 1);
    cr_assert_eq(writes.stores[0].address % 8, 0);
    atomic_bool may_run = false;
    writes.may_run = &may_run;
    kernel_case_launch(&writes, makes);
    channel_case_check_nothing(reader); /* before it is said that the kernel was launched */
    kernel_case_say_written(&frame, makes);
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_subscription_take(reader, GPUIPC_NO_STREAM, 20, &came));
    cr_assert_eq(channel_case_reader().held, 1); /* it waits for the contents */
    atomic_store(&may_run, true);
    came = channel_case_take(reader);
    cr_assert_eq(came.sequence, 1);
    cr_assert_eq(kernel_case_look(&writes.stores[0]), writes.stores[0].value);
    check_ok(gpuipc_subscription_give_back(reader, &came, GPUIPC_NO_STREAM));
    check_ok(gpuipc_subscription_close(reader));
    stream_gate_stream_end(makes);
    stream_gate_end();
}

/* From kernel to kernel, and through the same slots again and again. */
Test(channel_kernel, kernels_hand_frames_to_kernels) {
    enum {
        FRAMES = 200,
        AHEAD = 2
    };
    static kernel_case writers[FRAMES];
    static kernel_case readers[FRAMES];
    stream_gate_make();
    channel_case_make(&(gpuipc_channel_config){.slots = KERNEL_CASE_SLOTS});
    CUstream makes = stream_gate_stream();
    CUstream uses = stream_gate_stream();
    gpuipc_subscription *reader =
        channel_case_open(&(gpuipc_subscription_config){.max_held = AHEAD});
    uint64_t first = 0;
    for (uint64_t i = 0; i < FRAMES; i++) {
        const gpuipc_frame frame = kernel_case_loan(makes);
        first = i == 0 ? frame.address : first;
        kernel_case_publish(&frame, makes, &writers[i]);
        writers[i].slot = readers[i].slot =
            &kernel_case_contents[(frame.address - first) / CHANNEL_CASE_SLOT];
        writers[i].writes = i + 1;
        kernel_case_launch(&writers[i], makes);
        kernel_case_say_written(&frame, makes);
        const gpuipc_frame came = kernel_case_take(reader, uses, &readers[i]);
        cr_assert_eq(came.sequence, i + 1);
        cr_assert_eq(readers[i].awaits.value + 1, writers[i].stores[0].value);
        kernel_case_launch(&readers[i], uses);
        check_ok(gpuipc_subscription_kernel_launched(reader, &came, uses));
    }
    stream_gate_synchronize(uses);
    for (uint64_t i = 0; i < FRAMES; i++) {
        cr_assert_eq(readers[i].has_read, i + 1);
    }
    check_ok(gpuipc_subscription_close(reader));
    stream_gate_stream_end(makes);
    stream_gate_stream_end(uses);
    stream_gate_end();
}

/* A kernel at one end, a stream or the host at the other. */
Test(channel_kernel, the_other_end_may_use_streams_or_none) {
    kernel_case writes = {.count = 0};
    kernel_case uses_it = {.count = 0};
    gpuipc_frame came = GPUIPC_FRAME_INIT;
    stream_gate_make();
    channel_case_make(&(gpuipc_channel_config){.slots = 1});
    CUstream makes = stream_gate_stream();
    CUstream uses = stream_gate_stream();
    gpuipc_subscription *reader = channel_case_open(NULL);
    for (int i = 0; i < 20; i++) {
        gpuipc_frame frame = kernel_case_loan(makes);
        kernel_case_publish(&frame, makes, &writes);
        kernel_case_launch(&writes, makes);
        kernel_case_say_written(&frame, makes);
        check_ok(gpuipc_subscription_take(reader, uses, SOON_MS, &came));
        check_ok(gpuipc_subscription_give_back(reader, &came, uses));
        stream_gate_synchronize(makes);
        frame = kernel_case_loan(i % 2 == 0 ? makes : GPUIPC_NO_STREAM);
        check_ok(gpuipc_channel_publish(channel_case_channel, &frame,
                                        i % 2 == 0 ? makes : GPUIPC_NO_STREAM));
        came = kernel_case_take(reader, uses, &uses_it);
        kernel_case_launch(&uses_it, uses);
        check_ok(gpuipc_subscription_kernel_launched(reader, &came, uses));
        stream_gate_synchronize(uses);
    }
    check_ok(gpuipc_subscription_close(reader));
    stream_gate_stream_end(makes);
    stream_gate_stream_end(uses);
    stream_gate_end();
}

Test(channel_kernel, each_reader_has_a_word_of_its_own) {
    kernel_case writes = {.count = 0};
    gpuipc_subscription *readers[2];
    size_t count = 0;
    stream_gate_make();
    channel_case_make(&(gpuipc_channel_config){.slots = 1});
    CUstream makes = stream_gate_stream();
    gpuipc_frame frame = kernel_case_loan(makes);
    kernel_case_publish(&frame, makes, &writes);
    cr_assert_eq(writes.count, 0); /* nobody reads: there is nothing to be stored */
    kernel_case_say_written(&frame, makes);
    readers[0] = channel_case_open(NULL);
    readers[1] = channel_case_open(NULL);
    frame = kernel_case_loan(makes);
    check_status(GPUIPC_ERR_TOO_SMALL,
                 gpuipc_channel_publish_by_kernel(channel_case_channel, &frame, makes,
                                                  writes.stores, 1, &count));
    cr_assert_eq(count, 2);
    kernel_case_publish(&frame, makes, &writes);
    cr_assert_eq(writes.count, 2);
    cr_assert_neq(writes.stores[0].address, writes.stores[1].address);
    kernel_case_launch(&writes, makes);
    kernel_case_say_written(&frame, makes);
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(channel_case_receive(readers[i]), 2);
        check_ok(gpuipc_subscription_close(readers[i]));
    }
    stream_gate_stream_end(makes);
    stream_gate_end();
}

/* ---- who waits for kernels --------------------------------------------------------------------- */

/* Neither end's page goes before its kernel has passed, and neither call waits for that. */
Test(channel_kernel, both_ends_may_go_while_their_kernels_wait) {
    atomic_bool may_run = false;
    kernel_case writes = {.may_run = &may_run};
    kernel_case uses_it = {.may_run = &may_run};
    stream_gate_make();
    channel_case_make(&(gpuipc_channel_config){.slots = 2});
    CUstream makes = stream_gate_stream();
    CUstream uses = stream_gate_stream();
    gpuipc_subscription *reader = channel_case_open(NULL);
    const gpuipc_frame frame = kernel_case_loan(makes);
    kernel_case_publish(&frame, makes, &writes);
    kernel_case_launch(&writes, makes);
    kernel_case_say_written(&frame, makes);
    const gpuipc_frame came = kernel_case_take(reader, uses, &uses_it);
    kernel_case_launch(&uses_it, uses);
    check_ok(gpuipc_subscription_kernel_launched(reader, &came, uses));
    check_ok(gpuipc_subscription_close(reader));
    check_ok(gpuipc_channel_destroy(channel_case_channel));
    channel_case_channel = NULL;
    stream_gate_check_waits(uses);
    atomic_store(&may_run, true);
    stream_gate_synchronize(makes); /* they store and load where there is memory */
    stream_gate_synchronize(uses);
    stream_gate_stream_end(makes);
    stream_gate_stream_end(uses);
    stream_gate_end();
}

/* Not even for the same stream, before it is said that the kernel was launched. Nor is it given to a reader that comes and wants
 * the newest that is ready. */
Test(channel_kernel, a_slot_that_a_kernel_has_is_nobody_elses) {
    kernel_case writes = {.count = 0};
    gpuipc_frame other = GPUIPC_FRAME_INIT;
    stream_gate_make();
    channel_case_make(&(gpuipc_channel_config){.slots = 1});
    CUstream makes = stream_gate_stream();
    gpuipc_subscription *reader = channel_case_open(NULL);
    for (int i = 0; i < 2; i++) {
        const gpuipc_frame frame = kernel_case_loan(makes);
        kernel_case_publish(&frame, makes, &writes);
        kernel_case_launch(&writes, makes);
        stream_gate_synchronize(makes);
        channel_case_check_nothing(reader);
        gpuipc_subscription *late =
            channel_case_open(&(gpuipc_subscription_config){.first = GPUIPC_FIRST_NEWEST});
        channel_case_check_nothing(late);
        check_ok(gpuipc_subscription_close(late));
        check_status(GPUIPC_ERR_TIMEOUT,
                     gpuipc_channel_loan(channel_case_channel, makes, 0, &other));
        check_status(GPUIPC_ERR_TIMEOUT,
                     gpuipc_channel_loan(channel_case_channel, GPUIPC_NO_STREAM, 0, &other));
        kernel_case_say_written(&frame, makes);
        cr_assert_eq(channel_case_receive(reader), (uint64_t)i + 1);
    }
    other = kernel_case_loan(GPUIPC_NO_STREAM);
    check_ok(gpuipc_channel_discard(channel_case_channel, &other));
    check_ok(gpuipc_subscription_close(reader));
    stream_gate_stream_end(makes);
    stream_gate_end();
}

/* The kernel has given it back, and the writer uses the slot again, before its reader says that it was launched. */
Test(channel_kernel, a_slot_may_come_again_before_its_kernel_is_told_of) {
    kernel_case uses_it = {.count = 0};
    gpuipc_frame again = GPUIPC_FRAME_INIT;
    stream_gate_make();
    channel_case_make(&(gpuipc_channel_config){.slots = 1, .max_held = 1});
    CUstream uses = stream_gate_stream();
    gpuipc_subscription *reader = channel_case_open(NULL);
    channel_case_send();
    const gpuipc_frame came = kernel_case_take(reader, uses, &uses_it);
    kernel_case_launch(&uses_it, uses);
    stream_gate_synchronize(uses);
    channel_case_send();
    check_status(GPUIPC_ERR_LIMIT, gpuipc_subscription_take(reader, GPUIPC_NO_STREAM, 0, &again));
    check_ok(gpuipc_subscription_kernel_launched(reader, &came, uses));
    cr_assert_eq(channel_case_receive(reader), 2);
    check_ok(gpuipc_subscription_close(reader));
    stream_gate_stream_end(uses);
    stream_gate_end();
}

/* Who may have several is told of it in another way. */
Test(channel_kernel, a_frame_in_such_a_slot_waits) {
    kernel_case uses_it[2] = {{.count = 0}};
    gpuipc_frame came[2];
    gpuipc_word word;
    gpuipc_frame again = GPUIPC_FRAME_INIT;
    stream_gate_make();
    channel_case_make(&(gpuipc_channel_config){.slots = 2, .max_held = 2});
    CUstream uses = stream_gate_stream();
    gpuipc_subscription *reader = channel_case_open(&(gpuipc_subscription_config){.max_held = 2});
    channel_case_send();
    came[0] = kernel_case_take(reader, uses, &uses_it[0]);
    kernel_case_launch(&uses_it[0], uses);
    stream_gate_synchronize(uses);
    gpuipc_frame kept = channel_case_loan(); /* the other slot */
    channel_case_send();
    check_refused(GPUIPC_ERR_LIMIT, "the slot of one that is still taken",
                  gpuipc_subscription_take_for_kernel(reader, uses, SOON_MS, &again, &word, &word));
    check_ok(gpuipc_subscription_kernel_launched(reader, &came[0], uses));
    came[1] = kernel_case_take(reader, uses, &uses_it[1]);
    cr_assert_eq(came[1].sequence, 2);
    kernel_case_launch(&uses_it[1], uses);
    check_ok(gpuipc_subscription_kernel_launched(reader, &came[1], uses));
    check_ok(gpuipc_channel_discard(channel_case_channel, &kept));
    stream_gate_synchronize(uses);
    check_ok(gpuipc_subscription_close(reader));
    stream_gate_stream_end(uses);
    stream_gate_end();
}

/* ---- kernels that are not launched ------------------------------------------------------------- */

Test(channel_kernel, a_stream_or_the_host_stands_in_for_a_kernel) {
    kernel_case writes = {.count = 0};
    kernel_case uses_it = {.count = 0};
    stream_gate_make();
    channel_case_make(&(gpuipc_channel_config){.slots = 1});
    CUstream makes = stream_gate_stream();
    CUstream uses = stream_gate_stream();
    gpuipc_subscription *reader = channel_case_open(NULL);
    for (int i = 0; i < 4; i++) {
        const gpuipc_frame frame = kernel_case_loan(makes);
        kernel_case_publish(&frame, makes, &writes);
        check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                     gpuipc_channel_publish(channel_case_channel, &frame, uses));
        check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                     gpuipc_channel_discard(channel_case_channel, &frame));
        check_ok(gpuipc_channel_publish(channel_case_channel, &frame,
                                        i % 2 == 0 ? makes : GPUIPC_NO_STREAM));
        kernel_case_check_is_on_loan_no_more(&frame, makes);
        const gpuipc_frame came = kernel_case_take(reader, uses, &uses_it);
        check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                     gpuipc_subscription_give_back(reader, &came, makes));
        uses_it.count = 0; /* one that awaits and stores nothing */
        kernel_case_launch(&uses_it, uses);
        check_ok(gpuipc_subscription_give_back(reader, &came, uses));
        check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                     gpuipc_subscription_kernel_launched(reader, &came, uses));
        stream_gate_synchronize(makes);
        stream_gate_synchronize(uses);
        channel_case_send();
        const gpuipc_frame unused = kernel_case_take(reader, uses, &uses_it);
        check_ok(gpuipc_subscription_give_back(reader, &unused, GPUIPC_NO_STREAM));
    }
    check_ok(gpuipc_subscription_close(reader));
    stream_gate_stream_end(makes);
    stream_gate_stream_end(uses);
    stream_gate_end();
}

/* Nothing is left of it: the pages go, and no stream counts as one that waits. */
Test(channel_kernel, both_ends_may_go_without_their_kernels) {
    kernel_case writes = {.count = 0};
    kernel_case uses_it = {.count = 0};
    stream_gate_make();
    channel_case_make(&(gpuipc_channel_config){.slots = 2});
    CUstream makes = stream_gate_stream();
    CUstream uses = stream_gate_stream();
    gpuipc_subscription *reader = channel_case_open(NULL);
    channel_case_send();
    (void)kernel_case_take(reader, uses, &uses_it);
    const gpuipc_frame frame = kernel_case_loan(makes);
    kernel_case_publish(&frame, makes, &writes);
    check_ok(gpuipc_subscription_close(reader));
    check_ok(gpuipc_channel_destroy(channel_case_channel));
    channel_case_channel = NULL;
    stream_gate_stream_end(makes);
    stream_gate_stream_end(uses);
    stream_gate_end();
}

/* No reader waits for it: the writer may end, or the stream wait for work of the reader's. */
Test(channel_kernel, a_frame_whose_kernel_was_not_launched_is_never_seen) {
    kernel_case writes = {.count = 0};
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    stream_gate_make();
    channel_case_make(&(gpuipc_channel_config){.slots = 2});
    CUstream stream = stream_gate_stream();
    gpuipc_subscription *reader = channel_case_open(NULL);
    const gpuipc_frame made = kernel_case_loan(stream);
    kernel_case_publish(&made, stream, &writes);
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_subscription_take(reader, stream, 0, &frame));
    cr_assert_eq(core_driver()->cuStreamQuery(stream), CUDA_SUCCESS); /* it was given no wait */
    check_ok(gpuipc_channel_destroy(channel_case_channel));
    channel_case_channel = NULL;
    check_status(GPUIPC_ERR_PEER_CLOSED, gpuipc_subscription_take(reader, stream, SOON_MS, &frame));
    check_ok(gpuipc_subscription_close(reader));
    stream_gate_stream_end(stream);
    stream_gate_end();
}

/* Both ends' kernels and the waits between them, in one stream. */
Test(channel_kernel, both_ends_may_have_one_stream) {
    enum {
        FRAMES = 50
    };
    static kernel_case writers[FRAMES];
    static kernel_case readers[FRAMES];
    gpuipc_frame none = GPUIPC_FRAME_INIT;
    stream_gate_make();
    channel_case_make(&(gpuipc_channel_config){.slots = 2});
    CUstream stream = stream_gate_stream();
    gpuipc_subscription *reader = channel_case_open(NULL);
    for (int i = 0; i < FRAMES; i++) {
        const gpuipc_frame frame = kernel_case_loan(stream);
        kernel_case_publish(&frame, stream, &writers[i]);
        check_status(GPUIPC_ERR_TIMEOUT, gpuipc_subscription_take(reader, stream, 0, &none));
        kernel_case_launch(&writers[i], stream);
        kernel_case_say_written(&frame, stream);
        const gpuipc_frame came = kernel_case_take(reader, stream, &readers[i]);
        kernel_case_launch(&readers[i], stream);
        check_ok(gpuipc_subscription_kernel_launched(reader, &came, stream));
    }
    stream_gate_synchronize(stream);
    check_ok(gpuipc_subscription_close(reader));
    stream_gate_stream_end(stream);
    stream_gate_end();
}

/* A reader of all takes frames by their numbers. One of the newest has seen a later one. A reader that comes when the first has
 * its number is not offered that, and has no word of its kernel. */
Test(channel_kernel, kernels_may_be_launched_in_another_order) {
    kernel_case writes[2] = {{.count = 0}};
    gpuipc_frame frames[2];
    gpuipc_reader_info infos[GPUIPC_CHANNEL_READERS_MAX];
    size_t count;
    stream_gate_make();
    channel_case_make(&(gpuipc_channel_config){.slots = 3});
    CUstream makes = stream_gate_stream();
    gpuipc_subscription *all = channel_case_open(NULL);
    gpuipc_subscription *newest =
        channel_case_open(&(gpuipc_subscription_config){.delivery = GPUIPC_DELIVERY_NEWEST});
    frames[0] = kernel_case_loan(makes);
    kernel_case_publish(&frames[0], makes, &writes[0]);
    gpuipc_subscription *late =
        channel_case_open(&(gpuipc_subscription_config){.first = GPUIPC_FIRST_OLDEST});
    frames[1] = kernel_case_loan(makes);
    kernel_case_publish(&frames[1], makes, &writes[1]);
    cr_assert_eq(writes[0].count, 2);
    cr_assert_eq(writes[1].count, 3);
    kernel_case_launch(&writes[1], makes);
    kernel_case_say_written(&frames[1], makes);
    channel_case_check_nothing(all);
    cr_assert_eq(channel_case_receive(newest), 2);
    cr_assert_eq(channel_case_receive(late), 2);
    kernel_case_launch(&writes[0], makes);
    kernel_case_say_written(&frames[0], makes);
    channel_case_check_nothing(newest);
    channel_case_check_nothing(late);
    cr_assert_eq(channel_case_receive(all), 1);
    cr_assert_eq(channel_case_receive(all), 2);
    channel_case_send();
    cr_assert_eq(channel_case_receive(newest), 3);
    cr_assert_eq(channel_case_receive(late), 3);
    cr_assert_eq(channel_case_receive(all), 3);
    check_ok(
        gpuipc_channel_readers(channel_case_channel, infos, GPUIPC_CHANNEL_READERS_MAX, &count));
    cr_assert_eq(infos[0].passed_over, 0);
    cr_assert_eq(infos[1].passed_over, 1);
    cr_assert_eq(infos[2].passed_over, 0);
    check_ok(gpuipc_subscription_close(all));
    check_ok(gpuipc_subscription_close(newest));
    check_ok(gpuipc_subscription_close(late));
    stream_gate_stream_end(makes);
    stream_gate_end();
}

/* The words stay mapped, and the next reader in that place is not taken for it. */
Test(channel_kernel, a_reader_may_go_before_the_kernel_is_launched) {
    kernel_case writes = {.count = 0};
    stream_gate_make();
    channel_case_make(&(gpuipc_channel_config){.slots = 2, .max_readers = 1});
    CUstream makes = stream_gate_stream();
    gpuipc_subscription *reader = channel_case_open(NULL);
    const gpuipc_frame frame = kernel_case_loan(makes);
    kernel_case_publish(&frame, makes, &writes);
    check_ok(gpuipc_subscription_close(reader));
    cr_assert_eq(channel_case_reader().state, GPUIPC_READER_CLOSED);
    gpuipc_subscription *next = channel_case_open(NULL);
    kernel_case_launch(&writes, makes);
    kernel_case_say_written(&frame, makes);
    stream_gate_synchronize(makes);
    channel_case_check_nothing(next);
    channel_case_send();
    cr_assert_eq(channel_case_receive(next), 2);
    check_ok(gpuipc_subscription_close(next));
    stream_gate_stream_end(makes);
    stream_gate_end();
}

/* At the close whoever still awaits the contents goes on, with a value that says that there are none. */
Test(channel_kernel, the_close_lets_a_kernel_go) {
    atomic_bool may_run = false;
    kernel_case writes = {.may_run = &may_run};
    kernel_case uses_it = {.count = 0};
    stream_gate_make();
    channel_case_make(&(gpuipc_channel_config){.slots = 1});
    CUstream makes = stream_gate_stream();
    CUstream uses = stream_gate_stream();
    gpuipc_subscription *reader = channel_case_open(NULL);
    const gpuipc_frame frame = kernel_case_loan(makes);
    kernel_case_publish(&frame, makes, &writes); /* holds the same page */
    kernel_case_launch(&writes, makes);
    kernel_case_say_written(&frame, makes);
    (void)kernel_case_take(reader, uses, &uses_it);
    cr_assert_not(kernel_case_is_reached(&uses_it.awaits));
    check_ok(gpuipc_subscription_close(reader));
    cr_assert_eq(kernel_case_look(&writes.stores[0]), uses_it.awaits.value);
    atomic_store(&may_run, true);
    stream_gate_synchronize(makes);
    stream_gate_stream_end(makes);
    stream_gate_stream_end(uses);
    stream_gate_end();
}

/* ---- bad input --------------------------------------------------------------------------------- */

Test(channel_kernel, frames_that_no_kernel_has_are_refused) {
    kernel_case writes = {.count = 0};
    kernel_case uses_it = {.count = 0};
    stream_gate_make();
    channel_case_make(&(gpuipc_channel_config){.slots = 3, .header_bytes = 8});
    CUstream makes = stream_gate_stream();
    CUstream uses = stream_gate_stream();
    gpuipc_subscription *reader = channel_case_open(&(gpuipc_subscription_config){.max_held = 2});
    gpuipc_frame frame = kernel_case_loan(makes);
    kernel_case_check_is_on_loan_no_more(&frame, makes); /* it is, and no kernel has it */
    frame.bytes++;
    check_status(GPUIPC_ERR_OUT_OF_RANGE,
                 gpuipc_channel_publish_by_kernel(channel_case_channel, &frame, makes,
                                                  writes.stores, 2, &writes.count));
    frame.bytes--;
    frame.header_bytes = 9;
    check_status(GPUIPC_ERR_LIMIT,
                 gpuipc_channel_publish_by_kernel(channel_case_channel, &frame, makes,
                                                  writes.stores, 2, &writes.count));
    frame.header_bytes = 0;
    kernel_case_publish(&frame, makes, &writes);
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_channel_publish_by_kernel(channel_case_channel, &frame, makes,
                                                  writes.stores, 2, &writes.count));
    kernel_case_check_is_on_loan_no_more(&frame, uses); /* another stream */
    kernel_case_launch(&writes, makes);
    kernel_case_say_written(&frame, makes);
    kernel_case_check_is_on_loan_no_more(&frame, makes); /* once is enough */
    gpuipc_frame came = GPUIPC_FRAME_INIT;
    check_ok(gpuipc_subscription_take(reader, uses, SOON_MS, &came));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_subscription_kernel_launched(reader, &came, uses)); /* no kernel has it */
    check_ok(gpuipc_subscription_give_back(reader, &came, uses));
    channel_case_send();
    came = kernel_case_take(reader, uses, &uses_it);
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_subscription_kernel_launched(reader, &came, makes));
    kernel_case_launch(&uses_it, uses);
    check_ok(gpuipc_subscription_kernel_launched(reader, &came, uses));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_subscription_kernel_launched(reader, &came, uses));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_subscription_give_back(reader, &came, GPUIPC_NO_STREAM));
    stream_gate_synchronize(uses);
    check_ok(gpuipc_subscription_close(reader));
    stream_gate_stream_end(makes);
    stream_gate_stream_end(uses);
    stream_gate_end();
}

Test(channel_kernel, bad_arguments_are_refused) {
    gpuipc_word word;
    size_t count = 0;
    gpuipc_frame odd = GPUIPC_FRAME_INIT;
    stream_gate_make();
    channel_case_make(&(gpuipc_channel_config){.slots = 1});
    CUstream stream = stream_gate_stream();
    gpuipc_subscription *reader = channel_case_open(NULL);
    gpuipc_channel *const of = channel_case_channel;
    gpuipc_frame frame = kernel_case_loan(stream);
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_channel_publish_by_kernel(of, &frame, GPUIPC_NO_STREAM, &word, 1, &count));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_channel_publish_by_kernel(of, &frame, stream, NULL, 1, &count));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_channel_publish_by_kernel(of, &frame, stream, &word, 1, NULL));
    check_status(GPUIPC_ERR_TOO_SMALL,
                 gpuipc_channel_publish_by_kernel(of, &frame, stream, NULL, 0, &count));
    odd.struct_size = 3;
    check_status(GPUIPC_ERR_STRUCT_SIZE,
                 gpuipc_channel_publish_by_kernel(of, &odd, stream, &word, 1, &count));
    check_status(GPUIPC_ERR_STRUCT_SIZE, gpuipc_channel_kernel_launched(of, &odd, stream));
    check_status(GPUIPC_ERR_STRUCT_SIZE, gpuipc_subscription_kernel_launched(reader, &odd, stream));
    check_status(GPUIPC_ERR_STRUCT_SIZE,
                 gpuipc_subscription_take_for_kernel(reader, stream, 0, &odd, &word, &word));
    odd.struct_size = sizeof(odd);
    odd.id = UINT64_MAX;
    kernel_case_check_is_on_loan_no_more(&odd, stream);
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_subscription_kernel_launched(reader, &odd, stream));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_subscription_take_for_kernel(
                                                  reader, GPUIPC_NO_STREAM, 0, &odd, &word, &word));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_subscription_take_for_kernel(reader, stream, 0, &odd, NULL, &word));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_subscription_take_for_kernel(reader, stream, 0, &odd, &word, NULL));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_subscription_take_for_kernel(reader, stream, -2, &odd, &word, &word));
    check_status(GPUIPC_ERR_TIMEOUT,
                 gpuipc_subscription_take_for_kernel(reader, stream, 0, &odd, &word, &word));
    check_ok(gpuipc_channel_discard(of, &frame));
    check_ok(gpuipc_subscription_close(reader));
    stream_gate_stream_end(stream);
    stream_gate_end();
}

/* A graph would store the same value at each launch. */
Test(channel_kernel, streams_that_are_captured_are_refused) {
    gpuipc_word word;
    size_t count = 0;
    gpuipc_frame came = GPUIPC_FRAME_INIT;
    kernel_case writes = {.count = 0};
    kernel_case uses_it = {.count = 0};
    stream_gate_make();
    channel_case_make(&(gpuipc_channel_config){.slots = 1});
    CUstream stream = stream_gate_stream();
    gpuipc_subscription *reader = channel_case_open(NULL);
    const gpuipc_frame frame = kernel_case_loan(stream);
    core_set_captured(true, stream);
    check_status(GPUIPC_ERR_CUDA, gpuipc_channel_publish_by_kernel(channel_case_channel, &frame,
                                                                   stream, &word, 1, &count));
    check_status(GPUIPC_ERR_CUDA,
                 gpuipc_subscription_take_for_kernel(reader, stream, 0, &came, &word, &word));
    core_set_captured(false, NULL);
    kernel_case_publish(&frame, stream, &writes);
    core_set_captured(true, stream);
    check_status(GPUIPC_ERR_CUDA,
                 gpuipc_channel_kernel_launched(channel_case_channel, &frame, stream));
    core_set_captured(false, NULL);
    channel_case_check_nothing(reader);
    kernel_case_launch(&writes, stream);
    kernel_case_say_written(&frame, stream);
    came = kernel_case_take(reader, stream, &uses_it);
    core_set_captured(true, stream);
    check_status(GPUIPC_ERR_CUDA, gpuipc_subscription_kernel_launched(reader, &came, stream));
    core_set_captured(false, NULL);
    kernel_case_launch(&uses_it, stream);
    check_ok(gpuipc_subscription_kernel_launched(reader, &came, stream));
    check_ok(gpuipc_subscription_close(reader));
    stream_gate_synchronize(stream);
    stream_gate_stream_end(stream);
    stream_gate_end();
}

/* Its words are set back, and by streams alone. */
Test(channel_kernel, a_channel_of_turns_has_no_words_for_kernels) {
    gpuipc_word word;
    size_t count = 0;
    gpuipc_frame came = GPUIPC_FRAME_INIT;
    stream_gate_make();
    channel_case_make(&(gpuipc_channel_config){.slots = 1, .turns = 1});
    CUstream stream = stream_gate_stream();
    gpuipc_subscription *reader = channel_case_open(NULL);
    const gpuipc_frame frame = kernel_case_loan(stream);
    check_status(
        GPUIPC_ERR_INVALID_ARGUMENT,
        gpuipc_channel_publish_by_kernel(channel_case_channel, &frame, stream, &word, 1, &count));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_subscription_take_for_kernel(reader, stream, 0, &came, &word, &word));
    check_ok(gpuipc_channel_publish(channel_case_channel, &frame, stream));
    check_ok(gpuipc_subscription_close(reader));
    stream_gate_stream_end(stream);
    stream_gate_end();
}

/* Each end on a device of its own, which is neither the slots' nor the other's. */
Test(channel_kernel, words_are_for_the_device_of_the_stream) {
    CUcontext far_context;
    CUstream far;
    kernel_case writes = {.count = 0};
    kernel_case uses_it = {.count = 0};
    const driver *drv = core_driver();
    core_need_devices(2);
    stream_gate_make();
    channel_case_make(&(gpuipc_channel_config){.slots = 1});
    CUstream makes = stream_gate_stream();
    gpuipc_subscription *reader =
        channel_case_open(&(gpuipc_subscription_config){.device = GPUIPC_DEVICE(1)});
    cr_assert_eq(drv->cuDevicePrimaryCtxRetain(&far_context, 1), CUDA_SUCCESS);
    cr_assert_eq(drv->cuCtxPushCurrent(far_context), CUDA_SUCCESS);
    cr_assert_eq(drv->cuStreamCreate(&far, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    cr_assert_eq(drv->cuCtxPopCurrent(&far_context), CUDA_SUCCESS);
    for (int i = 0; i < 3; i++) {
        const gpuipc_frame frame = kernel_case_loan(makes);
        kernel_case_publish(&frame, makes, &writes);
        kernel_case_launch(&writes, makes);
        kernel_case_say_written(&frame, makes);
        const gpuipc_frame came = kernel_case_take(reader, far, &uses_it);
        check_status(GPUIPC_ERR_INVALID_ARGUMENT, /* the default stream */
                     gpuipc_subscription_kernel_launched(reader, &came, NULL));
        kernel_case_launch(&uses_it, far);
        check_ok(gpuipc_subscription_kernel_launched(reader, &came, far));
        stream_gate_synchronize(far);
    }
    check_ok(gpuipc_subscription_close(reader));
    cr_assert_eq(drv->cuStreamDestroy(far), CUDA_SUCCESS);
    cr_assert_eq(drv->cuDevicePrimaryCtxRelease(1), CUDA_SUCCESS);
    stream_gate_stream_end(makes);
    stream_gate_end();
}
