/* SPDX-License-Identifier: MIT */
/** @file The rung of `doctor --peer` on which streams of two processes wait for each other, both there at the same time:
 *  machines pass copies that follow each other, and hang or deliver garbage here. Each end stores in memory of its own and
 *  looks into the other's, by the library's marks. */
#ifndef GPUIPC_SELFTEST_PEER_RESIDENT_H
#define GPUIPC_SELFTEST_PEER_RESIDENT_H

#include "role.h"

/** How often each end stores a word that the other one waits for. */
#define RESIDENT_ROUNDS 32
/** Room for a mark as text, with its end. */
#define RESIDENT_MARK_MAX (2 * sizeof(gpuipc_mark) + 1)

typedef struct resident {
    role *role;
    gpuipc_buffer *own;
    gpuipc_buffer *theirs;
    gpuipc_buffer *kept; /**< one of the two, that is released with the rest */
    uint64_t offset;     /**< of the word, in both */
    gpuipc_buffer *seen; /**< the gate, and behind it what was seen in each round */
    uint32_t device;     /**< of the stream and of the memory for what is seen */
    CUstream stream;
    bool is_closed; /**< the gate */
    bool is_idle;   /**< the stream has done all */
} resident;

/** @param kept own or theirs: released by resident_end(), also after a failure
 *  @param is_gated the stream stands still until resident_open(), so that all of both streams is queued before it runs */
bool resident_begin(resident *self, role *at, gpuipc_buffer *own, gpuipc_buffer *theirs,
                    gpuipc_buffer *kept, uint64_t offset, bool is_gated);
void resident_end(resident *self);

/** The stream stores the number of a round, and makes a mark. */
bool resident_store(resident *self, uint32_t round, char text[RESIDENT_MARK_MAX]);
/** The stream waits for the other end's mark, and keeps what it sees then. */
bool resident_await(resident *self, uint32_t round, const char *text);

/** Lets the stream go. */
bool resident_open(resident *self);
/** Waits until the other end's last store was seen, and compares what was seen in each round.
 *  @param text its mark; NULL: it is known that the stream has nothing to wait for */
bool resident_verify(resident *self, const char *text);

#endif
