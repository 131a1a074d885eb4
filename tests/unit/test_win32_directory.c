/* SPDX-License-Identifier: MIT */
/** @file Runtime directories: where they are, what they may be, and who may change them. */
#include <stdio.h>
#include <string.h>
#include <wchar.h>
#include <windows.h>

#include <aclapi.h>
#include <sddl.h>
#include <winioctl.h>

#include "check.h"
#include "leak_gate.h"
#include "os_pair.h"
#include "win32_raw.h"
#include "win32_record.h"

TestSuite(win32_directory, .timeout = 60);

static gpuipc_status connect_once(os_pair *pair) {
    return os_connection_open(&pair->directory, pair->name, os_deadline_after(0), &pair->client);
}

static gpuipc_status listen_once(os_pair *pair) {
    return os_listener_open(&pair->directory, pair->name, NULL, &pair->listener);
}

static const wchar_t *wide_path(const char *path) {
    static wchar_t wide[WIN32_PATH_MAX];
    check_ok(win32_path_wide(path, NULL, wide));
    return wide;
}

/** Both sides refuse the directory of the pair. */
static void check_unsafe(os_pair *pair, const char *text) {
    leak_gate gate;
    leak_gate_begin(&gate);
    check_refused(GPUIPC_ERR_UNSAFE_DIRECTORY, text, listen_once(pair));
    check_refused(GPUIPC_ERR_UNSAFE_DIRECTORY, text, connect_once(pair));
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

/* ---- what it is ---------------------------------------------------------------------------- */

Test(win32_directory, a_missing_one_is_made_by_who_listens_but_not_its_parents) {
    os_pair pair;
    os_pair deeper;
    os_pair_name(&pair);
    deeper = pair;
    snprintf(deeper.path, sizeof(deeper.path), "%.80s\\x", pair.path);
    deeper.directory.path = deeper.path;
    check_status(GPUIPC_ERR_NOT_FOUND, connect_once(&deeper));
    cr_assert_eq(GetFileAttributesW(wide_path(deeper.path)), INVALID_FILE_ATTRIBUTES);
    check_ok(listen_once(&deeper));
    check_ok(connect_once(&deeper));
    os_pair_close(&deeper);
    /* And with its parent missing, too, it stays missing. */
    snprintf(deeper.path, sizeof(deeper.path), "%.80s\\y\\z", pair.path);
    check_status(GPUIPC_ERR_NOT_FOUND, connect_once(&deeper));
    check_refused(GPUIPC_ERR_OS, "cannot be made", listen_once(&deeper));
    os_pair_close(&pair);
}

Test(win32_directory, a_file_is_none) {
    os_pair pair;
    os_pair_name(&pair);
    runtime_directory_remove(pair.path);
    HANDLE file = CreateFileW(wide_path(pair.path), GENERIC_WRITE, FILE_SHARE_READ, NULL,
                              CREATE_NEW, FILE_FLAG_DELETE_ON_CLOSE, NULL);
    cr_assert_neq(file, INVALID_HANDLE_VALUE);
    CloseHandle(file);
    file = CreateFileW(wide_path(pair.path), GENERIC_WRITE, FILE_SHARE_READ, NULL, CREATE_NEW, 0,
                       NULL);
    cr_assert_neq(file, INVALID_HANDLE_VALUE);
    CloseHandle(file);
    check_unsafe(&pair, "no directory");
    cr_assert(DeleteFileW(wide_path(pair.path)));
}

/** Answers that the directory is a link, as it would for a junction. */
static bool answer_link(void *user_data, record_call *call, size_t number) {
    BY_HANDLE_FILE_INFORMATION *answer = (BY_HANDLE_FILE_INFORMATION *)call->arguments[1];
    (void)user_data;
    (void)number;
    memset(answer, 0, sizeof(*answer));
    answer->dwFileAttributes = FILE_ATTRIBUTE_DIRECTORY | FILE_ATTRIBUTE_REPARSE_POINT;
    call->result = TRUE;
    return true;
}

Test(win32_directory, what_windows_calls_a_link_is_none) {
    os_pair pair;
    os_pair_name(&pair);
    record_begin();
    record_answer(RECORD_GetFileInformationByHandle, answer_link, NULL);
    check_unsafe(&pair, "link");
    record_end();
    check_ok(listen_once(&pair));
    os_pair_close(&pair);
}

/* ntifs.h, REPARSE_DATA_BUFFER, with what a mount point (a junction) has. */
typedef struct junction_data {
    ULONG tag;
    USHORT size; /* of what follows "reserved" */
    USHORT reserved;
    USHORT target_at;
    USHORT target_size;
    USHORT shown_at;
    USHORT shown_size;
    wchar_t paths[RUNTIME_DIRECTORY_MAX + 8];
} junction_data;

/** Makes a junction of an empty directory. False where the system has none. */
static bool junction_make(const wchar_t *path, const char *target) {
    junction_data data = {.tag = IO_REPARSE_TAG_MOUNT_POINT};
    wchar_t wide[RUNTIME_DIRECTORY_MAX];
    DWORD got;
    check_ok(win32_wide(target, wide, RUNTIME_DIRECTORY_MAX));
    swprintf(data.paths, sizeof(data.paths) / sizeof(wchar_t), L"\\??\\%ls", wide);
    data.target_size = (USHORT)(wcslen(data.paths) * sizeof(wchar_t));
    data.shown_at = (USHORT)(data.target_size + sizeof(wchar_t));
    data.size = (USHORT)(8 + data.shown_at + sizeof(wchar_t));
    HANDLE directory = CreateFileW(path, GENERIC_WRITE, 0, NULL, OPEN_EXISTING,
                                   FILE_FLAG_BACKUP_SEMANTICS | FILE_FLAG_OPEN_REPARSE_POINT, NULL);
    cr_assert_neq(directory, INVALID_HANDLE_VALUE);
    BOOL made = DeviceIoControl(directory, FSCTL_SET_REPARSE_POINT, &data, 8u + data.size, NULL, 0,
                                &got, NULL);
    CloseHandle(directory);
    return made;
}

Test(win32_directory, a_junction_is_none) {
    os_pair pair;
    os_pair target;
    os_pair_name(&pair);
    os_pair_name(&target);
    if (!junction_make(wide_path(pair.path), target.path)) {
        DWORD code = GetLastError();
        os_pair_close(&pair);
        os_pair_close(&target);
        cr_assert(raw_is_wine(), "FSCTL_SET_REPARSE_POINT: %lu", code);
        cr_skip_test("this system makes no junctions (error %lu), as Wine 8 does not", code);
    }
    check_unsafe(&pair, "link");
    os_pair_close(&pair);
    os_pair_close(&target);
}

Test(win32_directory, while_a_name_is_made_nobody_can_put_another_in_its_place) {
    os_pair pair;
    os_handle held;
    wchar_t elsewhere[WIN32_PATH_MAX];
    char path[RUNTIME_DIRECTORY_MAX + 8];
    os_pair_name(&pair);
    snprintf(path, sizeof(path), "%s-moved", pair.path);
    wcscpy(elsewhere, wide_path(path));
    check_ok(win32_directory_open(pair.path, false, &held));
    cr_assert_not(RemoveDirectoryW(wide_path(pair.path)), "it was removed");
    cr_assert_not(MoveFileW(wide_path(pair.path), elsewhere), "it was renamed");
    os_handle_close(&held);
    cr_assert(MoveFileW(wide_path(pair.path), elsewhere));
    cr_assert(MoveFileW(elsewhere, wide_path(pair.path)));
    os_pair_close(&pair);
}

/* The old limit is 260 characters (MAX_PATH). */
Test(win32_directory, its_path_may_be_long) {
    enum {
        DEPTH = 10
    };
    static char paths[DEPTH + 1][OS_PATH_MAX];
    os_pair pair;
    os_pair_name(&pair);
    snprintf(paths[0], OS_PATH_MAX, "%s", pair.path);
    for (size_t i = 1; i <= DEPTH; i++) {
        snprintf(paths[i], OS_PATH_MAX, "%.4000s\\a-directory-with-a-long-name-%zu", paths[i - 1],
                 i);
        cr_assert(i == DEPTH || CreateDirectoryW(wide_path(paths[i]), NULL));
    }
    cr_assert_gt(strlen(paths[DEPTH]), MAX_PATH);
    pair.directory.path = paths[DEPTH];
    check_ok(listen_once(&pair));
    check_ok(connect_once(&pair));
    os_pair_close_client(&pair);
    os_listener_destroy(pair.listener);
    pair.listener = NULL;
    for (size_t i = DEPTH; i >= 1; i--) {
        cr_assert(RemoveDirectoryW(wide_path(paths[i])));
    }
    os_pair_close(&pair);
}

/* ---- where it is --------------------------------------------------------------------------- */

static void check_resolved(const char *given, const char *expected) {
    const os_directory directory = {given, false};
    char path[OS_PATH_MAX];
    check_ok(os_directory_resolve(&directory, path, sizeof(path)));
    cr_assert_str_eq(path, expected);
}

Test(win32_directory, its_path_is_absolute_and_on_a_drive) {
    check_resolved("C:\\run\\gpuipc", "C:\\run\\gpuipc");
    check_resolved("c:/run/gpuipc", "c:\\run\\gpuipc");
    check_resolved("C:\\run\\gpuipc\\", "C:\\run\\gpuipc");
    check_resolved("C:\\run/gpuipc///", "C:\\run\\gpuipc");
    check_resolved("Z:\\", "Z:\\");
    static const char *const bad[] = {
        "run",   "\\run",          "C:run",          "C:",      "/run",   "\\\\elsewhere\\share",
        "//a/b", "\\\\?\\C:\\run", "\\\\.\\pipe\\x", "1:\\run", ".\\run", "@",
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        os_pair pair = {.directory = {bad[i], false}, .name = "x"};
        check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "absolute", listen_once(&pair));
        check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "absolute", connect_once(&pair));
    }
}

