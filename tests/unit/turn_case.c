/* SPDX-License-Identifier: MIT */
/** @file See turn_case.h. */
#include "turn_case.h"

#include <inttypes.h>

CUstream turn_case_makes;
CUstream turn_case_uses[TURN_CASE_READERS];
gpuipc_subscription *turn_case_readers[TURN_CASE_READERS];
gpuipc_buffer *turn_case_seen;

void turn_case_make(void) {
    channel_case_make(&(gpuipc_channel_config){.slots = 1, .turns = 1});
}

/* On any driver. */
void turn_case_start(void) {
    core_start();
    stream_gate_make();
    cr_assert(graphs_find(core_driver()));
    check_ok(gpuipc_server_create(core_context, NULL, &channel_case_server));
    turn_case_makes = stream_gate_stream();
    for (int i = 0; i < TURN_CASE_READERS; i++) {
        turn_case_uses[i] = stream_gate_stream();
    }
    turn_case_seen = core_buffer(core_unit, 0);
    turn_case_make();
}

void turn_case_finish(void) {
    stream_gate_open();
    for (int i = 0; i < TURN_CASE_READERS; i++) {
        (void)gpuipc_subscription_close(turn_case_readers[i]);
        turn_case_readers[i] = NULL;
    }
    (void)gpuipc_channel_destroy(channel_case_channel);
    channel_case_channel = NULL;
    if (turn_case_makes != NULL) {
        stream_gate_synchronize(turn_case_makes);
        for (int i = 0; i < TURN_CASE_READERS; i++) {
            stream_gate_synchronize(turn_case_uses[i]);
            stream_gate_stream_end(turn_case_uses[i]);
        }
        stream_gate_stream_end(turn_case_makes);
        check_ok(gpuipc_buffer_release(turn_case_seen));
    }
    stream_gate_end();
    channel_finish();
}

/* ---- what a test says ---------------------------------------------------------------------------- */

gpuipc_frame turn_case_loan(void) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    check_ok(gpuipc_channel_loan(channel_case_channel, turn_case_makes, SOON_MS, &frame));
    return frame;
}

gpuipc_frame turn_case_take(int reader) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    check_ok(gpuipc_subscription_take(turn_case_readers[reader], turn_case_uses[reader], SOON_MS,
                                      &frame));
    return frame;
}

/* Each turn is first this, and then what it is to be: no reader sees the former. */
#define HALF_DONE UINT32_C(0xbadbad)
#define WORDS     1024u

void turn_case_fill(const gpuipc_frame *frame, uint32_t value) {
    const driver *drv = core_driver();
    cr_assert_eq(drv->cuMemsetD32Async(frame->address, HALF_DONE, WORDS, turn_case_makes),
                 CUDA_SUCCESS);
    cr_assert_eq(drv->cuMemsetD32Async(frame->address, value, WORDS, turn_case_makes),
                 CUDA_SUCCESS);
}

void turn_case_write(uint32_t value) {
    const gpuipc_frame frame = turn_case_loan();
    turn_case_fill(&frame, value);
    check_ok(gpuipc_channel_publish(channel_case_channel, &frame, turn_case_makes));
}

static CUdeviceptr place_of(int reader) {
    return gpuipc_buffer_address(turn_case_seen) + (CUdeviceptr)reader * WORDS * 4;
}

/* What is seen is this reader's part of a buffer. */
void turn_case_read(int reader) {
    const gpuipc_frame frame = turn_case_take(reader);
    cr_assert_eq(frame.bytes, CHANNEL_CASE_SLOT);
    cr_assert_eq(core_driver()->cuMemcpyDtoDAsync(place_of(reader), frame.address, WORDS * 4,
                                                  turn_case_uses[reader]),
                 CUDA_SUCCESS);
    check_ok(
        gpuipc_subscription_give_back(turn_case_readers[reader], &frame, turn_case_uses[reader]));
}

/* When the reader's stream has done what it was given. */
void turn_case_check_seen(int reader, uint32_t value) {
    uint32_t words[WORDS];
    stream_gate_synchronize(turn_case_uses[reader]);
    check_ok(
        gpuipc_buffer_read(turn_case_seen, (uint64_t)reader * sizeof(words), words, sizeof(words)));
    for (uint32_t i = 0; i < WORDS; i++) {
        cr_assert_eq(words[i], value, "%" PRIx32 " in place of %" PRIx32, words[i], value);
    }
}

void turn_case_open_readers(int count) {
    for (int i = 0; i < count; i++) {
        turn_case_readers[i] = channel_case_open(NULL);
    }
}

void turn_case_close_reader(int reader) {
    check_ok(gpuipc_subscription_close(turn_case_readers[reader]));
    turn_case_readers[reader] = NULL;
}

void turn_case_capture_begin(CUstream stream) {
    cr_assert(graphs_begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
}

captured turn_case_capture_end(CUstream stream) {
    captured graph = {NULL, NULL};
    cr_assert(graphs_end(stream, &graph), "the capture was made invalid");
    return graph;
}

captured turn_case_capture_write(uint32_t value) {
    turn_case_capture_begin(turn_case_makes);
    turn_case_write(value);
    return turn_case_capture_end(turn_case_makes);
}

captured turn_case_capture_read(int reader) {
    turn_case_capture_begin(turn_case_uses[reader]);
    turn_case_read(reader);
    return turn_case_capture_end(turn_case_uses[reader]);
}

void turn_case_launch(const captured *graph, CUstream stream) {
    cr_assert(graphs_launch(graph, stream));
}

gpuipc_reader_info turn_case_info_of(int place) {
    gpuipc_reader_info infos[GPUIPC_CHANNEL_READERS_MAX];
    size_t count = 0;
    check_ok(
        gpuipc_channel_readers(channel_case_channel, infos, GPUIPC_CHANNEL_READERS_MAX, &count));
    cr_assert_lt(place, (int)count);
    return infos[place];
}
