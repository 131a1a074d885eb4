/* SPDX-License-Identifier: MIT */
/**
 * @file What happens between two steps of a call, made to happen then: ld(1), --wrap. Another thread could do it, in the very
 * moment; here the same thread does it, at a call inside the library that lies between. Or that call fails.
 */
#ifndef GPUIPC_TEST_MOMENT_H
#define GPUIPC_TEST_MOMENT_H

#include <stdbool.h>

#include <gpuipc/gpuipc.h>

typedef enum moment {
    MOMENT_NONE,
    MOMENT_ASK,        /**< ticket_name_ask */
    MOMENT_ATTRIBUTES, /**< os_handle_attributes */
    MOMENT_AWAIT,      /**< point_await */
    MOMENT_BELL,       /**< os_bell_make */
    MOMENT_CLAIM,      /**< channel_still_stands: a failure is that it does not */
    MOMENT_END,        /**< os_connection_end: a failure is that the peer was first */
    MOMENT_FORK,       /**< os_fork_watch */
    MOMENT_HOLD,       /**< object_add_hold */
    MOMENT_LIBRARY,    /**< os_library_open_path */
    MOMENT_LISTENER,   /**< os_poller_add_listener */
    MOMENT_LIST_HELD,  /**< channel_list_held */
    MOMENT_MAP,        /**< os_memory_map */
    MOMENT_MEMORY,     /**< os_memory_create */
    MOMENT_PASSING,    /**< drop_passing_new */
    MOMENT_PUBLISH,    /**< object_publish */
    MOMENT_SEND,       /**< os_connection_send */
    MOMENT_TRAIL,      /**< trail_new */
    MOMENT_TRY_LOCK,   /**< os_mutex_try_lock: a failure is that another thread has it */
    MOMENT_TURN,       /**< turn_begin */
    MOMENT_WATCH_SLOT, /**< watch_add_slot */
    MOMENT_WATCH_BACK, /**< watch_add_return */
    MOMENT_WITHDRAW,   /**< channel_withdraw: a failure is that it was taken */
    MOMENT_WRITE       /**< trail_turn_write */
} moment;

/** From now on, of this thread: at the call number @p nth (from 1) there @p what is done first. Where that answers a failure,
 *  the call is not made, and answers it. Once; then all is as ever, unless @p what has set another moment. */
void moment_at(moment where, unsigned nth, gpuipc_status (*what)(void));
/** The same at each call from that one on, until moment_over(). */
void moment_at_all(moment where, unsigned nth, gpuipc_status (*what)(void));
/** Asserts that the moment came. */
void moment_over(void);

#endif
