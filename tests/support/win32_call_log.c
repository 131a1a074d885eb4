/* SPDX-License-Identifier: MIT */
/** @file Mapping the file of call_log.h, on Windows. */
#include "call_log.h"

#include <windows.h>

enum {
    PATH_UNITS = 1024
};

void *call_log_map(const char *path, size_t size) {
    wchar_t wide[PATH_UNITS];
    void *mapped = NULL;
    if (MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, wide, PATH_UNITS) == 0) {
        return NULL;
    }
    HANDLE file =
        CreateFileW(wide, GENERIC_READ | GENERIC_WRITE, FILE_SHARE_READ | FILE_SHARE_WRITE, NULL,
                    OPEN_EXISTING, FILE_ATTRIBUTE_NORMAL, NULL);
    if (file == INVALID_HANDLE_VALUE) {
        return NULL;
    }
    HANDLE section = CreateFileMappingW(file, NULL, PAGE_READWRITE, 0, (DWORD)size, NULL);
    if (section != NULL) {
        mapped = MapViewOfFile(section, FILE_MAP_WRITE, 0, 0, size);
        CloseHandle(section);
    }
    CloseHandle(file);
    return mapped;
}
