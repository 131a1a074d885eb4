/* SPDX-License-Identifier: MIT */
/** @file See step.h. */
#include "step.h"

#include <windows.h>
/* After windows.h. */
#include <winternl.h>

NTSTATUS NTAPI NtSuspendProcess(HANDLE process);

void step_die(void) {
    (void)TerminateProcess(GetCurrentProcess(), (UINT)STATUS_CONTROL_C_EXIT);
}

void step_stop(void) {
    static const char line[] = "stops\r\n";
    DWORD written = 0;
    if (!WriteFile(GetStdHandle(STD_OUTPUT_HANDLE), line, sizeof(line) - 1, &written, NULL)) {
        step_die();
    }
    (void)NtSuspendProcess(GetCurrentProcess());
}
