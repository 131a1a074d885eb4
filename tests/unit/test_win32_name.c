/* SPDX-License-Identifier: MIT */
/** @file Names: the files that tell a pipe's, those that somebody left or that are not ours, and what
 *  clients make of them. */
#include <stdio.h>
#include <string.h>
#include <wchar.h>

#include "check.h"
#include "child.h"
#include "leak_gate.h"
#include "os_pair.h"
#include "win32_raw.h"
#include "win32_record.h"

TestSuite(win32_name, .timeout = 60);

/** A name of ours, of a pipe that nobody has. */
#define NOBODYS_PIPE "\\\\.\\pipe\\gpuipc-S-1-5-21-1-2-3-1000-0123456789abcdef0123456789abcdef"

/** Made without the library: the directory as it resolves it, and the name as it was given. */
static const wchar_t *name_path(const os_pair *pair) {
    static wchar_t path[WIN32_PATH_MAX];
    wchar_t name[UNIQUE_NAME_MAX];
    check_ok(win32_path_wide(pair->path, NULL, path));
    check_ok(win32_wide(pair->name, name, UNIQUE_NAME_MAX));
    wcscat(path, L"\\");
    wcscat(path, name);
    wcscat(path, L".pipe");
    return path;
}

static bool name_exists(const os_pair *pair) {
    return GetFileAttributesW(name_path(pair)) != INVALID_FILE_ATTRIBUTES;
}

/** Leaves a file there, as a machine that went down did: nobody has it open. */
static void leave_file(const os_pair *pair, const char *content, size_t size) {
    DWORD written = 0;
    HANDLE file = CreateFileW(name_path(pair), GENERIC_WRITE, 0, NULL, CREATE_ALWAYS, 0, NULL);
    cr_assert_neq(file, INVALID_HANDLE_VALUE);
    cr_assert(WriteFile(file, content, (DWORD)size, &written, NULL));
    cr_assert_eq(written, size);
    CloseHandle(file);
}

static void check_content(const os_pair *pair, const char *content, size_t size) {
    char got[1024];
    DWORD read = 0;
    HANDLE file =
        CreateFileW(name_path(pair), GENERIC_READ, FILE_SHARE_READ, NULL, OPEN_EXISTING, 0, NULL);
    cr_assert_neq(file, INVALID_HANDLE_VALUE, "it is gone");
    cr_assert(ReadFile(file, got, sizeof(got), &read, NULL));
    CloseHandle(file);
    cr_assert_eq(read, size);
    cr_assert_eq(memcmp(got, content, size), 0);
}

static gpuipc_status connect_once(os_pair *pair) {
    return os_connection_open(&pair->directory, pair->name, os_deadline_after(0), &pair->client);
}

static gpuipc_status listen_once(os_pair *pair) {
    return os_listener_open(&pair->directory, pair->name, NULL, &pair->listener);
}

typedef struct log_book {
    int count;
    char last[256];
} log_book;

static void write_log(void *user_data, const char *sentence) {
    log_book *book = user_data;
    book->count++;
    snprintf(book->last, sizeof(book->last), "%s", sentence);
}

/* ---- files that lie there ------------------------------------------------------------------ */

Test(win32_name, one_that_a_machine_left_behind_is_replaced_and_that_is_told) {
    static const char *const left[] = {"gpuipc 1 " NOBODYS_PIPE "\n", ""};
    for (size_t i = 0; i < 2; i++) {
        leak_gate gate;
        os_pair pair;
        log_book book = {0};
        const os_log log = {.write = write_log, .user_data = &book};
        leak_gate_begin(&gate);
        os_pair_name(&pair);
        leave_file(&pair, left[i], strlen(left[i]));
        check_status(GPUIPC_ERR_NOT_FOUND, connect_once(&pair));
        check_ok(os_listener_open(&pair.directory, pair.name, &log, &pair.listener));
        cr_assert_eq(book.count, 1);
        cr_assert(strstr(book.last, pair.name) != NULL, "%s", book.last);
        check_ok(connect_once(&pair));
        os_pair_close_client(&pair);
        os_listener_destroy(pair.listener);
        pair.listener = NULL;
        cr_assert_not(name_exists(&pair));
        /* The next one replaces nothing. */
        check_ok(os_listener_open(&pair.directory, pair.name, &log, &pair.listener));
        cr_assert_eq(book.count, 1);
        os_pair_close(&pair);
        cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
    }
}

