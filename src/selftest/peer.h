/* SPDX-License-Identifier: MIT */
/** @file `doctor --peer`: two ends, often in two containers, compare what they are and climb from a first word to the
 *  death of one of them, with memory of a GPU and with the host's as the control arm. docs/doctor.md has the rungs.
 *
 *  The end that was given the line leads: it sends one line of text (role.h) and hears one.
 *      hello            -> hello
 *      make vmm|host    -> memory BYTES, with the buffer
 *      written          -> right: all words are what the leader wrote
 *      store            -> seen: every word that the leader stored was seen, and answered by one
 *      verdict TEXT     -> end: it is told, and this end ends
 *      die              -> nothing: this end ends at once, without giving anything back
 */
#ifndef GPUIPC_SELFTEST_PEER_H
#define GPUIPC_SELFTEST_PEER_H

#include "role.h"

/** How often a word is stored and seen, each way. */
#define PEER_ROUNDS 32
/** The last two words of the memory are no part of the pattern: who stores there. */
#define PEER_LEADER_WORD(bytes) ((bytes)-2 * sizeof(uint32_t))
#define PEER_GIVER_WORD(bytes)  ((bytes) - sizeof(uint32_t))

/** Stores 1, 2, ... in its own word and waits for each in the other's, until both have counted to PEER_ROUNDS.
 *  @param leads stores first */
bool peer_count(role *self, gpuipc_buffer *buffer, uint64_t bytes, bool leads);

/** Reads all that is pattern. False, with a failure, when a word is wrong. */
bool peer_verify(role *self, gpuipc_buffer *buffer, uint64_t bytes, bool of_leader);

/** Prints a line and does what the other end asks for. @return EXIT_PASS, EXIT_FAIL, EXIT_NOTHING */
int peer_give(const options *wanted);

/** Compares, climbs and judges. @return EXIT_PASS, EXIT_FAIL, EXIT_USAGE, EXIT_NOTHING */
int peer_lead(const options *wanted);

#endif
