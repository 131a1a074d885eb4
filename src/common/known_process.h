/* SPDX-License-Identifier: MIT */
/** @file The processes that count for shares with a limit: known also after their connection has ended, by their
 *  number together with the system's handle, so that another process that gets the number is told from them. All
 *  of it is guarded by the mutex of the server's shares. */
#ifndef GPUIPC_KNOWN_PROCESS_H
#define GPUIPC_KNOWN_PROCESS_H

#include "os.h"

#define KNOWN_PROCESS_SLOTS 64u

typedef struct known_process known_process;

/** All zero is empty. */
typedef struct known_processes {
    known_process *slots[KNOWN_PROCESS_SLOTS]; /**< by number; a chain each */
    uint32_t next_look;
} known_processes;

/** The process at the other end of a connection, with a reference for the caller, who gives it up when the
 *  connection is over at the latest. ERR_OUT_OF_MEMORY, ERR_TOO_MANY_HANDLES */
gpuipc_status known_process_get(known_processes *self, const os_peer *peer,
                                known_process **out_process);
void known_process_reference(known_process *self);
/** NULL does nothing. @param forked in a child */
void known_process_unreference(known_process *self, bool forked);

#endif
