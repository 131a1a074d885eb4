/* SPDX-License-Identifier: MIT */
/**
 * @file All that an operating system owes gpuipc. Chosen when linking: src/posix/ or src/win32/,
 * whose files mirror each other (posix_X.c, win32_X.c) and change in the same commit.
 *
 * Every function that can fail returns a status and has filled the thread's error record
 * (status.h) with the native code. Outputs are written only on success. Nothing here prints,
 * reads the environment unless it says so, or knows CUDA.
 */
#ifndef GPUIPC_OS_H
#define GPUIPC_OS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gpuipc/gpuipc_status.h>

/* ---- handle: an fd or a HANDLE; posix_handle.c, win32_handle.c --------------------------- */

/** An OS handle that the library owns: closed on exec, and closed in a forked child at once. */
typedef struct os_handle {
    intptr_t value; /**< fd, or HANDLE */
} os_handle;

#define OS_HANDLE_NONE ((os_handle){-1})

/** Whether a handle can have this number at all; no call is made to find out. */
bool os_handle_is_valid(os_handle handle);

/** Takes over a native handle (from the driver, from a message): from now on it is the library's,
 *  is closed on exec, and a forked child closes it.
 *  Fails with ERR_OUT_OF_MEMORY, and the native handle is then still the caller's. */
gpuipc_status os_handle_adopt(intptr_t native, os_handle *out_handle);

/** The same for what cuMemExportToShareableHandle wrote: an int on Linux, a HANDLE on Windows. It is
 *  made for this call alone, so on failure it is closed.
 *  @param written at least 8 bytes, zero before the driver wrote there */
gpuipc_status os_handle_adopt_exported(const void *written, os_handle *out_handle);

/** What the driver has to be told about the rights of the handles that it makes of memory: on Windows
 *  an OBJECT_ATTRIBUTES whose descriptor admits this user only; on Linux NULL, since a descriptor
 *  reaches nobody to whom it is not sent. Lives as long as the library. win32_security.c */
gpuipc_status os_handle_attributes(const void **out_attributes);

/** Gives the handle out: it is no longer the library's. Returns the native value; *handle is none. */
intptr_t os_handle_give_up(os_handle *handle);

/** A second handle to the same object. ERR_TOO_MANY_HANDLES when the process has no more. */
gpuipc_status os_handle_duplicate(os_handle handle, os_handle *out_handle);

/** A duplicate of a native handle of somebody else's. ERR_INVALID_ARGUMENT if it is not open. */
gpuipc_status os_handle_duplicate_native(intptr_t native, os_handle *out_handle);

/** Closes and sets to none. None is allowed. */
void os_handle_close(os_handle *handle);

/* ---- deadline: deadline.c, posix_clock.c, win32_clock.c ---------------------------------- */

/** Whether a signal handler has run in a wait of this thread (EINTR) since os_signal_forget(). Windows: never. */
bool os_signal_ran(void);
void os_signal_forget(void);

/** What may end a call's waits early: a signal handler that ran in one, or a count. */
typedef struct os_interrupt {
    const atomic_uint *wakes; /**< counted up by whoever wants that */
    unsigned seen;            /**< so many had come when the call began */
    bool came;                /**< a wait was interrupted */
} os_interrupt;

/** A point on the monotonic clock. One is made at the start of a call and passed down. */
typedef struct os_deadline {
    uint64_t at_ns; /**< UINT64_MAX: never */
    os_interrupt *
        interrupt; /**< with which it passes early; NULL: with nothing. Lives as long as the call */
} os_deadline;

uint64_t os_clock_ns(void); /**< monotonic */
/** Another one, which goes on by some milliseconds at a time and is asked in a few nanoseconds. (The finer one took 16 to 50
 *  in virtual machines.) Each is compared with itself alone. */
