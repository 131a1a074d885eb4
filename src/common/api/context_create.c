/* SPDX-License-Identifier: MIT */
/** @file Contexts, made of what each area keeps in them, and their public functions. */
#include "api/context_create.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/struct_size.h"
#include "contents/contents.h"
#include "contents/contents_pace.h"
#include "copy/staging.h"
#include "memory/buffer_table.h"
#include "memory/import.h"
#include "memory/keep_alive.h"
#include "memory/kept_handles.h"
#include "memory/registry.h"
#include "query/answers.h"
#include "sync/deferred.h"
#include "sync/drop.h"
#include "sync/loan.h"
#include "sync/mark.h"
#include "sync/monitor.h"
#include "sync/point.h"
#include "sync/watch.h"
#include "ticket/server_link.h"
#include "ticket/ticket_cache.h"

#define DEFAULT_MAX_BUFFERS      4096u
#define DEFAULT_MAX_HANDLES      8192u
#define DEFAULT_MAX_KEPT_HANDLES 128u
/* How long the end waits for streams that are just passing what it let go. */
#define ENDING_MS 1000

/* In the order in which they are made; they end in the reverse. Streams that wait are let go before the points that
 * they wait for end, and with these what was deferred, of which some is memory of the parts above. */
static const context_part *const parts[] = {
    &answers_part,    &deferred_part,     &drop_part,         &kept_handles_part,
    &keep_alive_part, &import_part,       &buffer_table_part, &registry_part,
    &staging_part,    &mark_part,         &loan_part,         &point_part,
    &watch_part,      &ticket_cache_part, &server_links_part, &contents_streams_part,
};

#define PART_COUNT (sizeof(parts) / sizeof(parts[0]))

static gpuipc_status begin_part(context *self, const context_part *of) {
    void *memory = calloc(1, of->bytes);
    if (memory == NULL) {
        return status_out_of_memory(of->bytes);
    }
    memcpy((char *)self + of->place, &memory, sizeof(memory));
    gpuipc_status status = of->begin == NULL ? GPUIPC_OK : of->begin(self);
    if (status != GPUIPC_OK) {
        free(memory);
    }
    return status;
}

static void end_part(context *self, const context_part *of, bool is_forked) {
    void *memory;
    if (of->end != NULL) {
        of->end(self, is_forked);
    }
    memcpy(&memory, (char *)self + of->place, sizeof(memory));
    free(memory);
}

/* With the first so many parts. */
static void end(context *self, size_t part_count, bool is_forked) {
    self->ends_by = os_deadline_after(ENDING_MS);
    while (part_count > 0) {
        end_part(self, parts[--part_count], is_forked);
    }
    device_list_destroy(self, is_forked);
    free(self->cache_directory);
    free(self->runtime_directory);
    free(self);
}

static void destroy(object *base) {
    if (!object_is_forked(base)) {
        context_log_settle((context *)base);
    }
    end((context *)base, PART_COUNT, object_is_forked(base));
}

static gpuipc_status copy_text(const char *text, char **out_copy) {
    const size_t size = strlen(text) + 1;
    char *copy = malloc(size);
    if (copy == NULL) {
        return status_out_of_memory(size);
    }
    *out_copy = memcpy(copy, text, size);
    return GPUIPC_OK;
}

/* Settled once, here: later calls read no environment. */
static gpuipc_status settle_directory(context *self, const char *given) {
    const os_directory directory = {.path = given, .shared = self->shared_directory};
    char path[OS_PATH_MAX];
    gpuipc_status status = os_directory_resolve(&directory, path, sizeof(path));
    if (status == GPUIPC_ERR_UNSAFE_DIRECTORY) {
        self->directory_is_refused = true;
        status = GPUIPC_OK;
    }
    return status == GPUIPC_OK ? copy_text(path, &self->runtime_directory) : status;
}

/* A user without a home has no cache, and what the emulated driver measures is nobody's. */
static gpuipc_status settle_cache(context *self) {
    char path[OS_PATH_MAX];
    self->is_wsl = os_is_wsl();
    return self->driver.is_emulated || !os_cache_directory(path, sizeof(path))
               ? GPUIPC_OK
               : copy_text(path, &self->cache_directory);
}

const char *context_driver_choice(const gpuipc_context_config *config) {
    const char *choice = config->driver;
    if (choice == NULL) {
        choice = os_environment("GPUIPC_CUDA_DRIVER");
    }
    return choice == NULL || choice[0] == '\0' ? "auto" : choice;
}

