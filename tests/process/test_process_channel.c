/* SPDX-License-Identifier: MIT */
/** @file Channels between processes, one of which ends at any moment. */
#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "native_ready.h"
#include "os.h"
#include "partner.h"
#include "resource_list.h"

static process_case at;
static gpuipc_server *server;
static gpuipc_channel *channel;
static char ticket_text[GPUIPC_TICKET_TEXT_SIZE];
static uint64_t sequence;

TestSuite(channel, .timeout = 100);

static void begin(const gpuipc_channel_config *wanted) {
    gpuipc_channel_config config = *wanted;
    gpuipc_ticket made;
    process_case_begin(&at, NULL);
    check_ok(gpuipc_server_create(at.context, NULL, &server));
    config.struct_size = sizeof(config);
    config.buffer = process_case_buffer(&at, 0, MEBIBYTES_2, 0, 1, 0);
    config.slot_bytes = 4096;
    config.header_bytes = sizeof(uint64_t);
    check_ok(gpuipc_channel_create(server, &config, &channel, &made));
    check_ok(gpuipc_buffer_release(config.buffer));
    check_ok(gpuipc_ticket_to_text(&made, ticket_text));
    sequence = 0;
}

static void end(void) {
    check_ok(gpuipc_channel_destroy(channel));
    check_ok(gpuipc_server_destroy(server));
    process_case_end(&at);
}

static void reader_start(partner *self, gpuipc_delivery delivery, unsigned held) {
    partner_start(self, &at, NULL, NULL);
    partner_do(self, "GPUIPC_OK", "subscribe %s %d %u", ticket_text, (int)delivery, held);
}

static void send_frame_on(gpuipc_stream stream) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    check_ok(gpuipc_channel_loan(channel, stream, PATIENCE_MS, &frame));
    sequence++;
    frame.header = &sequence;
    frame.header_bytes = sizeof(sequence);
    check_ok(gpuipc_channel_publish(channel, &frame, stream));
}

static void send_frames(int count) {
    for (int i = 0; i < count; i++) {
        send_frame_on(GPUIPC_NO_STREAM);
    }
}

static size_t count_readers(gpuipc_reader_state state) {
    gpuipc_reader_info infos[GPUIPC_CHANNEL_READERS_MAX];
    size_t count = 0;
    size_t found = 0;
    check_ok(gpuipc_channel_readers(channel, infos, GPUIPC_CHANNEL_READERS_MAX, &count));
    for (size_t i = 0; i < count; i++) {
        found += infos[i].state == state;
    }
    return found;
}

Test(channel, another_process_gets_every_frame) {
    partner reader;
    begin(&(gpuipc_channel_config){.slots = 3});
    reader_start(&reader, GPUIPC_DELIVERY_ALL, 1);
    partner_tell(&reader, "read-frames 2000");
    send_frames(2000);
    partner_hear(&reader, "GPUIPC_OK 2000 0");
    partner_do(&reader, "GPUIPC_OK", "unsubscribe");
    partner_end(&reader);
    end();
}

Test(channel, each_of_many_gets_its_own) {
    partner all[3];
    partner newest;
    begin(&(gpuipc_channel_config){.slots = 4});
    for (int i = 0; i < 3; i++) {
        reader_start(&all[i], GPUIPC_DELIVERY_ALL, 1);
        partner_tell(&all[i], "read-frames 500");
    }
    reader_start(&newest, GPUIPC_DELIVERY_NEWEST, 1);
    partner_tell(&newest, "read-frames 500");
    send_frames(500);
    for (int i = 0; i < 3; i++) {
        partner_hear(&all[i], "GPUIPC_OK 500 0");
        partner_end(&all[i]);
    }
    partner_hear(&newest, "GPUIPC_OK ");
    char *rest = newest.answer + strlen("GPUIPC_OK ");
    const unsigned long long seen = strtoull(rest, &rest, 10);
    const unsigned long long missed = strtoull(rest, &rest, 10);
    cr_assert_eq(seen + missed, 500);
    partner_end(&newest);
    end();
}

static size_t count_mappings(void) {
    resource_list list = {0};
    cr_assert(resource_list_mappings(&list));
    const size_t count = list.count;
    resource_list_free(&list);
    return count;
}