uint64_t os_clock_coarse_ns(void);
os_deadline os_deadline_after(int timeout_ms); /**< 0: now, negative: never */
bool os_deadline_passed(os_deadline deadline);
int os_deadline_left_ms(os_deadline deadline); /**< rounded up; -1: never passes */
/** How long to wait before looking whether it has passed: what is left, or less where there is an interrupt. */
int os_deadline_slice_ms(os_deadline deadline);
/** Another deadline, which passes early with the same interrupt. */
os_deadline os_deadline_inherit(os_deadline self, os_deadline from);
void os_sleep_ms(unsigned milliseconds);
/** Windows sleeps for whole milliseconds. */
void os_sleep_us(unsigned microseconds);
/** Who looks for what nothing wakes it for sleeps no longer at a time. */
#define OS_PAUSE_MS 20u
/** The next pause between two tries: 1, 2, 4 and so on to OS_PAUSE_MS, never beyond the deadline. For tries that cost
 *  more than a look at memory. */
unsigned os_backoff_next(unsigned *milliseconds, os_deadline deadline);

/** Who waits looks again and again for so long before it sleeps, since what is awaited often comes at once. */
#define OS_LOOK_NS UINT64_C(50000)
/** Between two looks at memory, in a wait that began then. After OS_LOOK_NS it sleeps for half of the time that has gone by,
 *  most_ms at most, and never beyond the deadline. So who waits is late by half at most. (On Windows a sleep takes a tick of
 *  the system.) */
void os_pause(uint64_t begun_ns, unsigned most_ms, os_deadline deadline);

/* ---- threads: posix_thread.c, win32_thread.c --------------------------------------------- */

/** Room for the system's own objects; the implementation asserts that they fit.
 *  A mutex of zeroes is free, and nothing is owed at its end, whoever has it then. */
typedef union os_mutex {
    uint64_t align[8];
    void *pointer;
} os_mutex;
typedef union os_condition {
    uint64_t align[8];
    void *pointer;
} os_condition;
typedef struct os_thread os_thread;

void os_mutex_lock(os_mutex *mutex);
bool os_mutex_try_lock(os_mutex *mutex);
void os_mutex_unlock(os_mutex *mutex);

/** A mutex that is held over fork(), so that the child finds it free: static os_static_mutex m; */
typedef struct os_static_mutex {
    os_mutex mutex;
} os_static_mutex;
void os_static_mutex_lock(os_static_mutex *mutex);
void os_static_mutex_unlock(os_static_mutex *mutex);

gpuipc_status os_condition_init(os_condition *condition);
void os_condition_destroy(os_condition *condition);
void os_condition_signal_all(os_condition *condition);
/** Waits, with the mutex released meanwhile. False when the deadline passed first. One that may be interrupted looks
 *  again every few milliseconds. */
bool os_condition_wait(os_condition *condition, os_mutex *mutex, os_deadline deadline);

/** Starts a thread with all signals blocked. join waits for its end and frees it. */
gpuipc_status os_thread_start(void (*run)(void *argument), void *argument, os_thread **out_thread);
void os_thread_join(os_thread *thread);
/** Frees it in a forked child, into which the thread did not come along. */
void os_thread_forget(os_thread *thread);

/* ---- process: posix_process.c, win32_process.c ------------------------------------------- */

/** How many forks lie between the first use of the library and this process: an object remembers
 *  the number it was made under, and another number means that it is the parent's. Always 0 where
 *  there is no fork. */
uint32_t os_fork_generation(void);

/** Makes the fork handlers known to the system; once per process, any thread, cheap again. */
gpuipc_status os_fork_watch(void);

/** Whether all other threads have ended, wherever each was, as on Windows before libraries are told of the process's end
 *  (ExitProcess): what one of them had locked stays locked. */
bool os_other_threads_have_ended(void);

/** Has a function called when the process ends (exit()) or the library is unloaded, before what was loaded earlier
 *  ends. On Windows it is not called: what ends there before a library does are all other threads (ExitProcess). */
void os_at_exit(void (*run)(void));

uint64_t os_process_id(void);

