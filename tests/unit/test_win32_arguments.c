/* SPDX-License-Identifier: MIT */
/** @file What the library asks of Windows when nothing goes wrong, argument by argument: what Wine
 *  ignores, and what no peer of the same user could show, is seen here at least as a request. */
#include <aclapi.h>
#include <stdio.h>
#include <string.h>
#include <wchar.h>

#include "check.h"
#include "leak_gate.h"
#include "os_pair.h"
#include "win32_raw.h"
#include "win32_record.h"

TestSuite(win32_arguments, .timeout = 60);

static bool has_bits(uint64_t value, uint64_t bits) {
    return (value & bits) == bits;
}

/** "O:<own user>" and so on: @p format with this user's SID in every place. */
static const wchar_t *with_own_user(const char *format) {
    static wchar_t wide[RECORD_TEXT_MAX];
    char text[RECORD_TEXT_MAX];
    const char *user;
    check_ok(win32_own_user(&user));
    snprintf(text, sizeof(text), format, user, user);
    check_ok(win32_wide(text, wide, RECORD_TEXT_MAX));
    return wide;
}

/** The calls of CreateFileW whose name begins with this. */
static const record_call *file_call(const wchar_t *beginning, size_t index) {
    size_t count = record_count(RECORD_CreateFileW);
    for (size_t i = 0; i < count; i++) {
        const record_call *call = record_at(RECORD_CreateFileW, i);
        if (wcsncmp(call->text, beginning, wcslen(beginning)) == 0 && index-- == 0) {
            return call;
        }
    }
    cr_assert_fail("no such call of CreateFileW");
    return NULL;
}

/* ---- pipes --------------------------------------------------------------------------------- */

Test(win32_arguments, every_instance_of_a_listeners_pipe) {
    os_pair pair;
    record_begin();
    os_pair_open(&pair);
    record_end();
    size_t count = record_count(RECORD_CreateNamedPipeW);
    cr_assert_eq(count, 9, "8 that wait, and one in the place of the accepted one");
    for (size_t i = 0; i < count; i++) {
        const record_call *call = record_at(RECORD_CreateNamedPipeW, i);
        const uint64_t first = i == 0 ? FILE_FLAG_FIRST_PIPE_INSTANCE : 0;
        cr_assert_eq(call->arguments[1], PIPE_ACCESS_DUPLEX | FILE_FLAG_OVERLAPPED | first, "%zu",
                     i);
        cr_assert_eq(call->arguments[2], PIPE_TYPE_MESSAGE | PIPE_READMODE_MESSAGE | PIPE_WAIT |
                                             PIPE_REJECT_REMOTE_CLIENTS);
        cr_assert_eq(call->arguments[3], PIPE_UNLIMITED_INSTANCES);
        cr_assert_eq(call->arguments[4], WIN32_PIPE_ROOM);
        cr_assert_eq(call->arguments[5], WIN32_PIPE_ROOM);
        const SECURITY_ATTRIBUTES *attributes = (const SECURITY_ATTRIBUTES *)call->arguments[7];
        cr_assert_not_null(attributes);
        cr_assert_eq(attributes->nLength, sizeof(*attributes));
        cr_assert_eq(attributes->bInheritHandle, FALSE);
        cr_assert_eq(wcscmp(call->text, record_at(RECORD_CreateNamedPipeW, 0)->text), 0);
    }
    os_pair_close(&pair);
}

/* Protected (P): nothing comes from elsewhere. One is admitted: this user. */
Test(win32_arguments, a_pipe_admits_this_user_only) {
    os_pair pair;
    record_begin();
    os_pair_listen(&pair);
    record_end();
    const wchar_t *wanted = with_own_user("O:%sD:P(A;;GA;;;%s)");
    for (size_t i = 0; i < record_count(RECORD_CreateNamedPipeW); i++) {
        const record_call *call = record_at(RECORD_CreateNamedPipeW, i);
        cr_assert_eq(wcscmp(call->rights, wanted), 0, "%ls", call->rights);
    }
    os_pair_close(&pair);
}

