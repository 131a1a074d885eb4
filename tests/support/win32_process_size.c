/* SPDX-License-Identifier: MIT */
/** @file See process_size.h. Handles are counted one by one: Wine's GetProcessHandleCount() answers 0. */
#include "process_size.h"

#include <windows.h>
/* After windows.h. */
#include <psapi.h>

#include "resource_list.h"

bool process_size_get(process_size *out_size) {
    PROCESS_MEMORY_COUNTERS_EX counters = {.cb = sizeof(counters)};
    resource_list handles;
    if (!K32GetProcessMemoryInfo(GetCurrentProcess(), (PROCESS_MEMORY_COUNTERS *)&counters,
                                 sizeof(counters)) ||
        !resource_list_handles(&handles)) {
        return false;
    }
    *out_size = (process_size){.handles = handles.count,
                               .address_bytes = counters.PrivateUsage,
                               .resident_bytes = counters.WorkingSetSize};
    resource_list_free(&handles);
    return true;
}
