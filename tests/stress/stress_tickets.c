/* SPDX-License-Identifier: MIT */
/**
 * @file Many threads that share, open, read, release and revoke tickets while the server and the contexts of both sides
 * are destroyed, in another order each round; in this process, where a server is asked directly, and in another one, whose
 * threads have one connection to it.
 */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "child.h"
#include "helper.h"
#include "os.h"
#include "stress.h"
#include "unique.h"

#define BUFFERS    3
#define SHARERS    2
#define OPENERS    3
#define PEERS_OWN  3
#define FIRST_WORD 4711u

typedef struct round_state {
    gpuipc_context *owner;
    gpuipc_context *opener;
    gpuipc_server *server;
    gpuipc_buffer *buffers[BUFFERS];
    gpuipc_ticket tickets[BUFFERS];
    atomic_uint opened;
} round_state;

/* A thread of a round, or of the peer's. */
typedef struct actor {
    round_state *of;
    gpuipc_context *within;
    unsigned number;
    uint64_t random;
    os_thread *thread;
} actor;

static char directory[RUNTIME_DIRECTORY_MAX];

/* What a call may answer when what it needs is ended at the same time. */
static const gpuipc_status ended[] = {GPUIPC_ERR_RELEASED, GPUIPC_ERR_EXPORTER_GONE, GPUIPC_OK};
static const gpuipc_status ended_or_over[] = {GPUIPC_ERR_RELEASED,       GPUIPC_ERR_EXPORTER_GONE,
                                              GPUIPC_ERR_TICKET_REVOKED, GPUIPC_ERR_TICKET_EXPIRED,
                                              GPUIPC_ERR_TICKET_USED_UP, GPUIPC_OK};

static bool is_over(gpuipc_status status) {
    return status == GPUIPC_ERR_RELEASED || status == GPUIPC_ERR_EXPORTER_GONE;
}

/* What is open stays what it is, whatever ends meanwhile. */
static void use(actor *self, gpuipc_buffer *opened, uint32_t expected) {
    uint32_t word = 0;
    stress_now(self->number, "gpuipc_buffer_read");
    STRESS_OK(gpuipc_buffer_read(opened, 0, &word, sizeof(word)));
    if (word != expected) {
        stress_fail("a buffer begins with %" PRIu32 ", not %" PRIu32, word, expected);
    }
    stress_now(self->number, "gpuipc_buffer_release");
    STRESS_OK(gpuipc_buffer_release(opened));
    atomic_fetch_add(&self->of->opened, 1u);
}

static gpuipc_status open_one(actor *self, const gpuipc_ticket *wanted, const gpuipc_status *may_be,
                              uint32_t expected) {
    const gpuipc_open_config config = {
        .struct_size = sizeof(config),
        .flags = stress_random(&self->random, 2) == 0 ? GPUIPC_RECEIVE_ASYNC : 0,
        .timeout_ms = STRESS_SOON_MS};
    gpuipc_buffer *opened = NULL;
    stress_now(self->number, "gpuipc_buffer_open");
    const gpuipc_status status = stress_allow(
        gpuipc_buffer_open(self->within, wanted, &config, &opened), "gpuipc_buffer_open", may_be);
    if (status == GPUIPC_OK) {
        use(self, opened, expected);
    }
    return status;
}

static void open_until_the_end(void *argument) {
    actor *self = argument;
    gpuipc_status status;
    do {
        const uint32_t which = stress_random(&self->random, BUFFERS);
        status = open_one(self, &self->of->tickets[which], ended, FIRST_WORD + which);
    } while (!is_over(status));
    stress_now(self->number, NULL);
}

