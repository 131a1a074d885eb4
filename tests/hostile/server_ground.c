/* SPDX-License-Identifier: MIT */
/** @file See server_ground.h. */
#include "server_ground.h"

#include <string.h>

#include "check.h"
#include "form.h"
#include "raw_handle.h"

#define SHORT_ROUNDS 2
#define FULL_ROUNDS  1000
/* What was exported to clients that have gone is given up in steps, some with each request: so many are enough for all. */
#define SETTLED 32

/* ---- the library's server -------------------------------------------------------------------- */

/* Why a client was let go is the last failure of the call that did it: a record that another call has overwritten first. */
static void serve(void *argument) {
    server_ground *self = argument;
    gpuipc_status status = GPUIPC_OK;
    while (status == GPUIPC_OK || status == GPUIPC_ERR_TIMEOUT) {
        check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                     gpuipc_server_get_wait_handle(self->server, NULL));
        status = gpuipc_server_poll(self->server, -1);
        const gpuipc_error *why = gpuipc_error_get();
        if (status == GPUIPC_OK && strcmp(why->operation, "gpuipc_server_poll") == 0) {
            atomic_fetch_add(&self->seen[why->status], 1);
        }
    }
}

static void make_channel(server_ground *self) {
    const gpuipc_channel_config config = {.struct_size = sizeof(config),
                                          .buffer = self->buffer,
                                          .slots = 4,
                                          .slot_bytes = 4096,
                                          .max_held = 1};
    check_ok(gpuipc_channel_create(self->server, &config, &self->frames, &self->channel));
}

static void make_server(server_ground *self) {
    const gpuipc_server_config polled = {.struct_size = sizeof(polled),
                                         .max_connections = 2 * SERVER_PLACES,
                                         .max_connections_per_user = SERVER_PLACES};
    ticket decoded;
    check_ok(gpuipc_server_create(self->at.context, &polled, &self->server));
    check_ok(gpuipc_buffer_share(self->server, self->buffer, NULL, &self->ticket));
    check_ok(gpuipc_buffer_share(self->server, self->buffer, NULL, &self->revoked));
    check_ok(gpuipc_server_revoke(self->server, &self->revoked));
    check_ok(gpuipc_ticket_to_text(&self->ticket, self->text));
    check_ok(ticket_decode(&self->ticket, &decoded));
    ticket_endpoint(decoded.server_id, self->endpoint);
    make_channel(self);
}

static void end_server(server_ground *self) {
    check_ok(gpuipc_channel_destroy(self->frames));
    check_ok(gpuipc_server_destroy(self->server));
    os_thread_join(self->thread);
}

static void begin_server(server_ground *self) {
    make_server(self);
    check_ok(os_thread_start(serve, self, &self->thread));
}

static void begin(server_ground *self) {
    *self = (server_ground){.thread = NULL};
    process_case_begin(&self->at, NULL);
    self->buffer = process_case_buffer(&self->at, 0, SERVER_SHARED, 0, 1, 0);
    honest_begin(&self->honest, &self->at);
    begin_server(self); /* what it makes once is there before any gate */
    honest_opens(&self->honest, self->text, &self->honest.before);
    end_server(self);
}

static void end(server_ground *self) {
    honest_end(&self->honest);
    check_ok(gpuipc_buffer_release(self->buffer));
    process_case_end(&self->at);
}

/* ---- the hostile client ---------------------------------------------------------------------- */

raw_peer *server_connect(const server_ground *on) {
    raw_peer *made = raw_connect(on->at.directory, on->endpoint);
    cr_assert_neq(made, NULL);
    return made;
}

void server_send(server_peer *self, wire_kind kind, const void *bytes, size_t size) {
    uint8_t packet[WIRE_HEADER_BYTES + 256] = {0};
    const wire_header header = {.kind = kind,
                                .number = self->next++,
                                .total_bytes = (uint32_t)size,
                                .bytes = (uint32_t)size};
    cr_assert_leq(size, 256);
    wire_encode_header(&header, packet);
    if (size > 0) {
        memcpy(packet + WIRE_HEADER_BYTES, bytes, size);
    }
    cr_assert(raw_send(self->raw, packet, WIRE_HEADER_BYTES + size, NULL, 0));
}

void server_ask(server_peer *self, wire_wish wish, const gpuipc_ticket *of) {
    uint8_t bytes[WIRE_REQUEST_BYTES];
    wire_request request = {.wish = (uint16_t)wish};
    memcpy(request.ticket, of->bytes, sizeof(request.ticket));
    wire_encode_request(&request, bytes);
    server_send(self, WIRE_REQUEST, bytes, sizeof(bytes));
}

