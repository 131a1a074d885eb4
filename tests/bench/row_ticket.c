/* SPDX-License-Identifier: MIT */
/** @file Tickets: opened for the first time, of an exporter known or unknown, and again. */
#include "bench_row.h"
#include "block.h"
#include "report.h"

#define ROUNDS_AGAIN 100u
#define AGAIN        1000u /* as partner_ticket.c */

static gpuipc_server *serve(bench_pair *pair) {
    gpuipc_server *server = NULL;
    bench_check(gpuipc_server_create(pair->context, NULL, &server), "gpuipc_server_create");
    return server;
}

static void share(gpuipc_server *server, gpuipc_buffer *buffer,
                  char text[GPUIPC_TICKET_TEXT_SIZE]) {
    const gpuipc_share_config config = {.struct_size = sizeof(config), .flags = GPUIPC_SEND_READY};
    gpuipc_ticket ticket;
    bench_check(gpuipc_buffer_share(server, buffer, &config, &ticket), "gpuipc_buffer_share");
    bench_check(gpuipc_ticket_to_text(&ticket, text), "gpuipc_ticket_to_text");
}

/* ---- for the first time ------------------------------------------------------------------------ */

/* A multiple of six blocks: row_share.c. */
static const block_plan usual = {12, 5, 40};

typedef struct tickets {
    bench_pair *pair;
    gpuipc_server *server;
    uint32_t device;
    samples ticket;
    samples connected;
    samples connecting;
    samples
        waiting; /* either of them, with a thread that has slept since before the buffer was made, as a server's has */
} tickets;

static void add(samples *to, uint64_t nanoseconds, bool counts) {
    if (counts) {
        samples_add(to, (double)nanoseconds / 1000);
    }
}

/* From a new buffer's ticket to the memory. */
static void by_ticket(void *tickets_of, uint32_t value, bool counts) {
    tickets *of = tickets_of;
    char text[GPUIPC_TICKET_TEXT_SIZE];
    uint64_t took;
    gpuipc_buffer *buffer = pair_buffer(of->pair, 2 * MIB, of->device, value);
    share(of->server, buffer, text);
    pair_tell(of->pair->partner, "ticket %s %u %u", text, (unsigned)of->device, (unsigned)value);
    pair_hear(of->pair->partner, &took, 1);
    bench_check(gpuipc_buffer_release(buffer), "releasing");
    add(&of->ticket, took, counts);
}

/* The same of a server that nobody has met. */
static void by_ticket_of_new(void *tickets_of, uint32_t value, bool counts) {
    tickets *of = tickets_of;
    bench_check(gpuipc_server_destroy(of->server), "gpuipc_server_destroy");
    of->server = serve(of->pair);
    by_ticket(of, value, counts);
}

/* The same over the connection that there is, from the call of send. */
static void by_connection(void *tickets_of, uint32_t value, bool counts) {
    tickets *of = tickets_of;
    gpuipc_buffer *buffer = pair_buffer(of->pair, 2 * MIB, of->device, value);
    const pair_times took = pair_send(of->pair, &buffer, 1, of->device, value, false);
    bench_check(gpuipc_buffer_release(buffer), "releasing");
    add(&of->connected, took.total_ns, counts);
}

/* The same, to a thread that has slept since before the buffer was made. */
static void by_waiting_receiver(void *tickets_of, uint32_t value, bool counts) {
    tickets *of = tickets_of;
    const pair_times took = pair_send_late(of->pair, 2 * MIB, of->device, value);
    add(&of->waiting, took.total_ns, counts);
}

/* What is sent to whoever connects. */
typedef struct welcome {
    gpuipc_listener *listener;
    gpuipc_buffer *buffer;
    gpuipc_connection *connection;
} welcome;

static void send_to_next(void *argument) {
    welcome *self = argument;
    const gpuipc_outgoing message = {.struct_size = sizeof(message),
                                     .buffers = &self->buffer,
                                     .buffer_count = 1,
                                     .flags = GPUIPC_SEND_READY};
    bench_check(gpuipc_listener_accept(self->listener, PATIENCE_MS, &self->connection),
                "a connection");
    bench_check(gpuipc_connection_send(self->connection, &message, PATIENCE_MS), "sending");
}

static void tell_to_connect(const tickets *of, uint32_t value) {
    pair_tell(of->pair->partner, "explicitly %s %u %u", of->pair->name, (unsigned)of->device,
              (unsigned)value);
    pair_hear_ready(of->pair->partner);
}

