/* SPDX-License-Identifier: MIT */
/** @file The helper's commands about channels: it writes one, and reads one. A frame's header is its sequence number. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "helper.h"
#include "helper_commands.h"
#include "os.h"

static gpuipc_server *server;
static gpuipc_channel *channel;
static gpuipc_subscription *subscription;
static gpuipc_stream reads_on = GPUIPC_NO_STREAM;
static gpuipc_frame held[GPUIPC_CHANNEL_SLOTS_MAX];
static size_t held_count;

void helper_channel_end(void) {
    (void)gpuipc_subscription_close(subscription);
    subscription = NULL;
    (void)gpuipc_channel_destroy(channel);
    channel = NULL;
    (void)gpuipc_server_destroy(server);
    server = NULL;
    held_count = 0;
}

/* The next number of a line. */
static uint64_t number(const char **at) {
    char *end;
    const uint64_t found = strtoull(*at, &end, 10);
    *at = end;
    return found;
}

/* ---- writing ------------------------------------------------------------------------------- */

/* channel SLOTS [NAME]: over its first buffer, with a server; says the text of the ticket */
static void make(helper_state *self, const char *arguments) {
    gpuipc_channel_config config = {
        .struct_size = sizeof(config), .buffer = self->buffers[0], .slot_bytes = 4096};
    gpuipc_ticket made;
    char name[GPUIPC_NAME_MAX + 1] = "";
    char text[GPUIPC_TICKET_TEXT_SIZE] = "";
    config.header_bytes = sizeof(uint64_t);
    config.slots = (uint32_t)number(&arguments);
    if (sscanf(arguments, " %64s", name) == 1) {
        config.name = name;
    }
    gpuipc_status status = server == NULL ? helper_serve(self, &server) : GPUIPC_OK;
    if (status == GPUIPC_OK) {
        status = gpuipc_channel_create(server, &config, &channel, &made);
    }
    if (status == GPUIPC_OK) {
        status = gpuipc_ticket_to_text(&made, text);
    }
    helper_say("%s %s", gpuipc_status_name(status), text);
}

static gpuipc_status publish_on(gpuipc_stream stream, uint64_t sequence, uint64_t count) {
    gpuipc_status status = GPUIPC_OK;
    for (; count > 0 && status == GPUIPC_OK; count--, sequence++) {
        gpuipc_frame frame = GPUIPC_FRAME_INIT;
        status = gpuipc_channel_loan(channel, stream, -1, &frame);
        frame.header = &sequence;
        frame.header_bytes = sizeof(sequence);
        if (status == GPUIPC_OK) {
            status = gpuipc_channel_publish(channel, &frame, stream);
        }
    }
    return status;
}

/* publish FIRST COUNT */
static void publish(helper_state *self, const char *arguments) {
    const uint64_t first = number(&arguments);
    (void)self;
    helper_say_status(publish_on(GPUIPC_NO_STREAM, first, number(&arguments)));
}

static os_thread *publisher;
static uint64_t published_beside;
static gpuipc_status publisher_status;

static void publish_beside(void *argument) {
    (void)argument;
    publisher_status = publish_on(NULL, 1, published_beside);
}

/* publish-beside COUNT: in the order of the default stream, by a thread that goes on */
static void publish_begin(helper_state *self, const char *arguments) {
    (void)self;
    published_beside = number(&arguments);
    helper_say_status(os_thread_start(publish_beside, NULL, &publisher));
}

/* publish-end: of that thread */
static void publish_end(helper_state *self, const char *arguments) {
    (void)self;
    (void)arguments;
    os_thread_join(publisher);
    helper_say_status(publisher_status);
}

/* publish-late: one frame, which is ready when the default stream is there */
static void publish_late(helper_state *self, const char *arguments) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    (void)self;
    (void)arguments;
    gpuipc_status status = gpuipc_channel_loan(channel, GPUIPC_NO_STREAM, -1, &frame);
    if (status == GPUIPC_OK) {
        status = gpuipc_channel_publish(channel, &frame, NULL);
    }
    helper_say_status(status);
}

/* publish-by-kernel: one frame, and says that a kernel was launched, which never stores */
static void publish_by_kernel(helper_state *self, const char *arguments) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    gpuipc_word words[GPUIPC_CHANNEL_READERS_MAX];
    size_t count;
    (void)self;
    (void)arguments;
    gpuipc_status status = gpuipc_channel_loan(channel, NULL, -1, &frame);
    if (status == GPUIPC_OK) {
        status = gpuipc_channel_publish_by_kernel(channel, &frame, NULL, words,
                                                  GPUIPC_CHANNEL_READERS_MAX, &count);
    }
    if (status == GPUIPC_OK) {
        status = gpuipc_channel_kernel_launched(channel, &frame, NULL);
    }
    helper_say_status(status);
}

/* loan: and nothing more */
static void loan(helper_state *self, const char *arguments) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    (void)self;
    (void)arguments;
    helper_say_status(gpuipc_channel_loan(channel, GPUIPC_NO_STREAM, -1, &frame));
}

/* ---- reading ------------------------------------------------------------------------------- */