static void set(const wchar_t *name, const wchar_t *value) {
    (void)SetEnvironmentVariableW(name, value);
}

static void check_default(const char *expected) {
    char path[OS_PATH_MAX];
    check_ok(os_directory_resolve(NULL, path, sizeof(path)));
    cr_assert_str_eq(path, expected);
}

Test(win32_directory, the_environment_says_which_is_the_default) {
    char path[OS_PATH_MAX];
    set(L"GPUIPC_RUNTIME_DIR", L"C:\\mine/");
    set(L"LOCALAPPDATA", L"C:\\Users\\me\\AppData\\Local");
    check_default("C:\\mine");
    set(L"GPUIPC_RUNTIME_DIR", L"relative");
    check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "GPUIPC_RUNTIME_DIR",
                  os_directory_resolve(NULL, path, sizeof(path)));
    set(L"GPUIPC_RUNTIME_DIR", NULL);
    check_default("C:\\Users\\me\\AppData\\Local\\gpuipc");
    check_status(GPUIPC_ERR_NAME_TOO_LONG, os_directory_resolve(NULL, path, 10));
    set(L"LOCALAPPDATA", L"relative");
    check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "LOCALAPPDATA",
                  os_directory_resolve(NULL, path, sizeof(path)));
    set(L"LOCALAPPDATA", NULL);
    check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "neither",
                  os_directory_resolve(NULL, path, sizeof(path)));
    /* A user may have another alphabet. */
    set(L"LOCALAPPDATA", L"C:\\Users\\\x0416\x00e9");
    check_default("C:\\Users\\\xd0\x96\xc3\xa9\\gpuipc");
}

