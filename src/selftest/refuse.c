/* SPDX-License-Identifier: MIT */
/** @file See refuse.h. */
#include "refuse.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* So long somebody may take that name after all. */
#define PATIENCE_MS 50

typedef struct refusal {
    gpuipc_context *context;
    gpuipc_buffer *buffer;
    gpuipc_server *server;
    gpuipc_ticket ticket;
    const char
        *why; /* what was not refused, or refused though it is right; NULL: all is as it must be */
} refusal;

static bool opens(const refusal *self, const gpuipc_ticket *ticket) {
    gpuipc_buffer *opened = NULL;
    if (gpuipc_buffer_open(self->context, ticket, NULL, &opened) != GPUIPC_OK) {
        return false;
    }
    (void)gpuipc_buffer_release(opened);
    return true;
}

static bool make(refusal *self, uint32_t device) {
    const gpuipc_buffer_config config = {
        .struct_size = sizeof(config), .device = GPUIPC_DEVICE(device), .bytes = 4096};
    return gpuipc_buffer_create(self->context, &config, &self->buffer) == GPUIPC_OK &&
           gpuipc_server_create(self->context, NULL, &self->server) == GPUIPC_OK &&
           gpuipc_buffer_share(self->server, self->buffer, NULL, &self->ticket) == GPUIPC_OK;
}

/* Every byte of a ticket counts: it is a secret, an address, or says which memory. */
static bool refuses_damaged(const refusal *self) {
    for (size_t i = 0; i < sizeof(self->ticket.bytes); i++) {
        gpuipc_ticket damaged = self->ticket;
        damaged.bytes[i] ^= 1;
        if (opens(self, &damaged)) {
            return false;
        }
    }
    return true;
}

static bool refuses_damaged_text(const refusal *self) {
    char text[GPUIPC_TICKET_TEXT_SIZE];
    gpuipc_ticket read;
    if (gpuipc_ticket_to_text(&self->ticket, text) != GPUIPC_OK) {
        return false;
    }
    text[strlen(text) - 1] = '!';
    return gpuipc_ticket_from_text(text, &read) != GPUIPC_OK;
}

static bool refuses_unknown_name(const refusal *self) {
    gpuipc_connection *connection;
    const bool refused = gpuipc_connection_open(self->context, "selftest-nobody-has-this", NULL,
                                                PATIENCE_MS, &connection) != GPUIPC_OK;
    if (!refused) {
        (void)gpuipc_connection_close(connection);
    }
    return refused;
}

static void judge(refusal *self) {
    self->why = !opens(self, &self->ticket)   ? "a ticket that is right was refused"
                : !refuses_damaged(self)      ? "a damaged ticket was taken"
                : !refuses_damaged_text(self) ? "a damaged text of a ticket was taken"
                : !refuses_unknown_name(self) ? "a name that nobody has was found"
                : !opens(self, &self->ticket) ? "after wrong input a right ticket was refused"
                : gpuipc_server_revoke(self->server, &self->ticket) != GPUIPC_OK
                    ? "a ticket could not be revoked"
                : opens(self, &self->ticket) ? "a revoked ticket was taken"
                                             : NULL;
}

const char *refuse_check(gpuipc_context *context, uint32_t device) {
    refusal self = {.context = context, .why = "no memory could be shared"};
    if (make(&self, device)) {
        judge(&self);
    }
    (void)gpuipc_server_destroy(self.server);
    (void)gpuipc_buffer_release(self.buffer);
    return self.why;
}
