/* SPDX-License-Identifier: MIT */
/** @file Small files in a directory that is this user's alone. */
#include "win32.h"

#include <stdio.h>
#include <string.h>

/** Room for a name that nobody else uses. */
#define TEMPORARY_NAME_MAX 64

bool os_cache_directory(char *path, size_t capacity) {
    const char *base = os_environment("LOCALAPPDATA");
    if (base == NULL || base[0] == '\0') {
        return false;
    }
    int length = snprintf(path, capacity, "%s\\gpuipc\\cache", base);
    return length > 0 && (size_t)length < capacity;
}

static gpuipc_status open_failed(DWORD code, const char *name) {
    const bool is_missing = code == ERROR_FILE_NOT_FOUND || code == ERROR_PATH_NOT_FOUND;
    return win32_fail_as(is_missing ? GPUIPC_ERR_NOT_FOUND : win32_error_status(code), code,
                         "CreateFileW", "the file %.80s cannot be opened", name);
}

static gpuipc_status read_all(HANDLE file, const char *name, char *bytes, size_t capacity,
                              size_t *out_size) {
    BY_HANDLE_FILE_INFORMATION found;
    LARGE_INTEGER size;
    DWORD got = 0;
    if (!GetFileInformationByHandle(file, &found) || !GetFileSizeEx(file, &size)) {
        return win32_fail(GetLastError(), "GetFileInformationByHandle",
                          "the file %.80s cannot be looked at", name);
    }
    if ((found.dwFileAttributes & (FILE_ATTRIBUTE_REPARSE_POINT | FILE_ATTRIBUTE_DIRECTORY)) != 0) {
        return status_fail(GPUIPC_ERR_UNSAFE_DIRECTORY, "%.80s is no plain file", name);
    }
    if (size.QuadPart < 0 || (uint64_t)size.QuadPart > capacity) {
        return status_fail(GPUIPC_ERR_LIMIT, "the file %.80s is longer than %zu bytes", name,
                           capacity);
    }
    if (!ReadFile(file, bytes, (DWORD)size.QuadPart, &got, NULL)) {
        return win32_fail(GetLastError(), "ReadFile", "the file %.80s cannot be read", name);
    }
    *out_size = got;
    return GPUIPC_OK;
}

gpuipc_status os_file_read(const char *directory, const char *name, void *bytes, size_t capacity,
                           size_t *out_size) {
    wchar_t path[WIN32_PATH_MAX];
    os_handle folder;
    gpuipc_status status = win32_path_wide(directory, name, path);
    if (status != GPUIPC_OK ||
        (status = win32_directory_open(directory, false, &folder)) != GPUIPC_OK) {
        return status;
    }
    HANDLE file = CreateFileW(
        path, GENERIC_READ, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL,
        OPEN_EXISTING, FILE_FLAG_OPEN_REPARSE_POINT | FILE_FLAG_BACKUP_SEMANTICS, NULL);
    if (file == INVALID_HANDLE_VALUE) {
        status = open_failed(GetLastError(), name);
    } else {
        status = read_all(file, name, bytes, capacity, out_size);
        CloseHandle(file);
    }
    os_handle_close(&folder);
    return status;
}

/** Makes the directory that it is in, which is gpuipc's own. */
static gpuipc_status make_parent(const char *directory) {
    char parent[OS_PATH_MAX];
    os_handle opened;
    int length = snprintf(parent, sizeof(parent), "%s", directory);
    if (length < 0 || (size_t)length >= sizeof(parent)) {
        return status_fail(GPUIPC_ERR_NAME_TOO_LONG, "%.80s... is too long a path", directory);
    }
    char *end = strrchr(parent, '\\');
    if (end == NULL || end == parent || end[-1] == ':') {
        return GPUIPC_OK;
    }
    *end = '\0';
    gpuipc_status status = win32_directory_open(parent, true, &opened);
    if (status == GPUIPC_OK) {
        os_handle_close(&opened);
    }
    return status;
}

static gpuipc_status write_new(const wchar_t *path, const char *name, const void *bytes,
                               size_t size) {
    DWORD written = 0;
    const SECURITY_ATTRIBUTES *owner_only;
    gpuipc_status status = win32_owner_only(&owner_only);
    if (status != GPUIPC_OK) {
        return status;
    }
    HANDLE file = CreateFileW(path, GENERIC_WRITE, 0, (SECURITY_ATTRIBUTES *)(uintptr_t)owner_only,
                              CREATE_NEW, FILE_ATTRIBUTE_NORMAL, NULL);
    if (file == INVALID_HANDLE_VALUE) {
        return open_failed(GetLastError(), name);
    }
    if (!WriteFile(file, bytes, (DWORD)size, &written, NULL) || written != size) {
        status = win32_fail(GetLastError(), "WriteFile", "the file %.80s cannot be written", name);
    }
    CloseHandle(file);
    return status;
}

/** Both paths in one directory, which is held open meanwhile. */
static gpuipc_status replace(const wchar_t *temporary, const wchar_t *path, const char *name,
                             const void *bytes, size_t size) {
    gpuipc_status status = write_new(temporary, name, bytes, size);
    if (status == GPUIPC_OK && !MoveFileExW(temporary, path, MOVEFILE_REPLACE_EXISTING)) {
        status =
            win32_fail(GetLastError(), "MoveFileExW", "the file %.80s cannot be replaced", name);
    }
    if (status != GPUIPC_OK) {
        (void)DeleteFileW(temporary); /* it may not be there */
    }
    return status;
}

gpuipc_status os_file_replace(const char *directory, const char *name, const void *bytes,
                              size_t size) {
    wchar_t path[WIN32_PATH_MAX];
    wchar_t temporary[WIN32_PATH_MAX];
    char unique[TEMPORARY_NAME_MAX];
    uint64_t random;
    os_handle folder;
    gpuipc_status status = os_random(&random, sizeof(random));
    if (status != GPUIPC_OK) {
        return status;
    }
    (void)snprintf(unique, sizeof(unique), "%llu-%016llx.tmp", (unsigned long long)os_process_id(),
                   (unsigned long long)random);
    if ((status = win32_path_wide(directory, name, path)) != GPUIPC_OK ||
        (status = win32_path_wide(directory, unique, temporary)) != GPUIPC_OK ||
        (status = make_parent(directory)) != GPUIPC_OK ||
        (status = win32_directory_open(directory, true, &folder)) != GPUIPC_OK) {
        return status;
    }
    status = replace(temporary, path, name, bytes, size);
    os_handle_close(&folder);
    return status;
}