/** The one entry of a list that is about @p sid_text, which is the @p index-th. */
static void check_entry(PACL list, DWORD index, BYTE type, const char *sid_text) {
    void *entry;
    char text[WIN32_SID_TEXT_MAX];
    cr_assert(GetAce(list, index, &entry));
    ACCESS_ALLOWED_ACE *known = entry; /* a denied one is laid out alike: winnt.h */
    check_ok(win32_sid_text(&known->SidStart, text, sizeof(text)));
    cr_assert_eq(known->Header.AceType, type);
    cr_assert_str_eq(text, sid_text);
    cr_assert(known->Mask == GENERIC_ALL || has_bits(known->Mask, FILE_ALL_ACCESS), "%lx",
              known->Mask);
}

Test(win32_arguments, the_system_keeps_the_pipes_descriptor) {
    os_handle pipe;
    wchar_t name[WIN32_PIPE_NAME_MAX];
    PSID owner;
    PACL list;
    PSECURITY_DESCRIPTOR descriptor;
    SECURITY_DESCRIPTOR_CONTROL control;
    DWORD revision;
    const char *user;
    char text[WIN32_SID_TEXT_MAX];
    check_ok(win32_own_user(&user));
    check_ok(win32_pipe_name_make(name));
    check_ok(win32_pipe_make(name, true, &pipe));
    cr_assert_eq(GetSecurityInfo(win32_handle_native(pipe), SE_KERNEL_OBJECT,
                                 OWNER_SECURITY_INFORMATION | DACL_SECURITY_INFORMATION, &owner,
                                 NULL, &list, NULL, &descriptor),
                 ERROR_SUCCESS);
    cr_assert(GetSecurityDescriptorControl(descriptor, &control, &revision));
    cr_assert(has_bits(control, SE_DACL_PRESENT | SE_DACL_PROTECTED), "%x", control);
    check_ok(win32_sid_text(owner, text, sizeof(text)));
    cr_assert_str_eq(text, user);
    cr_assert_eq(list->AceCount, 1);
    check_entry(list, 0, ACCESS_ALLOWED_ACE_TYPE, user);
    LocalFree(descriptor);
    os_handle_close(&pipe);
}

Test(win32_arguments, a_pipes_name_is_this_users_and_cannot_be_guessed) {
    enum {
        COUNT = 20
    };
    wchar_t names[COUNT][WIN32_PIPE_NAME_MAX];
    wchar_t beginning[RECORD_TEXT_MAX];
    wcscpy(beginning, with_own_user("\\\\.\\pipe\\gpuipc-%s-"));
    const size_t length = wcslen(beginning);
    for (size_t i = 0; i < COUNT; i++) {
        check_ok(win32_pipe_name_make(names[i]));
        cr_assert_eq(wcsncmp(names[i], beginning, length), 0, "%ls", names[i]);
        cr_assert_eq(wcslen(names[i]), length + 32);
        cr_assert_eq(wcsspn(names[i] + length, L"0123456789abcdef"), 32);
        cr_assert(win32_pipe_name_is_ours(names[i]));
        for (size_t j = 0; j < i; j++) {
            /* Both halves are drawn anew. */
            cr_assert_neq(wcsncmp(names[i] + length, names[j] + length, 16), 0);
            cr_assert_neq(wcscmp(names[i] + length + 16, names[j] + length + 16), 0);
        }
    }
}

Test(win32_arguments, a_client_opens_the_pipe_without_lending_its_identity) {
    os_pair pair;
    record_begin();
    os_pair_open(&pair);
    record_end();
    const record_call *call = file_call(L"\\\\.\\pipe\\", 0);
    cr_assert_eq(wcscmp(call->text, record_at(RECORD_CreateNamedPipeW, 0)->text), 0);
    cr_assert_eq(call->arguments[1], GENERIC_READ | GENERIC_WRITE);
    cr_assert_eq(call->arguments[2], 0, "shared with nobody");
    cr_assert_eq(call->arguments[3], 0, "not inherited");
    cr_assert_eq(call->arguments[4], OPEN_EXISTING);
    /* Without SQOS_PRESENT the level is not looked at, and is "impersonation". */
    cr_assert_eq(call->arguments[5],
                 FILE_FLAG_OVERLAPPED | SECURITY_SQOS_PRESENT | SECURITY_IDENTIFICATION);
    cr_assert_eq(call->arguments[6], 0);
    const record_call *mode = record_at(RECORD_SetNamedPipeHandleState, 0);
    cr_assert_eq(mode->arguments[0], call->result);
    cr_assert_eq(record_count(RECORD_SetNamedPipeHandleState), 1);
    os_pair_close(&pair);
}

