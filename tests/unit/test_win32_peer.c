/* SPDX-License-Identifier: MIT */
/** @file Peers of other users, of lower rank, of another kind, or gone. One machine with one user has
 *  none of them, so what Windows says of a process is changed on its way to the library. */
#include <stdio.h>
#include <string.h>
#include <windows.h>

#include <sddl.h>

#include "core_fixture.h"
#include "os_pair.h"
#include "win32.h"
#include "win32_record.h"

static void start(void) {
    const char *user;
    core_start();
    check_ok(win32_own_user(&user)); /* kept from now on, so that only peers are asked about */
}

TestSuite(win32_peer, .init = start, .fini = core_finish, .timeout = 60);

#define SOMEBODY_ELSE "S-1-5-21-1-2-3-4711"

/** Answers as whom the peer runs. */
static bool answer_user(void *user_data, record_call *call, size_t number) {
    const char *const *users = user_data;
    PSID sid;
    wchar_t wide[WIN32_SID_TEXT_MAX];
    (void)number;
    if (call->arguments[1] != TokenUser) {
        return false;
    }
    TOKEN_USER *answer = (TOKEN_USER *)call->arguments[2];
    check_ok(win32_wide(users[0], wide, WIN32_SID_TEXT_MAX));
    cr_assert(ConvertStringSidToSidW(wide, &sid));
    cr_assert_geq(call->arguments[3], sizeof(*answer) + GetLengthSid(sid));
    memcpy(answer + 1, sid, GetLengthSid(sid));
    LocalFree(sid);
    *answer = (TOKEN_USER){.User = {.Sid = answer + 1}};
    call->result = TRUE;
    return true;
}

/** From now on every process that is looked at runs as this user. */
static void everybody_is(const char *const *user) {
    record_begin();
    record_answer(RECORD_GetTokenInformation, answer_user, (void *)(uintptr_t)user);
}

/** The first who is asked (this process itself) has the first level, then the peer the second. */
static bool answer_level(void *user_data, record_call *call, size_t number) {
    DWORD *levels = user_data;
    SID_IDENTIFIER_AUTHORITY authority = SECURITY_MANDATORY_LABEL_AUTHORITY;
    (void)number;
    if (call->arguments[1] != TokenIntegrityLevel) {
        return false;
    }
    TOKEN_MANDATORY_LABEL *answer = (TOKEN_MANDATORY_LABEL *)call->arguments[2];
    PSID sid = answer + 1;
    cr_assert(InitializeSid(sid, &authority, 1));
    *GetSidSubAuthority(sid, 0) = levels[0];
    levels[0] = levels[1];
    *answer = (TOKEN_MANDATORY_LABEL){.Label = {.Sid = sid}};
    call->result = TRUE;
    return true;
}

static bool answer_32_bit(void *user_data, record_call *call, size_t number) {
    (void)user_data;
    (void)number;
    *(BOOL *)call->arguments[1] = TRUE;
    call->result = TRUE;
    return true;
}

/** Nobody has asked for the right to put handles into a process. */
static void check_nothing_was_exported(void) {
    for (size_t i = 0; i < record_count(RECORD_OpenProcess); i++) {
        const record_call *call = record_at(RECORD_OpenProcess, i);
        cr_assert_eq(call->arguments[0] & PROCESS_DUP_HANDLE, 0);
    }
}

/** Opens a listener and asks for a connection to it, which is to be refused. */
static void check_server_refused(gpuipc_status expected, const char *text) {
    gpuipc_listener *listener;
    gpuipc_connection *client = NULL;
    gpuipc_connection *server;
    check_ok(gpuipc_listener_open(core_context, "camera", NULL, &listener));
    size_t written = record_count(RECORD_WriteFile); /* the name's file */
    check_refused(expected, text,
                  gpuipc_connection_open(core_context, "camera", NULL, SOON_MS, &client));
    cr_assert_null(client);
    cr_assert_eq(record_count(RECORD_WriteFile), written, "something was sent to it");
    check_nothing_was_exported();
    cr_assert_eq(record_bad_closes(), 0);
    record_end();
    /* To the listener it was somebody who came and went. */
    check_ok(gpuipc_listener_accept(listener, SOON_MS, &server));
    check_status(GPUIPC_ERR_PEER_CLOSED, core_receive(server, NULL, 0));
    check_ok(gpuipc_connection_close(server));
    check_ok(gpuipc_listener_close(listener));
}

