/* SPDX-License-Identifier: MIT */
/** @file Which transports work between which devices, how fast, and why not. */
#ifndef GPUIPC_SELFTEST_TRANSPORTS_H
#define GPUIPC_SELFTEST_TRANSPORTS_H

#include "options.h"
#include "report.h"
#include "session.h"

/** Prints a line for each pair of devices and each transport; measures them when asked to.
 *  @return EXIT_PASS, EXIT_FAIL when something that is available could not be measured, EXIT_USAGE */
int transports(const options *wanted);

/** The same in a session that is open; what --require and --min-gbps demand of it is checked. */
void transports_each(const options *wanted, const session *at);

/** Tries one, and measures it. That it cannot be measured stands in the way's failure.
 *  @param way with owner, user and info.transport; the rest is filled in */
gpuipc_status transports_try(const options *wanted, const session *at, report_way *way,
                             bool measures);

/** Checks what --require and --min-gbps demand of the ways that the report has. */
void transports_check(const options *wanted);

#endif
