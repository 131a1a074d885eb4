/* SPDX-License-Identifier: MIT */
/** @file See interpose.h. */
#include "interpose.h"

#include <dlfcn.h>
#include <string.h>

#include "log.h"

typedef void (*any_function)(void);

typedef struct hook {
    const char *name; /* as cuGetProcAddress() knows it */
    const char *symbol;
    int version;
    int flags;
    any_function ours;
} hook;

#define HOOK_ROW(name, suffix, version, flags, parameters)                                         \
    {#name, #name #suffix, version, flags, (any_function)name##suffix},
static const hook hooks[] = {HOOK_LIST(HOOK_ROW)};
#undef HOOK_ROW
#define HOOK_COUNT (sizeof(hooks) / sizeof(hooks[0]))

/* The driver's own: what its symbols are, and what it gives out itself, which need not be the same. */
static struct {
    const void *by_symbol;
    const void *by_name;
} theirs[HOOK_COUNT];

static void *address_of(any_function function) {
    void *address;
    memcpy(&address, &function, sizeof(address));
    return address;
}

static const void *ask_driver(const real_driver *driver, const hook *row) {
    void *found = NULL;
    if (driver->cuGetProcAddress_v2 != NULL) {
        CUdriverProcAddressQueryResult status;
        const CUresult result = driver->cuGetProcAddress_v2(row->name, &found, row->version,
                                                            (cuuint64_t)row->flags, &status);
        return result == CUDA_SUCCESS ? found : NULL;
    }
    if (driver->cuGetProcAddress != NULL &&
        driver->cuGetProcAddress(row->name, &found, row->version, (cuuint64_t)row->flags) ==
            CUDA_SUCCESS) {
        return found;
    }
    return NULL;
}

/* Asked for the version of a row, a driver may answer with another row's entry point: where it has none for a
 * thread's own default stream, that is the ordinary one. So symbols come first. */
void interpose_learn(const real_driver *driver) {
    size_t i = 0;
#define LEARN(name, suffix, version, flags, parameters)                                            \
    memcpy(&theirs[i++].by_symbol, &driver->name##suffix, sizeof(void *));
    HOOK_LIST(LEARN)
#undef LEARN
    for (i = 0; i < HOOK_COUNT; i++) {
        theirs[i].by_name = ask_driver(driver, &hooks[i]);
    }
}

void *interpose_replacement(const void *symbol) {
    for (size_t i = 0; symbol != NULL && i < HOOK_COUNT; i++) {
        if (symbol == theirs[i].by_symbol) {
            return address_of(hooks[i].ours);
        }
    }
    for (size_t i = 0; symbol != NULL && i < HOOK_COUNT; i++) {
        if (symbol == theirs[i].by_name) {
            return address_of(hooks[i].ours);
        }
    }
    return NULL;
}

static const hook *find_hook(const char *symbol) {
    for (size_t i = 0; i < HOOK_COUNT; i++) {
        if (strcmp(hooks[i].symbol, symbol) == 0) {
            return &hooks[i];
        }
    }
    return NULL;
}

/* gpuipc itself, this library's part of it or another copy, works on the memory as it is. */
static bool is_gpuipc(const void *caller) {
    Dl_info about;
    if (dladdr(caller, &about) == 0 || about.dli_fname == NULL) {
        return false;
    }
    const char *slash = strrchr(about.dli_fname, '/');
    const char *file = slash == NULL ? about.dli_fname : slash + 1;
    return strncmp(file, "libgpuipc", strlen("libgpuipc")) == 0;
}

void *interpose_look_up(void *handle, const char *name, const void *caller, void **out_symbol) {
    const hook *row = NULL;
    if (name != NULL && name[0] == 'c' && name[1] == 'u' && handle != RTLD_NEXT) {
        row = find_hook(name);
    }
    if (row == NULL || is_gpuipc(caller)) {
        return real_look_up_address();
    }
    void *found = real_look_up(handle, name);
    void *ours = address_of(row->ours);
    if (found == ours) {
        /* It was found among the symbols of the whole program, where ours stand even if there is no driver. */
        *out_symbol = real_look_up(RTLD_NEXT, name) == NULL ? NULL : ours;
        return NULL;
    }
    if (found == NULL || real_if_loaded() == NULL || interpose_replacement(found) == NULL) {
        return real_look_up_address();
    }
    log_count(COUNT_LOOK_UPS);
    *out_symbol = ours;
    return NULL;
}

static CUresult replace(CUresult result, void **function) {
    if (result == CUDA_SUCCESS && function != NULL && *function != NULL) {
        void *ours = interpose_replacement(*function);
        if (ours != NULL) {
            log_count(COUNT_LOOK_UPS);
            *function = ours;
        }
    }
    return result;
}

GPUIPC_EXPORTED CUresult cuGetProcAddress(const char *symbol, void **function, int version,
                                          cuuint64_t flags) {
    return replace(REAL_CALL(cuGetProcAddress, (symbol, function, version, flags)), function);
}

GPUIPC_EXPORTED CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version,
                                             cuuint64_t flags,
                                             CUdriverProcAddressQueryResult *status) {
    return replace(REAL_CALL(cuGetProcAddress_v2, (symbol, function, version, flags, status)),
                   function);
}