/* ---- the name's file ----------------------------------------------------------------------- */

static const wchar_t *name_path(const os_pair *pair) {
    static wchar_t path[RECORD_TEXT_MAX];
    char text[RECORD_TEXT_MAX];
    snprintf(text, sizeof(text), "\\\\?\\%s\\%s.pipe", pair->path, pair->name);
    check_ok(win32_wide(text, path, RECORD_TEXT_MAX));
    return path;
}

Test(win32_arguments, the_names_file_is_this_users_and_goes_with_its_listener) {
    os_pair pair;
    record_begin();
    os_pair_listen(&pair);
    record_end();
    /* First it is read: a file of another program's is left as it is. */
    const record_call *read = file_call(name_path(&pair), 0);
    const record_call *call = file_call(name_path(&pair), 1);
    cr_assert_eq(read->arguments[1], GENERIC_READ);
    cr_assert_eq(read->arguments[4], OPEN_EXISTING);
    cr_assert(has_bits(read->arguments[5], FILE_FLAG_OPEN_REPARSE_POINT));
    cr_assert_not(has_bits(read->arguments[5], FILE_FLAG_DELETE_ON_CLOSE));
    cr_assert_eq(call->arguments[1], GENERIC_WRITE | DELETE);
    cr_assert_eq(call->arguments[2], FILE_SHARE_READ | FILE_SHARE_DELETE,
                 "whoever else wants to write finds it taken");
    cr_assert_eq(call->arguments[4], OPEN_ALWAYS);
    cr_assert_eq(call->arguments[5], FILE_ATTRIBUTE_TEMPORARY | FILE_FLAG_DELETE_ON_CLOSE |
                                         FILE_FLAG_OPEN_REPARSE_POINT);
    cr_assert_eq(wcscmp(call->rights, with_own_user("O:%sD:P(A;;GA;;;%s)")), 0, "%ls",
                 call->rights);
    os_pair_close(&pair);
}

Test(win32_arguments, who_looks_a_name_up_disturbs_nobody) {
    os_pair pair;
    os_pair_listen(&pair);
    record_begin();
    check_ok(
        os_connection_open(&pair.directory, pair.name, os_deadline_after(SOON_MS), &pair.client));
    record_end();
    const record_call *call = file_call(name_path(&pair), 0);
    cr_assert_eq(call->arguments[1], GENERIC_READ);
    cr_assert_eq(call->arguments[2], FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE);
    cr_assert_eq(call->arguments[4], OPEN_EXISTING);
    cr_assert_eq(call->arguments[5], FILE_FLAG_OPEN_REPARSE_POINT);
    cr_assert_eq(record_count(RECORD_CreateDirectoryW), 0, "a client makes no directory");
    os_pair_close(&pair);
}

Test(win32_arguments, the_directory_is_made_for_this_user_and_held_while_it_is_used) {
    os_pair pair;
    record_begin();
    os_pair_listen(&pair);
    record_end();
    wchar_t path[RECORD_TEXT_MAX];
    char text[RECORD_TEXT_MAX];
    snprintf(text, sizeof(text), "\\\\?\\%s", pair.path);
    check_ok(win32_wide(text, path, RECORD_TEXT_MAX));
    /* The first is the test's own: runtime_directory_make. */
    const record_call *made = record_at(RECORD_CreateDirectoryW, 1);
    cr_assert_eq(wcscmp(made->text, path), 0, "%ls", made->text);
    cr_assert_eq(wcscmp(made->rights, with_own_user("O:%sD:P(A;;GA;;;%s)")), 0, "%ls",
                 made->rights);
    const record_call *opened = file_call(path, 0);
    cr_assert_eq(wcscmp(opened->text, path), 0, "%ls", opened->text);
    cr_assert_not(has_bits(opened->arguments[2], FILE_SHARE_DELETE), "nobody may replace it");
    cr_assert_eq(opened->arguments[5], FILE_FLAG_BACKUP_SEMANTICS | FILE_FLAG_OPEN_REPARSE_POINT);
    os_pair_close(&pair);
}