static gpuipc_status make(const gpuipc_context_config *config, context **out_context) {
    context *self = calloc(1, sizeof(*self));
    size_t made = 0;
    if (self == NULL) {
        return status_out_of_memory(sizeof(*self));
    }
    self->config = *config;
    self->config.runtime_directory = self->config.driver = NULL;
    self->shared_directory = (config->flags & GPUIPC_CONTEXT_SHARED_DIRECTORY) != 0;
    self->is_interruptible = (config->flags & GPUIPC_CONTEXT_INTERRUPTIBLE) != 0;
    self->contents = &contents_of_connections;
    atomic_init(&self->next_buffer_id, 1u);
    atomic_init(&self->next_connection, 1u);
    atomic_init(&self->wakes, 0u);
    atomic_init(&self->wakes_answered, 0u);
    atomic_init(&self->is_over, false);
    gpuipc_status status = settle_directory(self, config->runtime_directory);
    if (status == GPUIPC_OK &&
        (status = os_random(self->instance_id, sizeof(self->instance_id))) == GPUIPC_OK &&
        (status = os_random(&self->seed, sizeof(self->seed))) == GPUIPC_OK &&
        (status = driver_open(context_driver_choice(config), &self->driver)) == GPUIPC_OK &&
        (status = device_list_create(self)) == GPUIPC_OK) {
        status = settle_cache(self);
    }
    while (status == GPUIPC_OK && made < PART_COUNT) {
        status = begin_part(self, parts[made]);
        made += status == GPUIPC_OK;
    }
    if (status != GPUIPC_OK) {
        end(self, made, false);
        return status;
    }
    object_init(&self->object, OBJECT_CONTEXT, destroy);
    if (self->config.log != NULL && context_has_one_connection()) {
        context_log(
            self, GPUIPC_LOG_WARNING,
            "CUDA_DEVICE_MAX_CONNECTIONS is 1: while a stream waits for another process, every other "
            "stream of this process stands still; unset the variable, or set it to 8 or more");
    }
    *out_context = self;
    return GPUIPC_OK;
}

gpuipc_status context_create(const gpuipc_context_config *config, context **out_context) {
    gpuipc_context_config known = {0};
    gpuipc_status status;
    if (config != NULL) {
        status = struct_size_read(config, STRUCT_SIZE_UP_TO(gpuipc_context_config, log_user_data),
                                  &known, sizeof(known));
        if (status != GPUIPC_OK) {
            return status;
        }
    }
    if ((known.flags & ~(GPUIPC_CONTEXT_SHARED_DIRECTORY | GPUIPC_CONTEXT_NO_KEEP_ALIVE |
                         GPUIPC_CONTEXT_INTERRUPTIBLE)) != 0) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT,
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
    return status == GPUIPC_OK ? make(&known, out_context) : status;
}

gpuipc_status gpuipc_context_create(const gpuipc_context_config *config,
                                    gpuipc_context **out_context) {
    status_enter(__func__);
    context *self;
    void *handle;
    if (out_context == NULL) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "out_context is NULL");
    }
    gpuipc_status status = context_create(config, &self);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = object_publish(&self->object, &handle);
    if (status != GPUIPC_OK) {
        context_unreference(self);
        return status;
    }
    *out_context = handle;
    return GPUIPC_OK;
}

void context_destroy(context *self) {
    const bool is_forked = object_is_forked(&self->object);
    if (!is_forked) {
        atomic_store(&self->is_over, true); /* wakes who opens, or awaits a mark or a loan */
    }
    server_links_close(self, is_forked); /* which hold the context */
    ticket_cache_close(self, is_forked); /* likewise */
    if (is_forked) {
        context_unreference(self);
        return;
    }
    export_settle_all(self);
    registry_sweep_some(self, true); /* buffers that linger keep their context */
    (void)deferred_work_off(self);
    drop_settle(self, os_deadline_after(ENDING_MS)); /* as does what was dropped */
    registry_attend(self);
    context_unreference(self);
    /* and now nobody may have open what another context exported to this one */
    registry_sweep_some(NULL, true);
    monitor_dismiss(MONITOR_FREES);
}

gpuipc_status gpuipc_context_destroy(gpuipc_context *handle) {
    status_enter(__func__);
    object *last = NULL;
    gpuipc_status status =
        handle == NULL ? GPUIPC_OK : object_remove_hold(OBJECT_CONTEXT, handle, &last);
    if (last != NULL) {
        context_destroy((context *)last);
    }
    return status;
}

gpuipc_status gpuipc_context_get_info(gpuipc_context *handle, gpuipc_context_info *out_info) {
    status_enter(__func__);
    context *self;
    gpuipc_status status =
        struct_size_check(out_info, STRUCT_SIZE_UP_TO(gpuipc_context_info, instance_id));
    if (status != GPUIPC_OK || (status = context_acquire(handle, &self)) != GPUIPC_OK) {
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
