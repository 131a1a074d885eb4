/* SPDX-License-Identifier: MIT */
/** @file Every failing call of a public function is looked at: its error record has its status, and names it and no other.
 *  What each call answers is noted (call_log.h). Every test and every helper makes all its calls so: who links
 *  gpuipc_test_support includes this before all else. ci/check-calls knows that none is missing. */
#ifndef GPUIPC_TEST_NAMED_CALLS_H
#define GPUIPC_TEST_NAMED_CALLS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gpuipc/gpuipc.h>
#include <gpuipc/gpuipc_manifest.h>
#include <gpuipc/gpuipc_native.h>

#include "call_log.h"

/** @return @p status. Ends the process when the record is not about this call, in whichever thread. */
static inline gpuipc_status named_call(const char *name, gpuipc_status status) {
    const gpuipc_error *error = gpuipc_error_get();
    call_log_note(name, status);
    if (status != GPUIPC_OK && (error->status != status || strcmp(error->operation, name) != 0)) {
        fprintf(stderr, "%s answered %s, and the record is: %s\n", name, gpuipc_status_name(status),
                gpuipc_error_text());
        abort();
    }
    return status;
}

/* Of the function itself: its name is not followed by a bracket. */
#define NAMED_CALL(name, ...) named_call(#name, (name)(__VA_ARGS__))

