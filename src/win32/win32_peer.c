/* SPDX-License-Identifier: MIT */
/** @file Who is at the other end of a pipe, as the system vouches for it. */
#include "win32.h"

#include <stdio.h>
#include <string.h>

static bool process_has_ended(HANDLE process) {
    return WaitForSingleObject(process, 0) == WAIT_OBJECT_0;
}

/** The number of the process that opened the other end. That process may have passed its end on, so
 *  the number says into which process handles go, and no more. */
static gpuipc_status peer_number(HANDLE pipe, win32_pipe_end end, ULONG *out_number) {
    BOOL known = end == WIN32_PIPE_SERVER ? GetNamedPipeClientProcessId(pipe, out_number)
                                          : GetNamedPipeServerProcessId(pipe, out_number);
    return known ? GPUIPC_OK
                 : win32_fail(GetLastError(), "GetNamedPipeClientProcessId",
                              "the process at the other end is not known");
}

/* Of ntdll.dll; the SDK's winternl.h lacks it. [MS-FSCC] 2.4.32, FilePipeLocalInformation: ten numbers
 * of 32 bits, of which the ninth is the state; 3: connected. */
typedef LONG(NTAPI *query_file)(HANDLE file, void *block, void *information, ULONG size,
                                int information_class);
#define PIPE_LOCAL_INFORMATION_CLASS   24
#define PIPE_LOCAL_INFORMATION_NUMBERS 10
#define PIPE_LOCAL_INFORMATION_STATE   8
#define PIPE_STATE_CONNECTED           3

/** Whether somebody still has the other end. While that is so the number is not given out anew.
 *  PeekNamedPipe would not do: it succeeds while there is something left to read. */
static bool pipe_is_whole(HANDLE pipe) {
    struct {
        void *status;
        ULONG_PTR size;
    } block;
    ULONG found[PIPE_LOCAL_INFORMATION_NUMBERS];
    query_file query;
    FARPROC address = GetProcAddress(GetModuleHandleW(L"ntdll.dll"), "NtQueryInformationFile");
    memcpy(&query, &address, sizeof(query));
    return query != NULL &&
           query(pipe, &block, found, sizeof(found), PIPE_LOCAL_INFORMATION_CLASS) >= 0 &&
           found[PIPE_LOCAL_INFORMATION_STATE] == PIPE_STATE_CONNECTED;
}

/* Handles of memory have 64 bits on the way, and the memory is a 64-bit CUDA driver's. */
static gpuipc_status peer_check_width(HANDLE process, ULONG number) {
    BOOL is_32_bit = FALSE;
    if (!IsWow64Process(process, &is_32_bit)) {
        return win32_fail(GetLastError(), "IsWow64Process", "process %lu cannot be looked at",
                          number);
    }
    if (is_32_bit) {
        return status_fail(GPUIPC_ERR_NOT_SUPPORTED,
                           "process %lu is a 32-bit program; both ends must be 64-bit", number);
    }
    return GPUIPC_OK;
}

/* A sandboxed process of the same user has the same SID and a lower integrity level, and so has one
 * that is not elevated, seen from one that is. Neither is to listen under our names, nor to name numbers
 * of handles to us. Objects that an elevated process makes are open to the lower ones of its user, so a
 * server has to ask as well (learn.microsoft.com, "Mandatory Integrity Control"). */
static gpuipc_status peer_check_integrity(HANDLE process, ULONG number) {
    DWORD own;
    DWORD theirs;
    gpuipc_status status = win32_process_integrity(GetCurrentProcess(), &own);
    if (status == GPUIPC_OK) {
        status = win32_process_integrity(process, &theirs);
    }
    if (status != GPUIPC_OK) {
        return status;
    }
    if (theirs < own) {
        return status_fail(GPUIPC_ERR_ACCESS_DENIED,
                           "process %lu runs at a lower integrity level (0x%lx) "
                           "than this process (0x%lx); run both at the same",
                           number, theirs, own);
    }
    return GPUIPC_OK;
}

/** The user of a process that may not be looked at: another one, or this one with more rights. */
static const char unknown_user[] = "unknown";

/** Fills in the user, and refuses processes that no user could make right. */
static gpuipc_status peer_describe(HANDLE process, os_peer *peer) {
    ULONG number = (ULONG)peer->process_id;
    const char *own;
    gpuipc_status status = win32_own_user(&own);
    if (status == GPUIPC_OK) {
        status = peer_check_width(process, number);
    }
    if (status == GPUIPC_OK) {
        status = win32_process_user(process, peer->user, sizeof(peer->user));
        if (status == GPUIPC_ERR_OS && gpuipc_error_get()->native_code == ERROR_ACCESS_DENIED) {
            (void)snprintf(peer->user, sizeof(peer->user), "%s", unknown_user);
            status = GPUIPC_OK;
        }
    }
    if (status == GPUIPC_OK) {
        peer->same_user = strcmp(peer->user, own) == 0;
        status = peer->same_user ? peer_check_integrity(process, number) : GPUIPC_OK;
    }
    return status;
}

