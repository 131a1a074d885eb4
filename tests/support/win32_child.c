/* SPDX-License-Identifier: MIT */
/** @file Helper programs: started by a test, talked to line by line, and never outliving it. */
#include "child.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>
#include <windows.h>
#include <winternl.h>

#include "base/status.h"
#include "os.h"
#include "unique.h"
#include "win32_command.h"

/* Exported by ntdll.dll since Windows XP, and declared by no header of the SDK. */
NTSYSAPI NTSTATUS NTAPI NtSuspendProcess(HANDLE process);
NTSYSAPI NTSTATUS NTAPI NtResumeProcess(HANDLE process);

enum {
    PATH_UNITS = 1024,
    PIPE_BYTES = 65536
};

/** From here on an exit code is an NTSTATUS of severity "error" (ntstatus.h): an exception that
 *  nobody handled, or ours below. */
#define ERROR_SEVERITY 0xC0000000u

/** The exit code that child_kill gives: severity "error", the customer's bit, and SIGKILL's number. */
#define CODE_KILLED 0xE0000009u

struct child_process {
    HANDLE process;
    HANDLE job;      /**< with its last handle everything in it ends */
    HANDLE input;    /**< our end of its standard input; NULL: ended */
    HANDLE output;   /**< a named pipe: an anonymous one cannot be waited for */
    HANDLE readable; /**< the event of reading from it */
    DWORD process_id;
    char pending[4096]; /**< what was read behind the last line */
    size_t pending_count;
    bool stopped;
    bool ended;
    child_end end;
};

/** The other ends, which the helper is to have. */
typedef struct child_ends {
    HANDLE input;
    HANDLE output;
    HANDLE error; /**< a copy of our standard error; NULL: there is none */
} child_ends;

static bool is_end_of_pipe(DWORD code) {
    return code == ERROR_BROKEN_PIPE || code == ERROR_NO_DATA || code == ERROR_PIPE_NOT_CONNECTED;
}

static gpuipc_status child_failed(const char *operation) {
    DWORD code = GetLastError();
    gpuipc_status status = is_end_of_pipe(code) ? GPUIPC_ERR_PEER_CLOSED : GPUIPC_ERR_OS;
    return status_fail_os(status, code, operation, "helper program: error %lu", code);
}

static void close_if_open(HANDLE handle) {
    if (handle != NULL && handle != INVALID_HANDLE_VALUE) {
        CloseHandle(handle);
    }
}

static void ends_close(child_ends *ends) {
    close_if_open(ends->input);
    close_if_open(ends->output);
    close_if_open(ends->error);
}

/** Gives back all that child_start made; the process has ended or was never there. */
static void child_free(child_process *child) {
    close_if_open(child->input);
    close_if_open(child->output);
    close_if_open(child->readable);
    close_if_open(child->process);
    close_if_open(child->job);
    free(child);
}

/** The pipe from which we read what the helper prints, and its end of it. */
static gpuipc_status output_make(child_process *child, child_ends *ends) {
    SECURITY_ATTRIBUTES inherited = {sizeof(inherited), NULL, TRUE};
    char name[UNIQUE_NAME_MAX];
    wchar_t path[UNIQUE_NAME_MAX + 32];
    unique_name(name);
    swprintf(path, sizeof(path) / sizeof(path[0]), L"\\\\.\\pipe\\gpuipc-test-%hs", name);
    child->readable = CreateEventW(NULL, TRUE, FALSE, NULL);
    if (child->readable == NULL) {
        return child_failed("CreateEventW");
    }
    child->output = CreateNamedPipeW(
        path, PIPE_ACCESS_INBOUND | FILE_FLAG_OVERLAPPED | FILE_FLAG_FIRST_PIPE_INSTANCE,
        PIPE_TYPE_BYTE | PIPE_REJECT_REMOTE_CLIENTS, 1, PIPE_BYTES, PIPE_BYTES, 0, NULL);
    if (child->output == INVALID_HANDLE_VALUE) {
        return child_failed("CreateNamedPipeW");
    }
    ends->output = CreateFileW(path, GENERIC_WRITE, 0, &inherited, OPEN_EXISTING, 0, NULL);
    if (ends->output == INVALID_HANDLE_VALUE) {
        return child_failed("CreateFileW");
    }
    OVERLAPPED connecting = {0};
    connecting.hEvent = child->readable;
    if (ConnectNamedPipe(child->output, &connecting) || GetLastError() != ERROR_PIPE_CONNECTED) {
        return child_failed("ConnectNamedPipe");
    }
    return GPUIPC_OK;
}

