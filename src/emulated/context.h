/* SPDX-License-Identifier: MIT */
/** @file Contexts, the primary ones among them, and each thread's stack of current contexts. The
 *  driver's lock is held in every call. */
#ifndef GPUIPC_EMULATED_CONTEXT_H
#define GPUIPC_EMULATED_CONTEXT_H

#include "state.h"

struct mapping;
struct stream;
struct event;

/** Peers that one context may have access to at a time. */
#define CONTEXT_PEERS_MAX 64

typedef struct context {
    CUcontext handle;
    int device; /**< ordinal */
    unsigned flags;
    bool is_primary;
    bool is_active;         /**< a primary context that nobody retains, or was reset, is not */
    bool is_dead;           /**< its work has faulted; only a reset helps */
    bool is_clearing;       /**< a call is ending what is in it, and may have released the lock */
    unsigned retains;       /**< of a primary context */
    struct stream *streams; /**< list of all, the default ones too */
    struct event *events;   /**< list of all */
    CUcontext peers[CONTEXT_PEERS_MAX]; /**< whose memory this context may reach */
    unsigned peer_count;
    struct context *next;
} context;

/** The calling thread's current context. CUDA_ERROR_INVALID_CONTEXT: there is none;
 *  CUDA_ERROR_CONTEXT_IS_DESTROYED; CUDA_ERROR_ILLEGAL_ADDRESS: its work has faulted. */
CUresult context_current(context **out);

/** The context behind a handle; CUDA_ERROR_INVALID_CONTEXT. */
CUresult context_find(CUcontext handle, context **out);

/** The same for a call that needs it to work: CUDA_ERROR_ILLEGAL_ADDRESS too. */
CUresult context_find_healthy(CUcontext handle, context **out);

/** Work in a context has faulted: it is dead until it is reset. */
void context_fault(CUcontext handle);
/** CUDA_ERROR_ILLEGAL_ADDRESS if it is dead; CUDA_SUCCESS else, and when it is gone. */
CUresult context_health(CUcontext handle);

/** Whether a call is ending what is in it: what its streams wait for may never come. */
bool context_is_ending(CUcontext handle);

/** The primary context of a device, made when it is first asked for. */
CUresult context_primary(device *of, context **out);

/** Makes a context that is not primary. */
CUresult context_create(int device, unsigned flags, context **out);
/** Ends its work, its streams, events and memory, then itself. */
void context_destroy(context *ctx);
/** Ends what is in it; it is inactive from now on. */
void context_clear(context *ctx);

/** Whether kernels of a context on device @p from may reach memory of device @p to (numbers in the
 *  machine; @p to may be -1). */
bool context_devices_are_peers(int from, int to);

/** Whether a context has been given access to the plain memory of another. */
bool context_reaches(const context *from, const context *to);

/** Whether the device of a context has any access to what an address stands for. */
bool context_sees(const context *by, const struct mapping *mapped);

/** CUDA_ERROR_INVALID_VALUE: NULL; CUDA_ERROR_INVALID_CONTEXT. */
CUresult context_push(CUcontext handle);
CUresult context_pop(CUcontext *out_handle);
/** The handle on top of the calling thread's stack, or NULL. */
CUcontext context_top(void);

#endif
