/* SPDX-License-Identifier: MIT */
/** @file The runtime directory in which names live: where it is, and who may change it. */
#include "win32.h"

#include <aclapi.h>
#include <stdio.h>
#include <string.h>
#include <wchar.h>

/* Rights by which somebody could put names into a directory, take some away, or give himself such
 * rights. Reading is harmless: a pipe's own descriptor says who may open it. */
#define CHANGING_RIGHTS                                                                            \
    (FILE_ADD_FILE | FILE_ADD_SUBDIRECTORY | FILE_DELETE_CHILD | FILE_WRITE_EA |                   \
     FILE_WRITE_ATTRIBUTES | DELETE | WRITE_DAC | WRITE_OWNER | GENERIC_WRITE | GENERIC_ALL)

gpuipc_status win32_name_check(const os_directory *directory, const char *name) {
    if (name[0] == '@') {
        return status_fail(GPUIPC_ERR_NOT_SUPPORTED, "abstract names (%.40s) exist on Linux only",
                           name);
    }
    if (directory != NULL && directory->shared) {
        return status_fail(GPUIPC_ERR_NOT_SUPPORTED,
                           "a directory that several users share: on Windows a process cannot put "
                           "handles into another user's");
    }
    return GPUIPC_OK;
}

static bool is_set(const char *text) {
    return text != NULL && text[0] != '\0';
}

/** "C:\..." or "C:/...": on a drive, and absolute. */
static bool path_is_absolute(const char *path) {
    bool letter = (path[0] >= 'A' && path[0] <= 'Z') || (path[0] >= 'a' && path[0] <= 'z');
    return letter && path[1] == ':' && (path[2] == '\\' || path[2] == '/');
}

/** "from" and "last" with backslashes, none of them at the end; ERR_NAME_TOO_LONG. */
static gpuipc_status path_copy(const char *from, const char *last, char *path, size_t capacity) {
    int length = snprintf(path, capacity, "%s%s", from, last);
    if (length < 0 || (size_t)length >= capacity) {
        return status_fail(GPUIPC_ERR_NAME_TOO_LONG,
                           "the directory %.80s... has %zu characters; %zu are possible", from,
                           strlen(from), capacity - 1);
    }
    for (char *at = path; *at != '\0'; at++) {
        *at = *at == '/' ? '\\' : *at;
    }
    for (size_t end = (size_t)length; end > 3 && path[end - 1] == '\\'; end--) {
        path[end - 1] = '\0';
    }
    return GPUIPC_OK;
}

gpuipc_status os_directory_resolve(const os_directory *directory, char *path, size_t capacity) {
    const char *given = directory != NULL ? directory->path : NULL;
    const char *source = "the given runtime directory";
    const char *last = "";
    if (given == NULL) {
        given = os_environment("GPUIPC_RUNTIME_DIR");
        source = "GPUIPC_RUNTIME_DIR";
        if (!is_set(given)) {
            given = os_environment("LOCALAPPDATA");
            source = "LOCALAPPDATA";
            last = "\\gpuipc";
        }
    }
    if (!is_set(given)) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT,
                           "neither GPUIPC_RUNTIME_DIR nor LOCALAPPDATA says where names live");
    }
    /* A share of another machine would tell names of pipes that are not here. */
    if (!path_is_absolute(given)) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT,
                           "%s is no absolute path on a drive: \"%.80s\"", source, given);
    }
    return path_copy(given, last, path, capacity);
}

/* The prefix lifts the limit of 260 characters and takes the meaning from file names such as NUL, which
 * resolving would give back to them; it wants backslashes, and "." and ".." resolved:
 * learn.microsoft.com, "Naming Files, Paths, and Namespaces". */
gpuipc_status win32_path_wide(const char *directory, const char *file,
                              wchar_t wide[WIN32_PATH_MAX]) {
    wchar_t given[WIN32_PATH_MAX];
    gpuipc_status status = win32_wide(directory, given, WIN32_PATH_MAX);
    if (status != GPUIPC_OK) {
        return status;
    }
    memcpy(wide, L"\\\\?\\", 4 * sizeof(wchar_t));
    DWORD length = GetFullPathNameW(given, WIN32_PATH_MAX - 4, wide + 4, NULL);
    if (length == 0 || length >= WIN32_PATH_MAX - 5) {
        return win32_fail_as(GPUIPC_ERR_NAME_TOO_LONG, GetLastError(), "GetFullPathNameW",
                             "the path %.80s... cannot be used", directory);
    }
    if (file == NULL) {
        return GPUIPC_OK;
    }
    if (wide[4 + length - 1] != L'\\') { /* as it is of a drive's own directory */
        wide[4 + length++] = L'\\';
    }
    return win32_wide(file, wide + 4 + length, WIN32_PATH_MAX - 4 - length);
}

/** The groups and users who can change everything anyhow, and those names that stand for the owner. */
static bool sid_is_trusted(PSID sid, const char *own) {
    static const WELL_KNOWN_SID_TYPE trusted[] = {WinLocalSystemSid, WinBuiltinAdministratorsSid,
                                                  WinCreatorOwnerSid, WinCreatorOwnerRightsSid};
    char text[WIN32_SID_TEXT_MAX];
    for (size_t i = 0; i < sizeof(trusted) / sizeof(trusted[0]); i++) {
        if (IsWellKnownSid(sid, trusted[i])) {
            return true;
        }
    }
    return win32_sid_text(sid, text, sizeof(text)) == GPUIPC_OK && strcmp(text, own) == 0;
}

