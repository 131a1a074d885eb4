/* SPDX-License-Identifier: MIT */
/** @file One of a ring of processes: member I of N writes into the memory of the next one, on that one's GPU.
 *  usage: ring I N, for each I from 0 to N - 1 in a terminal of its own */
#include <gpuipc/gpuipc.h>
#include <stdio.h>
#include <stdlib.h>

#define PATIENCE_MS 60000

static void must(gpuipc_status status) {
    if (status != GPUIPC_OK) {
        fprintf(stderr, "%s\n", gpuipc_error_text());
        exit(1);
    }
}

/* The next one may not have begun to listen. */
static gpuipc_connection *connect_to(gpuipc_context *context, unsigned member) {
    gpuipc_connection *connection;
    char name[32];
    snprintf(name, sizeof name, "ring-%u", member);
    must(gpuipc_connection_open(context, name, NULL, PATIENCE_MS, &connection));
    return connection;
}

int main(int count, char **words) {
    const unsigned self = count == 3 ? (unsigned)strtoul(words[1], NULL, 10) : 0;
    const unsigned members = count == 3 ? (unsigned)strtoul(words[2], NULL, 10) : 0;
    gpuipc_context *context;
    gpuipc_buffer *own;
    gpuipc_buffer *of_next;
    gpuipc_listener *listener;
    gpuipc_connection *before;
    gpuipc_connection *next;
    gpuipc_buffer_config config = GPUIPC_BUFFER_CONFIG_INIT;
    gpuipc_outgoing offer = GPUIPC_OUTGOING_INIT;
    gpuipc_incoming arrival = GPUIPC_INCOMING_INIT;
    gpuipc_outgoing done = GPUIPC_OUTGOING_INIT;
    gpuipc_incoming news = GPUIPC_INCOMING_INIT;
    uint32_t devices;
    uint32_t word = 100 + self;
    char name[32];

    if (self >= members) {
        fprintf(stderr, "usage: %s I N (from 0 to N - 1)\n", words[0]);
        return 2;
    }
    must(gpuipc_context_create(NULL, &context));
    must(gpuipc_device_count(context, &devices));
    config.bytes = 1 << 20;
    config.device = GPUIPC_DEVICE(self % devices);
    must(gpuipc_buffer_create(context, &config, &own));

    /* Each offers its memory to the one before it, and gets that of the next. */
    snprintf(name, sizeof name, "ring-%u", self);
    must(gpuipc_listener_open(context, name, NULL, &listener));
    next = connect_to(context, (self + 1) % members);
    must(gpuipc_listener_accept(listener, PATIENCE_MS, &before));
    offer.buffers = &own;
    offer.buffer_count = 1;
    must(gpuipc_connection_send(before, &offer, PATIENCE_MS));
    arrival.buffers = &of_next;
    arrival.buffer_capacity = 1;
    arrival.device = config.device; /* this member's GPU writes into that of the next */
    must(gpuipc_connection_receive(next, &arrival, PATIENCE_MS));

    must(gpuipc_buffer_write(of_next, 0, &word, sizeof word));
    must(gpuipc_connection_send(next, &done, PATIENCE_MS));
    must(gpuipc_connection_receive(before, &news, PATIENCE_MS));
    must(gpuipc_buffer_read(own, 0, &word, sizeof word));
    printf("member %u got %u\n", self, (unsigned)word);

    must(gpuipc_buffer_release(of_next));
    must(gpuipc_buffer_release(own));
    must(gpuipc_connection_close(next));
    must(gpuipc_connection_close(before));
    must(gpuipc_listener_close(listener));
    must(gpuipc_context_destroy(context));
    return word == 100 + (self + members - 1) % members ? 0 : 1;
}
