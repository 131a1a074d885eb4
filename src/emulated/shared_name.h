/* SPDX-License-Identifier: MIT */
/** @file How memory of another process is found by plain numbers, which travel by any way there is: its
 *  owner, and the owner's handle of it. posix_shared_name.c, win32_shared_name.c */
#ifndef GPUIPC_EMULATED_SHARED_NAME_H
#define GPUIPC_EMULATED_SHARED_NAME_H

#include "os.h"

typedef struct shared_name {
    uint32_t process; /**< as the processes of one PID namespace know it */
    uint32_t number;  /**< of a handle there; nothing tells whether it is still the same one */
} shared_name;

/** The name of memory of this process, good for as long as @p memory is open. */
shared_name shared_name_make(os_handle memory);

/** A handle of one's own to what has this name now: the caller looks whether it is what was meant.
 *  Waits for nothing. ERR_PEER_CLOSED: the process has ended. Fails too when it is another user's, or has no
 *  memory there. */
gpuipc_status shared_name_open(shared_name name, os_handle *out_memory);

#endif
