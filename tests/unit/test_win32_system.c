/* SPDX-License-Identifier: MIT */
/** @file What the library relies on Windows to do, and Wine does not. That it is asked for is seen in
 *  test_win32_arguments.c on both. */
#include <string.h>

#include "check.h"
#include "leak_gate.h"
#include "win32_raw.h"

TestSuite(win32_system, .timeout = 60);

static void need_windows(const char *what) {
    if (raw_is_wine()) {
        cr_skip_test("Wine %s (measured under Wine 8)", what);
    }
}

/** A pipe of ours, its first instance, and its name. */
static HANDLE pipe_make(wchar_t name[WIN32_PIPE_NAME_MAX]) {
    os_handle made;
    check_ok(win32_pipe_name_make(name));
    check_ok(win32_pipe_make(name, true, &made));
    return (HANDLE)os_handle_give_up(&made);
}

/* learn.microsoft.com, CreateNamedPipeW, FILE_FLAG_FIRST_PIPE_INSTANCE: "fails with
 * ERROR_ACCESS_DENIED". */
Test(win32_system, a_pipe_that_is_there_already_is_not_taken_for_ours) {
    wchar_t name[WIN32_PIPE_NAME_MAX];
    os_handle second;
    need_windows("ignores FILE_FLAG_FIRST_PIPE_INSTANCE");
    HANDLE first = pipe_make(name);
    check_status(GPUIPC_ERR_OS, win32_pipe_make(name, true, &second));
    cr_assert_eq(gpuipc_error_get()->native_code, ERROR_ACCESS_DENIED);
    check_ok(win32_pipe_make(name, false, &second));
    os_handle_close(&second);
    CloseHandle(first);
    /* And also not when it lets everybody make instances of it. */
    check_ok(win32_pipe_name_make(name));
    first = CreateNamedPipeW(name, PIPE_ACCESS_DUPLEX, PIPE_TYPE_MESSAGE, PIPE_UNLIMITED_INSTANCES,
                             0, 0, 0, NULL);
    cr_assert_neq(first, INVALID_HANDLE_VALUE);
    check_status(GPUIPC_ERR_OS, win32_pipe_make(name, true, &second));
    CloseHandle(first);
}

/** Until RevertToSelf this thread acts as somebody whom nothing is admitted for that is admitted for
 *  this user alone: with this user's SID good for denials only. */
static void become_somebody_else(void) {
    union {
        TOKEN_USER user;
        unsigned char bytes[sizeof(TOKEN_USER) + SECURITY_MAX_SID_SIZE];
    } own;
    HANDLE token;
    HANDLE restricted;
    DWORD used;
    cr_assert(OpenProcessToken(GetCurrentProcess(), TOKEN_QUERY | TOKEN_DUPLICATE, &token));
    cr_assert(GetTokenInformation(token, TokenUser, &own, sizeof(own), &used));
    SID_AND_ATTRIBUTES disabled = {.Sid = own.user.User.Sid};
    cr_assert(CreateRestrictedToken(token, 0, 1, &disabled, 0, NULL, 0, NULL, &restricted),
              "CreateRestrictedToken: %lu", GetLastError());
    cr_assert(ImpersonateLoggedOnUser(restricted), "ImpersonateLoggedOnUser: %lu", GetLastError());
    CloseHandle(restricted);
    CloseHandle(token);
}

Test(win32_system, who_is_not_this_user_can_neither_connect_nor_make_an_instance) {
    wchar_t name[WIN32_PIPE_NAME_MAX];
    os_handle opened = OS_HANDLE_NONE;
    need_windows("lets everybody open a pipe, whatever its descriptor says");
    HANDLE pipe = pipe_make(name);
    become_somebody_else();
    gpuipc_status as_other = win32_pipe_open(name, &opened);
    gpuipc_status instance = win32_pipe_make(name, false, &opened);
    DWORD code = (DWORD)gpuipc_error_get()->native_code;
    cr_assert(RevertToSelf());
    cr_assert_eq(as_other, GPUIPC_ERR_ACCESS_DENIED, "%s", gpuipc_status_name(as_other));
    cr_assert_eq(instance, GPUIPC_ERR_OS, "%s", gpuipc_status_name(instance));
    cr_assert_eq(code, ERROR_ACCESS_DENIED);
    cr_assert_not(os_handle_is_valid(opened));
    check_ok(win32_pipe_open(name, &opened));
    os_handle_close(&opened);
    CloseHandle(pipe);
}

Test(win32_system, who_is_not_this_user_finds_no_name) {
    os_pair pair;
    wchar_t name[WIN32_PIPE_NAME_MAX];
    need_windows("makes mode bits of a file's descriptor, and runs all as one user");
    os_pair_listen(&pair);
    become_somebody_else();
    gpuipc_status status = win32_name_look_up(pair.path, pair.name, name);
    cr_assert(RevertToSelf());
    cr_assert_neq(status, GPUIPC_OK);
    check_ok(win32_name_look_up(pair.path, pair.name, name));
    os_pair_close(&pair);
}

/** The level at which this thread acts as somebody else, if it does. */
static SECURITY_IMPERSONATION_LEVEL level_of_thread(void) {
    SECURITY_IMPERSONATION_LEVEL level = SecurityAnonymous;
    HANDLE token;
    DWORD used;
    cr_assert(OpenThreadToken(GetCurrentThread(), TOKEN_QUERY, TRUE, &token), "%lu",
              GetLastError());
    cr_assert(GetTokenInformation(token, TokenImpersonationLevel, &level, sizeof(level), &used));
    CloseHandle(token);
    return level;
}

Test(win32_system, a_server_can_ask_who_its_client_is_and_not_act_for_it) {
    unsigned char frame[64];
    os_connection *client;
    need_windows("lets every server act for its client");
    HANDLE server = raw_pipe(true, &client);
    check_ok(os_connection_send(client, "x", 1, NULL, 0, os_deadline_after(SOON_MS)));
    /* learn.microsoft.com, ImpersonateNamedPipeClient: not before something was read. */
    cr_assert_gt(raw_read(server, frame, sizeof(frame)), 0);
    cr_assert(ImpersonateNamedPipeClient(server), "%lu", GetLastError());
    SECURITY_IMPERSONATION_LEVEL level = level_of_thread();
    HANDLE process = OpenProcess(PROCESS_QUERY_LIMITED_INFORMATION, FALSE, GetCurrentProcessId());
    DWORD code = process == NULL ? GetLastError() : 0;
    cr_assert(RevertToSelf());
    cr_assert_eq(level, SecurityIdentification, "%d", (int)level);
    cr_assert_neq(code, 0, "it acts for the client");
    CloseHandle(server);
    os_connection_destroy(client);
}
