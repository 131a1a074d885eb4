/* SPDX-License-Identifier: MIT */
/** @file See scenario_more.h. */
#include "scenario_more.h"

#include <stdio.h>
#include <string.h>

#include "fault_point.h"
#include "named_calls.h"
#include "os.h"
#include "scenario_parts.h"

/* Enough for anything that ought to happen at once, on a machine that is busy. */
#define SOON_MS 20000

fault_peer scenario_peer;

/* ---- another process ------------------------------------------------------------------------------ */

gpuipc_status scenario_peer_start(void) {
    const char *const arguments[] = {scenario_peer.directory, NULL};
    char line[CHILD_LINE_MAX];
    gpuipc_status status;
    if (!runtime_directory_make(scenario_peer.directory)) {
        return GPUIPC_ERR_OS;
    }
    TRY(child_start("fault_peer", arguments, NULL, &scenario_peer.child))
    TRY(child_read_line(scenario_peer.child, line, sizeof(line), SOON_MS))
    TRY(gpuipc_ticket_from_text(line, &scenario_peer.ticket))
give_back: /* scenario_peer_end does */
    return status;
}

gpuipc_status scenario_peer_visit(const char *directory, const gpuipc_ticket *ticket) {
    char text[GPUIPC_TICKET_TEXT_SIZE];
    gpuipc_status status = gpuipc_ticket_to_text(ticket, text);
    if (status == GPUIPC_OK) {
        status = child_write_line(scenario_peer.child, directory);
    }
    return status == GPUIPC_OK ? child_write_line(scenario_peer.child, text) : status;
}

gpuipc_status scenario_peer_answer(char line[CHILD_LINE_MAX]) {
    return child_read_line(scenario_peer.child, line, CHILD_LINE_MAX, SOON_MS);
}

void scenario_peer_end(void) {
    child_destroy(scenario_peer.child);
    runtime_directory_remove(scenario_peer.directory);
}

/* ---- prepare ---------------------------------------------------------------------------------------- */

static gpuipc_status prepare_listener(scenario_state *state) {
    gpuipc_status status;
    TRY(scenario_prepare_data(state))
    TRY(gpuipc_listener_open(state->context, "name", NULL, &state->listener))
    TRY(gpuipc_connection_open(state->context, "name", NULL, 0, &state->client))
give_back: /* scenario_end does */
    return status;
}

static gpuipc_status prepare_ends(scenario_state *state) {
    gpuipc_status status = prepare_listener(state);
    return status == GPUIPC_OK ? gpuipc_listener_accept(state->listener, 0, &state->connection)
                               : status;
}

static gpuipc_status prepare_message(scenario_state *state) {
    gpuipc_status status = prepare_ends(state);
    return status == GPUIPC_OK ? scenario_send(state->client, state->buffer, NULL) : status;
}

/* A server without a thread, which shares a buffer. */
static gpuipc_status prepare_server(scenario_state *state) {
    const gpuipc_server_config polled = {.struct_size = sizeof(polled)};
    gpuipc_status status;
    TRY(scenario_prepare_data(state))
    TRY(gpuipc_server_create(state->context, &polled, &state->server))
    TRY(gpuipc_buffer_share(state->server, state->buffer, NULL, &state->ticket))
give_back: /* scenario_end does */
    return status;
}

/* A context where the other process's server is. */
static gpuipc_status prepare_near_peer(scenario_state *state) {
    scenario_state there = *state;
    (void)snprintf(there.directory, sizeof(there.directory), "%s", scenario_peer.directory);
    return scenario_make_context(&there, &state->context);
}

static gpuipc_status prepare_folder(scenario_state *state) {
    (void)state;
    return GPUIPC_OK;
}

/* ---- run -------------------------------------------------------------------------------------------- */

static gpuipc_status run_accept(scenario_state *state) {
    gpuipc_connection *made = NULL;
    gpuipc_status status = gpuipc_listener_accept(state->listener, 0, &made);
    if (status == GPUIPC_OK) {
        (void)gpuipc_connection_close(made);
    }
    return status;
}

static gpuipc_status run_send(scenario_state *state) {
    return scenario_send(state->client, state->buffer, state->stream);
}

static gpuipc_status run_receive(scenario_state *state) {
    gpuipc_buffer *opened = NULL;
    gpuipc_status status = scenario_receive(state->connection, 0, &opened);
    if (status == GPUIPC_OK) {
        (void)gpuipc_buffer_release(opened);
    }
    return status;
}

enum {
    MANY = 6
};

/* So many messages on their way at a time. */
static gpuipc_status run_many(scenario_state *state) {
    gpuipc_buffer *opened[MANY] = {NULL};
    gpuipc_status status = GPUIPC_OK;
    for (size_t i = 0; i < MANY; i++) {
        TRY(scenario_send(state->client, i % 2 == 0 ? state->buffer : state->other, NULL))
    }
    for (size_t i = 0; i < MANY; i++) {
        TRY(scenario_receive(state->connection, 0, &opened[i]))
    }
give_back:
    for (size_t i = 0; i < MANY; i++) {
        (void)gpuipc_buffer_release(opened[i]);
    }
    return status;
}

/* With a message that nobody takes any more. */
static gpuipc_status run_close(scenario_state *state) {
    const gpuipc_status answers[] = {gpuipc_connection_close(state->client),
                                     gpuipc_connection_close(state->connection),
                                     gpuipc_listener_close(state->listener)};
    state->client = NULL;
    state->connection = NULL;
    state->listener = NULL;
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        if (answers[i] != GPUIPC_OK) {
            return answers[i];
        }
    }
    return GPUIPC_OK;
}