/* The writer's streams write the words of each, and those of two read them, so that pages are registered at both ends, which the
 * calls of neither undo. */
Test(channel, readers_that_come_and_go_take_no_more_and_no_more) {
    enum {
        READERS = 3,
        SETTLED = 20
    };
    partner readers[READERS];
    begin(&(gpuipc_channel_config){.slots = 2});
    for (int i = 0; i < READERS; i++) {
        partner_start(&readers[i], &at, NULL, NULL);
        if (i > 0) {
            partner_do(&readers[i], "GPUIPC_OK", "read-on-stream");
        }
    }
    size_t first = 0;
    for (int i = 0; i < 100; i++) {
        for (int k = 0; k < READERS; k++) {
            partner_do(&readers[k], "GPUIPC_OK", "subscribe %s %d 1", ticket_text,
                       (int)GPUIPC_DELIVERY_ALL);
        }
        send_frame_on(NULL);
        for (int k = 0; k < READERS; k++) {
            partner_tell(&readers[k], "read-frames %u", (unsigned)sequence);
            partner_hear(&readers[k], "GPUIPC_OK 1 0");
            partner_do(&readers[k], "GPUIPC_OK", "unsubscribe");
        }
        first = i == SETTLED ? count_mappings() : first;
    }
    /* Of 240 that came since, some were just looked at. */
    cr_assert_leq(count_mappings(), first + 8);
    for (int i = 0; i < READERS; i++) {
        partner_end(&readers[i]);
    }
    end();
}

Test(channel, what_a_killed_reader_had_is_free_at_once) {
    partner reader;
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    begin(&(gpuipc_channel_config){.slots = 2, .max_held = 2});
    reader_start(&reader, GPUIPC_DELIVERY_ALL, 2);
    send_frames(2);
    partner_do(&reader, "GPUIPC_OK 2", "hold-frames 2");
    cr_assert_eq(gpuipc_channel_loan(channel, GPUIPC_NO_STREAM, 0, &frame), GPUIPC_ERR_TIMEOUT);
    partner_kill(&reader);
    const uint64_t begun_ns = os_clock_ns();
    send_frames(2);
    cr_assert_lt(os_clock_ns() - begun_ns, UINT64_C(100000000));
    cr_assert_eq(count_readers(GPUIPC_READER_ENDED), 1);
    end();
}

/* Wherever in its calls it is. */
Test(channel, readers_that_are_killed_cost_the_others_nothing) {
    partner lasting;
    begin(&(gpuipc_channel_config){.slots = 3});
    reader_start(&lasting, GPUIPC_DELIVERY_ALL, 1);
    partner_tell(&lasting, "read-frames 1500");
    for (int i = 0; i < 15; i++) {
        partner dying;
        reader_start(&dying, i % 2 == 0 ? GPUIPC_DELIVERY_ALL : GPUIPC_DELIVERY_NEWEST, 1);
        partner_tell(&dying, "read-frames 1000000");
        send_frames(50 + i);
        partner_kill(&dying);
        send_frames(50 - i);
    }
    partner_hear(&lasting, "GPUIPC_OK 1500 0");
    partner_end(&lasting);
    end();
}

Test(channel, a_killed_writer_leaves_what_it_published) {
    partner writer;
    gpuipc_subscription *reader = NULL;
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    gpuipc_ticket wanted;
    char text[CHILD_LINE_MAX] = "";
    gpuipc_context *within = NULL; /* its link to the server ends with it */
    process_case_begin(&at, NULL);
    const gpuipc_context_config config = {.struct_size = sizeof(config),
                                          .runtime_directory = at.directory};
    check_ok(gpuipc_context_create(&config, &within));
    partner_start(&writer, &at, NULL, NULL);
    partner_do(&writer, "GPUIPC_OK", "create 1 %llu 0 0", (unsigned long long)MEBIBYTES_2);
    partner_do(&writer, "GPUIPC_OK", "channel 4");
    (void)sscanf(writer.answer, "GPUIPC_OK %511s", text);
    check_ok(gpuipc_ticket_from_text(text, &wanted));
    check_ok(gpuipc_subscription_open(within, &wanted, NULL, &reader));
    partner_do(&writer, "GPUIPC_OK", "publish-frames 1 3");
    partner_do(&writer, "GPUIPC_OK", "loan-frame");
    partner_kill(&writer);
    for (uint64_t i = 1; i <= 3; i++) {
        check_ok(gpuipc_subscription_take(reader, GPUIPC_NO_STREAM, PATIENCE_MS, &frame));
        cr_assert_eq(frame.sequence, i);
        check_ok(gpuipc_subscription_give_back(reader, &frame, GPUIPC_NO_STREAM));
    }
    cr_assert_eq(gpuipc_subscription_take(reader, GPUIPC_NO_STREAM, PATIENCE_MS, &frame),
                 GPUIPC_ERR_PEER_CLOSED);
    check_ok(gpuipc_subscription_close(reader));
    check_ok(gpuipc_context_destroy(within));
    process_case_end(&at);
}

