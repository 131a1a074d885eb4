/* SPDX-License-Identifier: MIT */
/** @file The rights that the library asks for on other processes and gives with what it makes: no more
 *  than it needs, and not before it does. */
#include <stdio.h>
#include <string.h>
#include <wchar.h>

#include "check.h"
#include "leak_gate.h"
#include "os_pair.h"
#include "win32_raw.h"
#include "win32_record.h"

TestSuite(win32_rights, .timeout = 60);

#define LOOKING   (PROCESS_QUERY_LIMITED_INFORMATION | SYNCHRONIZE)
#define EXPORTING (PROCESS_DUP_HANDLE | LOOKING)

/** The n-th opening of a process asked for these rights, on this process, and was not inherited. */
static void check_opening(size_t index, DWORD rights) {
    const record_call *call = record_at(RECORD_OpenProcess, index);
    cr_assert_eq(call->arguments[0], rights, "%llx", (unsigned long long)call->arguments[0]);
    cr_assert_eq(call->arguments[1], FALSE);
    cr_assert_eq(call->arguments[2], GetCurrentProcessId());
}

static void look_at_peer(os_connection *connection) {
    os_peer peer;
    check_ok(os_connection_get_peer(connection, &peer));
    os_peer_close(&peer);
}

static void transfer(os_connection *from, os_connection *to, os_handle *handles, size_t count) {
    static os_handle came[OS_PACKET_HANDLES_MAX];
    char byte;
    size_t size;
    size_t came_count;
    check_ok(os_connection_send(from, "x", 1, handles, count, os_deadline_after(SOON_MS)));
    check_ok(
        os_connection_receive(to, &byte, 1, &size, came, &came_count, os_deadline_after(SOON_MS)));
    cr_assert_eq(came_count, count);
    os_pair_close_handles(came, came_count);
}

Test(win32_rights, the_peer_is_opened_to_look_at_it_and_for_more_only_by_who_sends_handles) {
    os_pair pair;
    os_handle handles[2];
    os_pair_make_handles(handles, 2);
    record_begin();
    os_pair_open(&pair);
    cr_assert_eq(record_count(RECORD_OpenProcess), 0);
    look_at_peer(pair.client);
    look_at_peer(pair.client);
    cr_assert_eq(record_count(RECORD_OpenProcess), 1, "found out once");
    check_opening(0, LOOKING);
    look_at_peer(pair.server);
    cr_assert_eq(record_count(RECORD_OpenProcess), 2);
    check_opening(1, LOOKING);

    transfer(pair.client, pair.server, NULL, 0);
    transfer(pair.server, pair.client, NULL, 0);
    cr_assert_eq(record_count(RECORD_OpenProcess), 2, "bytes alone need no right");

    transfer(pair.client, pair.server, handles, 2);
    cr_assert_eq(record_count(RECORD_OpenProcess), 3, "the receiver asks for nothing");
    check_opening(2, EXPORTING);
    transfer(pair.client, pair.server, handles, 1);
    cr_assert_eq(record_count(RECORD_OpenProcess), 3);

    transfer(pair.server, pair.client, handles, 1);
    cr_assert_eq(record_count(RECORD_OpenProcess), 4);
    check_opening(3, EXPORTING);
    record_end();
    os_pair_close_handles(handles, 2);
    os_pair_close(&pair);
}

Test(win32_rights, an_end_that_sends_handles_before_anybody_asked_who_the_peer_is_looks_first) {
    os_pair pair;
    os_handle handle;
    os_pair_make_handles(&handle, 1);
    os_pair_open(&pair);
    record_begin();
    transfer(pair.client, pair.server, &handle, 1);
    record_end();
    cr_assert_eq(record_count(RECORD_OpenProcess), 2);
    check_opening(0, LOOKING);
    check_opening(1, EXPORTING);
    os_handle_close(&handle);
    os_pair_close(&pair);
}

Test(win32_rights, each_end_asks_who_has_the_other) {
    os_pair pair;
    os_pair_open(&pair);
    record_begin();
    look_at_peer(pair.client);
    cr_assert_eq(record_count(RECORD_GetNamedPipeServerProcessId), 1);
    cr_assert_eq(record_count(RECORD_GetNamedPipeClientProcessId), 0);
    look_at_peer(pair.server);
    record_end();
    cr_assert_eq(record_count(RECORD_GetNamedPipeServerProcessId), 1);
    cr_assert_eq(record_count(RECORD_GetNamedPipeClientProcessId), 1);
    cr_assert_eq(record_at(RECORD_GetNamedPipeServerProcessId, 0)->arguments[0],
                 (uint64_t)pair.client->pipe.value);
    cr_assert_eq(record_at(RECORD_GetNamedPipeClientProcessId, 0)->arguments[0],
                 (uint64_t)pair.server->pipe.value);
    os_pair_close(&pair);
}

/** The n-th duplicate: of this handle, into the process that was opened for it, with the same rights
 *  and not inherited. */
