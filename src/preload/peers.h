/* SPDX-License-Identifier: MIT */
/** @file Contexts that are let at each other's memory: that of cuMemCreate() does not follow cuCtxEnablePeerAccess(). */
#ifndef GPUIPC_PRELOAD_PEERS_H
#define GPUIPC_PRELOAD_PEERS_H

#include "owner.h"

/** Lets a context's device at all memory of an owner, also at what is made later, when the work of both has ended.
 *  Nobody waits during a capture. */
CUresult peers_let_at(owner *of, owner *by);
/** Takes that back, unless another context of the device is let at it. */
void peers_let_no_more(owner *of, CUcontext by);

#endif
