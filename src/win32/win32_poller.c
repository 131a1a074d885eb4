/* SPDX-License-Identifier: MIT */
/**
 * @file Many pipes waited for at once, without a thread and without the limit of 64 objects.
 *
 * On each pipe a read of no bytes is under way. A message ends it with ERROR_MORE_DATA and stays where it is;
 * the end of the peer ends it as well. All these reads, and the listener's waiting for clients, have one event,
 * which is also what the caller's loop gets; which of them have ended is then looked up in memory.
 *
 * Whatever starts an operation resets that event, and so may hide the end of another one. Hence the rule: the
 * event is set whenever a read is not under way (it has ended, or was not started yet), but for the time that
 * os_poller_wait() looks; and that resets it first and goes on looking until it has started nothing more.
 */
#include "win32.h"

#include <stdlib.h>

/** How often everything is looked at before the event is set for once more. */
#define LOOKS_MAX 3

typedef enum watch_state {
    WATCH_IDLE,    /**< nothing is under way: to be started by the thread that waits */
    WATCH_PENDING, /**< the read was started, and its end was not seen yet */
    WATCH_READY,   /**< something has come, and nothing was received since */
    WATCH_OVER     /**< interrupted: for ever ready, and the pipe is not touched */
} watch_state;

struct win32_watch {
    OVERLAPPED operation;
    os_poller *poller;
    os_connection *connection; /**< whose watch_mutex guards operation and state */
    void *tag;
    size_t index; /**< in the poller */
    watch_state state;
};

/** All but is_woken and the event are the waiting thread's. */
struct os_poller {
    os_handle event;
    atomic_bool is_woken;
    os_listener *listener; /**< NULL: none */
    void *listener_tag;
    win32_watch **watches;
    size_t count;
    size_t room;
    size_t turn; /**< who is looked at first; the listener comes behind the last watch */
};

static void poller_signal(const os_poller *poller) {
    SetEvent(win32_handle_native(poller->event));
}

gpuipc_status os_poller_create(os_poller **out_poller) {
    os_poller *poller = calloc(1, sizeof(*poller));
    if (poller == NULL) {
        return status_out_of_memory(sizeof(*poller));
    }
    gpuipc_status status = win32_event_make(&poller->event);
    if (status != GPUIPC_OK) {
        free(poller);
        return status;
    }
    *out_poller = poller;
    return GPUIPC_OK;
}

/* ---- one connection; with its watch_mutex held --------------------------------------------- */

/** How a read ended. A thread's end takes back what it has started (learn.microsoft.com, ExitThread). Without
 *  an error an empty message came: since Windows 8 it is gone then. */
static void watch_ended(win32_watch *watch, DWORD code) {
    watch->state = code == ERROR_OPERATION_ABORTED ? WATCH_IDLE : WATCH_READY;
    watch->connection->has_empty |= code == 0;
}

static void watch_start(win32_watch *watch) {
    static char nothing;
    watch->operation = (OVERLAPPED){.hEvent = win32_handle_native(watch->poller->event)};
    DWORD code =
        ReadFile(win32_handle_native(watch->connection->pipe), &nothing, 0, NULL, &watch->operation)
            ? 0
            : GetLastError();
    if (code == ERROR_IO_PENDING) {
        watch->state = WATCH_PENDING;
    } else {
        watch_ended(watch, code); /* what else has gone wrong, who receives is told */
    }
}

static void watch_take_back(win32_watch *watch) {
    if (watch->state == WATCH_PENDING) {
        watch_ended(watch, win32_pipe_take_back(win32_handle_native(watch->connection->pipe),
                                                &watch->operation));
    }
}

/** @param started is counted up when the event was reset by this */
static bool watch_is_ready(win32_watch *watch, size_t *started) {
    DWORD ignored;
    AcquireSRWLockExclusive(&watch->connection->watch_mutex);
    if (watch->state == WATCH_PENDING && HasOverlappedIoCompleted(&watch->operation)) {
        BOOL done = GetOverlappedResult(win32_handle_native(watch->connection->pipe),
                                        &watch->operation, &ignored, FALSE);
        watch_ended(watch, done ? 0 : GetLastError());
    }
    if (watch->state == WATCH_IDLE) {
        watch_start(watch);
        (*started)++;
    }
    bool is_ready = watch->state == WATCH_READY || watch->state == WATCH_OVER;
    ReleaseSRWLockExclusive(&watch->connection->watch_mutex);
    return is_ready;
}

