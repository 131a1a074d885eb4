/* SPDX-License-Identifier: MIT */
/** @file What the command line asks for. */
#ifndef GPUIPC_BENCH_OPTIONS_H
#define GPUIPC_BENCH_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ROWS_MAX 32
/** "Not given", of a device's number. */
#define DEVICE_ANY UINT32_MAX

/** What this process is. A person starts the first; it starts the others. */
typedef enum bench_role {
    ROLE_RUN,          /**< runs the rows, each in a process of its own */
    ROLE_ROW,          /**< one row: owns the memory */
    ROLE_PARTNER,      /**< opens it, by gpuipc and by the driver's calls */
    ROLE_FLOOR,        /**< owns memory, without gpuipc */
    ROLE_FLOOR_PARTNER /**< opens it, without gpuipc */
} bench_role;

typedef struct options {
    bench_role role;
    const char *rows[ROWS_MAX];
    size_t row_count; /**< 0: all */
    uint32_t rounds;  /**< 0: each row's own number */
    uint32_t owner;   /**< device, or DEVICE_ANY */
    uint32_t opener;  /**< likewise */
    bool quick;
    const char *json;      /**< file to be written; NULL: none */
    const char *directory; /**< where the processes meet */
    const char *name;      /**< of the endpoint there */
} options;

/** Reads the command line.
 *  @param out_exit_code what to end with when there is nothing to go on with
 *  @return whether to go on */
bool options_read(int count, char **arguments, options *out_options, int *out_exit_code);

#endif
