/* SPDX-License-Identifier: MIT */
/**
 * @file One server with ten thousand clients that have something open and ask nothing, and a thousand that open and release
 * again and again. Nobody is refused, and in the full form who asks waits hardly longer than without the others. Row 14 of
 * docs/reliability.md. A client is a context with its own connection; some of them are in each process.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "child.h"
#include "form.h"
#include "handle_limit.h"
#include "helper.h"
#include "os.h"
#include "process_size.h"
#include "stress.h"
#include "stress_users.h"
#include "unique.h"

#define PROCESSES    10u
#define IDLE_SHORT   200u
#define IDLE_FULL    10000u
#define ACTIVE_SHORT 40u
#define ACTIVE_FULL  1000u
#define ROUNDS_SHORT 5u
#define ROUNDS_FULL  20u
/* One user may have half of this process's descriptors (base/quota.h), of which each client takes one. The rest of that half
 * is for their processes, and what else he has here. Every other process of clients is another user's, where it may be. */
#define PARTS_OF_USER 2u
#define OTHERS        200u
/* How much longer the slowest of a hundred may wait. Of the few answers of the short form that is one or two, which a busy
 * machine makes late by chance: they are told, and not judged. */
#define TIMES_AT_MOST 3u
#define SHORT_SECONDS 300u
#define FULL_SECONDS  3600u
/* Of one process at most. */
#define CLIENTS_MAX 1024u
#define SAMPLES_MAX (CLIENTS_MAX * ROUNDS_FULL)

/* ---- clients --------------------------------------------------------------------------------------- */

static struct {
    gpuipc_context *contexts[CLIENTS_MAX];
    gpuipc_buffer *kept[CLIENTS_MAX];
    uint32_t count;
    uint32_t opened; /* each opens another byte, so that the server is asked */
    gpuipc_ticket ticket;
} clients;

static int admit_all(void *user_data, const gpuipc_peer_info *peer) {
    (void)user_data;
    (void)peer;
    return 1;
}

static bool are_two_users; /* of the directory */

static gpuipc_context *context_in(const char *directory) {
    const gpuipc_context_config config = {.struct_size = sizeof(config),
                                          .flags =
                                              are_two_users ? GPUIPC_CONTEXT_SHARED_DIRECTORY : 0,
                                          .runtime_directory = directory};
    gpuipc_context *made = NULL;
    STRESS_OK(gpuipc_context_create(&config, &made));
    return made;
}

static gpuipc_buffer *open_byte(gpuipc_context *within) {
    const gpuipc_open_config config = {
        .struct_size = sizeof(config), .timeout_ms = STRESS_SOON_MS, .policy = admit_all};
    gpuipc_ticket part;
    gpuipc_buffer *opened = NULL;
    STRESS_OK(gpuipc_ticket_narrow(&clients.ticket, clients.opened++ % 4096, 1, &part));
    STRESS_OK(gpuipc_buffer_open(within, &part, &config, &opened));
    return opened;
}

static void join(const char *directory) {
    for (uint32_t i = 0; i < clients.count; i++) {
        clients.contexts[i] = context_in(directory);
        clients.kept[i] = open_byte(clients.contexts[i]);
    }
}

static void leave(void) {
    for (uint32_t i = 0; i < clients.count; i++) {
        STRESS_OK(gpuipc_buffer_release(clients.kept[i]));
        STRESS_OK(gpuipc_context_destroy(clients.contexts[i]));
    }
}

/* Each asks in turn; one line for each answer's time. */
static void ask(uint32_t rounds) {
    for (uint32_t round = 0; round < rounds; round++) {
        for (uint32_t i = 0; i < clients.count; i++) {
            const uint64_t begun_ns = os_clock_ns();
            gpuipc_buffer *opened = open_byte(clients.contexts[i]);
            (void)printf("%" PRIu64 "\n", os_clock_ns() - begun_ns);
            STRESS_OK(gpuipc_buffer_release(opened));
        }
    }
    helper_say("asked");
}

/* What a driver opens when a device is used first may be the first user's alone. */
static void become_other(const char *directory) {
    gpuipc_context *first = context_in(directory);
    STRESS_OK(gpuipc_buffer_release(stress_buffer(first, GPUIPC_TRANSPORT_DEFAULT, 1)));
    STRESS_EXPECT(stress_users_become_other());
    STRESS_OK(gpuipc_context_destroy(first));
}

