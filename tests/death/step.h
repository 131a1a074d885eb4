/* SPDX-License-Identifier: MIT */
/**
 * @file A process that dies, or stands still, at a step of the protocol. Its library is compiled with
 * -finstrument-functions (gcc(1)), so that it comes by here at the beginning and at the end of each of its functions: a
 * step is the n-th time that it does, or that it does in one of them. Nothing in the library is there for this.
 */
#ifndef GPUIPC_TEST_STEP_H
#define GPUIPC_TEST_STEP_H

#include <stdbool.h>
#include <stdint.h>

/** What it does there. */
typedef enum step_fate {
    STEP_DIE,  /**< it is gone at once: SIGKILL, TerminateProcess */
    STEP_STOP, /**< none of its threads goes on: SIGSTOP, NtSuspendProcess; it says "stops" before */
} step_fate;

/** In which direction it passes a function. */
typedef enum step_edge {
    STEP_ENTERS,
    STEP_LEAVES
} step_edge;

/** A step that has a name. */
typedef struct step {
    const char *name;
    int side;         /**< who takes it: conversation.h */
    void (*at)(void); /**< the function */
    step_edge edge;
    unsigned nth; /**< from 1 */
} step;

/** Ended by one without a name. In the helper they have their functions, elsewhere only their names and sides. */
extern const step step_table[];

/** From now on: the step @p named; NULL: the @p nth time that any function is passed, and 0 never. */
void step_arm(const step *named, uint64_t nth, step_fate fate);
/** How often a function was passed since then. */
uint64_t step_passed(void);

/** Whether a thread is just sending a packet. On Windows its handles are put into the receiver before the message that names
 *  them is written; who dies in between leaves them there until the receiver ends (ADR 6, "What stays behind"). */
bool step_is_sending(void);

/** posix_step.c, win32_step.c: they do not come back, but that who was stopped may be told to go on. On Windows one that is
 *  sending says "leaves handles" before. */
void step_die(void);
void step_stop(void);
/** A moment, by a call of the system's own. */
void step_pause(void);

#endif
