/* SPDX-License-Identifier: MIT */
/**
 * @file What the stress programs have in common: a seed that is said, a time that is kept, and a watch that ends a program
 * which hangs and says where. A plain main() each, so that they run under every sanitizer.
 *
 *     stress_NAME [--seconds N] [--seed N]
 *     stress_long [--frames N] [--plant WHAT]         (what it does so often; what it must see: stress_long.c)
 *     stress_threads [--calls N]    (besides: of each thread at most)
 *     stress_channel [--frames N] [--kill-every N] [--growth]    (it ends with so many frames; a kill after so many)
 *
 * Without arguments: seed 1, and as long as form.h says. Exit code 0: every answer was one that may be, and nothing was
 * left behind; 1: what was wrong, with the seed; 4: it hung, and where.
 */
#ifndef GPUIPC_STRESS_H
#define GPUIPC_STRESS_H

#include <gpuipc/gpuipc.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

/** Enough for anything that waits for a peer that lives, on a machine that is busy. */
#define STRESS_SOON_MS 20000
/** How many actors the watch can tell of. */
#define STRESS_ACTORS 64

/** Reads the arguments, says seed and time, and begins to watch; and to look for what is left behind. */
void stress_begin(const char *name, int argc, char **argv);
/** Before that: how long it may take, where it does not end with its time. */
void stress_set_seconds(unsigned seconds);
/** The same for a process that the program itself started: without a summary, and for so many seconds more at most. */
void stress_begin_peer(const char *name, uint64_t seed, unsigned seconds);
/** Whether the time is not over. */
bool stress_goes_on(void);
uint64_t stress_seed(void);
unsigned stress_seconds(void);
/** How many frames at most. */
uint64_t stress_frames(void);
/** How many calls of each thread at most. */
uint64_t stress_calls(uint64_t otherwise);
/** After how many frames a reader is killed, on the average. */
uint64_t stress_kill_every(uint64_t otherwise);
/** How many objects of the emulated driver there are; 0 with another driver. */
uint64_t stress_driver_objects(void);
/** Ends the watch, looks for what is left behind, and says how much was done. @return the exit code */
int stress_end(const char *format, ...) GPUIPC_PRINTF(1, 2);

/** Of a generator's own: one state for each thread, so that a seed gives each the same row. */
uint64_t stress_state(uint32_t actor);
uint32_t stress_random(uint64_t *state, uint32_t below);

/** What an actor is in, a static text: said when the program hangs. NULL: it has ended. */
void stress_now(unsigned actor, const char *what);

/** Says what is wrong, with the seed, and ends the process. */
_Noreturn void stress_fail(const char *format, ...) GPUIPC_PRINTF(1, 2);

/** Ends the process unless the status is OK or one of these, which end with GPUIPC_OK.
 *  @return the status */
gpuipc_status stress_allow(gpuipc_status status, const char *what, const gpuipc_status *allowed);

#define STRESS_OK(call) ((void)stress_allow((call), #call, NULL))
#define STRESS_EXPECT(condition)                                                                   \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            stress_fail("not so: %s", #condition);                                                 \
        }                                                                                          \
    } while (0)

/** A context of the emulated driver (or of the one that GPUIPC_CUDA_DRIVER names). */
gpuipc_context *stress_context(const char *directory);
/** A buffer of 4 KiB that begins with this word. */
gpuipc_buffer *stress_buffer(gpuipc_context *within, gpuipc_transport transport, uint32_t word);

#endif
