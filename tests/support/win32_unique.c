/* SPDX-License-Identifier: MIT */
/** @file Runtime directories for tests, on Windows. */
#include "unique.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <wchar.h>
#include <windows.h>

#include <sddl.h>

#include "os.h"

enum {
    PATH_UNITS = MAX_PATH + 1,
    SDDL_UNITS = 512
};

/** A descriptor that names this user as the owner and admits nobody else, for LocalFree(). */
static PSECURITY_DESCRIPTOR owner_only_make(void) {
    union {
        TOKEN_USER user;
        char room[sizeof(TOKEN_USER) + SECURITY_MAX_SID_SIZE];
    } own;
    DWORD size;
    HANDLE token;
    wchar_t *sid;
    wchar_t text[SDDL_UNITS];
    PSECURITY_DESCRIPTOR descriptor = NULL;
    if (!OpenProcessToken(GetCurrentProcess(), TOKEN_QUERY, &token)) {
        return NULL;
    }
    if (GetTokenInformation(token, TokenUser, &own, sizeof(own), &size) &&
        ConvertSidToStringSidW(own.user.User.Sid, &sid)) {
        /* The owner of what an administrator makes would be the group of them. */
        swprintf(text, SDDL_UNITS, L"O:%lsD:P(A;OICI;FA;;;%ls)", sid, sid);
        LocalFree(sid);
        if (!ConvertStringSecurityDescriptorToSecurityDescriptorW(text, SDDL_REVISION_1,
                                                                  &descriptor, NULL)) {
            descriptor = NULL;
        }
    }
    CloseHandle(token);
    return descriptor;
}

bool runtime_directory_make(char path[RUNTIME_DIRECTORY_MAX]) {
    wchar_t wide[PATH_UNITS + 40];
    uint64_t bits;
    DWORD length = GetTempPathW(PATH_UNITS, wide); /* ends with a backslash */
    if (length == 0 || length > PATH_UNITS || os_random(&bits, sizeof(bits)) != GPUIPC_OK) {
        return false;
    }
    swprintf(wide + length, 40, L"gpuipc-test-%016" PRIx64, bits);
    if (WideCharToMultiByte(CP_UTF8, WC_ERR_INVALID_CHARS, wide, -1, path, RUNTIME_DIRECTORY_MAX,
                            NULL, NULL) == 0) {
        return false;
    }
    SECURITY_ATTRIBUTES attributes = {sizeof(attributes), owner_only_make(), FALSE};
    if (attributes.lpSecurityDescriptor == NULL) {
        return false;
    }
    BOOL made = CreateDirectoryW(wide, &attributes);
    LocalFree(attributes.lpSecurityDescriptor);
    return made;
}

/* Calls it for each file; @return how many there are */
static size_t each_file(const wchar_t *directory, void (*act)(const wchar_t *file)) {
    wchar_t file[RUNTIME_DIRECTORY_MAX + MAX_PATH];
    WIN32_FIND_DATAW found;
    size_t count = 0;
    swprintf(file, RUNTIME_DIRECTORY_MAX + MAX_PATH, L"%ls\\*", directory);
    HANDLE search = FindFirstFileW(file, &found);
    if (search != INVALID_HANDLE_VALUE) {
        do {
            if ((found.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY) == 0) { /* not "." and ".." */
                swprintf(file, RUNTIME_DIRECTORY_MAX + MAX_PATH, L"%ls\\%ls", directory,
                         found.cFileName);
                count++;
                act(file);
            }
        } while (FindNextFileW(search, &found));
        FindClose(search);
    }
    return count;
}

static bool widen(const char *path, wchar_t directory[RUNTIME_DIRECTORY_MAX]) {
    return MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, directory,
                               RUNTIME_DIRECTORY_MAX) != 0;
}

static void leave_file(const wchar_t *file) {
    (void)file;
}

static void remove_file(const wchar_t *file) {
    DeleteFileW(file);
}

size_t runtime_directory_count(const char *path) {
    wchar_t directory[RUNTIME_DIRECTORY_MAX];
    return widen(path, directory) ? each_file(directory, leave_file) : 0;
}

void runtime_directory_remove(const char *path) {
    wchar_t directory[RUNTIME_DIRECTORY_MAX];
    if (widen(path, directory)) {
        (void)each_file(directory, remove_file);
        RemoveDirectoryW(directory);
    }
}
