/* SPDX-License-Identifier: MIT */
/** @file See child.h. */
#include "child.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>
#include <windows.h>

#include "base/status.h"
#include "win32_job.h"
#include "win32_words.h"

#define KILL_WAIT_MS 5000
#define PIPE_BYTES   65536

/** From here on an exit code is an NTSTATUS of severity "error" (ntstatus.h): an exception that
 *  nobody handled, or ours below. */
#define ERROR_SEVERITY 0xC0000000u

/** The exit code of a child that is killed here: severity "error", and the customer's bit. */
#define CODE_KILLED 0xE0000001u

struct child {
    HANDLE process; /* NULL: its end has been waited for */
    HANDLE job;     /* with its last handle, which is this one, everything in it ends */
    HANDLE output;  /* a named pipe: an anonymous one cannot be waited for. NULL: ended */
    OVERLAPPED reading;
    bool is_reading; /* behind what is pending, in which there is no line then */
    child_end end;
    char pending[4096]; /* what was read behind the last line */
    size_t pending_count;
    bool has_end_to_tell; /* its output ended, which child_next has not said yet */
};

/* The standard handles of a child, as it is to inherit them. */
typedef struct child_ends {
    HANDLE output;
    HANDLE error; /* NULL: this program has none either */
} child_ends;

static gpuipc_status failed(const char *operation) {
    DWORD code = GetLastError();
    return status_fail_os(GPUIPC_ERR_OS, code, operation,
                          "starting this program again: Windows error %lu", code);
}

static void close_if_open(HANDLE handle) {
    if (handle != NULL && handle != INVALID_HANDLE_VALUE) {
        CloseHandle(handle);
    }
}

void child_forget_variable(const char *name) {
    wchar_t *wide;
    if (words_widen(name, &wide) == GPUIPC_OK) {
        (void)_wputenv_s(wide, L""); /* the C library has a copy */
        (void)SetEnvironmentVariableW(wide, NULL);
        free(wide);
    }
}

/* A pipe that nobody can have made before (128 random bits), with one instance, and that only this
 * user, the system and the administrators may write to: learn.microsoft.com, "Named Pipe Security and
 * Access Rights". */
static gpuipc_status output_make(child *self, child_ends *ends) {
    SECURITY_ATTRIBUTES inherited = {sizeof(inherited), NULL, TRUE};
    wchar_t name[96];
    unsigned long long random[2];
    gpuipc_status status = os_random(random, sizeof(random));
    if (status != GPUIPC_OK) {
        return status;
    }
    (void)swprintf(name, sizeof(name) / sizeof(*name),
                   L"\\\\.\\pipe\\gpuipc-selftest-%016llx%016llx", random[0], random[1]);
    HANDLE output = CreateNamedPipeW(
        name, PIPE_ACCESS_INBOUND | FILE_FLAG_OVERLAPPED | FILE_FLAG_FIRST_PIPE_INSTANCE,
        PIPE_TYPE_BYTE | PIPE_REJECT_REMOTE_CLIENTS, 1, PIPE_BYTES, PIPE_BYTES, 0, NULL);
    if (output == INVALID_HANDLE_VALUE) {
        return failed("CreateNamedPipeW");
    }
    self->output = output;
    self->reading.hEvent = CreateEventW(NULL, TRUE, FALSE, NULL);
    if (self->reading.hEvent == NULL) {
        return failed("CreateEventW");
    }
    ends->output = CreateFileW(name, GENERIC_WRITE, 0, &inherited, OPEN_EXISTING, 0, NULL);
    return ends->output != INVALID_HANDLE_VALUE ? GPUIPC_OK : failed("CreateFileW");
}

/* Its standard error is this program's; it has no standard input. */
static gpuipc_status ends_make(child *self, child_ends *ends) {
    HANDLE own = GetStdHandle(STD_ERROR_HANDLE);
    gpuipc_status status = output_make(self, ends);
    if (status == GPUIPC_OK && own != NULL && own != INVALID_HANDLE_VALUE &&
        !DuplicateHandle(GetCurrentProcess(), own, GetCurrentProcess(), &ends->error, 0, TRUE,
                         DUPLICATE_SAME_ACCESS)) {
        status = failed("DuplicateHandle");
    }
    return status;
}

