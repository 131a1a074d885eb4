/* SPDX-License-Identifier: MIT */
/** @file The helper's commands about endpoints and messages. */
#include <stdio.h>

#include "helper.h"
#include "helper_commands.h"
#include "marks.h"

static uint8_t message_bytes[GPUIPC_MESSAGE_BYTES_MAX];

static int admit_all(void *user_data, const gpuipc_peer_info *peer) {
    (void)user_data;
    (void)peer;
    return 1;
}

gpuipc_endpoint_config helper_endpoint(const helper_state *self) {
    return (gpuipc_endpoint_config){.struct_size = sizeof(gpuipc_endpoint_config),
                                    .policy = self->admits_all ? admit_all : NULL};
}

/* listen NAME */
static void listen_at(helper_state *self, const char *arguments) {
    char name[GPUIPC_NAME_MAX + 1] = "";
    const gpuipc_endpoint_config config = helper_endpoint(self);
    (void)sscanf(arguments, " %64s", name);
    helper_say_status(gpuipc_listener_open(self->context, name, &config, &self->listener));
}

/* accept TIMEOUT */
static void accept_one(helper_state *self, const char *arguments) {
    int timeout_ms = 0;
    (void)sscanf(arguments, " %d", &timeout_ms);
    helper_say_status(gpuipc_listener_accept(self->listener, timeout_ms, &self->connection));
}

/* connect NAME TIMEOUT */
static void connect_to(helper_state *self, const char *arguments) {
    char name[GPUIPC_NAME_MAX + 1] = "";
    int timeout_ms = 0;
    const gpuipc_endpoint_config config = helper_endpoint(self);
    (void)sscanf(arguments, " %64s %d", name, &timeout_ms);
    helper_say_status(
        gpuipc_connection_open(self->context, name, &config, timeout_ms, &self->connection));
}

/* disconnect */
static void disconnect(helper_state *self, const char *arguments) {
    (void)arguments;
    gpuipc_status status = gpuipc_connection_close(self->connection);
    self->connection = NULL;
    helper_say_status(status);
}

/* send BYTES ACCESS TIMEOUT: all buffers and that many bytes */
static void send_all(helper_state *self, const char *arguments) {
    unsigned access = 0;
    int timeout_ms = 0;
    gpuipc_outgoing message = {.struct_size = sizeof(message),
                               .bytes = message_bytes,
                               .buffers = self->buffers,
                               .buffer_count = self->buffer_count};
    (void)sscanf(arguments, " %zu %u %d", &message.bytes_size, &access, &timeout_ms);
    message.access = (gpuipc_access)access;
    if (message.bytes_size <= sizeof(message_bytes)) { /* else it is refused */
        marks_fill_bytes(message_bytes, message.bytes_size);
    }
    helper_say_status(gpuipc_connection_send(self->connection, &message, timeout_ms));
}

/* receive DEVICE FLAGS ACCESS TIMEOUT: the buffers that come are held; says how many bytes and
 * buffers came */
static void receive(helper_state *self, const char *arguments) {
    unsigned access = 0;
    int timeout_ms = 0;
    gpuipc_incoming message = {.struct_size = sizeof(message),
                               .bytes = message_bytes,
                               .bytes_capacity = sizeof(message_bytes),
                               .buffers = self->buffers + self->buffer_count,
                               .buffer_capacity = HELPER_BUFFERS_MAX - self->buffer_count};
    (void)sscanf(arguments, " %u %u %u %d", &message.device, &message.flags, &access, &timeout_ms);
    message.access = (gpuipc_access)access;
    gpuipc_status status = gpuipc_connection_receive(self->connection, &message, timeout_ms);
    if (status != GPUIPC_OK) {
        helper_say_status(status);
        return;
    }
    self->buffer_count += message.buffer_count;
    size_t right = marks_check_bytes(message_bytes, message.bytes_size);
    if (right < message.bytes_size) {
        helper_say("byte %zu of %zu is wrong", right, message.bytes_size);
        return;
    }
    helper_say("GPUIPC_OK %zu bytes %zu buffers", message.bytes_size, message.buffer_count);
}

const helper_command helper_message_commands[] = {{"listen", listen_at},
                                                  {"accept", accept_one},
                                                  {"connect", connect_to},
                                                  {"disconnect", disconnect},
                                                  {"send", send_all},
                                                  {"receive", receive},
                                                  {NULL, NULL}};
