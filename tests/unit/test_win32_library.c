/* SPDX-License-Identifier: MIT */
/** @file Dynamic libraries: where they are looked for, and why they do not load. */
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "leak_gate.h"
#include "unique.h"
#include "win32.h"

TestSuite(win32_library, .timeout = 60);

/** In a folder of its own beside this program, where nothing looks. */
#define PLAIN "plain\\win32_dll_plain.dll"

typedef DWORD (*number_function)(void);

enum {
    PATH_UNITS = 2048
};

/** A path in this program's folder. */
static void beside(const char *name, wchar_t path[PATH_UNITS]) {
    DWORD length = GetModuleFileNameW(NULL, path, PATH_UNITS);
    cr_assert(length > 0 && length < PATH_UNITS);
    wchar_t *last = wcsrchr(path, L'\\');
    cr_assert_not_null(last);
    check_ok(win32_wide(name, last + 1, PATH_UNITS - (size_t)(last + 1 - path)));
}

static void narrow(const wchar_t *wide, char text[3 * PATH_UNITS]) {
    cr_assert(win32_narrow(wide, text, 3 * PATH_UNITS));
}

static number_function number_of(os_library *library, const char *name) {
    number_function function;
    void *symbol = os_library_symbol(library, name);
    cr_assert_not_null(symbol);
    memcpy(&function, &symbol, sizeof(function));
    return function;
}

static void copy_file(const wchar_t *from, const wchar_t *to) {
    cr_assert(CopyFileW(from, to, TRUE), "%ls to %ls: %lu", from, to, GetLastError());
}

/** Copies the plain library, and has it found there by its bare name. */
static void check_found_in(const char *place) {
    char unique[UNIQUE_NAME_MAX];
    char name[UNIQUE_NAME_MAX + 8];
    char at[UNIQUE_NAME_MAX + 64];
    wchar_t plain[PATH_UNITS];
    wchar_t copy[PATH_UNITS];
    os_library *library;
    unique_name(unique);
    snprintf(name, sizeof(name), "%s.dll", unique);
    snprintf(at, sizeof(at), "%s%s", place, name);
    beside(PLAIN, plain);
    beside(at, copy);
    check_refused(GPUIPC_ERR_NOT_FOUND, name, os_library_open_own(name, &library));
    copy_file(plain, copy);
    check_ok(os_library_open_own(name, &library));
    cr_assert(strstr(os_library_path(library), name) != NULL);
    cr_assert_null(strstr(os_library_path(library), ".."));
    os_library_close(library);
    cr_assert(DeleteFileW(copy));
}