/* clang-format off */
#define gpuipc_buffer_await_loan(...) NAMED_CALL(gpuipc_buffer_await_loan, __VA_ARGS__)
#define gpuipc_buffer_await_loan_async(...) NAMED_CALL(gpuipc_buffer_await_loan_async, __VA_ARGS__)
#define gpuipc_buffer_await_mark(...) NAMED_CALL(gpuipc_buffer_await_mark, __VA_ARGS__)
#define gpuipc_buffer_await_mark_async(...) NAMED_CALL(gpuipc_buffer_await_mark_async, __VA_ARGS__)
#define gpuipc_buffer_await_ready(...) NAMED_CALL(gpuipc_buffer_await_ready, __VA_ARGS__)
#define gpuipc_buffer_await_ready_async(...) NAMED_CALL(gpuipc_buffer_await_ready_async, __VA_ARGS__)
#define gpuipc_buffer_await_returns(...) NAMED_CALL(gpuipc_buffer_await_returns, __VA_ARGS__)
#define gpuipc_buffer_await_returns_async(...) NAMED_CALL(gpuipc_buffer_await_returns_async, __VA_ARGS__)
#define gpuipc_buffer_cancel_loan(...) NAMED_CALL(gpuipc_buffer_cancel_loan, __VA_ARGS__)
#define gpuipc_buffer_copy_async(...) NAMED_CALL(gpuipc_buffer_copy_async, __VA_ARGS__)
#define gpuipc_buffer_create(...) NAMED_CALL(gpuipc_buffer_create, __VA_ARGS__)
#define gpuipc_buffer_drop(...) NAMED_CALL(gpuipc_buffer_drop, __VA_ARGS__)
#define gpuipc_buffer_drop_loan(...) NAMED_CALL(gpuipc_buffer_drop_loan, __VA_ARGS__)
#define gpuipc_buffer_fill_async(...) NAMED_CALL(gpuipc_buffer_fill_async, __VA_ARGS__)
#define gpuipc_buffer_find(...) NAMED_CALL(gpuipc_buffer_find, __VA_ARGS__)
#define gpuipc_buffer_get_info(...) NAMED_CALL(gpuipc_buffer_get_info, __VA_ARGS__)
#define gpuipc_buffer_get_loan_states(...) NAMED_CALL(gpuipc_buffer_get_loan_states, __VA_ARGS__)
#define gpuipc_buffer_get_returns_wait_handle(...) NAMED_CALL(gpuipc_buffer_get_returns_wait_handle, __VA_ARGS__)
#define gpuipc_buffer_lend(...) NAMED_CALL(gpuipc_buffer_lend, __VA_ARGS__)
#define gpuipc_buffer_lend_ready(...) NAMED_CALL(gpuipc_buffer_lend_ready, __VA_ARGS__)
#define gpuipc_buffer_mark(...) NAMED_CALL(gpuipc_buffer_mark, __VA_ARGS__)
#define gpuipc_buffer_open(...) NAMED_CALL(gpuipc_buffer_open, __VA_ARGS__)
#define gpuipc_buffer_read(...) NAMED_CALL(gpuipc_buffer_read, __VA_ARGS__)
#define gpuipc_buffer_release(...) NAMED_CALL(gpuipc_buffer_release, __VA_ARGS__)
#define gpuipc_buffer_release_async(...) NAMED_CALL(gpuipc_buffer_release_async, __VA_ARGS__)
#define gpuipc_buffer_retain(...) NAMED_CALL(gpuipc_buffer_retain, __VA_ARGS__)
#define gpuipc_buffer_return_async(...) NAMED_CALL(gpuipc_buffer_return_async, __VA_ARGS__)
#define gpuipc_buffer_return_loan(...) NAMED_CALL(gpuipc_buffer_return_loan, __VA_ARGS__)
#define gpuipc_buffer_return_loan_async(...) NAMED_CALL(gpuipc_buffer_return_loan_async, __VA_ARGS__)
#define gpuipc_buffer_set_access(...) NAMED_CALL(gpuipc_buffer_set_access, __VA_ARGS__)
#define gpuipc_buffer_share(...) NAMED_CALL(gpuipc_buffer_share, __VA_ARGS__)
#define gpuipc_buffer_take_loan(...) NAMED_CALL(gpuipc_buffer_take_loan, __VA_ARGS__)
#define gpuipc_buffer_wrap(...) NAMED_CALL(gpuipc_buffer_wrap, __VA_ARGS__)
#define gpuipc_buffer_write(...) NAMED_CALL(gpuipc_buffer_write, __VA_ARGS__)
#define gpuipc_channel_create(...) NAMED_CALL(gpuipc_channel_create, __VA_ARGS__)
#define gpuipc_channel_destroy(...) NAMED_CALL(gpuipc_channel_destroy, __VA_ARGS__)
#define gpuipc_channel_discard(...) NAMED_CALL(gpuipc_channel_discard, __VA_ARGS__)
#define gpuipc_channel_kernel_launched(...) NAMED_CALL(gpuipc_channel_kernel_launched, __VA_ARGS__)
#define gpuipc_channel_loan(...) NAMED_CALL(gpuipc_channel_loan, __VA_ARGS__)
#define gpuipc_channel_publish(...) NAMED_CALL(gpuipc_channel_publish, __VA_ARGS__)
#define gpuipc_channel_publish_by_kernel(...) NAMED_CALL(gpuipc_channel_publish_by_kernel, __VA_ARGS__)
#define gpuipc_channel_readers(...) NAMED_CALL(gpuipc_channel_readers, __VA_ARGS__)
#define gpuipc_connection_close(...) NAMED_CALL(gpuipc_connection_close, __VA_ARGS__)
#define gpuipc_connection_get_peer(...) NAMED_CALL(gpuipc_connection_get_peer, __VA_ARGS__)
#define gpuipc_connection_get_wait_handle(...) NAMED_CALL(gpuipc_connection_get_wait_handle, __VA_ARGS__)
#define gpuipc_connection_open(...) NAMED_CALL(gpuipc_connection_open, __VA_ARGS__)
#define gpuipc_connection_receive(...) NAMED_CALL(gpuipc_connection_receive, __VA_ARGS__)
#define gpuipc_connection_receive_contents(...) NAMED_CALL(gpuipc_connection_receive_contents, __VA_ARGS__)
#define gpuipc_connection_send(...) NAMED_CALL(gpuipc_connection_send, __VA_ARGS__)
#define gpuipc_connection_send_contents(...) NAMED_CALL(gpuipc_connection_send_contents, __VA_ARGS__)
#define gpuipc_context_create(...) NAMED_CALL(gpuipc_context_create, __VA_ARGS__)
#define gpuipc_context_destroy(...) NAMED_CALL(gpuipc_context_destroy, __VA_ARGS__)
#define gpuipc_context_get_info(...) NAMED_CALL(gpuipc_context_get_info, __VA_ARGS__)
#define gpuipc_context_wake(...) NAMED_CALL(gpuipc_context_wake, __VA_ARGS__)
#define gpuipc_device_count(...) NAMED_CALL(gpuipc_device_count, __VA_ARGS__)
#define gpuipc_device_find(...) NAMED_CALL(gpuipc_device_find, __VA_ARGS__)
#define gpuipc_device_get_info(...) NAMED_CALL(gpuipc_device_get_info, __VA_ARGS__)
#define gpuipc_diagnose(...) NAMED_CALL(gpuipc_diagnose, __VA_ARGS__)
#define gpuipc_drops_pause(...) NAMED_CALL(gpuipc_drops_pause, __VA_ARGS__)
#define gpuipc_drops_resume(...) NAMED_CALL(gpuipc_drops_resume, __VA_ARGS__)
#define gpuipc_finding_describe(...) NAMED_CALL(gpuipc_finding_describe, __VA_ARGS__)
#define gpuipc_listener_accept(...) NAMED_CALL(gpuipc_listener_accept, __VA_ARGS__)
#define gpuipc_listener_close(...) NAMED_CALL(gpuipc_listener_close, __VA_ARGS__)
#define gpuipc_listener_get_wait_handle(...) NAMED_CALL(gpuipc_listener_get_wait_handle, __VA_ARGS__)
#define gpuipc_listener_open(...) NAMED_CALL(gpuipc_listener_open, __VA_ARGS__)
#define gpuipc_manifest_find(...) NAMED_CALL(gpuipc_manifest_find, __VA_ARGS__)
#define gpuipc_manifest_read(...) NAMED_CALL(gpuipc_manifest_read, __VA_ARGS__)
#define gpuipc_manifest_write(...) NAMED_CALL(gpuipc_manifest_write, __VA_ARGS__)
#define gpuipc_native_export(...) NAMED_CALL(gpuipc_native_export, __VA_ARGS__)
#define gpuipc_native_export_dmabuf(...) NAMED_CALL(gpuipc_native_export_dmabuf, __VA_ARGS__)
#define gpuipc_native_import(...) NAMED_CALL(gpuipc_native_import, __VA_ARGS__)
#define gpuipc_pointer_classify(...) NAMED_CALL(gpuipc_pointer_classify, __VA_ARGS__)
#define gpuipc_server_create(...) NAMED_CALL(gpuipc_server_create, __VA_ARGS__)
#define gpuipc_server_destroy(...) NAMED_CALL(gpuipc_server_destroy, __VA_ARGS__)
#define gpuipc_server_get_wait_handle(...) NAMED_CALL(gpuipc_server_get_wait_handle, __VA_ARGS__)
#define gpuipc_server_holders(...) NAMED_CALL(gpuipc_server_holders, __VA_ARGS__)
#define gpuipc_server_poll(...) NAMED_CALL(gpuipc_server_poll, __VA_ARGS__)
#define gpuipc_server_revoke(...) NAMED_CALL(gpuipc_server_revoke, __VA_ARGS__)
#define gpuipc_subscription_check(...) NAMED_CALL(gpuipc_subscription_check, __VA_ARGS__)
#define gpuipc_subscription_close(...) NAMED_CALL(gpuipc_subscription_close, __VA_ARGS__)
#define gpuipc_subscription_get_wait_handle(...) NAMED_CALL(gpuipc_subscription_get_wait_handle, __VA_ARGS__)
#define gpuipc_subscription_give_back(...) NAMED_CALL(gpuipc_subscription_give_back, __VA_ARGS__)
#define gpuipc_subscription_kernel_launched(...) NAMED_CALL(gpuipc_subscription_kernel_launched, __VA_ARGS__)
#define gpuipc_subscription_open(...) NAMED_CALL(gpuipc_subscription_open, __VA_ARGS__)
#define gpuipc_subscription_open_named(...) NAMED_CALL(gpuipc_subscription_open_named, __VA_ARGS__)
#define gpuipc_subscription_take(...) NAMED_CALL(gpuipc_subscription_take, __VA_ARGS__)
#define gpuipc_subscription_take_for_kernel(...) NAMED_CALL(gpuipc_subscription_take_for_kernel, __VA_ARGS__)
#define gpuipc_ticket_from_bytes(...) NAMED_CALL(gpuipc_ticket_from_bytes, __VA_ARGS__)
#define gpuipc_ticket_from_text(...) NAMED_CALL(gpuipc_ticket_from_text, __VA_ARGS__)
#define gpuipc_ticket_narrow(...) NAMED_CALL(gpuipc_ticket_narrow, __VA_ARGS__)
#define gpuipc_ticket_to_text(...) NAMED_CALL(gpuipc_ticket_to_text, __VA_ARGS__)
#define gpuipc_topology_get(...) NAMED_CALL(gpuipc_topology_get, __VA_ARGS__)
#define gpuipc_transport_count(...) NAMED_CALL(gpuipc_transport_count, __VA_ARGS__)
#define gpuipc_transport_measure(...) NAMED_CALL(gpuipc_transport_measure, __VA_ARGS__)
#define gpuipc_transport_query(...) NAMED_CALL(gpuipc_transport_query, __VA_ARGS__)
#define gpuipc_transport_select(...) NAMED_CALL(gpuipc_transport_select, __VA_ARGS__)
/* clang-format on */

#endif