/* The stream that was to use the frame goes on, and who gives it back is told what it was. */
Test(channel, a_writer_that_is_killed_before_its_frame_is_ready) {
    partner writer;
    gpuipc_subscription *reader = NULL;
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    uint32_t word = 0;
    gpuipc_context *within = NULL; /* its link to the server ends with it */
    process_case_begin(&at, NULL);
    const gpuipc_context_config config = {.struct_size = sizeof(config),
                                          .runtime_directory = at.directory};
    check_ok(gpuipc_context_create(&config, &within));
    gpuipc_buffer *behind = process_case_buffer(&at, 0, MEBIBYTES_2, 0, 1, 0);
    partner_start(&writer, &at, NULL, NULL);
    partner_do(&writer, "GPUIPC_OK", "create 1 %llu 0 0", (unsigned long long)MEBIBYTES_2);
    partner_do(&writer, "GPUIPC_OK", "channel 4 frames");
    check_ok(gpuipc_subscription_open_named(within, "frames", NULL, &reader));
    partner_do(&writer, "GPUIPC_OK", "gate");
    partner_do(&writer, "GPUIPC_OK", "publish-late");
    check_ok(gpuipc_subscription_take(reader, NULL, PATIENCE_MS, &frame));
    check_ok(gpuipc_buffer_fill_async(behind, 0, sizeof(word), 4711, 4, NULL));
    partner_kill(&writer);
    check_ok(gpuipc_buffer_read(behind, 0, &word, sizeof(word)));
    cr_assert_eq(word, 4711);
    check_status(GPUIPC_ERR_LOST, gpuipc_subscription_give_back(reader, &frame, GPUIPC_NO_STREAM));
    check_ok(gpuipc_subscription_close(reader));
    check_ok(gpuipc_buffer_release(behind));
    check_ok(gpuipc_context_destroy(within));
    process_case_end(&at);
}

static uint64_t look(const gpuipc_word *word) {
    return atomic_load_explicit((_Atomic uint64_t *)(uintptr_t)word->address, memory_order_acquire);
}

/* The test plays the kernel: it looks at the word by which the host reaches it. */
static bool is_let_go(const gpuipc_word *word) {
    const uint64_t begun_ns = os_clock_ns();
    while (look(word) < word->value && os_clock_ns() - begun_ns < PATIENCE_MS * UINT64_C(1000000)) {
    }
    return look(word) == word->value; /* and not one more, which only the writer stores */
}

/* A kernel that waits goes on, and sees that there are no contents. So does the host. */
Test(channel, a_writer_that_is_killed_before_its_kernel_has_stored) {
    partner writer;
    gpuipc_subscription *reader = NULL;
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    gpuipc_word ready = {0, 0};
    gpuipc_word returned = {0, 0};
    gpuipc_context *within = NULL; /* its link to the server ends with it */
    process_case_begin(&at, NULL);
    if (!process_case_is_emulated(&at)) {
        process_case_end(&at);
        cr_skip_test("what a device's address is to the host is not said");
    }
    const gpuipc_context_config config = {.struct_size = sizeof(config),
                                          .runtime_directory = at.directory};
    check_ok(gpuipc_context_create(&config, &within));
    partner_start(&writer, &at, NULL, NULL);
    partner_do(&writer, "GPUIPC_OK", "create 1 %llu 0 0", (unsigned long long)MEBIBYTES_2);
    partner_do(&writer, "GPUIPC_OK", "channel 4 frames");
    check_ok(gpuipc_subscription_open_named(within, "frames", NULL, &reader));
    partner_do(&writer, "GPUIPC_OK", "publish-by-kernel");
    check_ok(
        gpuipc_subscription_take_for_kernel(reader, NULL, PATIENCE_MS, &frame, &ready, &returned));
    cr_assert_lt(look(&ready), ready.value);
    partner_kill(&writer);
    cr_assert(is_let_go(&ready));
    check_status(GPUIPC_ERR_LOST, gpuipc_subscription_kernel_launched(reader, &frame, NULL));
    check_status(
        GPUIPC_ERR_PEER_CLOSED, /* the other is none either */
        gpuipc_subscription_take_for_kernel(reader, NULL, PATIENCE_MS, &frame, &ready, &returned));
    check_ok(gpuipc_subscription_close(reader));
    check_ok(gpuipc_context_destroy(within));
    process_case_end(&at);
}

