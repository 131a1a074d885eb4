/* SPDX-License-Identifier: MIT */
/** @file See raw_peer.h and win32_raw_peer.h. */
#include "win32_raw_peer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>
#include <windows.h>

#include "raw_handle.h"
#include "unique.h"

#define PIPE_BYTES   RAW_FRAME_BYTES_MAX
#define LEDGER_BYTES 4096
#define PATH_UNITS   512

/* Handles that were put into the other process with one packet. */
typedef struct loan {
    struct loan *next;
    uint64_t number; /* of the packet */
    size_t count;
    uint64_t values[RAW_FRAME_HANDLES_MAX];
} loan;

struct raw_peer {
    HANDLE pipe;
    HANDLE done; /* the event of what is being done with the pipe */
    bool is_server;
    HANDLE receiver;          /* the process at the other end; NULL: nothing was exported yet */
    HANDLE section;           /* the ledger that is ours to make */
    volatile uint64_t *taken; /* in it */
    uint64_t sent;            /* packets with handles */
    loan *loans;
    volatile uint64_t *received; /* in the other end's ledger; NULL: none came */
};

struct raw_listener {
    HANDLE file; /* tells the pipe's name */
    raw_peer *next;
};

static void close_if_open(HANDLE handle) {
    if (handle != NULL && handle != INVALID_HANDLE_VALUE) {
        CloseHandle(handle);
    }
}

/* Takes over the pipe, if there is one. */
static raw_peer *peer_make(HANDLE pipe, bool is_server) {
    raw_peer *self = pipe == INVALID_HANDLE_VALUE ? NULL : calloc(1, sizeof(*self));
    if (self == NULL) {
        close_if_open(pipe);
        return NULL;
    }
    self->pipe = pipe;
    self->is_server = is_server;
    self->done = CreateEventW(NULL, TRUE, FALSE, NULL);
    if (self->done == NULL) {
        raw_close(self);
        return NULL;
    }
    return self;
}

/* Where a listener tells the name of its pipe: src/win32/win32_name.c. */
static bool path_make(const char *directory, const char *name, wchar_t path[PATH_UNITS]) {
    char text[PATH_UNITS];
    int length = snprintf(text, sizeof(text), "%s\\%s.pipe", directory, name);
    return length > 0 && (size_t)length < sizeof(text) &&
           MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, text, -1, path, PATH_UNITS) > 0;
}

/* The last word of the first line of the file. */
static bool name_read(const wchar_t *path, wchar_t name[PATH_UNITS]) {
    char text[PATH_UNITS];
    DWORD got = 0;
    HANDLE file =
        CreateFileW(path, GENERIC_READ, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE,
                    NULL, OPEN_EXISTING, 0, NULL);
    if (file == INVALID_HANDLE_VALUE) {
        return false;
    }
    bool read = ReadFile(file, text, sizeof(text) - 1, &got, NULL);
    CloseHandle(file);
    text[got] = '\0';
    text[strcspn(text, "\r\n")] = '\0';
    const char *word = strrchr(text, ' ');
    return read && word != NULL &&
           MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, word + 1, -1, name, PATH_UNITS) > 0;
}

raw_peer *raw_connect(const char *directory, const char *name) {
    wchar_t path[PATH_UNITS];
    wchar_t pipe_name[PATH_UNITS];
    DWORD mode = PIPE_READMODE_MESSAGE;
    if (!path_make(directory, name, path) || !name_read(path, pipe_name)) {
        return NULL;
    }
    raw_peer *self = peer_make(CreateFileW(pipe_name, GENERIC_READ | GENERIC_WRITE, 0, NULL,
                                           OPEN_EXISTING, FILE_FLAG_OVERLAPPED, NULL),
                               false);
    if (self != NULL && !SetNamedPipeHandleState(self->pipe, &mode, NULL, NULL)) {
        raw_close(self);
        return NULL;
    }
    return self;
}

static bool name_write(raw_listener *self, const wchar_t *path, const char *pipe_name) {
    char line[PATH_UNITS];
    DWORD written;
    int length = snprintf(line, sizeof(line), "gpuipc 1 %s\n", pipe_name);
    self->file = CreateFileW(path, GENERIC_WRITE | DELETE, FILE_SHARE_READ | FILE_SHARE_DELETE,
                             NULL, CREATE_NEW, FILE_FLAG_DELETE_ON_CLOSE, NULL);
    return self->file != INVALID_HANDLE_VALUE &&
           WriteFile(self->file, line, (DWORD)length, &written, NULL) && written == (DWORD)length;
}

