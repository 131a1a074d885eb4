/* SPDX-License-Identifier: MIT */
/** @file Dynamic libraries: the system's, one at a path, and those that came with gpuipc. */
#include "posix.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

const char os_cuda_driver_name[] = "libcuda.so.1";
const char os_emulated_driver_name[] = "libgpuipc-emulated-cuda.so";
const char os_nvml_name[] = "libnvidia-ml.so.1";
const char os_emulated_nvml_name[] = "libgpuipc-emulated-nvml.so";
const int os_shareable_handle_type = 1; /* cuda.h: CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR */

struct os_library {
    void *handle;
    char *path;
};

/** Where the loader found it: dlinfo(3), RTLD_DI_LINKMAP. */
static const char *loaded_path(void *handle, const char *fallback) {
    struct link_map *map = NULL;
    if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || map == NULL || map->l_name[0] == '\0') {
        return fallback;
    }
    return map->l_name;
}

/** Takes the loader's handle over; it is closed on failure. */
static gpuipc_status library_wrap(void *handle, const char *name, os_library **out_library) {
    const char *path = loaded_path(handle, name);
    os_library *library = malloc(sizeof(*library));
    if (library == NULL) {
        goto close_handle;
    }
    library->handle = handle;
    library->path = strdup(path);
    if (library->path == NULL) {
        goto free_library;
    }
    *out_library = library;
    return GPUIPC_OK;

free_library:
    free(library);
close_handle:
    dlclose(handle);
    return status_out_of_memory(sizeof(*library) + PATH_MAX);
}

static const char *loader_words(void) {
    const char *words = dlerror();
    return words != NULL ? words : "the loader gives no reason";
}

/* For a sentence that has the name already, with which glibc's words begin. */
static const char *words_behind(const char *name, const char *words) {
    const size_t length = strlen(name);
    const bool has_it = strncmp(words, name, length) == 0 && strncmp(words + length, ": ", 2) == 0;
    return has_it ? words + length + 2 : words;
}

/* dlopen(3) answers words only. When the very library is missing these name it, a colon, and end in
 * the system's words for ENOENT (glibc: "NAME: cannot open shared object file: ENOENT"; musl:
 * "Error loading shared library NAME: ENOENT"). When one that it needs is missing, glibc names that
 * one instead, and musl adds "(needed by ...)". Both come in the language of the program, which is
 * why ENOENT is asked for here and not written down. */
static bool words_say_missing(const char *words, const char *name) {
    char missing[128];
    const char *end = strerror_r(ENOENT, missing, sizeof(missing));
    size_t words_length = strlen(words);
    size_t end_length = strlen(end);
    if (words_length < end_length || strcmp(words + words_length - end_length, end) != 0) {
        return false;
    }
    const char *at = strstr(words, name);
    return at != NULL && at[strlen(name)] == ':';
}

/* One that was linked with -static names no loader (elf(5), PT_INTERP; getauxval(3), AT_PHDR). glibc's dlopen
 * gives it a library with a second C library beside its own, where nothing has set up what a thread has of
 * its own: a CUDA driver, which has threads, crashes at its first call. */
static bool program_is_static(void) {
    /* getauxval answers a number for what is an address here. */
    const ElfW(Phdr) *header = (const ElfW(Phdr) *)getauxval(AT_PHDR);
    const unsigned long count = getauxval(AT_PHNUM);
    for (unsigned long i = 0; i < count; i++) {
        if (header[i].p_type == PT_INTERP) {
            return false;
        }
    }
    return count > 0;
}

static gpuipc_status check_program(const char *name) {
    return program_is_static()
               ? status_fail(
                     GPUIPC_ERR_NOT_SUPPORTED,
                     "this program was linked with -static and cannot load %s: gpuipc may be "
                     "static, the C library may not (leave -static away)",
                     name)
               : GPUIPC_OK;
}