Test(win32_library, its_own_are_beside_it_and_where_it_was_installed) {
    static const char *const folders[] = {"gpuipc", "..\\lib", "..\\lib\\gpuipc"};
    wchar_t folder[PATH_UNITS];
    bool made[3];
    leak_gate gate;
    leak_gate_begin(&gate);
    for (size_t i = 0; i < 3; i++) {
        beside(folders[i], folder);
        made[i] = CreateDirectoryW(folder, NULL);
    }
    check_found_in("");
    check_found_in("gpuipc\\");
    check_found_in("..\\lib\\");
    check_found_in("..\\lib\\gpuipc\\");
    for (size_t i = 3; i-- > 0;) {
        beside(folders[i], folder);
        if (made[i]) {
            RemoveDirectoryW(folder);
        }
    }
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

Test(win32_library, one_that_needs_a_missing_one_is_there_but_does_not_load) {
    os_library *library = NULL;
    leak_gate gate;
    leak_gate_begin(&gate);
    check_refused(GPUIPC_ERR_OS, "does not load (a library that it needs is missing)",
                  os_library_open_own("win32_dll_needs.dll", &library));
    cr_assert_eq(gpuipc_error_get()->native_code, ERROR_MOD_NOT_FOUND);
    cr_assert_null(library);
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

Test(win32_library, one_that_refuses_is_there_but_does_not_load) {
    os_library *library = NULL;
    check_refused(GPUIPC_ERR_OS, "does not load",
                  os_library_open_own("win32_dll_refuses.dll", &library));
    cr_assert_eq(gpuipc_error_get()->native_code, ERROR_DLL_INIT_FAILED);
    cr_assert_null(library);
}

Test(win32_library, what_it_needs_is_looked_for_in_its_own_folder) {
    char directory[RUNTIME_DIRECTORY_MAX];
    char path[RUNTIME_DIRECTORY_MAX + 32];
    wchar_t from[PATH_UNITS];
    wchar_t to[PATH_UNITS];
    os_library *library;
    cr_assert(runtime_directory_make(directory));
    beside("win32_dll_needs.dll", from);
    snprintf(path, sizeof(path), "%s\\win32_dll_plain.dll", directory);
    check_ok(win32_wide(path, to, PATH_UNITS));
    wchar_t plain[PATH_UNITS];
    beside(PLAIN, plain);
    copy_file(plain, to);
    snprintf(path, sizeof(path), "%s\\win32_dll_needs.dll", directory);
    check_ok(win32_wide(path, to, PATH_UNITS));
    copy_file(from, to);
    check_ok(os_library_open_path(path, &library));
    cr_assert_eq(number_of(library, "needs_plain")() & SEM_FAILCRITICALERRORS,
                 SEM_FAILCRITICALERRORS);
    os_library_close(library);
    runtime_directory_remove(directory);
}

Test(win32_library, nobody_is_asked_while_it_loads_and_the_thread_stays_as_it_was) {
    wchar_t plain[PATH_UNITS];
    char path[3 * PATH_UNITS];
    os_library *library;
    cr_assert(SetThreadErrorMode(SEM_NOOPENFILEERRORBOX, NULL));
    beside(PLAIN, plain);
    narrow(plain, path);
    check_ok(os_library_open_path(path, &library));
    cr_assert_eq(GetThreadErrorMode(), SEM_NOOPENFILEERRORBOX);
    cr_assert_eq(number_of(library, "plain_mode_while_loading")(),
                 SEM_NOOPENFILEERRORBOX | SEM_FAILCRITICALERRORS);
    os_library_close(library);
    check_status(GPUIPC_ERR_OS, os_library_open_own("win32_dll_refuses.dll", &library));
    cr_assert_eq(GetThreadErrorMode(), SEM_NOOPENFILEERRORBOX);
}

Test(win32_library, a_path_may_have_slashes_and_dots) {
    wchar_t wide[PATH_UNITS];
    char plain[3 * PATH_UNITS];
    char path[3 * PATH_UNITS];
    os_library *library;
    os_library *again;
    beside(PLAIN, wide);
    narrow(wide, plain);
    beside("plain\\..\\.\\plain//win32_dll_plain.dll", wide);
    for (wchar_t *at = wide; *at != L'\0'; at++) {
        *at = *at == L'\\' ? L'/' : *at;
    }
    narrow(wide, path);
    check_ok(os_library_open_path(path, &library));
    check_ok(os_library_open_path(plain, &again));
    cr_assert_str_eq(os_library_path(library), os_library_path(again));
    cr_assert_null(strchr(os_library_path(library), '/'));
    os_library_close(again);
    os_library_close(library);
}

/* 110 characters each: six are beyond MAX_PATH, and beyond the first buffers. */
#define LONG_FOLDER                                                                                \
    L"gr\u00fcn-\u9be8-0123456789012345678901234567890123456789"                                   \
    L"0123456789012345678901234567890123456789012345678901234567890123"

Test(win32_library, a_long_path_that_is_not_ascii) {
    enum {
        DEPTH = 6
    };
    char directory[RUNTIME_DIRECTORY_MAX];
    wchar_t base[PATH_UNITS];
    wchar_t path[PATH_UNITS] = L"\\\\?\\";
    wchar_t plain[PATH_UNITS];
    char text[3 * PATH_UNITS];
    size_t lengths[DEPTH];
    os_library *library;
    leak_gate gate;
    leak_gate_begin(&gate);
    cr_assert(runtime_directory_make(directory));
    check_ok(win32_wide(directory, base, PATH_UNITS));
    wcscat(path, base);
    for (size_t i = 0; i < DEPTH; i++) {
        lengths[i] = wcslen(path);
        wcscat(path, L"\\" LONG_FOLDER);
        cr_assert(CreateDirectoryW(path, NULL), "%lu", GetLastError());
    }
    wcscat(path, L"\\library.dll");
    cr_assert_gt(wcslen(path), 2 * MAX_PATH);
    beside(PLAIN, plain);
    copy_file(plain, path);

    narrow(path + 4, text); /* without the prefix, as a user gives it */
    check_ok(os_library_open_path(text, &library));
    (void)number_of(library, "plain_mode_while_loading");
    cr_assert(strstr(os_library_path(library), text) != NULL, "%s", os_library_path(library));
    os_library_close(library);
    narrow(path, text); /* with it */
    check_ok(os_library_open_path(text, &library));
    os_library_close(library);

    cr_assert(DeleteFileW(path));
    for (size_t i = DEPTH; i-- > 0;) {
        *wcsrchr(path, L'\\') = L'\0';
        cr_assert(RemoveDirectoryW(path));
        cr_assert_eq(wcslen(path) - wcslen(LONG_FOLDER) - 1, lengths[i]);
    }
    runtime_directory_remove(directory);
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

Test(win32_library, the_systems_are_not_those_that_are_loaded_from_elsewhere) {
    wchar_t plain[PATH_UNITS];
    char path[3 * PATH_UNITS];
    os_library *library;
    os_library *systems = NULL;
    beside(PLAIN, plain);
    narrow(plain, path);
    check_ok(os_library_open_path(path, &library));
    cr_assert_not_null(GetModuleHandleW(L"win32_dll_plain.dll"));
    check_refused(GPUIPC_ERR_NOT_FOUND, "not installed",
                  os_library_open_system("win32_dll_plain.dll", &systems));
    cr_assert_null(systems);
    os_library_close(library);
}

Test(win32_library, the_systems_are_named_without_a_place) {
    static const char *const names[] = {"",
                                        "C:\\windows\\system32\\msvcrt.dll",
                                        "..\\x.dll",
                                        "drivers/x.sys",
                                        "C:msvcrt.dll",
                                        "x.dll:stream"};
    os_library *library = NULL;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "no plain file name",
                      os_library_open_system(names[i], &library));
    }
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, os_library_open_system("\xff.dll", &library));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, os_library_open_path("C:\\\xff.dll", &library));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, os_library_open_own("\xff.dll", &library));
    cr_assert_null(library);
}

Test(win32_library, the_driver_is_looked_for_in_the_systems_directory) {
    os_library *library;
    wchar_t directory[MAX_PATH + 1];
    char text[3 * PATH_UNITS];
    gpuipc_status status = os_library_open_system(os_cuda_driver_name, &library);
    if (status == GPUIPC_ERR_NOT_FOUND) {
        cr_assert(strstr(gpuipc_error_get()->sentence, "nvcuda.dll is not installed here") != NULL);
        return;
    }
    cr_assert_eq(status, GPUIPC_OK, "%s", gpuipc_error_get()->sentence);
    cr_assert_gt(GetSystemDirectoryW(directory, MAX_PATH + 1), 0);
    narrow(directory, text);
    cr_assert_eq(_strnicmp(os_library_path(library), text, strlen(text)), 0, "%s",
                 os_library_path(library));
    os_library_close(library);
}
