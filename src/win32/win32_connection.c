/* SPDX-License-Identifier: MIT */
/** @file Connections: opened by name, interrupted, closed. What goes over one is in
 *  win32_packet.c. */
#include "win32.h"

#include <stdlib.h>

static void connection_destroy(os_connection *connection) {
    os_handle_close(&connection->interrupted);
    os_handle_close(&connection->reading);
    os_handle_close(&connection->writing);
    os_peer_close(&connection->peer);
    free(connection->frame_in);
    free(connection->frame_out);
    free(connection);
}

gpuipc_status win32_connection_wrap(os_handle pipe, win32_pipe_end end,
                                    os_connection **out_connection) {
    gpuipc_status status;
    os_connection *connection = calloc(1, sizeof(*connection));
    if (connection == NULL) {
        return status_out_of_memory(sizeof(*connection));
    }
    connection->pipe = OS_HANDLE_NONE;
    connection->end = end;
    connection->peer.process = OS_HANDLE_NONE;
    connection->interrupted = OS_HANDLE_NONE;
    connection->reading = OS_HANDLE_NONE;
    connection->writing = OS_HANDLE_NONE;
    InitializeSRWLock(&connection->use);
    InitializeSRWLock(&connection->identity_mutex);
    InitializeSRWLock(&connection->watch_mutex);
    connection->frame_in = malloc(WIN32_FRAME_BYTES_MAX);
    connection->frame_out = malloc(WIN32_FRAME_BYTES_MAX);
    if (connection->frame_in == NULL || connection->frame_out == NULL) {
        status = status_out_of_memory(WIN32_FRAME_BYTES_MAX);
        goto free_connection;
    }
    if ((status = win32_event_make(&connection->interrupted)) != GPUIPC_OK ||
        (status = win32_event_make(&connection->reading)) != GPUIPC_OK ||
        (status = win32_event_make(&connection->writing)) != GPUIPC_OK) {
        goto free_connection;
    }
    connection->pipe = pipe;
    *out_connection = connection;
    return GPUIPC_OK;

free_connection:
    connection_destroy(connection);
    return status;
}

static gpuipc_status connection_try(const char *directory, const char *name, os_handle *out_pipe) {
    os_handle checked;
    wchar_t pipe_name[WIN32_PIPE_NAME_MAX];
    gpuipc_status status = win32_directory_open(directory, false, &checked);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = win32_name_look_up(directory, name, pipe_name);
    os_handle_close(&checked);
    return status == GPUIPC_OK ? win32_pipe_open(pipe_name, out_pipe) : status;
}

gpuipc_status os_connection_open(const os_directory *directory, const char *name,
                                 os_deadline deadline, os_connection **out_connection) {
    char path[OS_PATH_MAX];
    os_handle pipe;
    gpuipc_status status = win32_name_check(directory, name);
    if (status == GPUIPC_OK) {
        status = os_directory_resolve(directory, path, sizeof(path));
    }
    if (status != GPUIPC_OK) {
        return status;
    }
    unsigned pause = 0;
    for (;;) {
        status = connection_try(path, name, &pipe);
        bool may_pass = status == GPUIPC_ERR_NOT_FOUND || status == GPUIPC_ERR_TIMEOUT;
        if (!may_pass || os_deadline_passed(deadline)) {
            break;
        }
        os_sleep_ms(os_backoff_next(&pause, deadline));
    }
    if (status != GPUIPC_OK) {
        return status;
    }
    status = win32_connection_wrap(pipe, WIN32_PIPE_CLIENT, out_connection);
    if (status != GPUIPC_OK) {
        os_handle_close(&pipe);
    }
    return status;
}

gpuipc_status win32_connection_usable(const os_connection *connection) {
    if (atomic_load(&connection->is_interrupted)) {
        return status_fail(GPUIPC_ERR_RELEASED, "another thread closed the connection meanwhile");
    }
    return GPUIPC_OK;
}

gpuipc_status win32_connection_peer(os_connection *connection, const os_peer **out_peer) {
    gpuipc_status status = GPUIPC_OK;
    AcquireSRWLockExclusive(&connection->identity_mutex);
    if (!connection->peer_is_known && !os_handle_is_valid(connection->pipe)) {
        status = win32_connection_usable(connection);
    } else if (!connection->peer_is_known) {
        status = win32_peer_of_pipe(win32_handle_native(connection->pipe), connection->end,
                                    &connection->peer);
        connection->peer_is_known = status == GPUIPC_OK;
        connection->peer_was_refused = status != GPUIPC_OK;
    }
    ReleaseSRWLockExclusive(&connection->identity_mutex);
    if (status == GPUIPC_OK) {
        *out_peer = &connection->peer;
    }
    return status;
}

