/* SPDX-License-Identifier: MIT */
/** @file Whether a transport works between two devices: found by doing it, then remembered. */
#include "query/transport_query.h"

#include <stdio.h>
#include <string.h>

#include "base/struct_size.h"
#include "message/connection.h"
#include "query/answers.h"
#include "query/estimate.h"
#include "query/figures.h"
#include "query/transport_probe.h"
#include "transport/transport.h"

gpuipc_status query_read_transport(gpuipc_transport given, gpuipc_transport *out_transport) {
    const transport *found = transport_find(given);
    if (found == NULL) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "%d is no transport; they are 1 to %d",
                           (int)given, GPUIPC_TRANSPORT_COUNT);
    }
    *out_transport = found->id;
    return GPUIPC_OK;
}

static gpuipc_status read_peer(gpuipc_connection *handle, query_pair *pair) {
    connection *peer;
    gpuipc_status status = connection_acquire(handle, &peer);
    if (status != GPUIPC_OK) {
        return status;
    }
    pair->has_peer = true;
    pair->is_other_namespace = peer->peer.other_pid_namespace;
    pair->is_own_process = peer->peer.process_id == os_process_id();
    connection_unreference(peer);
    return GPUIPC_OK;
}

gpuipc_status query_read_pair(const context *ctx, const gpuipc_transport_pair *given,
                              query_pair *out_pair) {
    gpuipc_transport_pair known;
    gpuipc_status status = struct_size_read(
        given, STRUCT_SIZE_UP_TO(gpuipc_transport_pair, connection), &known, sizeof(known));
    if (status != GPUIPC_OK || (status = device_check(ctx, known.user)) != GPUIPC_OK) {
        return status;
    }
    query_pair pair = {.owner = known.owner, .user = known.user, .owner_uuid = known.owner_uuid};
    if (pair.owner == GPUIPC_DEVICE_NONE) {
        pair.owner = device_find(ctx, &pair.owner_uuid);
    } else if ((status = device_check(ctx, pair.owner)) != GPUIPC_OK) {
        return status;
    } else {
        pair.owner_uuid = ctx->devices[pair.owner].info.uuid;
    }
    if (known.connection != NULL && (status = read_peer(known.connection, &pair)) != GPUIPC_OK) {
        return status;
    }
    *out_pair = pair;
    return GPUIPC_OK;
}

static gpuipc_transport_info answer_of(gpuipc_transport which) {
    return (gpuipc_transport_info){.struct_size = sizeof(gpuipc_transport_info),
                                   .transport = which,
                                   .is_zero_copy = transport_find(which)->is_zero_copy};
}

/* Particulars are cut rather than the sentence, which has the remedy. */
gpuipc_transport_info query_refusal(gpuipc_transport which, gpuipc_reason reason,
                                    const char *particulars) {
    gpuipc_transport_info info = answer_of(which);
    const bool has_more = particulars[0] != '\0';
    info.reason = reason;
    (void)snprintf(info.sentence, sizeof(info.sentence), "%s%s%s%s", reason_sentence(reason),
                   has_more ? " (" : "", particulars, has_more ? ")" : "");
    return info;
}

/* Every other refusal stands as long as the machine is what it is. */
static bool may_pass(gpuipc_reason reason) {
    return reason == GPUIPC_REASON_HANDLE_LIMIT || reason == GPUIPC_REASON_DEVICE_MEMORY ||
           reason == GPUIPC_REASON_COMPUTE_MODE;
}

static void add_figures(const context *ctx, uint32_t owner, uint32_t user,
                        gpuipc_transport_info *info) {
    const figures_key key = {info->transport, ctx->devices[owner].info.uuid,
                             ctx->devices[user].info.uuid};
    gpuipc_measurement measured;
    if (figures_load(ctx, &key, &measured)) {
        figures_apply(&measured, info);
        return;
    }
    const estimate guess = estimate_make(ctx, info->transport, owner, user);
    info->bandwidth_bytes_per_second = guess.bandwidth_bytes_per_second;
    info->latency_ns = guess.latency_ns;
    info->bandwidth_source =
        guess.bandwidth_bytes_per_second != 0 ? GPUIPC_FIGURE_ESTIMATED : GPUIPC_FIGURE_NONE;
    info->latency_source = guess.latency_ns != 0 ? GPUIPC_FIGURE_ESTIMATED : GPUIPC_FIGURE_NONE;
}