Test(win32_directory, what_only_linux_has_is_not_supported) {
    os_pair pair;
    os_pair_name(&pair);
    os_pair shared = pair;
    shared.directory.shared = true;
    check_refused(GPUIPC_ERR_NOT_SUPPORTED, "share", listen_once(&shared));
    check_refused(GPUIPC_ERR_NOT_SUPPORTED, "share", connect_once(&shared));
    snprintf(shared.name, sizeof(shared.name), "@camera");
    shared.directory.shared = false;
    check_refused(GPUIPC_ERR_NOT_SUPPORTED, "abstract", listen_once(&shared));
    check_refused(GPUIPC_ERR_NOT_SUPPORTED, "abstract", connect_once(&shared));
    os_pair_close(&pair);
}

/* ---- who may change it --------------------------------------------------------------------- */

/** Owner and list that a directory is said to have: Wine makes both of a file's mode bits (measured
 *  under Wine 8). */
typedef struct rights {
    char text[RECORD_TEXT_MAX]; /* SDDL */
    bool has_no_list;
    BYTE type; /* of the first entry, if not 0 */
} rights;

static bool answer_rights(void *user_data, record_call *call, size_t number) {
    const rights *self = user_data;
    wchar_t wide[RECORD_TEXT_MAX];
    PSECURITY_DESCRIPTOR made;
    BOOL is_there;
    BOOL ignored;
    PACL list = NULL;
    ACE_HEADER *entry;
    (void)number;
    check_ok(win32_wide(self->text, wide, RECORD_TEXT_MAX));
    cr_assert(
        ConvertStringSecurityDescriptorToSecurityDescriptorW(wide, SDDL_REVISION_1, &made, NULL),
        "%s: %lu", self->text, GetLastError());
    cr_assert(GetSecurityDescriptorOwner(made, (PSID *)call->arguments[3], &ignored));
    cr_assert(GetSecurityDescriptorDacl(made, &is_there, &list, &ignored));
    if (self->type != 0) {
        cr_assert(GetAce(list, 0, (void **)&entry));
        entry->AceType = self->type;
    }
    *(PACL *)call->arguments[5] = self->has_no_list ? NULL : list;
    *(PSECURITY_DESCRIPTOR *)call->arguments[7] = made;
    call->result = ERROR_SUCCESS;
    return true;
}

