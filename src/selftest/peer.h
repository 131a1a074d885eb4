/* SPDX-License-Identifier: MIT */
/** @file `doctor --peer`: two ends, often in two containers, compare what they are and climb from a first word to the
 *  death of one of them, with memory of a GPU and with the host's as the control arm. docs/doctor.md has the rungs.
 *
 *  The end that was given the line leads: it sends one line of text (role.h) and hears one.
 *      hello            -> hello
 *      make vmm|host    -> memory BYTES, with the buffer
 *      written          -> right: all words are what the leader wrote
 *      resident         -> ready, with a buffer of the leader's: a stream of each end stores in memory of its own
 *      mark TEXT        -> mark TEXT: the next round's, of each
 *      look             -> seen: the stream saw every word that the leader's stored
 *      verdict TEXT     -> end: it is told, and this end ends
 *      second           -> second NAME: a program of this end's, which takes all of this there, and may end in its place
 *      die              -> nothing: this end ends at once, without giving anything back
 *
 *  A second program of the leader's is the end that dies the other way round (COMMAND_PEER_END):
 *      lend BYTES       -> taken, with its buffer: who has it open sees it die, and looks at the memory
 *  and the leader, which has killed it, asks in a connection of its own:
 *      outcome          -> right: the memory was as it had been
 */
#ifndef GPUIPC_SELFTEST_PEER_H
#define GPUIPC_SELFTEST_PEER_H

#include "pattern.h"
#include "role.h"

/** What the leader's second program prints when the other end has its memory. */
#define PEER_SAYS_HANDED "handed"

/** How much each end makes; its last word is no part of the pattern: what the streams store. */
#define PEER_BYTES          (UINT64_C(1) << 20)
#define PEER_WORD_AT(bytes) ((bytes) - sizeof(uint32_t))

/** Reads all that is pattern. False, with a failure, when a word is wrong. */
bool peer_verify(role *self, gpuipc_buffer *buffer, uint64_t bytes, bool of_leader);

/** The device of this end's memory. */
uint32_t peer_device(const role *self);

/** Makes memory that is filled with a pattern, in which the word is 0. */
bool peer_make(role *self, uint32_t device, gpuipc_transport transport, pattern of,
               gpuipc_buffer **out_buffer);

/** Prints a line and does what the other end asks for. @return EXIT_PASS, EXIT_FAIL, EXIT_NOTHING */
int peer_give(const options *wanted);

/** Compares, climbs and judges. @return EXIT_PASS, EXIT_FAIL, EXIT_USAGE, EXIT_NOTHING */
int peer_lead(const options *wanted);

/** Climbs with a program that it starts itself, over vmm, and adds each rung as a check. Each end makes memory on a device
 *  of its own, and opens the other's there.
 *  @param owner the device of that program's memory
 *  @param user the device of this program */
void peer_run(const options *wanted, const session *at, uint32_t owner, uint32_t user);

/** Hands memory over to the end that prints the line, and waits to be killed. @return EXIT_FAIL: it was not */
int peer_end(const options *wanted);

#endif