/* A server that still shares, what it shares, and the context. */
static gpuipc_status run_destroy(scenario_state *state) {
    const gpuipc_status answers[] = {
        gpuipc_server_destroy(state->server), gpuipc_buffer_release(state->buffer),
        gpuipc_buffer_release(state->other), gpuipc_context_destroy(state->context)};
    state->server = NULL;
    state->buffer = NULL;
    state->other = NULL;
    state->context = NULL;
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        if (answers[i] != GPUIPC_OK) {
            return answers[i];
        }
    }
    return GPUIPC_OK;
}

static gpuipc_status run_revoke(scenario_state *state) {
    gpuipc_ticket ticket;
    gpuipc_status status = gpuipc_buffer_share(state->server, state->other, NULL, &ticket);
    return status == GPUIPC_OK ? gpuipc_server_revoke(state->server, &ticket) : status;
}

/* What another process shares. */
static gpuipc_status run_open(scenario_state *state) {
    gpuipc_buffer *opened = NULL;
    uint32_t word = 0;
    gpuipc_status status;
    TRY(gpuipc_buffer_open(state->context, &scenario_peer.ticket, NULL, &opened))
    TRY(gpuipc_buffer_read(opened, 0, &word, sizeof(word)))
give_back:
    (void)gpuipc_buffer_release(opened);
    return status;
}

/* Another process opens a ticket here. The one that asks is answered until it says what came of it. */
static gpuipc_status run_serve(scenario_state *state) {
    char line[CHILD_LINE_MAX] = "";
    gpuipc_status status;
    fault_pause();
    gpuipc_status heard = scenario_peer_visit(state->directory, &state->ticket);
    const os_deadline deadline = os_deadline_after(SOON_MS);
    while (heard == GPUIPC_OK && line[0] == '\0' && !os_deadline_passed(deadline)) {
        fault_resume();
        status = gpuipc_server_poll(state->server, 20);
        fault_pause();
        if (status != GPUIPC_OK && status != GPUIPC_ERR_TIMEOUT) {
            break;
        }
        heard = child_read_line(scenario_peer.child, line, sizeof(line), 0);
        heard = heard == GPUIPC_ERR_TIMEOUT ? GPUIPC_OK : heard;
    }
    /* Whoever waits for a server that has failed learns of its end. */
    fault_resume();
    (void)gpuipc_server_destroy(state->server);
    fault_pause();
    state->server = NULL;
    if (heard == GPUIPC_OK && line[0] == '\0') {
        heard = scenario_peer_answer(line);
    }
    fault_resume();
    return heard;
}

static gpuipc_status run_mark(scenario_state *state) {
    gpuipc_buffer *opened = NULL;
    gpuipc_mark mark;
    gpuipc_status status;
    TRY(scenario_send(state->client, state->buffer, NULL))
    TRY(scenario_receive(state->connection, 0, &opened))
    TRY(gpuipc_buffer_mark(state->buffer, state->stream, &mark))
    TRY(gpuipc_buffer_await_mark(opened, &mark, SOON_MS))
    TRY(gpuipc_buffer_await_mark_async(opened, &mark, state->stream))
give_back:
    while (state->driver.cuStreamQuery(state->stream) == CUDA_ERROR_NOT_READY) {
    }
    (void)gpuipc_buffer_release(opened);
    return status;
}

/* Whether each transport works is an answer; that it does not, too. */
static gpuipc_status run_probe(scenario_state *state) {
    const gpuipc_transport_pair pair = {.struct_size = sizeof(pair), .owner = 0, .user = 1};
    gpuipc_status status = GPUIPC_OK;
    for (uint32_t i = 1; i <= GPUIPC_TRANSPORT_FABRIC && status == GPUIPC_OK; i++) {
        gpuipc_transport_info info = {.struct_size = sizeof(info)};
        status = gpuipc_transport_query(state->context, (gpuipc_transport)i, &pair, &info);
    }
    return status;
}

static gpuipc_status run_diagnose(scenario_state *state) {
    const gpuipc_context_config config = {
        .struct_size = sizeof(config), .driver = "emulated", .runtime_directory = state->directory};
    gpuipc_finding findings[GPUIPC_FINDING_COUNT];
    size_t count;
    return gpuipc_diagnose(&config, 0, findings, GPUIPC_FINDING_COUNT, &count);
}

/* The file of measurements, as the library keeps it. */
static gpuipc_status run_file(scenario_state *state) {
    static const char text[] = "measured";
    char read[64];
    size_t size;
    gpuipc_status status = os_file_replace(state->directory, "file", text, sizeof(text));
    if (status == GPUIPC_OK) {
        status = os_file_read(state->directory, "file", read, sizeof(read), &size);
    }
    return status == GPUIPC_OK && (size != sizeof(text) || memcmp(read, text, size) != 0)
               ? GPUIPC_ERR_PROTOCOL
               : status;
}

const scenario more_scenarios[] = {
    {"accept", prepare_listener, run_accept},
    {"send", prepare_ends, run_send},
    {"receive", prepare_message, run_receive},
    {"many", prepare_ends, run_many},
    {"close", prepare_message, run_close},
    {"destroy", prepare_server, run_destroy},
    {"revoke", prepare_server, run_revoke},
    {"open", prepare_near_peer, run_open},
    {"serve", prepare_server, run_serve},
    {"mark", prepare_ends, run_mark},
    {"probe", scenario_prepare_context, run_probe},
    {"diagnose", prepare_folder, run_diagnose},
    {"file", prepare_folder, run_file},
};
const size_t more_scenario_count = sizeof(more_scenarios) / sizeof(more_scenarios[0]);
