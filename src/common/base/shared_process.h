/* SPDX-License-Identifier: MIT */
/**
 * @file The system's handle of another process: one for all connections with that process, since a server has as many
 * descriptors as the system lets it have, and its clients may be many contexts of few processes. Two that come at the same
 * moment may have one each. (On Windows a connection has another one, for its own calls.) Any thread; one lock.
 */
#ifndef GPUIPC_SHARED_PROCESS_H
#define GPUIPC_SHARED_PROCESS_H

#include "base/quota.h"
#include "os.h"

typedef struct shared_process shared_process;

/** Takes the handle in @p peer over on success: where there is one of that process already, it is closed, and the other one
 *  stands in its place. It stays open as long as the reference that the caller gets.
 *  @param of charged with the handle, if it is the first one
 *  ERR_LIMIT, ERR_OUT_OF_MEMORY */
gpuipc_status shared_process_get(os_peer *peer, quota *of, shared_process **out_process);
/** NULL does nothing. @param forked in a child, where the handle is closed already */
void shared_process_unreference(shared_process *self, bool forked);

#endif