/** How much the system lets this process have; UINT64_MAX: it says no number. */
typedef struct os_limits {
    uint64_t handles;   /**< Linux: RLIMIT_NOFILE, as it is now */
    uint64_t mappings;  /**< Linux: vm.max_map_count */
    uint64_t addresses; /**< bytes of them */
    uint64_t
        file_bytes; /**< of one file. Linux: RLIMIT_FSIZE, as it is now, which counts for shared memory too */
} os_limits;
void os_limits_get(os_limits *out_limits);

/** An environment variable, or NULL; always NULL in a set-uid program. The text is the system's (on
 *  Windows a copy in UTF-8, which is kept for ever) and good until the variable is changed. */
const char *os_environment(const char *name);

/** Whether this is Windows Subsystem for Linux, whose driver lacks much that Linux's has. */
bool os_is_wsl(void);

gpuipc_status os_random(void *bytes, size_t size);

/** Milliseconds since 1970 (UTC), as the machine's clock says now: to be shown, never to wait by. */
uint64_t os_time_unix_ms(void);

/** 128 bits that are others after the machine was started anew (Linux: boot_id; Windows: a value kept where
 *  nothing outlives a start). All zero when that cannot be known. */
void os_boot_id(uint8_t id[16]);

/** This process's effective user as os_peer::user names him; "" when the system does not say. */
void os_own_user(char *user, size_t capacity);

/* ---- peer: who is at the other end; posix_peer.c, win32_peer.c --------------------------- */

/** A process as the operating system vouches for it. */
typedef struct os_peer {
    uint64_t process_id; /**< 0: outside this PID namespace */
    char user[192];      /**< decimal uid, or SID text */
    bool same_user;      /**< effective user of this process */
    bool
        other_pid_namespace; /**< it numbers processes otherwise; where that cannot be seen: false */
    os_handle process;       /**< pidfd or process handle; none where it cannot be had */
} os_peer;

void os_peer_close(os_peer *peer);

/** This process itself. ERR_TOO_MANY_HANDLES, ERR_OS where the system has no handle for it */
gpuipc_status os_peer_self(os_peer *out_peer);

/** 1: lives, 0: has ended, -1: cannot be known. */
int os_peer_is_running(const os_peer *peer);

/* ---- endpoint, listener, connection: posix_endpoint.c, posix_connection.c ---------------- */

/** The most handles in one packet. Linux: SCM_MAX_FD, include/net/scm.h. */
#define OS_PACKET_HANDLES_MAX 253
/** The most bytes in one packet. */
#define OS_PACKET_BYTES_MAX 131072

/** Where names live. */
typedef struct os_directory {
    const char *path; /**< NULL: the user's default directory (GPUIPC_RUNTIME_DIR and others) */
    bool shared;      /**< may belong to another user and admit its group */
} os_directory;

/** The longest path of a directory, with its end. */
#define OS_PATH_MAX 4096

/** The directory's path, without trailing slashes: the one given, or the user's default one
 *  (GPUIPC_RUNTIME_DIR and others; the environment is read here and in no other call on names).
 *  ERR_INVALID_ARGUMENT when it is not absolute, ERR_NAME_TOO_LONG. ERR_UNSAFE_DIRECTORY when the default one would lie in
 *  the directory of another user's session (Linux: XDG_RUNTIME_DIR); @p path has it then as well. */
gpuipc_status os_directory_resolve(const os_directory *directory, char *path, size_t capacity);

/** Removes what processes that are gone have left of names that begin so: of some, other ones each time. What lives
 *  is told by a connect, never by age. Says nothing of what it could not do. */
void os_directory_sweep(const os_directory *directory, const char *prefix);

typedef struct os_listener os_listener;
typedef struct os_connection os_connection;

/** What a listener noticed that a log may want: NULL-able sentence sink. */
typedef struct os_log {
    void (*write)(void *user_data, const char *sentence);
    void *user_data;
} os_log;