static void end_connection(tickets *of, welcome *to, samples *into, bool counts) {
    uint64_t took;
    pair_hear(of->pair->partner, &took, 1);
    bench_check(gpuipc_connection_close(to->connection), "a connection");
    bench_check(gpuipc_buffer_release(to->buffer), "releasing");
    add(into, took, counts);
}

/* The same over a connection made for it, from the call that makes it. */
static void by_new_connection(void *tickets_of, uint32_t value, bool counts) {
    tickets *of = tickets_of;
    welcome to = {.listener = of->pair->listener,
                  .buffer = pair_buffer(of->pair, 2 * MIB, of->device, value)};
    tell_to_connect(of, value);
    send_to_next(&to);
    end_connection(of, &to, &of->connecting, counts);
}

/* The same, of such a thread. */
static void by_waiting_connection(void *tickets_of, uint32_t value, bool counts) {
    tickets *of = tickets_of;
    welcome to = {.listener = of->pair->listener};
    os_thread *thread;
    bench_check(os_thread_start(send_to_next, &to, &thread), "a thread");
    to.buffer = pair_buffer(of->pair, 2 * MIB, of->device, value); /* nobody connects before */
    tell_to_connect(of, value);
    os_thread_join(thread);
    end_connection(of, &to, &of->waiting, counts);
}

void row_ticket(bench_pair *pair, const bench_row *row) {
    static block_round *const known[] = {by_ticket, by_connection, by_waiting_receiver};
    static block_round *const unknown[] = {by_ticket_of_new, by_new_connection,
                                           by_waiting_connection};
    const bool is_known = !row->is_new;
    const block_plan plan = block_plan_for(pair, usual);
    tickets of = {.pair = pair, .server = serve(pair), .device = pair_device(pair, row->is_peer)};
    by_ticket(&of, 1, false);
    for (uint32_t i = 0; i < plan.blocks; i++) {
        block_take_each(is_known ? known : unknown, 3, &of, &plan, i);
    }
    bench_check(gpuipc_server_destroy(of.server), "gpuipc_server_destroy");
    bench_result found = result_make(pair, row->name, NULL, "us");
    found.bytes = 2 * MIB;
    found.gpuipc = samples_figure(&of.ticket);
    found.floor = samples_figure(&of.waiting);
    result_check_most(&found,
                      is_known ? "ticket / open connection" : "ticket / a new explicit connection",
                      found.gpuipc.median / found.floor.median, row->target);
    const double awake = samples_figure(is_known ? &of.connected : &of.connecting).median;
    result_note(&found, "the connection's, to a thread that was just awake, us", awake);
    result_note(&found, "ticket / that", found.gpuipc.median / awake);
    report(&found);
    samples_clear(&of.ticket);
    samples_clear(&of.connected);
    samples_clear(&of.connecting);
    samples_clear(&of.waiting);
}

/* ---- again -------------------------------------------------------------------------------------- */

void row_open_again(bench_pair *pair, const bench_row *row) {
    samples open = {NULL, 0, 0};
    samples release = {NULL, 0, 0};
    char text[GPUIPC_TICKET_TEXT_SIZE];
    uint64_t calls = 0;
    uint64_t is_forbidden = 0;
    const uint32_t device = pair_device(pair, row->is_peer);
    const uint32_t rounds = pair_rounds(pair, ROUNDS_AGAIN);
    gpuipc_server *server = serve(pair);
    gpuipc_buffer *buffer = pair_buffer(pair, 2 * MIB, device, 7);
    share(server, buffer, text);
    pair_tell(pair->partner, "again %s %u %u %u", text, (unsigned)device, 7u, (unsigned)rounds);
    for (uint32_t i = 0; i < rounds; i++) {
        uint64_t numbers[4];
        pair_hear(pair->partner, numbers, 4);
        samples_add(&open, (double)numbers[0] / AGAIN);
        samples_add(&release, (double)numbers[1] / AGAIN);
        calls += numbers[2];
        is_forbidden = numbers[3];
    }
    bench_check(gpuipc_server_destroy(server), "gpuipc_server_destroy");
    bench_check(gpuipc_buffer_release(buffer), "releasing");
    bench_result found = result_make(pair, row->name, NULL, "ns");
    found.bytes = 2 * MIB;
    found.gpuipc = samples_figure(&open);
    result_check_most(&found, "opening again, ns", found.gpuipc.median, row->target);
    result_note(&found, "releasing it, ns", samples_figure(&release).median);
    if (pair->is_emulated) { /* which counts the calls */
        result_check_most(&found, "driver calls", (double)calls, 0);
    }
    if (is_forbidden != 0) { /* one would have ended the row */
        result_check_most(&found, "system calls", 0, 0);
    }
    report(&found);
    samples_clear(&open);
    samples_clear(&release);
}
