/* SPDX-License-Identifier: MIT */
/** @file Every call that waits, at peers that stay silent. */
#ifndef GPUIPC_TEST_INTERRUPT_CALLS_H
#define GPUIPC_TEST_INTERRUPT_CALLS_H

#include "core_fixture.h"

typedef struct interrupt_call {
    const char *name;
    gpuipc_status (*make)(void *unused); /**< waits for ever */
} interrupt_call;

#define INTERRUPT_CALLS 17u
extern const interrupt_call interrupt_calls[INTERRUPT_CALLS];

/** For TestSuite: a context whose waits may be interrupted, and all that the calls need. */
void interrupt_begin(void);
void interrupt_finish(void);

/** The other end of the connection that interrupt_calls[] receive on. */
extern os_connection *interrupt_peer;
extern gpuipc_connection *interrupt_silent;

#endif