/** Whether both sides take a directory with these rights. @param wrong part of the sentence; NULL:
 *  they do */
static void check_answer(rights *given, const char *wrong) {
    os_pair pair;
    os_handle opened;
    os_pair_name(&pair);
    record_begin();
    record_answer(RECORD_GetSecurityInfo, answer_rights, given);
    for (int create = 0; create < 2; create++) {
        gpuipc_status status = win32_directory_open(pair.path, create, &opened);
        cr_assert_eq(status, wrong == NULL ? GPUIPC_OK : GPUIPC_ERR_UNSAFE_DIRECTORY, "%s: %s (%s)",
                     given->text, gpuipc_status_name(status), gpuipc_error_get()->sentence);
        if (status == GPUIPC_OK) {
            os_handle_close(&opened);
        } else {
            cr_assert(strstr(gpuipc_error_get()->sentence, wrong) != NULL, "%s: \"%s\"",
                      given->text, gpuipc_error_get()->sentence);
        }
    }
    record_end();
    cr_assert_eq(record_bad_closes(), 0);
    os_pair_close(&pair);
}

/** The same for SDDL with this user's SID for every "%s". */
static void check_rights(const char *format, const char *wrong) {
    rights given = {.type = 0};
    const char *user;
    check_ok(win32_own_user(&user));
    snprintf(given.text, sizeof(given.text), format, user, user);
    check_answer(&given, wrong);
}

