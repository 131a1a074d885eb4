/* SPDX-License-Identifier: MIT */
/**
 * @file A listener's name: a file in the runtime directory that tells the name of its pipe.
 *
 * The pipe's own name is random, so that nobody can make a pipe of that name first. The file is held
 * open for writing by its listener, which is how it is known to live, and is deleted by the system
 * when that handle is closed, also when the process ends by force. What a machine that went down left
 * behind nobody holds, and it is replaced.
 */
#include "win32.h"

#include <stdio.h>
#include <string.h>

#define NAME_SUFFIX     ".pipe"
#define CONTENT_PREFIX  "gpuipc 1 "
#define CONTENT_MAX     512u
#define DELETED_WAIT_MS 2000

/** learn.microsoft.com, "Maximum Path Length Limitation": of one component of a path. */
#define FILE_NAME_MAX_UNITS 255

static gpuipc_status name_path(const char *directory, const char *name,
                               wchar_t wide[WIN32_PATH_MAX]) {
    char file[FILE_NAME_MAX_UNITS + 1];
    int length = snprintf(file, sizeof(file), "%s" NAME_SUFFIX, name);
    if (length < 0 || (size_t)length >= sizeof(file)) {
        return status_fail(GPUIPC_ERR_NAME_TOO_LONG,
                           "the name \"%.40s...\" has %zu characters; %zu are possible", name,
                           strlen(name), sizeof(file) - sizeof(NAME_SUFFIX));
    }
    return win32_path_wide(directory, file, wide);
}

static gpuipc_status content_open_failed(DWORD code, const char *name) {
    switch (code) {
    case ERROR_FILE_NOT_FOUND:
    case ERROR_PATH_NOT_FOUND:
    case ERROR_DELETE_PENDING:
    case ERROR_ACCESS_DENIED: /* being deleted, while somebody still has it open; or a directory */
        return win32_fail_as(GPUIPC_ERR_NOT_FOUND, code, "CreateFileW",
                             "nobody listens under the name \"%s\"", name);
    case ERROR_SHARING_VIOLATION: /* a listener shares its file with readers */
        return win32_fail_as(GPUIPC_ERR_PROTOCOL, code, "CreateFileW",
                             "the file of the name \"%s\" is another program's", name);
    default:
        return win32_fail(code, "CreateFileW", "the name \"%s\" cannot be looked up", name);
    }
}

/** Reads the content of a name's file. ERR_NOT_FOUND when there is no file, or none yet;
 *  ERR_PROTOCOL when another program has it for itself alone. */
static gpuipc_status content_read(const wchar_t *path, const char *name,
                                  char content[CONTENT_MAX]) {
    DWORD got = 0;
    BY_HANDLE_FILE_INFORMATION found;
    HANDLE file =
        CreateFileW(path, GENERIC_READ, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE,
                    NULL, OPEN_EXISTING, FILE_FLAG_OPEN_REPARSE_POINT, NULL);
    if (file == INVALID_HANDLE_VALUE) {
        return content_open_failed(GetLastError(), name);
    }
    gpuipc_status status = GPUIPC_OK;
    if (!GetFileInformationByHandle(file, &found)) {
        status = win32_fail(GetLastError(), "GetFileInformationByHandle",
                            "the name \"%s\" cannot be looked at", name);
    } else if ((found.dwFileAttributes & FILE_ATTRIBUTE_REPARSE_POINT) != 0) {
        status = status_fail(GPUIPC_ERR_PROTOCOL, "the file of the name \"%s\" is a link", name);
    } else if (!ReadFile(file, content, CONTENT_MAX - 1, &got, NULL)) {
        status = win32_fail(GetLastError(), "ReadFile", "the name \"%s\" cannot be read", name);
    }
    CloseHandle(file);
    content[got] = '\0';
    return status;
}

/** The pipe's name in a content. False when it is not of our making. */
static bool content_parse(const char *content, wchar_t pipe_name[WIN32_PIPE_NAME_MAX]) {
    const size_t prefix = sizeof(CONTENT_PREFIX) - 1;
    char text[CONTENT_MAX];
    size_t length = strlen(content);
    if (length <= prefix || content[length - 1] != '\n' ||
        strncmp(content, CONTENT_PREFIX, prefix) != 0) {
        return false;
    }
    memcpy(text, content + prefix, length - prefix - 1);
    text[length - prefix - 1] = '\0';
    return win32_wide(text, pipe_name, WIN32_PIPE_NAME_MAX) == GPUIPC_OK &&
           win32_pipe_name_is_ours(pipe_name);
}

gpuipc_status win32_name_look_up(const char *directory, const char *name,
                                 wchar_t pipe_name[WIN32_PIPE_NAME_MAX]) {
    wchar_t path[WIN32_PATH_MAX];
    char content[CONTENT_MAX];
    gpuipc_status status = name_path(directory, name, path);
    if (status == GPUIPC_OK) {
        status = content_read(path, name, content);
    }
    if (status != GPUIPC_OK) {
        return status;
    }
    if (content[0] == '\0') {
        return status_fail(GPUIPC_ERR_NOT_FOUND, "\"%s\" is being made", name);
    }
    if (!content_parse(content, pipe_name)) {
        return status_fail(GPUIPC_ERR_PROTOCOL, "the file of the name \"%s\" is another program's",
                           name);
    }
    return GPUIPC_OK;
}