bool win32_watch_pause(os_connection *connection) {
    AcquireSRWLockExclusive(&connection->watch_mutex);
    win32_watch *watch = connection->watch;
    if (watch != NULL && watch->state == WATCH_PENDING) {
        watch_take_back(watch);
        poller_signal(watch->poller);
    }
    if (watch != NULL && watch->state != WATCH_OVER) {
        watch->state = WATCH_IDLE;
    }
    bool has_empty = connection->has_empty;
    connection->has_empty = false;
    ReleaseSRWLockExclusive(&connection->watch_mutex);
    return !has_empty;
}

void win32_watch_end(os_connection *connection) {
    AcquireSRWLockExclusive(&connection->watch_mutex);
    win32_watch *watch = connection->watch;
    if (watch != NULL) {
        watch_take_back(watch);
        watch->state = WATCH_OVER;
        poller_signal(watch->poller);
    }
    ReleaseSRWLockExclusive(&connection->watch_mutex);
}

/** Frees it. Its place in the poller is left as it is. */
static void watch_destroy(win32_watch *watch) {
    os_connection *connection = watch->connection;
    AcquireSRWLockExclusive(&connection->watch_mutex);
    watch_take_back(watch);
    connection->watch = NULL;
    ReleaseSRWLockExclusive(&connection->watch_mutex);
    free(watch);
}

void win32_watch_remove(os_connection *connection) {
    if (connection->watch != NULL) {
        os_poller_remove_connection(connection->watch->poller, connection);
    }
}

/* ---- what is in a poller ------------------------------------------------------------------- */

static gpuipc_status poller_make_room(os_poller *poller) {
    if (poller->count < poller->room) {
        return GPUIPC_OK;
    }
    size_t room = 2 * poller->room + 8;
    win32_watch **watches = realloc(poller->watches, room * sizeof(win32_watch *));
    if (watches == NULL) {
        return status_out_of_memory(room * sizeof(win32_watch *));
    }
    poller->watches = watches;
    poller->room = room;
    return GPUIPC_OK;
}

/** ERR_RELEASED after an interrupt, ERR_INVALID_ARGUMENT when it is in a poller. */
static gpuipc_status watch_attach(win32_watch *watch, os_connection *connection) {
    AcquireSRWLockExclusive(&connection->watch_mutex);
    gpuipc_status status = win32_connection_usable(connection);
    if (status == GPUIPC_OK && connection->watch != NULL) {
        status = status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "the connection is waited for already");
    }
    if (status == GPUIPC_OK) {
        connection->watch = watch;
    }
    ReleaseSRWLockExclusive(&connection->watch_mutex);
    return status;
}

gpuipc_status os_poller_add_connection(os_poller *poller, os_connection *connection, void *tag) {
    gpuipc_status status = poller_make_room(poller);
    if (status != GPUIPC_OK) {
        return status;
    }
    win32_watch *watch = malloc(sizeof(*watch));
    if (watch == NULL) {
        return status_out_of_memory(sizeof(*watch));
    }
    *watch = (win32_watch){.poller = poller,
                           .connection = connection,
                           .tag = tag,
                           .index = poller->count,
                           .state = WATCH_IDLE};
    status = watch_attach(watch, connection);
    if (status != GPUIPC_OK) {
        free(watch);
        return status;
    }
    poller->watches[poller->count++] = watch;
    poller_signal(poller);
    return GPUIPC_OK;
}

void os_poller_remove_connection(os_poller *poller, os_connection *connection) {
    win32_watch *watch = connection->watch;
    if (watch == NULL || watch->poller != poller) {
        return;
    }
    win32_watch *last = poller->watches[--poller->count];
    poller->watches[watch->index] = last;
    last->index = watch->index;
    watch_destroy(watch);
}

gpuipc_status os_poller_add_listener(os_poller *poller, os_listener *listener, void *tag) {
    if (poller->listener != NULL) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "a listener is waited for already");
    }
    gpuipc_status status =
        win32_listener_attach(listener, poller, win32_handle_native(poller->event));
    if (status == GPUIPC_OK) {
        poller->listener = listener;
        poller->listener_tag = tag;
    }
    return status;
}

void win32_poller_forget_listener(os_poller *poller) {
    poller->listener = NULL;
}

void os_poller_destroy(os_poller *poller) {
    if (poller == NULL) {
        return;
    }
    if (poller->listener != NULL) {
        win32_listener_detach(poller->listener);
    }
    for (size_t i = 0; i < poller->count; i++) {
        watch_destroy(poller->watches[i]);
    }
    free(poller->watches);
    os_handle_close(&poller->event);
    free(poller);
}

