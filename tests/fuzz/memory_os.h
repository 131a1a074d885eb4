/* SPDX-License-Identifier: MIT */
/**
 * @file What os.h promises of connections, time and threads, in the memory of one thread, for fuzz_session.c. It stands in the
 * place of the files of src/posix of the same nouns when the target is linked; memory, handles, files and libraries stay
 * the system's.
 *
 * posix_memory_connection.c: packets wait in a list, with duplicates of their descriptors; the other end of each connection
 * is the hostile side's. posix_memory_endpoint.c: names, listeners and pollers. posix_memory_time.c: time is a number, which
 * each look moves on a little and each wait to its deadline; a mutex that is locked twice, and a wait that takes an hour,
 * are findings; threads run only when somebody says so, each to its first wait, and to their end when they are joined.
 */
#ifndef GPUIPC_FUZZ_MEMORY_OS_H
#define GPUIPC_FUZZ_MEMORY_OS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "os.h"

/** A process at the other end, as the library is told of it. */
typedef struct memory_process {
    uint64_t process_id;
    bool is_same_user;
    int lives; /**< an eventfd, which is readable from its end on */
} memory_process;

/** What else may come of a packet of the hostile side's. */
typedef enum memory_flaw {
    MEMORY_WHOLE,
    MEMORY_CUT,     /**< more descriptors than the library had room for: MSG_CTRUNC */
    MEMORY_AT_LIMIT /**< the library's process had no descriptor left */
} memory_flaw;

/** How many packets a connection holds that nobody has received. */
#define MEMORY_PACKETS_MAX 24u

/** As before anything was done: the time, and what is left of threads. */
void memory_begin(void);

/* ---- the hostile side: its ends are connections too, of which it alone has hold ---------------- */

/** Connects to a name of the library's. NULL: nobody listens there, or too many wait. */
os_connection *memory_connect(const char *name, const memory_process *as);
/** False when the library has closed its end, or takes no more. The descriptors stay the caller's. */
bool memory_send(os_connection *end, const void *bytes, size_t size, const int *fds, size_t count,
                 memory_flaw flaw);
/** The next packet of the library's. False: none is there. The descriptors become the caller's; @p fds has room for
 *  OS_PACKET_HANDLES_MAX. */
bool memory_receive(os_connection *end, void *bytes, size_t capacity, size_t *out_size, int *fds,
                    size_t *out_count);
void memory_close(os_connection *end);
/** Who listens where the library connects: NULL: nobody does. He then gets the other end. */
extern const memory_process *(*memory_listens)(const char *name);
extern void (*memory_accepts)(os_connection *end);

/* ---- time ------------------------------------------------------------------------------------ */

/** Called when the library would wait: does the next thing that the hostile side does, which may be what is waited for.
 *  False: nothing, and the time passes. It calls nothing of the library. */
extern bool (*memory_meanwhile)(void);

/** Until then, or shorter. */
void memory_wait(uint64_t until_ns);
/** So long nothing is done. */
void memory_pass(uint64_t milliseconds);
/** Every thread goes on, to its next wait. With no lock held. */
void memory_run_threads(void);

/* ---- between the files ------------------------------------------------------------------------ */

/** The two ends of a new connection. @param as who the library finds at its end. False: no memory */
bool memory_pair(const memory_process *as, os_connection **out_own, os_connection **out_hostile);
/** Whether os_connection_receive() would not wait. */
bool memory_is_ready(const os_connection *connection);

#endif
