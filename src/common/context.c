/* SPDX-License-Identifier: MIT */
/** @file See context.h; the public functions of contexts and devices. */
#include "context.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "registry.h"
#include "struct_size.h"
#include "transport_plain.h"
#include "transport_pool.h"

#define DEFAULT_MAX_BUFFERS      4096u
#define DEFAULT_MAX_HANDLES      8192u
#define DEFAULT_MAX_KEPT_HANDLES 128u
/* How long the end waits for streams that are just passing what it let go. */
#define ENDING_MS 1000

static void destroy(object *base) {
    context *self = (context *)base;
    const os_deadline deadline = os_deadline_after(ENDING_MS);
    lease_table_end(self, object_is_forked(base));
    opening_table_end(&self->openings);
    watch_end(&self->watch, deadline, object_is_forked(base));
    if (!point_context_end(self, deadline, object_is_forked(base))) {
        context_log(
            self, GPUIPC_LOG_WARNING,
            "a stream still uses memory that was released, or waits for another process; the "
            "memory is left to the end of the process");
    }
    staging_list_end(self, object_is_forked(base));
    import_table_end(self, object_is_forked(base));
    keep_alive_end(self, object_is_forked(base));
    kept_handles_end(&self->kept_handles);
    for (uint32_t i = 0; i < self->device_count; i++) {
        transport_plain_end(self, &self->devices[i], object_is_forked(base));
    }
    if (!object_is_forked(base)) {
        for (uint32_t i = 0; i < self->device_count; i++) {
            transport_pool_end(self, &self->devices[i], false);
            if (self->devices[i].primary != NULL) {
                /* Fails only when the driver is shutting down, which releases it as well. */
                (void)self->driver.cuDevicePrimaryCtxRelease(self->devices[i].ordinal);
            }
        }
    }
    answers_destroy(&self->answers);
    os_mutex_destroy(&self->device_mutex);
    free(self->devices);
    free(self->cache_directory);
    free(self->runtime_directory);
    free(self);
}

/* Settled once, here: later calls read no environment. */
static gpuipc_status settle_directory(context *self, const char *given) {
    const os_directory directory = {.path = given, .shared = self->shared_directory};
    char path[OS_PATH_MAX];
    gpuipc_status status = os_directory_resolve(&directory, path, sizeof(path));
    if (status != GPUIPC_OK) {
        return status;
    }
    size_t size = strlen(path) + 1;
    char *copy = malloc(size);
    if (copy == NULL) {
        return status_out_of_memory("gpuipc_context_create", size);
    }
    memcpy(copy, path, size);
    self->runtime_directory = copy;
    return GPUIPC_OK;
}

/* A user without a home has no cache, and what the emulated driver measures is nobody's. */
static gpuipc_status settle_cache(context *self) {
    char path[OS_PATH_MAX];
    self->is_wsl = os_is_wsl();
    if (self->driver.is_emulated || !os_cache_directory(path, sizeof(path))) {
        return GPUIPC_OK;
    }
    size_t size = strlen(path) + 1;
    self->cache_directory = malloc(size);
    if (self->cache_directory == NULL) {
        return status_out_of_memory("gpuipc_context_create", size);
    }
    memcpy(self->cache_directory, path, size);
    return GPUIPC_OK;
}

/* The config's driver, else the environment's (empty counts as unset), else the installed one. */
static const char *choose_driver(const gpuipc_context_config *config) {
    const char *choice = config->driver;
    if (choice == NULL) {
        choice = os_environment("GPUIPC_CUDA_DRIVER");
    }
    return choice == NULL || choice[0] == '\0' ? "auto" : choice;
}

/* What a context keeps of buffers that come and go; all of it empty. */
static gpuipc_status init_tables(context *self, const gpuipc_context_config *config) {
    const bool keeps_alive = (config->flags & GPUIPC_CONTEXT_NO_KEEP_ALIVE) == 0;
    gpuipc_status status = keep_alive_init(&self->keep_alive, keeps_alive);
    if (status != GPUIPC_OK) {
        return status;
    }
    if ((status = kept_handles_init(&self->kept_handles, config->max_kept_handles)) != GPUIPC_OK) {
        goto end_keep_alive;
    }
    if ((status = import_table_init(&self->imports, config->max_cached_imports)) != GPUIPC_OK) {
        goto end_kept_handles;
    }
    if ((status = lease_table_init(&self->leases)) != GPUIPC_OK) {
        goto end_imports;
    }
    if ((status = opening_table_init(&self->openings)) != GPUIPC_OK) {
        goto end_leases;
    }
    return GPUIPC_OK;

end_leases:
    lease_table_end(self, false);
end_imports:
    import_table_end(self, false);
end_kept_handles:
    kept_handles_end(&self->kept_handles);
end_keep_alive:
    keep_alive_end(self, false);
    return status;
}

