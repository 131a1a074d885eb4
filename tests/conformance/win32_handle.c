/* SPDX-License-Identifier: MIT */
/** @file Handles that are no GPU memory, and what the system says about one that is. */
#include <string.h>
#include <windows.h>

#include "conformance_process.h"

/** No process has so many handles; and a multiple of four, as all of them are. */
#define CLOSED_NUMBER 0x00FFFFF0

static HANDLE own_program(void) {
    wchar_t path[MAX_PATH];
    cr_assert_gt(GetModuleFileNameW(NULL, path, MAX_PATH), 0);
    return CreateFileW(path, GENERIC_READ, FILE_SHARE_READ, NULL, OPEN_EXISTING, 0, NULL);
}

size_t wrong_handles_open(wrong_handle wrong[WRONG_HANDLES_MAX]) {
    const DWORD bytes = (DWORD)GRANULE + 4096; /* as the emulated driver's own would have */
    const HANDLE file = own_program();
    HANDLE reading = NULL, writing = NULL;
    DWORD flags;
    cr_assert(CreatePipe(&reading, &writing, NULL, 0));
    const struct {
        const char *what;
        HANDLE handle;
        bool is_open;
    } made[] = {
        {"0", NULL, false},
        {"the pseudo-handle of the process", GetCurrentProcess(), false},
        {"the pseudo-handle of the thread", GetCurrentThread(), false},
        {"a closed number", (HANDLE)(intptr_t)CLOSED_NUMBER, false},
        {"a file", file, true},
        {"a section of a file", CreateFileMappingW(file, NULL, PAGE_READONLY, 0, 0, NULL), true},
        {"a section of somebody else's",
         CreateFileMappingW(INVALID_HANDLE_VALUE, NULL, PAGE_READWRITE, 0, bytes, NULL), true},
        {"an event", CreateEventW(NULL, TRUE, FALSE, NULL), true},
        {"the end of a pipe to read from", reading, true},
        {"the end of a pipe to write to", writing, true},
        {"a process", OpenProcess(PROCESS_ALL_ACCESS, FALSE, GetCurrentProcessId()), true},
    };
    const size_t count = sizeof made / sizeof made[0];
    cr_assert_leq(count, WRONG_HANDLES_MAX);
    cr_assert_not(GetHandleInformation((HANDLE)(intptr_t)CLOSED_NUMBER, &flags));
    for (size_t i = 0; i < count; i++) {
        cr_assert(!made[i].is_open ||
                      (made[i].handle != NULL && made[i].handle != INVALID_HANDLE_VALUE),
                  "%s does not open", made[i].what);
        wrong[i] = (wrong_handle){made[i].what, {(intptr_t)made[i].handle}, made[i].is_open};
    }
    return count;
}

void wrong_handles_close(const wrong_handle *wrong, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (wrong[i].is_open) {
            cr_assert(CloseHandle((HANDLE)wrong[i].handle.value), "%s was closed by the driver",
                      wrong[i].what);
        }
    }
}

bool handle_is_open(os_handle handle) {
    DWORD flags;
    return GetHandleInformation((HANDLE)handle.value, &flags) != 0;
}

void handle_check_exported(const void *written) {
    HANDLE handle;
    DWORD flags = HANDLE_FLAG_INHERIT;
    memcpy(&handle, written, sizeof handle);
    cr_assert(GetHandleInformation(handle, &flags), "cuda.h: what was written is a HANDLE");
    cr_assert_eq(flags & HANDLE_FLAG_INHERIT, 0,
                 "reading: OBJ_INHERIT was not asked for, so child processes do not inherit it");
}
