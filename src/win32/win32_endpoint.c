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
    os_handle event; /**< set when a client has connected, unless the listener has a poller */
    OVERLAPPED operation;
    bool is_pending; /**< the operation was started, and its end was not seen yet */
    bool has_client; /**< its end was seen */
    uint64_t number; /**< in the order of making */
} instance;

struct os_listener {
    SRWLOCK use; /**< shared: in accept; exclusive: closing */
    SRWLOCK instances_mutex;
    instance instances[BACKLOG];
    uint64_t made;     /**< instances so far */
    os_poller *poller; /**< NULL: none; guarded by instances_mutex, as is the next */
    HANDLE shared;     /**< the poller's event, which stands for those of the instances */
    wchar_t pipe_name[WIN32_PIPE_NAME_MAX];
    os_handle name;        /**< the file that tells it */
    os_handle interrupted; /**< event */
    atomic_bool is_interrupted;
};

/** Takes the waiting for a client back, and closes the pipe. */
static void instance_close(instance *self) {
    if (self->is_pending) {
        (void)win32_pipe_take_back(win32_handle_native(self->pipe), &self->operation);
        self->is_pending = false;
    }
    self->has_client = false;
    os_handle_close(&self->pipe);
    ResetEvent(win32_handle_native(self->event));
}

/** Starts waiting for a client on an instance's pipe, which is closed on failure. */
static gpuipc_status instance_connect(os_listener *listener, instance *self) {
    HANDLE event = listener->shared != NULL ? listener->shared : win32_handle_native(self->event);
    self->operation = (OVERLAPPED){.hEvent = event};
    /* "returns zero" in overlapped mode; not relied upon */
    DWORD code = ConnectNamedPipe(win32_handle_native(self->pipe), &self->operation)
                     ? ERROR_IO_PENDING
                     : GetLastError();
    self->is_pending = code == ERROR_IO_PENDING;
    /* NO_DATA: connected, and closed again: what it has sent is still to be read */
    self->has_client = code == ERROR_PIPE_CONNECTED || code == ERROR_NO_DATA;
    if (self->has_client || listener->shared != NULL) {
        SetEvent(event); /* the call has reset it, for whatever it was set (win32_poller.c) */
    }
    if (!self->is_pending && !self->has_client) {
        os_handle_close(&self->pipe);
        return win32_fail(code, "ConnectNamedPipe", "the pipe cannot wait for a client");
    }
    return GPUIPC_OK;
}

/** Makes a new pipe in the place of one that was handed out. */
static gpuipc_status instance_listen(os_listener *listener, instance *self) {
    gpuipc_status status = win32_pipe_make(listener->pipe_name, listener->made == 0, &self->pipe);
    if (status != GPUIPC_OK) {
        return status;
    }
    self->number = ++listener->made;
    return instance_connect(listener, self);
}

/** Whether a client has connected. The system takes back what a thread has started when that thread
 *  ends (learn.microsoft.com, ExitThread), so the waiting may have to be started again. */
static bool instance_has_client(os_listener *listener, instance *self) {
    DWORD ignored;
    if (self->is_pending && HasOverlappedIoCompleted(&self->operation)) {
        self->is_pending = false;
        if (!GetOverlappedResult(win32_handle_native(self->pipe), &self->operation, &ignored,
                                 FALSE) &&
            GetLastError() == ERROR_OPERATION_ABORTED) {
            (void)instance_connect(listener,
                                   self); /* where that fails, the next call makes a new pipe */
        } else {
            self->has_client = true;
        }
    }
    return self->has_client;
}

static void listener_destroy(os_listener *listener) {
    for (size_t i = 0; i < BACKLOG; i++) {
        os_handle_close(&listener->instances[i].event);
    }
    os_handle_close(&listener->interrupted);
    free(listener);
}

/** Closes it, and what a client that was never accepted has put into this process. */
static void instance_end(os_listener *listener, instance *self) {
    os_connection *connection;
    gpuipc_error why = status_save();
    if (instance_has_client(listener, self) &&
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
        instance_end(listener, &listener->instances[i]);
    }
}

static gpuipc_status listener_new(os_listener **out_listener) {
    os_listener *listener = calloc(1, sizeof(*listener));
    if (listener == NULL) {
        return status_out_of_memory(sizeof(*listener));
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
        listener_destroy(listener);
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
        listener_destroy(listener);
        goto close_directory;
    }
    *out_listener = listener;

close_directory:
    os_handle_close(&checked);
    return status;
}

/* Names are open files in the user's profile: a logout ends the process, and cleaners leave open files alone. */
gpuipc_status os_listener_renew(os_listener *listener, int wait_ms) {
    (void)listener;
    (void)wait_ms;
    return GPUIPC_OK;
}

/* A second name is a second file that tells the same pipe. */
struct os_name {
    os_handle file;
};

gpuipc_status os_listener_add_name(os_listener *listener, const os_directory *directory,
                                   const char *name, const os_log *log, os_name **out_name) {
    char path[OS_PATH_MAX];
    bool replaced = false;
    os_handle checked;
    gpuipc_status status = win32_name_check(directory, name);
    if (status == GPUIPC_OK) {
        status = os_directory_resolve(directory, path, sizeof(path));
    }
    if (status == GPUIPC_OK) { /* held open, so that nobody can put another in its place */
        status = win32_directory_open(path, false, &checked);
    }
    if (status != GPUIPC_OK) {
        return status;
    }
    os_name *made = malloc(sizeof(*made));
    status = made == NULL
                 ? status_out_of_memory(sizeof(*made))
                 : win32_name_publish(path, name, listener->pipe_name, &made->file, &replaced);
    os_handle_close(&checked);
    if (status != GPUIPC_OK) {
        free(made);
        return status;
    }
    if (replaced) {
        log_replaced(name, log);
    }
    *out_name = made;
    return GPUIPC_OK;
}

