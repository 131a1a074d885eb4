/* SPDX-License-Identifier: MIT */
/** @file See raw_handle.h. */
#include "raw_handle.h"

#include <wchar.h>
#include <windows.h>

#define MEMORY_BYTES (2u << 20)
#define PATH_UNITS   1024

void raw_handle_close(intptr_t handle) {
    if (handle != RAW_HANDLE_NONE) {
        CloseHandle((HANDLE)handle);
    }
}

intptr_t raw_handle_copy(intptr_t handle) {
    HANDLE copy;
    return DuplicateHandle(GetCurrentProcess(), (HANDLE)handle, GetCurrentProcess(), &copy, 0,
                           FALSE, DUPLICATE_SAME_ACCESS)
               ? (intptr_t)copy
               : RAW_HANDLE_NONE;
}

/* Most calls answer NULL when they fail. */
static intptr_t handle_or_none(HANDLE handle) {
    return handle != NULL ? (intptr_t)handle : RAW_HANDLE_NONE;
}

static intptr_t open_memory(void) {
    return handle_or_none(CreateFileMappingW(INVALID_HANDLE_VALUE, NULL,
                                             PAGE_READWRITE | SEC_COMMIT, 0, MEMORY_BYTES, NULL));
}

/* As large as the emulated driver's memory, but not its memory. */
static intptr_t open_larger_memory(void) {
    return handle_or_none(CreateFileMappingW(
        INVALID_HANDLE_VALUE, NULL, PAGE_READWRITE | SEC_COMMIT, 0, MEMORY_BYTES + 4096, NULL));
}

static intptr_t open_reserved_memory(void) {
    return handle_or_none(CreateFileMappingW(INVALID_HANDLE_VALUE, NULL,
                                             PAGE_READWRITE | SEC_RESERVE, 0, MEMORY_BYTES, NULL));
}

static intptr_t open_path(const wchar_t *path, DWORD flags) {
    return (intptr_t)CreateFileW(path, GENERIC_READ,
                                 FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL,
                                 OPEN_EXISTING, flags, NULL);
}

static intptr_t open_file(void) {
    wchar_t path[PATH_UNITS];
    DWORD length = GetModuleFileNameW(NULL, path, PATH_UNITS);
    return length > 0 && length < PATH_UNITS ? open_path(path, 0) : RAW_HANDLE_NONE;
}

static intptr_t open_mapped_file(void) {
    intptr_t file = open_file();
    HANDLE mapping = CreateFileMappingW((HANDLE)file, NULL, PAGE_READONLY, 0, 0, NULL);
    raw_handle_close(file);
    return handle_or_none(mapping);
}

static intptr_t open_directory(void) {
    wchar_t path[PATH_UNITS];
    DWORD length = GetTempPathW(PATH_UNITS, path);
    return length > 0 && length < PATH_UNITS ? open_path(path, FILE_FLAG_BACKUP_SEMANTICS)
                                             : RAW_HANDLE_NONE;
}

static intptr_t open_nul(void) {
    return open_path(L"NUL", 0);
}

static intptr_t open_event(void) {
    return handle_or_none(CreateEventW(NULL, TRUE, FALSE, NULL));
}

static intptr_t open_pipe(void) {
    HANDLE ends[2];
    if (!CreatePipe(&ends[0], &ends[1], NULL, 0)) {
        return RAW_HANDLE_NONE;
    }
    CloseHandle(ends[1]);
    return (intptr_t)ends[0];
}

static intptr_t open_process(void) {
    return handle_or_none(
        OpenProcess(PROCESS_QUERY_LIMITED_INFORMATION, FALSE, GetCurrentProcessId()));
}

static intptr_t open_job(void) {
    return handle_or_none(CreateJobObjectW(NULL, NULL));
}

static const struct {
    const char *name;
    intptr_t (*open)(void);
} kinds[] = {{"memory", open_memory}, /* RAW_HANDLE_MEMORY */
             {"more memory", open_larger_memory},
             {"memory that is only reserved", open_reserved_memory},
             {"a file", open_file},
             {"a file's mapping", open_mapped_file},
             {"a directory", open_directory},
             {"NUL", open_nul},
             {"an event", open_event},
             {"the end of a pipe", open_pipe},
             {"a process", open_process},
             {"a job", open_job}};

const int raw_handle_kinds = sizeof(kinds) / sizeof(*kinds);

intptr_t raw_handle_open(int kind) {
    return kinds[kind].open();
}

const char *raw_handle_kind_name(int kind) {
    return kinds[kind].name;
}

bool raw_handle_is_memory(int kind) {
    return kinds[kind].open == open_memory || kinds[kind].open == open_larger_memory;
}