static void end_tables(context *self) {
    opening_table_end(&self->openings);
    lease_table_end(self, false);
    import_table_end(self, false);
    kept_handles_end(&self->kept_handles);
    keep_alive_end(self, false);
}

static gpuipc_status make(const gpuipc_context_config *config, context **out_context) {
    context *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return status_out_of_memory("gpuipc_context_create", sizeof(*self));
    }
    self->max_buffers = config->max_buffers_per_message;
    self->max_handles = config->max_handles_per_message;
    self->shared_directory = (config->flags & GPUIPC_CONTEXT_SHARED_DIRECTORY) != 0;
    self->log = config->log;
    self->log_user_data = config->log_user_data;
    atomic_init(&self->next_buffer_id, 1u);
    atomic_init(&self->next_connection, 1u);
    atomic_init(&self->is_over, false);
    gpuipc_status status = os_mutex_init(&self->device_mutex);
    if (status != GPUIPC_OK) {
        goto free_self;
    }
    if ((status = point_context_init(&self->points)) != GPUIPC_OK) {
        goto destroy_device_mutex;
    }
    if ((status = watch_init(&self->watch, self)) != GPUIPC_OK) {
        goto destroy_point_mutex;
    }
    if ((status = staging_list_init(&self->staging)) != GPUIPC_OK) {
        goto end_watch;
    }
    if ((status = init_tables(self, config)) != GPUIPC_OK) {
        goto end_staging;
    }
    if ((status = settle_directory(self, config->runtime_directory)) != GPUIPC_OK ||
        (status = os_random(self->instance_id, sizeof(self->instance_id))) != GPUIPC_OK ||
        (status = driver_open(choose_driver(config), &self->driver)) != GPUIPC_OK ||
        (status = device_list(&self->driver, &self->devices, &self->device_count)) != GPUIPC_OK ||
        (status = settle_cache(self)) != GPUIPC_OK ||
        (status = answers_init(&self->answers, self->device_count)) != GPUIPC_OK) {
        goto free_members;
    }
    object_init(&self->object, OBJECT_CONTEXT, destroy);
    *out_context = self;
    return GPUIPC_OK;

free_members:
    free(self->devices);
    free(self->cache_directory);
    free(self->runtime_directory);
    end_tables(self);
end_staging:
    os_mutex_destroy(&self->staging.mutex);
end_watch:
    watch_end(&self->watch, os_deadline_after(0), false);
destroy_point_mutex:
    os_mutex_destroy(&self->points.mutex);
destroy_device_mutex:
    os_mutex_destroy(&self->device_mutex);
free_self:
    free(self);
    return status;
}

gpuipc_status gpuipc_context_create(const gpuipc_context_config *config,
                                    gpuipc_context **out_context) {
    gpuipc_context_config known = {0};
    gpuipc_status status;
    if (out_context == NULL) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "gpuipc_context_create",
                           "out_context is NULL");
    }
    if (config != NULL) {
        status = struct_size_read(config, STRUCT_SIZE_UP_TO(gpuipc_context_config, log_user_data),
                                  &known, sizeof(known), "gpuipc_context_create");
        if (status != GPUIPC_OK) {
            return status;
        }
    }
    if ((known.flags & ~(GPUIPC_CONTEXT_SHARED_DIRECTORY | GPUIPC_CONTEXT_NO_KEEP_ALIVE)) != 0) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "gpuipc_context_create",
                           "flags has bits that this library does not know: 0x%x", known.flags);
    }
    if (known.max_buffers_per_message == 0) {
        known.max_buffers_per_message = DEFAULT_MAX_BUFFERS;
    }
    if (known.max_handles_per_message == 0) {
        known.max_handles_per_message = DEFAULT_MAX_HANDLES;
    }
    if (known.max_kept_handles == 0) {
        known.max_kept_handles = DEFAULT_MAX_KEPT_HANDLES;
    } else if (known.max_kept_handles == GPUIPC_KEEP_NONE) {
        known.max_kept_handles = 0;
    }
    status = os_fork_watch();
    if (status != GPUIPC_OK) {
        return status;
    }
    context *self = NULL;
    status = make(&known, &self);
    if (status != GPUIPC_OK) {
        return status;
    }
    void *handle;
    status = object_publish(&self->object, &handle);
    if (status != GPUIPC_OK) {
        context_unreference(self);
        return status;
    }
    *out_context = handle;
    return GPUIPC_OK;
}

