/* SPDX-License-Identifier: MIT */
/** @file A process with which this one shares everything that there is to share, in a state in which nothing comes of it;
 *  and a call of each function of which the headers promise a time. */
#ifndef GPUIPC_TEST_PROMISE_PEER_H
#define GPUIPC_TEST_PROMISE_PEER_H

#include <gpuipc/gpuipc.h>
#include <stdint.h>

/** How the other process is. */
typedef enum promise_state {
    PROMISE_SILENT,  /**< it does nothing of its own accord */
    PROMISE_SLOW,    /**< it is stopped and let go on again and again */
    PROMISE_STOPPED, /**< SIGSTOP, or suspended */
    PROMISE_DEAD     /**< killed */
} promise_state;

/** Of what a call uses up there are so many. */
#define PROMISE_ITEMS 12

/** Everything is shared, and the other process is in this state. */
void promise_begin(promise_state state);
/** From now on nothing can be sent: the other one does not read. Before the calls with a time-out. */
void promise_fill(void);
void promise_end(void);
const char *promise_state_name(void);

/** When the last call began, and what it took, without what prepares and undoes it. */
extern uint64_t promise_begun_ns;
extern uint64_t promise_took_ns;

/* Calls of one function each. Those without a time-out leave @p timeout_ms alone. */
#define PROMISE_CALL(function) gpuipc_status promise_call_##function(int timeout_ms)

PROMISE_CALL(gpuipc_buffer_await_loan);
PROMISE_CALL(gpuipc_buffer_await_loan_async);
PROMISE_CALL(gpuipc_buffer_await_mark);
PROMISE_CALL(gpuipc_buffer_await_ready);
PROMISE_CALL(gpuipc_buffer_await_returns);
PROMISE_CALL(gpuipc_buffer_open);
PROMISE_CALL(gpuipc_channel_loan);
PROMISE_CALL(gpuipc_connection_open);
PROMISE_CALL(gpuipc_connection_receive);
PROMISE_CALL(gpuipc_connection_receive_contents);
PROMISE_CALL(gpuipc_connection_send);
PROMISE_CALL(gpuipc_connection_send_contents);
PROMISE_CALL(gpuipc_listener_accept);
PROMISE_CALL(gpuipc_server_poll);
PROMISE_CALL(gpuipc_subscription_open);
PROMISE_CALL(gpuipc_subscription_open_named);
PROMISE_CALL(gpuipc_subscription_take);
PROMISE_CALL(gpuipc_subscription_take_for_kernel);
PROMISE_CALL(gpuipc_buffer_cancel_loan);
PROMISE_CALL(gpuipc_buffer_copy_async);
PROMISE_CALL(gpuipc_buffer_drop);
PROMISE_CALL(gpuipc_buffer_drop_loan);
PROMISE_CALL(gpuipc_buffer_fill_async);
PROMISE_CALL(gpuipc_buffer_find);
PROMISE_CALL(gpuipc_buffer_get_info);
PROMISE_CALL(gpuipc_buffer_get_loan_states);
PROMISE_CALL(gpuipc_buffer_get_returns_wait_handle);
PROMISE_CALL(gpuipc_buffer_lend_ready);
PROMISE_CALL(gpuipc_buffer_release_async);
PROMISE_CALL(gpuipc_buffer_retain);
PROMISE_CALL(gpuipc_buffer_return_async);
PROMISE_CALL(gpuipc_buffer_return_loan);
PROMISE_CALL(gpuipc_buffer_return_loan_async);
PROMISE_CALL(gpuipc_buffer_take_loan);
PROMISE_CALL(gpuipc_channel_create);
PROMISE_CALL(gpuipc_channel_discard);
PROMISE_CALL(gpuipc_channel_readers);
PROMISE_CALL(gpuipc_connection_close);
PROMISE_CALL(gpuipc_connection_get_peer);
PROMISE_CALL(gpuipc_connection_get_wait_handle);
PROMISE_CALL(gpuipc_context_get_info);
PROMISE_CALL(gpuipc_context_wake);
PROMISE_CALL(gpuipc_device_count);
PROMISE_CALL(gpuipc_device_find);
PROMISE_CALL(gpuipc_device_get_info);
PROMISE_CALL(gpuipc_listener_close);
PROMISE_CALL(gpuipc_listener_get_wait_handle);
PROMISE_CALL(gpuipc_listener_open);
PROMISE_CALL(gpuipc_native_export);
PROMISE_CALL(gpuipc_native_export_dmabuf);
PROMISE_CALL(gpuipc_server_get_wait_handle);
PROMISE_CALL(gpuipc_server_holders);
PROMISE_CALL(gpuipc_server_revoke);
PROMISE_CALL(gpuipc_subscription_check);
PROMISE_CALL(gpuipc_subscription_get_wait_handle);
PROMISE_CALL(gpuipc_subscription_give_back);

#endif
