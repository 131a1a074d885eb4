/* SPDX-License-Identifier: MIT */
/** @file Whether this process grows while it does the same again and again: what it has open and mapped, the addresses
 *  that it takes, what it holds of the emulated driver, and its memory. The slope of each is slope.h's. */
#ifndef GPUIPC_TEST_GROWTH_H
#define GPUIPC_TEST_GROWTH_H

#include <stdint.h>

/** From now on.
 *  @param warm so many cycles make what a process keeps: they do not count
 *  @param cycles in all */
void growth_begin(uint64_t warm, uint64_t cycles);
/** After each cycle. @param done so many, from 1 on */
void growth_look(uint64_t done);
/** Says the slopes, and ends the program with a failure when one is above 0 beyond chance. @param who is measured */
void growth_judge(const char *who);

#endif
