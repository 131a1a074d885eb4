/* SPDX-License-Identifier: MIT */
/** @file The processes that count for a share with a limit. All of it is looked through, which is as much as the limit
 *  admits. Guarded by the mutex of the server's shares. */
#ifndef GPUIPC_ADMISSION_H
#define GPUIPC_ADMISSION_H

#include "known_process.h"

/** All zero is empty. */
typedef struct admission {
    known_process **processes; /**< a reference each */
    uint32_t count;
    uint32_t capacity;
    bool has_own; /**< this process itself counts as well */
} admission;

/** @param process NULL in these: this process itself */
bool admission_has(const admission *self, const known_process *process);
/** One that is not there yet. ERR_OUT_OF_MEMORY */
gpuipc_status admission_add(admission *self, known_process *process);
/** One that is not there is left alone. */
void admission_remove(admission *self, known_process *process);

uint64_t admission_count(const admission *self);

/** @param forked in a child */
void admission_clear(admission *self, bool forked);

#endif
