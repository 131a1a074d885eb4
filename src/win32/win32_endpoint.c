/* SPDX-License-Identifier: MIT */
/** @file Listeners: a name made, clients let in, one after the other. */
#include "win32.h"

#include <stdio.h>
#include <stdlib.h>

/* How many clients can connect before one is accepted: as many instances of the pipe wait for one.
 * The next client finds the pipe busy and tries again (win32_connection.c). */
#define BACKLOG 8

/** One instance of the pipe that waits for a client. */
typedef struct instance {
    os_handle pipe;  /**< none: could not be made, to be tried again */
    os_handle event; /**< set when a client has connected */
    OVERLAPPED operation;
    bool is_pending; /**< the operation was started, and its end was not seen yet */
    uint64_t number; /**< in the order of making */
} instance;

struct os_listener {
    SRWLOCK use; /**< shared: in accept; exclusive: closing */
    SRWLOCK instances_mutex;
    instance instances[BACKLOG];
    uint64_t made; /**< instances so far */
    wchar_t pipe_name[WIN32_PIPE_NAME_MAX];
    os_handle name;        /**< the file that tells it */
    os_handle interrupted; /**< event */
    atomic_bool is_interrupted;
};

/** Takes the waiting for a client back, and closes the pipe. */
static void instance_close(instance *self) {
    HANDLE pipe = win32_handle_native(self->pipe);
    DWORD ignored;
    if (self->is_pending) {
        CancelIoEx(pipe, &self->operation);
        GetOverlappedResult(pipe, &self->operation, &ignored, TRUE);
        self->is_pending = false;
    }
    os_handle_close(&self->pipe);
    ResetEvent(win32_handle_native(self->event));
}

/** Starts waiting for a client on an instance's pipe, which is closed on failure. */
static gpuipc_status instance_connect(instance *self) {
    self->operation = (OVERLAPPED){.hEvent = win32_handle_native(self->event)};
    if (ConnectNamedPipe(win32_handle_native(self->pipe), &self->operation)) {
        self->is_pending = true; /* "returns zero" in overlapped mode; not relied upon */
        return GPUIPC_OK;
    }
    DWORD code = GetLastError();
    switch (code) {
    case ERROR_IO_PENDING:
        self->is_pending = true;
        return GPUIPC_OK;
    case ERROR_PIPE_CONNECTED:
    case ERROR_NO_DATA: /* connected, and closed again: what it has sent is still to be read */
        SetEvent(win32_handle_native(self->event));
        return GPUIPC_OK;
    default:
        os_handle_close(&self->pipe);
        return win32_fail(code, "ConnectNamedPipe", "the pipe cannot wait for a client");
    }
}

/** Makes a new pipe in the place of one that was handed out. */
static gpuipc_status instance_listen(os_listener *listener, instance *self) {
    gpuipc_status status = win32_pipe_make(listener->pipe_name, listener->made == 0, &self->pipe);
    if (status != GPUIPC_OK) {
        return status;
    }
    self->number = ++listener->made;
    return instance_connect(self);
}

/** Whether a client has connected. The system takes back what a thread has started when that thread
 *  ends (learn.microsoft.com, ExitThread), so the waiting may have to be started again. */
static bool instance_has_client(instance *self) {
    DWORD ignored;
    if (!os_handle_is_valid(self->pipe) ||
        WaitForSingleObject(win32_handle_native(self->event), 0) != WAIT_OBJECT_0) {
        return false;
    }
    if (self->is_pending) {
        self->is_pending = false;
        if (!GetOverlappedResult(win32_handle_native(self->pipe), &self->operation, &ignored,
                                 FALSE) &&
            GetLastError() == ERROR_OPERATION_ABORTED) {
            (void)instance_connect(self); /* where that fails, the next call makes a new pipe */
            return os_handle_is_valid(self->pipe) && !self->is_pending;
        }
    }
    return true;
}

static void listener_free(os_listener *listener) {
    for (size_t i = 0; i < BACKLOG; i++) {
        os_handle_close(&listener->instances[i].event);
    }
    os_handle_close(&listener->interrupted);
    free(listener);
}

