/* SPDX-License-Identifier: MIT */
/** @file See board.h. */
#include "board.h"

#include <stdio.h>
#include <stdlib.h>

#define BYTES      ((BOARD_SAMPLES + BOARD_SAMPLES_MAX) * UINT64_C(8))
#define NAME_BYTES 16u
/* Between two looks at the clock, which takes as long as dozens of looks at a word. */
#define LOOKS       4096u
#define PATIENCE_NS UINT64_C(60000000000)

/* Where the host has it. */
static void find_words(board *self, uint32_t device) {
    void *host = NULL;
    bench_enter((int)device);
    self->address = gpuipc_buffer_address(self->buffer);
    bench_check_cuda(
        bench_driver.cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, self->address),
        "the host's address of pinned memory");
    self->words = host;
}

void board_begin(board *self, bench_pair *pair, uint32_t device) {
    const gpuipc_buffer_config config = {.struct_size = sizeof(config),
                                         .device = GPUIPC_DEVICE(pair->owner),
                                         .bytes = BYTES,
                                         .transport = GPUIPC_TRANSPORT_HOST};
    uint8_t name[NAME_BYTES];
    char text[2 * NAME_BYTES + 1];
    *self = (board){.bell = OS_BELL_NONE};
    bench_check(os_random(name, sizeof(name)), "random bits");
    for (size_t i = 0; i < sizeof(name); i++) {
        (void)snprintf(text + 2 * i, 3, "%02x", name[i]);
    }
    bench_check(os_bell_make(name, &self->bell), "a bell");
    bench_check(gpuipc_buffer_create(pair->context, &config, &self->buffer), "pinned memory");
    find_words(self, pair->owner);
    const gpuipc_outgoing message = {
        .struct_size = sizeof(message), .buffers = &self->buffer, .buffer_count = 1};
    pair_tell(pair->partner, "board %u %s", (unsigned)device, text);
    bench_check(gpuipc_connection_send(pair->connection, &message, PATIENCE_MS), "sending");
    pair_hear_ready(pair->partner);
}

void board_end(board *self, bench_pair *pair) {
    pair_tell(pair->partner, "board_end");
    pair_hear_ready(pair->partner);
    board_release(self);
}

void board_take(board *self, gpuipc_buffer *buffer, uint32_t device, const char *name) {
    uint8_t bytes[NAME_BYTES];
    *self = (board){.buffer = buffer, .bell = OS_BELL_NONE};
    for (size_t i = 0; i < sizeof(bytes); i++) {
        const char digits[] = {name[2 * i], name[2 * i + 1], '\0'};
        bytes[i] = (uint8_t)strtoul(digits, NULL, 16);
    }
    bench_check(os_bell_find(bytes, &self->bell), "a bell");
    find_words(self, device);
}

void board_release(board *self) {
    os_bell_close(&self->bell);
    bench_check(gpuipc_buffer_release(self->buffer), "releasing");
    *self = (board){.bell = OS_BELL_NONE};
}

void board_await(const board *self, uint32_t word, uint64_t value) {
    uint64_t begun_ns = 0;
    for (uint32_t looks = 1; atomic_load_explicit(&self->words[word], memory_order_acquire) < value;
         looks++) {
        if (looks % LOOKS == 0) {
            const uint64_t now_ns = os_clock_ns();
            begun_ns = begun_ns == 0 ? now_ns : begun_ns;
            if (now_ns - begun_ns > PATIENCE_NS) {
                bench_fail("the other end says nothing on the board; it may have ended");
            }
        }
    }
}

void board_set(const board *self, uint32_t word, uint64_t value) {
    atomic_store_explicit(&self->words[word], value, memory_order_release);
}

void board_wait_async(const board *self, CUstream stream, uint32_t word, uint64_t value) {
    bench_check_cuda(bench_driver.cuStreamWaitValue64(stream,
                                                      self->address + word * sizeof(uint64_t),
                                                      value, CU_STREAM_WAIT_VALUE_GEQ),
                     "a word of a stream");
}

void board_write_async(const board *self, CUstream stream, uint32_t word, uint64_t value) {
    bench_check_cuda(bench_driver.cuStreamWriteValue64(stream,
                                                       self->address + word * sizeof(uint64_t),
                                                       value, CU_STREAM_WRITE_VALUE_DEFAULT),
                     "a word of a stream");
}
