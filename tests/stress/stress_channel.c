/* SPDX-License-Identifier: MIT */
/**
 * @file One writer and four readers in processes of their own, one of which is killed and replaced again and again. Frames
 * of any size are filled and read on streams and without, in any mixture; and by kernels, which host functions play. Every frame that a reader gets is whole, and
 * whoever wants every frame gets every frame.
 *
 *     stress_channel [--frames N] [--kill-every N] [--growth]
 *
 * --growth, after so many frames: neither the writer nor the readers that lived all the time have grown.
 */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "child.h"
#include "driver.h"
#include "growth.h"
#include "helper.h"
#include "os.h"
#include "stress.h"
#include "unique.h"

#define SLOTS      6u
#define SLOT_BYTES 65536u
#define HELD       3u
#define READERS    4
#define VICTIM     3
#define KILL_EVERY 97
#define STREAMS    2

/* Actors of the watch. */
#define WRITER 0u
#define READER 1u

static char directory[RUNTIME_DIRECTORY_MAX];
static char ticket_text[GPUIPC_TICKET_TEXT_SIZE];
static driver drv;
static CUstream streams[STREAMS];

static void expect_success(CUresult result, const char *what) {
    if (result != CUDA_SUCCESS) {
        stress_fail("%s answered %d", what, (int)result);
    }
}

