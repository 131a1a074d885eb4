/* SPDX-License-Identifier: MIT */
/**
 * @file Calls that fail on demand: what the library asks of the system, of the allocator and of the driver, in one row and
 * with one count. The layers that stand before those (posix_fault_calls.c, win32_fault_calls.c, allocation.h, the emulated
 * driver's judge) ask here, call by call, whether it is to fail.
 *
 * One thread is watched: the one that runs the scenario. So the row is the same each time.
 */
#ifndef GPUIPC_TEST_FAULT_POINT_H
#define GPUIPC_TEST_FAULT_POINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Room for the errors of one call. */
#define FAULT_ERRORS_MAX 26

/** No error code, but less than was asked for: of a read or write one byte, of a message its bytes cut (MSG_TRUNC). */
#define FAULT_SHORT (-1)
/** Of a message: the handles cut (MSG_CTRUNC). */
#define FAULT_SHORT_CONTROL (-2)

typedef enum fault_layer {
    FAULT_SYSTEM,
    FAULT_MEMORY,
    FAULT_DRIVER
} fault_layer;

/** A call, or one use of it. */
typedef struct fault_call {
    const char *name; /**< "fcntl(F_GETFD)": up to the bracket the function's */
    fault_layer layer;
    bool is_transient; /**< its first error passes: it is not denied for ever */
    size_t error_count;
    int errors[FAULT_ERRORS_MAX]; /**< that its manual page names */
} fault_call;

/** Which calls fail, by their number in the row, from 1 on. */
typedef struct fault_plan {
    uint64_t first; /**< 0: none */
    uint64_t last;  /**< UINT64_MAX: all later ones, each with its first error */
    size_t error;   /**< which of the call's errors; of several calls: from which one on */
} fault_plan;

typedef struct fault_event {
    const fault_call *call;
    int code;           /**< 0: it was let through */
    const char *during; /**< the public function that was being called, or was last */
    const char *part;   /**< of it, where its failures are something else; or "" */
} fault_event;

/** So many calls of a run are kept. */
#define FAULT_EVENTS_MAX 8192

typedef struct fault_row {
    fault_event events[FAULT_EVENTS_MAX];
    size_t count;
} fault_row;

/** From now on this thread's calls are counted, and fail as planned. */
void fault_begin(const fault_plan *plan);
/** The thread's own calls for the test's sake are neither counted nor denied between these two. */
void fault_pause(void);
void fault_resume(void);
/** @return the row, until the next begin */
const fault_row *fault_end(void);

/** Names a part of a call, for the events in it. @return the one before, to be set again */
const char *fault_enter_part(const char *name);
void fault_leave_part(const char *before);

/** What the layers ask. @return 0, or the code to fail with */
int fault_ask(const fault_call *call);

/** The library's calls that are watched, for a table: by number, NULL after the last. The system's file has it. */
const fault_call *fault_system_call(size_t number);

#endif
