/* SPDX-License-Identifier: MIT */
/** @file Dynamic libraries: the system's, one at a path, and those that came with gpuipc. */
#include "win32.h"

#include <stdlib.h>
#include <string.h>

const char os_cuda_driver_name[] = "nvcuda.dll";
const char os_emulated_driver_name[] = "gpuipc-emulated-cuda.dll";
const char os_nvml_name[] = "nvml.dll";
const char os_emulated_nvml_name[] = "gpuipc-emulated-nvml.dll";
const int os_shareable_handle_type = 2; /* cuda.h: CU_MEM_HANDLE_TYPE_WIN32 */

/** The longest path of the system, with its end: learn.microsoft.com, "Maximum Path Length
 *  Limitation". */
#define PATH_UNITS_MAX 32768u

/** UTF-8 has at most three bytes for a unit of UTF-16. */
#define BYTES_OF_UNIT 3u

/** Lifts the limit of MAX_PATH, which is the loader's too. */
static const wchar_t long_prefix[] = L"\\\\?\\";
static const wchar_t long_share_prefix[] = L"\\\\?\\UNC\\";

struct os_library {
    HMODULE module;
    char *path;
};

static bool is_separator(char character) {
    return character == '\\' || character == '/';
}

static bool is_drive(char character) {
    return (character >= 'A' && character <= 'Z') || (character >= 'a' && character <= 'z');
}

/** With a drive or a share. "\x.dll" and "C:x.dll" depend on where the program stands. */
static bool path_is_absolute(const char *path) {
    if (is_drive(path[0])) {
        return path[1] == ':' && is_separator(path[2]);
    }
    return is_separator(path[0]) && is_separator(path[1]) && path[2] != '\0' &&
           !is_separator(path[2]);
}

static wchar_t *wide_allocate(size_t units) {
    return malloc(units * sizeof(wchar_t));
}

/** For free(). */
static gpuipc_status wide_copy(const char *text, wchar_t **out_wide) {
    size_t units = strlen(text) + 1; /* no byte of UTF-8 becomes more than one unit */
    wchar_t *wide = wide_allocate(units);
    if (wide == NULL) {
        return status_out_of_memory(units * sizeof(*wide));
    }
    gpuipc_status status = win32_wide(text, wide, units);
    if (status != GPUIPC_OK) {
        free(wide);
        return status;
    }
    *out_wide = wide;
    return GPUIPC_OK;
}

/** For free(). */
static gpuipc_status narrow_copy(const wchar_t *wide, char **out_text) {
    size_t bytes = wcslen(wide) * BYTES_OF_UNIT + 1;
    char *text = malloc(bytes);
    if (text == NULL) {
        return status_out_of_memory(bytes);
    }
    if (!win32_narrow(wide, text, bytes)) {
        free(text);
        return win32_fail(GetLastError(), "WideCharToMultiByte", "a library's path has no UTF-8");
    }
    *out_text = text;
    return GPUIPC_OK;
}

/** The file of a module; for free(). */
static gpuipc_status module_file(HMODULE module, wchar_t **out_file) {
    for (DWORD units = MAX_PATH; units <= PATH_UNITS_MAX; units *= 2) {
        wchar_t *file = wide_allocate(units);
        if (file == NULL) {
            return status_out_of_memory(units * sizeof(*file));
        }
        DWORD length = GetModuleFileNameW(module, file, units);
        if (length > 0 && length < units) {
            *out_file = file;
            return GPUIPC_OK;
        }
        DWORD code = GetLastError();
        free(file);
        if (length == 0) {
            return win32_fail(code, "GetModuleFileNameW", "the file of a library is not known");
        }
    }
    return status_fail(GPUIPC_ERR_OS,
                       "the path of a library's file is longer than the system's longest");
}

/** Takes the module over; it is freed on failure. */
static gpuipc_status library_wrap(HMODULE module, os_library **out_library) {
    wchar_t *file = NULL;
    gpuipc_status status;
    os_library *library = malloc(sizeof(*library));
    if (library == NULL) {
        status = status_out_of_memory(sizeof(*library));
        goto free_module;
    }
    status = module_file(module, &file);
    if (status != GPUIPC_OK) {
        goto free_library;
    }
    status = narrow_copy(file, &library->path);
    free(file);
    if (status != GPUIPC_OK) {
        goto free_library;
    }
    library->module = module;
    *out_library = library;
    return GPUIPC_OK;

free_library:
    free(library);
free_module:
    FreeLibrary(module);
    return status;
}

static bool code_says_missing(DWORD code) {
    return code == ERROR_FILE_NOT_FOUND || code == ERROR_PATH_NOT_FOUND ||
           code == ERROR_INVALID_NAME || code == ERROR_BAD_PATHNAME || code == ERROR_BAD_NETPATH ||
           code == ERROR_BAD_NET_NAME || code == ERROR_INVALID_DRIVE;
}

/** @return 0 or GetLastError() */
static DWORD file_is_missing(const wchar_t *file) {
    return GetFileAttributesW(file) != INVALID_FILE_ATTRIBUTES ? 0 : GetLastError();
}

