/* SPDX-License-Identifier: MIT */
/** @file The entry points for access between devices. */
#include "context.h"
#include "entry.h"

static CUresult can_access(int *can, CUdevice from, CUdevice to) {
    device *accessor;
    device *owner;
    CUresult result = state_device(from, &accessor);
    if (result == CUDA_SUCCESS) {
        result = state_device(to, &owner);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (can == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *can = context_devices_are_peers((int)accessor->physical, (int)owner->physical);
    return CUDA_SUCCESS;
}

static CUresult get_attribute(int *value, CUdevice_P2PAttribute attribute, CUdevice from,
                              CUdevice to) {
    int access;
    CUresult result = from == to ? CUDA_ERROR_INVALID_DEVICE : can_access(&access, from, to);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (value == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    switch (attribute) {
    case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
        *value = 0;
        return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
    case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
        *value = access;
        return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
        *value = access != 0 && driver.computer.link == MACHINE_LINK_NVLINK;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static bool find_peer(const context *ctx, CUcontext handle, unsigned *position) {
    for (unsigned i = 0; i < ctx->peer_count; i++) {
        if (ctx->peers[i] == handle) {
            *position = i;
            return true;
        }
    }
    return false;
}

/* Whichever of the two is not there, the answer is the same. */
static CUresult find_both(CUcontext handle, context **current, context **peer) {
    CUresult result = context_current(current);
    if (result == CUDA_SUCCESS) {
        result = context_find_healthy(handle, peer);
    }
    return result == CUDA_SUCCESS || result == CUDA_ERROR_ILLEGAL_ADDRESS
               ? result
               : CUDA_ERROR_INVALID_CONTEXT;
}

static CUresult enable(CUcontext handle, unsigned flags) {
    context *current;
    context *peer;
    unsigned position;
    const CUresult result = find_both(handle, &current, &peer);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    /* The current context itself, too: cuda.h says CUDA_ERROR_INVALID_CONTEXT, but this was
     * measured. */
    if (!context_devices_are_peers((int)driver.devices[current->device].physical,
                                   (int)driver.devices[peer->device].physical)) {
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    }
    if (find_peer(current, handle, &position)) {
        return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    }
    if (current->peer_count == CONTEXT_PEERS_MAX) {
        return CUDA_ERROR_TOO_MANY_PEERS;
    }
    current->peers[current->peer_count++] = handle;
    return CUDA_SUCCESS;
}

static CUresult disable(CUcontext handle) {
    context *current;
    context *peer;
    unsigned position;
    const CUresult result = find_both(handle, &current, &peer);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!find_peer(current, handle, &position)) {
        return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    }
    current->peers[position] = current->peers[--current->peer_count];
    return CUDA_SUCCESS;
}

GPUIPC_EXPORTED CUresult cuDeviceCanAccessPeer(int *can, CUdevice from, CUdevice to) {
    const CUresult refused = ENTER(cuDeviceCanAccessPeer);
    return refused != CUDA_SUCCESS ? refused : entry_leave(can_access(can, from, to));
}

GPUIPC_EXPORTED CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute,
                                                 CUdevice from, CUdevice to) {
    const CUresult refused = ENTER(cuDeviceGetP2PAttribute);
    return refused != CUDA_SUCCESS ? refused
                                   : entry_leave(get_attribute(value, attribute, from, to));
}

GPUIPC_EXPORTED CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags) {
    const CUresult refused = ENTER(cuCtxEnablePeerAccess);
    return refused != CUDA_SUCCESS ? refused : entry_leave(enable(peer, flags));
}

GPUIPC_EXPORTED CUresult cuCtxDisablePeerAccess(CUcontext peer) {
    const CUresult refused = ENTER(cuCtxDisablePeerAccess);
    return refused != CUDA_SUCCESS ? refused : entry_leave(disable(peer));
}
