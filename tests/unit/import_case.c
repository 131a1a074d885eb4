/* SPDX-License-Identifier: MIT */
/** @file See import_case.h. */
#include "import_case.h"

core_pair import_pair;

void import_case_begin(uint32_t cached) {
    gpuipc_context_config config = core_context_config();
    config.flags = GPUIPC_CONTEXT_NO_KEEP_ALIVE;
    config.max_cached_imports = cached;
    core_open_context(&config);
    core_need_emulated();
    core_need_devices(2);
    core_pair_open(&import_pair, core_context, core_context);
    core_set_failures("");
}

void import_case_end(void) {
    if (core_context != NULL) {
        core_set_failures("");
        core_pair_close(&import_pair);
    }
    core_finish();
}

context *import_case_context(void) {
    context *ctx;
    check_ok(context_acquire(core_context, &ctx));
    context_unreference(ctx); /* the public handle keeps it */
    return ctx;
}

void import_case_calls(uint64_t imports, uint64_t maps, uint64_t unmaps, uint64_t releases) {
    cr_assert_eq(core_calls("cuMemImportFromShareableHandle"), imports, "%llu imports",
                 (unsigned long long)core_calls("cuMemImportFromShareableHandle"));
    cr_assert_eq(core_calls("cuMemMap"), maps, "%llu maps",
                 (unsigned long long)core_calls("cuMemMap"));
    cr_assert_eq(core_calls("cuMemAddressReserve"), maps > 0);
    cr_assert_eq(core_calls("cuMemUnmap"), unmaps, "%llu unmaps",
                 (unsigned long long)core_calls("cuMemUnmap"));
    cr_assert_eq(core_calls("cuMemRelease"), releases, "%llu releases",
                 (unsigned long long)core_calls("cuMemRelease"));
    core_set_failures("");
}

gpuipc_status import_case_receive(gpuipc_connection *from, import_how wanted,
                                  gpuipc_buffer **out_buffer) {
    gpuipc_incoming message = {.struct_size = sizeof(message),
                               .buffers = out_buffer,
                               .buffer_capacity = 1,
                               .flags = wanted.flags,
                               .device = wanted.device,
                               .access = wanted.access};
    return gpuipc_connection_receive(from, &message, SOON_MS);
}

gpuipc_buffer *import_case_hand_over(gpuipc_buffer *own, import_how wanted) {
    gpuipc_buffer *opened = NULL;
    check_ok(core_send(import_pair.client, &own, 1));
    check_ok(import_case_receive(import_pair.server, wanted, &opened));
    return opened;
}

void import_case_drop(gpuipc_buffer *own) {
    check_ok(gpuipc_buffer_release(own));
}