/* clients DIRECTORY COUNT TICKET SEED SECONDS "other"|"first"|"only": which user. Lines: "ask ROUNDS"; the end of the input. */
static int run_clients(char **arguments) {
    char line[CHILD_LINE_MAX];
    uint32_t rounds = 0;
    helper_begin();
    (void)handle_limit_raise(UINT64_C(65536));
    stress_begin_peer("many", strtoull(arguments[3], NULL, 10),
                      (unsigned)strtoul(arguments[4], NULL, 10));
    clients.count = (uint32_t)strtoul(arguments[1], NULL, 10);
    STRESS_EXPECT(clients.count <= CLIENTS_MAX);
    are_two_users = strcmp(arguments[5], "only") != 0;
    STRESS_OK(gpuipc_ticket_from_text(arguments[2], &clients.ticket));
    if (strcmp(arguments[5], "other") == 0) {
        become_other(arguments[0]);
    }
    join(arguments[0]);
    helper_say("joined");
    while (helper_hear(line, sizeof(line))) {
        STRESS_EXPECT(sscanf(line, "ask %" SCNu32, &rounds) == 1);
        ask(rounds);
    }
    leave();
    return stress_end("over");
}

/* ---- who serves them ------------------------------------------------------------------------------- */

typedef struct crowd {
    child_process *processes[PROCESSES];
} crowd;

static char directory[RUNTIME_DIRECTORY_MAX];
static char ticket_text[GPUIPC_TICKET_TEXT_SIZE];
static uint64_t samples[PROCESSES * SAMPLES_MAX];

static void hear(child_process *from, const char *expected) {
    char line[CHILD_LINE_MAX];
    STRESS_OK(child_read_line(from, line, sizeof(line), (int)FULL_SECONDS * 1000));
    if (strcmp(line, expected) != 0) {
        stress_fail("a client said \"%s\", not \"%s\"", line, expected);
    }
}

static void crowd_begin(crowd *self, uint32_t clients_of_all) {
    char count[16];
    char seed[24];
    char seconds[24];
    const char *arguments[] = {"clients", directory, count, ticket_text, seed, seconds, NULL, NULL};
    (void)snprintf(count, sizeof(count), "%" PRIu32, clients_of_all / PROCESSES);
    (void)snprintf(seed, sizeof(seed), "%" PRIu64, stress_seed());
    (void)snprintf(seconds, sizeof(seconds), "%u", stress_seconds());
    for (uint32_t i = 0; i < PROCESSES; i++) {
        arguments[6] = !are_two_users ? "only" : i % 2 == 1 ? "other" : "first";
        STRESS_OK(child_start("stress_many", arguments, NULL, &self->processes[i]));
    }
    for (uint32_t i = 0; i < PROCESSES; i++) {
        hear(self->processes[i], "joined");
    }
}

static void crowd_end(const crowd *self) {
    for (uint32_t i = 0; i < PROCESSES; i++) {
        child_close_input(self->processes[i]);
    }
    for (uint32_t i = 0; i < PROCESSES; i++) {
        child_end end = {.exited = false};
        STRESS_OK(child_wait(self->processes[i], (int)FULL_SECONDS * 1000, &end));
        child_destroy(self->processes[i]);
        if (!end.exited || end.code != 0) {
            stress_fail("clients ended with %d", end.code);
        }
    }
}

static int compare(const void *a, const void *b) {
    const uint64_t one = *(const uint64_t *)a;
    const uint64_t other = *(const uint64_t *)b;
    return (one > other) - (one < other);
}

static size_t read_answers(child_process *from, uint64_t *into, size_t room) {
    char line[CHILD_LINE_MAX];
    size_t count = 0;
    for (;;) {
        STRESS_OK(child_read_line(from, line, sizeof(line), (int)FULL_SECONDS * 1000));
        if (strcmp(line, "asked") == 0) {
            return count;
        }
        STRESS_EXPECT(count < room);
        into[count++] = strtoull(line, NULL, 10);
    }
}

/* @return what the slowest of a hundred waited */
static uint64_t crowd_ask(const crowd *self, uint32_t rounds, const char *when) {
    char line[32];
    size_t count = 0;
    (void)snprintf(line, sizeof(line), "ask %" PRIu32, rounds);
    for (uint32_t i = 0; i < PROCESSES; i++) {
        STRESS_OK(child_write_line(self->processes[i], line));
    }
    for (uint32_t i = 0; i < PROCESSES; i++) {
        count += read_answers(self->processes[i], samples + count, SAMPLES_MAX);
    }
    qsort(samples, count, sizeof(samples[0]), compare);
    const uint64_t p99 = samples[count - 1 - count / 100];
    (void)printf("stress.many: %s: %zu answers, p50 %" PRIu64 " us, p99 %" PRIu64
                 " us, the slowest %" PRIu64 " us\n",
                 when, count, samples[count / 2] / 1000, p99 / 1000, samples[count - 1] / 1000);
    return p99;
}

