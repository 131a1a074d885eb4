/* SPDX-License-Identifier: MIT */
/**
 * @file What a system's error code says wherever it arises, and the status for it: the table that
 * posix_error.c and win32_error.c share, so that the same situation has the same status on both.
 *
 * Codes that mean one thing here and another there (a file that is missing, a right that is
 * missing) are no part of it: they are OTHER, and the call that knows better decides by itself.
 * What those calls answer is compared in tests/unit/test_os_situation.c.
 */
#ifndef GPUIPC_OS_SITUATION_H
#define GPUIPC_OS_SITUATION_H

#include <gpuipc/gpuipc_status.h>

/**
 * X(situation, status, systems). Systems: BOTH, or the one that has it.
 *
 * HANDLES_IN_FLIGHT: a descriptor in a socket's queue is nobody's, so Linux counts them for each
 * user (man 7 unix, ETOOMANYREFS). Windows has no such queue: DuplicateHandle puts a handle into
 * the receiver at once.
 */
#define OS_SITUATION_LIST(X)                                                                       \
    X(NO_HANDLE_LEFT, ERR_TOO_MANY_HANDLES, BOTH)                                                  \
    X(HANDLES_IN_FLIGHT, ERR_TOO_MANY_IN_FLIGHT, POSIX)                                            \
    X(NO_MEMORY, ERR_OUT_OF_MEMORY, BOTH)                                                          \
    X(PEER_GONE, ERR_PEER_CLOSED, BOTH)                                                            \
    X(OTHER, ERR_OS, BOTH)

typedef enum os_situation {
#define OS_SITUATION_ENUMERATOR(situation, status, systems) OS_SITUATION_##situation,
    OS_SITUATION_LIST(OS_SITUATION_ENUMERATOR)
#undef OS_SITUATION_ENUMERATOR
} os_situation;

static inline gpuipc_status os_situation_status(os_situation situation) {
    static const gpuipc_status statuses[] = {
#define OS_SITUATION_STATUS(name, status, systems) [OS_SITUATION_##name] = GPUIPC_##status,
        OS_SITUATION_LIST(OS_SITUATION_STATUS)
#undef OS_SITUATION_STATUS
    };
    return statuses[situation];
}

#endif
