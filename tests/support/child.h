/* SPDX-License-Identifier: MIT */
/**
 * @file Helper programs: started by a test, talked to line by line, and never outliving it.
 * posix_child.c, win32_child.c. Statuses are those of gpuipc, with the error record filled.
 */
#ifndef GPUIPC_TEST_CHILD_H
#define GPUIPC_TEST_CHILD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gpuipc/gpuipc_status.h>

typedef struct child_process child_process;

/** How a helper ended. */
typedef struct child_end {
    bool exited; /**< by itself, with code; else killed, or by a fault of its own */
    int code;    /**< not exited: the signal's number, or on Windows the NTSTATUS; there every exit
                      code from 0xC0000000 on counts as one. abort() there is exit code 3 */
} child_end;

/**
 * Starts the program @p name (without ".exe") from the folder that this program lies in. It dies at
 * the latest when this process ends; on Linux when the *thread* that started it ends, so start
 * helpers from the test's own thread; on Windows in child_destroy, with all that it has started.
 * @param arguments   what follows its name; ends with NULL; NULL: none
 * @param environment "NAME=value" sets, "NAME" removes; ends with NULL; NULL: as it is here
 */
gpuipc_status child_start(const char *name, const char *const *arguments,
                          const char *const *environment, child_process **out_child);

/** Reads one line of what it prints, without the newline, or "\r\n" (longer ones are cut).
 *  ERR_TIMEOUT; ERR_PEER_CLOSED when it has closed its output, as its end does. */
gpuipc_status child_read_line(child_process *child, char *line, size_t capacity, int timeout_ms);

/** Writes a line and the newline to its input. ERR_PEER_CLOSED when it reads no more. */
gpuipc_status child_write_line(child_process *child, const char *line);

/** Ends its input: it reads the end of the file. */
void child_close_input(child_process *child);

/** Kills it at once. Its end is still to be waited for. */
void child_kill(child_process *child);

/** Stops it where it stands, and lets it go on. */
void child_stop(child_process *child);
void child_continue(child_process *child);

/** ERR_TIMEOUT. May be called again after the end, with the same answer. */
gpuipc_status child_wait(child_process *child, int timeout_ms, child_end *out_end);

uint64_t child_process_id(const child_process *child);

/** Kills it if it lives, waits for its end, and frees. NULL is allowed. */
void child_destroy(child_process *child);

/** child_read_line, and whether the line is @p expected; what came instead is in @p got, with room
 *  for CHILD_LINE_MAX bytes. */
#define CHILD_LINE_MAX 512
bool child_expect_line(child_process *child, const char *expected, char *got, int timeout_ms);

#endif
