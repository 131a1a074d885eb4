/* SPDX-License-Identifier: MIT */
/** @file What the files of src/posix share with each other and with nobody else. */
#ifndef GPUIPC_POSIX_H
#define GPUIPC_POSIX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

#include "base/compiler.h"
#include "base/status.h"
#include "os.h"

/* ---- errno: posix_error.c ---------------------------------------------------------------- */

/** The status that an errno value means wherever it arises: a limit of descriptors, memory, a peer
 *  that is gone; ERR_OS for all others. */
gpuipc_status posix_error_status(int code);

/** Records a failed system call: the sentence, then the system's words for @p code.
 *  @return posix_error_status(code) */
GPUIPC_COLD gpuipc_status posix_fail(int code, const char *call, const char *format, ...)
    GPUIPC_PRINTF(3, 4);

/** The same with a status decided by the caller. */
GPUIPC_COLD gpuipc_status posix_fail_as(gpuipc_status status, int code, const char *call,
                                        const char *format, ...) GPUIPC_PRINTF(4, 5);

/** setrlimit(2): who goes beyond RLIMIT_FSIZE, with shared memory too, gets SIGXFSZ, which ends a process that has not asked
 *  for it. So that limit is compared first, and refused with the code that the call would have answered. */
gpuipc_status posix_file_size_check(uint64_t bytes, const char *call);

/* ---- the register of the library's descriptors: posix_handle.c ---------------------------- */

/** A descriptor is made and registered with the register locked: a fork in another thread waits
 *  that long, so that its child knows of every descriptor it inherits. Only calls that do not
 *  block belong between these two. */
void posix_register_lock(void);
void posix_register_unlock(void);

/** With the register locked: records @p fd, which the system call @p call has just answered.
 *  Below zero, errno becomes the status. When it cannot be recorded it is closed. */
gpuipc_status posix_register_add(int fd, const char *call);

/** With the register locked: records an open descriptor, which stays the caller's on failure. */
gpuipc_status posix_register_record(int fd);

/** Closes a registered descriptor; one that is not registered is left alone (in a forked child its
 *  number may belong to something else by now). */
void posix_register_close(int fd);

/** The same by posix_close_foreign(); the register is not locked meanwhile. A fork in that moment leaves the child a copy
 *  until it execs. */
void posix_register_close_foreign(int fd);

/** The same by a thread that waits alone, whatever it is. */
void posix_register_close_alone(int fd);

/** Looks how many descriptors this process may still open, unless that was done in the last 100 ms. It may take 50 us: for
 *  who is about to sleep. */
void posix_register_look(void);
/** With the register locked: whether there is room for so many more, as far as such a look has seen. */
bool posix_register_has_room(unsigned count);

/** Closes one that is not registered and may be of a peer's making, whose close() can take as long as the peer likes. Unless
 *  it is of a kind that is quick, a thread of its own waits for that, of which there are 16 at most (posix_closer.c). */
void posix_close_foreign(int fd);
/** Has such a thread close it in any case. */
void posix_close_alone(int fd);

/** In a forked child, with the register locked: closes all. Allocates nothing. */
void posix_register_close_all(void);

/** A thread that nobody waits for: it may outlive all else of the library, which is not unloaded any more then. */
gpuipc_status posix_thread_start_alone(void (*run)(void *argument), void *argument);

/** From now on dlclose(3) does not unload what this library is in. */
void posix_library_stay(void);

/* ---- static mutexes over fork(): posix_thread.c ------------------------------------------- */

/** Takes every static mutex that was ever locked, and gives them back: around fork(). */
void posix_static_mutexes_lock(void);
void posix_static_mutexes_unlock(void);

/* ---- waiting: posix_clock.c --------------------------------------------------------------- */

/** poll() on one descriptor until @p deadline; interruption by a signal does not end it early.
 *  @return the events that came, 0 at the deadline, -1 with errno */
int fd_wait(int fd, short events, os_deadline deadline);

/** os_signal_ran() of this thread; each wait that ends with EINTR sets it. */
extern GPUIPC_THREAD_LOCAL bool posix_signal_ran;

/* ---- directory and addresses: posix_directory.c ------------------------------------------- */

/** A name that stands for an abstract address begins with this. */
#define POSIX_ABSTRACT_MARK '@'
/** The file of a name ends with this. */
#define POSIX_SOCKET_SUFFIX ".sock"

typedef struct posix_address {
    struct sockaddr_un socket;
    socklen_t size;
    size_t file; /**< where in sun_path the last component begins; 0: the address is abstract */
} posix_address;