/** Closes it, and what a client that was never accepted has put into this process. */
static void instance_end(instance *self) {
    os_connection *connection;
    gpuipc_error why = status_save();
    if (instance_has_client(self) &&
        win32_connection_wrap(self->pipe, WIN32_PIPE_SERVER, &connection) == GPUIPC_OK) {
        self->pipe = OS_HANDLE_NONE;
        os_connection_destroy(connection);
    }
    instance_close(self);
    status_restore(&why);
}

static void listener_close(os_listener *listener) {
    /* The name first: whoever finds it finds a pipe. */
    os_handle_close(&listener->name);
    for (size_t i = 0; i < BACKLOG; i++) {
        instance_end(&listener->instances[i]);
    }
}

static gpuipc_status listener_new(os_listener **out_listener) {
    os_listener *listener = calloc(1, sizeof(*listener));
    if (listener == NULL) {
        return status_out_of_memory("os_listener_open", sizeof(*listener));
    }
    InitializeSRWLock(&listener->use);
    InitializeSRWLock(&listener->instances_mutex);
    listener->name = OS_HANDLE_NONE;
    listener->interrupted = OS_HANDLE_NONE;
    for (size_t i = 0; i < BACKLOG; i++) {
        listener->instances[i].pipe = OS_HANDLE_NONE;
        listener->instances[i].event = OS_HANDLE_NONE;
    }
    gpuipc_status status = win32_event_make(&listener->interrupted);
    for (size_t i = 0; i < BACKLOG && status == GPUIPC_OK; i++) {
        status = win32_event_make(&listener->instances[i].event);
    }
    if (status != GPUIPC_OK) {
        listener_free(listener);
        return status;
    }
    *out_listener = listener;
    return GPUIPC_OK;
}

static void log_replaced(const char *name, const os_log *log) {
    char sentence[256];
    if (log != NULL && log->write != NULL) {
        (void)snprintf(sentence, sizeof(sentence),
                       "replaced the name \"%s\", left by a process that is gone", name);
        log->write(log->user_data, sentence);
    }
}

/** The pipe is there before its name is told. */
static gpuipc_status listener_listen(os_listener *listener, const char *path, const char *name,
                                     const os_log *log) {
    bool replaced = false;
    gpuipc_status status = win32_pipe_name_make(listener->pipe_name);
    for (size_t i = 0; i < BACKLOG && status == GPUIPC_OK; i++) {
        status = instance_listen(listener, &listener->instances[i]);
    }
    if (status == GPUIPC_OK) {
        status = win32_name_publish(path, name, listener->pipe_name, &listener->name, &replaced);
    }
    if (status == GPUIPC_OK && replaced) {
        log_replaced(name, log);
    }
    return status;
}

gpuipc_status os_listener_open(const os_directory *directory, const char *name, const os_log *log,
                               os_listener **out_listener) {
    char path[OS_PATH_MAX];
    os_handle checked;
    os_listener *listener = NULL;
    gpuipc_status status = win32_name_check(directory, name);
    if (status == GPUIPC_OK) {
        status = os_directory_resolve(directory, path, sizeof(path));
    }
    if (status == GPUIPC_OK) {
        status = win32_directory_open(path, true, &checked);
    }
    if (status != GPUIPC_OK) {
        return status;
    }
    status = listener_new(&listener);
    if (status != GPUIPC_OK) {
        goto close_directory;
    }
    status = listener_listen(listener, path, name, log);
    if (status != GPUIPC_OK) {
        listener_close(listener);
        listener_free(listener);
        goto close_directory;
    }
    *out_listener = listener;

close_directory:
    os_handle_close(&checked);
    return status;
}

/** With the mutex held: the instance that has waited longest among those with a client. */
static instance *listener_find(os_listener *listener) {
    instance *found = NULL;
    for (size_t i = 0; i < BACKLOG; i++) {
        instance *self = &listener->instances[i];
        if (instance_has_client(self) && (found == NULL || self->number < found->number)) {
            found = self;
        }
    }
    return found;
}

/** With the mutex held: hands an instance's pipe out, and puts a new one in its place at once, so
 *  that there is always one for the next client. Where that fails, the next call tries again. */
