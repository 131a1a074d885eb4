/* SPDX-License-Identifier: MIT */
/**
 * @file Stands between the library and Windows. A function of a DLL is called through a pointer, __imp_NAME, which the linker
 * takes from the DLL's import library: ld(1), --wrap, of these and of the names in win32_calls.txt. A call that is to fail is
 * not made, but for those that give something back: they are made, and then fail.
 */
#include <windows.h>

#include <aclapi.h>
#include <bcrypt.h>
#include <process.h>
#include <sddl.h>
#include <stdlib.h>
#include <wchar.h>
#include <winternl.h>

#include "fault_point.h"
#include "win32_fault_list.h"

#define COUNT_OF(...) (sizeof((const int[]){__VA_ARGS__}) / sizeof(int))

enum {
#define ID(id, name, is_transient, ...) CALL_##id,
    WIN32_FAULT_LIST(ID)
#undef ID
    CALLS
};

static const fault_call calls[CALLS] = {
#define ROW(id, name, is_transient, ...)                                                           \
    {name, FAULT_SYSTEM, is_transient, COUNT_OF(__VA_ARGS__), {__VA_ARGS__}},
    WIN32_FAULT_LIST(ROW)
#undef ROW
};

const fault_call *fault_system_call(size_t number) {
    return number < CALLS ? &calls[number] : NULL;
}

/* Nothing is asked where the answer is not changed: the last error stays what it was. */
static int ask(int call) {
    const DWORD before = GetLastError();
    const int code = fault_ask(&calls[call]);
    SetLastError(code != 0 ? (DWORD)code : before);
    return code;
}

static int ask_for_code(int call) {
    const DWORD before = GetLastError();
    const int code = fault_ask(&calls[call]);
    SetLastError(before);
    return code;
}

static bool is_pipe(const wchar_t *path) {
    static const wchar_t before[] = L"\\\\.\\pipe\\";
    return wcsncmp(path, before, sizeof(before) / sizeof(before[0]) - 1) == 0;
}

/* The pointer that the program has in place of the DLL's, and the DLL's. */
#define POINTER(type, name, parameters)                                                            \
    typedef type(WINAPI *name##_function) parameters;                                              \
    extern name##_function __real___imp_##name;                                                    \
    extern name##_function __wrap___imp_##name;                                                    \
    static type WINAPI fault_##name parameters;                                                    \
    name##_function __wrap___imp_##name = fault_##name;                                            \
    static type WINAPI fault_##name parameters

/* CALL: not made when it is to fail. GIVES_BACK: made all the same. CODE: answers the code itself. */
#define CALL(type, name, parameters, values, call, failed)                                         \
    POINTER(type, name, parameters) {                                                              \
        return ask(call) != 0 ? (failed) : __real___imp_##name values;                             \
    }
#define GIVES_BACK(type, name, parameters, values, call, failed)                                   \
    POINTER(type, name, parameters) {                                                              \
        const type done = __real___imp_##name values;                                              \
        return ask(call) != 0 ? (failed) : done;                                                   \
    }
#define CODE(type, name, parameters, values, call)                                                 \
    POINTER(type, name, parameters) {                                                              \
        const int code = ask_for_code(call);                                                       \
        return code != 0 ? (type)code : __real___imp_##name values;                                \
    }
/* Linked without a pointer. */
#define CODE_OF(type, name, parameters, values, call)                                              \
    type WINAPI __real_##name parameters;                                                          \
    type WINAPI __wrap_##name parameters;                                                          \
    type WINAPI __wrap_##name parameters {                                                         \
        const int code = ask_for_code(call);                                                       \
        return code != 0 ? (type)code : __real_##name values;                                      \
    }

