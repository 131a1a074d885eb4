/* SPDX-License-Identifier: MIT */
/** @file See calls.h. */
#include "calls.h"

#include <dlfcn.h>
#include <string.h>

calls cuda;

static void copy_function(void *into, void *symbol) {
    memcpy(into, &symbol, sizeof(symbol));
}

static void must_have(const void *found, const char *name) {
    if (found == NULL) {
        fprintf(stderr, "the driver has no %s\n", name);
        exit(1);
    }
}

static void *driver_handle(void) {
    void *handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    return handle;
}

static void find_by_symbol(void) {
    void *handle = driver_handle();
#define FIND(name, suffix, version, parameters)                                                    \
    {                                                                                              \
        void *found = dlsym(handle, #name #suffix);                                                \
        must_have(found, #name);                                                                   \
        copy_function(&cuda.name, found);                                                          \
    }
    CALLS_LIST(FIND)
#undef FIND
}

/* As the CUDA runtime does: cuGetProcAddress by dlsym(), the rest by that, it itself too. */
static void find_by_name(void) {
    cuda_get_proc_address_v2 find;
    CUdriverProcAddressQueryResult status;
    void *found = dlsym(driver_handle(), "cuGetProcAddress_v2");
    must_have(found, "cuGetProcAddress_v2");
    copy_function(&find, found);
    found = NULL;
    MUST(find("cuGetProcAddress", &found, 12000, 0, &status));
    must_have(found, "cuGetProcAddress");
    copy_function(&find, found);
#define FIND(name, suffix, version, parameters)                                                    \
    found = NULL;                                                                                  \
    MUST(find(#name, &found, version, 0, &status));                                                \
    must_have(found, #name);                                                                       \
    copy_function(&cuda.name, found);
    CALLS_LIST(FIND)
#undef FIND
}

#ifdef CALLS_ARE_LINKED
static void find_linked(void) {
#define FIND(name, suffix, version, parameters) cuda.name = name##suffix;
    CALLS_LIST(FIND)
#undef FIND
}
#endif

void calls_find(const char *way) {
    if (strcmp(way, "dlsym") == 0) {
        find_by_symbol();
    } else if (strcmp(way, "proc") == 0) {
        find_by_name();
#ifdef CALLS_ARE_LINKED
    } else if (strcmp(way, "linked") == 0) {
        find_linked();
#endif
    } else {
        fprintf(stderr, "no such way: %s\n", way);
        exit(2);
    }
    MUST(cuda.cuInit(0));
}

void calls_end(void) {
    int count = 0;
    MUST(cuda.cuDeviceGetCount(&count));
    for (int device = 0; device < count; device++) {
        unsigned flags;
        int active = 0;
        MUST(cuda.cuDevicePrimaryCtxGetState(device, &flags, &active));
        while (active) {
            MUST(cuda.cuDevicePrimaryCtxRelease(device));
            MUST(cuda.cuDevicePrimaryCtxGetState(device, &flags, &active));
        }
    }
}
