/* SPDX-License-Identifier: MIT */
/** @file The other process of a test: process_helper, told what to do and asked how it went. */
#ifndef GPUIPC_TEST_PARTNER_H
#define GPUIPC_TEST_PARTNER_H

#include "base/compiler.h"
#include "child.h"
#include "process_case.h"

typedef struct partner {
    child_process *process;
    char answer[CHILD_LINE_MAX]; /**< to the last command */
} partner;

/** Starts one, in the runtime directory of the test. @param flags, environment: up to a NULL, or NULL */
void partner_start(partner *self, const process_case *in, const char *const *flags,
                   const char *const *environment);

/** Gives a command, and asserts that the answer begins with @p expected. */
void partner_do(partner *self, const char *expected, const char *format, ...) GPUIPC_PRINTF(3, 4);

/** Only gives the command, and only hears the answer: for what the two of them do at once. */
void partner_tell(partner *self, const char *format, ...) GPUIPC_PRINTF(2, 3);
void partner_hear(partner *self, const char *expected);

/** Lets it say a mark or a loan: "mark", "lend". */
gpuipc_mark partner_mark(partner *self, const char *command);
/** Gives a command about one: "take", "give", "give_async". */
void partner_do_mark(partner *self, const char *expected, const char *command,
                     const gpuipc_mark *of);

/** Kills it at once, and waits until it is gone. */
void partner_kill(partner *self);

/** Lets it end by itself, and asserts that it ends well. */
void partner_end(partner *self);

#endif