Test(win32_directory, this_users_own_is_good_and_so_is_what_all_may_read) {
    check_rights("O:%sD:P(A;OICI;FA;;;%s)", NULL);
    check_rights("O:%sD:P", NULL);
    check_rights("O:%sD:(A;OICIID;FA;;;SY)(A;OICIID;FA;;;BA)(A;OICIID;FA;;;%s)", NULL);
    check_rights("O:SYD:(A;;FA;;;%s)", NULL);
    check_rights("O:BAD:(A;;FA;;;%s)", NULL);
    check_rights("O:%sD:(A;;FR;;;WD)(A;;FX;;;BU)(A;;FA;;;%s)", NULL);
    check_rights("O:%sD:(A;;FA;;;OW)", NULL);
    check_rights("O:%sD:(A;OICIIO;FA;;;CO)", NULL);
    /* Denials, and what holds for things in it only. */
    check_rights("O:%sD:(D;;FA;;;WD)", NULL);
    check_rights("O:%sD:(A;OICIIO;FA;;;WD)", NULL);
}

Test(win32_directory, one_that_belongs_to_another_user_is_refused) {
    check_rights("O:S-1-5-21-1-2-3-4711D:P(A;;FA;;;%s)", "S-1-5-21-1-2-3-4711");
    check_rights("O:WDD:P(A;;FA;;;%s)", "S-1-1-0");
    check_rights("O:BUD:P(A;;FA;;;%s)", "another user");
    check_rights("D:P(A;;FA;;;%s)", "everybody");
}

Test(win32_directory, any_right_of_somebody_else_to_change_it_is_refused) {
    static const char *const masks[] = {"0x2",   /* FILE_ADD_FILE */
                                        "0x4",   /* FILE_ADD_SUBDIRECTORY */
                                        "0x10",  /* FILE_WRITE_EA */
                                        "0x40",  /* FILE_DELETE_CHILD */
                                        "0x100", /* FILE_WRITE_ATTRIBUTES */
                                        "SD",    /* DELETE */
                                        "WD",    /* WRITE_DAC */
                                        "WO",    /* WRITE_OWNER */
                                        "GW",    "GA", "FA", "FW"};
    static const char *const others[] = {"WD", "BU", "AU", "BG", "AN", "S-1-5-21-1-2-3-4711"};
    for (size_t i = 0; i < sizeof(masks) / sizeof(masks[0]); i++) {
        for (size_t j = 0; j < sizeof(others) / sizeof(others[0]); j++) {
            char format[128];
            snprintf(format, sizeof(format), "O:%%sD:P(A;;FA;;;%%s)(A;;%s;;;%s)", masks[i],
                     others[j]);
            check_rights(format, "may be changed");
        }
    }
}

Test(win32_directory, rights_that_are_not_understood_are_refused) {
    static const BYTE types[] = {ACCESS_ALLOWED_COMPOUND_ACE_TYPE, ACCESS_ALLOWED_OBJECT_ACE_TYPE,
                                 ACCESS_ALLOWED_CALLBACK_ACE_TYPE,
                                 ACCESS_ALLOWED_CALLBACK_OBJECT_ACE_TYPE, 0x40};
    rights given = {.type = 0};
    const char *user;
    check_ok(win32_own_user(&user));
    snprintf(given.text, sizeof(given.text), "O:%sD:P(A;;FA;;;WD)", user);
    for (size_t i = 0; i < sizeof(types); i++) {
        given.type = types[i];
        check_answer(&given, "unknown kind");
    }
    given.type = 0;
    given.has_no_list = true;
    check_answer(&given, "everybody");
}

/* The whole way: nothing is made in it, and nobody is asked. */
Test(win32_directory, neither_side_goes_into_one_that_is_refused) {
    os_pair pair;
    rights given = {.text = "O:S-1-5-21-1-2-3-4711D:P"};
    os_pair_name(&pair);
    record_begin();
    record_answer(RECORD_GetSecurityInfo, answer_rights, &given);
    check_unsafe(&pair, "4711");
    cr_assert_eq(record_count(RECORD_CreateNamedPipeW), 0);
    record_end();
    check_ok(listen_once(&pair));
    os_pair_close(&pair);
}