bool server_hear(raw_peer *from, int timeout_ms, wire_reply *out_reply) {
    static uint8_t bytes[OS_PACKET_BYTES_MAX];
    wire_packet packet = {.header = {.kind = WIRE_POINTS}};
    while (wire_is_page(packet.header.kind)) {
        intptr_t handles[RAW_PACKET_HANDLES_MAX];
        size_t count = RAW_PACKET_HANDLES_MAX;
        const long size = raw_receive(from, bytes, sizeof(bytes), handles, &count, timeout_ms);
        if (size <= 0) {
            return false;
        }
        const gpuipc_status status = wire_decode_packet(bytes, (size_t)size, count, &packet);
        for (size_t i = 0; i < count; i++) {
            raw_handle_close(handles[i]);
        }
        check_ok(status);
    }
    check_ok(wire_decode_reply(packet.bytes, packet.header.bytes, out_reply));
    return true;
}

static void meet(server_ground *on, const server_case *of, unsigned round, server_peer *out_peer) {
    memset(out_peer, 0, sizeof(*out_peer));
    out_peer->on = on;
    out_peer->of = of;
    out_peer->round = round;
    out_peer->raw = server_connect(on);
}

static void part(server_peer *peer) {
    for (size_t i = 0; i < sizeof(peer->others) / sizeof(*peer->others); i++) {
        raw_close(peer->others[i]);
    }
    raw_close(peer->raw);
}

/* ---- what becomes of it ---------------------------------------------------------------------- */

/* A good request is answered as ever. */
static void expect_served(server_peer *peer) {
    wire_reply reply;
    server_ask(peer, WIRE_OPEN, &peer->on->ticket);
    cr_assert(server_hear(peer->raw, PATIENCE_MS, &reply), "\"%s\": it is not served any more",
              peer->of->name);
    cr_assert_eq((int)reply.answer, (int)WIRE_GRANTED, "\"%s\": then it is answered %d",
                 peer->of->name, (int)reply.answer);
}

static void expect_hung_up(const server_peer *peer, const server_ground *on, unsigned before) {
    const gpuipc_status expected = peer->of->status;
    const uint64_t begun_ns = os_clock_ns();
    wire_reply reply;
    while (server_hear(peer->raw, PATIENCE_MS, &reply)) {
    }
    cr_assert(raw_sees_end(peer->raw, PATIENCE_MS), "\"%s\": the server does not hang up",
              peer->of->name);
    /* the peer may see it a moment before the call has returned */
    while (atomic_load(&on->seen[expected]) == before) {
        cr_assert_lt(os_clock_ns() - begun_ns, PATIENCE_MS * UINT64_C(1000000),
                     "\"%s\" ended otherwise than by %s", peer->of->name,
                     gpuipc_status_name(expected));
        os_sleep_ms(1);
    }
}

static void one_round(server_ground *on, const server_case *of, unsigned round) {
    server_peer peer;
    wire_reply reply;
    const unsigned before = atomic_load(&on->seen[of->status]);
    meet(on, of, round, &peer);
    of->act(&peer);
    if (of->end == SERVER_HANGS_UP) {
        expect_hung_up(&peer, on, before);
    } else if (of->end == SERVER_ANSWERS) {
        cr_assert(server_hear(peer.raw, PATIENCE_MS, &reply), "\"%s\": no answer", of->name);
        cr_assert_eq((int)reply.answer, (int)of->answer, "\"%s\" is answered %d, not %d", of->name,
                     (int)reply.answer, (int)of->answer);
        expect_served(&peer);
    } else if (peer.raw != NULL) {
        cr_assert_not(server_hear(peer.raw, HOSTILE_SHORT_MS, &reply), "\"%s\" is answered %d",
                      of->name, (int)reply.answer);
        expect_served(&peer);
    }
    honest_opens(&on->honest, on->text, &on->honest.beside);
    part(&peer);
}

static void check(server_ground *on, const server_case *of) {
    leak_gate gate;
    honest_times unused = {.ns = NULL, .count = HONEST_TIMES_MAX};
    const unsigned form = (unsigned)form_choose(SHORT_ROUNDS, FULL_ROUNDS);
    const unsigned rounds = of->variants > form ? of->variants : form;
    leak_gate_begin(&gate);
    begin_server(on);
    honest_opens(&on->honest, on->text, &unused); /* it has its place before any flood */
    for (unsigned round = 0; round < rounds; round++) {
        honest_opens(&on->honest, on->text, &on->honest.before);
        one_round(on, of, round);
    }
    for (unsigned i = 0; i < SETTLED; i++) {
        honest_opens(&on->honest, on->text, &unused);
    }
    end_server(on);
    cr_assert_eq(process_case_leaks(&on->at, &gate, BACK_MS), 0, "\"%s\" (%s): %s", of->name,
                 of->rule, gate.text);
}

void server_run(const server_case *cases, size_t count) {
    static server_ground on;
    begin(&on);
    for (size_t i = 0; i < count; i++) {
        check(&on, &cases[i]);
    }
    honest_judge(&on.honest, "server");
    end(&on);
}
