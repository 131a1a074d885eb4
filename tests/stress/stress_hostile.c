/* SPDX-License-Identifier: MIT */
/**
 * @file A channel two of whose readers write what they like into their pages, again and again, in processes of their own.
 * They harm themselves. The writer goes on, and the reader that keeps to the rules gets every frame, whole.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "channel/subscription.h"
#include "child.h"
#include "helper.h"
#include "stress.h"
#include "unique.h"

#define SLOTS         4u
#define SLOT_BYTES    4096u
#define HOSTILE       2
#define DROP_AFTER_MS 5u
/* So many words are written before the page is given up for another one. */
#define WORDS 20000
#define NAME  "frames"

/* Actors of the watch. */
#define WRITER 0u
#define READER 1u

static char directory[RUNTIME_DIRECTORY_MAX];

/* ---- who does not keep to the rules ------------------------------------------------------------ */

/* Words at random, and more often those that matter, with values that might be believed. */
static void scribble(const point_page *page, uint64_t *random) {
    for (int i = 0; i < WORDS; i++) {
        const uint32_t at_random[] = {stress_random(random, 8190),
                                      CHANNEL_ENTRIES + stress_random(random, 16 * SLOTS),
                                      CHANNEL_RING + stress_random(random, 8 * SLOTS)};
        const uint32_t at = at_random[stress_random(random, 3)];
        const uint64_t small = stress_random(random, 4096);
        const uint64_t large =
            (uint64_t)stress_random(random, UINT32_MAX) << 32 | stress_random(random, UINT32_MAX);
        channel_write(page, at, stress_random(random, 2) == 0 ? small : large);
        if (i % 64 == 0) {
            os_sleep_ms(0);
        }
    }
}

/* DIRECTORY DELIVERY SEED SECONDS */
static int run_hostile(char **arguments) {
    gpuipc_subscription_config config = {.struct_size = sizeof(config), .timeout_ms = -1};
    helper_begin();
    stress_begin_peer("hostile", strtoull(arguments[2], NULL, 10),
                      (unsigned)strtoul(arguments[3], NULL, 10));
    uint64_t random = stress_state(1000);
    config.delivery = (gpuipc_delivery)strtol(arguments[1], NULL, 10);
    gpuipc_context *within = stress_context(arguments[0]);
    uint64_t count = 0;
    while (stress_goes_on()) {
        /* one that is slow to open is dropped before it has: on Windows the opening says so */
        static const gpuipc_status may[] = {GPUIPC_ERR_LIMIT, GPUIPC_ERR_NOT_FOUND,
                                            GPUIPC_ERR_SERVER_BUSY, GPUIPC_ERR_CONNECTION_BROKEN,
                                            GPUIPC_OK};
        gpuipc_subscription *opened = NULL;
        object *behind;
        stress_now(READER, "gpuipc_subscription_open_named");
        if (stress_allow(gpuipc_subscription_open_named(within, NAME, &config, &opened),
                         "gpuipc_subscription_open_named", may) != GPUIPC_OK) {
            continue;
        }
        if (count == 0) {
            helper_say("open");
        }
        STRESS_OK(object_acquire(OBJECT_SUBSCRIPTION, opened, &behind));
        scribble(((subscription *)behind)->page, &random);
        object_unreference(behind);
        stress_now(READER, "gpuipc_subscription_close");
        STRESS_OK(gpuipc_subscription_close(opened));
        count++;
    }
    STRESS_OK(gpuipc_context_destroy(within));
    helper_say("%" PRIu64, count);
    return stress_end("over");
}

static child_process *start_hostile(gpuipc_delivery delivery, uint64_t seed) {
    char kind[8];
    char seed_text[32];
    char seconds[32];
    char answer[CHILD_LINE_MAX];
    const char *const arguments[] = {"hostile", directory, kind, seed_text, seconds, NULL};
    child_process *made = NULL;
    (void)snprintf(kind, sizeof(kind), "%d", (int)delivery);
    (void)snprintf(seed_text, sizeof(seed_text), "%" PRIu64, seed);
    (void)snprintf(seconds, sizeof(seconds), "%u", stress_seconds());
    STRESS_OK(child_start("stress_hostile", arguments, NULL, &made));
    STRESS_EXPECT(child_expect_line(made, "open", answer, STRESS_SOON_MS));
    return made;
}