Test(win32_name, another_programs_file_is_left_as_it_is) {
    static const char *const contents[] = {
        "dear diary",
        "gpuipc",
        "gpuipc 1 ",
        "gpuipc 1 \n",
        "gpuipc 1 " NOBODYS_PIPE,
        "gpuipc 2 " NOBODYS_PIPE "\n",
        "gpuipc 1 \\\\.\\pipe\\gpuipc-\n",
        "gpuipc 1 \\\\.\\pipe\\another\n",
        "gpuipc 1 \\\\elsewhere\\pipe\\gpuipc-S-1-5-1-0\n",
        "gpuipc 1 \\\\.\\pipe\\gpuipc-..\\..\\C:\\file\n",
        "gpuipc 1 \\\\.\\pipe\\gpuipc-\xff\xfe\n",
        "gpuipc 1 " NOBODYS_PIPE "\n\n",
        " gpuipc 1 " NOBODYS_PIPE "\n",
    };
    for (size_t i = 0; i < sizeof(contents) / sizeof(contents[0]); i++) {
        os_pair pair;
        os_pair_name(&pair);
        leave_file(&pair, contents[i], strlen(contents[i]));
        check_refused(GPUIPC_ERR_NAME_IN_USE, pair.name, listen_once(&pair));
        check_refused(GPUIPC_ERR_PROTOCOL, "another program", connect_once(&pair));
        check_content(&pair, contents[i], strlen(contents[i]));
        os_pair_close(&pair);
    }
}

Test(win32_name, a_long_file_of_another_program_is_left_as_it_is) {
    static char content[1000];
    os_pair pair;
    os_pair_name(&pair);
    memset(content, 'x', sizeof(content));
    leave_file(&pair, content, sizeof(content));
    check_status(GPUIPC_ERR_NAME_IN_USE, listen_once(&pair));
    check_status(GPUIPC_ERR_PROTOCOL, connect_once(&pair));
    check_content(&pair, content, sizeof(content));
    os_pair_close(&pair);
}

Test(win32_name, a_file_that_another_program_has_for_itself_alone_is_left_as_it_is) {
    static const char content[] = "dear diary";
    os_pair pair;
    os_pair_name(&pair);
    leave_file(&pair, content, sizeof(content));
    HANDLE held = CreateFileW(name_path(&pair), GENERIC_READ, 0, NULL, OPEN_EXISTING, 0, NULL);
    cr_assert_neq(held, INVALID_HANDLE_VALUE);
    check_refused(GPUIPC_ERR_NAME_IN_USE, pair.name, listen_once(&pair));
    CloseHandle(held);
    check_content(&pair, content, sizeof(content));
    os_pair_close(&pair);
}

Test(win32_name, a_directory_of_that_name_is_left_as_it_is) {
    os_pair pair;
    os_pair_name(&pair);
    cr_assert(CreateDirectoryW(name_path(&pair), NULL));
    const uint64_t start = os_clock_ns();
    check_refused(GPUIPC_ERR_NAME_IN_USE, pair.name, listen_once(&pair));
    cr_assert_lt(os_clock_ns() - start, UINT64_C(1500000000), "it was waited for");
    check_status(GPUIPC_ERR_NOT_FOUND, connect_once(&pair));
    cr_assert(name_exists(&pair));
    cr_assert(RemoveDirectoryW(name_path(&pair)));
    os_pair_close(&pair);
}

/* ---- listeners that live, and that do not -------------------------------------------------- */

