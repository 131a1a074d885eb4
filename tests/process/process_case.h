/* SPDX-License-Identifier: MIT */
/**
 * @file What every test here begins and ends with: a runtime directory, a context, a listener, and
 * the proof that nothing is left behind. All of it is asserted, so tests call these themselves:
 * Criterion takes no notice of an assertion that fails in a .fini.
 */
#ifndef GPUIPC_TEST_PROCESS_CASE_H
#define GPUIPC_TEST_PROCESS_CASE_H

#include <gpuipc/gpuipc.h>

#include "leak_gate.h"
#include "unique.h"

/** How long anything may take that ought to be quick: longer than a loaded machine needs. */
#define PATIENCE_MS 60000
/** How long what is given back may take: no call waits for it. */
#define BACK_MS 20000
/** Shareable memory is made in this unit on every GPU so far; less is rounded up to it. */
#define MEBIBYTES_2 (UINT64_C(2) << 20)

typedef struct process_case {
    char directory[RUNTIME_DIRECTORY_MAX];
    char name[UNIQUE_NAME_MAX];
    gpuipc_context
        *context; /**< made before the gate: what a driver opens at its start stays open */
    gpuipc_listener *listener;
    leak_gate gate;
} process_case;

/** @param config NULL: only the directory is set */
void process_case_begin(process_case *self, const gpuipc_context_config *config);
void process_case_end(process_case *self);

/** Ends what waits for the devices, and is done by calls that may: before a gate. */
void process_case_settle(const process_case *self);

/** Settles until nothing is left that was not there when the gate began, or for so long: what waits for a stream is not done
 *  before a thread of the library's has seen that the stream is past it. As leak_gate_end(). */
int process_case_leaks(const process_case *self, leak_gate *gate, int timeout_ms);

/** How many devices there are. */
uint32_t process_case_devices(const process_case *self);

/** Is the driver the emulated one? */
int process_case_is_emulated(const process_case *self);

/** A buffer on a device, with marks: see marks.h. */
gpuipc_buffer *process_case_buffer(const process_case *self, uint32_t device, uint64_t bytes,
                                   uint64_t segment_bytes, uint32_t seed, uint64_t stride);

/** Waits for the next connection. */
gpuipc_connection *process_case_accept(const process_case *self);

/** A connection of this process with itself. */
void process_case_connect(const process_case *self, gpuipc_connection **out_near,
                          gpuipc_connection **out_far);

/** Sends buffers and so many bytes, and receives; *count is room, then what came. */
gpuipc_status process_case_send(gpuipc_connection *to, gpuipc_buffer *const *buffers, size_t count,
                                size_t bytes);
gpuipc_status process_case_receive(gpuipc_connection *from, gpuipc_buffer **buffers, size_t *count,
                                   size_t *out_bytes, int timeout_ms);

/** The bytes that came with the last message received, checked by marks_check_bytes. */
const uint8_t *process_case_bytes(void);

#endif