/* clang-format off */
GIVES_BACK(BOOL, CancelIoEx, (HANDLE a, OVERLAPPED *b), (a, b), CALL_CANCEL, FALSE)
GIVES_BACK(BOOL, CloseHandle, (HANDLE a), (a), CALL_CLOSE, FALSE)
CALL(BOOL, ConnectNamedPipe, (HANDLE a, OVERLAPPED *b), (a, b), CALL_CONNECT_PIPE, FALSE)
CALL(BOOL, ConvertSidToStringSidW, (PSID a, wchar_t **b), (a, b), CALL_SID_TEXT, FALSE)
CALL(BOOL, ConvertStringSecurityDescriptorToSecurityDescriptorW, (const wchar_t *a, DWORD b, PSECURITY_DESCRIPTOR *c, ULONG *d), (a, b, c, d), CALL_DESCRIPTOR, FALSE)
CALL(BOOL, CreateDirectoryW, (const wchar_t *a, SECURITY_ATTRIBUTES *b), (a, b), CALL_CREATE_DIRECTORY, FALSE)
CALL(HANDLE, CreateEventW, (SECURITY_ATTRIBUTES *a, BOOL b, BOOL c, const wchar_t *d), (a, b, c, d), d == NULL ? CALL_EVENT : CALL_NAMED_EVENT, NULL)
CALL(HANDLE, CreateFileMappingW, (HANDLE a, SECURITY_ATTRIBUTES *b, DWORD c, DWORD d, DWORD e, const wchar_t *f), (a, b, c, d, e, f), CALL_MEMORY, NULL)
CALL(HANDLE, CreateFileW, (const wchar_t *a, DWORD b, DWORD c, SECURITY_ATTRIBUTES *d, DWORD e, DWORD f, HANDLE g), (a, b, c, d, e, f, g), is_pipe(a) ? CALL_OPEN_PIPE : CALL_CREATE_FILE, INVALID_HANDLE_VALUE)
CALL(HANDLE, CreateNamedPipeW, (const wchar_t *a, DWORD b, DWORD c, DWORD d, DWORD e, DWORD f, DWORD g, SECURITY_ATTRIBUTES *h), (a, b, c, d, e, f, g, h), CALL_PIPE, INVALID_HANDLE_VALUE)
CALL(BOOL, DeleteFileW, (const wchar_t *a), (a), CALL_DELETE, FALSE)
CALL(DWORD, FormatMessageW, (DWORD a, const void *b, DWORD c, DWORD d, wchar_t *e, DWORD f, va_list *g), (a, b, c, d, e, f, g), CALL_FORMAT, 0)
GIVES_BACK(BOOL, FreeLibrary, (HMODULE a), (a), CALL_FREE_LIBRARY, FALSE)
CALL(BOOL, GetAce, (PACL a, DWORD b, void **c), (a, b, c), CALL_GET_ACE, FALSE)
CALL(DWORD, GetEnvironmentVariableW, (const wchar_t *a, wchar_t *b, DWORD c), (a, b, c), CALL_GET_ENVIRONMENT, 0)
CALL(DWORD, GetFileAttributesW, (const wchar_t *a), (a), CALL_GET_ATTRIBUTES, INVALID_FILE_ATTRIBUTES)
CALL(BOOL, GetFileInformationByHandle, (HANDLE a, BY_HANDLE_FILE_INFORMATION *b), (a, b), CALL_GET_FILE, FALSE)
CALL(BOOL, GetFileSizeEx, (HANDLE a, LARGE_INTEGER *b), (a, b), CALL_GET_SIZE, FALSE)
CALL(DWORD, GetFullPathNameW, (const wchar_t *a, DWORD b, wchar_t *c, wchar_t **d), (a, b, c, d), CALL_FULL_PATH, 0)
CALL(BOOL, GetHandleInformation, (HANDLE a, DWORD *b), (a, b), CALL_GET_HANDLE, FALSE)
CALL(DWORD, GetModuleFileNameW, (HMODULE a, wchar_t *b, DWORD c), (a, b, c), CALL_MODULE_NAME, 0)
CALL(BOOL, GetModuleHandleExW, (DWORD a, const wchar_t *b, HMODULE *c), (a, b, c), CALL_MODULE_AT, FALSE)
CALL(HMODULE, GetModuleHandleW, (const wchar_t *a), (a), CALL_MODULE, NULL)
CALL(BOOL, GetNamedPipeClientProcessId, (HANDLE a, ULONG *b), (a, b), CALL_CLIENT_PROCESS, FALSE)
CALL(BOOL, GetNamedPipeServerProcessId, (HANDLE a, ULONG *b), (a, b), CALL_SERVER_PROCESS, FALSE)
CALL(FARPROC, GetProcAddress, (HMODULE a, const char *b), (a, b), CALL_SYMBOL, NULL)
CALL(BOOL, GetProcessHandleCount, (HANDLE a, DWORD *b), (a, b), CALL_HANDLE_COUNT, FALSE)
CODE(DWORD, GetSecurityInfo, (HANDLE a, SE_OBJECT_TYPE b, SECURITY_INFORMATION c, PSID *d, PSID *e, PACL *f, PACL *g, PSECURITY_DESCRIPTOR *h), (a, b, c, d, e, f, g, h), CALL_GET_SECURITY)
CALL(UINT, GetSystemDirectoryW, (wchar_t *a, UINT b), (a, b), CALL_SYSTEM_DIRECTORY, 0)
CALL(BOOL, GetTokenInformation, (HANDLE a, TOKEN_INFORMATION_CLASS b, void *c, DWORD d, DWORD *e), (a, b, c, d, e), CALL_GET_TOKEN, FALSE)
CALL(BOOL, IsWow64Process, (HANDLE a, BOOL *b), (a, b), CALL_IS_WOW64, FALSE)
CALL(HMODULE, LoadLibraryExW, (const wchar_t *a, HANDLE b, DWORD c), (a, b, c), CALL_LOAD_LIBRARY, NULL)
CALL(void *, MapViewOfFile, (HANDLE a, DWORD b, DWORD c, DWORD d, SIZE_T e), (a, b, c, d, e), CALL_MAP, NULL)
CALL(BOOL, MoveFileExW, (const wchar_t *a, const wchar_t *b, DWORD c), (a, b, c), CALL_MOVE, FALSE)
CALL(int, MultiByteToWideChar, (UINT a, DWORD b, const char *c, int d, wchar_t *e, int f), (a, b, c, d, e, f), CALL_TO_WIDE, 0)
CALL(HANDLE, OpenEventW, (DWORD a, BOOL b, const wchar_t *c), (a, b, c), CALL_OPEN_EVENT, NULL)
CALL(HANDLE, OpenProcess, (DWORD a, BOOL b, DWORD c), (a, b, c), CALL_OPEN_PROCESS, NULL)
CALL(BOOL, OpenProcessToken, (HANDLE a, DWORD b, HANDLE *c), (a, b, c), CALL_OPEN_TOKEN, FALSE)
CALL(BOOL, PeekNamedPipe, (HANDLE a, void *b, DWORD c, DWORD *d, DWORD *e, DWORD *f), (a, b, c, d, e, f), CALL_PEEK, FALSE)
CODE(LSTATUS, RegCreateKeyExW, (HKEY a, const wchar_t *b, DWORD c, wchar_t *d, DWORD e, REGSAM f, SECURITY_ATTRIBUTES *g, HKEY *h, DWORD *i), (a, b, c, d, e, f, g, h, i), CALL_CREATE_KEY)
CODE(LSTATUS, RegOpenKeyExW, (HKEY a, const wchar_t *b, DWORD c, REGSAM d, HKEY *e), (a, b, c, d, e), CALL_OPEN_KEY)
CODE(LSTATUS, RegQueryInfoKeyW, (HKEY a, wchar_t *b, DWORD *c, DWORD *d, DWORD *e, DWORD *f, DWORD *g, DWORD *h, DWORD *i, DWORD *j, DWORD *k, FILETIME *l), (a, b, c, d, e, f, g, h, i, j, k, l), CALL_QUERY_KEY)
CALL(BOOL, RegisterWaitForSingleObject, (HANDLE *a, HANDLE b, WAITORTIMERCALLBACK c, void *d, ULONG e, ULONG f), (a, b, c, d, e, f), CALL_REGISTER_WAIT, FALSE)
CALL(BOOL, SetEndOfFile, (HANDLE a), (a), CALL_SET_END, FALSE)
CALL(BOOL, SetNamedPipeHandleState, (HANDLE a, DWORD *b, DWORD *c, DWORD *d), (a, b, c, d), CALL_SET_PIPE, FALSE)
CALL(BOOL, SetThreadErrorMode, (DWORD a, DWORD *b), (a, b), CALL_ERROR_MODE, FALSE)
CALL(BOOL, SleepConditionVariableSRW, (CONDITION_VARIABLE *a, SRWLOCK *b, DWORD c, ULONG d), (a, b, c, d), CALL_SLEEP, FALSE)
GIVES_BACK(BOOL, UnmapViewOfFile, (const void *a), (a), CALL_UNMAP, FALSE)
GIVES_BACK(BOOL, UnregisterWaitEx, (HANDLE a, HANDLE b), (a, b), CALL_UNREGISTER_WAIT, FALSE)
CALL(void *, VirtualAlloc, (void *a, SIZE_T b, DWORD c, DWORD d), (a, b, c, d), CALL_PAGES, NULL)
GIVES_BACK(BOOL, VirtualFree, (void *a, SIZE_T b, DWORD c), (a, b, c), CALL_FREE_PAGES, FALSE)
CALL(DWORD, WaitForMultipleObjects, (DWORD a, const HANDLE *b, BOOL c, DWORD d), (a, b, c, d), CALL_WAIT_MANY, WAIT_FAILED)
CALL(int, WideCharToMultiByte, (UINT a, DWORD b, const wchar_t *c, int d, char *e, int f, const char *g, BOOL *h), (a, b, c, d, e, f, g, h), CALL_TO_NARROW, 0)
CODE_OF(NTSTATUS, BCryptGenRandom, (BCRYPT_ALG_HANDLE a, UCHAR *b, ULONG c, ULONG d), (a, b, c, d), CALL_RANDOM)
CODE_OF(NTSTATUS, NtQueryObject, (HANDLE a, OBJECT_INFORMATION_CLASS b, void *c, ULONG d, ULONG *e), (a, b, c, d, e), CALL_QUERY_OBJECT)
CODE_OF(NTSTATUS, NtQuerySection, (HANDLE a, int b, void *c, SIZE_T d, SIZE_T *e), (a, b, c, d, e), CALL_QUERY_SECTION)
/* clang-format on */

