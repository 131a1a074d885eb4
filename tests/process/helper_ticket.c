/* SPDX-License-Identifier: MIT */
/** @file The helper's commands about tickets: it has one server. */
#include <inttypes.h>
#include <stdio.h>

#include "helper.h"
#include "helper_commands.h"

static gpuipc_server *server;

void helper_ticket_end(void) {
    (void)gpuipc_server_destroy(server);
    server = NULL;
}

gpuipc_status helper_serve(const helper_state *self, gpuipc_server **out_server) {
    const gpuipc_server_config config = {.struct_size = sizeof(config),
                                         .flags = GPUIPC_SERVER_THREAD,
                                         .policy = helper_endpoint(self).policy};
    return gpuipc_server_create(self->context, &config, out_server);
}

/* serve: its server has a thread of its own */
static void serve(helper_state *self, const char *arguments) {
    (void)arguments;
    helper_say_status(helper_serve(self, &server));
}

/* serve-end */
static void serve_end(helper_state *self, const char *arguments) {
    (void)self;
    (void)arguments;
    gpuipc_status status = gpuipc_server_destroy(server);
    server = NULL;
    helper_say_status(status);
}

/* share BUFFER EXPIRES_MS PROCESSES [FLAGS]: says the text */
static void share(helper_state *self, const char *arguments) {
    gpuipc_share_config config = {.struct_size = sizeof(config)};
    size_t index = 0;
    gpuipc_ticket made;
    char text[GPUIPC_TICKET_TEXT_SIZE] = "";
    (void)sscanf(arguments, " %zu %" SCNu64 " %" SCNu32 " %" SCNu32, &index, &config.expires_ms,
                 &config.max_processes, &config.flags);
    gpuipc_status status = gpuipc_buffer_share(server, self->buffers[index], &config, &made);
    if (status == GPUIPC_OK) {
        status = gpuipc_ticket_to_text(&made, text);
    }
    helper_say("%s %s", gpuipc_status_name(status), text);
}

static gpuipc_status ticket_of(const char *arguments, gpuipc_ticket *out_ticket) {
    char text[GPUIPC_TICKET_TEXT_SIZE] = "";
    (void)sscanf(arguments, " %94s", text);
    return gpuipc_ticket_from_text(text, out_ticket);
}

/* revoke TEXT */
static void revoke(helper_state *self, const char *arguments) {
    gpuipc_ticket wanted;
    (void)self;
    gpuipc_status status = ticket_of(arguments, &wanted);
    helper_say_status(status == GPUIPC_OK ? gpuipc_server_revoke(server, &wanted) : status);
}

/* ticket TEXT: opens it; the buffer is one more of the helper's */
static void ticket(helper_state *self, const char *arguments) {
    const gpuipc_open_config config = {.struct_size = sizeof(config),
                                       .policy = helper_endpoint(self).policy};
    gpuipc_ticket wanted;
    gpuipc_status status = ticket_of(arguments, &wanted);
    if (status == GPUIPC_OK) {
        status =
            gpuipc_buffer_open(self->context, &wanted, &config, &self->buffers[self->buffer_count]);
    }
    self->buffer_count += status == GPUIPC_OK;
    helper_say_status(status);
}

/* Opens a ticket for one byte of what another stands for. */
static gpuipc_status open_byte(const helper_state *self, const gpuipc_ticket *whole,
                               uint64_t offset, gpuipc_buffer **out_buffer) {
    gpuipc_ticket part;
    gpuipc_status status = gpuipc_ticket_narrow(whole, offset, 1, &part);
    return status == GPUIPC_OK ? gpuipc_buffer_open(self->context, &part, NULL, out_buffer)
                               : status;
}

/* ticket-parts TEXT HELD RELEASED: opens so many single bytes of it, which are the helper's from then on, and then so
 * many others, each of which it releases before the next */
static void ticket_parts(helper_state *self, const char *arguments) {
    char text[GPUIPC_TICKET_TEXT_SIZE] = "";
    uint64_t held = 0;
    uint64_t released = 0;
    uint64_t done = 0;
    gpuipc_ticket whole;
    (void)sscanf(arguments, " %94s %" SCNu64 " %" SCNu64, text, &held, &released);
    gpuipc_status status = gpuipc_ticket_from_text(text, &whole);
    while (status == GPUIPC_OK && done < held && self->buffer_count < HELPER_BUFFERS_MAX) {
        status = open_byte(self, &whole, done, &self->buffers[self->buffer_count]);
        self->buffer_count += status == GPUIPC_OK;
        done += status == GPUIPC_OK;
    }
    while (status == GPUIPC_OK && done < held + released) {
        gpuipc_buffer *opened = NULL;
        status = open_byte(self, &whole, done, &opened);
        if (status == GPUIPC_OK) {
            status = gpuipc_buffer_release(opened);
            done++;
        }
    }
    helper_say("%s %" PRIu64, gpuipc_status_name(status), done);
}

const helper_command helper_ticket_commands[] = {
    {"serve", serve},   {"serve-end", serve_end},       {"share", share}, {"revoke", revoke},
    {"ticket", ticket}, {"ticket-parts", ticket_parts}, {NULL, NULL}};