static void serve(gpuipc_context *within, gpuipc_server **out_server, gpuipc_buffer **out_buffer,
                  uint32_t most) {
    const gpuipc_server_config config = {.struct_size = sizeof(config),
                                         .flags = GPUIPC_SERVER_THREAD,
                                         .policy = admit_all,
                                         .max_connections = most,
                                         .max_connections_per_user = most};
    gpuipc_ticket ticket;
    *out_buffer = stress_buffer(within, GPUIPC_TRANSPORT_DEFAULT, 1);
    STRESS_OK(gpuipc_server_create(within, &config, out_server));
    STRESS_OK(gpuipc_buffer_share(*out_server, *out_buffer, NULL, &ticket));
    STRESS_OK(gpuipc_ticket_to_text(&ticket, ticket_text));
}

/* So many clients as their users may have descriptors of this process for, in tens and tens of processes. */
static uint32_t idle_count(uint32_t active) {
    const uint64_t wanted = form_choose(IDLE_SHORT, IDLE_FULL);
    const uint64_t limit = handle_limit_raise(UINT64_C(65536));
    const uint64_t users = are_two_users ? 2 : 1;
    const uint64_t of_user = limit / PARTS_OF_USER;
    uint64_t most = of_user > OTHERS ? (of_user - OTHERS) * users : 0;
    most = most > active ? most - active : 0;
    if (most < wanted) {
        (void)printf("stress.many: %" PRIu64 " idle clients only: %" PRIu64
                     " descriptors are allowed, half of them to one user\n",
                     most, limit);
    }
    const uint64_t chosen = most < wanted ? most : wanted;
    STRESS_EXPECT(chosen >= PROCESSES);
    return (uint32_t)(chosen - chosen % PROCESSES);
}

int main(int argc, char **argv) {
    crowd active;
    crowd idle;
    gpuipc_server *server = NULL;
    gpuipc_buffer *buffer = NULL;
    const uint32_t active_count = (uint32_t)form_choose(ACTIVE_SHORT, ACTIVE_FULL);
    const uint32_t rounds = (uint32_t)form_choose(ROUNDS_SHORT, ROUNDS_FULL);
    if (argc == 8 && strcmp(argv[1], "clients") == 0) {
        return run_clients(argv + 2);
    }
    stress_set_seconds((unsigned)form_choose(SHORT_SECONDS, FULL_SECONDS));
    stress_begin("many", argc, argv);
    STRESS_EXPECT(runtime_directory_make(directory));
    are_two_users = stress_users_share(directory);
    const uint32_t idle_clients = idle_count(active_count);
    gpuipc_context *within = context_in(directory);
    serve(within, &server, &buffer, active_count + idle_clients);
    crowd_begin(&active, active_count);
    (void)crowd_ask(&active, rounds, "warming up");
    const uint64_t alone_ns = crowd_ask(&active, rounds, "without idle clients");
    crowd_begin(&idle, idle_clients);
    const uint64_t beside_ns = crowd_ask(&active, rounds, "beside them");
    process_size size;
    STRESS_EXPECT(process_size_get(&size));
    (void)printf("stress.many: the server has %" PRIu64 " handles, %" PRIu64 " mappings, %" PRIu64
                 " KiB of memory\n",
                 size.handles, size.mappings, size.resident_bytes / 1024);
    crowd_end(&idle);
    crowd_end(&active);
    STRESS_OK(gpuipc_server_destroy(server));
    STRESS_OK(gpuipc_buffer_await_returns(buffer, STRESS_SOON_MS));
    STRESS_OK(gpuipc_buffer_release(buffer));
    STRESS_OK(gpuipc_context_destroy(within));
    runtime_directory_remove(directory);
    if (form_is_full() && beside_ns > TIMES_AT_MOST * alone_ns) {
        stress_fail("the slowest of a hundred waited %" PRIu64 " us, and %" PRIu64
                    " us beside %" PRIu32 " idle clients",
                    alone_ns / 1000, beside_ns / 1000, idle_clients);
    }
    return stress_end("%" PRIu32 " active clients and %" PRIu32 " idle ones, none refused",
                      active_count, idle_clients);
}