static void begin_device(void) {
    const char *choice = os_environment("GPUIPC_CUDA_DRIVER");
    CUcontext primary;
    STRESS_OK(driver_open(choice == NULL ? "auto" : choice, &drv));
    expect_success(drv.cuDevicePrimaryCtxRetain(&primary, 0), "cuDevicePrimaryCtxRetain");
    expect_success(drv.cuCtxSetCurrent(primary), "cuCtxSetCurrent");
    for (int i = 0; i < STREAMS; i++) {
        expect_success(drv.cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    }
}

static void end_device(void) {
    for (int i = 0; i < STREAMS; i++) {
        expect_success(drv.cuStreamSynchronize(streams[i]), "cuStreamSynchronize");
        expect_success(drv.cuStreamDestroy(streams[i]), "cuStreamDestroy");
    }
    expect_success(drv.cuCtxSetCurrent(NULL), "cuCtxSetCurrent");
    expect_success(drv.cuDevicePrimaryCtxRelease(0), "cuDevicePrimaryCtxRelease");
}

static CUstream any_stream(uint64_t *random) {
    return streams[stress_random(random, STREAMS)];
}

/* ---- kernels --------------------------------------------------------------------------------- */

/* What a kernel makes of words, here by a host function in the order of the stream. */
typedef struct kernel {
    gpuipc_word awaits; /* no address: it stores */
    size_t count;
    gpuipc_word stores[GPUIPC_CHANNEL_READERS_MAX];
} kernel;

static _Atomic uint64_t *at_word(const gpuipc_word *word) {
    return (_Atomic uint64_t *)(uintptr_t)word->address;
}

static void run_kernel(void *argument) {
    kernel *self = argument;
    const gpuipc_word *awaited = &self->awaits;
    while (awaited->address != 0 &&
           atomic_load_explicit(at_word(awaited), memory_order_acquire) - awaited->value >=
               UINT64_C(1) << 63) {
        os_sleep_ms(0);
    }
    for (size_t i = 0; i < self->count; i++) {
        atomic_store_explicit(at_word(&self->stores[i]), self->stores[i].value,
                              memory_order_release);
    }
    free(self);
}

static void launch(const kernel *what, CUstream stream) {
    kernel *made = malloc(sizeof(*made));
    STRESS_EXPECT(made != NULL);
    *made = *what;
    expect_success(drv.cuLaunchHostFunc(stream, run_kernel, made), "cuLaunchHostFunc");
}

/* ---- a reader -------------------------------------------------------------------------------- */

typedef struct reader {
    gpuipc_subscription *subscription;
    gpuipc_delivery delivery;
    uint64_t random;
    uint64_t count;
    uint64_t missed;
    uint64_t last;
    gpuipc_frame held[HELD];
    uint32_t held_count;
} reader;

/* The first and the last word, copied where the frame is used. */
static void check_words(const uint32_t words[2], uint64_t sequence, const char *how) {
    if (words[0] != (uint32_t)sequence || words[1] != (uint32_t)sequence) {
        stress_fail("frame %" PRIu64 " has %" PRIu32 " and %" PRIu32 " (%s)", sequence, words[0],
                    words[1], how);
    }
}

static void use_on_host(reader *self, const gpuipc_frame *frame) {
    uint32_t words[2] = {0, 0};
    expect_success(drv.cuMemcpyDtoH(&words[0], frame->address, 4), "cuMemcpyDtoH");
    expect_success(drv.cuMemcpyDtoH(&words[1], frame->address + frame->bytes - 4, 4),
                   "cuMemcpyDtoH");
    check_words(words, frame->sequence, "on the host");
    STRESS_OK(gpuipc_subscription_give_back(self->subscription, frame, GPUIPC_NO_STREAM));
}

/* How a frame is taken. */
typedef struct way {
    CUstream stream;
    bool by_kernel;
    gpuipc_word ready;
    gpuipc_word returned;
} way;

static gpuipc_status take(reader *self, way *how, int timeout_ms, gpuipc_frame *out_frame) {
    return how->by_kernel
               ? gpuipc_subscription_take_for_kernel(self->subscription, how->stream, timeout_ms,
                                                     out_frame, &how->ready, &how->returned)
               : gpuipc_subscription_take(self->subscription, how->stream, timeout_ms, out_frame);
}

static void give_back(reader *self, const way *how, const gpuipc_frame *frame) {
    if (how->by_kernel) {
        launch(&(kernel){.count = 1, .stores = {how->returned}}, how->stream);
        STRESS_OK(gpuipc_subscription_kernel_launched(self->subscription, frame, how->stream));
    } else {
        STRESS_OK(gpuipc_subscription_give_back(self->subscription, frame, how->stream));
    }
}

static void use_on_stream(reader *self, const gpuipc_frame *frame, const way *how) {
    CUstream stream = how->stream;
    uint32_t words[2] = {0, 0};
    const uint64_t sequence = frame->sequence;
    if (how->by_kernel) {
        launch(&(kernel){.awaits = how->ready}, stream);
    }
    expect_success(drv.cuMemcpyDtoHAsync(&words[0], frame->address, 4, stream),
                   "cuMemcpyDtoHAsync");
    expect_success(drv.cuMemcpyDtoHAsync(&words[1], frame->address + frame->bytes - 4, 4, stream),
                   "cuMemcpyDtoHAsync");
    give_back(self, how, frame);
    expect_success(drv.cuStreamSynchronize(stream), "cuStreamSynchronize");
    check_words(words, sequence, "on a stream");
}

static void note(reader *self, const gpuipc_frame *frame) {
    STRESS_EXPECT(frame->header_bytes == sizeof(uint64_t) &&
                  memcmp(frame->header, &frame->sequence, sizeof(uint64_t)) == 0);
    STRESS_EXPECT(self->count == 0 || frame->sequence == self->last + 1 + frame->missed);
    STRESS_EXPECT(self->delivery == GPUIPC_DELIVERY_NEWEST || frame->missed == 0 ||
                  self->count == 0);
    self->last = frame->sequence;
    self->count++;
    self->missed += frame->missed;
}

/* Takes one, and uses it, or some of those that were taken without a stream before. False: there are no more. */
static bool step(reader *self) {
    static const gpuipc_status over[] = {GPUIPC_ERR_PEER_CLOSED, GPUIPC_OK};
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    static const gpuipc_status none_yet[] = {GPUIPC_ERR_TIMEOUT, GPUIPC_ERR_PEER_CLOSED, GPUIPC_OK};
    const bool on_stream = stress_random(&self->random, 2) == 0;
    way how = {.stream = on_stream ? any_stream(&self->random) : GPUIPC_NO_STREAM,
               .by_kernel = on_stream && stress_random(&self->random, 2) == 0};
    stress_now(READER, "gpuipc_subscription_take");
    gpuipc_status status = GPUIPC_ERR_TIMEOUT;
    if (stress_random(&self->random, 2) == 0) { /* as an event loop looks */
        status = stress_allow(take(self, &how, 0, &frame), "gpuipc_subscription_take", none_yet);
    }
    if (status == GPUIPC_ERR_TIMEOUT) {
        status = stress_allow(take(self, &how, -1, &frame), "gpuipc_subscription_take", over);
    }
    if (status != GPUIPC_OK) {
        return false;
    }
    note(self, &frame);
    stress_now(READER, "gpuipc_subscription_give_back");
    if (on_stream) {
        use_on_stream(self, &frame, &how);
    } else {
        self->held[self->held_count++] = frame;
    }
    while (self->held_count == HELD - 1 ||
           (self->held_count > 0 && stress_random(&self->random, 2) == 0)) {
        const uint32_t at = stress_random(&self->random, self->held_count);
        use_on_host(self, &self->held[at]);
        self->held[at] = self->held[--self->held_count];
    }
    return true;
}

/* One in ten is for what a process keeps. */
static void begin_growth(uint64_t frames) {
    if (frames > 0) {
        growth_begin(frames / 10, frames);
    }
}

/* DIRECTORY TICKET DELIVERY SEED SECONDS FRAMES-OF-GROWTH */
static int run_reader(char **arguments) {
    static reader self;
    gpuipc_subscription_config config = {.struct_size = sizeof(config), .max_held = HELD};
    gpuipc_ticket wanted;
    helper_begin();
    stress_begin_peer("channel", strtoull(arguments[3], NULL, 10),
                      (unsigned)strtoul(arguments[4], NULL, 10));
    self.random = stress_state(1000);
    self.delivery = (gpuipc_delivery)strtol(arguments[2], NULL, 10);
    const uint64_t frames = strtoull(arguments[5], NULL, 10);
    begin_growth(frames);
    config.delivery = self.delivery;
    gpuipc_context *context = stress_context(arguments[0]);
    begin_device();
    STRESS_OK(gpuipc_ticket_from_text(arguments[1], &wanted));
    STRESS_OK(gpuipc_subscription_open(context, &wanted, &config, &self.subscription));
    if (stress_random(&self.random, 2) == 0) { /* its thread looks out whenever no call does */
        intptr_t native;
        STRESS_OK(gpuipc_subscription_get_wait_handle(self.subscription, &native));
    }
    helper_say("open");
    while (step(&self)) {
        if (frames > 0) {
            growth_look(self.count);
        }
    }
    if (frames > 0) {
        growth_judge("reader");
    }
    STRESS_OK(gpuipc_subscription_close(self.subscription));
    end_device();
    STRESS_OK(gpuipc_context_destroy(context));
    helper_say("%" PRIu64 " %" PRIu64 " %" PRIu64, self.count, self.missed, self.last);
    return stress_end("over");
}

/* ---- the writer ------------------------------------------------------------------------------ */

/* @param growth_frames 0: it comes later, or does not take every frame */
static child_process *start_reader(gpuipc_delivery delivery, uint64_t seed,
                                   uint64_t growth_frames) {
    char kind[8];
    char seed_text[32];
    char seconds[32];
    char frames[32];
    const char *const arguments[] = {"reader",  directory, ticket_text, kind,
                                     seed_text, seconds,   frames,      NULL};
    char answer[CHILD_LINE_MAX];
    child_process *made = NULL;
    (void)snprintf(kind, sizeof(kind), "%d", (int)delivery);
    (void)snprintf(seed_text, sizeof(seed_text), "%" PRIu64, seed);
    (void)snprintf(seconds, sizeof(seconds), "%u", stress_seconds());
    (void)snprintf(frames, sizeof(frames), "%" PRIu64, growth_frames);
    STRESS_OK(child_start("stress_channel", arguments, NULL, &made));
    STRESS_EXPECT(child_expect_line(made, "open", answer, STRESS_SOON_MS));
    return made;
}

static void publish_by_kernel(gpuipc_channel *channel, const gpuipc_frame *frame, CUstream stream) {
    kernel stores = {.count = 0};
    STRESS_OK(gpuipc_channel_publish_by_kernel(channel, frame, stream, stores.stores,
                                               GPUIPC_CHANNEL_READERS_MAX, &stores.count));
    launch(&stores, stream);
    STRESS_OK(gpuipc_channel_kernel_launched(channel, frame, stream));
}

/* Any frame, in any way. */
static void write_frame(gpuipc_channel *channel, uint64_t *random, uint64_t *sequence) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    const bool on_stream = stress_random(random, 2) == 0;
    const CUstream work = any_stream(random);
    const CUstream stream = on_stream ? work : GPUIPC_NO_STREAM;
    const uint32_t words = 1 + stress_random(random, SLOT_BYTES / 4);
    stress_now(WRITER, "gpuipc_channel_loan");
    STRESS_OK(gpuipc_channel_loan(channel, stream, STRESS_SOON_MS, &frame));
    const uint64_t number = *sequence + 1;
    expect_success(drv.cuMemsetD32Async(frame.address, (uint32_t)number, words, work),
                   "cuMemsetD32Async");
    const bool is_discarded = stress_random(random, 20) == 0;
    if (!on_stream || is_discarded) {
        expect_success(drv.cuStreamSynchronize(work), "cuStreamSynchronize");
    }
    if (is_discarded) {
        STRESS_OK(gpuipc_channel_discard(channel, &frame));
        return;
    }
    frame.bytes = words * UINT64_C(4);
    frame.header = &number;
    frame.header_bytes = sizeof(number);
    stress_now(WRITER, "gpuipc_channel_publish");
    if (on_stream && stress_random(random, 2) == 0) {
        publish_by_kernel(channel, &frame, work);
    } else {
        STRESS_OK(gpuipc_channel_publish(channel, &frame, stream));
    }
    *sequence = number;
}