/** Makes the directory if it is missing, checks it, replaces a dead process's socket (under a lock
 *  and after a connect that fails), and listens.
 *  ERR_NAME_TOO_LONG, ERR_NAME_IN_USE, ERR_UNSAFE_DIRECTORY, ERR_NOT_SUPPORTED ('@' off Linux). */
gpuipc_status os_listener_open(const os_directory *directory, const char *name, const os_log *log,
                               os_listener **out_listener);
/** ERR_TIMEOUT, or a failure of os_listener_renew(); ERR_RELEASED after os_listener_interrupt. When the process has no handle left for
 *  the new connection it waits a little between tries, and answers ERR_TOO_MANY_HANDLES at the
 *  deadline. */
gpuipc_status os_listener_accept(os_listener *listener, os_deadline deadline,
                                 os_connection **out_connection);
/** Makes the listener's names again if another program removed them, as cleaners of old files do, and logout does with the
 *  user's directory. It does so by the rules of os_listener_open(). One system call when all names are there.
 *  os_listener_accept() calls it while it waits, and answers its failure in place of ERR_TIMEOUT. On Windows it does
 *  nothing: names are open files in the user's profile, which neither a logout nor a cleaner removes. Any thread.
 *  @param wait_ms how long to wait for a directory that another process locks, for each of two steps. 0: not at all, not for
 *         another thread that makes names of this listener either (then OK). The next call tries again.
 *  ERR_NOT_FOUND: the first name cannot be made again; the record says why. ERR_RELEASED after os_listener_interrupt,
 *  ERR_TOO_MANY_HANDLES, ERR_OUT_OF_MEMORY */
gpuipc_status os_listener_renew(os_listener *listener, int wait_ms);
/** How long os_listener_open() and os_listener_add_name() wait for a locked directory. */
#define OS_NAMES_WAIT_MS 2000
/** The time between two calls of it, for a thread that waits for clients. */
#define OS_RENEW_MS 1000
/** A second name of a listener: whoever connects to it is its client like others. */
typedef struct os_name os_name;
/** Makes one in the listener's own directory, as os_listener_open() makes the first, after os_listener_renew().
 *  ERR_NAME_IN_USE, ERR_NAME_TOO_LONG, ERR_UNSAFE_DIRECTORY, and those of os_listener_renew() */
gpuipc_status os_listener_add_name(os_listener *listener, const os_directory *directory,
                                   const char *name, const os_log *log, os_name **out_name);
/** Removes it, if nobody has it after a listener that had ended. Before the listener is destroyed. NULL does nothing; in a
 *  forked child frees only. */
void os_name_close(os_name *name);
/** Wakes every thread that waits in accept, now and later, and removes the name. */
void os_listener_interrupt(os_listener *listener);
/** Interrupts and frees. In a forked child frees only. */
void os_listener_destroy(os_listener *listener);

/** One try per round until the deadline; ERR_NOT_FOUND when nobody listened, ERR_UNSAFE_DIRECTORY,
 *  ERR_NAME_TOO_LONG, ERR_ACCESS_DENIED. */
gpuipc_status os_connection_open(const os_directory *directory, const char *name,
                                 os_deadline deadline, os_connection **out_connection);
/** Fills *out_peer; the caller closes it. */
gpuipc_status os_connection_get_peer(os_connection *connection, os_peer *out_peer);
/** One packet, whole or not at all. The handles stay the caller's.
 *  ERR_TIMEOUT, ERR_PEER_CLOSED, ERR_TOO_MANY_IN_FLIGHT, ERR_RELEASED after interrupt. */
gpuipc_status os_connection_send(os_connection *connection, const void *bytes, size_t size,
                                 const os_handle *handles, size_t count, os_deadline deadline);
/** One packet. @p handles has room for OS_PACKET_HANDLES_MAX; they become the caller's.
 *  Nothing is left behind by a failure: handles that came with a packet that cannot be delivered
 *  whole are closed. ERR_TIMEOUT, ERR_PEER_CLOSED, ERR_PROTOCOL (longer than @p capacity, empty),
 *  ERR_HANDLE_COUNT (more handles than a packet may have), ERR_TOO_MANY_HANDLES (our own
 *  descriptor limit cut the list: not the peer's fault; the packet may still be there), ERR_RELEASED after interrupt. */