/* subscribe-name NAME TIMEOUT */
static void subscribe_name(helper_state *self, const char *arguments) {
    gpuipc_subscription_config config = {.struct_size = sizeof(config),
                                         .policy = helper_endpoint(self).policy};
    char name[GPUIPC_NAME_MAX + 1] = "";
    int length = 0;
    (void)sscanf(arguments, " %64s%n", name, &length);
    arguments += length;
    config.timeout_ms = (int32_t)number(&arguments);
    helper_say_status(gpuipc_subscription_open_named(self->context, name, &config, &subscription));
}

/* subscribe TEXT DELIVERY HELD */
static void subscribe(helper_state *self, const char *arguments) {
    gpuipc_subscription_config config = {.struct_size = sizeof(config),
                                         .policy = helper_endpoint(self).policy};
    char text[GPUIPC_TICKET_TEXT_SIZE] = "";
    int length = 0;
    gpuipc_ticket wanted;
    (void)sscanf(arguments, " %94s%n", text, &length);
    arguments += length;
    config.delivery = (gpuipc_delivery)number(&arguments);
    config.max_held = (uint32_t)number(&arguments);
    gpuipc_status status = gpuipc_ticket_from_text(text, &wanted);
    if (status == GPUIPC_OK) {
        status = gpuipc_subscription_open(self->context, &wanted, &config, &subscription);
    }
    helper_say_status(status);
}

/* unsubscribe */
static void unsubscribe(helper_state *self, const char *arguments) {
    (void)self;
    (void)arguments;
    gpuipc_status status = gpuipc_subscription_close(subscription);
    subscription = NULL;
    held_count = 0;
    helper_say_status(status);
}

/* ERR_WRONG_DATA when it is not what its header says. */
static gpuipc_status take_one(gpuipc_frame *out_frame) {
    gpuipc_status status = gpuipc_subscription_take(subscription, reads_on, -1, out_frame);
    if (status == GPUIPC_OK &&
        (out_frame->header_bytes != sizeof(uint64_t) ||
         memcmp(out_frame->header, &out_frame->sequence, sizeof(uint64_t)) != 0)) {
        return GPUIPC_ERR_WRONG_DATA;
    }
    return status;
}

/* hold COUNT: takes so many and keeps them; says the last one's number */
static void hold(helper_state *self, const char *arguments) {
    gpuipc_status status = GPUIPC_OK;
    uint64_t count = number(&arguments);
    (void)self;
    for (; count > 0 && held_count < GPUIPC_CHANNEL_SLOTS_MAX && status == GPUIPC_OK; count--) {
        held[held_count] = (gpuipc_frame)GPUIPC_FRAME_INIT;
        status = take_one(&held[held_count]);
        held_count += status == GPUIPC_OK;
    }
    helper_say("%s %" PRIu64, gpuipc_status_name(status),
               held_count == 0 ? 0 : held[held_count - 1].sequence);
}

/* take-for-kernel: one frame, and says that a kernel was launched, which never stores */
static void take_for_kernel(helper_state *self, const char *arguments) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    gpuipc_word ready;
    gpuipc_word returned;
    (void)self;
    (void)arguments;
    gpuipc_status status =
        gpuipc_subscription_take_for_kernel(subscription, NULL, -1, &frame, &ready, &returned);
    if (status == GPUIPC_OK) {
        status = gpuipc_subscription_kernel_launched(subscription, &frame, NULL);
    }
    helper_say_status(status);
}

/* give: all that it keeps */
static void give(helper_state *self, const char *arguments) {
    gpuipc_status status = GPUIPC_OK;
    (void)self;
    (void)arguments;
    while (held_count > 0 && status == GPUIPC_OK) {
        status = gpuipc_subscription_give_back(subscription, &held[--held_count], GPUIPC_NO_STREAM);
    }
    helper_say_status(status);
}

/* read LAST: takes and gives back until the frame with that number, or a failure; says how many and how many it missed */
static void read_frames(helper_state *self, const char *arguments) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    gpuipc_status status = GPUIPC_OK;
    const uint64_t last = number(&arguments);
    uint64_t count = 0;
    uint64_t missed = 0;
    (void)self;
    while (status == GPUIPC_OK && frame.sequence < last) {
        status = take_one(&frame);
        if (status == GPUIPC_OK) {
            count++;
            missed += frame.missed;
            status = gpuipc_subscription_give_back(subscription, &frame, reads_on);
        }
    }
    helper_say("%s %" PRIu64 " %" PRIu64, gpuipc_status_name(status), count, missed);
}

/* read-on-stream: from now on frames are taken and given back in the order of the default stream */
static void read_on_stream(helper_state *self, const char *arguments) {
    (void)self;
    (void)arguments;
    reads_on = NULL;
    helper_say_status(GPUIPC_OK);
}

const helper_command helper_channel_commands[] = {{"channel", make},
                                                  {"read-on-stream", read_on_stream},
                                                  {"publish-frames", publish},
                                                  {"publish-late", publish_late},
                                                  {"publish-beside", publish_begin},
                                                  {"publish-end", publish_end},
                                                  {"publish-by-kernel", publish_by_kernel},
                                                  {"take-for-kernel", take_for_kernel},
                                                  {"loan-frame", loan},
                                                  {"subscribe", subscribe},
                                                  {"subscribe-name", subscribe_name},
                                                  {"hold-frames", hold},
                                                  {"give-frames", give},
                                                  {"read-frames", read_frames},
                                                  {"unsubscribe", unsubscribe},
                                                  {NULL, NULL}};