static gpuipc_status ends_make(child_process *child, child_ends *ends) {
    gpuipc_status status = output_make(child, ends);
    if (status != GPUIPC_OK) {
        return status;
    }
    if (!CreatePipe(&ends->input, &child->input, NULL, PIPE_BYTES) ||
        !SetHandleInformation(ends->input, HANDLE_FLAG_INHERIT, HANDLE_FLAG_INHERIT)) {
        return child_failed("CreatePipe");
    }
    HANDLE error = GetStdHandle(STD_ERROR_HANDLE);
    if (error != NULL && error != INVALID_HANDLE_VALUE &&
        !DuplicateHandle(GetCurrentProcess(), error, GetCurrentProcess(), &ends->error, 0, TRUE,
                         DUPLICATE_SAME_ACCESS)) {
        ends->error = NULL; /* it was closed: the helper has none then */
    }
    return GPUIPC_OK;
}

static gpuipc_status job_make(child_process *child) {
    JOBOBJECT_EXTENDED_LIMIT_INFORMATION limits;
    memset(&limits, 0, sizeof(limits));
    limits.BasicLimitInformation.LimitFlags = JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE;
    child->job = CreateJobObjectW(NULL, NULL);
    if (child->job == NULL) {
        return child_failed("CreateJobObjectW");
    }
    if (!SetInformationJobObject(child->job, JobObjectExtendedLimitInformation, &limits,
                                 sizeof(limits))) {
        return child_failed("SetInformationJobObject");
    }
    return GPUIPC_OK;
}

/** A list of the handles that the helper inherits, and that no other does; for free() after
 *  DeleteProcThreadAttributeList. It refers to @p handles. */
static gpuipc_status inheritance_make(HANDLE *handles, size_t count,
                                      LPPROC_THREAD_ATTRIBUTE_LIST *out_list) {
    SIZE_T size = 0;
    InitializeProcThreadAttributeList(NULL, 1, 0, &size);
    LPPROC_THREAD_ATTRIBUTE_LIST list = malloc(size);
    if (list == NULL) {
        return status_out_of_memory(size);
    }
    if (!InitializeProcThreadAttributeList(list, 1, 0, &size)) {
        gpuipc_status status = child_failed("InitializeProcThreadAttributeList");
        free(list);
        return status;
    }
    if (!UpdateProcThreadAttribute(list, 0, PROC_THREAD_ATTRIBUTE_HANDLE_LIST, handles,
                                   count * sizeof(*handles), NULL, NULL)) {
        gpuipc_status status = child_failed("UpdateProcThreadAttribute");
        DeleteProcThreadAttributeList(list);
        free(list);
        return status;
    }
    *out_list = list;
    return GPUIPC_OK;
}

/** Starts the program with these ends as its standard handles. It is in the job before its first
 *  instruction, so that there is no moment at which it would outlive us. */
