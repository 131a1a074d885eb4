/* SPDX-License-Identifier: MIT */
/** @file See context.h. */
#include "context.h"

#include <stdlib.h>

#include "address_space.h"
#include "event.h"
#include "graph.h"
#include "handle_table.h"
#include "legacy.h"
#include "pinned.h"
#include "plain_memory.h"
#include "stream.h"

/* CUDA's own limit is not documented; this one is far from what nested calls need. */
#define STACK_DEPTH_MAX 256

/* Handles, because a context may be destroyed while it is on some thread's stack. */
static GPUIPC_THREAD_LOCAL CUcontext stack[STACK_DEPTH_MAX];
static GPUIPC_THREAD_LOCAL unsigned stack_depth;

/* All contexts, the primary ones too. */
static context *contexts;

CUcontext context_top(void) {
    return stack_depth == 0 ? NULL : stack[stack_depth - 1];
}

CUresult context_current(context **out) {
    const CUcontext handle = context_top();
    if (handle == NULL) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    context *ctx = handle_find(HANDLE_CONTEXT, (uintptr_t)handle);
    if (ctx == NULL || !ctx->is_active) {
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    const CUresult result = context_health(handle);
    if (result == CUDA_SUCCESS) {
        *out = ctx;
    }
    return result;
}

CUresult context_find(CUcontext handle, context **out) {
    context *ctx = handle_find(HANDLE_CONTEXT, (uintptr_t)handle);
    if (ctx == NULL || !ctx->is_active) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    *out = ctx;
    return CUDA_SUCCESS;
}

CUresult context_find_healthy(CUcontext handle, context **out) {
    const CUresult result = context_health(handle);
    return result == CUDA_SUCCESS ? context_find(handle, out) : result;
}

void context_fault(CUcontext handle) {
    context *ctx = handle_find(HANDLE_CONTEXT, (uintptr_t)handle);
    if (ctx != NULL) {
        ctx->is_dead = true;
    }
}

/* cuda.h, CUDA_ERROR_ILLEGAL_ADDRESS: the context "is in an inconsistent state and any further CUDA
 * work will return the same error". */
CUresult context_health(CUcontext handle) {
    const context *ctx = handle_find(HANDLE_CONTEXT, (uintptr_t)handle);
    return ctx != NULL && ctx->is_dead ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_SUCCESS;
}

bool context_is_ending(CUcontext handle) {
    const context *ctx = handle_find(HANDLE_CONTEXT, (uintptr_t)handle);
    return ctx == NULL || ctx->is_clearing;
}

CUresult context_push(CUcontext handle) {
    context *ctx;
    if (handle == NULL) {
        return CUDA_ERROR_INVALID_VALUE; /* measured */
    }
    CUresult result = context_find(handle, &ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (stack_depth == STACK_DEPTH_MAX) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    stack[stack_depth++] = handle;
    return CUDA_SUCCESS;
}

CUresult context_pop(CUcontext *out_handle) {
    if (stack_depth == 0) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    *out_handle = stack[--stack_depth];
    return CUDA_SUCCESS;
}

static CUresult context_new(int ordinal, context **out) {
    context *ctx = calloc(1, sizeof(*ctx));
    if (ctx == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    ctx->handle = (CUcontext)(uintptr_t)handle_add(HANDLE_CONTEXT, ctx);
    if (ctx->handle == NULL) {
        free(ctx);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    ctx->device = ordinal;
    ctx->next = contexts;
    contexts = ctx;
    *out = ctx;
    return CUDA_SUCCESS;
}

CUresult context_primary(device *of, context **out) {
    if (of->primary == NULL) {
        CUresult result = context_new((int)(of - driver.devices), &of->primary);
        if (result != CUDA_SUCCESS) {
            return result;
        }
        of->primary->is_primary = true;
    }
    *out = of->primary;
    return CUDA_SUCCESS;
}

CUresult context_create(int ordinal, unsigned flags, context **out) {
    CUresult result = context_new(ordinal, out);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    (*out)->flags = flags;
    (*out)->is_active = true;
    driver.live.contexts++;
    return CUDA_SUCCESS;
}

/* Nobody has access to its memory any more: a primary context comes back with the same handle. */
static void forget_peer(CUcontext handle) {
    for (context *ctx = contexts; ctx != NULL; ctx = ctx->next) {
        for (unsigned i = 0; i < ctx->peer_count; i++) {
            if (ctx->peers[i] == handle) {
                ctx->peers[i] = ctx->peers[--ctx->peer_count];
                break;
            }
        }
    }
}

void context_clear(context *ctx) {
    mapping *mapped;
    ctx->is_active = false; /* no new work while the lock is released to wait for the old */
    ctx->is_clearing = true;
    graph_exec_forget(ctx);
    for (;;) {
        stream_wait_context(ctx);
        if (ctx->streams == NULL) {
            break;
        }
        stream_close(ctx->streams);
    }
    while (ctx->events != NULL) {
        event_free(ctx->events);
    }
    while ((mapped = address_owned_by(ctx)) != NULL) {
        if (mapped->kind == MAPPING_OPENED) {
            legacy_unmap(mapped);
        } else {
            plain_unmap(mapped);
        }
    }
    pinned_clear(ctx);
    forget_peer(ctx->handle);
    ctx->peer_count = 0;
    ctx->is_dead = false;
    ctx->is_clearing = false;
    state_announce();
}

void context_destroy(context *ctx) {
    context **link = &contexts;
    context_clear(ctx);
    while (*link != ctx) {
        link = &(*link)->next;
    }
    *link = ctx->next;
    handle_remove((uintptr_t)ctx->handle);
    driver.live.contexts--;
    free(ctx);
}

bool context_devices_are_peers(int from, int to) {
    if (from < 0 || to < 0 || from == to) {
        return false;
    }
    return (driver.computer.p2p[from] >> to & 1) != 0;
}

bool context_reaches(const context *from, const context *to) {
    if (from->device == to->device) {
        return true; /* one device, one address space: contexts only keep books apart */
    }
    for (unsigned i = 0; i < from->peer_count; i++) {
        if (from->peers[i] == to->handle) {
            return true;
        }
    }
    return false;
}

bool context_sees(const context *by, const mapping *mapped) {
    return mapped->owner != NULL ? context_reaches(by, mapped->owner)
                                 : mapped->access[by->device] != CU_MEM_ACCESS_FLAGS_PROT_NONE;
}
