/* SPDX-License-Identifier: MIT */
/** @file See system.h. */
#include "system.h"

#include <wchar.h>
#include <windows.h>

#define PATH_UNITS 4096

/* There is no limit to be set for one process; the system's own is 2 to the 24th: learn.microsoft.com,
 * "Kernel objects". */
uint64_t system_raise_handle_limit(void) {
    return UINT64_C(1) << 24;
}

bool system_own_folder(char *path, size_t capacity) {
    wchar_t wide[PATH_UNITS];
    DWORD length = GetModuleFileNameW(NULL, wide, PATH_UNITS);
    wchar_t *end = length > 0 && length < PATH_UNITS ? wcsrchr(wide, L'\\') : NULL;
    if (end == NULL) {
        return false;
    }
    *end = L'\0';
    return WideCharToMultiByte(CP_UTF8, WC_ERR_INVALID_CHARS, wide, -1, path, (int)capacity, NULL,
                               NULL) > 0;
}

static bool widen(const char *path, wchar_t wide[PATH_UNITS]) {
    return MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, wide, PATH_UNITS) > 0;
}

bool system_copy_file(const char *from, const char *to) {
    wchar_t wide_from[PATH_UNITS];
    wchar_t wide_to[PATH_UNITS];
    return widen(from, wide_from) && widen(to, wide_to) && CopyFileW(wide_from, wide_to, FALSE);
}

const char *system_contain(system_users users) {
    (void)users;
    return "Windows has no such namespaces";
}

void system_become_as(const char *user, char **arguments) {
    (void)user;
    (void)arguments;
}

void system_become(char **arguments) {
    (void)arguments;
}

void system_remove_file(const char *path) {
    wchar_t wide[PATH_UNITS];
    if (widen(path, wide)) {
        (void)DeleteFileW(wide);
    }
}
