/* SPDX-License-Identifier: MIT */
/**
 * @file The gate that every exported entry point goes through first: it counts the call, lets it
 * fail on demand (fault.h), and refuses it before cuInit, in a forked child, and in a function that a
 * stream calls.
 */
#ifndef GPUIPC_EMULATED_ENTRY_H
#define GPUIPC_EMULATED_ENTRY_H

#include "emulated_api.h"

#define ENTRY_ID(group, name, suffix, version, parameters)                                         \
    EMULATED_HAS_##group(ENTRY_##name##suffix, )
typedef enum entry_id {
    CUDA_API_LIST(ENTRY_ID) EMULATED_API_LIST(ENTRY_ID) ENTRY_COUNT
} entry_id;
#undef ENTRY_ID

/** A pointer to any function. */
typedef void (*entry_function)(void);

typedef struct entry {
    const char *name; /**< without the suffix, as cuGetProcAddress takes it */
    int version;
    entry_function function;
} entry;

extern const entry entry_table[ENTRY_COUNT];

/**
 * Opens a call. On success the driver's lock is held, and entry_leave releases it:
 *     const CUresult refused = ENTER(cuMemFree_v2);
 *     return refused != CUDA_SUCCESS ? refused : entry_leave(plain_free(address));
 */
CUresult entry_enter(entry_id id);
#define ENTER(symbol) entry_enter(ENTRY_##symbol)

/** The same for one that cuThreadExchangeStreamCaptureMode calls potentially unsafe. */
CUresult entry_enter_unsafe(entry_id id);
#define ENTER_UNSAFE(symbol) entry_enter_unsafe(ENTRY_##symbol)

/** Opens a call that CUDA answers before cuInit too; the lock is not taken. */
CUresult entry_enter_anytime(entry_id id);
#define ENTER_ANYTIME(symbol) entry_enter_anytime(ENTRY_##symbol)

/** Releases the driver's lock and returns @p result. */
CUresult entry_leave(CUresult result);

#endif