void os_name_close(os_name *name) {
    if (name != NULL) {
        os_handle_close(&name->file);
    }
    free(name);
}

/** With the mutex held: the instance that has waited longest among those with a client. */
static instance *listener_find(os_listener *listener) {
    instance *found = NULL;
    for (size_t i = 0; i < BACKLOG; i++) {
        instance *self = &listener->instances[i];
        if (instance_has_client(listener, self) &&
            (found == NULL || self->number < found->number)) {
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
    self->has_client = false;
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

/** Waits for a client, for the interrupt, or for @p until. With a poller, whose event is set for much else,
 *  the caller looks again from time to time. */
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

static bool listener_has_poller(os_listener *listener) {
    AcquireSRWLockShared(&listener->instances_mutex);
    bool has_poller = listener->poller != NULL;
    ReleaseSRWLockShared(&listener->instances_mutex);
    return has_poller;
}

static gpuipc_status listener_accept(os_listener *listener, os_deadline deadline,
                                     os_handle *out_pipe) {
    unsigned pause = 0;
    for (;;) {
        if (atomic_load(&listener->is_interrupted)) {
            return status_fail(GPUIPC_ERR_RELEASED, "another thread closed the listener meanwhile");
        }
        gpuipc_status status = listener_try(listener, out_pipe);
        bool at_limit = status == GPUIPC_ERR_TOO_MANY_HANDLES;
        bool has_poller = listener_has_poller(listener);
        if ((status != GPUIPC_OK && !at_limit) || os_handle_is_valid(*out_pipe)) {
            return status;
        }
        if (os_deadline_passed(deadline)) {
            return at_limit ? status
                            : status_fail(GPUIPC_ERR_TIMEOUT,
                                          "nobody connected before the time ran out");
        }
        os_deadline until =
            at_limit || has_poller
                ? os_deadline_inherit(os_deadline_after((int)os_backoff_next(&pause, deadline)),
                                      deadline)
                : deadline;
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

/** With the mutex held: the waiting for clients sets another event from now on. */
static void listener_turn_to(os_listener *listener, os_poller *poller, HANDLE event) {
    listener->poller = poller;
    listener->shared = event;
    for (size_t i = 0; i < BACKLOG; i++) {
        instance *self = &listener->instances[i];
        if (self->is_pending) {
            /* taken back: started again, as after the end of a thread */
            (void)win32_pipe_take_back(win32_handle_native(self->pipe), &self->operation);
        }
        ResetEvent(win32_handle_native(self->event));
        if (instance_has_client(listener, self)) {
            SetEvent(event != NULL ? event : win32_handle_native(self->event));
        }
    }
}

gpuipc_status win32_listener_attach(os_listener *listener, os_poller *poller, HANDLE event) {
    gpuipc_status status = GPUIPC_OK;
    AcquireSRWLockShared(&listener->use);
    AcquireSRWLockExclusive(&listener->instances_mutex);
    if (atomic_load(&listener->is_interrupted)) {
        status = status_fail(GPUIPC_ERR_RELEASED, "another thread closed the listener meanwhile");
    } else if (listener->poller != NULL) {
        status = status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "the listener is waited for already");
    } else {
        listener_turn_to(listener, poller, event);
    }
    ReleaseSRWLockExclusive(&listener->instances_mutex);
    ReleaseSRWLockShared(&listener->use);
    return status;
}

void win32_listener_detach(os_listener *listener) {
    gpuipc_error why = status_save();
    AcquireSRWLockShared(&listener->use);
    AcquireSRWLockExclusive(&listener->instances_mutex);
    listener_turn_to(listener, NULL, NULL);
    ReleaseSRWLockExclusive(&listener->instances_mutex);
    ReleaseSRWLockShared(&listener->use);
    status_restore(&why);
}

/* With no instance left nobody can connect: accept has the reason, or makes new ones. */
bool win32_listener_is_ready(os_listener *listener) {
    size_t waiting = 0;
    bool is_ready = false;
    gpuipc_error why = status_save();
    AcquireSRWLockShared(&listener->use);
    AcquireSRWLockExclusive(&listener->instances_mutex);
    for (size_t i = 0; i < BACKLOG && !is_ready && !atomic_load(&listener->is_interrupted); i++) {
        is_ready = instance_has_client(listener, &listener->instances[i]);
        waiting += os_handle_is_valid(listener->instances[i].pipe);
    }
    ReleaseSRWLockExclusive(&listener->instances_mutex);
    ReleaseSRWLockShared(&listener->use);
    status_restore(&why);
    return is_ready || waiting == 0;
}

bool os_listener_refuse(os_listener *listener) {
    os_connection *connection;
    gpuipc_error why = status_save();
    const bool is_taken =
        os_listener_accept(listener, os_deadline_after(0), &connection) == GPUIPC_OK;
    if (is_taken) {
        os_connection_destroy(connection);
    }
    status_restore(&why);
    return is_taken;
}

void os_listener_interrupt(os_listener *listener) {
    if (atomic_exchange(&listener->is_interrupted, true)) {
        return;
    }
    SetEvent(win32_handle_native(listener->interrupted));
    AcquireSRWLockExclusive(&listener->use);
    listener_close(listener);
    if (listener->shared != NULL) {
        SetEvent(listener->shared);
    }
    ReleaseSRWLockExclusive(&listener->use);
}

void os_listener_destroy(os_listener *listener) {
    os_listener_interrupt(listener);
    if (listener->poller != NULL) {
        win32_poller_forget_listener(listener->poller);
    }
    listener_destroy(listener);
}