raw_listener *raw_listen(const char *directory, const char *name) {
    char unique[UNIQUE_NAME_MAX];
    char text[UNIQUE_NAME_MAX + 32];
    wchar_t pipe_name[PATH_UNITS];
    wchar_t path[PATH_UNITS];
    raw_listener *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return NULL;
    }
    unique_name(unique);
    (void)snprintf(text, sizeof(text), "\\\\.\\pipe\\gpuipc-%s", unique);
    MultiByteToWideChar(CP_UTF8, 0, text, -1, pipe_name, PATH_UNITS);
    self->next = peer_make(
        CreateNamedPipeW(pipe_name,
                         PIPE_ACCESS_DUPLEX | FILE_FLAG_OVERLAPPED | FILE_FLAG_FIRST_PIPE_INSTANCE,
                         PIPE_TYPE_MESSAGE | PIPE_READMODE_MESSAGE | PIPE_REJECT_REMOTE_CLIENTS, 1,
                         PIPE_BYTES, PIPE_BYTES, 0, NULL),
        true);
    if (self->next == NULL || !path_make(directory, name, path) || !name_write(self, path, text)) {
        raw_listener_close(self);
        return NULL;
    }
    return self;
}

/* Waits for the end of what was started, and takes it back when that does not come in time.
 * @return 0, or Windows' code */
static DWORD finish(raw_peer *self, OVERLAPPED *operation, bool started, DWORD timeout_ms,
                    DWORD *out_bytes) {
    if (!started && GetLastError() != ERROR_IO_PENDING) {
        return GetLastError();
    }
    if (WaitForSingleObject(self->done, timeout_ms) != WAIT_OBJECT_0) {
        CancelIoEx(self->pipe, operation); /* fails when it has just ended */
    }
    return GetOverlappedResult(self->pipe, operation, out_bytes, TRUE) ? 0 : GetLastError();
}

raw_peer *raw_accept(raw_listener *listener, int timeout_ms) {
    raw_peer *self = listener->next;
    DWORD unused;
    OVERLAPPED operation = {.hEvent = self->done};
    BOOL started = ConnectNamedPipe(self->pipe, &operation);
    DWORD code = finish(self, &operation, started, (DWORD)timeout_ms, &unused);
    if (code != 0 && code != ERROR_PIPE_CONNECTED) {
        return NULL;
    }
    listener->next = NULL;
    return self;
}

void raw_listener_close(raw_listener *listener) {
    raw_close(listener->next);
    close_if_open(listener->file);
    free(listener);
}

/* Opens the process at the other end and makes the ledger; once. */
static bool begin_exporting(raw_peer *self) {
    ULONG number;
    if (self->taken != NULL) {
        return true;
    }
    if (!(self->is_server ? GetNamedPipeClientProcessId(self->pipe, &number)
                          : GetNamedPipeServerProcessId(self->pipe, &number))) {
        return false;
    }
    self->receiver = OpenProcess(PROCESS_DUP_HANDLE, FALSE, number);
    self->section = CreateFileMappingW(INVALID_HANDLE_VALUE, NULL, PAGE_READWRITE | SEC_COMMIT, 0,
                                       LEDGER_BYTES, NULL);
    if (self->receiver == NULL || self->section == NULL) {
        return false;
    }
    self->taken = MapViewOfFile(self->section, FILE_MAP_WRITE | FILE_MAP_READ, 0, 0, LEDGER_BYTES);
    return self->taken != NULL;
}

/* One more, into the loan and the frame. */
static bool export_one(const raw_peer *to, loan *into, HANDLE handle) {
    HANDLE there;
    if (into->count == RAW_FRAME_HANDLES_MAX ||
        !DuplicateHandle(GetCurrentProcess(), handle, to->receiver, &there, 0, FALSE,
                         DUPLICATE_SAME_ACCESS)) {
        return false;
    }
    into->values[into->count++] = (uint64_t)(uintptr_t)there;
    return true;
}

bool raw_peer_export(raw_peer *to, const void *bytes, size_t size, const intptr_t *handles,
                     size_t count, raw_frame *out_frame) {
    if (!begin_exporting(to)) {
        return false;
    }
    loan *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        return false;
    }
    made->next = to->loans;
    made->number = ++to->sent;
    to->loans = made;
    bool exported = made->number > 1 || export_one(to, made, to->section);
    for (size_t i = 0; exported && i < count; i++) {
        exported = export_one(to, made, (HANDLE)handles[i]);
    }
    *out_frame = (raw_frame){.flags = made->number == 1 ? RAW_ENVELOPE_LEDGER : 0,
                             .number = made->number,
                             .count = made->count,
                             .bytes = bytes,
                             .size = size};
    memcpy(out_frame->values, made->values, sizeof(made->values));
    return exported;
}

