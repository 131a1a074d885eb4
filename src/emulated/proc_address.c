/* SPDX-License-Identifier: MIT */
/** @file cuGetProcAddress, by the rules that cuda.h gives for it. */
#include <string.h>

#include "entry.h"
#include "state.h"

/* The newest version of a name that is not above @p version, nor above the driver's own. */
static const entry *find(const char *name, int version, int driver_version,
                         CUdriverProcAddressQueryResult *status) {
    const entry *best = NULL;
    if (strcmp(name, "cuGraphInstantiate") == 0 && version >= 12000) {
        name = "cuGraphInstantiateWithFlags"; /* cuda.h: since 12.0 the one means the other */
    }
    *status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    for (size_t i = 0; i < ENTRY_COUNT; i++) {
        const entry *one = &entry_table[i];
        if (strcmp(one->name, name) != 0 || one->version > driver_version) {
            continue;
        }
        if (one->version > version) {
            if (best == NULL) {
                *status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
            }
            continue;
        }
        if (best == NULL || best->version < one->version) {
            best = one;
            *status = CU_GET_PROC_ADDRESS_SUCCESS;
        }
    }
    return best;
}

static CUresult get(const char *symbol, void **function, int version, cuuint64_t flags,
                    CUdriverProcAddressQueryResult *status) {
    machine computer;
    if (symbol == NULL || function == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    state_machine(&computer);
    /* PER_THREAD_DEFAULT_STREAM too: "if a per-thread version is not found, the API will return the
     * legacy version", and there are none here. */
    if (version > computer.version || flags > (CU_GET_PROC_ADDRESS_LEGACY_STREAM |
                                               CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const entry *found = find(symbol, version, computer.version, status);
    *function = NULL;
    if (found != NULL) {
        memcpy(function, &found->function, sizeof(*function));
    }
    return CUDA_SUCCESS;
}

/* The first version has no status to say it with. */
GPUIPC_EXPORTED CUresult cuGetProcAddress(const char *symbol, void **function, int version,
                                          cuuint64_t flags) {
    const CUresult refused = ENTER_ANYTIME(cuGetProcAddress);
    if (refused != CUDA_SUCCESS) {
        return refused;
    }
    CUdriverProcAddressQueryResult status;
    const CUresult result = get(symbol, function, version, flags, &status);
    return result == CUDA_SUCCESS && *function == NULL ? CUDA_ERROR_NOT_FOUND : result;
}

GPUIPC_EXPORTED CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version,
                                             cuuint64_t flags,
                                             CUdriverProcAddressQueryResult *out_status) {
    const CUresult refused = ENTER_ANYTIME(cuGetProcAddress_v2);
    if (refused != CUDA_SUCCESS) {
        return refused;
    }
    CUdriverProcAddressQueryResult status;
    const CUresult result = get(symbol, function, version, flags, &status);
    if (result == CUDA_SUCCESS && out_status != NULL) {
        *out_status = status;
    }
    return result;
}