/* The stream that is to fill the slot next waits for the dead one's kernel, until the watch lets it go. */
Test(channel, a_reader_that_is_killed_before_its_kernel_has_stored) {
    partner reader;
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    begin(&(gpuipc_channel_config){.slots = 1});
    reader_start(&reader, GPUIPC_DELIVERY_ALL, 1);
    send_frames(1);
    partner_do(&reader, "GPUIPC_OK", "take-for-kernel");
    check_ok(gpuipc_channel_loan(channel, NULL, PATIENCE_MS, &frame));
    check_ok(gpuipc_channel_publish(channel, &frame, NULL));
    partner_kill(&reader);
    check_ok(gpuipc_channel_loan(channel, GPUIPC_NO_STREAM, PATIENCE_MS, &frame));
    check_ok(gpuipc_channel_discard(channel, &frame));
    cr_assert_eq(count_readers(GPUIPC_READER_ENDED), 1);
    end();
}

/* In an event loop: nothing is rung for it. */
Test(channel, a_wait_handle_tells_of_a_killed_writer) {
    partner writer;
    gpuipc_subscription *reader = NULL;
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    intptr_t native = 0;
    gpuipc_status status;
    gpuipc_context *within = NULL; /* its link to the server ends with it */
    process_case_begin(&at, NULL);
    const gpuipc_context_config config = {.struct_size = sizeof(config),
                                          .runtime_directory = at.directory};
    check_ok(gpuipc_context_create(&config, &within));
    partner_start(&writer, &at, NULL, NULL);
    partner_do(&writer, "GPUIPC_OK", "create 1 %llu 0 0", (unsigned long long)MEBIBYTES_2);
    partner_do(&writer, "GPUIPC_OK", "channel 4 frames");
    check_ok(gpuipc_subscription_open_named(within, "frames", NULL, &reader));
    check_ok(gpuipc_subscription_get_wait_handle(reader, &native));
    partner_do(&writer, "GPUIPC_OK", "publish-frames 1 1");
    cr_assert(native_is_ready(native, PATIENCE_MS));
    check_ok(gpuipc_subscription_take(reader, GPUIPC_NO_STREAM, 0, &frame));
    check_ok(gpuipc_subscription_give_back(reader, &frame, GPUIPC_NO_STREAM));
    partner_kill(&writer);
    do { /* it may be ready for nothing */
        cr_assert(native_is_ready(native, PATIENCE_MS));
        status = gpuipc_subscription_take(reader, GPUIPC_NO_STREAM, 0, &frame);
    } while (status == GPUIPC_ERR_TIMEOUT);
    cr_assert_eq(status, GPUIPC_ERR_PEER_CLOSED);
    check_ok(gpuipc_subscription_close(reader));
    check_ok(gpuipc_context_destroy(within));
    process_case_end(&at);
}

Test(channel, a_server_that_is_gone_opens_no_channel) {
    partner late;
    partner reader;
    begin(&(gpuipc_channel_config){.slots = 2});
    reader_start(&reader, GPUIPC_DELIVERY_ALL, 1);
    check_ok(gpuipc_server_destroy(server));
    partner_start(&late, &at, NULL, NULL);
    partner_do(&late, "GPUIPC_ERR_EXPORTER_GONE", "subscribe %s 0 1", ticket_text);
    partner_tell(&reader, "read-frames 20"); /* who has it open goes on */
    send_frames(20);
    partner_hear(&reader, "GPUIPC_OK 20 0");
    partner_end(&late);
    partner_end(&reader);
    check_ok(gpuipc_channel_destroy(channel));
    process_case_end(&at);
}