/** @return 0 or GetLastError(). What the library needs is looked for where @p search says, and neither
 *  in the directory that the program stands in nor in PATH. No window asks the user anything: the
 *  loader would, for a library that needs a missing one (SetThreadErrorMode). */
static DWORD module_load(const wchar_t *file, DWORD search, HMODULE *out_module) {
    DWORD mode = GetThreadErrorMode();
    BOOL is_set = SetThreadErrorMode(mode | SEM_FAILCRITICALERRORS, NULL);
    *out_module = LoadLibraryExW(file, NULL, search);
    DWORD code = *out_module != NULL ? 0 : GetLastError();
    if (is_set) {
        SetThreadErrorMode(mode, NULL);
    }
    return code;
}

/** The file is there. The code for a library that is missing speaks of one that it needs. */
static gpuipc_status load_failed(DWORD code, const char *name, const char *before) {
    const char *more = code == ERROR_MOD_NOT_FOUND ? " (a library that it needs is missing)" : "";
    return win32_fail_as(GPUIPC_ERR_OS, code, "LoadLibraryExW", "%s %sdoes not load%s", name,
                         before, more);
}

/** The path of a file in the system's own directory; for free(). */
static gpuipc_status system_file(const char *name, wchar_t **out_file) {
    UINT room = GetSystemDirectoryW(NULL, 0); /* with its end */
    size_t units = room + 1 + strlen(name) + 1;
    wchar_t *file = wide_allocate(units);
    if (file == NULL) {
        return status_out_of_memory(units * sizeof(*file));
    }
    UINT length = GetSystemDirectoryW(file, room);
    gpuipc_status status;
    if (room == 0 || length == 0 || length >= room) {
        status = win32_fail(GetLastError(), "GetSystemDirectoryW",
                            "the system's directory is not known");
        goto free_file;
    }
    file[length] = L'\\';
    status = win32_wide(name, file + length + 1, units - length - 1);
    if (status != GPUIPC_OK) {
        goto free_file;
    }
    *out_file = file;
    return GPUIPC_OK;

free_file:
    free(file);
    return status;
}

/* By the whole path: for a bare name the loader answers any module of that name that the process has
 * loaded already, wherever it came from (learn.microsoft.com, LoadLibraryExW, Remarks). */
gpuipc_status os_library_open_system(const char *name, os_library **out_library) {
    wchar_t *file = NULL;
    HMODULE module;
    if (name[0] == '\0' || strpbrk(name, "\\/:") != NULL) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "\"%s\" is no plain file name", name);
    }
    gpuipc_status status = system_file(name, &file);
    if (status != GPUIPC_OK) {
        return status;
    }
    DWORD missing = file_is_missing(file);
    DWORD code = 0;
    if (missing == 0) {
        code = module_load(file, LOAD_LIBRARY_SEARCH_SYSTEM32, &module);
    }
    free(file);
    if (code_says_missing(missing)) {
        return win32_fail_as(GPUIPC_ERR_NOT_FOUND, missing, "LoadLibraryExW",
                             "%s is not installed here", name);
    }
    if (missing != 0 || code != 0) {
        return load_failed(missing != 0 ? missing : code, name, "is installed but ");
    }
    return library_wrap(module, out_library);
}

/** The path with backslashes and without "." and "..", and with the prefix where it is long; for
 *  free(). Not all of them have the prefix, since it stays in the name of the module. */
static gpuipc_status path_for_loader(const wchar_t *path, wchar_t **out_file) {
    const size_t prefix_units = sizeof(long_share_prefix) / sizeof(wchar_t);
    DWORD room = GetFullPathNameW(path, 0, NULL, NULL); /* with its end */
    wchar_t *file = wide_allocate(prefix_units + room);
    if (file == NULL) {
        return status_out_of_memory((prefix_units + room) * sizeof(*file));
    }
    DWORD length = GetFullPathNameW(path, room, file, NULL);
    if (length == 0 || length >= room) {
        gpuipc_status status = win32_fail_as(GPUIPC_ERR_INVALID_ARGUMENT, GetLastError(),
                                             "GetFullPathNameW", "a library's path is none");
        free(file);
        return status;
    }
    if (length >= MAX_PATH && wcsncmp(file, long_prefix, wcslen(long_prefix)) != 0) {
        bool is_share = file[0] == L'\\';
        const wchar_t *prefix = is_share ? long_share_prefix : long_prefix;
        size_t skipped = is_share ? 2 : 0; /* its two backslashes are in the prefix */
        memmove(file + wcslen(prefix), file + skipped, (length + 1 - skipped) * sizeof(*file));
        memcpy(file, prefix, wcslen(prefix) * sizeof(*file));
    }
    *out_file = file;
    return GPUIPC_OK;
}

