/* SPDX-License-Identifier: MIT */
/** @file The helper's commands about channels of turns: it writes one, or reads one, by a graph that it launches again and
 *  again. A turn is the same word all over the slot. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graphs.h"
#include "helper.h"
#include "helper_commands.h"

#define SLOT_BYTES 4096u

static gpuipc_server *server;
static gpuipc_channel *channel;
static gpuipc_subscription *subscription;
static captured graph;
static CUstream stream;

static void synchronize(void) {
    if (stream != NULL) {
        (void)helper_point_driver()->cuStreamSynchronize(stream);
    }
}

static void destroy_graph(void) {
    if (graph.exec != NULL) {
        (void)graphs_destroy(&graph);
    }
}

void helper_turn_end(void) {
    (void)gpuipc_subscription_close(subscription);
    subscription = NULL;
    (void)gpuipc_channel_destroy(channel);
    channel = NULL;
    (void)gpuipc_server_destroy(server);
    server = NULL;
    synchronize();
    destroy_graph();
    if (stream != NULL) {
        (void)helper_point_driver()->cuStreamDestroy(stream);
        stream = NULL;
    }
}

/* Begins a capture; says why not. */
static bool begin(void) {
    const driver *drv = helper_point_driver();
    destroy_graph();
    const bool can =
        drv != NULL && graphs_find(drv) &&
        (stream != NULL || drv->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS) &&
        graphs_begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    if (!can) {
        helper_say("no stream that can be captured");
    }
    return can;
}

static void end(gpuipc_status status) {
    if (!graphs_end(stream, &graph)) {
        helper_say("the capture was made invalid");
    } else {
        helper_say_status(status);
    }
}

/* ---- writing ------------------------------------------------------------------------------- */

/* turns NAME: a channel of turns over its first buffer */
static void make(helper_state *self, const char *arguments) {
    char name[GPUIPC_NAME_MAX + 1] = "";
    gpuipc_ticket made;
    (void)sscanf(arguments, " %64s", name);
    const gpuipc_channel_config config = {.struct_size = sizeof(config),
                                          .buffer = self->buffers[0],
                                          .slots = 1,
                                          .slot_bytes = SLOT_BYTES,
                                          .name = name,
                                          .turns = 1};
    gpuipc_status status = gpuipc_server_create(self->context, NULL, &server);
    if (status == GPUIPC_OK) {
        status = gpuipc_channel_create(server, &config, &channel, &made);
    }
    helper_say_status(status);
}

/* turns-write VALUE: captures the writing of a turn, for the readers that there are */
static void capture_write(helper_state *self, const char *arguments) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    const uint32_t value = (uint32_t)strtoul(arguments, NULL, 10);
    (void)self;
    if (!begin()) {
        return;
    }
    gpuipc_status status = gpuipc_channel_loan(channel, stream, 0, &frame);
    if (status == GPUIPC_OK) {
        (void)helper_point_driver()->cuMemsetD32Async(frame.address, value, SLOT_BYTES / 4, stream);
        status = gpuipc_channel_publish(channel, &frame, stream);
    }
    end(status);
}

/* turns-ahead: writes turns outside of any graph, and waits for nobody; says why it stops */
static void write_ahead(helper_state *self, const char *arguments) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    gpuipc_status status = GPUIPC_OK;
    (void)self;
    (void)arguments;
    for (int left = 1000; left > 0 && status == GPUIPC_OK; left--) {
        status = gpuipc_channel_loan(channel, stream, 0, &frame);
        if (status == GPUIPC_OK) {
            status = gpuipc_channel_publish(channel, &frame, stream);
        }
    }
    helper_say_status(status);
}

/* turns-readers: how many there are of each state, from active on, and how many are in a capture */
static void count_readers(helper_state *self, const char *arguments) {
    gpuipc_reader_info infos[GPUIPC_CHANNEL_READERS_MAX];
    unsigned states[5] = {0};
    unsigned in_captures = 0;
    size_t count = 0;
    (void)self;
    (void)arguments;
    gpuipc_status status =
        gpuipc_channel_readers(channel, infos, GPUIPC_CHANNEL_READERS_MAX, &count);
    for (size_t i = 0; i < count; i++) {
        states[infos[i].state]++;
        in_captures += infos[i].captured > 0;
    }
    helper_say("%s %u %u %u %u, %u", gpuipc_status_name(status), states[GPUIPC_READER_ACTIVE],
               states[GPUIPC_READER_CLOSED], states[GPUIPC_READER_DROPPED],
               states[GPUIPC_READER_ENDED], in_captures);
}

/* ---- reading ------------------------------------------------------------------------------- */

/* turns-open NAME: and captures the reading of a turn, into its first buffer */
static void open_turns(helper_state *self, const char *arguments) {
    char name[GPUIPC_NAME_MAX + 1] = "";
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    (void)sscanf(arguments, " %64s", name);
    gpuipc_status status = gpuipc_subscription_open_named(self->context, name, NULL, &subscription);
    if (status != GPUIPC_OK) {
        helper_say_status(status);
        return;
    }
    if (!begin()) {
        return;
    }
    status = gpuipc_subscription_take(subscription, stream, 0, &frame);
    if (status == GPUIPC_OK) {
        (void)helper_point_driver()->cuMemcpyDtoDAsync(gpuipc_buffer_address(self->buffers[0]),
                                                       frame.address, SLOT_BYTES, stream);
        status = gpuipc_subscription_give_back(subscription, &frame, stream);
    }
    end(status);
}

/* turns-check: what the reader learns of the writer */
static void check(helper_state *self, const char *arguments) {
    (void)self;
    (void)arguments;
    helper_say_status(gpuipc_subscription_check(subscription));
}

/* turns-take: outside of any graph */
static void take(helper_state *self, const char *arguments) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    (void)self;
    (void)arguments;
    helper_say_status(gpuipc_subscription_take(subscription, stream, 0, &frame));
}

/* ---- either ------------------------------------------------------------------------------------ */

/* turns-launch COUNT: and does not wait for it */
static void launch(helper_state *self, const char *arguments) {
    bool is_done = true;
    (void)self;
    for (unsigned long left = strtoul(arguments, NULL, 10); left > 0 && is_done; left--) {
        is_done = graphs_launch(&graph, stream);
    }
    helper_say(is_done ? "GPUIPC_OK" : "not launched");
}

/* turns-await: until all is done; says the first word of its first buffer */
static void await(helper_state *self, const char *arguments) {
    uint32_t word = 0;
    (void)arguments;
    synchronize();
    gpuipc_status status = gpuipc_buffer_read(self->buffers[0], 0, &word, sizeof(word));
    helper_say("%s %" PRIu32, gpuipc_status_name(status), word);
}

/* turns-waiting: whether there is something that is not done */
static void is_waiting(helper_state *self, const char *arguments) {
    (void)self;
    (void)arguments;
    helper_say(helper_point_driver()->cuStreamQuery(stream) == CUDA_ERROR_NOT_READY ? "waits"
                                                                                    : "done");
}

const helper_command helper_turn_commands[] = {{"turns", make},
                                               {"turns-write", capture_write},
                                               {"turns-ahead", write_ahead},
                                               {"turns-readers", count_readers},
                                               {"turns-open", open_turns},
                                               {"turns-check", check},
                                               {"turns-take", take},
                                               {"turns-launch", launch},
                                               {"turns-await", await},
                                               {"turns-waiting", is_waiting},
                                               {NULL, NULL}};
