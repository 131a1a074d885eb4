/* SPDX-License-Identifier: MIT */
/** @file Clients that come before anybody accepts them: many at once, more than there is room for, and
 *  some that are gone again by then. */
#include "core_fixture.h"

#include <string.h>

TestSuite(listener_crowd, .init = core_start, .fini = core_finish, .timeout = 60);

enum {
    CLIENTS = 64
};

static gpuipc_listener *listener;
static char name[UNIQUE_NAME_MAX];

static void listen(void) {
    unique_name(name);
    check_ok(gpuipc_listener_open(core_context, name, NULL, &listener));
}

static gpuipc_status come(int timeout_ms, gpuipc_connection **out_connection) {
    return gpuipc_connection_open(core_context, name, NULL, timeout_ms, out_connection);
}

static gpuipc_status send_number(gpuipc_connection *to, uint32_t number, gpuipc_buffer *buffer) {
    const gpuipc_outgoing message = {.struct_size = sizeof(message),
                                     .bytes = &number,
                                     .bytes_size = sizeof(number),
                                     .buffers = &buffer,
                                     .buffer_count = 1};
    return gpuipc_connection_send(to, &message, SOON_MS);
}

static gpuipc_status receive_number(gpuipc_connection *from, uint32_t *out_number,
                                    gpuipc_buffer **out_buffer) {
    gpuipc_incoming message = {.struct_size = sizeof(message),
                               .bytes = out_number,
                               .bytes_capacity = sizeof(*out_number),
                               .buffers = out_buffer,
                               .buffer_capacity = 1};
    return gpuipc_connection_receive(from, &message, SOON_MS);
}

/* ---- all at once ------------------------------------------------------------------------- */

typedef struct guest {
    gpuipc_buffer *buffer;
    uint32_t number;
    uint32_t answer;
    gpuipc_status status;
    os_thread *thread;
} guest;

/* Sends its number with a buffer, and gets both back. */
static void visit(void *argument) {
    guest *self = argument;
    gpuipc_connection *connection = NULL;
    gpuipc_buffer *opened = NULL;
    self->status = come(SOON_MS, &connection);
    if (self->status == GPUIPC_OK) {
        self->status = send_number(connection, self->number, self->buffer);
    }
    if (self->status == GPUIPC_OK) {
        self->status = receive_number(connection, &self->answer, &opened);
    }
    (void)gpuipc_buffer_release(opened);
    (void)gpuipc_connection_close(connection);
}

Test(listener_crowd, sixty_four_clients_at_once) {
    static guest clients[CLIENTS];
    gpuipc_connection *servers[CLIENTS];
    bool came[CLIENTS] = {false};
    gpuipc_buffer *buffer = core_buffer(core_unit, 0);
    listen();
    for (uint32_t i = 0; i < CLIENTS; i++) {
        clients[i] = (guest){.buffer = buffer, .number = i, .answer = UINT32_MAX};
        check_ok(os_thread_start(visit, &clients[i], &clients[i].thread));
    }
    for (uint32_t i = 0; i < CLIENTS; i++) {
        check_ok(gpuipc_listener_accept(listener, SOON_MS, &servers[i]));
    }
    for (uint32_t i = 0; i < CLIENTS; i++) {
        gpuipc_buffer *opened;
        uint32_t number = UINT32_MAX;
        check_ok(receive_number(servers[i], &number, &opened));
        cr_assert(number < CLIENTS && !came[number], "%u", number);
        came[number] = true;
        check_ok(send_number(servers[i], number, buffer));
        check_ok(gpuipc_buffer_release(opened));
    }
    for (uint32_t i = 0; i < CLIENTS; i++) {
        os_thread_join(clients[i].thread);
        cr_assert_eq(clients[i].status, GPUIPC_OK, "client %u: %s", i,
                     gpuipc_status_name(clients[i].status));
        cr_assert_eq(clients[i].answer, i);
        check_ok(gpuipc_connection_close(servers[i]));
    }
    check_ok(gpuipc_listener_close(listener));
    check_ok(gpuipc_buffer_release(buffer));
}

/* ---- more than there is room for --------------------------------------------------------- */

