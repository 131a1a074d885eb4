/* SPDX-License-Identifier: MIT */
/** @file See win32_record.h. */
#include "win32_record.h"

#include <aclapi.h>
#include <criterion/criterion.h>
#include <sddl.h>
#include <string.h>
#include <wchar.h>

enum {
    CALLS_MAX = 4096
};

typedef void (*any_function)(void);

typedef struct function_row {
    const char *name;
    const wchar_t *dll;
    int text;
    int attributes;
} function_row;

static const function_row rows[RECORD_FUNCTIONS] = {
#define RECORD_ROW(name, dll, text, attributes) {#name, dll, text, attributes},
    RECORD_LIST(RECORD_ROW)
#undef RECORD_ROW
};

/** What is to happen to the calls of one function. */
typedef struct order {
    record_hook hook;
    void *user_data;
    size_t fail_number;
    DWORD fail_error; /**< 0: none fails */
    size_t calls;
} order;

static struct {
    SRWLOCK lock; /* zero is its start: synchapi.h, SRWLOCK_INIT */
    bool is_noting;
    order orders[RECORD_FUNCTIONS];
    record_call calls[CALLS_MAX];
    size_t count; /* of all, also those there was no room for */
} state;

static any_function real_function(record_function function) {
    any_function real;
    FARPROC found = GetProcAddress(GetModuleHandleW(rows[function].dll), rows[function].name);
    memcpy(&real, &found, sizeof(real));
    return real;
}

/** What the function answers when it fails, other than 0. */
static uint64_t failed_result(record_function function, DWORD error) {
    switch (function) {
    case RECORD_CreateFileW:
    case RECORD_CreateNamedPipeW:
        return (uint64_t)INVALID_HANDLE_VALUE;
    case RECORD_WaitForMultipleObjects:
    case RECORD_WaitForSingleObject:
        return WAIT_FAILED;
    case RECORD_GetSecurityInfo:
        return error;
    default:
        return 0;
    }
}

bool record_has_failed(const record_call *call) {
    if (call->function == RECORD_GetSecurityInfo) {
        return call->result != ERROR_SUCCESS;
    }
    return call->result == failed_result(call->function, call->error);
}

/** Copies what the arguments point to, while it is there. */
static void call_describe(record_call *call) {
    const function_row *row = &rows[call->function];
    const wchar_t *text = row->text >= 0 ? (const wchar_t *)call->arguments[row->text] : NULL;
    const SECURITY_ATTRIBUTES *attributes =
        row->attributes >= 0 ? (const SECURITY_ATTRIBUTES *)call->arguments[row->attributes] : NULL;
    wchar_t *rights;
    if (text != NULL) {
        wcsncpy(call->text, text, RECORD_TEXT_MAX - 1);
    }
    if (attributes != NULL && attributes->lpSecurityDescriptor != NULL &&
        ConvertSecurityDescriptorToStringSecurityDescriptorW(
            attributes->lpSecurityDescriptor, SDDL_REVISION_1,
            OWNER_SECURITY_INFORMATION | DACL_SECURITY_INFORMATION, &rights, NULL)) {
        wcsncpy(call->rights, rights, RECORD_TEXT_MAX - 1);
        LocalFree(rights);
    }
    if (call->function == RECORD_DuplicateHandle) {
        call->process = GetProcessId((HANDLE)call->arguments[2]);
    }
}

static void call_note(const record_call *call) {
    AcquireSRWLockExclusive(&state.lock);
    if (state.is_noting && state.count < CALLS_MAX) {
        state.calls[state.count] = *call;
    }
    state.count += state.is_noting;
    ReleaseSRWLockExclusive(&state.lock);
}

/** Whether an order has answered the call. */
static bool call_answer(record_call *call) {
    AcquireSRWLockExclusive(&state.lock);
    bool is_noting = state.is_noting;
    order *own = &state.orders[call->function];
    size_t number = is_noting ? ++own->calls : 0;
    order copy = *own;
    ReleaseSRWLockExclusive(&state.lock);
    if (!is_noting) {
        return false;
    }
    call_describe(call);
    if (copy.fail_error != 0 && (copy.fail_number == 0 || copy.fail_number == number)) {
        call->error = copy.fail_error;
        call->result = failed_result(call->function, copy.fail_error);
        return true;
    }
    return copy.hook != NULL && copy.hook(copy.user_data, call, number);
}

