/* SPDX-License-Identifier: MIT */
/** @file See shared_name.h. On Windows a handle of a process of the same user can be duplicated from
 *  outside (learn.microsoft.com, DuplicateHandle). */
#include "shared_name.h"

#include "../win32/win32.h"

shared_name shared_name_make(os_handle memory) {
    return (shared_name){(uint32_t)os_process_id(), (uint32_t)memory.value};
}

gpuipc_status shared_name_open(shared_name name, os_handle *out_memory) {
    /* Pseudo-handles can be duplicated, too: one would stand for the other process itself. */
    if (!win32_handle_is_possible((intptr_t)name.number)) {
        return status_fail(GPUIPC_ERR_NOT_FOUND, "%lu is no handle's number",
                           (unsigned long)name.number);
    }
    HANDLE process = OpenProcess(PROCESS_DUP_HANDLE | SYNCHRONIZE, FALSE, name.process);
    if (process == NULL) {
        if (GetLastError() == ERROR_INVALID_PARAMETER) { /* there is none */
            return status_fail(GPUIPC_ERR_PEER_CLOSED, "process %lu has ended",
                               (unsigned long)name.process);
        }
        return win32_fail(GetLastError(), "OpenProcess", "process %lu cannot be asked for memory",
                          (unsigned long)name.process);
    }
    HANDLE copy = NULL;
    gpuipc_status status;
    if (WaitForSingleObject(process, 0) == WAIT_OBJECT_0) {
        /* Somebody has a handle of it still. */
        status = status_fail(GPUIPC_ERR_PEER_CLOSED, "process %lu has ended",
                             (unsigned long)name.process);
    } else if (DuplicateHandle(process, (HANDLE)(intptr_t)name.number, GetCurrentProcess(), &copy,
                               0, FALSE, DUPLICATE_SAME_ACCESS)) {
        status = win32_handle_add(copy, "DuplicateHandle", out_memory);
    } else {
        status = win32_fail(GetLastError(), "DuplicateHandle", "process %lu has no handle %lu",
                            (unsigned long)name.process, (unsigned long)name.number);
    }
    CloseHandle(process);
    return status;
}