gpuipc_status os_connection_receive(os_connection *connection, void *bytes, size_t capacity,
                                    size_t *out_size, os_handle *handles, size_t *out_count,
                                    os_deadline deadline);
/** From now on a thread looks for so long whether a packet comes before it sleeps in os_connection_receive(). For who
 *  has asked and is answered at once, since to be woken takes as long again. */
void os_connection_set_look(os_connection *connection, uint32_t microseconds);
/** Whether the other end has taken all that was sent to it so far; true where the system cannot say. */
bool os_connection_is_read(os_connection *connection);
/** Whether the other end is known to be closed. Reads nothing; what has come and was not read may hide
 *  the end, and nothing can be told when this end is interrupted: false. Any thread. */
bool os_connection_has_ended(os_connection *connection);
/** Wakes every thread that waits in it, now and later. What the peer sends from now on fails, or is lost (Windows); that
 *  this end is closed it sees when os_connection_interrupt() or os_connection_end() is called, which must follow. */
void os_connection_stop(os_connection *connection);
/** After os_connection_stop(), one thread at a time: the next packet that had come and was not received, as
 *  os_connection_receive() with a deadline that has passed. After any failure there is no more; a peer that goes on
 *  sending cannot put that off. */
gpuipc_status os_connection_take_rest(os_connection *connection, void *bytes, size_t capacity,
                                      size_t *out_size, os_handle *handles, size_t *out_count);
/** The same as os_connection_stop(), and the peer sees the end. */
void os_connection_interrupt(os_connection *connection);
/** When os_connection_take_rest() has nothing more: as os_connection_interrupt(). Where more has come meanwhile and is to
 *  be taken, it does nothing and answers false.
 *  @param out_peer_closed the peer has closed its end before, and so never takes what it has not taken by now; false
 *         where the system does not say so, and where everything that was sent is taken or has failed (Linux) */
bool os_connection_end(os_connection *connection, bool *out_peer_closed);
void os_connection_destroy(os_connection *connection);

/* ---- poller: many endpoints waited for at once; posix_poller.c, win32_poller.c ------------ */

/** Waits for any of one listener and any number of connections. One thread at a time adds, removes and
 *  waits; any thread wakes. An endpoint is in one poller at most (ERR_INVALID_ARGUMENT). */
typedef struct os_poller os_poller;

/** What os_poller_wait() gives for os_poller_wake(). */
#define OS_POLLER_WOKEN NULL

/** ERR_TOO_MANY_HANDLES when the process has none left. */
gpuipc_status os_poller_create(os_poller **out_poller);
/** What is in it need not be removed before. NULL does nothing. In a forked child frees only. Its listener is not renewed
 *  afterwards. */
void os_poller_destroy(os_poller *poller);

/** Ready when a client waits: os_listener_accept() with a deadline that has passed then takes it, or
 *  fails for a reason of its own. With a deadline ahead it works, but looks again every 20 ms on
 *  Windows. The listener may be destroyed before the poller.
 *  @param tag given back when it is ready; not NULL */
gpuipc_status os_poller_add_listener(os_poller *poller, os_listener *listener, void *tag);
/** Ready when a packet, or the end, has come, and for ever after an interrupt: os_connection_receive() then
 *  does not wait. Nothing of what has come is taken away by waiting for it. ERR_RELEASED when it was
 *  interrupted before. */
gpuipc_status os_poller_add_connection(os_poller *poller, os_connection *connection, void *tag);
/** Before it is destroyed, by the thread that waits. It is not reported any more, not even by what
 *  os_poller_wait() has found already but not given out. One that is not in there is left alone. */
void os_poller_remove_connection(os_poller *poller, os_connection *connection);

