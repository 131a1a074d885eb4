/* SPDX-License-Identifier: MIT */
/** @file A process at rest: how many threads it has, and how often they wake up. */
#ifndef GPUIPC_BENCH_REST_H
#define GPUIPC_BENCH_REST_H

#include <stdbool.h>
#include <stdint.h>

#include "child.h"

typedef struct rest {
    uint32_t threads;
    uint64_t switches; /**< voluntary ones of all threads, but for the one of the sleep itself */
} rest;

/** Sleeps so long. False where it is not known. */
bool rest_measure(uint32_t milliseconds, rest *out_rest);
/** In another process: measures, and says it in a line for rest_hear(). */
void rest_say(uint32_t milliseconds);
void rest_hear(child_process *child, rest *out_rest);

#endif
