/* SPDX-License-Identifier: MIT */
/** @file What the files of src/win32 share with each other and with nobody else. Text is UTF-8
 *  outside and UTF-16 towards the system, whose ...W functions alone are called. */
#ifndef GPUIPC_WIN32_H
#define GPUIPC_WIN32_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <windows.h>

#include "base/compiler.h"
#include "base/status.h"
#include "os.h"

_Static_assert(sizeof(HANDLE) == 8, "32-bit Windows has no CUDA driver that shares memory");

/* ---- GetLastError: win32_error.c ---------------------------------------------------------- */

/** The status that a Windows error code means wherever it arises; os_situation.h is the table that
 *  both systems share. ERR_OS for all others. */
gpuipc_status win32_error_status(DWORD code);

/** Records a failed system call: the sentence, then the system's words for @p code.
 *  @return win32_error_status(code) */
GPUIPC_COLD gpuipc_status win32_fail(DWORD code, const char *call, const char *format, ...)
    GPUIPC_PRINTF(3, 4);

/** The same with a status decided by the caller. */
GPUIPC_COLD gpuipc_status win32_fail_as(gpuipc_status status, DWORD code, const char *call,
                                        const char *format, ...) GPUIPC_PRINTF(4, 5);

/* ---- text: win32_text.c ------------------------------------------------------------------- */

/** UTF-8 to UTF-16 with its end. ERR_INVALID_ARGUMENT when it is no UTF-8, ERR_NAME_TOO_LONG when
 *  @p capacity (in units of 16 bits) does not suffice. */
gpuipc_status win32_wide(const char *text, wchar_t *wide, size_t capacity);

/** UTF-16 to UTF-8; what has no UTF-8 (half a surrogate pair) becomes U+FFFD, as in file names.
 *  False when @p capacity bytes do not suffice. */
bool win32_narrow(const wchar_t *wide, char *text, size_t capacity);

/* ---- the library's handles: win32_handle.c ------------------------------------------------- */

/** A value that no handle of the process can have: 0, -1 to -12 (pseudo-handles), and those whose
 *  two lowest bits are set, which the system ignores, so that one handle would have four numbers. */
bool win32_handle_is_possible(intptr_t value);

/** Whether it is open in this process. Never for a pseudo-handle. */
bool win32_handle_is_open(intptr_t value);

/** Records a handle that a call has just answered. When it cannot be recorded it is closed.
 *  @param handle NULL and INVALID_HANDLE_VALUE: the call failed, GetLastError() becomes the status */
gpuipc_status win32_handle_add(HANDLE handle, const char *call, os_handle *out_handle);

/** Records handles that a message claims to have put into this process. Each must be possible, open
 *  and not yet the library's (else two owners would close one handle): ERR_PROTOCOL, and then
 *  none of them is recorded. */
gpuipc_status win32_handle_claim(const uint64_t *values, size_t count, os_handle *out_handles);

HANDLE win32_handle_native(os_handle handle);

/* ---- rights: win32_security.c -------------------------------------------------------------- */

/** Room for a SID as text, with its end: 184 is the longest (15 sub-authorities). */
#define WIN32_SID_TEXT_MAX 192

/** A SID as text: "S-1-5-...". */
gpuipc_status win32_sid_text(PSID sid, char *text, size_t capacity);

/** The user of a process as SID text. */
gpuipc_status win32_process_user(HANDLE process, char *sid, size_t capacity);

/** The user of this process. The text lives as long as the library. */
gpuipc_status win32_own_user(const char **out_sid);

/** The integrity level of a process (SECURITY_MANDATORY_MEDIUM_RID and so on). */
gpuipc_status win32_process_integrity(HANDLE process, DWORD *out_level);

/** Attributes for a new object that only this user may open: a protected DACL with one entry, full
 *  rights for this user, and no inheritance. They live as long as the library. */
gpuipc_status win32_owner_only(const SECURITY_ATTRIBUTES **out_attributes);

/* ---- waiting: win32_clock.c ---------------------------------------------------------------- */

/** How long to wait before looking again, for the Wait functions (os_deadline_slice_ms()): rounded up; INFINITE
 *  when it never passes. */
DWORD win32_left_ms(os_deadline deadline);

/* ---- directory and names: win32_directory.c, win32_name.c ----------------------------------- */

/** Room for a path with the prefix that lifts the limit of 260 characters. */
#define WIN32_PATH_MAX 4608

/** A directory, or @p file in it unless that is NULL, for the system's calls: with that prefix. The
 *  directory is resolved; the file's name is taken as it is. */
gpuipc_status win32_path_wide(const char *directory, const char *file,
                              wchar_t wide[WIN32_PATH_MAX]);

/** Room for a pipe's whole name: the system takes 256 characters (CreateNamedPipeW). */
#define WIN32_PIPE_NAME_MAX 257

/** What only Linux has is refused: abstract names ('@'), and directories that several users share,
 *  since who may not open a process cannot put handles into it. ERR_NOT_SUPPORTED. */