static gpuipc_status spawn(child *self, const wchar_t *path, wchar_t *line, child_ends *ends) {
    HANDLE inherited[] = {ends->output, ends->error};
    STARTUPINFOEXW startup;
    PROCESS_INFORMATION made;
    memset(&startup, 0, sizeof(startup));
    startup.StartupInfo.cb = sizeof(startup);
    startup.StartupInfo.dwFlags = STARTF_USESTDHANDLES;
    startup.StartupInfo.hStdOutput = ends->output;
    startup.StartupInfo.hStdError = ends->error;
    gpuipc_status status = job_start_make(inherited, ends->error != NULL ? 2 : 1, &self->job,
                                          &startup.lpAttributeList);
    if (status != GPUIPC_OK) {
        return status;
    }
    /* Under Wine a new process now and then ends before it has begun, which is answered by ERROR_INTERNAL_ERROR (wine's
     * dlls/ntdll/unix/process.c, NtCreateUserProcess). Nothing of it has run. */
    BOOL is_made = FALSE;
    for (int tries = 0;
         !is_made && (tries == 0 || (tries < 3 && GetLastError() == ERROR_INTERNAL_ERROR));
         tries++) {
        is_made = CreateProcessW(path, line, NULL, NULL, TRUE, EXTENDED_STARTUPINFO_PRESENT, NULL,
                                 NULL, &startup.StartupInfo, &made);
    }
    if (is_made) {
        CloseHandle(made.hThread);
        self->process = made.hProcess;
    } else {
        status = failed("CreateProcessW");
    }
    job_start_free(startup.lpAttributeList);
    return status;
}

/* This program's own file, for free(). */
static gpuipc_status own_path(wchar_t **out_path) {
    wchar_t *path = malloc(WORDS_LINE_MAX * sizeof(*path));
    if (path == NULL) {
        return status_out_of_memory(WORDS_LINE_MAX * sizeof(*path));
    }
    DWORD length = GetModuleFileNameW(NULL, path, WORDS_LINE_MAX);
    if (length == 0 || length == WORDS_LINE_MAX) {
        gpuipc_status status = failed("GetModuleFileNameW");
        free(path);
        return status;
    }
    *out_path = path;
    return GPUIPC_OK;
}

static gpuipc_status start(child *self, const char *const *arguments) {
    child_ends ends = {NULL, NULL};
    wchar_t *path = NULL;
    wchar_t *line;
    gpuipc_status status = own_path(&path);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = words_join(path, arguments, &line);
    if (status != GPUIPC_OK) {
        goto free_path;
    }
    status = job_make(&self->job);
    if (status == GPUIPC_OK) {
        status = ends_make(self, &ends);
    }
    if (status == GPUIPC_OK) {
        status = spawn(self, path, line, &ends);
    }
    close_if_open(ends.output);
    close_if_open(ends.error);
    free(line);
free_path:
    free(path);
    return status;
}

gpuipc_status child_start(const char *const *arguments, child **out_child) {
    status_enter(__func__);
    child *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return status_out_of_memory(sizeof(*self));
    }
    gpuipc_status status = start(self, arguments);
    if (status != GPUIPC_OK) {
        gpuipc_error why = status_save();
        child_destroy(self);
        status_restore(&why);
        return status;
    }
    *out_child = self;
    return GPUIPC_OK;
}

/* Moves the first line out of what was read; at the end of the output, what is left of one. The
 * child's C library ends its lines with "\r\n". */
static bool take_line(child *self, char *line, size_t capacity) {
    char *end = memchr(self->pending, '\n', self->pending_count);
    bool is_full = self->pending_count == sizeof(self->pending);
    bool is_last = self->output == NULL && self->pending_count > 0;
    if (end == NULL && !is_full && !is_last) {
        return false;
    }
    size_t length = end != NULL ? (size_t)(end - self->pending) : self->pending_count;
    size_t used = end != NULL ? length + 1 : length;
    if (end != NULL && length > 0 && self->pending[length - 1] == '\r') {
        length--;
    }
    size_t kept = length < capacity ? length : capacity - 1;
    memcpy(line, self->pending, kept);
    line[kept] = '\0';
    self->pending_count -= used;
    memmove(self->pending, self->pending + used, self->pending_count);
    return true;
}

/* It has ended, or it cannot be read, which is the same to whoever waits for more. */
static void end_output(child *self) {
    CloseHandle(self->output);
    self->output = NULL;
    self->has_end_to_tell = true;
}

/* False when the output has ended. */
static bool begin_reading(child *self) {
    HANDLE event = self->reading.hEvent;
    memset(&self->reading, 0, sizeof(self->reading));
    self->reading.hEvent = event;
    self->is_reading =
        ReadFile(self->output, self->pending + self->pending_count,
                 (DWORD)(sizeof(self->pending) - self->pending_count), NULL, &self->reading) ||
        GetLastError() == ERROR_IO_PENDING;
    return self->is_reading;
}