/** The tags of what is ready, at most @p capacity, which is above 0; what is not looked after is reported
 *  again, and when there are more than @p capacity, all get their turn. 0 when the deadline passed first. */
gpuipc_status os_poller_wait(os_poller *poller, os_deadline deadline, void **tags, size_t capacity,
                             size_t *out_count);

/** Makes the waiting thread return OS_POLLER_WOKEN among its tags, once, now or when it waits next. */
void os_poller_wake(os_poller *poller);

/** Wakes a poller when a process ends. */
typedef struct os_process_watch os_process_watch;
/** os_poller_wait() returns OS_POLLER_WOKEN, once, when the process has ended, also if it has already. Any thread.
 *  ERR_NOT_SUPPORTED where there is no handle of it.
 *  @param peer its handle stays open until os_process_watch_destroy(), which comes before the poller's end. It may be
 *         watched several times */
gpuipc_status os_poller_watch(os_poller *poller, const os_peer *peer, os_process_watch **out_watch);
/** Any thread. NULL does nothing. In a forked child frees only. */
void os_process_watch_destroy(os_process_watch *watch);

/** For a caller's event loop: ready (a descriptor: readable; an event: signalled) whenever os_poller_wait()
 *  would return at once. It may be ready for nothing; os_poller_wait() with a deadline that has passed then
 *  finds nothing and sets that right. -1 in a forked child. */
intptr_t os_poller_native(os_poller *poller);

/** Takes a client that waits and closes the connection at once, also when the process has no descriptor left for
 *  it (a spare one is kept for that): it would stay ready for ever otherwise. False: nobody was, because
 *  nobody waits or the spare one has gone. */
bool os_listener_refuse(os_listener *listener);

/* ---- memory: posix_memory.c, win32_memory.c ---------------------------------------------- */

/** Whole pages of this process's own, all zero, which the system has again as soon as they are freed: what malloc() gave,
 *  the C library may keep. ERR_OUT_OF_MEMORY */
gpuipc_status os_pages_allocate(size_t bytes, void **out_pages);
/** NULL does nothing. @param bytes as they were allocated */
void os_pages_free(void *pages, size_t bytes);

/** Anonymous memory of a fixed size that another process maps through its handle. It can neither
 *  grow nor shrink (memfd seals, section). Starts as zeroes; no memory is used until touched (Windows
 *  promises all of it at once, and refuses more than it could keep). */
gpuipc_status os_memory_create(const char *debug_name, uint64_t bytes, os_handle *out_handle);
/** The size (a section's: rounded up to whole pages), and whether it is memory made by
 *  os_memory_create (sealed, a section), to be read and written: ERR_PROTOCOL when the handle is anything else. */
gpuipc_status os_memory_inspect(os_handle handle, uint64_t *out_bytes);
gpuipc_status os_memory_map(os_handle handle, uint64_t bytes, bool writable, void **out_address);
void os_memory_unmap(void *address, uint64_t bytes);
/** Locks a byte of such memory, by its number, for this program. The lock ends with the program: at the end of its process, and when
 *  that calls execve(2), which its process handle does not show. A forked child has no part in it. It also ends when this
 *  process closes any handle of the same memory.
 *  ERR_NOT_SUPPORTED: on Windows, where a program and its process end together. ERR_OS: another process has it locked */
gpuipc_status os_memory_lock(os_handle handle, uint64_t byte);
/** Whether another process has locked the byte. 1: yes, 0: no, -1: cannot be known. */
int os_memory_is_locked(os_handle handle, uint64_t byte);
/** The size of the host's pages. */
uint64_t os_page_bytes(void);

/* ---- bell: posix_bell.c, win32_bell.c ----------------------------------------------------- */

/** What a process sleeps at until another one rings: a word of shared memory, and where the system wants that an event
 *  beside it. The word is 1 while somebody sleeps or is about to. Who sleeps writes it; who rings sets it to 0 before.
 *  Between that and what each looks at then, both have a fence. */