gpuipc_status os_connection_get_peer(os_connection *connection, os_peer *out_peer) {
    const os_peer *known;
    AcquireSRWLockShared(&connection->use);
    gpuipc_status status = win32_connection_peer(connection, &known);
    if (status == GPUIPC_OK) {
        os_peer copy = *known;
        if (os_handle_is_valid(known->process)) {
            status = os_handle_duplicate(known->process, &copy.process);
        }
        if (status == GPUIPC_OK) {
            *out_peer = copy;
        }
    }
    ReleaseSRWLockShared(&connection->use);
    return status;
}

void os_connection_set_look(os_connection *connection, uint32_t microseconds) {
    connection->look_us = microseconds;
}

/* The system tells the reader what is there, and not the writer. The handles of what is unread are in the peer's process
 * already, which so pays for them itself. */
bool os_connection_is_read(os_connection *connection) {
    (void)connection;
    return true;
}

/** Whether the other end is closed, with connection->use held and the pipe open. Where the system does not say, it is
 *  not. A peer that lives may just be taking what was exported to it, so that closing it there could close something else.
 *  @param out_unread bytes, which hide that it is closed */
static bool pipe_has_ended(const os_connection *connection, DWORD *out_unread) {
    *out_unread = 0;
    return !PeekNamedPipe(win32_handle_native(connection->pipe), NULL, 0, NULL, out_unread, NULL) &&
           win32_error_status(GetLastError()) == GPUIPC_ERR_PEER_CLOSED;
}

bool os_connection_has_ended(os_connection *connection) {
    DWORD unread;
    bool ended = false;
    AcquireSRWLockShared(&connection->use);
    if (!atomic_load(&connection->is_interrupted)) {
        ended = pipe_has_ended(connection, &unread);
    }
    ReleaseSRWLockShared(&connection->use);
    return ended;
}

/* The pipe stays, with what is in it, for os_connection_take_rest(). */
void os_connection_stop(os_connection *connection) {
    atomic_store(&connection->is_interrupted, true);
    SetEvent(win32_handle_native(connection->interrupted));
}

/** With connection->use held alone. */
static void pipe_close(os_connection *connection, bool peer_closed) {
    os_handle_close(&connection->pipe); /* first: see os_connection_end() */
    win32_exporter_end(&connection->exporter, peer_closed);
    win32_importer_end(&connection->importer);
}

/* Closing the pipe is what makes the peer see the end; it may still read what was sent. A client's
 * end has no other way, and DisconnectNamedPipe, which a server's has, throws away what the client
 * has not read. So calls that wait are woken first, and when all have left the pipe goes. */
void os_connection_interrupt(os_connection *connection) {
    DWORD unread;
    os_connection_stop(connection);
    AcquireSRWLockExclusive(&connection->use);
    if (os_handle_is_valid(connection->pipe)) {
        gpuipc_error why = status_save();
        win32_watch_end(connection);
        win32_packet_drain(connection);
        pipe_close(connection, pipe_has_ended(connection, &unread));
        status_restore(&why);
    }
    ReleaseSRWLockExclusive(&connection->use);
}

/* Nothing stands between the look and the closing. A peer that within this moment sends something, looks in its turn and
 * closes its own end is not told that nobody took it: of a pipe one end cannot be closed for writing alone. */
bool os_connection_end(os_connection *connection, bool *out_peer_closed) {
    bool is_over = true;
    bool peer_closed = false;
    DWORD unread;
    AcquireSRWLockExclusive(&connection->use);
    if (os_handle_is_valid(connection->pipe)) {
        win32_watch_end(connection);
        peer_closed = pipe_has_ended(connection, &unread);
        is_over = peer_closed || unread == 0 || connection->rest_is_over;
        if (is_over) {
            gpuipc_error why = status_save();
            pipe_close(connection, peer_closed);
            status_restore(&why);
        }
    }
    ReleaseSRWLockExclusive(&connection->use);
    *out_peer_closed = peer_closed;
    return is_over;
}

void os_connection_destroy(os_connection *connection) {
    os_connection_interrupt(connection);
    win32_watch_remove(connection);
    connection_destroy(connection);
}