typedef struct log_book {
    int warnings;
    char last[512];
} log_book;

static void write_log(void *user_data, gpuipc_log_level level, const char *sentence) {
    log_book *book = user_data;
    book->warnings += level == GPUIPC_LOG_WARNING;
    snprintf(book->last, sizeof(book->last), "%s", sentence);
}

/** Lets one client in that is to be refused, while the orders of @p give hold, and then another. */
static void check_client_refused(void (*give)(void), const char *text) {
    log_book book = {0};
    gpuipc_context_config config = core_context_config();
    config.log = write_log;
    config.log_user_data = &book;
    gpuipc_context *context;
    gpuipc_listener *listener;
    gpuipc_connection *bad;
    gpuipc_connection *good;
    gpuipc_connection *server = NULL;
    check_ok(gpuipc_context_create(&config, &context));
    check_ok(gpuipc_listener_open(context, "camera", NULL, &listener));
    check_ok(gpuipc_connection_open(core_context, "camera", NULL, SOON_MS, &bad));
    give();
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_listener_accept(listener, 0, &server));
    cr_assert_null(server);
    cr_assert_eq(record_count(RECORD_WriteFile), 0, "something was sent to it");
    cr_assert_eq(record_bad_closes(), 0);
    record_end();
    cr_assert_eq(book.warnings, 1);
    cr_assert(strstr(book.last, text) != NULL, "\"%s\" is not in \"%s\"", text, book.last);
    check_status(GPUIPC_ERR_PEER_CLOSED, core_receive(bad, NULL, 0));

    check_ok(gpuipc_connection_open(core_context, "camera", NULL, SOON_MS, &good));
    check_ok(gpuipc_listener_accept(listener, SOON_MS, &server));
    check_ok(core_send(good, NULL, 0));
    check_ok(core_receive(server, NULL, 0));
    check_ok(gpuipc_connection_close(bad));
    check_ok(gpuipc_connection_close(good));
    check_ok(gpuipc_connection_close(server));
    check_ok(gpuipc_listener_close(listener));
    check_ok(gpuipc_context_destroy(context));
}

/* ---- another user -------------------------------------------------------------------------- */

static const char *const somebody_else = SOMEBODY_ELSE;

static void give_another_user(void) {
    everybody_is(&somebody_else);
}

Test(win32_peer, a_server_of_another_user_is_refused_before_anything_is_sent) {
    give_another_user();
    check_server_refused(GPUIPC_ERR_ACCESS_DENIED, SOMEBODY_ELSE);
}

Test(win32_peer, a_client_of_another_user_costs_only_itself) {
    check_client_refused(give_another_user, SOMEBODY_ELSE);
}

static void give_closed_doors(void) {
    record_begin();
    record_fail(RECORD_OpenProcess, 0, ERROR_ACCESS_DENIED);
}

Test(win32_peer, a_server_that_may_not_be_looked_at_is_another_users) {
    give_closed_doors();
    check_server_refused(GPUIPC_ERR_ACCESS_DENIED, "unknown");
}

Test(win32_peer, a_client_that_may_not_be_looked_at_is_another_users) {
    check_client_refused(give_closed_doors, "unknown");
}

/* As of a program that runs with more rights than this one, though for the same user. */
static void give_closed_tokens(void) {
    record_begin();
    record_fail(RECORD_OpenProcessToken, 1, ERROR_ACCESS_DENIED);
}

Test(win32_peer, a_server_that_does_not_tell_as_whom_it_runs_is_another_users) {
    give_closed_tokens();
    check_server_refused(GPUIPC_ERR_ACCESS_DENIED, "unknown");
}

Test(win32_peer, a_client_that_does_not_tell_as_whom_it_runs_is_another_users) {
    check_client_refused(give_closed_tokens, "unknown");
}

static int admit(void *user_data, const gpuipc_peer_info *peer) {
    gpuipc_peer_info *seen = user_data;
    *seen = *peer;
    return 1;
}

