/* SPDX-License-Identifier: MIT */
/** @file See libcuda.h. */
#include "libcuda.h"

#include <stdatomic.h>
#include <string.h>

#include "os.h"

libcuda_entry_points libcuda;

static os_static_mutex mutex;
static atomic_bool is_loaded;

typedef CUresult (*get_proc_address)(const char *symbol, void **function, int version,
                                     cuuint64_t flags, CUdriverProcAddressQueryResult *status);
typedef CUresult (*get_proc_address_first)(const char *symbol, void **function, int version,
                                           cuuint64_t flags);

/** How entry points are asked for: CUDA 12 has the second way, 11.3 the first. */
typedef struct source {
    get_proc_address get;
    get_proc_address_first get_first;
} source;

static bool source_find(void *library, source *out) {
    void *found = libcuda_symbol(library, "cuGetProcAddress_v2");
    memset(out, 0, sizeof(*out));
    if (found != NULL) {
        memcpy(&out->get, &found, sizeof(found));
        return true;
    }
    found = libcuda_symbol(library, "cuGetProcAddress");
    memcpy(&out->get_first, &found, sizeof(found));
    return found != NULL;
}

static void find(const source *from, const char *name, int version, void *out) {
    void *function = NULL;
    CUdriverProcAddressQueryResult status;
    const CUresult result =
        from->get != NULL
            ? from->get(name, &function, version, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &status)
            : from->get_first(name, &function, version, CU_GET_PROC_ADDRESS_LEGACY_STREAM);
    if (result == CUDA_SUCCESS) {
        memcpy(out, &function, sizeof(function));
    }
}

/* The mutex is held. */
static bool load(void) {
    void *const library = libcuda_open();
    source from;
    if (library == NULL || !source_find(library, &from)) {
        return false;
    }
#define LIBCUDA_FIND(group, name, suffix, version, parameters)                                     \
    EMULATED_HAS_##group(find(&from, #name, version, &libcuda.name##suffix);)
    CUDA_API_LIST(LIBCUDA_FIND)
    EMULATED_API_LIST(LIBCUDA_FIND)
#undef LIBCUDA_FIND
    return libcuda.cuInit != NULL && libcuda.cuDriverGetVersion != NULL &&
           libcuda.cuCtxGetCurrent != NULL && libcuda.cuCtxSetCurrent != NULL &&
           libcuda.cuCtxSynchronize != NULL && libcuda.cuDeviceGetCount != NULL &&
           libcuda.cuDevicePrimaryCtxRetain != NULL;
}

bool libcuda_load(void) {
    if (!atomic_load_explicit(&is_loaded, memory_order_acquire)) {
        os_static_mutex_lock(&mutex);
        if (!atomic_load_explicit(&is_loaded, memory_order_relaxed)) {
            atomic_store_explicit(&is_loaded, load(), memory_order_release);
        }
        os_static_mutex_unlock(&mutex);
    }
    return atomic_load_explicit(&is_loaded, memory_order_acquire);
}