static gpuipc_status come_later(void *connection) {
    return come(SOON_MS, connection);
}

Test(listener_crowd, who_finds_no_room_gets_in_when_another_is_accepted) {
    static gpuipc_connection *waiting[4096];
    gpuipc_connection *late = NULL;
    gpuipc_connection *server;
    core_waiter self;
    gpuipc_status status;
    uint32_t room = 0;
    listen();
    while ((status = come(0, &waiting[room])) == GPUIPC_OK) {
        room++;
        cr_assert(room < sizeof(waiting) / sizeof(waiting[0]));
    }
    cr_assert_eq(status, GPUIPC_ERR_TIMEOUT); /* somebody listens, but accepts nobody */
    cr_assert_geq(room, 8);
    core_waiter_start(&self, come_later, &late);
    check_ok(gpuipc_listener_accept(listener, 0, &server));
    check_ok(core_waiter_end(&self));
    cr_assert_not_null(late);
    check_ok(gpuipc_connection_close(server));
    check_ok(gpuipc_connection_close(late));
    for (uint32_t i = 0; i < room; i++) {
        check_ok(gpuipc_connection_close(waiting[i]));
    }
    check_ok(gpuipc_listener_close(listener));
}

/* ---- gone before they were accepted ------------------------------------------------------ */

Test(listener_crowd, what_a_client_sent_before_it_closed_is_there_when_it_is_accepted) {
    gpuipc_buffer *buffer = core_buffer(core_unit, 0);
    gpuipc_buffer *opened;
    gpuipc_connection *client;
    gpuipc_connection *server;
    uint32_t number = 0;
    listen();
    core_write_pattern(buffer, 7);
    check_ok(come(SOON_MS, &client));
    check_ok(send_number(client, 4711, buffer));
    check_ok(gpuipc_connection_close(client));
    check_ok(gpuipc_buffer_release(buffer));
    check_ok(gpuipc_listener_accept(listener, SOON_MS, &server));
    check_ok(receive_number(server, &number, &opened));
    cr_assert_eq(number, 4711);
    core_check_pattern(opened, 7);
    check_status(GPUIPC_ERR_PEER_CLOSED, core_receive(server, NULL, 0));
    check_ok(gpuipc_buffer_release(opened));
    check_ok(gpuipc_connection_close(server));
    check_ok(gpuipc_listener_close(listener));
}

/* And what they have sent is given back: the gate of the fixture sees it. */
Test(listener_crowd, who_was_not_accepted_is_told_when_the_listener_closes) {
    gpuipc_buffer *buffer = core_buffer(core_unit, 0);
    gpuipc_connection *clients[3];
    listen();
    for (uint32_t i = 0; i < 3; i++) {
        check_ok(come(SOON_MS, &clients[i]));
        check_ok(send_number(clients[i], i, buffer));
    }
    check_ok(gpuipc_listener_close(listener));
    for (uint32_t i = 0; i < 3; i++) {
        check_status(GPUIPC_ERR_PEER_CLOSED, core_receive(clients[i], NULL, 0));
        check_status(GPUIPC_ERR_PEER_CLOSED, core_send(clients[i], NULL, 0));
        check_ok(gpuipc_connection_close(clients[i]));
    }
    check_ok(gpuipc_buffer_release(buffer));
}

/* Who connects is in a row until he is accepted; only when that is full, the time runs out. */
Test(listener_crowd, a_row_that_nobody_accepts_is_full_at_some_point) {
    enum {
        MANY = 400
    };
    static gpuipc_connection *clients[MANY];
    gpuipc_status status = GPUIPC_OK;
    size_t count = 0;
    listen();
    while (count < MANY && (status = come(0, &clients[count])) == GPUIPC_OK) {
        count++;
    }
    cr_assert_eq(status, GPUIPC_ERR_TIMEOUT, "%zu are in the row: %s", count, gpuipc_error_text());
    cr_assert_gt(count, 0);
    for (size_t i = 0; i < count; i++) {
        check_ok(gpuipc_connection_close(clients[i]));
    }
    check_ok(gpuipc_listener_close(listener));
}