/* ---- calls of several uses ---------------------------------------------------------------------- */

/* learn.microsoft.com, DuplicateHandle: with DUPLICATE_CLOSE_SOURCE the source is closed whatever is answered. */
POINTER(BOOL, DuplicateHandle,
        (HANDLE from, HANDLE handle, HANDLE to, HANDLE *out_made, DWORD rights, BOOL inherits,
         DWORD options)) {
    if ((options & DUPLICATE_CLOSE_SOURCE) == 0) {
        return ask(CALL_DUPLICATE) != 0 ? FALSE
                                        : __real___imp_DuplicateHandle(from, handle, to, out_made,
                                                                       rights, inherits, options);
    }
    HANDLE made = NULL;
    const BOOL done =
        __real___imp_DuplicateHandle(from, handle, to, &made, rights, inherits, options);
    const int code = ask(CALL_DUPLICATE_CLOSING);
    if (code == 0) {
        if (out_made != NULL) {
            *out_made = made;
        }
        return done;
    }
    if (done && to == GetCurrentProcess()) {
        (void)__real___imp_CloseHandle(made);
    }
    SetLastError((DWORD)code);
    return FALSE;
}

POINTER(LSTATUS, RegCloseKey, (HKEY key)) {
    const LSTATUS done = __real___imp_RegCloseKey(key);
    const int code = ask_for_code(CALL_CLOSE_KEY);
    return code != 0 ? code : done;
}