gpuipc_status win32_name_check(const os_directory *directory, const char *name);

/** Makes (@p create) and checks the directory: a real one of this user's, which nobody but this user,
 *  the system and the administrators may change. ERR_UNSAFE_DIRECTORY, ERR_NOT_FOUND.
 *  @param out_handle keeps it from being renamed or replaced until it is closed */
gpuipc_status win32_directory_open(const char *path, bool create, os_handle *out_handle);

/** Publishes a pipe's name under a listener's name: a file that the system removes with the last
 *  handle to it, at the latest when the process ends. ERR_NAME_IN_USE.
 *  @param out_replaced there was a file, left by a machine that went down */
gpuipc_status win32_name_publish(const char *directory, const char *name, const wchar_t *pipe_name,
                                 os_handle *out_file, bool *out_replaced);

/** Reads the pipe's name that a listener published. ERR_NOT_FOUND, ERR_PROTOCOL (not of ours). */
gpuipc_status win32_name_look_up(const char *directory, const char *name,
                                 wchar_t pipe_name[WIN32_PIPE_NAME_MAX]);

/* ---- the other end: win32_peer.c ----------------------------------------------------------- */

/** Whether @p pipe is the end that made it (the server's). */
typedef enum win32_pipe_end {
    WIN32_PIPE_SERVER,
    WIN32_PIPE_CLIENT
} win32_pipe_end;

/** Who is at the other end. The process handle in it pins the process's number for as long as it is
 *  open. ERR_PEER_CLOSED, ERR_NOT_SUPPORTED (a 32-bit process). */
gpuipc_status win32_peer_of_pipe(HANDLE pipe, win32_pipe_end end, os_peer *out_peer);

/** Opens the peer's process with the right to duplicate handles into it, once more checked to be the
 *  same user's. ERR_ACCESS_DENIED, ERR_PEER_CLOSED. */
gpuipc_status win32_peer_open_for_handles(const os_peer *peer, os_handle *out_process);

/* ---- pipes: win32_pipe.c ------------------------------------------------------------------- */

/** What a pipe holds in each direction before a writer has to wait: two packets of the largest size
 *  with their envelopes. */
#define WIN32_PIPE_ROOM (2u * 135168u)

/** A name for a new pipe: of this user, with 128 random bits, so that nobody can be there first. */
gpuipc_status win32_pipe_name_make(wchar_t name[WIN32_PIPE_NAME_MAX]);

/** Whether a text can have come from win32_pipe_name_make: of this machine, and gpuipc's. */
bool win32_pipe_name_is_ours(const wchar_t *name);

/** One more instance of the pipe, for one client. @p first: there must be none yet. */
gpuipc_status win32_pipe_make(const wchar_t *name, bool first, os_handle *out_pipe);

/** Opens the other end. ERR_NOT_FOUND and ERR_TIMEOUT (all instances have clients) may pass; other
 *  failures will not. */
gpuipc_status win32_pipe_open(const wchar_t *name, os_handle *out_pipe);

/** An event that stays set until it is reset. */
gpuipc_status win32_event_make(os_handle *out_event);

/** Waits for the end of an operation that was started on @p pipe with @p operation (whose hEvent is
 *  set), and takes it back at the deadline or when @p interrupted is set. When this returns, the
 *  system does not touch the memory of the operation any more.
 *  @return 0: done, with *out_bytes; WAIT_TIMEOUT, ERROR_OPERATION_ABORTED: taken back, nothing has
 *  happened; other codes: it failed */
DWORD win32_pipe_finish(HANDLE pipe, OVERLAPPED *operation, HANDLE interrupted,
                        os_deadline deadline, DWORD *out_bytes);

/** Takes back an operation that was started on @p pipe, unless it has ended; its event may be set for
 *  other reasons as well. When this returns, the system does not touch its memory any more.
 *  @return 0: it is done; ERROR_OPERATION_ABORTED: taken back; other codes: how it ended */
DWORD win32_pipe_take_back(HANDLE pipe, OVERLAPPED *operation);

/* ---- handles exported to the peer: win32_ledger.c ---------------------------------------------- */

/** The handles of one packet as the sender put them into the receiver: those of the message, and
 *  with the first packet one more before them, the ledger's (see there). */
#define WIN32_EXPORTED_MAX (OS_PACKET_HANDLES_MAX + 1)

/** One packet's handles that the receiver has not taken yet. */
typedef struct win32_export {
    struct win32_export *next;
    uint64_t number; /**< of the packet, among those with handles; from 1 on */
    bool has_ledger;
    size_t count;
    uint64_t values[WIN32_EXPORTED_MAX]; /**< their numbers in the receiver */
} win32_export;

/** A sender's side of a ledger. Zero is its start. */
typedef struct win32_exporter {
    os_handle process; /**< the receiver, with the right to duplicate; meaningful with page */
    os_handle section; /**< the ledger; meaningful with page */
    void *page;        /**< NULL: no handle was sent yet */
    bool ledger_sent;
    uint64_t sent;        /**< packets with handles so far */
    win32_export *oldest; /**< not taken yet, as far as is known */
    win32_export *newest;
} win32_exporter;

