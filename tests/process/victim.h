/* SPDX-License-Identifier: MIT */
/** @file The process towards which a peer breaks the rules: this one. What it hears is ended with a
 *  clear status, and another conversation that it has notices nothing. */
#ifndef GPUIPC_TEST_VICTIM_H
#define GPUIPC_TEST_VICTIM_H

#include "process_case.h"
#include "raw_packet.h"

/** What it accepts at most in one message. */
#define VICTIM_BUFFERS_MAX 20u
#define VICTIM_HANDLES_MAX 300u

typedef struct victim_case {
    process_case at;
    gpuipc_buffer *buffer; /**< what good packets bring */
    gpuipc_connection *bystander_near;
    gpuipc_connection *bystander_far;
} victim_case;

void victim_case_begin(victim_case *self);
/** Asserts that the bystanders still talk, and that nothing is left behind. */
void victim_case_end(victim_case *self);

/** A valid first message with the buffer. */
raw_packet victim_case_packet(const victim_case *self);

/** A peer that is not gpuipc, and this process's end of the conversation with it. */
typedef struct victim {
    raw_peer *raw;
    gpuipc_connection *connection;
} victim;

victim victim_make(const victim_case *in);

/** Receives one message, and releases the buffers that come. */
gpuipc_status victim_receive(const victim *self);

/** Receives, and asserts that the connection has come to its end, for both sides; and closes both. */
void victim_expect_end(victim *self, gpuipc_status expected, const char *what);

/** Closes both sides. */
void victim_close(victim *self);

#endif
