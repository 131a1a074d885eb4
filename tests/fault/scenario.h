/* SPDX-License-Identifier: MIT */
/**
 * @file What a program does with gpuipc, as pieces that a fault test runs again and again while one
 * call of the driver, one allocation or one descriptor after another is denied.
 *
 * No test framework here: a helper program runs them as well.
 */
#ifndef GPUIPC_TEST_SCENARIO_H
#define GPUIPC_TEST_SCENARIO_H

#include <stddef.h>

#include <gpuipc/gpuipc.h>
#include <gpuipc/gpuipc_native.h>

#include "driver.h"
#include "unique.h"

/** Of a buffer. */
#define SCENARIO_SEGMENTS 3

/** What a scenario works with. */
typedef struct scenario_state {
    char directory[RUNTIME_DIRECTORY_MAX];
    gpuipc_context *context;
    gpuipc_buffer *buffer; /**< three segments on device 0 */
    gpuipc_buffer *other;  /**< likewise */
    gpuipc_listener *listener;
    gpuipc_connection *client;     /**< of the listener */
    gpuipc_connection *connection; /**< its other end */
    gpuipc_server *server;
    gpuipc_ticket ticket;
    gpuipc_native_segment segments[SCENARIO_SEGMENTS]; /**< exported; the handles are its own */
    size_t segment_count;
    driver driver; /**< as a program that uses CUDA beside gpuipc has it */
    CUcontext cuda_context;
    CUstream stream;
    CUdeviceptr own_address; /**< two granules that the program mapped itself, side by side */
    CUmemGenericAllocationHandle own_handles[2];
    void *pinned;  /**< host memory of the program's, wrapped as buffer */
    uint64_t unit; /**< granularity */
} scenario_state;

typedef struct scenario {
    const char *name;
    /** Nothing is denied meanwhile. Answers the first status that is not OK. */
    gpuipc_status (*prepare)(scenario_state *state);
    /** The part under test: does it, and gives everything back, also when it fails half-way.
     *  Answers the first status that is not OK. */
    gpuipc_status (*run)(scenario_state *state);
} scenario;

extern const scenario scenarios[];
extern const size_t scenario_count;

/** NULL when there is none of this name. */
const scenario *scenario_find(const char *name);

/** Makes the directory and runs prepare. */
gpuipc_status scenario_begin(const scenario *self, scenario_state *state);
/** What waits for the devices is done by calls that may. The error record stays. */
void scenario_settle(const scenario_state *state);
/** Gives back what prepare made. */
void scenario_end(scenario_state *state);

#endif
