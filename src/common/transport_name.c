/* SPDX-License-Identifier: MIT */
/** @file What transports and reasons are called. */
#include "status.h"
#include "transport_query.h"

const char *gpuipc_reason_name(gpuipc_reason reason) {
    switch (reason) {
#define REASON_NAME(name, value, sentence)                                                         \
    case GPUIPC_REASON_##name:                                                                     \
        return #name;
        GPUIPC_REASON_LIST(REASON_NAME)
#undef REASON_NAME
    case GPUIPC_REASON_FORCE_INT32:
        break;
    }
    return "UNKNOWN";
}

const char *reason_sentence(gpuipc_reason reason) {
    switch (reason) {
#define REASON_SENTENCE(name, value, sentence)                                                     \
    case GPUIPC_REASON_##name:                                                                     \
        return sentence;
        GPUIPC_REASON_LIST(REASON_SENTENCE)
#undef REASON_SENTENCE
    case GPUIPC_REASON_FORCE_INT32:
        break;
    }
    return "this is no reason of this library";
}

const char *gpuipc_transport_name(gpuipc_transport transport) {
    switch (transport) {
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
    if (out_count == NULL) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "gpuipc_transport_count",
                           "out_count is NULL");
    }
    *out_count = GPUIPC_TRANSPORT_COUNT;
    return GPUIPC_OK;
}
