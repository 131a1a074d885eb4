/* SPDX-License-Identifier: MIT */
/**
 * @file Host memory that runs out on demand. The fault tests link the library with --wrap=malloc and
 * its kin (ld(1)), so that these functions stand in for the C library's; what other shared
 * libraries allocate, among them the emulated driver, is not touched.
 */
#ifndef GPUIPC_TEST_ALLOCATION_H
#define GPUIPC_TEST_ALLOCATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** From now on allocations of this thread are counted, and number @p fail_at (from 1) answers NULL;
 *  0: none does. */
void allocation_watch(uint64_t fail_at);

/** The same, but every allocation of more than @p most bytes answers NULL, and no other. */
void allocation_watch_large(size_t most);

/** The same, but whoever is asked says of each whether it answers NULL. */
void allocation_watch_asked(bool (*is_denied)(void));

/** How many of them are not freed, by whichever thread. */
int64_t allocation_live(void);

/** Ends either. @return how many there were; @p out_live how many of them are not freed */
uint64_t allocation_unwatch(int64_t *out_live);

#endif