/** Refuses a file under the name that no listener has written: opened as a listener opens its own, it
 *  would be gone afterwards. An empty one counts as left by a listener that went down with the
 *  machine before it had written. */
static gpuipc_status name_refuse_foreign(const wchar_t *path, const char *name) {
    char content[CONTENT_MAX];
    wchar_t pipe_name[WIN32_PIPE_NAME_MAX];
    gpuipc_status status = content_read(path, name, content);
    if (status == GPUIPC_ERR_NOT_FOUND) {
        return GPUIPC_OK;
    }
    if (status != GPUIPC_OK && status != GPUIPC_ERR_PROTOCOL) {
        return status;
    }
    if (status != GPUIPC_OK || (content[0] != '\0' && !content_parse(content, pipe_name))) {
        return status_fail(GPUIPC_ERR_NAME_IN_USE,
                           "the file of the name \"%s\" is another program's; it is left as it is",
                           name);
    }
    return GPUIPC_OK;
}

static gpuipc_status name_open_failed(DWORD code, const char *name) {
    switch (code) {
    case ERROR_SHARING_VIOLATION: /* its listener has it open for writing */
        return win32_fail_as(GPUIPC_ERR_NAME_IN_USE, code, "CreateFileW",
                             "a process listens under the name \"%s\"", name);
    case ERROR_ACCESS_DENIED:
    case ERROR_DELETE_PENDING:
        return win32_fail_as(GPUIPC_ERR_NAME_IN_USE, code, "CreateFileW",
                             "the name \"%s\" is taken by something that is no file, or by one "
                             "that somebody has not let go of yet",
                             name);
    default:
        return win32_fail(code, "CreateFileW", "the name \"%s\" cannot be made", name);
    }
}

/** Opens the file as its listener does. A file that is being deleted is waited for: whoever still has
 *  it open reads a name from it, which takes no time. */
static gpuipc_status name_open(const wchar_t *path, const char *name, HANDLE *out_file,
                               bool *out_replaced) {
    const os_deadline deadline = os_deadline_after(DELETED_WAIT_MS);
    const SECURITY_ATTRIBUTES *owner_only;
    unsigned pause = 0;
    gpuipc_status status = win32_owner_only(&owner_only);
    if (status != GPUIPC_OK) {
        return status;
    }
    for (;;) {
        HANDLE file = CreateFileW(path, GENERIC_WRITE | DELETE, FILE_SHARE_READ | FILE_SHARE_DELETE,
                                  (SECURITY_ATTRIBUTES *)(uintptr_t)owner_only, OPEN_ALWAYS,
                                  FILE_ATTRIBUTE_TEMPORARY | FILE_FLAG_DELETE_ON_CLOSE |
                                      FILE_FLAG_OPEN_REPARSE_POINT,
                                  NULL);
        DWORD code = GetLastError();
        if (file != INVALID_HANDLE_VALUE) {
            *out_file = file;
            *out_replaced = code == ERROR_ALREADY_EXISTS;
            return GPUIPC_OK;
        }
        bool may_pass = code == ERROR_ACCESS_DENIED || code == ERROR_DELETE_PENDING;
        bool is_directory = may_pass &&
                            (GetFileAttributesW(path) & FILE_ATTRIBUTE_DIRECTORY) != 0 &&
                            GetFileAttributesW(path) != INVALID_FILE_ATTRIBUTES;
        if (!may_pass || is_directory || os_deadline_passed(deadline)) {
            return name_open_failed(code, name);
        }
        os_sleep_ms(os_backoff_next(&pause, deadline));
    }
}

static gpuipc_status content_write(HANDLE file, const wchar_t *pipe_name, const char *name) {
    char pipe[CONTENT_MAX];
    char content[CONTENT_MAX + sizeof(CONTENT_PREFIX)];
    DWORD written = 0;
    if (!win32_narrow(pipe_name, pipe, sizeof(pipe))) {
        return status_fail(GPUIPC_ERR_NAME_TOO_LONG, "the pipe's name is too long");
    }
    int length = snprintf(content, sizeof(content), CONTENT_PREFIX "%s\n", pipe);
    if (!SetEndOfFile(file) || !WriteFile(file, content, (DWORD)length, &written, NULL) ||
        written != (DWORD)length) {
        return win32_fail(GetLastError(), "WriteFile", "the name \"%s\" cannot be written", name);
    }
    return GPUIPC_OK;
}

gpuipc_status win32_name_publish(const char *directory, const char *name, const wchar_t *pipe_name,
                                 os_handle *out_file, bool *out_replaced) {
    wchar_t path[WIN32_PATH_MAX];
    HANDLE file = INVALID_HANDLE_VALUE;
    gpuipc_status status = name_path(directory, name, path);
    if (status == GPUIPC_OK) {
        status = name_refuse_foreign(path, name);
    }
    if (status == GPUIPC_OK) {
        status = name_open(path, name, &file, out_replaced);
    }
    if (status != GPUIPC_OK) {
        return status;
    }
    status = content_write(file, pipe_name, name);
    if (status != GPUIPC_OK) {
        CloseHandle(file);
        return status;
    }
    return win32_handle_add(file, "CreateFileW", out_file);
}

/* Nothing is left of a process that is gone: the system removes its files with its handles. What a machine that went
 * down has left is one file for each listener that there was then, and is replaced when its name is wanted. */
void os_directory_sweep(const os_directory *directory, const char *prefix) {
    (void)directory;
    (void)prefix;
}