gpuipc_status gpuipc_context_destroy(gpuipc_context *handle) {
    object *last = NULL;
    if (handle == NULL) {
        return GPUIPC_OK;
    }
    gpuipc_status status =
        object_drop_hold(OBJECT_CONTEXT, handle, "gpuipc_context_destroy", &last);
    if (last == NULL) {
        return status;
    }
    context *self = (context *)last;
    const bool is_forked = object_is_forked(last);
    if (!is_forked) {
        atomic_store(&self->is_over, true); /* which wakes who waits for contents */
    }
    lease_close_all(self, is_forked); /* which hold the context */
    if (is_forked) {
        object_unreference(last);
        return status;
    }
    (void)registry_sweep(true); /* buffers that linger keep their context */
    (void)context_run_deferred(self);
    context_unreference(self);
    (void)registry_sweep(
        true); /* and now nobody may have open what another context lent to this one */
    return status;
}

gpuipc_status context_acquire(gpuipc_context *handle, const char *operation,
                              context **out_context) {
    object *base;
    gpuipc_status status = object_acquire(OBJECT_CONTEXT, handle, operation, &base);
    if (status == GPUIPC_OK) {
        *out_context = (context *)base;
    }
    return status;
}

void context_unreference(context *self) {
    if (self != NULL) {
        object_unreference(&self->object);
    }
}

bool context_run_deferred(context *self) {
    watch_collect(&self->watch); /* its thread may not have seen yet that a stream has passed */
    return deferred_run(&self->deferred);
}

os_directory context_directory(const context *self) {
    return (os_directory){.path = self->runtime_directory, .shared = self->shared_directory};
}

void context_log(const context *self, gpuipc_log_level level, const char *format, ...) {
    char sentence[512];
    va_list arguments;
    if (self->log == NULL) {
        return;
    }
    va_start(arguments, format);
    (void)vsnprintf(sentence, sizeof(sentence), format, arguments);
    va_end(arguments);
    self->log(self->log_user_data, level, sentence);
}

gpuipc_status gpuipc_context_get_info(gpuipc_context *handle, gpuipc_context_info *out_info) {
    context *self;
    gpuipc_status status = struct_size_check(
        out_info, STRUCT_SIZE_UP_TO(gpuipc_context_info, instance_id), "gpuipc_context_get_info");
    if (status != GPUIPC_OK ||
        (status = context_acquire(handle, "gpuipc_context_get_info", &self)) != GPUIPC_OK) {
        return status;
    }
    gpuipc_context_info info = {.device_count = self->device_count,
                                .driver_version = self->driver.version,
                                .is_emulated = self->driver.is_emulated ? 1 : 0};
    (void)snprintf(info.driver_path, sizeof(info.driver_path), "%s",
                   os_library_path(self->driver.library));
    memcpy(info.instance_id, self->instance_id, sizeof(info.instance_id));
    struct_size_write(out_info, &info, sizeof(info));
    context_unreference(self);
    return GPUIPC_OK;
}

gpuipc_status gpuipc_device_count(gpuipc_context *handle, uint32_t *out_count) {
    context *self;
    gpuipc_status status;
    if (out_count == NULL) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "gpuipc_device_count", "out_count is NULL");
    }
    status = context_acquire(handle, "gpuipc_device_count", &self);
    if (status == GPUIPC_OK) {
        *out_count = self->device_count;
        context_unreference(self);
    }
    return status;
}

gpuipc_status gpuipc_device_get_info(gpuipc_context *handle, uint32_t index,
                                     gpuipc_device_info *out_info) {
    context *self;
    gpuipc_status status = struct_size_check(
        out_info, STRUCT_SIZE_UP_TO(gpuipc_device_info, why_not), "gpuipc_device_get_info");
    if (status != GPUIPC_OK ||
        (status = context_acquire(handle, "gpuipc_device_get_info", &self)) != GPUIPC_OK) {
        return status;
    }
    status = device_check(self, index, "gpuipc_device_get_info");
    if (status == GPUIPC_OK) {
        struct_size_write(out_info, &self->devices[index].info, sizeof(gpuipc_device_info));
    }
    context_unreference(self);
    return status;
}

gpuipc_status gpuipc_device_find(gpuipc_context *handle, const gpuipc_uuid *uuid,
                                 uint32_t *out_device) {
    context *self;
    if (uuid == NULL || out_device == NULL) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "gpuipc_device_find",
                           "uuid or out_device is NULL");
    }
    gpuipc_status status = context_acquire(handle, "gpuipc_device_find", &self);
    if (status != GPUIPC_OK) {
        return status;
    }
    uint32_t index = device_find(self, uuid);
    if (index == GPUIPC_DEVICE_NONE) {
        status = status_fail(GPUIPC_ERR_DEVICE_NOT_FOUND, "gpuipc_device_find",
                             "no device that this process sees has this UUID");
    } else {
        *out_device = index;
    }
    context_unreference(self);
    return status;
}
