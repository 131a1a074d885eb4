/* SPDX-License-Identifier: MIT */
/** @file See driver.h. */
#include "driver.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"

/* The oldest driver with every signature in group core: cuDeviceGetUuid_v2, CUDA 11.4. */
#define DRIVER_VERSION_MIN 11040

/* cuGetProcAddress in the form that this driver has: the second one is of CUDA 12.0. */
typedef struct finder {
    cuda_get_proc_address_v1 v1;
    cuda_get_proc_address_v2 v2;
} finder;

/* ISO C has no cast from an object pointer to a function pointer; POSIX and Windows have the same
 * representation for both. */
static void copy_function(void *into, void *symbol) {
    memcpy(into, &symbol, sizeof(symbol));
}

static bool find(const finder *by, const char *name, int version, void *into) {
    void *symbol = NULL;
    const cuuint64_t flags = CU_GET_PROC_ADDRESS_LEGACY_STREAM;
    CUresult result;
    if (by->v2 != NULL) {
        CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
        result = by->v2(name, &symbol, version, flags, &found);
    } else {
        result = by->v1(name, &symbol, version, flags);
    }
    if (result != CUDA_SUCCESS || symbol == NULL) {
        return false;
    }
    copy_function(into, symbol);
    return true;
}

/* What is looked for, in the order of the list. */
static const struct {
    const char *name;
    int version;
    size_t group; /* where in the table the flag of its group is */
    size_t at;    /* and its address */
} entry_points[] = {
#define ENTRY_POINT(group, name, suffix, version, parameters)                                      \
    {#name, version, offsetof(driver, has_##group), offsetof(driver, name)},
    CUDA_API_LIST(ENTRY_POINT)
#undef ENTRY_POINT
};
#define ENTRY_POINTS (sizeof(entry_points) / sizeof(entry_points[0]))

/* Fills the table. The name of a missing core entry point, or NULL. */
static const char *find_all(const finder *by, driver *drv) {
    const char *missing = NULL;
    char *table = (char *)drv;
    for (size_t i = 0; i < ENTRY_POINTS; i++) {
        *(bool *)(table + entry_points[i].group) = true;
    }
    for (size_t i = 0; i < ENTRY_POINTS; i++) {
        if (!find(by, entry_points[i].name, entry_points[i].version, table + entry_points[i].at)) {
            *(bool *)(table + entry_points[i].group) = false;
        }
        if (!drv->has_core && missing == NULL) {
            missing = entry_points[i].name;
        }
    }
    return missing;
}

static gpuipc_status load(const char *choice, os_library **out_library) {
    if (strcmp(choice, "auto") == 0) {
        gpuipc_status status = os_library_open_system(os_cuda_driver_name, out_library);
        if (status == GPUIPC_ERR_NOT_FOUND) {
            return status_fail(GPUIPC_ERR_NO_DRIVER,
                               "%s is not on this machine: install NVIDIA's driver, give the "
                               "container its GPU, or try without one: GPUIPC_CUDA_DRIVER=emulated",
                               os_cuda_driver_name);
        }
        return status;
    }
    if (strcmp(choice, "emulated") == 0) {
        return os_library_open_own(os_emulated_driver_name, out_library);
    }
    gpuipc_status status = os_library_open_path(choice, out_library);
    if (status == GPUIPC_ERR_INVALID_ARGUMENT) {
        char room[STATUS_PATH_MAX];
        return status_fail(status,
                           "\"%s\" is no driver: it is auto, emulated or an absolute path "
                           "(gpuipc_context_config::driver, GPUIPC_CUDA_DRIVER)",
                           status_path(choice, room));
    }
    return status;
}

/* Drivers already loaded, for the life of the process: a CUDA driver has threads and exit handlers
 * of its own and cannot be unloaded safely. */
typedef struct loaded {
    list_link link;
    os_library *library;
    char choice[];
} loaded;

static struct {
    os_static_mutex mutex;
    linked_list loaded;
} all;

static os_library *find_loaded(const char *choice) {
    for (const list_link *at = all.loaded.first; at != NULL; at = at->next) {
        const loaded *item = LIST_ITEM(at, loaded, link);
        if (strcmp(item->choice, choice) == 0) {
            return item->library;
        }
    }
    return NULL;
}

/* Puts a library on the list, unless another thread was faster; then that one's serves. */
static os_library *keep(loaded *item) {
    os_static_mutex_lock(&all.mutex);
    os_library *kept = find_loaded(item->choice);
    if (kept == NULL) {
        kept = item->library;
        list_append(&all.loaded, &item->link);
        item = NULL;
    }
    os_static_mutex_unlock(&all.mutex);
    if (item != NULL) {
        os_library_close(item->library);
        free(item);
    }
    return kept;
}

/* Loads without the lock: a library's constructors may fork, and fork waits for the lock. */
static gpuipc_status load_once(const char *choice, os_library **out_library) {
    os_static_mutex_lock(&all.mutex);
    os_library *library = find_loaded(choice);
    os_static_mutex_unlock(&all.mutex);
    if (library != NULL) {
        *out_library = library;
        return GPUIPC_OK;
    }
    size_t length = strlen(choice) + 1;
    loaded *item = malloc(sizeof(*item) + length);
    if (item == NULL) {
        return status_out_of_memory(sizeof(*item) + length);
    }
    memcpy(item->choice, choice, length);
    gpuipc_status status = load(choice, &item->library);
    if (status != GPUIPC_OK) {
        free(item);
        return status;
    }
    *out_library = keep(item);
    return GPUIPC_OK;
}

static gpuipc_status start(driver *drv) {
    CUresult result = drv->cuInit(0);
    const char *text = NULL;
    if (result == CUDA_SUCCESS) {
        result = drv->cuDriverGetVersion(&drv->version);
    }
    if (result == CUDA_SUCCESS) {
        return GPUIPC_OK;
    }
    if (drv->cuGetErrorString(result, &text) != CUDA_SUCCESS || text == NULL) {
        text = "the driver has no words for it";
    }
    /* A started driver's answer in a forked child; os_fork_watch() came before (context_create). */
    if (result == CUDA_ERROR_NOT_INITIALIZED && os_fork_generation() > 0) {
        return status_fail_cuda(
            GPUIPC_ERR_FORKED, result, "cuInit",
            "this process was forked from one in which CUDA was started, and CUDA does "
            "not survive fork(): %s",
            text);
    }
    /* Who has not used gpuipc before has no other sign of a fork; and machines that are not set up answer it, too. */
    if (result == CUDA_ERROR_NOT_INITIALIZED) {
        return status_fail_cuda(
            GPUIPC_ERR_DRIVER_FAILED, result, "cuInit",
            "%s (%s); it is also what a child is told that was forked after CUDA was started, "
            "which does not survive fork()",
            text, os_library_path(drv->library));
    }
    return status_fail_cuda(result == CUDA_ERROR_NO_DEVICE ? GPUIPC_ERR_NO_DEVICE
                                                           : GPUIPC_ERR_DRIVER_FAILED,
                            result, "cuInit", "%s (%s)", text, os_library_path(drv->library));
}

gpuipc_status driver_open(const char *choice, driver *out_driver) {
    driver drv = {0};
    finder by = {0};
    char room[STATUS_PATH_MAX];
    gpuipc_status status = load_once(choice, &drv.library);
    if (status != GPUIPC_OK) {
        /* Anything but "there is none" is a driver that is there and does not load. */
        return status == GPUIPC_ERR_OS || status == GPUIPC_ERR_NOT_FOUND
                   ? status_change(GPUIPC_ERR_DRIVER_FAILED)
                   : status;
    }
    copy_function(&by.v2, os_library_symbol(drv.library, "cuGetProcAddress_v2"));
    copy_function(&by.v1, os_library_symbol(drv.library, "cuGetProcAddress"));
    if (by.v1 == NULL && by.v2 == NULL) {
        return status_fail(GPUIPC_ERR_DRIVER_TOO_OLD,
                           "%s has no cuGetProcAddress, so it is older than CUDA 11.3, or no CUDA "
                           "driver at all",
                           status_path(os_library_path(drv.library), room));
    }
    const char *missing = find_all(&by, &drv);
    if (missing != NULL) {
        return status_fail(GPUIPC_ERR_DRIVER_TOO_OLD,
                           "%s has no %s; gpuipc needs the driver of CUDA %d.%d or newer",
                           status_path(os_library_path(drv.library), room), missing,
                           DRIVER_VERSION_MIN / 1000, DRIVER_VERSION_MIN % 1000 / 10);
    }
    drv.is_emulated = os_library_symbol(drv.library, "gpuipc_emulated_mark") != NULL;
    status = start(&drv);
    if (status != GPUIPC_OK) {
        return status;
    }
    *out_driver = drv;
    return GPUIPC_OK;
}

/* Found out by wanting a handle (measured on 580: no other code, and no other text). */
bool driver_lacks_handles(CUresult result) {
    os_handle wanted = OS_HANDLE_NONE;
    if (result != CUDA_ERROR_OPERATING_SYSTEM) {
        return false;
    }
    const gpuipc_status status = os_memory_create("gpuipc-probe", 4096, &wanted);
    os_handle_close(&wanted);
    return status == GPUIPC_ERR_TOO_MANY_HANDLES;
}

/* Whether there are devices, and that one of a number is there, is known before a call is made (device.c): what a call
 * says of it afterwards is a failure of that call. */
static gpuipc_status status_of(CUresult result) {
    switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY:
        return GPUIPC_ERR_OUT_OF_DEVICE_MEMORY;
    case CUDA_ERROR_PEER_ACCESS_UNSUPPORTED:
        return GPUIPC_ERR_PEER_ACCESS_UNSUPPORTED;
    default:
        return GPUIPC_ERR_CUDA;
    }
}

gpuipc_status driver_failed(const driver *drv, CUresult result, const char *call,
                            const char *what) {
    const char *name = NULL;
    const char *text = NULL;
    if (drv->cuGetErrorName(result, &name) != CUDA_SUCCESS || name == NULL) {
        name = "a code that the driver does not name";
    }
    if (drv->cuGetErrorString(result, &text) != CUDA_SUCCESS || text == NULL) {
        text = "no description";
    }
    if (driver_lacks_handles(result)) {
        return status_fail_cuda(GPUIPC_ERR_TOO_MANY_HANDLES, result, call,
                                "%s: %s (%s); this process has no handle left", what, name, text);
    }
    return status_fail_cuda(status_of(result), result, call, "%s: %s (%s)", what, name, text);
}