/* One ticket of this thread's own: from its making to its end. */
static gpuipc_status share_one(actor *self) {
    round_state *of = self->of;
    const uint32_t which = stress_random(&self->random, BUFFERS);
    const gpuipc_share_config config = {
        .struct_size = sizeof(config),
        .flags = stress_random(&self->random, 2) == 0 ? GPUIPC_SEND_ASYNC : 0,
        .expires_ms = stress_random(&self->random, 4) == 0 ? 1 : 0,
        .max_processes = stress_random(&self->random, 3)};
    gpuipc_ticket made;
    gpuipc_holder holders[4];
    size_t count = 0;
    stress_now(self->number, "gpuipc_buffer_share");
    gpuipc_status status =
        stress_allow(gpuipc_buffer_share(of->server, of->buffers[which], &config, &made),
                     "gpuipc_buffer_share", ended);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = open_one(self, &made, ended_or_over, FIRST_WORD + which);
    if (is_over(status)) {
        return status;
    }
    stress_now(self->number, "gpuipc_server_holders");
    status = stress_allow(gpuipc_server_holders(of->server, &made, holders, 4, &count),
                          "gpuipc_server_holders", ended);
    if (status == GPUIPC_OK && stress_random(&self->random, 4) != 0) {
        stress_now(self->number, "gpuipc_server_revoke");
        status = stress_allow(gpuipc_server_revoke(of->server, &made), "gpuipc_server_revoke",
                              ended_or_over);
    }
    return status;
}

static void share_until_the_end(void *argument) {
    actor *self = argument;
    while (!is_over(share_one(self))) {
    }
    stress_now(self->number, NULL);
}

/* ---- the other process ----------------------------------------------------------------------- */

static bool read_tickets(const char *line, round_state *of) {
    char texts[BUFFERS][GPUIPC_TICKET_TEXT_SIZE];
    if (sscanf(line, "%94s %94s %94s", texts[0], texts[1], texts[2]) != BUFFERS) {
        return false;
    }
    for (size_t i = 0; i < BUFFERS; i++) {
        STRESS_OK(gpuipc_ticket_from_text(texts[i], &of->tickets[i]));
    }
    return true;
}

/* Its context is destroyed by one of its threads, in every other round. */
static void peer_round(round_state *of, uint64_t *random) {
    actor actors[PEERS_OWN];
    gpuipc_context *within = stress_context(directory);
    for (unsigned i = 0; i < PEERS_OWN; i++) {
        actors[i] = (actor){
            .of = of, .within = within, .number = i, .random = stress_random(random, UINT32_MAX)};
        STRESS_OK(os_thread_start(open_until_the_end, &actors[i], &actors[i].thread));
    }
    const bool ends_first = stress_random(random, 2) == 0;
    if (ends_first) {
        os_sleep_ms(stress_random(random, 8));
        stress_now(PEERS_OWN, "gpuipc_context_destroy");
        STRESS_OK(gpuipc_context_destroy(within));
    }
    for (unsigned i = 0; i < PEERS_OWN; i++) {
        os_thread_join(actors[i].thread);
    }
    if (!ends_first) {
        STRESS_OK(gpuipc_context_destroy(within));
    }
    stress_now(PEERS_OWN, NULL);
}

/* peer DIRECTORY SEED SECONDS: reads a line of tickets for each round. */
static int run_peer(char **arguments) {
    round_state of = {.owner = NULL};
    char line[BUFFERS * GPUIPC_TICKET_TEXT_SIZE + 8];
    helper_begin();
    stress_begin_peer("tickets", strtoull(arguments[1], NULL, 10),
                      (unsigned)strtoul(arguments[2], NULL, 10));
    (void)snprintf(directory, sizeof(directory), "%s", arguments[0]);
    uint64_t random = stress_state(1000);
    while (helper_hear(line, sizeof(line)) && read_tickets(line, &of)) {
        atomic_store(&of.opened, 0);
        peer_round(&of, &random);
        helper_say("%u", atomic_load(&of.opened));
    }
    return stress_end("over");
}

static child_process *start_peer(unsigned seconds) {
    char seed[32];
    char limit[32];
    const char *const arguments[] = {"peer", directory, seed, limit, NULL};
    child_process *peer = NULL;
    (void)snprintf(seed, sizeof(seed), "%" PRIu64, stress_seed());
    (void)snprintf(limit, sizeof(limit), "%u", seconds);
    STRESS_OK(child_start("stress_tickets", arguments, NULL, &peer));
    return peer;
}

static void tell_peer(child_process *peer, const round_state *of) {
    char line[BUFFERS * GPUIPC_TICKET_TEXT_SIZE + 8] = "";
    for (size_t i = 0; i < BUFFERS; i++) {
        char text[GPUIPC_TICKET_TEXT_SIZE];
        STRESS_OK(gpuipc_ticket_to_text(&of->tickets[i], text));
        (void)strcat(strcat(line, text), " ");
    }
    STRESS_OK(child_write_line(peer, line));
}

