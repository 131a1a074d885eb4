/* SPDX-License-Identifier: MIT */
/**
 * @file What the emulated CUDA driver exports beside the cu* names. Tests find these by name in
 * the loaded library; programs have no use for them.
 *
 * Environment, read once at cuInit:
 *   GPUIPC_EMULATED_MACHINE  describes the machine: "key=value;key=value", see machine.h.
 *   GPUIPC_EMULATED_FAIL     calls that fail: "cuMemCreate:3=2;cuMemMap:1=999", the Nth call
 *                            (from 1) of a function answers the code; N of '*': every call; a name
 *                            of '*': any function, counted together; a code of "die" ends the
 *                            process there, "delay250" sleeps so many milliseconds first and goes
 *                            on.
 *   GPUIPC_EMULATED_REPORT   1: what is still live when the process exits is listed on stderr.
 *   CUDA_VISIBLE_DEVICES     as the real driver reads it (ordinals and GPU-UUIDs).
 */
#ifndef GPUIPC_EMULATED_H
#define GPUIPC_EMULATED_H

#include <stddef.h>
#include <stdint.h>

/** Its presence marks the emulated driver. @return the version of the marks below: 1 */
typedef int (*gpuipc_emulated_mark_fn)(void);
#define GPUIPC_EMULATED_MARK "gpuipc_emulated_mark"

/** What is live in this process. */
typedef struct gpuipc_emulated_live {
    uint64_t allocations;  /**< handles from create, import and retain, each counted */
    uint64_t reservations; /**< address ranges */
    uint64_t mappings;     /**< cuMemMap not undone */
    uint64_t plain;        /**< cuMemAlloc not freed */
    uint64_t streams;      /**< made, not destroyed */
    uint64_t events;       /**< made, not destroyed */
    uint64_t contexts;     /**< made by cuCtxCreate, not destroyed */
    uint64_t primary;      /**< retains of primary contexts not released */
    uint64_t pools;        /**< made or imported, not destroyed */
    uint64_t pooled;       /**< allocations of pools not freed, imported ones too */
    uint64_t ipc;          /**< cuIpcOpenMemHandle not closed, each counted */
    uint64_t pinned;       /**< of the host: allocated or registered, not freed or unregistered */
    uint64_t managed;      /**< cuMemAllocManaged not freed */
    uint64_t graphs;       /**< not destroyed, also those that are captured into */
    uint64_t graph_execs;  /**< instantiated, not destroyed */
    uint64_t
        keeping_out; /**< 1: a call that frees waits for a context, and all others wait for it */
} gpuipc_emulated_live;
typedef void (*gpuipc_emulated_live_fn)(gpuipc_emulated_live *out);
#define GPUIPC_EMULATED_LIVE "gpuipc_emulated_get_live"

/**
 * Lists what is live, one line with a newline for each object: its kind, its handle or address, and
 * what there is of its size in bytes, its device and how often it is held, such as
 *     allocation 0x800000000023 size 2097152 device 0 count 1
 * The kinds are allocation, reservation, mapping, plain, stream, event, context, primary, pool, pooled,
 * ipc, pinned, managed, graph and graph-exec, as above. Device -2 is one that this process does not see.
 * @param text gets as much as fits, always with a terminator; may be NULL when @p capacity is 0
 * @return the length of the whole list without the terminator; 0: nothing is live
 */
typedef size_t (*gpuipc_emulated_list_live_fn)(char *text, size_t capacity);
#define GPUIPC_EMULATED_LIST_LIVE "gpuipc_emulated_list_live"

/** Replaces what fails, in the form of GPUIPC_EMULATED_FAIL; "" or NULL: nothing. Call counts start
 *  at 0 again. @return 0, or -1 when the text is malformed (nothing is changed then) */
typedef int (*gpuipc_emulated_fail_fn)(const char *text);
#define GPUIPC_EMULATED_SET_FAIL "gpuipc_emulated_set_fail"

/** Calls of one entry point since the last set_fail, or of all for NULL. */
typedef uint64_t (*gpuipc_emulated_calls_fn)(const char *name);
#define GPUIPC_EMULATED_CALLS "gpuipc_emulated_get_calls"

/** Asked at every call, after the rules of GPUIPC_EMULATED_FAIL and with nothing locked: the code that it must answer, or 0.
 *  Called by the calling thread. NULL: nobody is asked. */
typedef int (*gpuipc_emulated_judge)(const char *name);
typedef void (*gpuipc_emulated_judge_fn)(gpuipc_emulated_judge judge);
#define GPUIPC_EMULATED_SET_JUDGE "gpuipc_emulated_set_judge"

/** Every piece of asynchronous work waits this long before it starts. */
typedef void (*gpuipc_emulated_delay_fn)(unsigned milliseconds);
#define GPUIPC_EMULATED_SET_DELAY "gpuipc_emulated_set_stream_delay"

#endif