/** A connection whose client lets the server in, whoever it is. */
static void pair_open_by_policy(core_pair *pair, gpuipc_peer_info *out_seen) {
    const gpuipc_endpoint_config config = {
        .struct_size = sizeof(config), .policy = admit, .policy_user_data = out_seen};
    unique_name(pair->name);
    check_ok(gpuipc_listener_open(core_context, pair->name, NULL, &pair->listener));
    check_ok(gpuipc_connection_open(core_context, pair->name, &config, SOON_MS, &pair->client));
}

Test(win32_peer, who_may_not_be_opened_can_be_admitted_but_gets_no_handles) {
    core_pair pair;
    gpuipc_peer_info seen = {0};
    gpuipc_buffer *buffer = core_buffer(4096, 0);
    give_closed_doors();
    pair_open_by_policy(&pair, &seen);
    cr_assert_str_eq(seen.user, "unknown");
    cr_assert_eq(seen.same_user, 0);
    cr_assert_eq(seen.is_running, -1);
    cr_assert_eq(seen.process_id, os_process_id());
    check_refused(GPUIPC_ERR_ACCESS_DENIED, "may not put handles",
                  core_send(pair.client, &buffer, 1));
    check_nothing_was_exported();
    record_end();
    check_ok(gpuipc_listener_accept(pair.listener, SOON_MS, &pair.server));
    check_ok(gpuipc_buffer_release(buffer));
    core_pair_close(&pair);
}

/** Who may be looked at, and not opened for more. */
static bool refuse_exporting(void *user_data, record_call *call, size_t number) {
    (void)user_data;
    (void)number;
    if ((call->arguments[0] & PROCESS_DUP_HANDLE) == 0) {
        return false;
    }
    call->result = 0;
    call->error = ERROR_ACCESS_DENIED;
    return true;
}

Test(win32_peer, a_peer_that_takes_no_handles_still_takes_bytes) {
    core_pair pair;
    gpuipc_buffer *buffer = core_buffer(4096, 0);
    core_pair_open(&pair, core_context, core_context);
    record_begin();
    record_answer(RECORD_OpenProcess, refuse_exporting, NULL);
    check_refused(GPUIPC_ERR_ACCESS_DENIED, "may not put handles",
                  core_send(pair.client, &buffer, 1));
    record_end();
    /* Nothing of it went out, so the connection is as it was, and the right is asked for anew. */
    check_ok(core_send(pair.client, NULL, 0));
    check_ok(core_receive(pair.server, NULL, 0));
    gpuipc_buffer *opened;
    check_ok(core_send(pair.client, &buffer, 1));
    check_ok(core_receive(pair.server, &opened, 1));
    check_ok(gpuipc_buffer_release(opened));
    check_ok(gpuipc_buffer_release(buffer));
    core_pair_close(&pair);
}

/* Duplicates for a process that was opened; those for this one itself go to its pseudo-handle. */
static size_t count_handles_given(void) {
    size_t given = 0;
    for (size_t i = 0; i < record_count(RECORD_DuplicateHandle); i++) {
        given +=
            record_at(RECORD_DuplicateHandle, i)->arguments[2] != (uint64_t)GetCurrentProcess();
    }
    return given;
}

Test(win32_peer, handles_go_to_the_user_who_was_let_in_and_to_nobody_else) {
    core_pair pair;
    gpuipc_buffer *buffer = core_buffer(4096, 0);
    core_pair_open(&pair, core_context, core_context);
    give_another_user();
    check_refused(GPUIPC_ERR_ACCESS_DENIED, "has changed", core_send(pair.client, &buffer, 1));
    cr_assert_eq(count_handles_given(), 0);
    record_end();
    check_ok(gpuipc_buffer_release(buffer));
    core_pair_close(&pair);
}

/* ---- integrity levels ---------------------------------------------------------------------- */

Test(win32_peer, a_server_of_a_lower_integrity_level_is_refused) {
    DWORD levels[] = {SECURITY_MANDATORY_MEDIUM_RID, SECURITY_MANDATORY_LOW_RID};
    record_begin();
    record_answer(RECORD_GetTokenInformation, answer_level, levels);
    check_server_refused(GPUIPC_ERR_ACCESS_DENIED, "lower integrity level (0x1000)");
}

