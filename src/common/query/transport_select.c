/* SPDX-License-Identifier: MIT */
/** @file Choosing a transport for a pair of devices: by policy, and never a slower one in silence. */
#include <string.h>

#include "base/struct_size.h"
#include "memory/buffer.h"
#include "query/transport_query.h"
#include "transport/transport.h"

/* What one transport offers, and whether it may be chosen. */
typedef struct candidate {
    gpuipc_transport_info info;
    gpuipc_reason refused; /**< NONE: it may */
} candidate;

/* All of them, by number; 0 is unused. */
typedef struct choice {
    candidate candidates[GPUIPC_TRANSPORT_ROOM];
    gpuipc_transport chosen;
} choice;

/* Two figures of one link differ by this much from one measurement to the next, or between a measurement
 * and an estimate; the lower number, which is the more general transport, is then as good. */
static bool is_faster(const gpuipc_transport_info *than, const gpuipc_transport_info *info) {
    const uint64_t known = than->bandwidth_bytes_per_second;
    return info->bandwidth_bytes_per_second > known + known / 10;
}

/* Staged copies carry whatever can be read; all else only memory that was made for it. */
static bool carries(gpuipc_transport which, gpuipc_transport memory) {
    return memory == GPUIPC_TRANSPORT_DEFAULT || which == memory ||
           !transport_find(which)->is_zero_copy;
}

static void consider(candidate *self, const query_pair *pair, gpuipc_transport memory,
                     gpuipc_policy policy) {
    const gpuipc_transport which = self->info.transport;
    if (!carries(which, memory)) {
        self->refused = GPUIPC_REASON_WRONG_MEMORY;
    } else if (!self->info.available) {
        self->refused = self->info.reason;
    } else if (transport_find(which)->endangers_peers && memory != which &&
               pair->owner != pair->user) {
        self->refused = GPUIPC_REASON_POOL_ACROSS_GPUS;
    } else if (transport_find(which)->memory == 0 && !pair->has_peer && memory != which) {
        /* Without a connection the other end is another process; see gpuipc_transport_pair. */
        self->refused = GPUIPC_REASON_SAME_PROCESS_ONLY;
    } else if (policy == GPUIPC_POLICY_ZERO_COPY && !self->info.is_zero_copy) {
        self->refused = GPUIPC_REASON_POLICY;
    }
}

static gpuipc_transport best_of(const choice *from, bool zero_copy_only) {
    gpuipc_transport best = GPUIPC_TRANSPORT_DEFAULT;
    for (uint32_t i = 1; i <= GPUIPC_TRANSPORT_COUNT; i++) {
        const candidate *each = &from->candidates[i];
        if (each->refused != GPUIPC_REASON_NONE || (zero_copy_only && !each->info.is_zero_copy)) {
            continue;
        }
        if (best == GPUIPC_TRANSPORT_DEFAULT ||
            is_faster(&from->candidates[best].info, &each->info)) {
            best = (gpuipc_transport)i;
        }
    }
    return best;
}

static gpuipc_status choose(context *ctx, const query_pair *pair, gpuipc_transport memory,
                            gpuipc_policy policy, choice *made) {
    memset(made, 0, sizeof(*made));
    for (uint32_t i = 1; i <= GPUIPC_TRANSPORT_COUNT; i++) {
        candidate *each = &made->candidates[i];
        gpuipc_status status = query_answer(ctx, (gpuipc_transport)i, pair, &each->info);
        if (status != GPUIPC_OK) {
            return status;
        }
        consider(each, pair, memory, policy);
    }
    made->chosen = best_of(made, policy != GPUIPC_POLICY_ANY);
    if (made->chosen == GPUIPC_TRANSPORT_DEFAULT && policy == GPUIPC_POLICY_PREFER_ZERO_COPY) {
        made->chosen = best_of(made, false);
    }
    return GPUIPC_OK;
}

/* The record of a choice that found none: what stands in the way of the transport that the memory is of,
 * or of the most general one. */
static gpuipc_status fail_none(const choice *made, gpuipc_transport memory) {
    const gpuipc_transport best = transport_find(memory)->id;
    const candidate *each = &made->candidates[best];
    const char *sentence =
        each->refused == each->info.reason ? each->info.sentence : reason_sentence(each->refused);
    return status_fail(GPUIPC_ERR_NO_TRANSPORT, "%s: %s", gpuipc_transport_name(best), sentence);
}

static gpuipc_status read_memory(gpuipc_buffer *handle, gpuipc_transport *out_memory) {
    buffer *self;
    gpuipc_status status = handle == NULL ? GPUIPC_OK : buffer_acquire(handle, &self);
    if (handle != NULL && status == GPUIPC_OK) {
        *out_memory = self->transport->id;
        buffer_unreference(self);
    }
    return status;
}

static gpuipc_status select_transport(context *ctx, const gpuipc_transport_pair *given,
                                      gpuipc_transport memory, gpuipc_policy policy,
                                      gpuipc_selection *out_selection) {
    gpuipc_selection selection = {.struct_size = sizeof(selection)};
    query_pair pair;
    choice made;
    gpuipc_status status = query_read_pair(ctx, given, &pair);
    if (status != GPUIPC_OK || (status = choose(ctx, &pair, memory, policy, &made)) != GPUIPC_OK) {
        return status;
    }
    selection.chosen = made.chosen;
    for (uint32_t i = 1; i <= GPUIPC_TRANSPORT_COUNT; i++) {
        selection.refused[i] = made.candidates[i].refused;
    }
    struct_size_write(out_selection, &selection, sizeof(selection));
    return made.chosen == GPUIPC_TRANSPORT_DEFAULT ? fail_none(&made, memory) : GPUIPC_OK;
}

gpuipc_status gpuipc_transport_select(gpuipc_context *handle, const gpuipc_transport_pair *pair,
                                      gpuipc_buffer *of, gpuipc_policy policy,
                                      gpuipc_selection *out_selection) {
    status_enter(__func__);
    gpuipc_transport memory = GPUIPC_TRANSPORT_DEFAULT;
    context *ctx;
    gpuipc_status status =
        struct_size_check(out_selection, STRUCT_SIZE_UP_TO(gpuipc_selection, refused));
    if (status != GPUIPC_OK) {
        return status;
    }
    if (policy != GPUIPC_POLICY_ZERO_COPY && policy != GPUIPC_POLICY_PREFER_ZERO_COPY &&
        policy != GPUIPC_POLICY_ANY) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "%d is no gpuipc_policy", (int)policy);
    }
    if ((status = read_memory(of, &memory)) != GPUIPC_OK ||
        (status = context_acquire(handle, &ctx)) != GPUIPC_OK) {
        return status;
    }
    status = select_transport(ctx, pair, memory, policy, out_selection);
    context_unreference(ctx);
    return status;
}