static uint64_t end_hostile(child_process *one) {
    char answer[CHILD_LINE_MAX];
    child_end end = {.exited = false};
    STRESS_OK(child_read_line(one, answer, sizeof(answer), 3 * STRESS_SOON_MS));
    child_close_input(one);
    STRESS_OK(child_wait(one, 3 * STRESS_SOON_MS, &end));
    child_destroy(one);
    STRESS_EXPECT(end.exited && end.code == 0);
    return strtoull(answer, NULL, 10);
}

/* ---- the writer, and a reader that does -------------------------------------------------------- */

static void pass_one(gpuipc_channel *channel, gpuipc_subscription *reader, uint64_t number) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    gpuipc_frame came = GPUIPC_FRAME_INIT;
    stress_now(WRITER, "gpuipc_channel_loan");
    STRESS_OK(gpuipc_channel_loan(channel, GPUIPC_NO_STREAM, STRESS_SOON_MS, &frame));
    frame.header = &number;
    frame.header_bytes = sizeof(number);
    frame.bytes = number % SLOT_BYTES;
    stress_now(WRITER, "gpuipc_channel_publish");
    STRESS_OK(gpuipc_channel_publish(channel, &frame, GPUIPC_NO_STREAM));
    stress_now(WRITER, "gpuipc_subscription_take");
    STRESS_OK(gpuipc_subscription_take(reader, GPUIPC_NO_STREAM, 0, &came));
    STRESS_EXPECT(came.sequence == number && came.missed == 0);
    STRESS_EXPECT(came.address == frame.address && came.bytes == number % SLOT_BYTES);
    STRESS_EXPECT(came.header_bytes == sizeof(number) &&
                  memcmp(came.header, &number, sizeof(number)) == 0);
    STRESS_OK(gpuipc_subscription_give_back(reader, &came, GPUIPC_NO_STREAM));
}

static gpuipc_channel *make_channel(gpuipc_context *within, gpuipc_server *server,
                                    gpuipc_ticket *out_ticket) {
    const gpuipc_buffer_config slots = {.struct_size = sizeof(slots),
                                        .bytes = UINT64_C(1) * SLOTS * SLOT_BYTES};
    gpuipc_channel_config config = {.struct_size = sizeof(config),
                                    .slots = SLOTS,
                                    .slot_bytes = SLOT_BYTES,
                                    .header_bytes = sizeof(uint64_t),
                                    .full = GPUIPC_FULL_DROP,
                                    .drop_after_ms = DROP_AFTER_MS,
                                    .name = NAME};
    gpuipc_channel *made = NULL;
    STRESS_OK(gpuipc_buffer_create(within, &slots, &config.buffer));
    STRESS_OK(gpuipc_channel_create(server, &config, &made, out_ticket));
    STRESS_OK(gpuipc_buffer_release(config.buffer));
    return made;
}

int main(int argc, char **argv) {
    child_process *hostile[HOSTILE];
    gpuipc_server *server = NULL;
    gpuipc_subscription *reader = NULL;
    gpuipc_ticket ticket;
    uint64_t number = 0;
    uint64_t pages = 0;
    if (argc == 6 && strcmp(argv[1], "hostile") == 0) {
        return run_hostile(argv + 2);
    }
    stress_begin("hostile", argc, argv);
    STRESS_EXPECT(runtime_directory_make(directory));
    gpuipc_context *within = stress_context(directory);
    STRESS_OK(gpuipc_server_create(within, NULL, &server));
    gpuipc_channel *channel = make_channel(within, server, &ticket);
    STRESS_OK(gpuipc_subscription_open(within, &ticket, NULL, &reader));
    for (int i = 0; i < HOSTILE; i++) {
        hostile[i] = start_hostile((gpuipc_delivery)(i % 2), stress_seed() + (uint64_t)i);
    }
    while (stress_goes_on()) {
        pass_one(channel, reader, ++number);
    }
    for (int i = 0; i < HOSTILE; i++) {
        pages += end_hostile(hostile[i]);
    }
    pass_one(channel, reader, ++number);
    STRESS_OK(gpuipc_subscription_close(reader));
    STRESS_OK(gpuipc_channel_destroy(channel));
    STRESS_OK(gpuipc_server_destroy(server));
    STRESS_OK(gpuipc_context_destroy(within));
    runtime_directory_remove(directory);
    return stress_end("%" PRIu64 " frames, %" PRIu64 " pages scribbled on", number, pages);
}
