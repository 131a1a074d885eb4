/* SPDX-License-Identifier: MIT */
/**
 * @file What producer and consumer have in common: a session, a connection, a line of text at a time
 * with at most one buffer, and the first thing that went wrong.
 */
#ifndef GPUIPC_SELFTEST_ROLE_H
#define GPUIPC_SELFTEST_ROLE_H

#include <stdbool.h>

#include "base/compiler.h"
#include "session.h"

/** A role started by the tool marks its lines, so that the tool can tell them apart. */
#define ROLE_STEP "step: "
#define ROLE_NOTE "note: "
#define ROLE_PASS "pass  "
#define ROLE_FAIL "FAIL  "
#define ROLE_SKIP "skip  "

#define ROLE_LINE_MAX 1024

typedef struct role {
    const options *options;
    const char *other; /**< what the program at the other end is */
    session session;
    gpuipc_connection *connection;
    uint32_t receive_device; /**< as gpuipc_incoming::device */
    uint64_t heard_at_ns;    /**< when the last line was here, with its buffer open */
    char failure[800];       /**< the first one; empty: none */
} role;

/** @return EXIT_PASS, or what to end with; a complaint is printed */
int role_begin(role *self, const options *wanted, const char *other);
void role_end(role *self);

/** Says what is being done: the last step is what a hang is blamed on. */
void role_step(const role *self, const char *format, ...) GPUIPC_PRINTF(2, 3);

/** Tells the program that started this one the id of the case whose verdict comes next, or a value of it:
 *  report_take_note(). */
void role_note(const role *self, const char *format, ...) GPUIPC_PRINTF(2, 3);

/** Notes a failure, if it is the first. @return false */
bool role_fail(role *self, const char *format, ...) GPUIPC_PRINTF(2, 3);

/** Success, or a failure with the thread's error record. @param what "opening the memory" */
bool role_check(role *self, gpuipc_status status, const char *what);

/** A wait for another program in parts, so that an interrupt ends it: what is left, or one part. */
int role_part_ms(os_deadline deadline);
/** Whether to wait for another part, after what the last one answered. */
bool role_waits_on(gpuipc_status status, os_deadline deadline);

/** Sends a line, with a buffer unless it is NULL. */
bool role_say(role *self, gpuipc_buffer *buffer, const char *format, ...) GPUIPC_PRINTF(3, 4);

/** Tells the other end of this end's failure, so that it need not run into its time-out. */
void role_say_failed(role *self);

/** Waits for a line that begins with @p word (NULL: any), and opens its buffer.
 *  @param out_buffer NULL: none may come; set to NULL when none came
 *  @return the text behind the word, or NULL on failure */
const char *role_hear(role *self, const char *word, char line[ROLE_LINE_MAX],
                      gpuipc_buffer **out_buffer);

/** Is @p word the first word of @p line? */
bool role_begins_with(const char *line, const char *word);

#endif