bool raw_peer_write(raw_peer *to, const void *message, size_t size) {
    DWORD written = 0;
    OVERLAPPED operation = {.hEvent = to->done};
    BOOL started = WriteFile(to->pipe, message, (DWORD)size, NULL, &operation);
    return finish(to, &operation, started, INFINITE, &written) == 0 && written == size;
}

uint64_t raw_peer_taken(const raw_peer *of) {
    return of->taken != NULL ? *of->taken : 0;
}

bool raw_send(raw_peer *to, const void *bytes, size_t size, const intptr_t *handles, size_t count) {
    static unsigned char message[RAW_FRAME_BYTES_MAX];
    raw_frame frame = {.bytes = bytes, .size = size};
    if (count > 0 && !raw_peer_export(to, bytes, size, handles, count, &frame)) {
        return false;
    }
    size_t whole = raw_frame_encode(&frame, message);
    return whole > 0 && raw_peer_write(to, message, whole);
}

/* Takes the handles of a frame, as the ledger is told. False when there is none to be told. */
static bool take(raw_peer *self, const raw_frame *frame, intptr_t *handles, size_t *count) {
    size_t room = *count;
    size_t first = 0;
    *count = 0;
    if ((frame->flags & RAW_ENVELOPE_LEDGER) != 0) {
        HANDLE ledger = (HANDLE)(uintptr_t)frame->values[0];
        self->received = MapViewOfFile(ledger, FILE_MAP_WRITE | FILE_MAP_READ, 0, 0, LEDGER_BYTES);
        CloseHandle(ledger);
        first = 1;
    }
    if (frame->count > 0 && self->received == NULL) {
        return false;
    }
    for (size_t i = first; i < frame->count && *count < room; i++) {
        handles[(*count)++] = (intptr_t)frame->values[i];
    }
    if (frame->count > 0) {
        *self->received = frame->number;
    }
    return true;
}

long raw_receive(raw_peer *from, void *bytes, size_t capacity, intptr_t *handles, size_t *count,
                 int timeout_ms) {
    static unsigned char message[RAW_FRAME_BYTES_MAX];
    raw_frame frame;
    DWORD got = 0;
    OVERLAPPED operation = {.hEvent = from->done};
    BOOL started = ReadFile(from->pipe, message, sizeof(message), NULL, &operation);
    if (finish(from, &operation, started, (DWORD)timeout_ms, &got) != 0 ||
        !raw_frame_decode(message, got, &frame) || frame.size > capacity ||
        !take(from, &frame, handles, count)) {
        return -1;
    }
    memcpy(bytes, frame.bytes, frame.size);
    return (long)frame.size;
}

/* Nothing is sent to a peer that waits for this. */
bool raw_sees_end(raw_peer *peer, int timeout_ms) {
    unsigned char byte;
    DWORD got;
    OVERLAPPED operation = {.hEvent = peer->done};
    BOOL started = ReadFile(peer->pipe, &byte, 1, NULL, &operation);
    DWORD code = finish(peer, &operation, started, (DWORD)timeout_ms, &got);
    return code == ERROR_BROKEN_PIPE || code == ERROR_PIPE_NOT_CONNECTED;
}

/* That nobody took, so it is still ours to close there. Whoever closed it all the same may have closed
 * something else. */
static void close_there(const raw_peer *self, uint64_t value) {
    HANDLE back;
    if (!DuplicateHandle(self->receiver, (HANDLE)(uintptr_t)value, GetCurrentProcess(), &back, 0,
                         FALSE, DUPLICATE_SAME_ACCESS | DUPLICATE_CLOSE_SOURCE)) {
        fprintf(stderr, "raw_close: a handle that nobody took is not open: error %lu\n",
                GetLastError());
        abort();
    }
    CloseHandle(back);
}

void raw_close(raw_peer *peer) {
    if (peer == NULL) {
        return;
    }
    bool is_over = !PeekNamedPipe(peer->pipe, NULL, 0, NULL, NULL, NULL);
    while (peer->loans != NULL) {
        loan *at = peer->loans;
        peer->loans = at->next;
        for (size_t i = 0; is_over && at->number > raw_peer_taken(peer) && i < at->count; i++) {
            close_there(peer, at->values[i]);
        }
        free(at);
    }
    if (peer->taken != NULL) {
        UnmapViewOfFile((const void *)peer->taken);
    }
    if (peer->received != NULL) {
        UnmapViewOfFile((const void *)peer->received);
    }
    close_if_open(peer->section);
    close_if_open(peer->receiver);
    close_if_open(peer->done);
    close_if_open(peer->pipe);
    free(peer);
}
