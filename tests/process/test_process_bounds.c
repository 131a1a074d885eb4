/* SPDX-License-Identifier: MIT */
/** @file What a peer that was let in can take away from others: handles, mappings and addresses, which it fills by messages
 *  that are valid each for itself. It is refused in time, others are served, and all is given back. */
#include <criterion/criterion.h>
#include <stdatomic.h>
#include <string.h>

#include "base/quota.h"
#include "check.h"
#include "cuda/context.h"
#include "native_ready.h"
#include "os.h"
#include "partner.h"
#include "resource_list.h"

/* In place of what the system has: a user may have half of it. A stream has room for as many waits. */
#define OF_USER   960u
#define MAPPINGS  (2 * OF_USER)
#define ADDRESSES (UINT64_C(1) << 30)
#define UNIT      65536u
/* How many buffers come in a message. */
#define MANY 256u

TestSuite(bounds, .timeout = 110);

static process_case at;
static partner hostile;
static gpuipc_buffer *kept[2 * OF_USER];

static void begin(void) {
    static const quota_amount totals = {{UINT64_MAX, MAPPINGS, ADDRESSES, UINT64_C(1) << 30}};
    quota_pretend(&totals);
    process_case_begin(&at, NULL);
    partner_start(&hostile, &at, NULL, NULL);
}

static void end(void) {
    process_case_end(&at);
    quota_pretend(NULL);
}

/* An honest process sends a buffer of its own. */
static void check_others_are_served(void) {
    partner honest;
    gpuipc_buffer *buffer;
    size_t count = 1;
    partner_start(&honest, &at, NULL, NULL);
    partner_do(&honest, "GPUIPC_OK", "create 1 4096 0 0");
    partner_tell(&honest, "connect %s %d", at.name, PATIENCE_MS);
    gpuipc_connection *connection = process_case_accept(&at);
    partner_hear(&honest, "GPUIPC_OK");
    partner_tell(&honest, "send 0 0 %d", PATIENCE_MS);
    check_ok(process_case_receive(connection, &buffer, &count, NULL, PATIENCE_MS));
    partner_hear(&honest, "GPUIPC_OK");
    check_ok(gpuipc_buffer_release(buffer));
    check_ok(gpuipc_connection_close(connection));
    partner_end(&honest);
}

static gpuipc_status receive(gpuipc_connection *from, gpuipc_buffer **buffers, size_t room,
                             uint32_t flags, size_t *out_count) {
    gpuipc_incoming message = {.struct_size = sizeof(message),
                               .buffers = buffers,
                               .buffer_capacity = room,
                               .flags = flags,
                               .device = GPUIPC_DEVICE(0)};
    gpuipc_status status = gpuipc_connection_receive(from, &message, PATIENCE_MS);
    *out_count = message.buffer_count;
    return status;
}

static void release_all(size_t count) {
    for (size_t i = 0; i < count; i++) {
        check_ok(gpuipc_buffer_release(kept[i]));
    }
}

static void check_refused_for(const char *what) {
    const gpuipc_error *record = gpuipc_error_get();
    cr_assert_eq(record->status, GPUIPC_ERR_LIMIT, "%s: %s", gpuipc_status_name(record->status),
                 record->sentence);
    cr_assert(strstr(record->sentence, what) != NULL, "%s", record->sentence);
}

/* The messages that fit are taken, the next is refused as a whole, and when room is made the connection goes on. */
static void check_flood(uint64_t bytes, size_t fitting, uint32_t buffers, const char *what) {
    size_t count;
    partner_tell(&hostile, "flood %s 1 %zu %u %llu 0", at.name, fitting + 2, buffers,
                 (unsigned long long)bytes);
    gpuipc_connection *connection = process_case_accept(&at);
    for (size_t i = 0; i < fitting; i++) {
        check_ok(receive(connection, kept + i * buffers, buffers, 0, &count));
        cr_assert_eq(count, buffers);
    }
    check_status(GPUIPC_ERR_LIMIT,
                 receive(connection, kept + fitting * buffers, buffers, 0, &count));
    check_refused_for(what);
    check_others_are_served();
    release_all(fitting * buffers);
    check_ok(receive(connection, kept, buffers, 0, &count));
    release_all(count);
    check_ok(gpuipc_connection_close(connection));
    partner_hear(&hostile, "");
    partner_end(&hostile);
}

Test(bounds, mappings_of_a_user_end_before_those_of_the_process) {
    begin();
    check_flood(UNIT, OF_USER / MANY, MANY, "mappings");
    end();
}

Test(bounds, addresses_of_a_user_end_before_those_of_the_process) {
    begin();
    check_flood(ADDRESSES / 8, 1, 2, "bytes of addresses");
    end();
}

/* ---- memory that the driver maps ---------------------------------------------------------------- */

