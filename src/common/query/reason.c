/* SPDX-License-Identifier: MIT */
/** @file What reasons are called, and what they say. */
#include "base/status.h"
#include "query/transport_query.h"

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