static void end_reader(child_process *one, uint64_t sequence, bool takes_all) {
    char answer[CHILD_LINE_MAX];
    char *rest = answer;
    child_end end = {.exited = false};
    STRESS_OK(child_read_line(one, answer, sizeof(answer), 3 * STRESS_SOON_MS));
    const uint64_t count = strtoull(rest, &rest, 10);
    const uint64_t missed = strtoull(rest, &rest, 10);
    const uint64_t last = strtoull(rest, &rest, 10);
    STRESS_EXPECT(last == sequence);
    STRESS_EXPECT(!takes_all || (count == sequence && missed == 0));
    child_close_input(one);
    STRESS_OK(child_wait(one, 3 * STRESS_SOON_MS, &end));
    child_destroy(one);
    STRESS_EXPECT(end.exited && end.code == 0);
}

static gpuipc_channel *make_channel(gpuipc_context *context, gpuipc_server *server) {
    const gpuipc_buffer_config slots = {.struct_size = sizeof(slots),
                                        .bytes = UINT64_C(1) * SLOTS * SLOT_BYTES};
    gpuipc_channel_config config = {.struct_size = sizeof(config),
                                    .slots = SLOTS,
                                    .slot_bytes = SLOT_BYTES,
                                    .header_bytes = sizeof(uint64_t)};
    gpuipc_channel *made = NULL;
    gpuipc_ticket given;
    STRESS_OK(gpuipc_buffer_create(context, &slots, &config.buffer));
    STRESS_OK(gpuipc_channel_create(server, &config, &made, &given));
    STRESS_OK(gpuipc_buffer_release(config.buffer));
    STRESS_OK(gpuipc_ticket_to_text(&given, ticket_text));
    return made;
}