/** Whether the directory is there and belongs to another user, who is not root: nothing is made in it. */
bool posix_is_another_users(const char *path, uid_t *out_owner);

/** Opens and checks it. @p create: makes its last component if it is missing.
 *  ERR_NOT_FOUND when it is missing and not made. @p out_fd is registered. */
gpuipc_status posix_directory_open(const char *path, bool shared, bool create, int *out_fd);

/** The rights that the file of a socket has once it is made: its own user's, and its group's where that shares the directory. */
mode_t posix_socket_rights(bool shared);

/** The address that @p name has in a directory (whose path is not looked at when abstract). */
gpuipc_status posix_address_make(const char *directory_path, const char *name,
                                 posix_address *out_address);

/** bind(2) or connect(2) of @p fd at an address in the directory that is open as @p directory: in that one, whatever
 *  the path leads to by now. An abstract address needs none (-1).
 *  @return 0, errno, or POSIX_UNREACHABLE: there is no /proc, and no thread may have a directory of its own */
typedef int posix_address_call(int fd, const struct sockaddr *address, socklen_t size);
#define POSIX_UNREACHABLE (-1)
int posix_address_do(posix_address_call *call, int fd, int directory, const posix_address *address);

/** The failure that POSIX_UNREACHABLE of posix_address_do() stands for. */
gpuipc_status posix_address_unreachable(const posix_address *address);

/** Where this process's descriptor @p fd leads to, as a path that no rename(2) changes: needs a /proc. */
void posix_descriptor_path(int fd, char *path, size_t capacity);

/* ---- facts: posix_facts.c ------------------------------------------------------------------ */

/** What the kernel's NVIDIA driver says of itself in this file, as far as it is printable; empty where it does not. */
void posix_driver_line(const char *path, char *line, size_t capacity);

/* ---- sockets: posix_connection.c, posix_packet.c, posix_peer.c ----------------------------- */

/** A Unix socket of this type, non-blocking, closed on exec, registered. */
gpuipc_status posix_socket_make(int type, int *out_fd);

struct os_connection {
    int fd;
    uint32_t generation; /**< os_fork_generation() when it was made */
    uint32_t look_us;    /**< os_connection_set_look() */
    atomic_bool interrupted;
};

/** ERR_FORKED, ERR_RELEASED after an interrupt. */
gpuipc_status posix_connection_usable(const os_connection *connection);

/** Makes a connection of a connected socket, which is the connection's only on success. */
gpuipc_status posix_connection_wrap(int fd, os_connection **out_connection);

/** For calls on an object that was made before a fork: its descriptors are closed in this child. */
GPUIPC_COLD gpuipc_status posix_fail_forked(void);

/** Ends a connected socket, which is registered: throws away what nobody received of it, and closes it. */
void posix_packet_close(int fd);

gpuipc_status posix_peer_of_socket(int fd, os_peer *out_peer);

/* ---- names: posix_name.c ------------------------------------------------------------------- */

struct stat;

/** Locks an open directory, for as long as names in it are made, replaced or removed. ERR_TIMEOUT */
gpuipc_status posix_directory_lock(int directory, int wait_ms);
void posix_directory_unlock(int directory);

/** With the directory locked: removes the socket of a process that is gone. ERR_NAME_IN_USE */
gpuipc_status posix_name_clear(int directory, const posix_address *address, bool *out_replaced);
/** With the directory locked: binds the socket to a free name, and listens. An abstract name needs no directory (-1).
 *  @param out_made the file of the name; untouched for an abstract one */
gpuipc_status posix_name_make(int fd, int directory, const posix_address *address, bool shared,
                              struct stat *out_made);
/** Whether the name leads to that file. */
bool posix_name_is(int directory, const posix_address *address, const struct stat *made);
/** Removes the name if it leads to that file. */
void posix_name_remove(int directory, const posix_address *address, const struct stat *made);
/** The failure of a call that did not find what was there a moment before. */
gpuipc_status posix_name_removed(int code, const char *call, const posix_address *address);

/* ---- listeners and pollers: posix_endpoint.c, posix_poller.c ------------------------------- */

/** Has a poller wait for clients, with whatever socket the listener has. */
gpuipc_status posix_listener_poll(os_listener *listener, os_poller *poller, void *tag);
gpuipc_status posix_poller_add(os_poller *poller, int fd, void *tag);
void posix_poller_remove(os_poller *poller, int fd);

#endif