/** One function's place in the program's imports. */
#define RECORD(type, name, parameters, values, ...)                                                \
    typedef type(WINAPI *name##_function) parameters;                                              \
    static type WINAPI record_##name parameters {                                                  \
        DWORD before = GetLastError();                                                             \
        record_call call = {.function = RECORD_##name, .arguments = {__VA_ARGS__}};                \
        if (!call_answer(&call)) {                                                                 \
            name##_function real = (name##_function)real_function(RECORD_##name);                  \
            SetLastError(before);                                                                  \
            call.result = (uint64_t)real values;                                                   \
            call.error = GetLastError();                                                           \
        }                                                                                          \
        call_note(&call);                                                                          \
        SetLastError(call.error);                                                                  \
        return (type)call.result;                                                                  \
    }                                                                                              \
    name##_function __imp_##name = record_##name;

#define NUMBERS_1 (uint64_t) a
#define NUMBERS_2 NUMBERS_1, (uint64_t)b
#define NUMBERS_3 NUMBERS_2, (uint64_t)c
#define NUMBERS_4 NUMBERS_3, (uint64_t)d
#define NUMBERS_5 NUMBERS_4, (uint64_t)e
#define NUMBERS_6 NUMBERS_5, (uint64_t)f
#define NUMBERS_7 NUMBERS_6, (uint64_t)g
#define NUMBERS_8 NUMBERS_7, (uint64_t)h

/* clang-format off */
RECORD(BOOL, CloseHandle, (HANDLE a), (a), NUMBERS_1)
RECORD(BOOL, ConnectNamedPipe, (HANDLE a, OVERLAPPED *b), (a, b), NUMBERS_2)
RECORD(BOOL, CreateDirectoryW, (const wchar_t *a, SECURITY_ATTRIBUTES *b), (a, b), NUMBERS_2)
RECORD(HANDLE, CreateEventW, (SECURITY_ATTRIBUTES *a, BOOL b, BOOL c, const wchar_t *d),
       (a, b, c, d), NUMBERS_4)
RECORD(HANDLE, CreateFileMappingW,
       (HANDLE a, SECURITY_ATTRIBUTES *b, DWORD c, DWORD d, DWORD e, const wchar_t *f),
       (a, b, c, d, e, f), NUMBERS_6)
RECORD(HANDLE, CreateFileW,
       (const wchar_t *a, DWORD b, DWORD c, SECURITY_ATTRIBUTES *d, DWORD e, DWORD f, HANDLE g),
       (a, b, c, d, e, f, g), NUMBERS_7)
RECORD(HANDLE, CreateNamedPipeW,
       (const wchar_t *a, DWORD b, DWORD c, DWORD d, DWORD e, DWORD f, DWORD g,
        SECURITY_ATTRIBUTES *h),
       (a, b, c, d, e, f, g, h), NUMBERS_8)
RECORD(BOOL, DuplicateHandle,
       (HANDLE a, HANDLE b, HANDLE c, HANDLE *d, DWORD e, BOOL f, DWORD g),
       (a, b, c, d, e, f, g), NUMBERS_7)
RECORD(BOOL, GetFileInformationByHandle, (HANDLE a, BY_HANDLE_FILE_INFORMATION *b), (a, b),
       NUMBERS_2)
RECORD(BOOL, GetNamedPipeClientProcessId, (HANDLE a, ULONG *b), (a, b), NUMBERS_2)
RECORD(BOOL, GetNamedPipeServerProcessId, (HANDLE a, ULONG *b), (a, b), NUMBERS_2)
RECORD(DWORD, GetSecurityInfo,
       (HANDLE a, SE_OBJECT_TYPE b, SECURITY_INFORMATION c, PSID *d, PSID *e, PACL *f, PACL *g,
        PSECURITY_DESCRIPTOR *h),
       (a, b, c, d, e, f, g, h), NUMBERS_8)
RECORD(BOOL, GetTokenInformation,
       (HANDLE a, TOKEN_INFORMATION_CLASS b, void *c, DWORD d, DWORD *e), (a, b, c, d, e),
       NUMBERS_5)
RECORD(BOOL, IsWow64Process, (HANDLE a, BOOL *b), (a, b), NUMBERS_2)
RECORD(void *, MapViewOfFile, (HANDLE a, DWORD b, DWORD c, DWORD d, SIZE_T e), (a, b, c, d, e),
       NUMBERS_5)
RECORD(HANDLE, OpenProcess, (DWORD a, BOOL b, DWORD c), (a, b, c), NUMBERS_3)
RECORD(BOOL, OpenProcessToken, (HANDLE a, DWORD b, HANDLE *c), (a, b, c), NUMBERS_3)
RECORD(BOOL, PeekNamedPipe, (HANDLE a, void *b, DWORD c, DWORD *d, DWORD *e, DWORD *f),
       (a, b, c, d, e, f), NUMBERS_6)
RECORD(BOOL, ReadFile, (HANDLE a, void *b, DWORD c, DWORD *d, OVERLAPPED *e), (a, b, c, d, e),
       NUMBERS_5)
RECORD(BOOL, SetEndOfFile, (HANDLE a), (a), NUMBERS_1)
RECORD(BOOL, SetHandleInformation, (HANDLE a, DWORD b, DWORD c), (a, b, c), NUMBERS_3)
RECORD(BOOL, SetNamedPipeHandleState, (HANDLE a, DWORD *b, DWORD *c, DWORD *d), (a, b, c, d),
       NUMBERS_4)
RECORD(DWORD, WaitForMultipleObjects, (DWORD a, const HANDLE *b, BOOL c, DWORD d), (a, b, c, d),
       NUMBERS_4)
RECORD(DWORD, WaitForSingleObject, (HANDLE a, DWORD b), (a, b), NUMBERS_2)
RECORD(BOOL, WriteFile, (HANDLE a, const void *b, DWORD c, DWORD *d, OVERLAPPED *e),
       (a, b, c, d, e), NUMBERS_5)
/* clang-format on */

void record_begin(void) {
    AcquireSRWLockExclusive(&state.lock);
    memset(state.orders, 0, sizeof(state.orders));
    state.count = 0;
    state.is_noting = true;
    ReleaseSRWLockExclusive(&state.lock);
}

void record_end(void) {
    AcquireSRWLockExclusive(&state.lock);
    memset(state.orders, 0, sizeof(state.orders));
    state.is_noting = false;
    ReleaseSRWLockExclusive(&state.lock);
}

void record_answer(record_function function, record_hook hook, void *user_data) {
    AcquireSRWLockExclusive(&state.lock);
    state.orders[function].hook = hook;
    state.orders[function].user_data = user_data;
    ReleaseSRWLockExclusive(&state.lock);
}

void record_fail(record_function function, size_t number, DWORD error) {
    AcquireSRWLockExclusive(&state.lock);
    state.orders[function].fail_number = number;
    state.orders[function].fail_error = error;
    ReleaseSRWLockExclusive(&state.lock);
}

/** The @p index-th noted call of a function; NULL when there are not so many. *out_count: how many
 *  were passed. */
static const record_call *record_find(record_function function, size_t index, size_t *out_count) {
    const record_call *found = NULL;
    size_t passed = 0;
    AcquireSRWLockShared(&state.lock);
    bool complete = state.count <= CALLS_MAX;
    for (size_t i = 0; complete && i < state.count && found == NULL; i++) {
        if (state.calls[i].function == function && passed++ == index) {
            found = &state.calls[i];
        }
    }
    ReleaseSRWLockShared(&state.lock);
    cr_assert(complete, "more calls than there is room to note");
    *out_count = passed;
    return found;
}

size_t record_count(record_function function) {
    size_t count;
    (void)record_find(function, SIZE_MAX, &count);
    return count;
}

const record_call *record_at(record_function function, size_t index) {
    size_t count;
    const record_call *call = record_find(function, index, &count);
    cr_assert_not_null(call, "%s was called %zu times only", record_name(function), count);
    return call;
}

const char *record_name(record_function function) {
    return rows[function].name;
}

size_t record_bad_closes(void) {
    size_t bad = 0;
    size_t count = record_count(RECORD_CloseHandle);
    for (size_t i = 0; i < count; i++) {
        bad += record_has_failed(record_at(RECORD_CloseHandle, i));
    }
    return bad;
}
