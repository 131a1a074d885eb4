/* SPDX-License-Identifier: MIT */
/**
 * @file The page that a channel's writer and reader share, while somebody writes into it what he likes: each end of the channel,
 * here both in this process, must believe nothing that leads out of the slots. The input is a row of steps.
 */
#include <stdlib.h>
#include <string.h>

#include <gpuipc/gpuipc.h>

#include "base/little_endian.h"
#include "channel/subscription.h"
#include "fuzz.h"
#include "unique.h"

enum {
    SLOTS = 3,
    SLOT_BYTES = 4096,
    HEADER_BYTES = 20
};

/** The first byte of a step, of which the rest counts for nothing; WRITE has two bytes for the word and eight for its value. */
enum {
    STEP_WRITE = 0,
    STEP_PUBLISH,
    STEP_TAKE,
    STEP_RETURN,
    STEP_READERS,
    STEPS
};

typedef struct ends {
    gpuipc_channel *channel;
    gpuipc_subscription *reader;
    object *behind; /**< the reader, whose page it is */
    uint64_t slots; /**< address */
    gpuipc_frame taken;
    bool has_taken;
} ends;

static gpuipc_server *server;
static gpuipc_context *context_of_all;
static gpuipc_buffer *slots;

static char directory[RUNTIME_DIRECTORY_MAX];

static void finish(void) {
    (void)gpuipc_server_destroy(server);
    (void)gpuipc_buffer_release(slots);
    (void)gpuipc_context_destroy(context_of_all);
    runtime_directory_remove(directory);
}

/* Once: it is the same for all inputs. */
static void start(void) {
    const gpuipc_context_config config = {
        .struct_size = sizeof(config), .driver = "emulated", .runtime_directory = directory};
    const gpuipc_buffer_config memory = {.struct_size = sizeof(memory),
                                         .bytes = (uint64_t)SLOTS * SLOT_BYTES};
    if (server == NULL) {
        FUZZ_CHECK(runtime_directory_make(directory) && atexit(finish) == 0);
        FUZZ_CHECK(gpuipc_context_create(&config, &context_of_all) == GPUIPC_OK);
        FUZZ_CHECK(gpuipc_server_create(context_of_all, NULL, &server) == GPUIPC_OK);
        FUZZ_CHECK(gpuipc_buffer_create(context_of_all, &memory, &slots) == GPUIPC_OK);
    }
}

static ends open_ends(gpuipc_delivery delivery) {
    const gpuipc_channel_config how = {.struct_size = sizeof(how),
                                       .buffer = slots,
                                       .slots = SLOTS,
                                       .slot_bytes = SLOT_BYTES,
                                       .header_bytes = HEADER_BYTES,
                                       .full = GPUIPC_FULL_SKIP};
    const gpuipc_subscription_config wish = {.struct_size = sizeof(wish), .delivery = delivery};
    ends opened = {0};
    gpuipc_ticket ticket;
    FUZZ_CHECK(gpuipc_channel_create(server, &how, &opened.channel, &ticket) == GPUIPC_OK);
    FUZZ_CHECK(gpuipc_subscription_open(context_of_all, &ticket, &wish, &opened.reader) ==
               GPUIPC_OK);
    FUZZ_CHECK(object_acquire(OBJECT_SUBSCRIPTION, opened.reader, &opened.behind) == GPUIPC_OK);
    opened.slots = buffer_address(((subscription *)opened.behind)->buffer, 0);
    return opened;
}

static void close_ends(ends *of) {
    object_unreference(of->behind);
    FUZZ_CHECK(gpuipc_subscription_close(of->reader) == GPUIPC_OK);
    FUZZ_CHECK(gpuipc_channel_destroy(of->channel) == GPUIPC_OK);
}

static void publish(const ends *of) {
    static const uint8_t header[HEADER_BYTES] = "written by us";
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    if (gpuipc_channel_loan(of->channel, GPUIPC_NO_STREAM, 0, &frame) == GPUIPC_OK) {
        FUZZ_CHECK(frame.address >= of->slots &&
                   frame.address <= of->slots + (uint64_t)(SLOTS - 1) * SLOT_BYTES);
        frame.header = header;
        frame.header_bytes = sizeof(header);
        FUZZ_CHECK(gpuipc_channel_publish(of->channel, &frame, GPUIPC_NO_STREAM) == GPUIPC_OK);
    }
}

/* Returns what it has first: a reader may hold one frame. */
static void give_back(ends *of) {
    if (of->has_taken) {
        FUZZ_CHECK(gpuipc_subscription_give_back(of->reader, &of->taken, GPUIPC_NO_STREAM) ==
                   GPUIPC_OK);
        of->has_taken = false;
    }
}

static void take(ends *of, const uint8_t *data, size_t size) {
    uint8_t header[HEADER_BYTES];
    uint64_t sum;
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    give_back(of);
    if (gpuipc_subscription_take(of->reader, GPUIPC_NO_STREAM, 0, &frame) != GPUIPC_OK) {
        return;
    }
    of->taken = frame;
    of->has_taken = true;
    FUZZ_CHECK(frame.address >= of->slots && frame.bytes <= SLOT_BYTES &&
               frame.header_bytes <= HEADER_BYTES);
    FUZZ_CHECK(frame.address - of->slots <= (uint64_t)(SLOTS - 1) * SLOT_BYTES &&
               (frame.address - of->slots) % SLOT_BYTES == 0);
    FUZZ_CHECK(frame.sequence > frame.missed);
    if (frame.header_bytes > 0) {
        memcpy(header, frame.header, frame.header_bytes);
    }
    sum = frame.address + frame.capacity;
    const uint64_t expected = frame.address + SLOT_BYTES;
    fuzz_check_same(&sum, &expected, sizeof(sum), data, size);
}

static void look_at_readers(const ends *of) {
    gpuipc_reader_info infos[GPUIPC_CHANNEL_READERS_MAX];
    size_t count = 0;
    FUZZ_CHECK(gpuipc_channel_readers(of->channel, infos, GPUIPC_CHANNEL_READERS_MAX, &count) ==
               GPUIPC_OK);
    for (size_t i = 0; i < count; i++) {
        FUZZ_CHECK(infos[i].lag <= SLOTS && infos[i].held <= SLOTS);
    }
}

/* @return how many bytes of the input it took */
static size_t step(ends *of, const uint8_t *at, size_t left, const uint8_t *data, size_t size) {
    const point_page *page = ((subscription *)of->behind)->page;
    switch (at[0] % STEPS) {
    case STEP_WRITE:
        if (left < 11) {
            return left;
        }
        channel_write(page, (uint32_t)(little_endian_get(at + 1, 2) % POINT_WORDS_END),
                      little_endian_get(at + 3, 8));
        return 11;
    case STEP_PUBLISH:
        publish(of);
        return 1;
    case STEP_TAKE:
        take(of, data, size);
        return 1;
    case STEP_RETURN:
        give_back(of);
        return 1;
    default:
        look_at_readers(of);
        return 1;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) {
        return 0;
    }
    start();
    ends both = open_ends(data[0] % 2 == 0 ? GPUIPC_DELIVERY_ALL : GPUIPC_DELIVERY_NEWEST);
    for (size_t at = 1; at < size;) {
        at += step(&both, data + at, size - at, data, size);
    }
    give_back(&both);
    close_ends(&both);
    return 0;
}