static gpuipc_status child_spawn(child_process *child, const wchar_t *path, wchar_t *command_line,
                                 wchar_t *environment, child_ends *ends) {
    HANDLE inherited[] = {ends->input, ends->output, ends->error};
    STARTUPINFOEXW startup;
    PROCESS_INFORMATION made;
    memset(&startup, 0, sizeof(startup));
    startup.StartupInfo.cb = sizeof(startup);
    startup.StartupInfo.dwFlags = STARTF_USESTDHANDLES;
    startup.StartupInfo.hStdInput = ends->input;
    startup.StartupInfo.hStdOutput = ends->output;
    startup.StartupInfo.hStdError = ends->error;
    gpuipc_status status =
        inheritance_make(inherited, ends->error != NULL ? 3 : 2, &startup.lpAttributeList);
    if (status != GPUIPC_OK) {
        return status;
    }
    const DWORD flags =
        CREATE_SUSPENDED | CREATE_UNICODE_ENVIRONMENT | EXTENDED_STARTUPINFO_PRESENT;
    /* Under Wine a new process now and then ends before it has begun, which is answered so (STATUS_INTERNAL_ERROR,
     * wine's dlls/ntdll/unix/process.c, NtCreateUserProcess). Nothing of it has run. */
    BOOL is_made = FALSE;
    for (int tries = 0; tries < 3 && !is_made; tries++) {
        is_made = CreateProcessW(path, command_line, NULL, NULL, TRUE, flags, environment, NULL,
                                 &startup.StartupInfo, &made);
        if (!is_made && GetLastError() != ERROR_INTERNAL_ERROR) {
            break;
        }
    }
    if (!is_made) {
        status = child_failed("CreateProcessW");
        goto free_list;
    }
    if (!AssignProcessToJobObject(child->job, made.hProcess)) {
        status = child_failed("AssignProcessToJobObject");
    } else if (ResumeThread(made.hThread) == (DWORD)-1) {
        status = child_failed("ResumeThread");
    }
    CloseHandle(made.hThread);
    if (status != GPUIPC_OK) {
        TerminateProcess(made.hProcess, CODE_KILLED);
        CloseHandle(made.hProcess);
        goto free_list;
    }
    child->process = made.hProcess;
    child->process_id = made.dwProcessId;

free_list:
    DeleteProcThreadAttributeList(startup.lpAttributeList);
    free(startup.lpAttributeList);
    return status;
}

/** The program beside this one. */
static bool program_path(const char *name, wchar_t *path, size_t capacity) {
    DWORD length = GetModuleFileNameW(NULL, path, (DWORD)capacity);
    if (length == 0 || length >= capacity) {
        return false;
    }
    wchar_t *end = wcsrchr(path, L'\\') + 1;
    size_t room = capacity - (size_t)(end - path);
    int written = swprintf(end, room, L"%hs.exe", name);
    return written > 0 && (size_t)written < room;
}

gpuipc_status child_start(const char *name, const char *const *arguments,
                          const char *const *environment, child_process **out_child) {
    wchar_t path[PATH_UNITS];
    char parent[48];
    child_ends ends = {NULL, NULL, NULL};
    if (!program_path(name, path, PATH_UNITS)) {
        return status_fail(GPUIPC_ERR_OS, "where this program lies is unknown");
    }
    snprintf(parent, sizeof(parent), "GPUIPC_TEST_PARENT=%lu", GetCurrentProcessId());
    child_process *started = calloc(1, sizeof(*started));
    wchar_t *line = win32_command_line(path, arguments);
    wchar_t *block = win32_environment_block(environment, parent);
    gpuipc_status status = GPUIPC_OK;
    if (started == NULL || line == NULL || block == NULL) {
        status = status_out_of_memory(0);
        goto free_texts;
    }
    status = job_make(started);
    if (status == GPUIPC_OK) {
        status = ends_make(started, &ends);
    }
    if (status == GPUIPC_OK) {
        status = child_spawn(started, path, line, block, &ends);
    }
    ends_close(&ends);
    if (status != GPUIPC_OK) {
        child_free(started);
        goto free_texts;
    }
    *out_child = started;

free_texts:
    free(block);
    free(line);
    return status;
}

/** Moves the first line out of what was read. False when there is none yet. A helper's C library
 *  ends its lines with "\r\n". */
static bool pending_take_line(child_process *child, char *line, size_t capacity) {
    char *end = memchr(child->pending, '\n', child->pending_count);
    bool full = child->pending_count == sizeof(child->pending);
    if (end == NULL && !full) {
        return false;
    }
    size_t length = end != NULL ? (size_t)(end - child->pending) : child->pending_count;
    size_t used = end != NULL ? length + 1 : length;
    if (end != NULL && length > 0 && child->pending[length - 1] == '\r') {
        length--;
    }
    size_t kept = length < capacity ? length : capacity - 1;
    memcpy(line, child->pending, kept);
    line[kept] = '\0';
    child->pending_count -= used;
    memmove(child->pending, child->pending + used, child->pending_count);
    return true;
}