typedef struct os_bell {
    os_handle event; /**< none on Linux */
} os_bell;

#define OS_BELL_NONE ((os_bell){OS_HANDLE_NONE})

/** @param name random, known to the two processes only  ERR_TOO_MANY_HANDLES */
gpuipc_status os_bell_make(const uint8_t name[16], os_bell *out_bell);
/** One that the other process has made. */
gpuipc_status os_bell_find(const uint8_t name[16], os_bell *out_bell);
/** The same for a thread that sleeps while another one may close it. */
gpuipc_status os_bell_copy(const os_bell *bell, os_bell *out_bell);
void os_bell_close(os_bell *bell);
/** Sleeps while the word is 1, until somebody rings, or so long; may return for nothing. One thread of a process at a
 *  time is sure to be woken. */
void os_bell_wait(const os_bell *bell, const atomic_uint_least64_t *word, unsigned milliseconds);
void os_bell_ring(const os_bell *bell, const atomic_uint_least64_t *word);

/* ---- small files of the user's: posix_file.c, win32_file.c ------------------------------- */

/** Where this user's programs keep what they can find out again: $XDG_CACHE_HOME/gpuipc or
 *  ~/.cache/gpuipc, %LOCALAPPDATA%\gpuipc\cache. Reads the environment. False when the user has no such
 *  place, and in a set-uid program. */
bool os_cache_directory(char *path, size_t capacity);

/** Reads a whole file of a directory that is this user's alone. ERR_NOT_FOUND, ERR_LIMIT (longer than
 *  @p capacity), ERR_UNSAFE_DIRECTORY (somebody else could have written it, or it is no plain file). */
gpuipc_status os_file_read(const char *directory, const char *name, void *bytes, size_t capacity,
                           size_t *out_size);

/** Puts a whole file in the place of another, at once: who reads has the one or the other. Makes the
 *  directory, and the one that it is in. ERR_UNSAFE_DIRECTORY. */
gpuipc_status os_file_replace(const char *directory, const char *name, const void *bytes,
                              size_t size);

/* ---- facts: what can be seen of the system; posix_facts.c, win32_facts.c ------------------- */

typedef enum os_answer {
    OS_UNKNOWN, /**< or it makes no sense on this system */
    OS_NO,
    OS_YES
} os_answer;

/** A number of os_facts that is not known, or a limit that there is not. */
#define OS_NO_NUMBER UINT64_MAX

/** Room for one line that a fact is told in. */
#define OS_FACT_MAX 160

/** The system around this process, as far as it can be seen without rights. A text that is empty: it is not so, or not
 *  known. The GPU driver's are those of NVIDIA's in the kernel. */