/* Waits for what is being read. False when the output has ended. */
static bool finish_reading(child *self) {
    DWORD got = 0;
    bool good = GetOverlappedResult(self->output, &self->reading, &got, TRUE);
    self->is_reading = false;
    self->pending_count += got;
    return good;
}

/* Reads from those whose output has not ended, until there is more of one, or its end. */
static gpuipc_status read_any(child *const *children, size_t count, os_deadline deadline) {
    HANDLE events[CHILDREN_MAX];
    child *readers[CHILDREN_MAX];
    DWORD reading = 0;
    for (size_t i = 0; i < count; i++) {
        child *self = children[i];
        if (self->output == NULL) {
            continue;
        }
        if (!self->is_reading && !begin_reading(self)) {
            end_output(self);
            return GPUIPC_OK;
        }
        events[reading] = self->reading.hEvent;
        readers[reading++] = self;
    }
    DWORD which = WAIT_TIMEOUT; /* of nobody */
    while (reading > 0) {
        which =
            WaitForMultipleObjects(reading, events, FALSE, (DWORD)os_deadline_left_ms(deadline));
        if (which != WAIT_TIMEOUT || os_deadline_passed(deadline)) {
            break;
        }
    }
    if (which == WAIT_TIMEOUT) {
        return status_fail(GPUIPC_ERR_TIMEOUT, "nothing was said in time");
    }
    if (which >= reading) {
        return failed("WaitForMultipleObjects");
    }
    if (!finish_reading(readers[which])) {
        end_output(readers[which]);
    }
    return GPUIPC_OK;
}

/* Whether one of them has a line, or its end to tell. */
static bool take_any(child *const *children, size_t count, size_t *which, char *line,
                     size_t capacity, gpuipc_status *out_status) {
    for (size_t i = 0; i < count; i++) {
        child *self = children[i];
        *which = i;
        if (take_line(self, line, capacity)) {
            *out_status = GPUIPC_OK;
            return true;
        }
        if (self->has_end_to_tell) {
            self->has_end_to_tell = false;
            *out_status = status_fail(GPUIPC_ERR_PEER_CLOSED, "its output ended");
            return true;
        }
    }
    return false;
}

gpuipc_status child_next(child *const *children, size_t count, os_deadline deadline, size_t *which,
                         char *line, size_t capacity) {
    status_enter(__func__);
    gpuipc_status status = GPUIPC_OK;
    while (!take_any(children, count, which, line, capacity, &status)) {
        status = read_any(children, count, deadline);
        if (status != GPUIPC_OK) {
            break;
        }
    }
    return status;
}

static bool wait_for_end(child *self, os_deadline deadline) {
    DWORD code;
    DWORD waited;
    do {
        waited = WaitForSingleObject(self->process, (DWORD)os_deadline_left_ms(deadline));
    } while (waited == WAIT_TIMEOUT && !os_deadline_passed(deadline));
    if (waited != WAIT_OBJECT_0) {
        return false;
    }
    bool known = GetExitCodeProcess(self->process, &code);
    self->end.exited = known && code < ERROR_SEVERITY;
    self->end.code = known ? (int)code : -1;
    return true;
}

child_end child_finish(child *self, os_deadline deadline, bool *out_killed) {
    bool killed = false;
    if (self->process != NULL && !wait_for_end(self, deadline)) {
        /* Refused when it has ended by itself just now; then that is its end. */
        killed = TerminateProcess(self->process, CODE_KILLED);
        /* In vain when it is stuck in the kernel, in a call that cannot be ended: it is left behind. */
        (void)wait_for_end(self, os_deadline_after(KILL_WAIT_MS));
    }
    close_if_open(self->process);
    self->process = NULL;
    *out_killed = killed;
    return self->end;
}

void child_destroy(child *self) {
    bool killed;
    if (self == NULL) {
        return;
    }
    (void)child_finish(self, os_deadline_after(0), &killed);
    if (self->is_reading) {
        (void)CancelIoEx(self->output, &self->reading); /* fails when it has just ended */
        (void)finish_reading(self);
    }
    close_if_open(self->output);
    close_if_open(self->reading.hEvent);
    close_if_open(self->job);
    free(self);
}

const char *child_end_text(child_end end, char text[CHILD_END_MAX]) {
    if (end.exited) {
        (void)snprintf(text, CHILD_END_MAX, "ended with exit code %d", end.code);
    } else {
        (void)snprintf(text, CHILD_END_MAX, "was ended by exception 0x%08X", (unsigned)end.code);
    }
    return text;
}
