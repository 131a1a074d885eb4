/* SPDX-License-Identifier: MIT */
/**
 * @file Many threads that share, open, look and revoke at one server at once, while it answers from a thread of its own;
 * and one that ends it while others ask. A plain program, so that it runs under ThreadSanitizer. Exit code
 * 0: every answer was one that may be.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gpuipc/gpuipc.h>

#include "message/connection.h"
#include "ticket/server.h"
#include "unique.h"

#define THREADS 4
#define ROUNDS  40
#define SOON_MS 60000

static gpuipc_context *own_context;
static gpuipc_server *serving;
static gpuipc_buffer *shared;
static char directory[RUNTIME_DIRECTORY_MAX];

static void fail(const char *what) {
    fprintf(stderr, "%s: %s: %s\n", what, gpuipc_error_get()->operation,
            gpuipc_error_get()->sentence);
    exit(1);
}

#define CHECK(call)                                                                                \
    do {                                                                                           \
        if ((call) != GPUIPC_OK) {                                                                 \
            fail(#call);                                                                           \
        }                                                                                          \
    } while (0)

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fail("not so: " #condition);                                                           \
        }                                                                                          \
    } while (0)

static ticket decode(const gpuipc_ticket *of) {
    ticket decoded;
    CHECK(ticket_decode(of, &decoded));
    return decoded;
}

static gpuipc_status connect_to(const gpuipc_ticket *of, gpuipc_connection **out_handle,
                                connection **out_connection) {
    const ticket decoded = decode(of);
    char name[TICKET_ENDPOINT_SIZE];
    ticket_endpoint(decoded.server_id, name);
    gpuipc_status status = gpuipc_connection_open(own_context, name, NULL, 0, out_handle);
    if (status == GPUIPC_OK) {
        CHECK(connection_acquire(*out_handle, out_connection));
    }
    return status;
}

static gpuipc_status send_request(connection *to, const gpuipc_ticket *of) {
    const letter as = {.kind = WIRE_REQUEST};
    wire_request request = {.wish = WIRE_OPEN};
    uint8_t bytes[WIRE_REQUEST_BYTES];
    const gpuipc_outgoing message = {
        .struct_size = sizeof(message), .bytes = bytes, .bytes_size = sizeof(bytes)};
    memcpy(request.ticket, of->bytes, sizeof(request.ticket));
    wire_encode_request(&request, bytes);
    os_mutex_lock(&to->send_mutex);
    gpuipc_status status = connection_send_message(to, &message, &as, SOON_MS);
    os_mutex_unlock(&to->send_mutex);
    return status;
}

static gpuipc_status receive_reply(connection *from, wire_answer *out_answer) {
    uint8_t bytes[WIRE_REPLY_BYTES];
    buffer *opened = NULL;
    wire_reply record;
    gpuipc_incoming message = {.struct_size = sizeof(message),
                               .bytes = bytes,
                               .bytes_capacity = sizeof(bytes),
                               .buffer_capacity = 1};
    const gpuipc_incoming wanted = message;
    const os_deadline deadline = os_deadline_after(SOON_MS);
    os_mutex_lock(&from->receive_mutex);
    gpuipc_status status = connection_receive_whole(from, WIRE_REPLY, false, deadline);
    if (status == GPUIPC_OK) {
        status = connection_deliver(from, &wanted, &opened, &message, deadline);
    }
    os_mutex_unlock(&from->receive_mutex);
    if (status == GPUIPC_OK) {
        CHECK(wire_decode_reply(bytes, message.bytes_size, &record));
        *out_answer = (wire_answer)record.answer;
        buffer_unreference(opened);
    }
    return status;
}

static wire_answer ask(connection *to, const gpuipc_ticket *of) {
    wire_answer answer = WIRE_FAILED;
    CHECK(send_request(to, of));
    CHECK(receive_reply(to, &answer));
    return answer;
}

static wire_answer ask_here(const gpuipc_ticket *of) {
    const ticket decoded = decode(of);
    server *from = server_find(decoded.server_id);
    offer *found = NULL;
    const wire_answer answer = share_find(&from->shares, &decoded, &found);
    offer_unreference(found, false);
    object_unreference(&from->object);
    return answer;
}

/* Tickets of this thread's own, of the buffer that all threads share. */
static void share_and_open(void *argument) {
    gpuipc_connection *handle = NULL;
    connection *to = NULL;
    (void)argument;
    for (uint64_t i = 0; i < ROUNDS; i++) {
        const gpuipc_share_config config = {.struct_size = sizeof(config),
                                            .expires_ms = i % 4 == 3 ? 1 : 0};
        gpuipc_holder holders[THREADS];
        gpuipc_ticket of;
        size_t count;
        CHECK(gpuipc_buffer_share(serving, shared, &config, &of));
        if (i % 8 == 0) {
            if (handle != NULL) {
                CHECK(gpuipc_connection_close(handle));
                connection_unreference(to);
            }
            CHECK(connect_to(&of, &handle, &to));
        }
        const wire_answer first = ask(to, &of);
        EXPECT(first == WIRE_GRANTED || (config.expires_ms != 0 && first == WIRE_EXPIRED));
        const wire_answer second = ask_here(&of);
        EXPECT(second == WIRE_GRANTED || (config.expires_ms != 0 && second == WIRE_EXPIRED));
        CHECK(gpuipc_server_holders(serving, &of, holders, THREADS, &count));
        EXPECT(count <= 1);
        CHECK(gpuipc_server_revoke(serving, &of));
        EXPECT(ask(to, &of) == WIRE_REVOKED);
    }
    CHECK(gpuipc_connection_close(handle));
    connection_unreference(to);
}

