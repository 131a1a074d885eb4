/* SPDX-License-Identifier: MIT */
/** @file See real.h. */
#include "real.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "interpose.h"

#define DRIVER_NAME "libcuda.so.1"

typedef void *(*look_up)(void *handle, const char *name);

/* What dlsym() is where the C library's own is not found: then nothing is. */
static void *find_nothing(void *handle, const char *name) {
    (void)handle;
    (void)name;
    return NULL;
}

static void copy_function(void *into, void *symbol) {
    memcpy(into, &symbol, sizeof(symbol));
}

void *real_look_up_address(void) {
    static _Atomic(void *) known;
    void *address = atomic_load_explicit(&known, memory_order_acquire);
    if (address == NULL) {
        /* glibc 2.34 put it into the C library, under this version; before it is libdl's. */
        address = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
        if (address == NULL) {
            address = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
        }
        if (address == NULL) {
            const look_up nothing = find_nothing;
            memcpy(&address, &nothing, sizeof(address));
        }
        atomic_store_explicit(&known, address, memory_order_release);
    }
    return address;
}

void *real_look_up(void *handle, const char *name) {
    look_up real;
    copy_function(&real, real_look_up_address());
    return real(handle, name);
}

static struct {
    pthread_mutex_t mutex;
    real_driver table;
    _Atomic(const real_driver *) driver; /* NULL, or the table */
} loaded = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void find_all(void *handle, real_driver *out) {
    out->has_vmm = true;
#define FIND_HOOKED(name, suffix, version, flags, parameters)                                      \
    copy_function(&out->name##suffix, real_look_up(handle, #name #suffix));
    HOOK_LIST(FIND_HOOKED)
#undef FIND_HOOKED
#define FIND_NEEDED(symbol, parameters)                                                            \
    copy_function(&out->symbol, real_look_up(handle, #symbol));                                    \
    out->has_vmm = out->has_vmm && out->symbol != NULL;
    NEED_LIST(FIND_NEEDED)
#undef FIND_NEEDED
}

/* The library's file, by which the sharing part loads the same one. */
static void find_path(void *handle, real_driver *out) {
    struct link_map *map = NULL;
    if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || map == NULL ||
        realpath(map->l_name, out->path) == NULL) {
        out->path[0] = '\0';
    }
}

/* Loads without the lock: a driver's constructors may look symbols up. The handle stays: a driver is never unloaded. */
static const real_driver *find(int flags) {
    const real_driver *driver = atomic_load_explicit(&loaded.driver, memory_order_acquire);
    if (driver != NULL) {
        return driver;
    }
    void *handle = dlopen(DRIVER_NAME, RTLD_LAZY | RTLD_LOCAL | flags);
    if (handle == NULL) {
        return NULL;
    }
    pthread_mutex_lock(&loaded.mutex);
    driver = atomic_load_explicit(&loaded.driver, memory_order_acquire);
    if (driver == NULL) {
        find_all(handle, &loaded.table);
        find_path(handle, &loaded.table);
        driver = &loaded.table;
        interpose_learn(driver);
        atomic_store_explicit(&loaded.driver, driver, memory_order_release);
    }
    pthread_mutex_unlock(&loaded.mutex);
    return driver;
}

const real_driver *real_if_loaded(void) {
    return find(RTLD_NOLOAD);
}

const real_driver *real_get(void) {
    return find(0);
}