Test(win32_peer, a_server_of_the_same_or_a_higher_level_is_as_good) {
    static const DWORD rows[][2] = {{SECURITY_MANDATORY_MEDIUM_RID, SECURITY_MANDATORY_MEDIUM_RID},
                                    {SECURITY_MANDATORY_MEDIUM_RID, SECURITY_MANDATORY_HIGH_RID},
                                    {SECURITY_MANDATORY_LOW_RID, SECURITY_MANDATORY_LOW_RID}};
    for (size_t i = 0; i < 3; i++) {
        core_pair pair;
        DWORD levels[] = {rows[i][0], rows[i][1]};
        record_begin();
        record_answer(RECORD_GetTokenInformation, answer_level, levels);
        core_pair_open(&pair, core_context, core_context);
        record_end();
        core_pair_close(&pair);
    }
}

static void give_lower_level(void) {
    static DWORD levels[2];
    levels[0] = SECURITY_MANDATORY_HIGH_RID;
    levels[1] = SECURITY_MANDATORY_MEDIUM_RID;
    record_begin();
    record_answer(RECORD_GetTokenInformation, answer_level, levels);
}

/* An elevated server's pipe is open to programs of its user that are not. */
Test(win32_peer, a_client_of_a_lower_integrity_level_costs_only_itself) {
    check_client_refused(give_lower_level, "lower integrity level (0x2000)");
}

/* The numbers that it names could be those of any handle here. */
Test(win32_peer, of_a_refused_client_no_handle_is_taken) {
    core_pair pair;
    gpuipc_connection *server = NULL;
    gpuipc_buffer *buffer = core_buffer(4096, 0);
    unique_name(pair.name);
    check_ok(gpuipc_listener_open(core_context, pair.name, NULL, &pair.listener));
    check_ok(gpuipc_connection_open(core_context, pair.name, NULL, SOON_MS, &pair.client));
    check_ok(core_send(pair.client, &buffer, 1));
    give_lower_level();
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_listener_accept(pair.listener, 0, &server));
    cr_assert_eq(record_count(RECORD_SetHandleInformation), 0, "one was claimed");
    cr_assert_eq(record_count(RECORD_MapViewOfFile), 0, "a ledger was mapped");
    record_end();
    check_ok(gpuipc_connection_close(pair.client));
    check_ok(gpuipc_listener_close(pair.listener));
    check_ok(gpuipc_buffer_release(buffer));
}

/* ---- another kind, and gone ---------------------------------------------------------------- */

static void give_32_bit(void) {
    record_begin();
    record_answer(RECORD_IsWow64Process, answer_32_bit, NULL);
}

Test(win32_peer, a_32_bit_server_is_not_supported) {
    give_32_bit();
    check_server_refused(GPUIPC_ERR_NOT_SUPPORTED, "32-bit");
}

Test(win32_peer, a_32_bit_client_costs_only_itself) {
    check_client_refused(give_32_bit, "32-bit");
}

static void give_no_process(void) {
    record_begin();
    record_fail(RECORD_OpenProcess, 0, ERROR_INVALID_PARAMETER);
}

Test(win32_peer, a_server_that_is_gone_by_the_time_it_is_looked_at) {
    give_no_process();
    check_server_refused(GPUIPC_ERR_PEER_CLOSED, "is gone");
}

Test(win32_peer, a_client_that_is_gone_by_the_time_it_is_looked_at) {
    check_client_refused(give_no_process, "is gone");
}

/* What then has the number may be another process, even while there is still something to read. */
Test(win32_peer, whose_end_of_the_pipe_is_closed_is_not_held_to_be_the_process_of_that_number) {
    os_pair pair;
    os_peer peer;
    os_handle handle;
    os_pair_open(&pair);
    os_pair_make_handles(&handle, 1);
    check_ok(os_connection_send(pair.client, "last", 4, NULL, 0, os_deadline_after(0)));
    os_pair_close_client(&pair);
    check_ok(os_connection_get_peer(pair.server, &peer));
    cr_assert(peer.same_user);
    cr_assert_not(os_handle_is_valid(peer.process));
    cr_assert_eq(os_peer_is_running(&peer), -1);
    record_begin();
    check_refused(GPUIPC_ERR_PEER_CLOSED, "is gone",
                  os_connection_send(pair.server, "x", 1, &handle, 1, os_deadline_after(0)));
    check_nothing_was_exported();
    record_end();
    os_peer_close(&peer);
    os_handle_close(&handle);
    os_pair_close(&pair);
}
