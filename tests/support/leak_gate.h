/* SPDX-License-Identifier: MIT */
/**
 * @file What a piece of a test leaves behind in this process: handles, mappings of shared memory,
 * live objects of the emulated driver.
 *
 *     leak_gate gate;
 *     leak_gate_begin(&gate);
 *     ... make and release everything ...
 *     cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
 *
 * Absolute counts mean nothing (test workers start with descriptors of their own), so only what
 * was not there before counts. Device-wide memory is not looked at.
 */
#ifndef GPUIPC_TEST_LEAK_GATE_H
#define GPUIPC_TEST_LEAK_GATE_H

#include <stdbool.h>
#include <stddef.h>

#include "emulated.h"
#include "os.h"
#include "resource_list.h"

typedef struct leak_gate {
    resource_list handles;
    resource_list mappings;
    os_library *driver; /**< NULL: there is no emulated driver beside this program */
    gpuipc_emulated_live_fn get_live;
    gpuipc_emulated_live live;
    bool is_broken;  /**< the beginning failed, which text says */
    char text[2048]; /**< after a look, and the end: one line for each leak */
} leak_gate;

/** Notes what there is. On a failure of its own the end reports that as a leak. */
void leak_gate_begin(leak_gate *gate);

/** The handles that are there now count as if they had been there from the beginning. More than @p most of them are a leak. */
void leak_gate_take_handles(leak_gate *gate, size_t most);

/** As the end, which is still to come: for what comes back a little later. */
int leak_gate_look(leak_gate *gate);

/** Looks again and again, for so long at most, until nothing is left: a thread of the library's may be the last that holds a
 *  thing, and on a busy machine it comes to its end when it comes. What was left behind stays. As leak_gate_end(). */
int leak_gate_await(leak_gate *gate, int timeout_ms);

/** @return how many things are there now that were not, and 0 at best; text names them */
int leak_gate_end(leak_gate *gate);

#endif