Test(win32_name, a_listeners_file_cannot_be_written_or_replaced_while_it_lives) {
    os_pair pair;
    char before[512];
    DWORD size = 0;
    os_pair_listen(&pair);
    HANDLE file = CreateFileW(name_path(&pair), GENERIC_READ,
                              FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL,
                              OPEN_EXISTING, 0, NULL);
    cr_assert_neq(file, INVALID_HANDLE_VALUE);
    cr_assert(ReadFile(file, before, sizeof(before), &size, NULL));
    CloseHandle(file);
    file = CreateFileW(name_path(&pair), GENERIC_WRITE,
                       FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL, OPEN_ALWAYS, 0,
                       NULL);
    cr_assert_eq(file, INVALID_HANDLE_VALUE);
    cr_assert_eq(GetLastError(), ERROR_SHARING_VIOLATION);
    os_listener *second = NULL;
    check_refused(GPUIPC_ERR_NAME_IN_USE, "listens",
                  os_listener_open(&pair.directory, pair.name, NULL, &second));
    cr_assert_null(second);
    check_ok(connect_once(&pair));
    os_pair_close(&pair);
}

Test(win32_name, of_a_listener_that_is_killed_nothing_is_left) {
    os_pair pair;
    child_process *helper;
    char line[CHILD_LINE_MAX];
    log_book book = {0};
    const os_log log = {.write = write_log, .user_data = &book};
    os_pair_name(&pair);
    const char *const arguments[] = {"listen", pair.path, pair.name, NULL};
    check_ok(child_start("unit_helper", arguments, NULL, &helper));
    cr_assert(child_expect_line(helper, "GPUIPC_OK", line, SOON_MS), "%s", line);
    cr_assert(name_exists(&pair));
    child_kill(helper);
    check_ok(child_wait(helper, SOON_MS, NULL));
    cr_assert_not(name_exists(&pair));
    check_status(GPUIPC_ERR_NOT_FOUND, connect_once(&pair));
    check_ok(os_listener_open(&pair.directory, pair.name, &log, &pair.listener));
    cr_assert_eq(book.count, 0, "%s", book.last);
    child_destroy(helper);
    os_pair_close(&pair);
}

Test(win32_name, names_differ_in_more_than_the_case_of_their_letters) {
    os_pair pair;
    os_listener *second = NULL;
    os_pair_name(&pair);
    snprintf(pair.name, sizeof(pair.name), "Camera");
    check_ok(listen_once(&pair));
    check_status(GPUIPC_ERR_NAME_IN_USE,
                 os_listener_open(&pair.directory, "CAMERA", NULL, &second));
    cr_assert_null(second);
    snprintf(pair.name, sizeof(pair.name), "camera");
    check_ok(connect_once(&pair));
    os_pair_close(&pair);
}

/* learn.microsoft.com, "Naming Files, Paths, and Namespaces": without the prefix that we give to
 * paths these would be devices, whatever follows the first dot. */
Test(win32_name, names_of_devices_are_names_like_others) {
    static const char *const names[] = {"NUL",  "CON",  "com1",      "AUX", "prn",
                                        "LPT9", "NUL.", "CON.queue", "a.",  "CONIN"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        os_pair pair;
        os_listener *second = NULL;
        os_pair_name(&pair);
        snprintf(pair.name, sizeof(pair.name), "%s", names[i]);
        check_status(GPUIPC_ERR_NOT_FOUND, connect_once(&pair));
        check_ok(listen_once(&pair));
        cr_assert(name_exists(&pair), "%s", names[i]);
        check_status(GPUIPC_ERR_NAME_IN_USE,
                     os_listener_open(&pair.directory, pair.name, NULL, &second));
        check_ok(connect_once(&pair));
        check_ok(os_listener_accept(pair.listener, os_deadline_after(SOON_MS), &pair.server));
        os_pair_close(&pair);
        cr_assert_not(name_exists(&pair), "%s", names[i]);
    }
}

/* ---- a file that goes away ----------------------------------------------------------------- */

/** Answers the first so many openings for writing as Windows does while a file is being deleted. */
static bool refuse_writing(void *user_data, record_call *call, size_t number) {
    size_t *left = user_data;
    (void)number;
    if (call->arguments[1] != (GENERIC_WRITE | DELETE) || *left == 0) {
        return false;
    }
    --*left;
    call->result = (uint64_t)INVALID_HANDLE_VALUE;
    call->error = ERROR_ACCESS_DENIED;
    return true;
}

Test(win32_name, a_file_that_is_being_deleted_is_waited_for) {
    os_pair pair;
    size_t refusals = 3;
    os_pair_name(&pair);
    record_begin();
    record_answer(RECORD_CreateFileW, refuse_writing, &refusals);
    check_ok(listen_once(&pair));
    record_end();
    cr_assert_eq(refusals, 0);
    check_ok(connect_once(&pair));
    os_pair_close(&pair);
}

