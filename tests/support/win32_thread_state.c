/* SPDX-License-Identifier: MIT */
/** @file Whether a thread is asleep: it stands in one of ntdll's calls that wait, and has not moved
 *  from one look to the next. What NtQuerySystemInformation says of a thread's state would be more
 *  direct, but Wine leaves it at zero (measured under Wine 8). A thread that is woken between the two
 *  looks and waits again at the same place counts as asleep, which it then is. */
#include "thread_state.h"

#include <stddef.h>
#include <windows.h>

#include "os.h"

/** Where a thread is that can be no further than where it was: the same two numbers. */
typedef struct thread_place {
    DWORD64 instruction;
    DWORD64 stack;
} thread_place;

/** An entry of ntdll is at most this long: it loads a number, enters the kernel, and returns. */
#define ENTRY_BYTES 32

uint64_t thread_state_own_number(void) {
    return GetCurrentThreadId();
}

/** Whether it is behind the entry into the kernel of a call that waits: WaitForSingleObject,
 *  WaitForMultipleObjects, SleepConditionVariableSRW and WaitOnAddress, Sleep. */
static bool is_waiting_call(DWORD64 instruction) {
    static const char *const names[] = {"NtWaitForSingleObject", "NtWaitForMultipleObjects",
                                        "NtWaitForAlertByThreadId", "NtDelayExecution"};
    HMODULE ntdll = GetModuleHandleW(L"ntdll.dll");
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        DWORD64 entry = (DWORD64)(uintptr_t)GetProcAddress(ntdll, names[i]);
        if (entry != 0 && instruction > entry && instruction < entry + ENTRY_BYTES) {
            return true;
        }
    }
    return false;
}

/** Where it is now. It stands still only while it is looked at; nothing is called meanwhile that
 *  could need a lock which it holds. */
static bool thread_look(HANDLE thread, thread_place *out_place) {
    CONTEXT registers;
    registers.ContextFlags = CONTEXT_CONTROL;
    if (SuspendThread(thread) == (DWORD)-1) {
        return false;
    }
    BOOL got = GetThreadContext(thread, &registers);
    ResumeThread(thread);
    if (!got) {
        return false;
    }
    *out_place = (thread_place){registers.Rip, registers.Rsp};
    return true;
}

bool thread_state_wait_asleep(uint64_t thread_number, int timeout_ms) {
    os_deadline deadline = os_deadline_after(timeout_ms);
    HANDLE thread =
        OpenThread(THREAD_SUSPEND_RESUME | THREAD_GET_CONTEXT, FALSE, (DWORD)thread_number);
    if (thread == NULL) {
        return false;
    }
    thread_place last = {0, 0};
    bool asleep = false;
    while (!asleep) {
        thread_place place = {0, 0};
        if (!thread_look(thread, &place) || os_deadline_passed(deadline)) {
            break;
        }
        asleep = place.instruction == last.instruction && place.stack == last.stack &&
                 is_waiting_call(place.instruction);
        last = place;
        os_sleep_ms(1);
    }
    CloseHandle(thread);
    return asleep;
}