typedef struct os_facts {
    char system[OS_FACT_MAX];    /**< "Linux 6.1.0-18-amd64 x86_64", "Windows 10.0.22631" */
    char container[OS_FACT_MAX]; /**< what shows that this is one, such as "/.dockerenv" */
    char pid_namespace[64];      /**< "pid:[4026532281]": it is not the machine's first one */
    char ipc_namespace[64];      /**< likewise */
    char user_namespace[64];     /**< likewise */
    char mount_namespace[64];    /**< "mnt:[4026531841]", also when it is the machine's first one */
    char net_namespace[64];      /**< likewise */
    char user[192];              /**< that this process runs as: the number, on Windows the SID */
    char directory_file[64];     /**< which the runtime directory is: "DEVICE:INODE" */
    int seccomp;      /**< as in /proc/self/status: 0 none, 1 strict, 2 filter; -1: not known */
    os_answer is_wsl; /**< as os_is_wsl() */
    os_answer directory_on_root; /**< the runtime directory is part of the file system at "/" */
    os_answer has_shm;           /**< /dev/shm */
    char shm_file[64];           /**< which it is: "DEVICE:INODE" */
    uint64_t shm_bytes;          /**< its size */
    uint64_t shm_free_bytes;     /**< and what is free of it */
    int ptrace_scope;            /**< of Yama (kernel.yama.ptrace_scope); -1: there is no Yama */
    os_answer can_trace;         /**< has CAP_SYS_PTRACE */
    int pidfd_open_code;         /**< what it answers: 0, or the errno */
    int pidfd_getfd_code;        /**< likewise, of a descriptor of its own */
    char pidfd_open_text[64];    /**< the system's words for it, when it is not 0 */
    char pidfd_getfd_text[64];   /**< likewise */
    uint64_t handle_limit;       /**< of open descriptors */
    uint64_t handle_limit_hard;  /**< up to which a program may raise it */
    uint64_t handles_open;       /**< how many are */
    uint64_t locked_limit;       /**< bytes that may be locked (RLIMIT_MEMLOCK) */
    uint64_t address_limit;      /**< bytes of addresses that a process may have (RLIMIT_AS) */
    char gpu_driver[64];         /**< the driver's version, as its line tells it */
    uint64_t gpu_count;          /**< GPUs that it lists */
    uint64_t gpu_nodes;          /**< device files of GPUs that are here */
    char gpu_node_refused[OS_FACT_MAX]; /**< the first device file that does not open, and why */
    os_answer imex_is_loaded;           /**< the driver has IMEX channels */
    char imex_channel[OS_FACT_MAX];     /**< the channel that opens */
    char mps_control[OS_FACT_MAX];      /**< where an MPS daemon listens */
} os_facts;

/** Looks at all of it. What it opens it closes; nothing else is changed.
 *  @param runtime_directory for directory_on_root and directory_file; need not be there */
void os_facts_find(const char *runtime_directory, os_facts *out_facts);

/** A PCI device, as the system sees it. */
typedef struct os_pci {
    char iommu[32]; /**< how its addresses are translated: "DMA", "identity"; empty: not known */
    uint64_t bar1_bytes; /**< the window to a GPU's memory; 0: not known */
} os_pci;
os_pci os_pci_find(unsigned domain, unsigned bus, unsigned slot);

/** The file behind a path, with all links followed. False where that is not known. */
bool os_path_real(const char *path, char *real, size_t capacity);

/* ---- libraries: posix_library.c, win32_library.c ----------------------------------------- */

typedef struct os_library os_library;

/** The file names of this system. */
extern const char os_cuda_driver_name[]; /**< libcuda.so.1, nvcuda.dll */
extern const char
    os_emulated_driver_name[];    /**< libgpuipc-emulated-cuda.so, gpuipc-emulated-cuda.dll */
extern const char os_nvml_name[]; /**< libnvidia-ml.so.1, nvml.dll */
extern const char
    os_emulated_nvml_name[]; /**< libgpuipc-emulated-nvml.so, gpuipc-emulated-nvml.dll */
extern const int
    os_shareable_handle_type; /**< CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR (1), _WIN32 (2) */

/* All three: ERR_NOT_SUPPORTED in a program that was linked with -static (Linux). */

/** Loads from where the system keeps its libraries. ERR_NOT_FOUND when there is none;
 *  ERR_OS when there is one that does not load (the record has the loader's words). */
gpuipc_status os_library_open_system(const char *name, os_library **out_library);
/** Loads this absolute path. ERR_INVALID_ARGUMENT when it is not absolute (on Windows: with a drive or
 *  a share), ERR_NOT_FOUND when there is no such file, ERR_OS as above. */
gpuipc_status os_library_open_path(const char *path, os_library **out_library);
/** Loads a file that came with gpuipc: beside the code of this library or in gpuipc/ beside it, or
 *  in the lib directory it was installed with. */
gpuipc_status os_library_open_own(const char *name, os_library **out_library);
/** The address of a symbol, or NULL. Copy it into a function pointer with memcpy. */
void *os_library_symbol(os_library *library, const char *name);
/** Where it was loaded from; the library's text. */
const char *os_library_path(os_library *library);
void os_library_close(os_library *library);

#endif
