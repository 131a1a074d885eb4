/* SPDX-License-Identifier: MIT */
/** @file See transport.h: finding one. */
#include "transport/transports.h"

static const transport *const all[] = {&transport_vmm, &transport_pool, &transport_legacy,
                                       &transport_p2p, &transport_host, &transport_fabric};

_Static_assert(sizeof(all) / sizeof(all[0]) == GPUIPC_TRANSPORT_COUNT, "one entry each");

const transport *transport_find(gpuipc_transport id) {
    if (id == GPUIPC_TRANSPORT_DEFAULT) {
        return &transport_vmm;
    }
    for (size_t i = 0; i < GPUIPC_TRANSPORT_COUNT; i++) {
        if (all[i]->id == id) {
            return all[i];
        }
    }
    return NULL;
}

const transport *transport_of_memory(uint16_t memory) {
    for (size_t i = 0; memory != 0 && i < GPUIPC_TRANSPORT_COUNT; i++) {
        if (all[i]->memory == memory) {
            return all[i];
        }
    }
    return NULL;
}

gpuipc_status transport_check_attribute(const context *ctx, uint32_t device_index,
                                        CUdevice_attribute which, int mask, const char *call,
                                        const char *sentence) {
    const device *of = &ctx->devices[device_index];
    int value = 0;
    CUresult result = ctx->driver.cuDeviceGetAttribute(&value, which, of->ordinal);
    if (result != CUDA_SUCCESS) {
        return status_fail_cuda(GPUIPC_ERR_NOT_SUPPORTED, result, call, "%s: %s", of->info.name,
                                sentence);
    }
    return (value & mask) != 0
               ? GPUIPC_OK
               : status_fail(GPUIPC_ERR_NOT_SUPPORTED, "%s: %s", of->info.name, sentence);
}

const char *gpuipc_transport_name(gpuipc_transport which) {
    switch (which) {
    case GPUIPC_TRANSPORT_DEFAULT:
        return "default";
    case GPUIPC_TRANSPORT_VMM:
        return "vmm";
    case GPUIPC_TRANSPORT_POOL:
        return "pool";
    case GPUIPC_TRANSPORT_LEGACY:
        return "legacy";
    case GPUIPC_TRANSPORT_P2P:
        return "p2p";
    case GPUIPC_TRANSPORT_HOST:
        return "host";
    case GPUIPC_TRANSPORT_FABRIC:
        return "fabric";
    }
    return "unknown";
}

gpuipc_status gpuipc_transport_count(uint32_t *out_count) {
    status_enter(__func__);
    if (out_count == NULL) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "out_count is NULL");
    }
    *out_count = GPUIPC_TRANSPORT_COUNT;
    return GPUIPC_OK;
}