/* ---- waiting ------------------------------------------------------------------------------- */

/** Looks at each in turn: a wake-up costs in proportion to the connections, since all of them signal one event, as
 *  a thread waits for 64 at most (WaitForMultipleObjects). @return how many tags were found; they begin with whose turn it is */
static size_t poller_look(os_poller *poller, void **tags, size_t capacity, size_t *started) {
    size_t found = 0;
    size_t total = poller->count + (poller->listener != NULL ? 1 : 0);
    size_t first = total > 0 ? poller->turn % total : 0;
    for (size_t i = 0; i < total && (found < capacity || capacity == 0); i++) {
        size_t at = (first + i) % total;
        bool is_watch = at < poller->count;
        bool is_ready = is_watch ? watch_is_ready(poller->watches[at], started)
                                 : win32_listener_is_ready(poller->listener);
        if (is_ready && found < capacity) {
            tags[found++] = is_watch ? poller->watches[at]->tag : poller->listener_tag;
            poller->turn = at + 1;
        }
    }
    return found;
}

/** Everything that is ready now. A wake-up has a place kept for it, and is taken last: after that the event
 *  is not reset any more. */
static size_t poller_find(os_poller *poller, void **tags, size_t capacity) {
    size_t count;
    size_t started;
    size_t looks = 0;
    bool keep_place = atomic_load(&poller->is_woken);
    do {
        started = 0;
        ResetEvent(win32_handle_native(poller->event));
        count = poller_look(poller, tags, capacity - (keep_place ? 1 : 0), &started);
        looks++;
    } while (count == 0 && started > 0 && looks < LOOKS_MAX);
    if (count < capacity && atomic_exchange(&poller->is_woken, false)) {
        tags[count++] = OS_POLLER_WOKEN;
    }
    if (count > 0 || started > 0) {
        poller_signal(poller);
    }
    return count;
}

gpuipc_status os_poller_wait(os_poller *poller, os_deadline deadline, void **tags, size_t capacity,
                             size_t *out_count) {
    if (capacity == 0) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "there is no room for what is ready");
    }
    for (;;) {
        size_t count = poller_find(poller, tags, capacity);
        if (count > 0 || os_deadline_passed(deadline)) {
            *out_count = count;
            return GPUIPC_OK;
        }
        if (WaitForSingleObject(win32_handle_native(poller->event), win32_left_ms(deadline)) ==
            WAIT_FAILED) {
            return win32_fail(GetLastError(), "WaitForSingleObject",
                              "the poller cannot be waited for");
        }
    }
}

void os_poller_wake(os_poller *poller) {
    atomic_store(&poller->is_woken, true);
    poller_signal(poller);
}

struct os_process_watch {
    os_poller *poller;
    HANDLE wait;
};

static void CALLBACK process_ended(void *context, BOOLEAN timed_out) {
    const os_process_watch *watch = context;
    (void)timed_out;
    os_poller_wake(watch->poller);
}

gpuipc_status os_poller_watch(os_poller *poller, const os_peer *peer,
                              os_process_watch **out_watch) {
    if (!os_handle_is_valid(peer->process)) {
        return status_fail(GPUIPC_ERR_NOT_SUPPORTED, "there is no handle of the process");
    }
    os_process_watch *watch = malloc(sizeof(*watch));
    if (watch == NULL) {
        return status_out_of_memory(sizeof(*watch));
    }
    *watch = (os_process_watch){.poller = poller};
    if (!RegisterWaitForSingleObject(&watch->wait, win32_handle_native(peer->process),
                                     process_ended, watch, INFINITE, WT_EXECUTEONLYONCE)) {
        const DWORD code = GetLastError();
        free(watch);
        return win32_fail(code, "RegisterWaitForSingleObject",
                          "the end of process %llu cannot be waited for",
                          (unsigned long long)peer->process_id);
    }
    *out_watch = watch;
    return GPUIPC_OK;
}

/* learn.microsoft.com, UnregisterWaitEx: with INVALID_HANDLE_VALUE it waits for the callback, which takes no lock. */
void os_process_watch_destroy(os_process_watch *watch) {
    if (watch != NULL) {
        (void)UnregisterWaitEx(watch->wait, INVALID_HANDLE_VALUE);
        free(watch);
    }
}

intptr_t os_poller_native(os_poller *poller) {
    return poller->event.value;
}
