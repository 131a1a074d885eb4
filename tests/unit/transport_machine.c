/* SPDX-License-Identifier: MIT */
/** @file See transport_machine.h. */
#include "transport_machine.h"

#include <stdlib.h>
#include <string.h>

#include "cuda/context.h"
#include "emulated.h"

gpuipc_context *machine_context(const char *machine) {
    core_need_emulated();
    core_environment_set("GPUIPC_EMULATED_MACHINE", machine);
    return core_context_new();
}

gpuipc_transport_pair machine_pair(uint32_t owner, uint32_t user) {
    return (gpuipc_transport_pair){
        .struct_size = sizeof(gpuipc_transport_pair), .owner = owner, .user = user};
}

void machine_check_answer(const gpuipc_transport_info *info) {
    const char *name = gpuipc_transport_name(info->transport);
    if (info->available) {
        cr_assert_eq(info->reason, GPUIPC_REASON_NONE, "%s", name);
        /* That of pool between two devices has what the risk is. */
        cr_assert(info->transport == GPUIPC_TRANSPORT_POOL ||
                      (info->sentence[0] == '\0') == (info->proof != GPUIPC_PROOF_NONE),
                  "%s: %s", name, info->sentence);
    } else {
        cr_assert_neq(info->reason, GPUIPC_REASON_NONE, "%s", name);
        cr_assert_eq(info->proof, GPUIPC_PROOF_NONE, "%s", name);
        cr_assert_gt(strlen(info->sentence), 20, "%s: %s", name, info->sentence);
        cr_assert_eq(info->bandwidth_source, GPUIPC_FIGURE_NONE, "%s", name);
        cr_assert_eq(info->latency_source, GPUIPC_FIGURE_NONE, "%s", name);
    }
    cr_assert_eq(info->bandwidth_bytes_per_second == 0,
                 info->bandwidth_source == GPUIPC_FIGURE_NONE, "%s", name);
    cr_assert_eq(info->latency_ns == 0, info->latency_source == GPUIPC_FIGURE_NONE, "%s", name);
    cr_assert_eq(info->is_zero_copy, info->transport != GPUIPC_TRANSPORT_HOST, "%s", name);
}

gpuipc_transport_info machine_ask(gpuipc_context *made, gpuipc_transport which,
                                  const gpuipc_transport_pair *pair) {
    gpuipc_transport_info info = {.struct_size = sizeof(info)};
    check_ok(gpuipc_transport_query(made, which, pair, &info));
    cr_assert_eq(info.transport, which);
    machine_check_answer(&info);
    return info;
}

void machine_expect(gpuipc_context *made, gpuipc_transport which, uint32_t owner, uint32_t user,
                    gpuipc_reason reason) {
    const gpuipc_transport_pair pair = machine_pair(owner, user);
    const gpuipc_transport_info info = machine_ask(made, which, &pair);
    cr_assert_eq(info.reason, reason, "%s %u->%u answers %s (%s), not %s",
                 gpuipc_transport_name(which), owner, user, gpuipc_reason_name(info.reason),
                 info.sentence, gpuipc_reason_name(reason));
}

uint64_t machine_calls(const char *name) {
    void *symbol = os_library_symbol(core_driver()->library, GPUIPC_EMULATED_CALLS);
    gpuipc_emulated_calls_fn get_calls;
    cr_assert_not_null(symbol);
    memcpy(&get_calls, &symbol, sizeof(get_calls));
    return get_calls(name);
}

void machine_keep(gpuipc_context *handle, const char *directory) {
    context *ctx;
    check_ok(context_acquire(handle, &ctx));
    free(ctx->cache_directory);
    ctx->cache_directory = NULL;
    if (directory != NULL) {
        const size_t size = strlen(directory) + 1;
        ctx->cache_directory = malloc(size);
        cr_assert_not_null(ctx->cache_directory);
        memcpy(ctx->cache_directory, directory, size);
    }
    context_unreference(ctx);
}

bool machine_is_windows(void) {
    return os_shareable_handle_type == CU_MEM_HANDLE_TYPE_WIN32;
}