/** Reads what there is, and waits for it until then. */
static gpuipc_status pending_read(child_process *child, os_deadline deadline) {
    DWORD got = 0;
    OVERLAPPED reading = {0};
    reading.hEvent = child->readable;
    bool done = ReadFile(child->output, child->pending + child->pending_count,
                         (DWORD)(sizeof(child->pending) - child->pending_count), NULL, &reading);
    if (done || GetLastError() == ERROR_IO_PENDING) {
        if (WaitForSingleObject(child->readable, (DWORD)os_deadline_left_ms(deadline)) ==
            WAIT_TIMEOUT) {
            /* It may be done all the same by now: what counts is how it ended. */
            CancelIoEx(child->output, &reading);
        }
        done = GetOverlappedResult(child->output, &reading, &got, TRUE);
    }
    if (!done && GetLastError() == ERROR_OPERATION_ABORTED) {
        return status_fail(GPUIPC_ERR_TIMEOUT, "helper program: no line came in time");
    }
    if (!done) {
        return child_failed("ReadFile");
    }
    child->pending_count += got;
    return GPUIPC_OK;
}

gpuipc_status child_read_line(child_process *child, char *line, size_t capacity, int timeout_ms) {
    os_deadline deadline = os_deadline_after(timeout_ms);
    while (!pending_take_line(child, line, capacity)) {
        gpuipc_status status = pending_read(child, deadline);
        if (status != GPUIPC_OK) {
            return status;
        }
    }
    return GPUIPC_OK;
}

static gpuipc_status write_all(HANDLE pipe, const char *text, size_t size) {
    while (size > 0) {
        DWORD written = 0;
        if (!WriteFile(pipe, text, (DWORD)size, &written, NULL)) {
            return child_failed("WriteFile");
        }
        text += written;
        size -= written;
    }
    return GPUIPC_OK;
}

gpuipc_status child_write_line(child_process *child, const char *line) {
    if (child->input == NULL) {
        return status_fail(GPUIPC_ERR_PEER_CLOSED, "helper program: its input was ended");
    }
    gpuipc_status status = write_all(child->input, line, strlen(line));
    return status == GPUIPC_OK ? write_all(child->input, "\n", 1) : status;
}

void child_close_input(child_process *child) {
    close_if_open(child->input);
    child->input = NULL;
}

void child_kill(child_process *child) {
    if (!child->ended) {
        /* Refused when it has ended by itself already; then that is its end. */
        TerminateProcess(child->process, CODE_KILLED);
    }
}

void child_stop(child_process *child) {
    if (!child->ended && !child->stopped) {
        child->stopped = NtSuspendProcess(child->process) >= 0;
    }
}

void child_continue(child_process *child) {
    if (!child->ended) { /* also one that stopped itself (tests/death) */
        child->stopped = NtResumeProcess(child->process) < 0;
    }
}

gpuipc_status child_wait(child_process *child, int timeout_ms, child_end *out_end) {
    if (!child->ended) {
        DWORD code;
        DWORD waited =
            WaitForSingleObject(child->process, timeout_ms < 0 ? INFINITE : (DWORD)timeout_ms);
        if (waited == WAIT_TIMEOUT) {
            return status_fail(GPUIPC_ERR_TIMEOUT, "helper program: no end came in time");
        }
        if (waited != WAIT_OBJECT_0 || !GetExitCodeProcess(child->process, &code)) {
            return child_failed("GetExitCodeProcess");
        }
        child->ended = true;
        child->end.exited = code < ERROR_SEVERITY;
        child->end.code = (int)code;
    }
    if (out_end != NULL) {
        *out_end = child->end;
    }
    return GPUIPC_OK;
}

uint64_t child_process_id(const child_process *child) {
    return child->process_id;
}

void child_destroy(child_process *child) {
    if (child == NULL) {
        return;
    }
    child_kill(child);
    child_wait(child, -1, NULL);
    child_free(child);
}