gpuipc_status os_peer_self(os_peer *out_peer) {
    os_peer peer = {.process_id = os_process_id(), .same_user = true, .process = OS_HANDLE_NONE};
    HANDLE process =
        OpenProcess(PROCESS_QUERY_LIMITED_INFORMATION | SYNCHRONIZE, FALSE, GetCurrentProcessId());
    if (process == NULL) {
        return win32_fail(GetLastError(), "OpenProcess", "there is no handle of this process");
    }
    gpuipc_status status = win32_handle_add(process, "OpenProcess", &peer.process);
    if (status == GPUIPC_OK) {
        os_own_user(peer.user, sizeof(peer.user));
        *out_peer = peer;
    }
    return status;
}

gpuipc_status win32_peer_of_pipe(HANDLE pipe, win32_pipe_end end, os_peer *out_peer) {
    ULONG number;
    gpuipc_status status = peer_number(pipe, end, &number);
    if (status != GPUIPC_OK) {
        return status;
    }
    os_peer peer = {.process_id = number, .process = OS_HANDLE_NONE};
    HANDLE process = OpenProcess(PROCESS_QUERY_LIMITED_INFORMATION | SYNCHRONIZE, FALSE, number);
    DWORD code = process == NULL ? GetLastError() : 0;
    if (code == ERROR_INVALID_PARAMETER) { /* OpenProcess: there is no such process */
        return win32_fail_as(GPUIPC_ERR_PEER_CLOSED, code, "OpenProcess", "process %lu is gone",
                             number);
    }
    if (code == ERROR_ACCESS_DENIED) {
        /* Another user's: who may be let in is for the policy to say. */
        (void)snprintf(peer.user, sizeof(peer.user), "%s", unknown_user);
        *out_peer = peer;
        return GPUIPC_OK;
    }
    status = win32_handle_add(process, "OpenProcess", &peer.process);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = peer_describe(process, &peer);
    if (status != GPUIPC_OK) {
        os_handle_close(&peer.process);
        return status;
    }
    /* The number is from the time of the connection. With the other end closed, it may be another
     * process's by now, which is not to be watched in its stead. */
    if (!pipe_is_whole(pipe)) {
        os_handle_close(&peer.process);
    }
    *out_peer = peer;
    return GPUIPC_OK;
}

/* The right to put handles into a process is as good as owning it, so it is asked for only by an end
 * that sends handles, and only when it first does. */
gpuipc_status win32_peer_open_for_handles(const os_peer *peer, os_handle *out_process) {
    const DWORD rights = PROCESS_DUP_HANDLE | PROCESS_QUERY_LIMITED_INFORMATION | SYNCHRONIZE;
    ULONG number = (ULONG)peer->process_id;
    char user[WIN32_SID_TEXT_MAX];
    if (strcmp(peer->user, unknown_user) == 0) {
        return status_fail(GPUIPC_ERR_ACCESS_DENIED,
                           "this user may not put handles into process %lu of user %s", number,
                           peer->user);
    }
    /* The open handle of the peer keeps its number from being given out anew. */
    if (!os_handle_is_valid(peer->process) ||
        process_has_ended(win32_handle_native(peer->process))) {
        return status_fail(GPUIPC_ERR_PEER_CLOSED, "process %lu is gone", number);
    }
    HANDLE process = OpenProcess(rights, FALSE, number);
    if (process == NULL) {
        DWORD code = GetLastError();
        return win32_fail_as(
            code == ERROR_ACCESS_DENIED ? GPUIPC_ERR_ACCESS_DENIED : win32_error_status(code), code,
            "OpenProcess", "this user may not put handles into process %lu of user %s", number,
            peer->user);
    }
    os_handle opened;
    gpuipc_status status = win32_handle_add(process, "OpenProcess", &opened);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = win32_process_user(process, user, sizeof(user));
    if (status == GPUIPC_OK && strcmp(user, peer->user) != 0) {
        status = status_fail(GPUIPC_ERR_ACCESS_DENIED, "process %lu has changed from user %s to %s",
                             number, peer->user, user);
    }
    if (status != GPUIPC_OK) {
        os_handle_close(&opened);
        return status;
    }
    *out_process = opened;
    return GPUIPC_OK;
}

void os_own_user(char *user, size_t capacity) {
    const char *own = "";
    gpuipc_error why = status_save();
    (void)win32_own_user(&own);
    status_restore(&why);
    (void)snprintf(user, capacity, "%s", own);
}

void os_peer_close(os_peer *peer) {
    os_handle_close(&peer->process);
}

int os_peer_is_running(const os_peer *peer) {
    if (os_handle_is_valid(peer->process)) {
        switch (WaitForSingleObject(win32_handle_native(peer->process), 0)) {
        case WAIT_TIMEOUT:
            return 1;
        case WAIT_OBJECT_0:
            return 0;
        default:
            return -1;
        }
    }
    /* Without a handle a number in use proves nothing (it may have been given out anew), but one
     * that is not in use does. */
    if (peer->process_id == 0) {
        return -1;
    }
    HANDLE process = OpenProcess(PROCESS_QUERY_LIMITED_INFORMATION, FALSE, (DWORD)peer->process_id);
    if (process == NULL) {
        return GetLastError() == ERROR_INVALID_PARAMETER ? 0 : -1;
    }
    CloseHandle(process);
    return -1;
}
