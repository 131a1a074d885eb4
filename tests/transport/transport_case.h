/* SPDX-License-Identifier: MIT */
/**
 * @file What every test of the transport suite begins and ends with: two processes, and memory of the
 * transport that the program was built for (TRANSPORT_UNDER_TEST). Where the machine has no such memory
 * the test is skipped with the library's own reason.
 */
#ifndef GPUIPC_TEST_TRANSPORT_CASE_H
#define GPUIPC_TEST_TRANSPORT_CASE_H

#include <stdbool.h>

#include "marks.h"
#include "partner.h"
#include "process_case.h"

/** What is promised of the transport under test, beyond what all of them do. */
typedef struct transport_promise {
    gpuipc_transport id;
    bool everywhere;           /**< the emulated driver's usual machine has it on this system */
    bool passed_on;            /**< a receiver that kept its handle can send it on */
    bool survives_owner;       /**< what is open stays good when the owner's process has ended */
    gpuipc_status after_owner; /**< what receiving it after that answers */
} transport_promise;

extern const transport_promise promise;

typedef struct transport_case {
    process_case process;
    partner other;
    gpuipc_connection *connection; /**< to the partner */
    bool is_emulated;
} transport_case;

/** Both processes, connected. Skips the test when there is no such memory here. */
void transport_case_begin(transport_case *self);

/** Ends all of it, and asserts that nothing is left behind. */
void transport_case_end(transport_case *self);

/** The same, when the partner was killed. */
void transport_case_end_alone(transport_case *self);

/** Memory of the transport on device 0, with marks. */
gpuipc_buffer *transport_case_buffer(const transport_case *self, uint64_t bytes, uint32_t seed);

/** Lets the partner make such memory and fill it. */
void transport_case_partner_buffer(transport_case *self, uint64_t bytes, uint32_t seed);

/** Sends a buffer, and lets the partner open it. */
void transport_case_give(transport_case *self, gpuipc_buffer *buffer);

/** Opens the one buffer that comes. */
gpuipc_status transport_case_take(transport_case *self, gpuipc_buffer **out_buffer);

#endif
