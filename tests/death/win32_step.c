/* SPDX-License-Identifier: MIT */
/** @file See step.h. */
#include "step.h"

#include <string.h>

#include <windows.h>
/* After windows.h. */
#include <winternl.h>

NTSTATUS NTAPI NtSuspendProcess(HANDLE process);

static bool say(const char *line) {
    DWORD written = 0;
    return WriteFile(GetStdHandle(STD_OUTPUT_HANDLE), line, (DWORD)strlen(line), &written, NULL);
}

/* If nobody hears it any more, nobody asks for it. */
static void say_what_stays(void) {
    if (step_is_sending()) {
        (void)say("leaves handles\r\n");
    }
}

void step_die(void) {
    say_what_stays();
    (void)TerminateProcess(GetCurrentProcess(), (UINT)STATUS_CONTROL_C_EXIT);
}

void step_pause(void) {
    Sleep(1);
}

void step_stop(void) {
    say_what_stays();
    if (!say("stops\r\n")) {
        step_die();
    }
    (void)NtSuspendProcess(GetCurrentProcess());
}
