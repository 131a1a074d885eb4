/* SPDX-License-Identifier: MIT */
/** @file Named pipes: their names, the two ways to open one, and waiting for what was started on
 *  one. */
#include "win32.h"

#include <stdio.h>
#include <string.h>
#include <wchar.h>

#define NAME_PREFIX L"\\\\.\\pipe\\gpuipc-"

gpuipc_status win32_pipe_name_make(wchar_t name[WIN32_PIPE_NAME_MAX]) {
    uint64_t random[2];
    const char *user;
    char text[WIN32_PIPE_NAME_MAX];
    gpuipc_status status = win32_own_user(&user);
    if (status == GPUIPC_OK) {
        status = os_random(random, sizeof(random));
    }
    if (status != GPUIPC_OK) {
        return status;
    }
    (void)snprintf(text, sizeof(text), "\\\\.\\pipe\\gpuipc-%s-%016llx%016llx", user,
                   (unsigned long long)random[0], (unsigned long long)random[1]);
    return win32_wide(text, name, WIN32_PIPE_NAME_MAX);
}

bool win32_pipe_name_is_ours(const wchar_t *name) {
    const size_t prefix = sizeof(NAME_PREFIX) / sizeof(wchar_t) - 1;
    size_t length = wcslen(name);
    return length > prefix && length < WIN32_PIPE_NAME_MAX &&
           wcsncmp(name, NAME_PREFIX, prefix) == 0 &&
           wcsspn(name + prefix, L"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                 L"0123456789-") == length - prefix;
}

/* The name has 128 random bits and is told in a directory that only this user can write, so nobody
 * can have made the pipe before; FIRST_PIPE_INSTANCE says so to the system as well. */
gpuipc_status win32_pipe_make(const wchar_t *name, bool first, os_handle *out_pipe) {
    const SECURITY_ATTRIBUTES *owner_only;
    gpuipc_status status = win32_owner_only(&owner_only);
    if (status != GPUIPC_OK) {
        return status;
    }
    DWORD open_mode = PIPE_ACCESS_DUPLEX | FILE_FLAG_OVERLAPPED;
    if (first) {
        open_mode |= FILE_FLAG_FIRST_PIPE_INSTANCE;
    }
    HANDLE pipe = CreateNamedPipeW(name, open_mode,
                                   PIPE_TYPE_MESSAGE | PIPE_READMODE_MESSAGE | PIPE_WAIT |
                                       PIPE_REJECT_REMOTE_CLIENTS,
                                   PIPE_UNLIMITED_INSTANCES, WIN32_PIPE_ROOM, WIN32_PIPE_ROOM, 0,
                                   (SECURITY_ATTRIBUTES *)(uintptr_t)owner_only);
    return win32_handle_add(pipe, "CreateNamedPipeW", out_pipe);
}

static gpuipc_status pipe_open_failed(DWORD code) {
    switch (code) {
    case ERROR_FILE_NOT_FOUND: /* its process has ended, or the name is of one that has */
        return win32_fail_as(GPUIPC_ERR_NOT_FOUND, code, "CreateFileW", "nobody listens there");
    case ERROR_PIPE_BUSY:
        return win32_fail_as(GPUIPC_ERR_TIMEOUT, code, "CreateFileW",
                             "the listener does not accept the connections it has");
    case ERROR_ACCESS_DENIED:
        return win32_fail_as(GPUIPC_ERR_ACCESS_DENIED, code, "CreateFileW",
                             "this user may not connect to the listener's pipe");
    default:
        return win32_fail(code, "CreateFileW", "the listener's pipe cannot be opened");
    }
}

gpuipc_status win32_pipe_open(const wchar_t *name, os_handle *out_pipe) {
    /* Without SECURITY_SQOS_PRESENT the server could act as this user: learn.microsoft.com,
     * CreateFileW and "Impersonation Levels". */
    HANDLE pipe =
        CreateFileW(name, GENERIC_READ | GENERIC_WRITE, 0, NULL, OPEN_EXISTING,
                    FILE_FLAG_OVERLAPPED | SECURITY_SQOS_PRESENT | SECURITY_IDENTIFICATION, NULL);
    if (pipe == INVALID_HANDLE_VALUE) {
        return pipe_open_failed(GetLastError());
    }
    DWORD mode = PIPE_READMODE_MESSAGE;
    if (!SetNamedPipeHandleState(pipe, &mode, NULL, NULL)) {
        DWORD code = GetLastError();
        CloseHandle(pipe);
        return win32_error_status(code) == GPUIPC_ERR_PEER_CLOSED
                   ? pipe_open_failed(ERROR_FILE_NOT_FOUND) /* its listener has just closed it */
                   : win32_fail(code, "SetNamedPipeHandleState", "the pipe is not one of messages");
    }
    return win32_handle_add(pipe, "CreateFileW", out_pipe);
}

gpuipc_status win32_event_make(os_handle *out_event) {
    return win32_handle_add(CreateEventW(NULL, TRUE, FALSE, NULL), "CreateEventW", out_event);
}

DWORD win32_pipe_finish(HANDLE pipe, OVERLAPPED *operation, HANDLE interrupted,
                        os_deadline deadline, DWORD *out_bytes) {
    const HANDLE events[] = {operation->hEvent, interrupted};
    DWORD why;
    DWORD came;
    do {
        came = WaitForMultipleObjects(2, events, FALSE, win32_left_ms(deadline));
    } while (came == WAIT_TIMEOUT && !os_deadline_passed(deadline));
    if (came == WAIT_OBJECT_0) {
        why = 0;
    } else {
        why = came == WAIT_TIMEOUT        ? WAIT_TIMEOUT
              : came == WAIT_OBJECT_0 + 1 ? ERROR_OPERATION_ABORTED
                                          : GetLastError();
        CancelIoEx(pipe, operation); /* fails when the operation has just ended */
    }
    /* Ended or taken back, it is over only when this says so; and it may have ended well meanwhile. */
    if (GetOverlappedResult(pipe, operation, out_bytes, TRUE)) {
        return 0;
    }
    DWORD code = GetLastError();
    return code == ERROR_OPERATION_ABORTED && why != 0 ? why : code;
}

/* Not GetOverlappedResult(TRUE), which waits for the event, and so does not wait at all when that is set
 * for another operation. What is taken back has ended at once, or as soon as the thread that started it has
 * heard of it. */
DWORD win32_pipe_take_back(HANDLE pipe, OVERLAPPED *operation) {
    DWORD ignored;
    if (!HasOverlappedIoCompleted(operation)) {
        CancelIoEx(pipe, operation); /* fails when the operation has just ended */
    }
    while (!HasOverlappedIoCompleted(operation)) {
        Sleep(1);
    }
    return GetOverlappedResult(pipe, operation, &ignored, FALSE) ? 0 : GetLastError();
}