/* A partner sends so many buffers of it, when all that there is is this. */
static gpuipc_status receive_mapped(size_t buffers, bool is_emulated, const quota_amount *totals) {
    context *ctx;
    size_t count = 0;
    quota_pretend(totals);
    process_case_begin(&at, NULL);
    check_ok(context_acquire(at.context, &ctx));
    ctx->driver.is_emulated = is_emulated;
    partner_start(&hostile, &at, NULL, NULL);
    partner_do(&hostile, "GPUIPC_OK", "create %zu 4096 0 0", buffers);
    partner_tell(&hostile, "connect %s %d", at.name, PATIENCE_MS);
    gpuipc_connection *connection = process_case_accept(&at);
    partner_hear(&hostile, "GPUIPC_OK");
    partner_tell(&hostile, "send 0 0 %d", PATIENCE_MS);
    const gpuipc_status status = receive(connection, kept, buffers, 0, &count);
    if (status == GPUIPC_ERR_LIMIT) {
        check_refused_for(
            totals->of[QUOTA_MAPPINGS] < totals->of[QUOTA_MEMORY] ? "mappings" : "bytes of memory");
    } else {
        release_all(count);
    }
    partner_hear(&hostile, "GPUIPC_OK");
    check_ok(gpuipc_connection_close(connection));
    partner_end(&hostile);
    ctx->driver.is_emulated = true;
    context_unreference(ctx);
    process_case_end(&at);
    quota_pretend(NULL);
    return status;
}

/* A GPU's driver takes no mapping of the system's for what it maps. What this process keeps of it is bounded. */
Test(bounds, of_memory_that_a_driver_maps_what_is_kept_of_it_counts) {
    enum {
        BUFFERS = 64,
        KEPT = 512 /* incoming.c, SEGMENT_MEMORY */
    };
    quota_amount totals = {{UINT64_MAX, BUFFERS, UINT64_MAX, UINT64_C(1) << 30}};
    check_status(GPUIPC_ERR_LIMIT, receive_mapped(BUFFERS, true, &totals));
    check_status(GPUIPC_OK, receive_mapped(BUFFERS, false, &totals));
    totals.of[QUOTA_MAPPINGS] = UINT64_MAX;
    totals.of[QUOTA_MEMORY] = UINT64_C(2) * KEPT * BUFFERS;
    check_status(GPUIPC_OK, receive_mapped(BUFFERS, false, &totals));
    totals.of[QUOTA_MEMORY] -= 2;
    check_status(GPUIPC_ERR_LIMIT, receive_mapped(BUFFERS, false, &totals));
}

/* ---- what waits for a word that never comes ------------------------------------------------- */

#define FEW 64u
/* One mapping is that of the page of points. A few are left, with which others are served. */
#define FEW_FIT ((OF_USER - 1) / FEW)

/* Each is given back at once, and waits for a stream. */
static void receive_late(gpuipc_connection *from) {
    size_t count;
    for (size_t i = 0; i < FEW_FIT; i++) {
        check_ok(receive(from, kept, FEW, GPUIPC_RECEIVE_ASYNC, &count));
        release_all(count);
    }
    check_status(GPUIPC_ERR_LIMIT, receive(from, kept, FEW, GPUIPC_RECEIVE_ASYNC, &count));
    check_refused_for("mappings");
}

/* Its user gets no more than the few that are left before the rest has come back: then the streams have gone on, too. */
static void check_comes_back(void) {
    partner third;
    size_t count;
    gpuipc_status status = GPUIPC_ERR_LIMIT;
    partner_start(&third, &at, NULL, NULL);
    while (status == GPUIPC_ERR_LIMIT) {
        partner_tell(&third, "flood %s 1 1 %u %u 0", at.name, 2 * FEW, UNIT);
        gpuipc_connection *connection = process_case_accept(&at);
        status = receive(connection, kept, 2 * FEW, 0, &count);
        partner_hear(&third, "1");
        partner_do(&third, "GPUIPC_OK", "hang_up");
        check_ok(gpuipc_connection_close(connection));
    }
    check_ok(status);
    release_all(count);
    partner_end(&third);
}

Test(bounds, what_waits_for_a_word_that_never_comes_is_bounded_and_goes_with_its_peer) {
    begin();
    partner_tell(&hostile, "flood %s 1 %u %u %u 1", at.name, FEW_FIT + 1, FEW, UNIT);
    gpuipc_connection *late = process_case_accept(&at);
    receive_late(late);
    partner_hear(&hostile, "");
    check_others_are_served();
    partner_kill(&hostile);
    check_comes_back();
    check_ok(gpuipc_connection_close(late));
    end();
}

/* ---- what dead clients of a server have left ------------------------------------------------- */

#define CLIENTS 4u
#define OPENED  3000u
/* As often in a row as a count is found to be the same, it is that of what stays. */
#define LOOKS 50u

typedef bool (*resource_reader)(resource_list *out_list);

static size_t count_of(resource_reader read) {
    resource_list found;
    cr_assert(read(&found));
    const size_t count = found.count;
    resource_list_free(&found);
    return count;
}

