/* SPDX-License-Identifier: MIT */
/** @file A helper program's life is bound to that of the test that started it. */
#include "helper.h"

#include <stdlib.h>
#include <windows.h>

/** Whether the process with this number lives and can be looked at. */
static bool process_is_running(DWORD process_id) {
    HANDLE process = OpenProcess(SYNCHRONIZE, FALSE, process_id);
    if (process == NULL) {
        return false;
    }
    bool running = WaitForSingleObject(process, 0) == WAIT_TIMEOUT;
    CloseHandle(process);
    return running;
}

void helper_begin(void) {
    /* A crash ends the process: no window that waits for somebody to press a button. */
    SetErrorMode(SEM_FAILCRITICALERRORS | SEM_NOGPFAULTERRORBOX);
    /* What binds it is the job that child_start() has put it into, before it ran. A helper that a
     * person starts by hand has no parent named. */
    const char *parent = getenv("GPUIPC_TEST_PARENT");
    if (parent == NULL) {
        return;
    }
    BOOL in_job = FALSE;
    if (!IsProcessInJob(GetCurrentProcess(), NULL, &in_job) || !in_job ||
        !process_is_running(strtoul(parent, NULL, 10))) {
        ExitProcess(4);
    }
}