/* Until the server is gone. */
static void ask_until_the_end(void *argument) {
    const gpuipc_ticket *of = argument;
    gpuipc_connection *handle;
    connection *to;
    wire_answer answer = WIRE_FAILED;
    if (connect_to(of, &handle, &to) != GPUIPC_OK) {
        return;
    }
    while (send_request(to, of) == GPUIPC_OK && receive_reply(to, &answer) == GPUIPC_OK) {
        EXPECT(answer == WIRE_GRANTED);
    }
    CHECK(gpuipc_connection_close(handle));
    connection_unreference(to);
}

static void run_all(void (*call)(void *argument), gpuipc_ticket *of) {
    os_thread *threads[THREADS];
    for (size_t i = 0; i < THREADS; i++) {
        CHECK(os_thread_start(call, of, &threads[i]));
    }
    if (of != NULL) {
        for (int i = 0; i < 20; i++) {
            EXPECT(ask_here(of) == WIRE_GRANTED);
        }
        CHECK(gpuipc_server_destroy(serving));
    }
    for (size_t i = 0; i < THREADS; i++) {
        os_thread_join(threads[i]);
    }
}

int main(void) {
    gpuipc_ticket of;
    if (!runtime_directory_make(directory)) {
        return 1;
    }
    const gpuipc_context_config config = {
        .struct_size = sizeof(config), .driver = "emulated", .runtime_directory = directory};
    const gpuipc_buffer_config memory = {.struct_size = sizeof(memory), .bytes = 4096};
    CHECK(gpuipc_context_create(&config, &own_context));
    CHECK(gpuipc_buffer_create(own_context, &memory, &shared));
    CHECK(gpuipc_server_create(own_context, NULL, &serving));
    run_all(share_and_open, NULL);
    CHECK(gpuipc_buffer_share(serving, shared, NULL, &of));
    run_all(ask_until_the_end, &of);
    CHECK(gpuipc_buffer_release(shared));
    CHECK(gpuipc_context_destroy(own_context));
    runtime_directory_remove(directory);
    return 0;
}
