/* SPDX-License-Identifier: MIT */
/** @file Two ends in one process between which contents go: what the tests of them stand on. */
#ifndef GPUIPC_TEST_CONTENTS_ENDS_H
#define GPUIPC_TEST_CONTENTS_ENDS_H

#include "buffer_marks.h"
#include "core_fixture.h"

#define CONTENTS_MIB (UINT64_C(1) << 20)
/** Of 1 MiB pieces: more than there are slots, and a rest. */
#define CONTENTS_MANY (CONTENTS_MIB * 6 + 13)

/** The two ways. */
extern const gpuipc_transport contents_ways[2];

/** Two contexts, each with a connection to the other, a buffer and a stream. */
typedef struct contents_ends {
    gpuipc_context *other;
    core_pair pair;
    gpuipc_buffer *from;
    gpuipc_buffer *into;
    CUstream sends;
    CUstream receives;
} contents_ends;

void contents_ends_open(contents_ends *self, uint64_t bytes);
void contents_ends_close(contents_ends *self);

gpuipc_status contents_send_range(contents_ends *self, uint64_t offset, uint64_t bytes,
                                  gpuipc_transport way);
gpuipc_status contents_receive_range(contents_ends *self, uint64_t offset, uint64_t bytes,
                                     gpuipc_transport way);

/** Waits for both streams. */
void contents_both_pass(const contents_ends *self);
/** Of the emulated driver; elsewhere nothing is late on purpose. */
void contents_set_delay(unsigned milliseconds);

gpuipc_buffer *contents_buffer(gpuipc_context *context, uint64_t bytes);

void contents_check_value(gpuipc_buffer *buffer, uint8_t value);

#endif