static void instance_take(os_listener *listener, instance *self, os_handle *out_pipe) {
    *out_pipe = self->pipe;
    self->pipe = OS_HANDLE_NONE;
    self->is_pending = false;
    ResetEvent(win32_handle_native(self->event));
    gpuipc_error why = status_save();
    (void)instance_listen(listener, self);
    status_restore(&why);
}

/** With the mutex held: makes the instances that could not be made. An error only if there is none. */
static gpuipc_status listener_refill(os_listener *listener) {
    gpuipc_status status = GPUIPC_OK;
    size_t waiting = 0;
    for (size_t i = 0; i < BACKLOG; i++) {
        instance *self = &listener->instances[i];
        if (!os_handle_is_valid(self->pipe) && status == GPUIPC_OK) {
            status = instance_listen(listener, self);
        }
        waiting += os_handle_is_valid(self->pipe);
    }
    return waiting > 0 ? GPUIPC_OK : status;
}

/** One try. *out_pipe is none when nobody has connected yet. */
static gpuipc_status listener_try(os_listener *listener, os_handle *out_pipe) {
    *out_pipe = OS_HANDLE_NONE;
    AcquireSRWLockExclusive(&listener->instances_mutex);
    gpuipc_status status = listener_refill(listener);
    instance *found = status == GPUIPC_OK ? listener_find(listener) : NULL;
    if (found != NULL) {
        instance_take(listener, found, out_pipe);
    }
    ReleaseSRWLockExclusive(&listener->instances_mutex);
    return status;
}

/** Waits for a client, for the interrupt, or for @p until. */
static gpuipc_status listener_wait(os_listener *listener, os_deadline until) {
    HANDLE events[BACKLOG + 1];
    events[0] = win32_handle_native(listener->interrupted);
    for (size_t i = 0; i < BACKLOG; i++) {
        events[i + 1] = win32_handle_native(listener->instances[i].event);
    }
    if (WaitForMultipleObjects(BACKLOG + 1, events, FALSE, win32_left_ms(until)) == WAIT_FAILED) {
        return win32_fail(GetLastError(), "WaitForMultipleObjects",
                          "the listener cannot be waited for");
    }
    return GPUIPC_OK;
}

static gpuipc_status listener_accept(os_listener *listener, os_deadline deadline,
                                     os_handle *out_pipe) {
    unsigned pause = 0;
    for (;;) {
        if (atomic_load(&listener->is_interrupted)) {
            return status_fail(GPUIPC_ERR_RELEASED, "accept", "the listener was interrupted");
        }
        gpuipc_status status = listener_try(listener, out_pipe);
        bool at_limit = status == GPUIPC_ERR_TOO_MANY_HANDLES;
        if ((status != GPUIPC_OK && !at_limit) || os_handle_is_valid(*out_pipe)) {
            return status;
        }
        if (os_deadline_passed(deadline)) {
            return at_limit ? status
                            : status_fail(GPUIPC_ERR_TIMEOUT, "accept",
                                          "nobody connected before the time ran out");
        }
        os_deadline until =
            at_limit ? os_deadline_after((int)os_backoff_next(&pause, deadline)) : deadline;
        status = listener_wait(listener, until);
        if (status != GPUIPC_OK) {
            return status;
        }
    }
}

gpuipc_status os_listener_accept(os_listener *listener, os_deadline deadline,
                                 os_connection **out_connection) {
    os_handle pipe;
    AcquireSRWLockShared(&listener->use);
    gpuipc_status status = listener_accept(listener, deadline, &pipe);
    ReleaseSRWLockShared(&listener->use);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = win32_connection_wrap(pipe, WIN32_PIPE_SERVER, out_connection);
    if (status != GPUIPC_OK) {
        os_handle_close(&pipe);
    }
    return status;
}

void os_listener_interrupt(os_listener *listener) {
    if (atomic_exchange(&listener->is_interrupted, true)) {
        return;
    }
    SetEvent(win32_handle_native(listener->interrupted));
    AcquireSRWLockExclusive(&listener->use);
    listener_close(listener);
    ReleaseSRWLockExclusive(&listener->use);
}

void os_listener_destroy(os_listener *listener) {
    os_listener_interrupt(listener);
    listener_free(listener);
}
