/* SPDX-License-Identifier: MIT */
/** @file Memory handed over by a ticket: a line of text that a person, or a message, carries. */
#ifndef GPUIPC_SELFTEST_TICKET_H
#define GPUIPC_SELFTEST_TICKET_H

#include "role.h"

/** Makes memory, prints a ticket for it on a line of its own, and answers until a program has verified the
 *  memory and nobody has it open.
 *  @return EXIT_PASS, EXIT_FAIL, EXIT_USAGE, EXIT_NOTHING */
int ticket_produce(const options *wanted);

/** Opens the memory that a ticket stands for, verifies it, and leaves word there that it was right.
 *  @return EXIT_PASS, EXIT_FAIL, EXIT_USAGE */
int ticket_consume(const options *wanted);

/** Gives the beginning of a buffer to the consumer by a ticket, and waits until it has verified it. "ticket
 *  TEXT", answered by "ticket NANOSECONDS".
 *  @param out_ns how long opening it took */
bool ticket_offer(role *self, gpuipc_buffer *buffer, uint64_t bytes, uint64_t *out_ns);

/** Opens a ticket for the role's device. The buffer is the caller's.
 *  @param out_ns how long that took */
bool ticket_open(role *self, const char *text, gpuipc_buffer **out_buffer, uint64_t *out_bytes,
                 uint64_t *out_ns);

#endif