static gpuipc_status find_out(context *ctx, gpuipc_transport which, uint32_t owner, uint32_t user,
                              gpuipc_transport_info *out_info) {
    transport_answer found;
    gpuipc_status status = transport_probe(ctx, which, owner, user, &found);
    if (status != GPUIPC_OK) {
        return status;
    }
    if (found.reason != GPUIPC_REASON_NONE) {
        *out_info = query_refusal(which, found.reason, found.particulars);
        return may_pass(found.reason) ? GPUIPC_OK
                                      : answers_keep(ctx->answers, owner, user, out_info);
    }
    *out_info = answer_of(which);
    out_info->available = 1;
    out_info->proof = found.proof;
    if (transport_find(which)->endangers_peers && owner != user) {
        (void)snprintf(out_info->sentence, sizeof(out_info->sentence), "%s",
                       reason_sentence(GPUIPC_REASON_POOL_ACROSS_GPUS));
    }
    add_figures(ctx, owner, user, out_info);
    return answers_keep(ctx->answers, owner, user, out_info);
}

/* Between two devices that this process sees, and two processes with nothing between them. */
static gpuipc_status ask(context *ctx, gpuipc_transport which, uint32_t owner, uint32_t user,
                         gpuipc_transport_info *out_info) {
    answers *known = ctx->answers;
    gpuipc_status status = GPUIPC_OK;
    if (answers_find(known, which, owner, user, out_info)) {
        return GPUIPC_OK;
    }
    os_mutex_lock(&known->trial);
    if (!answers_find(known, which, owner, user, out_info)) {
        status = find_out(ctx, which, owner, user, out_info);
    }
    os_mutex_unlock(&known->trial);
    return status;
}

/* Memory of a device that this process does not see can be imported all the same (measured on an H200,
 * driver 580, for vmm and legacy), which cannot be tried without its owner; what is tried is the
 * user's own device. */
static gpuipc_status ask_hidden(context *ctx, gpuipc_transport which, const query_pair *pair,
                                gpuipc_transport_info *out_info) {
    const figures_key key = {which, pair->owner_uuid, ctx->devices[pair->user].info.uuid};
    gpuipc_measurement measured;
    gpuipc_status status;
    if (transport_find(which)->needs_owner) {
        *out_info = query_refusal(which, GPUIPC_REASON_HIDDEN_DEVICE, "");
        return GPUIPC_OK;
    }
    status = ask(ctx, which, pair->user, pair->user, out_info);
    if (status != GPUIPC_OK || !out_info->available) {
        return status;
    }
    *out_info = answer_of(which);
    out_info->available = 1;
    out_info->proof = GPUIPC_PROOF_NONE;
    (void)snprintf(out_info->sentence, sizeof(out_info->sentence),
                   "not tried: this process does not see the GPU that owns the memory; whether "
                   "device %u reaches it shows when memory is opened",
                   pair->user);
    if (figures_load(ctx, &key, &measured)) {
        figures_apply(&measured, out_info);
    }
    return GPUIPC_OK;
}

gpuipc_status query_answer(context *ctx, gpuipc_transport which, const query_pair *pair,
                           gpuipc_transport_info *out_info) {
    const transport *by = transport_find(which);
    if (by->memory == 0 && pair->has_peer && !pair->is_own_process) {
        *out_info = query_refusal(which, GPUIPC_REASON_SAME_PROCESS_ONLY, "");
        return GPUIPC_OK;
    }
    if (by->needs_pid_namespace && pair->is_other_namespace) {
        *out_info = query_refusal(which, GPUIPC_REASON_PID_NAMESPACE, "");
        return GPUIPC_OK;
    }
    return pair->owner == GPUIPC_DEVICE_NONE ? ask_hidden(ctx, which, pair, out_info)
                                             : ask(ctx, which, pair->owner, pair->user, out_info);
}

gpuipc_status query_context(context *ctx, gpuipc_transport which,
                            const gpuipc_transport_pair *given, gpuipc_transport_info *out_info) {
    query_pair pair;
    gpuipc_transport_info info;
    gpuipc_status status = query_read_pair(ctx, given, &pair);
    if (status == GPUIPC_OK) {
        status = query_answer(ctx, which, &pair, &info);
    }
    if (status == GPUIPC_OK) {
        struct_size_write(out_info, &info, sizeof(info));
    }
    return status;
}
