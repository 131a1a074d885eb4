/* SPDX-License-Identifier: MIT */
/** @file A process that keeps to the rules, beside a hostile one: that it is served, and how long that takes. */
#ifndef GPUIPC_TEST_HONEST_H
#define GPUIPC_TEST_HONEST_H

#include "partner.h"

#define HONEST_TIMES_MAX 65536u

/** How long it took, each time: sorted by honest_p99_ns. */
typedef struct honest_times {
    uint64_t *ns;
    size_t count;
} honest_times;

typedef struct honest_client {
    partner other;
    honest_times before; /**< with nobody hostile about */
    honest_times beside;
} honest_client;

/** Starts the process. */
void honest_begin(honest_client *self, const process_case *in);
void honest_end(honest_client *self);

/** It connects to the listener, gets a buffer and a byte, and finds the marks in it. Asserted. */
void honest_is_served(honest_client *self, const process_case *in, gpuipc_buffer *buffer,
                      honest_times *times);
/** It opens a ticket of this process's server, finds the marks and lets go. Asserted. */
void honest_opens(honest_client *self, const char *ticket, honest_times *times);

/** The time that 99 of 100 do not exceed; 0: there are none. */
uint64_t honest_p99_ns(honest_times *of);
/** In the full form: says both, and asserts that the one beside a hostile peer is at most twice the other one. */
void honest_judge(honest_client *self, const char *what);

#endif