Test(channel, tickets_of_the_other_kind_are_told) {
    partner other;
    gpuipc_ticket of_buffer;
    char text[GPUIPC_TICKET_TEXT_SIZE];
    begin(&(gpuipc_channel_config){.slots = 2, .max_readers = 1});
    gpuipc_buffer *plain = process_case_buffer(&at, 0, MEBIBYTES_2, 0, 1, 0);
    check_ok(gpuipc_buffer_share(server, plain, NULL, &of_buffer));
    check_ok(gpuipc_ticket_to_text(&of_buffer, text));
    partner_start(&other, &at, NULL, NULL);
    partner_do(&other, "GPUIPC_ERR_OTHER_KIND", "ticket %s", ticket_text);
    partner_do(&other, "GPUIPC_ERR_OTHER_KIND", "subscribe %s 0 1", text);
    partner_do(&other, "GPUIPC_ERR_LIMIT", "subscribe %s 0 2", ticket_text);
    partner_do(&other, "GPUIPC_OK", "subscribe %s 0 1", ticket_text);
    partner second;
    partner_start(&second, &at, NULL, NULL);
    partner_do(&second, "GPUIPC_ERR_LIMIT", "subscribe %s 0 1", ticket_text);
    partner_do(&other, "GPUIPC_OK", "unsubscribe");
    partner_do(&second, "GPUIPC_OK", "subscribe %s 0 1", ticket_text);
    partner_end(&second);
    partner_end(&other);
    check_ok(gpuipc_server_revoke(server, &of_buffer));
    check_ok(gpuipc_buffer_release(plain));
    end();
}

Test(channel, a_reader_finds_a_channel_by_its_name) {
    partner reader;
    begin(&(gpuipc_channel_config){.slots = 3, .name = "frames"});
    partner_start(&reader, &at, NULL, NULL);
    partner_do(&reader, "GPUIPC_ERR_NOT_FOUND", "subscribe-name other 1");
    partner_do(&reader, "GPUIPC_OK", "subscribe-name frames %d", PATIENCE_MS);
    partner_tell(&reader, "read-frames 20");
    send_frames(20);
    partner_hear(&reader, "GPUIPC_OK 20 0");
    partner_do(&reader, "GPUIPC_OK", "create 1 %llu 0 0", (unsigned long long)MEBIBYTES_2);
    partner_do(&reader, "GPUIPC_ERR_NAME_IN_USE", "channel 2 frames");
    partner_end(&reader);
    end();
}

/* Who has the old one open learns of its end, and who comes finds the new one. */
Test(channel, a_new_writer_takes_over_the_name_of_one_that_was_killed) {
    partner writers[2];
    partner readers[2];
    process_case_begin(&at, NULL);
    for (int i = 0; i < 2; i++) {
        partner_start(&writers[i], &at, NULL, NULL);
        partner_do(&writers[i], "GPUIPC_OK", "create 1 %llu 0 0", (unsigned long long)MEBIBYTES_2);
        partner_start(&readers[i], &at, NULL, NULL);
    }
    partner_tell(&readers[0], "subscribe-name frames %d", PATIENCE_MS); /* before there is one */
    partner_do(&writers[0], "GPUIPC_OK", "channel 4 frames");
    partner_hear(&readers[0], "GPUIPC_OK");
    partner_do(&writers[0], "GPUIPC_OK", "publish-frames 1 2");
    partner_do(&writers[1], "GPUIPC_ERR_NAME_IN_USE", "channel 4 frames");
    partner_kill(&writers[0]);
    partner_do(&writers[1], "GPUIPC_OK", "channel 4 frames");
    partner_do(&readers[1], "GPUIPC_OK", "subscribe-name frames %d", PATIENCE_MS);
    partner_do(&writers[1], "GPUIPC_OK", "publish-frames 1 3");
    partner_do(&readers[0], "GPUIPC_ERR_PEER_CLOSED 2 0", "read-frames 3");
    partner_do(&readers[1], "GPUIPC_OK 3 0", "read-frames 3");
    partner_end(&readers[0]);
    partner_end(&readers[1]);
    partner_end(&writers[1]);
    process_case_end(&at);
}

