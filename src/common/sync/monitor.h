/* SPDX-License-Identifier: MIT */
/**
 * @file The monitor threads of the process. They look at objects whose changes no system call reports: semaphores in
 * shared memory, the end of other processes. A thread looks at a new object at once, and at each of its objects in turn, 1
 * to 20 ms apart. The thread runs only while it has objects, and ends a fifth of a second later. All contexts share a
 * thread: a context may end in a look, and a thread cannot wait for its own end.
 *
 * There are two, since a call that frees GPU memory may block until a stream goes on that waits for another process. When
 * that process has ended, the peer monitor thread unblocks the stream.
 */
#ifndef GPUIPC_MONITOR_H
#define GPUIPC_MONITOR_H

#include "base/list.h"
#include "base/object.h"
#include "base/wait_handle.h"
#include "os.h"

typedef enum monitor_thread {
    MONITOR_PEERS, /**< unblocks streams: no look waits or ends an object. No reference is held during a look */
    MONITOR_FREES, /**< a look may free memory, and the object may end behind it: a reference is held during a look */
    MONITOR_THREADS
} monitor_thread;

/** Member of an object. All zero: it is not monitored. */
typedef struct monitored {
    list_link link;
    object *of;               /**< not referenced here: monitor_end() comes before its end */
    bool (*look)(object *of); /**< whether there is nothing more to look for; no lock is held */
    wait_handle *notifies;    /**< becomes ready then; NULL: none */
    uint64_t begun;           /**< how often it was begun */
    unsigned looks;           /**< looks in progress */
} monitored;

/** Looks (again) from now on. The caller may hold the mutex of the object. Fails where no thread can be started. */
gpuipc_status monitor_begin(monitored *self, monitor_thread by, object *of,
                            bool (*look)(object *of), wait_handle *notifies);
/** No look begins any more. The caller may hold the mutex of the object. */
void monitor_end(monitored *self);
/** Waits, after monitor_end(), until no look is in progress. For MONITOR_PEERS. The caller holds no lock. */
void monitor_settle(monitored *self);

/** Whether the process is in exit(): the driver may have ended, so a look must not call it. Then MONITOR_FREES has ended. */
bool monitor_is_exiting(void);
/** Whether the thread runs. For tests. */
bool monitor_runs(monitor_thread which);

/** Ends a thread that has no objects. The caller holds no lock that a look takes. */
void monitor_dismiss(monitor_thread which);

#endif
