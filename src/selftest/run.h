/* SPDX-License-Identifier: MIT */
/** @file Starts a producer and a consumer for every pair of devices, and adds up what they find. */
#ifndef GPUIPC_SELFTEST_RUN_H
#define GPUIPC_SELFTEST_RUN_H

#include "options.h"
#include "session.h"

struct tally; /* crew.h */

/** @return EXIT_PASS, EXIT_FAIL, EXIT_USAGE, or EXIT_NOTHING when no case could be tried */
int run(const options *wanted);

/** How every command begins: opens the driver, prints the first line, and refuses devices that there are
 *  not. @return EXIT_PASS, or what to end with (then nothing is open) */
int run_begin(const options *wanted, session *out_session);
void run_end(const options *wanted, session *at);

/** Whether a program on device @p peer can use memory of device @p owner; when it cannot, that is added as a check.
 *  @param what the first part of the check's id
 *  @return false when that could not be found out, which is added as well */
bool run_can_reach(struct report *into, const char *what, const session *at, uint32_t owner,
                   uint32_t peer, bool *out_can);

/** Whether one more round is to be run: until --duration is over. */
bool run_again(const options *wanted);

/** Says what all cases came to. @return EXIT_PASS, EXIT_FAIL, or EXIT_NOTHING when none could be tried */
int run_summarize(const options *wanted, const session *at, const struct tally *total);

/** Whether this is a run that is to take less than five seconds, and so many of them are over. What is left out then is said. */
bool run_is_late(const options *wanted, double seconds);

/** How many pairs of devices are meant by --device and --peer. */
unsigned run_pair_count(const options *wanted, const session *at);

/** Whether there is this device, or it is DEVICE_ANY; says so where not.
 *  @param option that asked for it */
bool run_has_device(const session *at, const char *option, uint32_t device);

/** Whether a device is meant by --device or --peer. */
bool run_is_chosen(uint32_t chosen, uint32_t device);

/** Whether --only leaves a check in. @param id of the check, or the part of it that is known before */
bool run_is_wanted(const options *wanted, const char *id);

#endif
