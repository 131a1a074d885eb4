/* SPDX-License-Identifier: MIT */
/** @file See entry.h. */
#include "entry.h"

#include "capture.h"
#include "fault.h"
#include "host_function.h"
#include "state.h"

#define ENTRY_ROW(group, name, suffix, version, parameters)                                        \
    EMULATED_HAS_##group({#name, version, (entry_function)name##suffix}, )
const entry entry_table[ENTRY_COUNT] = {CUDA_API_LIST(ENTRY_ROW) EMULATED_API_LIST(ENTRY_ROW)};
#undef ENTRY_ROW

CUresult entry_enter_anytime(entry_id id) {
    return fault_check(id);
}

CUresult entry_enter(entry_id id) {
    CUresult result = fault_check(id);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!state_is_usable()) {
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    if (host_function_is_running()) {
        return CUDA_ERROR_NOT_PERMITTED;
    }
    state_lock();
    state_wait_admission();
    return CUDA_SUCCESS;
}

CUresult entry_enter_unsafe(entry_id id) {
    CUresult result = entry_enter(id);
    if (result == CUDA_SUCCESS) {
        result = capture_check_unsafe();
        if (result != CUDA_SUCCESS) {
            state_unlock();
        }
    }
    return result;
}

CUresult entry_leave(CUresult result) {
    state_unlock();
    return result;
}
