/* SPDX-License-Identifier: MIT */
/**
 * @file What the library asks of Windows: every call of some functions noted, failed or answered by a
 * test. A program that is linked with win32_record.c takes part; production code stays as it is.
 *
 * A function that is imported from a DLL is called through a pointer, which the linker calls __imp_NAME
 * and takes from the DLL's import library. win32_record.c defines these pointers itself, so all of the
 * program's own objects and static libraries call it; other DLLs of the process (Criterion's, the
 * emulated driver) have pointers of their own.
 */
#ifndef GPUIPC_TEST_WIN32_RECORD_H
#define GPUIPC_TEST_WIN32_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <windows.h>

/** X(name, DLL, argument that is a name or -1, argument that is SECURITY_ATTRIBUTES or -1) */
#define RECORD_LIST(X)                                                                             \
    X(CloseHandle, L"kernel32.dll", -1, -1)                                                        \
    X(ConnectNamedPipe, L"kernel32.dll", -1, -1)                                                   \
    X(CreateDirectoryW, L"kernel32.dll", 0, 1)                                                     \
    X(CreateEventW, L"kernel32.dll", 3, 0)                                                         \
    X(CreateFileMappingW, L"kernel32.dll", 5, 1)                                                   \
    X(CreateFileW, L"kernel32.dll", 0, 3)                                                          \
    X(CreateNamedPipeW, L"kernel32.dll", 0, 7)                                                     \
    X(DuplicateHandle, L"kernel32.dll", -1, -1)                                                    \
    X(GetFileInformationByHandle, L"kernel32.dll", -1, -1)                                         \
    X(GetNamedPipeClientProcessId, L"kernel32.dll", -1, -1)                                        \
    X(GetNamedPipeServerProcessId, L"kernel32.dll", -1, -1)                                        \
    X(GetSecurityInfo, L"advapi32.dll", -1, -1)                                                    \
    X(GetTokenInformation, L"advapi32.dll", -1, -1)                                                \
    X(IsWow64Process, L"kernel32.dll", -1, -1)                                                     \
    X(MapViewOfFile, L"kernel32.dll", -1, -1)                                                      \
    X(OpenProcess, L"kernel32.dll", -1, -1)                                                        \
    X(OpenProcessToken, L"advapi32.dll", -1, -1)                                                   \
    X(PeekNamedPipe, L"kernel32.dll", -1, -1)                                                      \
    X(ReadFile, L"kernel32.dll", -1, -1)                                                           \
    X(SetEndOfFile, L"kernel32.dll", -1, -1)                                                       \
    X(SetHandleInformation, L"kernel32.dll", -1, -1)                                               \
    X(SetNamedPipeHandleState, L"kernel32.dll", -1, -1)                                            \
    X(WaitForMultipleObjects, L"kernel32.dll", -1, -1)                                             \
    X(WaitForSingleObject, L"kernel32.dll", -1, -1)                                                \
    X(WriteFile, L"kernel32.dll", -1, -1)

typedef enum record_function {
#define RECORD_ENUMERATOR(name, dll, text, attributes) RECORD_##name,
    RECORD_LIST(RECORD_ENUMERATOR)
#undef RECORD_ENUMERATOR
    RECORD_FUNCTIONS
} record_function;

#define RECORD_ARGUMENTS_MAX 8
#define RECORD_TEXT_MAX      512

/** One call. */
typedef struct record_call {
    record_function function;
    uint64_t arguments[RECORD_ARGUMENTS_MAX]; /**< as given; pointers and handles as numbers */
    wchar_t text[RECORD_TEXT_MAX];            /**< the name that was given; "" for none */
    wchar_t rights[RECORD_TEXT_MAX]; /**< owner and DACL of the SECURITY_ATTRIBUTES, as SDDL; "" for
                                          none */
    DWORD process;                   /**< DuplicateHandle: number of the process it goes to */
    uint64_t result;
    DWORD error; /**< GetLastError() afterwards */
} record_call;

/** Called instead of the function.
 *  @param number of this call of the function since record_begin, from 1 on
 *  @return true: it is answered, call->result and call->error are set and outputs written; false: the
 *  real function is called */
typedef bool (*record_hook)(void *user_data, record_call *call, size_t number);

/** Forgets all and begins to note. */
void record_begin(void);

/** Ends noting and takes all orders back. What was noted can still be read. */
void record_end(void);

/** From the next call on (until record_end) this decides on each call of the function; NULL: nobody. */
void record_answer(record_function function, record_hook hook, void *user_data);

/** The n-th call since record_begin, from 1 on, fails with @p error as such a function does. 0: each. */
void record_fail(record_function function, size_t number, DWORD error);

/** How often it was called since record_begin. More calls than there is room for fail the test. */
size_t record_count(record_function function);

/** The @p index-th of them, from 0 on; fails the test when there is none. */
const record_call *record_at(record_function function, size_t index);

/** The name, for messages. */
const char *record_name(record_function function);

/** Whether the call failed, by what functions of its kind answer. */
bool record_has_failed(const record_call *call);

/** How many CloseHandle calls failed, that is closed what was not open. */
size_t record_bad_closes(void);

#endif