gpuipc_status os_library_open_system(const char *name, os_library **out_library) {
    const gpuipc_status status = check_program(name);
    if (status != GPUIPC_OK) {
        return status;
    }
    void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (handle != NULL) {
        return library_wrap(handle, name, out_library);
    }
    const char *words = loader_words();
    if (words_say_missing(words, name)) {
        return status_fail(GPUIPC_ERR_NOT_FOUND, "%s is not installed here", name);
    }
    return status_fail(GPUIPC_ERR_OS, "%s is installed but does not load: %s", name, words);
}

gpuipc_status os_library_open_path(const char *path, os_library **out_library) {
    char room[STATUS_PATH_MAX];
    const char *shown = status_path(path, room);
    if (path[0] != '/') {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "%s is no absolute path", shown);
    }
    if (access(path, F_OK) != 0) {
        gpuipc_status status =
            errno == ENOENT || errno == ENOTDIR ? GPUIPC_ERR_NOT_FOUND : GPUIPC_ERR_OS;
        return posix_fail_as(status, errno, "dlopen", "there is no %s", shown);
    }
    const gpuipc_status status = check_program(shown);
    if (status != GPUIPC_OK) {
        return status;
    }
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        return status_fail(GPUIPC_ERR_OS, "%s does not load: %s", shown,
                           words_behind(path, loader_words()));
    }
    return library_wrap(handle, path, out_library);
}

/** The folder of the file that this code is in: a shared library, or a program that was linked with
 *  the static one. */
static gpuipc_status own_folder(char *folder) {
    Dl_info info;
    struct link_map *map = NULL;
    const char *file = "/proc/self/exe";
    /* The name in Dl_info is argv[0] for the main program, which may be anything; the link map's is
     * empty there: dladdr(3), glibc elf/dl-addr.c. */
    if (dladdr1(os_cuda_driver_name, &info, (void **)&map, RTLD_DL_LINKMAP) != 0 && map != NULL &&
        map->l_name[0] != '\0') {
        file = map->l_name;
    }
    if (realpath(file, folder) == NULL) {
        return posix_fail(errno, "realpath", "the folder of %s cannot be found", file);
    }
    *strrchr(folder, '/') = '\0';
    return GPUIPC_OK;
}

/* RTLD_NODELETE with RTLD_NOLOAD changes what is loaded already: dlopen(3). The main program stays in any case. */
void posix_library_stay(void) {
    Dl_info info;
    struct link_map *map = NULL;
    if (dladdr1(os_cuda_driver_name, &info, (void **)&map, RTLD_DL_LINKMAP) != 0 && map != NULL &&
        map->l_name[0] != '\0') {
        (void)dlopen(map->l_name, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
    }
}

gpuipc_status os_library_open_own(const char *name, os_library **out_library) {
    static const char *const places[] = {"", "/gpuipc", "/../lib/gpuipc", "/../lib"};
    char folder[PATH_MAX];
    char path[PATH_MAX + NAME_MAX];
    gpuipc_status status = check_program(name);
    if (status != GPUIPC_OK || (status = own_folder(folder)) != GPUIPC_OK) {
        return status;
    }
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        int length = snprintf(path, sizeof(path), "%s%s/%s", folder, places[i], name);
        if (length > 0 && (size_t)length < sizeof(path) && access(path, F_OK) == 0) {
            return os_library_open_path(path, out_library);
        }
    }
#ifdef GPUIPC_LIBRARY_DIR
    int length = snprintf(path, sizeof(path), "%s/%s", GPUIPC_LIBRARY_DIR, name);
    if (length > 0 && (size_t)length < sizeof(path) && access(path, F_OK) == 0) {
        return os_library_open_path(path, out_library);
    }
#endif
    return status_fail(
        GPUIPC_ERR_NOT_FOUND,
        "%s is neither in %.120s nor in a gpuipc folder beside it; its path can be given in "
        "GPUIPC_CUDA_DRIVER",
        name, folder);
}

void *os_library_symbol(os_library *library, const char *name) {
    return dlsym(library->handle, name);
}

const char *os_library_path(os_library *library) {
    return library->path;
}

void os_library_close(os_library *library) {
    dlclose(library->handle);
    free(library->path);
    free(library);
}