/** A receiver's side. Zero is its start. */
typedef struct win32_importer {
    void *page;
    uint64_t taken; /**< packets with handles so far */
    bool refused;   /**< one was refused: nothing is taken any more */
} win32_importer;

/** Puts handles into the peer, which are no pseudo-handles (those can be duplicated, too). On failure
 *  none is left there.
 *  @param out_export to be handed to win32_exporter_keep (sent) or win32_exporter_take_back (not) */
gpuipc_status win32_exporter_export(win32_exporter *exporter, const os_peer *peer,
                                    const os_handle *handles, size_t count,
                                    win32_export **out_export);
void win32_exporter_keep(win32_exporter *exporter, win32_export *export);
void win32_exporter_take_back(win32_exporter *exporter, win32_export *export);

/** Ends it. @p peer_closed: the peer's end is closed, so what it has not taken it never will, and is
 *  closed in it here. */
void win32_exporter_end(win32_exporter *exporter, bool peer_closed);

/** Takes the handles of packet @p number, of which the first is the ledger if @p has_ledger.
 *  ERR_PROTOCOL, and then nothing is taken from now on.
 *  @param out_handles room for @p count, less the ledger */
gpuipc_status win32_importer_take(win32_importer *importer, uint64_t number, bool has_ledger,
                                  const uint64_t *values, size_t count, os_handle *out_handles);
void win32_importer_end(win32_importer *importer);

/* ---- connections: win32_connection.c, win32_packet.c ---------------------------------------- */

/** What a poller has of a connection: win32_poller.c. */
typedef struct win32_watch win32_watch;

struct os_connection {
    os_handle pipe; /**< none once interrupted */
    win32_pipe_end end;
    SRWLOCK use;            /**< shared: a call on the pipe; exclusive: closing it */
    SRWLOCK identity_mutex; /**< guards peer, which is found out once */
    bool peer_is_known;
    bool peer_was_refused; /**< it was looked at once, and found wrong or could not be */
    os_peer peer;
    atomic_bool is_used; /**< sent or received on: the peer was let in */
    atomic_bool is_interrupted;
    os_handle interrupted; /**< event, set with is_interrupted */
    os_handle reading;     /**< events of the two operations that can be under way */
    os_handle writing;
    uint32_t look_us;  /**< os_connection_set_look() */
    size_t rest_bytes; /**< received since it was stopped, with envelopes */
    bool rest_is_over; /**< nothing of what is left is taken any more */
    win32_exporter exporter;
    win32_importer importer;
    SRWLOCK watch_mutex;     /**< guards the next two; with it the pipe of a watch is open */
    win32_watch *watch;      /**< NULL: in no poller */
    bool has_empty;          /**< an empty message came, and waiting for it has used it up */
    unsigned char *frame_in; /**< room for one packet with its envelope */
    unsigned char *frame_out;
};

/** The most bytes of a packet with its envelope. */
#define WIN32_FRAME_BYTES_MAX (24u + 8u * WIN32_EXPORTED_MAX + OS_PACKET_BYTES_MAX)

/** Makes a connection of a connected pipe, which is the connection's only on success. */
gpuipc_status win32_connection_wrap(os_handle pipe, win32_pipe_end end,
                                    os_connection **out_connection);

/** With connection->use held: ERR_RELEASED after an interrupt. */
gpuipc_status win32_connection_usable(const os_connection *connection);

/** With connection->use held: who is at the other end; the answer stays the connection's.
 *  ERR_RELEASED when the pipe was closed before anybody asked. */
gpuipc_status win32_connection_peer(os_connection *connection, const os_peer **out_peer);

/** With connection->use held alone: takes what is in the pipe and throws it away. */
void win32_packet_drain(os_connection *connection);

/* ---- pollers: win32_poller.c, win32_endpoint.c ---------------------------------------------- */

/** Before the pipe is read: nothing of the poller's is under way on it until the poller looks again.
 *  False when an empty message came and is used up. */
bool win32_watch_pause(os_connection *connection);

/** Before the pipe is closed, and for good: the connection is ready from now on. */
void win32_watch_end(os_connection *connection);

/** Before the connection is freed. */
void win32_watch_remove(os_connection *connection);

/** From now on clients that come set the poller's event; NULL: none any more.
 *  ERR_RELEASED after an interrupt, ERR_INVALID_ARGUMENT when it has another poller. */
gpuipc_status win32_listener_attach(os_listener *listener, os_poller *poller, HANDLE event);
void win32_listener_detach(os_listener *listener);

/** Whether accept would not wait. May set the poller's event. */
bool win32_listener_is_ready(os_listener *listener);

/** The listener goes before its poller. */
void win32_poller_forget_listener(os_poller *poller);

#endif