/* Each opens and closes, and nothing is left of it. */
Test(channel, readers_come_and_go) {
    partner other;
    begin(&(gpuipc_channel_config){.slots = 2});
    partner_start(&other, &at, NULL, NULL);
    for (int i = 0; i < 50; i++) {
        partner_do(&other, "GPUIPC_OK", "subscribe %s %d 1", ticket_text, i % 2);
        send_frames(1);
        partner_do(&other, "GPUIPC_OK", "hold-frames 1");
        partner_do(&other, "GPUIPC_OK", i % 3 == 0 ? "give-frames" : "unsubscribe");
        if (i % 3 == 0) {
            partner_do(&other, "GPUIPC_OK", "unsubscribe");
        }
    }
    cr_assert_eq(count_readers(GPUIPC_READER_ACTIVE), 0);
    partner_end(&other);
    end();
}

#define CROSSED_FRAMES 4000

static void publish_crossed(void *argument) {
    (void)argument;
    for (int i = 0; i < CROSSED_FRAMES; i++) {
        send_frame_on(NULL);
    }
}

/* Each process writes a channel and reads the other's in two threads, and has one stream for both: the default stream. */
Test(channel, two_processes_with_a_channel_in_each_direction) {
    partner other;
    os_thread *publisher;
    gpuipc_subscription *reader = NULL;
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    gpuipc_context *within = NULL; /* its link to the server ends with it */
    begin(&(gpuipc_channel_config){.slots = 3});
    const gpuipc_context_config config = {.struct_size = sizeof(config),
                                          .runtime_directory = at.directory};
    check_ok(gpuipc_context_create(&config, &within));
    reader_start(&other, GPUIPC_DELIVERY_ALL, 1);
    partner_do(&other, "GPUIPC_OK", "read-on-stream");
    partner_do(&other, "GPUIPC_OK", "create 1 %llu 0 0", (unsigned long long)MEBIBYTES_2);
    partner_do(&other, "GPUIPC_OK", "channel 3 crossed");
    check_ok(gpuipc_subscription_open_named(within, "crossed", NULL, &reader));
    check_ok(os_thread_start(publish_crossed, NULL, &publisher));
    partner_do(&other, "GPUIPC_OK", "publish-beside %d", CROSSED_FRAMES);
    partner_tell(&other, "read-frames %d", CROSSED_FRAMES);
    for (uint64_t i = 1; i <= CROSSED_FRAMES; i++) {
        check_ok(gpuipc_subscription_take(reader, NULL, PATIENCE_MS, &frame));
        cr_assert_eq(frame.sequence, i);
        check_ok(gpuipc_subscription_give_back(reader, &frame, NULL));
    }
    os_thread_join(publisher);
    partner_hear(&other, "GPUIPC_OK 4000 0");
    partner_do(&other, "GPUIPC_OK", "publish-end");
    cr_assert_eq(count_readers(GPUIPC_READER_ACTIVE), 1);
    check_ok(gpuipc_subscription_close(reader));
    check_ok(gpuipc_context_destroy(within));
    partner_end(&other);
    end();
}

Test(channel, a_stopped_reader_is_slow_and_not_dead) {
    partner slow;
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    begin(&(gpuipc_channel_config){.slots = 2});
    reader_start(&slow, GPUIPC_DELIVERY_ALL, 1);
    send_frames(1);
    partner_do(&slow, "GPUIPC_OK 1", "hold-frames 1");
    child_stop(slow.process);
    send_frames(1);
    cr_assert_eq(gpuipc_channel_loan(channel, GPUIPC_NO_STREAM, 50, &frame), GPUIPC_ERR_TIMEOUT);
    cr_assert_eq(count_readers(GPUIPC_READER_ACTIVE), 1);
    child_continue(slow.process);
    partner_do(&slow, "GPUIPC_OK", "give-frames");
    send_frames(1);
    partner_do(&slow, "GPUIPC_OK 2 0", "read-frames 3");
    partner_end(&slow);
    end();
}
