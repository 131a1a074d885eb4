/* SPDX-License-Identifier: MIT */
/** @file See sharing.h. */
#include "sharing.h"

#include <stdlib.h>

#include "ipc.h"
#include "log.h"
#include "state.h"

/* One process for each GPU of a large node, and more. */
#define MAX_CLIENTS 4096

typedef struct part {
    gpuipc_context *context;
    gpuipc_server *server;
} part;

static struct {
    part parts[OWNER_DEVICES];
    bool ends_at_exit;
} sharing;

static void say(void *user_data, gpuipc_log_level level, const char *sentence) {
    (void)user_data;
    (void)level;
    log_line("%s", sentence);
}

/* The servers' names in the runtime directory go with them. (What a killed process leaves there, the next removes.)
 * The rest is left: the driver may be gone before memory is. */
static void end_servers(void) {
    if (!state_is_on() || !ipc_try_lock()) {
        return; /* a forked child, or another thread is at it while the program ends */
    }
    for (size_t i = 0; i < OWNER_DEVICES; i++) {
        gpuipc_server *server = sharing.parts[i].server;
        sharing.parts[i].server = NULL;
        (void)gpuipc_server_destroy(server);
    }
    ipc_unlock();
}

static gpuipc_status find_context(int device, part **out_part) {
    part *self = &sharing.parts[device];
    if (self->context == NULL) {
        gpuipc_context_config config = GPUIPC_CONTEXT_CONFIG_INIT;
        config.driver = real_get()->path; /* the very one that the program uses */
        config.log = say;
        const gpuipc_status status = gpuipc_context_create(&config, &self->context);
        if (status != GPUIPC_OK) {
            return status;
        }
    }
    *out_part = self;
    return GPUIPC_OK;
}

static gpuipc_status find_server(int device, part **out_part) {
    part *self;
    gpuipc_status status = find_context(device, &self);
    if (status != GPUIPC_OK) {
        return status;
    }
    if (self->server == NULL) {
        gpuipc_server_config config = GPUIPC_SERVER_CONFIG_INIT;
        config.flags = GPUIPC_SERVER_THREAD;
        config.max_connections_per_user = MAX_CLIENTS;
        status = gpuipc_server_create(self->context, &config, &self->server);
        if (status != GPUIPC_OK) {
            return status;
        }
        if (!sharing.ends_at_exit) {
            sharing.ends_at_exit = atexit(end_servers) == 0;
        }
    }
    *out_part = self;
    return GPUIPC_OK;
}

/* Legacy IPC orders no work either: a handle may be made and opened while the memory is being written. */
static gpuipc_status share(memory *self, const part *by) {
    gpuipc_share_config config = GPUIPC_SHARE_CONFIG_INIT;
    gpuipc_buffer *buffer;
    gpuipc_status status =
        gpuipc_buffer_wrap(by->context, self->at.begin, self->at.end - self->at.begin, &buffer);
    if (status != GPUIPC_OK) {
        return status;
    }
    config.flags = GPUIPC_SEND_READY;
    status = gpuipc_buffer_share(by->server, buffer, &config, &self->ticket);
    if (status != GPUIPC_OK) {
        (void)gpuipc_buffer_release(buffer);
        return status;
    }
    self->buffer = buffer;
    return GPUIPC_OK;
}

gpuipc_status sharing_share(memory *self) {
    part *by = NULL;
    gpuipc_status status = GPUIPC_OK;
    if (self->buffer == NULL) {
        status = find_server(self->owner->device, &by);
        if (status == GPUIPC_OK) {
            status = share(self, by);
        }
    }
    return status;
}

gpuipc_status sharing_find(int device, gpuipc_context **out_context) {
    part *self;
    const gpuipc_status status = find_context(device, &self);
    if (status == GPUIPC_OK) {
        *out_context = self->context;
    }
    return status;
}

gpuipc_status sharing_open(gpuipc_context *context, const gpuipc_ticket *ticket, int device,
                           memory *self) {
    gpuipc_open_config config = GPUIPC_OPEN_CONFIG_INIT;
    gpuipc_buffer_info info = GPUIPC_BUFFER_INFO_INIT;
    config.device = GPUIPC_DEVICE(device);
    config.info = &info;
    const gpuipc_status status = gpuipc_buffer_open(context, ticket, &config, &self->buffer);
    if (status == GPUIPC_OK) {
        self->ticket = *ticket;
        self->at.begin = info.address;
        self->at.end = info.address + info.bytes;
    }
    return status;
}

void sharing_end(memory *self) {
    if (self->buffer == NULL) {
        return;
    }
    gpuipc_server *server = sharing.parts[self->owner->device].server;
    if (self->chunk != NULL && server != NULL &&
        gpuipc_server_revoke(server, &self->ticket) != GPUIPC_OK) {
        log_line("a handle of freed memory: %s", gpuipc_error_text());
    }
    (void)gpuipc_buffer_release(self->buffer);
    self->buffer = NULL;
}

void sharing_end_device(int device) {
    if (device < 0 || device >= OWNER_DEVICES) {
        return;
    }
    const part ended = sharing.parts[device];
    sharing.parts[device] = (part){0};
    (void)gpuipc_server_destroy(ended.server);
    (void)gpuipc_context_destroy(ended.context);
}