static unsigned hear_peer(child_process *peer) {
    char answer[CHILD_LINE_MAX];
    stress_now(20, "waiting for the other process");
    STRESS_OK(child_read_line(peer, answer, sizeof(answer), 3 * STRESS_SOON_MS));
    return (unsigned)strtoul(answer, NULL, 10);
}

static void end_peer(child_process *peer) {
    child_end end = {.exited = false};
    child_close_input(peer);
    STRESS_OK(child_wait(peer, 3 * STRESS_SOON_MS, &end));
    child_destroy(peer);
    if (!end.exited || end.code != 0) {
        stress_fail("the other process ended with %d", end.code);
    }
}

/* ---- a round --------------------------------------------------------------------------------- */

static void begin_round(round_state *self) {
    self->owner = stress_context(directory);
    self->opener = stress_context(directory);
    STRESS_OK(gpuipc_server_create(self->owner, NULL, &self->server));
    for (uint32_t i = 0; i < BUFFERS; i++) {
        self->buffers[i] = stress_buffer(self->owner, GPUIPC_TRANSPORT_DEFAULT, FIRST_WORD + i);
        STRESS_OK(gpuipc_buffer_share(self->server, self->buffers[i], NULL, &self->tickets[i]));
    }
}

/* The server and both contexts, in one of six orders. */
static void end_all(round_state *self, uint64_t *random) {
    const uint32_t first = stress_random(random, 3);
    const bool is_reversed = stress_random(random, 2) != 0;
    for (uint32_t i = 0; i < 3; i++) {
        const uint32_t which = (first + (is_reversed ? 3 - i : i)) % 3;
        stress_now(20, which == 0 ? "gpuipc_server_destroy" : "gpuipc_context_destroy");
        STRESS_OK(which == 0   ? gpuipc_server_destroy(self->server)
                  : which == 1 ? gpuipc_context_destroy(self->owner)
                               : gpuipc_context_destroy(self->opener));
        os_sleep_ms(stress_random(random, 3));
    }
}

static unsigned run_round(child_process *peer, uint64_t *random) {
    round_state self = {.owner = NULL};
    actor actors[SHARERS + OPENERS];
    begin_round(&self);
    tell_peer(peer, &self);
    for (unsigned i = 0; i < SHARERS + OPENERS; i++) {
        actors[i] = (actor){.of = &self,
                            .within = i % 3 == 0 ? self.owner : self.opener,
                            .number = i,
                            .random = stress_random(random, UINT32_MAX)};
        STRESS_OK(os_thread_start(i < SHARERS ? share_until_the_end : open_until_the_end,
                                  &actors[i], &actors[i].thread));
    }
    os_sleep_ms(stress_random(random, 12));
    end_all(&self, random);
    for (unsigned i = 0; i < SHARERS + OPENERS; i++) {
        stress_now(20, "joining a thread");
        os_thread_join(actors[i].thread);
    }
    const unsigned there = hear_peer(peer);
    for (uint32_t i = 0; i < BUFFERS; i++) {
        stress_now(20, "gpuipc_buffer_await_returns");
        STRESS_OK(gpuipc_buffer_await_returns(self.buffers[i], STRESS_SOON_MS));
        STRESS_OK(gpuipc_buffer_release(self.buffers[i]));
    }
    return there + atomic_load(&self.opened);
}

int main(int argc, char **argv) {
    unsigned rounds = 0;
    unsigned long long opened = 0;
    if (argc == 5 && strcmp(argv[1], "peer") == 0) {
        return run_peer(argv + 2);
    }
    stress_begin("tickets", argc, argv);
    STRESS_EXPECT(runtime_directory_make(directory));
    child_process *peer = start_peer(stress_seconds());
    uint64_t random = stress_state(0);
    for (; stress_goes_on(); rounds++) {
        opened += run_round(peer, &random);
    }
    end_peer(peer);
    runtime_directory_remove(directory);
    return stress_end("%u rounds, %llu openings", rounds, opened);
}
