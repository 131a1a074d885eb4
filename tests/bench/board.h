/* SPDX-License-Identifier: MIT */
/**
 * @file Words that the owner and its partner share: what a channel would be by hand. They are in pinned host memory that the
 * devices reach as well. Beside them is room for what the partner has measured.
 */
#ifndef GPUIPC_BENCH_BOARD_H
#define GPUIPC_BENCH_BOARD_H

#include <stdatomic.h>

#include "os.h"
#include "pair.h"

/** Words, each on a line of its own. */
enum {
    BOARD_TURN = 0,    /**< the owner's */
    BOARD_ANSWER = 16, /**< the partner's */
    BOARD_SLEEPS = 32, /**< the bell's */
    BOARD_GATE = 48,   /**< what streams wait for at first */
    BOARD_OWNER_RETURNS = 64,
    BOARD_PARTNER_RETURNS = 80,
    BOARD_SAMPLES = 512
};
#define BOARD_SAMPLES_MAX 65536u

typedef struct board {
    gpuipc_buffer *buffer;
    atomic_uint_least64_t *words;
    CUdeviceptr address; /**< of the first word, for the device of this end */
    os_bell bell;        /**< to sleep at, as a program would by hand */
    uint64_t gates;      /**< how often the gate was opened */
} board;

/** Makes it, for this device and the partner's.  @param device that the partner uses it on */
void board_begin(board *self, bench_pair *pair, uint32_t device);
/** Behind it the partner has given it up. */
void board_end(board *self, bench_pair *pair);

/** The partner's: it came over the connection.  @param name of the bell, in hexadecimal digits */
void board_take(board *self, gpuipc_buffer *buffer, uint32_t device, const char *name);
void board_release(board *self);

/** Looks until the word is at least @p value. Ends the program when it is not so for a minute. */
void board_await(const board *self, uint32_t word, uint64_t value);
void board_set(const board *self, uint32_t word, uint64_t value);

/** One stream memory operation: waits for a word, or writes it. */
void board_wait_async(const board *self, CUstream stream, uint32_t word, uint64_t value);
void board_write_async(const board *self, CUstream stream, uint32_t word, uint64_t value);

#endif
