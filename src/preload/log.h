/* SPDX-License-Identifier: MIT */
/** @file What this library has to say: lines in a file, and counters, both only where they were asked for. */
#ifndef GPUIPC_PRELOAD_LOG_H
#define GPUIPC_PRELOAD_LOG_H

#include <stddef.h>

#include "base/compiler.h"

/** X(counter, text) */
#define LOG_COUNTER_LIST(X)                                                                        \
    X(COUNT_LOOK_UPS, "entry points replaced")                                                     \
    X(COUNT_WHOLE, "allocations")                                                                  \
    X(COUNT_PIECES, "small allocations")                                                           \
    X(COUNT_FREES, "frees")                                                                        \
    X(COUNT_WAITING, "frees held back during a capture")                                           \
    X(COUNT_PASSED, "allocations passed on")                                                       \
    X(COUNT_SHARED, "handles made")                                                                \
    X(COUNT_OPENED, "handles opened")                                                              \
    X(COUNT_OPENED_AGAIN, "handles opened again")                                                  \
    X(COUNT_CLOSED, "handles closed")                                                              \
    X(COUNT_FOREIGN, "foreign handles passed on")                                                  \
    X(COUNT_REFUSED, "calls refused")

typedef enum log_counter {
#define LOG_COUNTER(counter, text) counter,
    LOG_COUNTER_LIST(LOG_COUNTER)
#undef LOG_COUNTER
    LOG_COUNTER_COUNT
} log_counter;

void log_count(log_counter counter);

/** A line for whoever asked for a log. */
void log_line(const char *format, ...) GPUIPC_PRINTF(1, 2);
/** A line on what changes a call's answer: without a log it goes to standard error. */
void log_warning(const char *format, ...) GPUIPC_PRINTF(1, 2);

#endif
