/* SPDX-License-Identifier: MIT */
/** @file See peers.h, and what stands before cuCtxEnablePeerAccess() and its kin. */
#include "peers.h"

#include "capture.h"
#include "chunk.h"
#include "ipc.h"
#include "log.h"
#include "state.h"

/* A range whose access changes while work runs on it ends the context of that work (measured), so that work ends
 * first. During a capture nobody may wait. */
static CUresult wait_for_both(owner *of, owner *by) {
    if (capture_is_underway()) {
        return CUDA_SUCCESS;
    }
    const CUresult result = owner_wait(of);
    return result == CUDA_SUCCESS ? owner_wait(by) : result;
}

/* The owner's mutex is held. */
static bool has_accessor(const owner *of, int device) {
    bool has = of->device == device;
    for (unsigned i = 0; i < of->accessor_count; i++) {
        has = has || of->accessors[i].device == device;
    }
    return has;
}

static CUresult set_list(const linked_list *chunks, int device, CUmemAccess_flags flags) {
    CUresult result = CUDA_SUCCESS;
    for (const list_link *at = chunks->first; at != NULL && result == CUDA_SUCCESS; at = at->next) {
        result = chunk_set_access(LIST_ITEM(at, chunk, link), device, flags);
    }
    return result;
}

/* The owner's mutex is held. */
static CUresult set_all(owner *of, int device, CUmemAccess_flags flags) {
    const CUresult result = set_list(&of->chunks, device, flags);
    return result == CUDA_SUCCESS ? set_list(&of->open, device, flags) : result;
}

/* The owner's mutex is held. */
static bool has_context(const owner *of, CUcontext context) {
    bool has = false;
    for (unsigned i = 0; i < of->accessor_count; i++) {
        has = has || of->accessors[i].context == context;
    }
    return has;
}

CUresult peers_let_at(owner *of, owner *by) {
    CUresult result = wait_for_both(of, by);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    pthread_mutex_lock(&of->mutex);
    const bool is_new = !has_accessor(of, by->device);
    const bool is_known = has_context(of, by->context);
    if (!is_known && of->accessor_count == OWNER_DEVICES) {
        result = CUDA_ERROR_TOO_MANY_PEERS;
    } else if (is_new && of->takes) {
        result = set_all(of, by->device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    }
    if (result == CUDA_SUCCESS && !is_known) {
        of->accessors[of->accessor_count++] = (accessor){by->context, by->device};
    }
    pthread_mutex_unlock(&of->mutex);
    log_line("device %d is let at the memory of device %d: CUDA code %d", by->device, of->device,
             (int)result);
    if (result == CUDA_SUCCESS && is_new) {
        ipc_let_at(of, by->device);
    }
    return result;
}

/* Memory that nobody may reach any more stays reachable where that fails: nobody is to use it. */
void peers_let_no_more(owner *of, CUcontext by) {
    pthread_mutex_lock(&of->mutex);
    for (unsigned i = 0; i < of->accessor_count; i++) {
        if (of->accessors[i].context != by) {
            continue;
        }
        const int device = of->accessors[i].device;
        of->accessors[i] = of->accessors[--of->accessor_count];
        if (!has_accessor(of, device)) {
            (void)set_all(of, device, CU_MEM_ACCESS_FLAGS_PROT_NONE);
        }
        break;
    }
    pthread_mutex_unlock(&of->mutex);
}

GPUIPC_EXPORTED CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags) {
    CUresult result = REAL_CALL(cuCtxEnablePeerAccess, (peer, flags));
    if (result != CUDA_SUCCESS || !state_is_on()) {
        return result;
    }
    owner *by = owner_current();
    owner *of = owner_of(peer);
    if (by == NULL || of == NULL) {
        return result;
    }
    result = peers_let_at(of, by);
    if (result != CUDA_SUCCESS) {
        (void)real_get()->cuCtxDisablePeerAccess(peer);
    }
    return result;
}

GPUIPC_EXPORTED CUresult cuCtxDisablePeerAccess(CUcontext peer) {
    const CUresult result = REAL_CALL(cuCtxDisablePeerAccess, (peer));
    owner *of = result == CUDA_SUCCESS && state_is_on() ? owner_find(peer) : NULL;
    owner *by = of != NULL ? owner_current() : NULL;
    if (by != NULL && wait_for_both(of, by) == CUDA_SUCCESS) {
        peers_let_no_more(of, by->context);
    }
    return result;
}