static void check_duplicate(size_t index, uint64_t source, uint64_t process) {
    const record_call *call = record_at(RECORD_DuplicateHandle, index);
    cr_assert_eq(call->arguments[0], (uint64_t)GetCurrentProcess());
    cr_assert_eq(call->arguments[1], source);
    cr_assert_eq(call->arguments[2], process);
    cr_assert_eq(call->process, GetCurrentProcessId());
    cr_assert_eq(call->arguments[4], 0);
    cr_assert_eq(call->arguments[5], FALSE, "inherited");
    cr_assert_eq(call->arguments[6], DUPLICATE_SAME_ACCESS);
}

Test(win32_rights, handles_go_into_the_peers_process_in_their_order_behind_the_ledger) {
    os_pair pair;
    os_handle handles[3];
    os_pair_make_handles(handles, 3);
    os_pair_open(&pair);
    look_at_peer(pair.client);
    record_begin();
    check_ok(os_connection_send(pair.client, "x", 1, handles, 3, os_deadline_after(SOON_MS)));
    check_ok(os_connection_send(pair.client, "x", 1, handles, 2, os_deadline_after(SOON_MS)));
    record_end();
    const uint64_t process = record_at(RECORD_OpenProcess, 0)->result;
    const uint64_t ledger = record_at(RECORD_CreateFileMappingW, 0)->result;
    cr_assert_eq(record_count(RECORD_DuplicateHandle), 1 + 3 + 2);
    check_duplicate(0, ledger, process);
    for (size_t i = 0; i < 3; i++) {
        check_duplicate(1 + i, (uint64_t)handles[i].value, process);
    }
    for (size_t i = 0; i < 2; i++) {
        check_duplicate(4 + i, (uint64_t)handles[i].value, process);
    }
    cr_assert_eq(record_count(RECORD_OpenProcess), 1);
    cr_assert_eq(record_count(RECORD_CreateFileMappingW), 1);
    os_pair_close_handles(handles, 3);
    os_pair_close(&pair);
}

/* winbase.h: the pseudo-handle of the current process is -1. It can be duplicated, and whoever has
 * the duplicate owns the process. */
Test(win32_rights, a_pseudo_handle_is_given_to_nobody) {
    static const intptr_t values[] = {-1, -2, -3, -4, -5, -6, 0, 1, 2, 3};
    os_pair pair;
    os_pair_open(&pair);
    record_begin();
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        const os_handle handle = {values[i]};
        os_handle copy = OS_HANDLE_NONE;
        check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                     os_connection_send(pair.client, "x", 1, &handle, 1, os_deadline_after(0)));
        check_status(GPUIPC_ERR_INVALID_ARGUMENT, os_handle_duplicate(handle, &copy));
        check_status(GPUIPC_ERR_INVALID_ARGUMENT, os_handle_adopt(values[i], &copy));
        cr_assert_not(os_handle_is_valid(copy));
    }
    record_end();
    cr_assert_eq(record_count(RECORD_DuplicateHandle), 0);
    cr_assert_eq(record_count(RECORD_OpenProcess), 0);
    os_pair_close(&pair);
}

Test(win32_rights, sections_events_and_processes_are_nobody_elses_and_not_inherited) {
    os_pair pair;
    os_peer peer;
    os_handle handle;
    const char *user;
    char text[RECORD_TEXT_MAX];
    wchar_t rights[RECORD_TEXT_MAX];
    check_ok(win32_own_user(&user));
    snprintf(text, sizeof(text), "O:%sD:P(A;;GA;;;%s)", user, user);
    check_ok(win32_wide(text, rights, RECORD_TEXT_MAX));
    record_begin();
    os_pair_open(&pair);
    os_pair_make_handles(&handle, 1);
    transfer(pair.client, pair.server, &handle, 1);
    check_ok(os_connection_get_peer(pair.server, &peer));
    record_end();
    cr_assert_eq(record_count(RECORD_CreateFileMappingW), 2, "memory, and a ledger");
    for (size_t i = 0; i < 2; i++) {
        const record_call *call = record_at(RECORD_CreateFileMappingW, i);
        const SECURITY_ATTRIBUTES *attributes = (const SECURITY_ATTRIBUTES *)call->arguments[1];
        cr_assert_eq(call->arguments[0], (uint64_t)INVALID_HANDLE_VALUE);
        cr_assert_eq(attributes->bInheritHandle, FALSE);
        cr_assert_eq(wcscmp(call->rights, rights), 0, "%ls", call->rights);
        cr_assert_eq(call->arguments[5], 0, "it has a name");
    }
    for (size_t i = 0; i < record_count(RECORD_CreateEventW); i++) {
        const record_call *call = record_at(RECORD_CreateEventW, i);
        cr_assert_eq(call->arguments[0], 0);
        cr_assert_eq(call->arguments[3], 0, "it has a name");
    }
    const intptr_t made[] = {pair.client->pipe.value, pair.server->pipe.value, peer.process.value,
                             handle.value, pair.client->reading.value};
    for (size_t i = 0; i < sizeof(made) / sizeof(made[0]); i++) {
        DWORD flags = ~0u;
        cr_assert(GetHandleInformation((HANDLE)made[i], &flags));
        cr_assert_eq(flags, 0, "%zu", i);
    }
    os_peer_close(&peer);
    os_handle_close(&handle);
    os_pair_close(&pair);
}
