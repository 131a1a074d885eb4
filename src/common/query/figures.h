/* SPDX-License-Identifier: MIT */
/**
 * @file Measurements that outlive the process: one small file each in the user's cache directory, keyed by
 * both devices, the driver's version and the transport. A file that is not exactly what is written here
 * counts as no measurement. The emulated driver has no such directory.
 */
#ifndef GPUIPC_FIGURES_H
#define GPUIPC_FIGURES_H

#include "cuda/context.h"

/** Between what. */
typedef struct figures_key {
    gpuipc_transport transport;
    gpuipc_uuid owner;
    gpuipc_uuid user;
} figures_key;

/** False when there is none; the error record stays as it was. */
bool figures_load(const context *ctx, const figures_key *key, gpuipc_measurement *out_measured);

/** Its failure takes nothing from the measurement: the log hears of it. */
void figures_store(const context *ctx, const figures_key *key, const gpuipc_measurement *measured);

/** Puts the figures of a measurement into an answer. */
void figures_apply(const gpuipc_measurement *measured, gpuipc_transport_info *info);

/* ---- the file's text, for the tests ------------------------------------------------------- */

/** Room for the text of a file, with its end. */
#define FIGURES_TEXT_MAX 256

/** Writes the text. @return its length */
size_t figures_write_text(const gpuipc_measurement *measured, char text[FIGURES_TEXT_MAX]);
/** False when it is not what figures_write_text() writes, or no figures that hardware can have. */
bool figures_read_text(const char *text, size_t length, gpuipc_measurement *out_measured);

#endif