/** @p name is for the sentences. ERR_NOT_FOUND when there is no such file. */
static gpuipc_status wide_path_open(const wchar_t *path, const char *name,
                                    os_library **out_library) {
    char room[STATUS_PATH_MAX];
    const char *shown = status_path(name, room);
    wchar_t *file = NULL;
    HMODULE module;
    gpuipc_status status = path_for_loader(path, &file);
    if (status != GPUIPC_OK) {
        return status;
    }
    DWORD missing = file_is_missing(file);
    DWORD code = 0;
    if (missing == 0) {
        /* Not LOAD_WITH_ALTERED_SEARCH_PATH, which goes on to PATH. */
        code = module_load(file, LOAD_LIBRARY_SEARCH_DLL_LOAD_DIR | LOAD_LIBRARY_SEARCH_SYSTEM32,
                           &module);
    }
    free(file);
    if (missing != 0) {
        status = code_says_missing(missing) ? GPUIPC_ERR_NOT_FOUND : GPUIPC_ERR_OS;
        return win32_fail_as(status, missing, "LoadLibraryExW", "there is no %s", shown);
    }
    if (code != 0) {
        return load_failed(code, shown, "");
    }
    return library_wrap(module, out_library);
}

gpuipc_status os_library_open_path(const char *path, os_library **out_library) {
    char room[STATUS_PATH_MAX];
    wchar_t *wide = NULL;
    if (!path_is_absolute(path)) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT,
                           "%s is no absolute path, with a drive or a share",
                           status_path(path, room));
    }
    gpuipc_status status = wide_copy(path, &wide);
    if (status == GPUIPC_OK) {
        status = wide_path_open(wide, path, out_library);
        free(wide);
    }
    return status;
}

/** The folder of the file that this code is in: a DLL, or a program that was linked with the static
 *  library; for free(). */
static gpuipc_status own_folder(wchar_t **out_folder) {
    HMODULE module;
    if (!GetModuleHandleExW(GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS |
                                GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT,
                            (const wchar_t *)(const void *)os_cuda_driver_name, &module)) {
        return win32_fail(GetLastError(), "GetModuleHandleExW",
                          "the module of this code cannot be found");
    }
    gpuipc_status status = module_file(module, out_folder);
    if (status == GPUIPC_OK) {
        wchar_t *last = wcsrchr(*out_folder, L'\\');
        *(last != NULL ? last : *out_folder) = L'\0';
    }
    return status;
}

/** folder + place + name; for free(). */
static gpuipc_status join(const wchar_t *folder, const wchar_t *place, const wchar_t *name,
                          wchar_t **out_path) {
    size_t folder_units = wcslen(folder);
    size_t place_units = wcslen(place);
    size_t name_units = wcslen(name) + 1;
    wchar_t *path = wide_allocate(folder_units + place_units + name_units);
    if (path == NULL) {
        return status_out_of_memory(folder_units * sizeof(*path));
    }
    memcpy(path, folder, folder_units * sizeof(*path));
    memcpy(path + folder_units, place, place_units * sizeof(*path));
    memcpy(path + folder_units + place_units, name, name_units * sizeof(*path));
    *out_path = path;
    return GPUIPC_OK;
}

static gpuipc_status own_open(const wchar_t *folder, const wchar_t *wide_name, const char *name,
                              os_library **out_library) {
    static const wchar_t *const places[] = {L"\\", L"\\gpuipc\\", L"\\..\\lib\\gpuipc\\",
                                            L"\\..\\lib\\"};
    gpuipc_status status = GPUIPC_ERR_NOT_FOUND;
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]) && status == GPUIPC_ERR_NOT_FOUND;
         i++) {
        wchar_t *path = NULL;
        status = join(folder, places[i], wide_name, &path);
        if (status == GPUIPC_OK) {
            status = wide_path_open(path, name, out_library);
            free(path);
        }
    }
    return status;
}

static gpuipc_status own_missing(const wchar_t *folder, const char *name) {
    char *shown = NULL;
    gpuipc_status status = narrow_copy(folder, &shown);
    if (status == GPUIPC_OK) {
        status = status_fail(GPUIPC_ERR_NOT_FOUND,
                             "%s is neither in %.120s nor in a gpuipc folder beside it; its path "
                             "can be given in GPUIPC_CUDA_DRIVER",
                             name, shown);
        free(shown);
    }
    return status;
}

gpuipc_status os_library_open_own(const char *name, os_library **out_library) {
    wchar_t *folder = NULL;
    wchar_t *wide_name = NULL;
    gpuipc_status status = own_folder(&folder);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = wide_copy(name, &wide_name);
    if (status != GPUIPC_OK) {
        goto free_folder;
    }
    status = own_open(folder, wide_name, name, out_library);
    if (status == GPUIPC_ERR_NOT_FOUND) {
        status = own_missing(folder, name);
    }
    free(wide_name);

free_folder:
    free(folder);
    return status;
}

void *os_library_symbol(os_library *library, const char *name) {
    FARPROC function = GetProcAddress(library->module, name);
    void *symbol;
    memcpy(&symbol, &function, sizeof(symbol));
    return symbol;
}

const char *os_library_path(os_library *library) {
    return library->path;
}

void os_library_close(os_library *library) {
    FreeLibrary(library->module);
    free(library->path);
    free(library);
}
