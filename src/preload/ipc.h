/* SPDX-License-Identifier: MIT */
/** @file Legacy IPC carried by tickets. */
#ifndef GPUIPC_PRELOAD_IPC_H
#define GPUIPC_PRELOAD_IPC_H

#include "memory.h"

/** Held while memory is shared and ended, and while what was opened is entered: who shares what another thread frees, or
 *  opens what it closes, comes before or after it. Not while another process is asked. Before all other locks. */
void ipc_lock(void);
bool ipc_try_lock(void);
void ipc_unlock(void);

/** Lets a device at what an owner's context has open, as far as it can reach it. */
void ipc_let_at(owner *of, int device);
/** Closes what an owner's context has open and ends what of its memory is shared, before it ends itself. */
void ipc_leave(owner *of);

#endif