/* What a process had open may have come back before its connection and its handle are closed. */
static size_t settled_count(resource_reader read) {
    const os_deadline deadline = os_deadline_after(PATIENCE_MS);
    size_t count = count_of(read);
    for (unsigned same = 0; same < LOOKS; same++) {
        os_sleep_ms(2);
        const size_t now = count_of(read);
        if (now != count) {
            cr_assert(!os_deadline_passed(deadline), "%zu, then %zu: it does not settle", count,
                      now);
            count = now;
            same = 0;
        }
    }
    return count;
}

/* Nothing is asked of the server meanwhile. */
static void await_count(const char *what, resource_reader read, size_t wanted) {
    const os_deadline deadline = os_deadline_after(PATIENCE_MS);
    size_t count;
    while ((count = count_of(read)) > wanted) {
        cr_assert(!os_deadline_passed(deadline), "%zu %s are there, and %zu were", count, what,
                  wanted);
        os_sleep_ms(2);
    }
}

Test(bounds, what_dead_clients_had_open_goes_without_a_call) {
    partner clients[CLIENTS];
    gpuipc_server *server;
    gpuipc_ticket ticket;
    char text[GPUIPC_TICKET_TEXT_SIZE];
    process_case_begin(&at, NULL);
    check_ok(gpuipc_server_create(at.context, NULL, &server));
    gpuipc_buffer *shared = process_case_buffer(&at, 0, MEBIBYTES_2, 0, 1, 0);
    check_ok(gpuipc_buffer_share(server, shared, NULL, &ticket));
    check_ok(gpuipc_ticket_to_text(&ticket, text));
    partner_start(&clients[0], &at, NULL, NULL); /* what the first hand-over makes, stays */
    partner_do(&clients[0], "GPUIPC_OK", "ticket %s", text);
    partner_end(&clients[0]);
    check_ok(gpuipc_buffer_await_returns(shared, PATIENCE_MS));
    const size_t mappings = settled_count(resource_list_mappings);
    const size_t handles = settled_count(resource_list_handles);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        partner_start(&clients[i], &at, NULL, NULL);
        partner_do(&clients[i], "GPUIPC_OK", "ticket-parts %s %u 0", text, OPENED);
    }
    for (uint32_t i = 0; i < CLIENTS; i++) {
        partner_kill(&clients[i]);
    }
    await_count("handles", resource_list_handles, handles);
    await_count("mappings", resource_list_mappings, mappings);
    check_ok(gpuipc_server_destroy(server));
    check_ok(gpuipc_buffer_release(shared));
    process_case_end(&at);
}

typedef struct polling {
    gpuipc_server *server;
    atomic_bool is_enough;
} polling;

static void poll_until_enough(void *argument) {
    polling *self = argument;
    while (!atomic_load(&self->is_enough)) {
        const gpuipc_status status = gpuipc_server_poll(self->server, 10);
        cr_assert(status == GPUIPC_OK || status == GPUIPC_ERR_TIMEOUT);
    }
}

/* An event loop: it polls when the server's handle is ready, until there is nothing to do, and no more. */
static void poll_while_ready(gpuipc_server *server, intptr_t handle, size_t mappings) {
    gpuipc_status status;
    while (count_of(resource_list_mappings) > mappings) {
        cr_assert(native_is_ready(handle, PATIENCE_MS), "there is more to do, and nothing says so");
        do {
            status = gpuipc_server_poll(server, 0);
        } while (status == GPUIPC_OK);
        cr_assert_eq(status, GPUIPC_ERR_TIMEOUT);
    }
}

Test(bounds, a_polled_server_takes_all_away_that_a_dead_client_had_open) {
    gpuipc_server_config config = GPUIPC_SERVER_CONFIG_INIT;
    partner client;
    polling polled = {0};
    os_thread *thread;
    intptr_t handle;
    gpuipc_ticket ticket;
    char text[GPUIPC_TICKET_TEXT_SIZE];
    process_case_begin(&at, NULL);
    config.flags = 0;
    check_ok(gpuipc_server_create(at.context, &config, &polled.server));
    check_ok(gpuipc_server_get_wait_handle(polled.server, &handle));
    gpuipc_buffer *shared = process_case_buffer(&at, 0, MEBIBYTES_2, 0, 1, 0);
    check_ok(gpuipc_buffer_share(polled.server, shared, NULL, &ticket));
    check_ok(gpuipc_ticket_to_text(&ticket, text));
    check_ok(os_thread_start(poll_until_enough, &polled, &thread));
    partner_start(&client, &at, NULL, NULL);
    partner_do(&client, "GPUIPC_OK", "ticket-parts %s 1 0", text);
    const size_t mappings = count_of(resource_list_mappings); /* with the first page of its own */
    partner_do(&client, "GPUIPC_OK", "ticket-parts %s %u 0", text, 2 * OPENED);
    atomic_store(&polled.is_enough, true);
    os_thread_join(thread);
    partner_kill(&client);
    poll_while_ready(polled.server, handle, mappings - 1);
    check_ok(gpuipc_server_destroy(polled.server));
    check_ok(gpuipc_buffer_release(shared));
    process_case_end(&at);
}