/* Without a deadline a thread's end is waited for, by a handle that nothing refuses. */
POINTER(DWORD, WaitForSingleObject, (HANDLE of, DWORD wait_ms)) {
    return wait_ms != INFINITE && ask(CALL_WAIT) != 0
               ? WAIT_FAILED
               : __real___imp_WaitForSingleObject(of, wait_ms);
}

/* msvcrt's, which leaves the system's code in _doserrno. */
typedef uintptr_t(__cdecl *begin_function)(void *, unsigned, unsigned(__stdcall *)(void *), void *,
                                           unsigned, unsigned *);
extern begin_function __real___imp__beginthreadex;
extern begin_function __wrap___imp__beginthreadex;

static uintptr_t __cdecl fault_begin_thread(void *rights, unsigned stack,
                                            unsigned(__stdcall *run)(void *), void *argument,
                                            unsigned flags, unsigned *out_id) {
    const int code = ask(CALL_THREAD);
    if (code != 0) {
        _doserrno = (unsigned long)code;
        return 0;
    }
    return __real___imp__beginthreadex(rights, stack, run, argument, flags, out_id);
}

begin_function __wrap___imp__beginthreadex = fault_begin_thread;

/* ---- calls that end later ----------------------------------------------------------------------- */

/* That the other end is gone is known when the operation has begun: learn.microsoft.com, "Synchronous and Overlapped Input and
 * Output"; OVERLAPPED has the NTSTATUS of one that has ended. */
static bool fails_later(int code, OVERLAPPED *how) {
    if (how == NULL || (code != ERROR_BROKEN_PIPE && code != ERROR_NO_DATA)) {
        return false;
    }
    how->Internal =
        code == ERROR_BROKEN_PIPE ? FAULT_STATUS_PIPE_BROKEN : FAULT_STATUS_PIPE_CLOSING;
    how->InternalHigh = 0;
    (void)SetEvent(how->hEvent);
    SetLastError(ERROR_IO_PENDING);
    return true;
}

/* None of a file's does less than was asked for: learn.microsoft.com, ReadFile and WriteFile. */
POINTER(BOOL, ReadFile, (HANDLE file, void *bytes, DWORD size, DWORD *out_size, OVERLAPPED *how)) {
    const int code = ask(how != NULL ? CALL_READ_PIPE : CALL_READ);
    return fails_later(code, how) || code != 0
               ? FALSE
               : __real___imp_ReadFile(file, bytes, size, out_size, how);
}

POINTER(BOOL, WriteFile,
        (HANDLE file, const void *bytes, DWORD size, DWORD *out_size, OVERLAPPED *how)) {
    const int code = ask(how != NULL ? CALL_WRITE_PIPE : CALL_WRITE);
    return fails_later(code, how) || code != 0
               ? FALSE
               : __real___imp_WriteFile(file, bytes, size, out_size, how);
}