int main(int argc, char **argv) {
    child_process *readers[READERS];
    uint64_t sequence = 0;
    unsigned killed = 0;
    gpuipc_server *server = NULL;
    if (argc == 8 && strcmp(argv[1], "reader") == 0) {
        return run_reader(argv + 2);
    }
    const bool growth = argc > 1 && strcmp(argv[argc - 1], "--growth") == 0;
    stress_begin("channel", argc - growth, argv);
    const uint64_t growth_frames = growth ? stress_frames() : 0;
    begin_growth(growth_frames);
    STRESS_EXPECT(runtime_directory_make(directory));
    uint64_t random = stress_state(0);
    gpuipc_context *context = stress_context(directory);
    begin_device();
    STRESS_OK(gpuipc_server_create(context, NULL, &server));
    gpuipc_channel *channel = make_channel(context, server);
    for (int i = 0; i < READERS; i++) {
        readers[i] = start_reader(i == 2 ? GPUIPC_DELIVERY_NEWEST : GPUIPC_DELIVERY_ALL,
                                  stress_seed() + (uint64_t)i, i < 2 ? growth_frames : 0);
    }
    const uint32_t kill_every = (uint32_t)stress_kill_every(KILL_EVERY);
    while (stress_goes_on() && sequence < stress_frames()) {
        write_frame(channel, &random, &sequence);
        if (growth) {
            growth_look(sequence);
        }
        if (sequence > 0 && stress_random(&random, kill_every) == 0) {
            child_end end;
            child_kill(readers[VICTIM]);
            STRESS_OK(child_wait(readers[VICTIM], STRESS_SOON_MS, &end));
            child_destroy(readers[VICTIM]);
            readers[VICTIM] = start_reader((gpuipc_delivery)stress_random(&random, 2),
                                           stress_seed() + ++killed, 0);
        }
    }
    if (growth) {
        STRESS_EXPECT(sequence == growth_frames); /* the time was enough */
        growth_judge("writer");
    }
    while (sequence == 0) {
        write_frame(channel, &random, &sequence);
    }
    write_frame(channel, &random, &sequence); /* the last reader may have come behind all others */
    for (int i = 0; i < STREAMS; i++) {
        expect_success(drv.cuStreamSynchronize(streams[i]), "cuStreamSynchronize");
    }
    STRESS_OK(gpuipc_channel_destroy(channel));
    for (int i = 0; i < VICTIM; i++) {
        end_reader(readers[i], sequence, i != 2);
    }
    child_kill(readers[VICTIM]);
    child_destroy(readers[VICTIM]);
    STRESS_OK(gpuipc_server_destroy(server));
    end_device();
    STRESS_OK(gpuipc_context_destroy(context));
    runtime_directory_remove(directory);
    return stress_end("%" PRIu64 " frames, %u readers killed", sequence, killed);
}
