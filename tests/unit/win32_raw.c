/* SPDX-License-Identifier: MIT */
/** @file See win32_raw.h. */
#include "win32_raw.h"

#include <string.h>
#include <winternl.h>

#include "check.h"

bool raw_is_wine(void) {
    return GetProcAddress(GetModuleHandleW(L"ntdll.dll"), "wine_get_version") != NULL;
}

/* winternl.h has the first members of it only, as an array: PUBLIC_OBJECT_BASIC_INFORMATION. */
typedef struct object_information {
    ULONG attributes;
    ACCESS_MASK granted_access;
    ULONG handle_count;
    ULONG reference_count;
    ULONG reserved[10];
} object_information;
_Static_assert(sizeof(object_information) == sizeof(PUBLIC_OBJECT_BASIC_INFORMATION),
               "OBJECT_BASIC_INFORMATION");

unsigned raw_handles_of(intptr_t handle) {
    object_information information = {0};
    NTSTATUS status = NtQueryObject((HANDLE)handle, ObjectBasicInformation, &information,
                                    sizeof(information), NULL);
    cr_assert_geq(status, 0, "handle %lld is not open", (long long)handle);
    return information.handle_count;
}

uint64_t raw_copy(os_handle handle) {
    HANDLE copy;
    cr_assert(DuplicateHandle(GetCurrentProcess(), (HANDLE)handle.value, GetCurrentProcess(), &copy,
                              0, FALSE, DUPLICATE_SAME_ACCESS));
    return (uint64_t)copy;
}

void raw_close_copy(uint64_t value) {
    cr_assert(CloseHandle((HANDLE)value), "handle %llu was closed by somebody else",
              (unsigned long long)value);
}

void raw_put(unsigned char *bytes, size_t at, size_t size, uint64_t value) {
    for (size_t i = 0; i < size; i++) {
        bytes[at + i] = (unsigned char)(value >> (8 * i));
    }
}

uint64_t raw_get(const unsigned char *bytes, size_t at, size_t size) {
    uint64_t value = 0;
    for (size_t i = 0; i < size; i++) {
        value |= (uint64_t)bytes[at + i] << (8 * i);
    }
    return value;
}

void raw_frame_make(raw_frame *frame, bool has_ledger, uint64_t number, const uint64_t *values,
                    size_t count) {
    static const char content[5] = {'h', 'e', 'l', 'l', 'o'};
    memset(frame, 0, sizeof(*frame));
    memcpy(frame->bytes, "GIPE", 4);
    raw_put(frame->bytes, RAW_AT_VERSION, 2, 1);
    raw_put(frame->bytes, RAW_AT_FLAGS, 2, has_ledger);
    raw_put(frame->bytes, RAW_AT_HANDLES, 4, count);
    raw_put(frame->bytes, RAW_AT_BYTES, 4, sizeof(content));
    raw_put(frame->bytes, RAW_AT_NUMBER, 8, number);
    for (size_t i = 0; i < count; i++) {
        raw_put(frame->bytes, RAW_ENVELOPE + 8 * i, 8, values[i]);
    }
    memcpy(frame->bytes + RAW_ENVELOPE + 8 * count, content, sizeof(content));
    frame->size = RAW_ENVELOPE + 8 * count + sizeof(content);
}

HANDLE raw_connect(const os_pair *pair) {
    wchar_t name[WIN32_PIPE_NAME_MAX];
    os_handle pipe;
    check_ok(win32_name_look_up(pair->path, pair->name, name));
    check_ok(win32_pipe_open(name, &pipe));
    return (HANDLE)os_handle_give_up(&pipe);
}

HANDLE raw_pipe(bool is_client, os_connection **out_connection) {
    wchar_t name[WIN32_PIPE_NAME_MAX];
    os_handle server;
    os_handle client;
    check_ok(win32_pipe_name_make(name));
    check_ok(win32_pipe_make(name, true, &server));
    check_ok(win32_pipe_open(name, &client));
    check_ok(win32_connection_wrap(is_client ? client : server,
                                   is_client ? WIN32_PIPE_CLIENT : WIN32_PIPE_SERVER,
                                   out_connection));
    return (HANDLE)os_handle_give_up(is_client ? &server : &client);
}

/** The end of an operation that was started. False, with the code, when it failed. */
static bool finish(HANDLE pipe, BOOL started, OVERLAPPED *operation, DWORD *out_bytes) {
    if (!started && GetLastError() != ERROR_IO_PENDING) {
        return false;
    }
    if (WaitForSingleObject(operation->hEvent, SOON_MS) == WAIT_TIMEOUT) {
        CancelIoEx(pipe, operation);
    }
    return GetOverlappedResult(pipe, operation, out_bytes, TRUE);
}

void raw_write(HANDLE pipe, const void *bytes, size_t size) {
    OVERLAPPED operation = {.hEvent = CreateEventW(NULL, TRUE, FALSE, NULL)};
    DWORD written = 0;
    BOOL started = WriteFile(pipe, bytes, (DWORD)size, NULL, &operation);
    bool done = finish(pipe, started, &operation, &written);
    DWORD code = GetLastError();
    CloseHandle(operation.hEvent);
    cr_assert(done, "WriteFile: %lu", code);
    cr_assert_eq(written, size);
}

size_t raw_read(HANDLE pipe, void *bytes, size_t capacity) {
    OVERLAPPED operation = {.hEvent = CreateEventW(NULL, TRUE, FALSE, NULL)};
    DWORD got = 0;
    BOOL started = ReadFile(pipe, bytes, (DWORD)capacity, NULL, &operation);
    bool done = finish(pipe, started, &operation, &got);
    DWORD code = done ? 0 : GetLastError();
    CloseHandle(operation.hEvent);
    cr_assert(done || code == ERROR_BROKEN_PIPE, "ReadFile: %lu", code);
    return done ? got : 0;
}
