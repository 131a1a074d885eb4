/* SPDX-License-Identifier: MIT */
/** @file What the tests of transports share: machines of the emulated driver, pairs, answers. */
#ifndef GPUIPC_TEST_TRANSPORT_MACHINE_H
#define GPUIPC_TEST_TRANSPORT_MACHINE_H

#include "core_fixture.h"

/** A context on an emulated machine. Skips the test on any other driver. */
gpuipc_context *machine_context(const char *machine);

/** A pair of devices that this process sees. */
gpuipc_transport_pair machine_pair(uint32_t owner, uint32_t user);

/** What a query answers; it must not fail, and the answer must make sense in itself. */
gpuipc_transport_info machine_ask(gpuipc_context *context, gpuipc_transport transport,
                                  const gpuipc_transport_pair *pair);

/** Checks that an answer is whole: one of available and reason, a sentence for each reason. */
void machine_check_answer(const gpuipc_transport_info *info);

/** The query answers this reason (NONE: available). */
void machine_expect(gpuipc_context *context, gpuipc_transport transport, uint32_t owner,
                    uint32_t user, gpuipc_reason reason);

/** Calls of the emulated driver so far; of one entry point, or of all (NULL). */
uint64_t machine_calls(const char *name);

/** Where a context keeps measurements from now on; NULL: nowhere. Tests do not touch the user's own. */
void machine_keep(gpuipc_context *context, const char *directory);

/** As on the system that these tests run on. */
bool machine_is_windows(void);

#endif