static gpuipc_status directory_unsafe(const char *path, const char *why, PSID sid) {
    char text[WIN32_SID_TEXT_MAX] = "an unknown user";
    if (sid != NULL) {
        gpuipc_error saved = status_save();
        (void)win32_sid_text(sid, text, sizeof(text));
        status_restore(&saved);
    }
    return status_fail(GPUIPC_ERR_UNSAFE_DIRECTORY,
                       "%s %s (%s); wanted: this user's, and no right to change it for anybody but "
                       "this user, the system and the administrators",
                       path, why, sid != NULL ? text : "no owner or no list of rights");
}

static gpuipc_status directory_check_list(const char *path, PACL list, const char *own) {
    for (DWORD i = 0; i < list->AceCount; i++) {
        void *entry;
        if (!GetAce(list, i, &entry)) {
            return win32_fail(GetLastError(), "GetAce", "the rights of %s cannot be read", path);
        }
        const ACE_HEADER *header = entry;
        bool takes = header->AceType == ACCESS_DENIED_ACE_TYPE ||
                     header->AceType == ACCESS_DENIED_OBJECT_ACE_TYPE ||
                     header->AceType == ACCESS_DENIED_CALLBACK_ACE_TYPE;
        if (takes || (header->AceFlags & INHERIT_ONLY_ACE) != 0) {
            continue;
        }
        if (header->AceType != ACCESS_ALLOWED_ACE_TYPE) {
            return directory_unsafe(path, "has an entry of rights of an unknown kind", NULL);
        }
        ACCESS_ALLOWED_ACE *allowed = entry;
        PSID sid = &allowed->SidStart;
        if ((allowed->Mask & CHANGING_RIGHTS) != 0 && !sid_is_trusted(sid, own)) {
            return directory_unsafe(path, "may be changed by another user", sid);
        }
    }
    return GPUIPC_OK;
}

static gpuipc_status directory_check_rights(HANDLE directory, const char *path) {
    PSID owner = NULL;
    PACL list = NULL;
    PSECURITY_DESCRIPTOR descriptor = NULL;
    const char *own;
    gpuipc_status status = win32_own_user(&own);
    if (status != GPUIPC_OK) {
        return status;
    }
    DWORD code = GetSecurityInfo(directory, SE_FILE_OBJECT,
                                 OWNER_SECURITY_INFORMATION | DACL_SECURITY_INFORMATION, &owner,
                                 NULL, &list, NULL, &descriptor);
    if (code != ERROR_SUCCESS) {
        return win32_fail(code, "GetSecurityInfo", "the rights of %s cannot be read", path);
    }
    if (owner == NULL || list == NULL) { /* no list: everybody has every right */
        status = directory_unsafe(path, "is open to everybody", NULL);
    } else if (!sid_is_trusted(owner, own)) {
        status = directory_unsafe(path, "belongs to another user", owner);
    } else {
        status = directory_check_list(path, list, own);
    }
    LocalFree(descriptor);
    return status;
}

static gpuipc_status directory_check(HANDLE directory, const char *path) {
    BY_HANDLE_FILE_INFORMATION found;
    if (!GetFileInformationByHandle(directory, &found)) {
        return win32_fail(GetLastError(), "GetFileInformationByHandle",
                          "the runtime directory %s cannot be looked at", path);
    }
    if ((found.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY) == 0 ||
        (found.dwFileAttributes & FILE_ATTRIBUTE_REPARSE_POINT) != 0) {
        return status_fail(GPUIPC_ERR_UNSAFE_DIRECTORY,
                           "%s is a link or no directory; a real directory is wanted", path);
    }
    return directory_check_rights(directory, path);
}

static gpuipc_status directory_open_failed(DWORD code, const char *path) {
    switch (code) {
    case ERROR_FILE_NOT_FOUND:
    case ERROR_PATH_NOT_FOUND:
        return win32_fail_as(GPUIPC_ERR_NOT_FOUND, code, "CreateFileW",
                             "the runtime directory %s is missing", path);
    case ERROR_ACCESS_DENIED:
        return win32_fail_as(GPUIPC_ERR_ACCESS_DENIED, code, "CreateFileW",
                             "this user may not look at the runtime directory %s", path);
    default:
        return win32_fail(code, "CreateFileW", "the runtime directory %s cannot be opened", path);
    }
}

gpuipc_status win32_directory_open(const char *path, bool create, os_handle *out_handle) {
    wchar_t wide[WIN32_PATH_MAX];
    const SECURITY_ATTRIBUTES *owner_only;
    gpuipc_status status = win32_path_wide(path, NULL, wide);
    if (status == GPUIPC_OK) {
        status = win32_owner_only(&owner_only);
    }
    if (status != GPUIPC_OK) {
        return status;
    }
    if (create && !CreateDirectoryW(wide, (SECURITY_ATTRIBUTES *)(uintptr_t)owner_only) &&
        GetLastError() != ERROR_ALREADY_EXISTS) {
        return win32_fail(GetLastError(), "CreateDirectoryW",
                          "the runtime directory %s cannot be made", path);
    }
    /* Not shared for deletion: while it is open, nobody can put another in its place. The system
     * looks at sharing only where data is asked for: hence the right to list. */
    HANDLE directory =
        CreateFileW(wide, FILE_LIST_DIRECTORY | READ_CONTROL | FILE_READ_ATTRIBUTES | SYNCHRONIZE,
                    FILE_SHARE_READ | FILE_SHARE_WRITE, NULL, OPEN_EXISTING,
                    FILE_FLAG_BACKUP_SEMANTICS | FILE_FLAG_OPEN_REPARSE_POINT, NULL);
    if (directory == INVALID_HANDLE_VALUE) {
        return directory_open_failed(GetLastError(), path);
    }
    os_handle opened;
    status = win32_handle_add(directory, "CreateFileW", &opened);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = directory_check(directory, path);
    if (status != GPUIPC_OK) {
        os_handle_close(&opened);
        return status;
    }
    *out_handle = opened;
    return GPUIPC_OK;
}
