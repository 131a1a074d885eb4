/* SPDX-License-Identifier: MIT */
/** @file Ends the program when a step takes too long: a driver call has no deadline of its own. */
#ifndef GPUIPC_SELFTEST_WATCHDOG_H
#define GPUIPC_SELFTEST_WATCHDOG_H

/** From now on a step is being done, in place of the one before. When it lasts longer than
 *  @p within_ms, the program says so and ends with EXIT_FAIL; its children end with it. */
void watchdog_expect(const char *step, int within_ms);

/** The same of a step that may be long and cannot say how far it is: after a second the error stream has it. */
void watchdog_expect_long(const char *step, int within_ms);

/** Nothing is being done that has no deadline of its own. */
void watchdog_rest(void);

#endif