Test(win32_name, a_file_that_nobody_lets_go_of_is_not_waited_for_for_ever) {
    leak_gate gate;
    os_pair pair;
    size_t refusals = SIZE_MAX;
    leak_gate_begin(&gate);
    os_pair_name(&pair);
    record_begin();
    record_answer(RECORD_CreateFileW, refuse_writing, &refusals);
    const uint64_t start = os_clock_ns();
    check_refused(GPUIPC_ERR_NAME_IN_USE, "let go", listen_once(&pair));
    cr_assert_geq(os_clock_ns() - start, UINT64_C(1500000000));
    record_end();
    os_pair_close(&pair);
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

/* ---- what a client finds ------------------------------------------------------------------- */

Test(win32_name, a_listener_whose_clients_are_not_accepted_is_busy) {
    enum {
        BACKLOG = 8
    };
    HANDLE clients[BACKLOG];
    os_pair pair;
    os_pair_listen(&pair);
    for (size_t i = 0; i < BACKLOG; i++) {
        clients[i] = raw_connect(&pair);
    }
    check_refused(GPUIPC_ERR_TIMEOUT, "does not accept", connect_once(&pair));
    check_ok(os_listener_accept(pair.listener, os_deadline_after(SOON_MS), &pair.server));
    check_ok(connect_once(&pair));
    for (size_t i = 0; i < BACKLOG; i++) {
        CloseHandle(clients[i]);
    }
    os_pair_close(&pair);
}

Test(win32_name, a_pipe_of_bytes_is_nobodys) {
    os_pair pair;
    os_pair_name(&pair);
    static const char content[] = "gpuipc 1 " NOBODYS_PIPE "\n";
    HANDLE pipe = CreateNamedPipeW(L"\\\\.\\pipe\\gpuipc-S-1-5-21-1-2-3-1000-"
                                   L"0123456789abcdef0123456789abcdef",
                                   PIPE_ACCESS_DUPLEX, PIPE_TYPE_BYTE, 1, 0, 0, 0, NULL);
    cr_assert_neq(pipe, INVALID_HANDLE_VALUE);
    leave_file(&pair, content, sizeof(content) - 1);
    leak_gate gate;
    leak_gate_begin(&gate);
    check_refused(GPUIPC_ERR_OS, "messages", connect_once(&pair));
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
    CloseHandle(pipe);
    os_pair_close(&pair);
}

Test(win32_name, only_pipes_of_this_machine_with_our_prefix_are_opened) {
    static const wchar_t *const bad[] = {L"",
                                         L"\\\\.\\pipe\\gpuipc-",
                                         L"\\\\.\\pipe\\gpuipc",
                                         L"\\\\.\\PIPE\\gpuipc-a",
                                         L"\\\\?\\pipe\\gpuipc-a",
                                         L"\\\\elsewhere\\pipe\\gpuipc-a",
                                         L"\\\\.\\pipe\\gpuipc-a\\b",
                                         L"\\\\.\\pipe\\gpuipc-a/b",
                                         L"\\\\.\\pipe\\gpuipc-a.b",
                                         L"\\\\.\\pipe\\gpuipc-\x00e4",
                                         L"C:\\pipe\\gpuipc-a"};
    wchar_t longest[WIN32_PIPE_NAME_MAX + 1];
    cr_assert(win32_pipe_name_is_ours(L"\\\\.\\pipe\\gpuipc-a"));
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        cr_assert_not(win32_pipe_name_is_ours(bad[i]), "%ls", bad[i]);
    }
    wcscpy(longest, L"\\\\.\\pipe\\gpuipc-");
    wmemset(longest + wcslen(longest), L'a', WIN32_PIPE_NAME_MAX - 1 - wcslen(longest));
    longest[WIN32_PIPE_NAME_MAX - 1] = L'\0';
    cr_assert(win32_pipe_name_is_ours(longest));
    longest[WIN32_PIPE_NAME_MAX - 1] = L'a';
    longest[WIN32_PIPE_NAME_MAX] = L'\0';
    cr_assert_not(win32_pipe_name_is_ours(longest));
}
