/* SPDX-License-Identifier: MIT */
/**
 * @file Many processes, each of which shares a buffer and opens those of others, keeps them a while, returns and releases
 * them, while one after the other is killed and another takes its place. Who is left goes on, what the dead had comes
 * back, and in the end nothing is left: no handles, no mappings, no objects of the driver, no files in the runtime
 * directory.
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

#define MEMBERS 64
#define KNOWN   16 /* tickets of others that a member knows */
#define KEPT    6  /* buffers that a thread of a member has open at a time */
#define WORKERS 2
#define TOLD    4 /* members that are told of a new one's ticket */

static char directory[RUNTIME_DIRECTORY_MAX];

/* ---- a member -------------------------------------------------------------------------------- */

/* A ticket, and the word that its buffer begins with. */
typedef struct offer {
    gpuipc_ticket ticket;
    uint32_t word;
} offer;

static struct {
    gpuipc_context *context;
    gpuipc_server *server;
    gpuipc_buffer *buffer;
    uint32_t word;
    gpuipc_ticket ticket;
    os_mutex mutex;
    offer known[KNOWN]; /* the mutex guards them */
    uint32_t known_count;
    uint32_t known_next;
    atomic_bool is_over;
} own;

typedef struct worker {
    unsigned number;
    uint64_t random;
    gpuipc_buffer *kept[KEPT];
    uint32_t kept_count;
    os_thread *thread;
} worker;

/* Its owner may have been killed. */
static const gpuipc_status may_be_gone[] = {GPUIPC_ERR_EXPORTER_GONE, GPUIPC_OK};

static void give_back(worker *self) {
    const uint32_t which = stress_random(&self->random, self->kept_count);
    gpuipc_buffer *opened = self->kept[which];
    self->kept[which] = self->kept[--self->kept_count];
    /* May be open by another thread of this process too, by the same ticket: then it is not returned yet. */
    static const gpuipc_status may_be_shared[] = {GPUIPC_ERR_INVALID_ARGUMENT, GPUIPC_OK};
    if (stress_random(&self->random, 2) == 0) {
        stress_now(self->number, "gpuipc_buffer_return_async");
        (void)stress_allow(gpuipc_buffer_return_async(opened, NULL), "gpuipc_buffer_return_async",
                           may_be_shared);
    }
    stress_now(self->number, "gpuipc_buffer_release");
    STRESS_OK(gpuipc_buffer_release(opened));
}

static bool pick(worker *self, offer *out_offer) {
    os_mutex_lock(&own.mutex);
    const uint32_t count = own.known_count;
    if (count > 0) {
        *out_offer = own.known[stress_random(&self->random, count)];
    }
    os_mutex_unlock(&own.mutex);
    return count > 0;
}

static void open_one(worker *self) {
    const gpuipc_open_config config = {.struct_size = sizeof(config), .timeout_ms = STRESS_SOON_MS};
    gpuipc_buffer *opened = NULL;
    uint32_t word = 0;
    offer wanted;
    if (!pick(self, &wanted)) {
        os_sleep_ms(1);
        return;
    }
    stress_now(self->number, "gpuipc_buffer_open");
    if (stress_allow(gpuipc_buffer_open(own.context, &wanted.ticket, &config, &opened),
                     "gpuipc_buffer_open", may_be_gone) != GPUIPC_OK) {
        return;
    }
    stress_now(self->number, "gpuipc_buffer_read");
    STRESS_OK(gpuipc_buffer_read(opened, 0, &word, sizeof(word)));
    if (word != wanted.word) {
        stress_fail("a buffer begins with %08" PRIx32 ", not %08" PRIx32, word, wanted.word);
    }
    self->kept[self->kept_count++] = opened;
}

/* A ticket of its own that lives for a moment, and who has the one that the others know. */
static void share_one(worker *self) {
    gpuipc_ticket made;
    gpuipc_holder holders[2 * MEMBERS];
    size_t count = 0;
    stress_now(self->number, "gpuipc_buffer_share");
    STRESS_OK(gpuipc_buffer_share(own.server, own.buffer, NULL, &made));
    stress_now(self->number, "gpuipc_server_holders");
    STRESS_OK(gpuipc_server_holders(own.server, &own.ticket, holders, 2 * MEMBERS, &count));
    stress_now(self->number, "gpuipc_server_revoke");
    STRESS_OK(gpuipc_server_revoke(own.server, &made));
}

static void work(void *argument) {
    worker *self = argument;
    while (!atomic_load(&own.is_over)) {
        const uint32_t what = stress_random(&self->random, 16);
        if (what == 0) {
            share_one(self);
        } else if (what == 1) {
            stress_now(self->number, "asleep");
            os_sleep_ms(stress_random(&self->random, 20));
        } else if (self->kept_count == KEPT || (self->kept_count > 0 && what < 8)) {
            give_back(self);
        } else {
            open_one(self);
        }
    }
    while (self->kept_count > 0) {
        give_back(self);
    }
    stress_now(self->number, NULL);
}

static void learn(const char *line) {
    char text[GPUIPC_TICKET_TEXT_SIZE] = "";
    offer told;
    if (sscanf(line, "ticket %94s %" SCNu32, text, &told.word) != 2) {
        stress_fail("there is no command \"%s\"", line);
    }
    STRESS_OK(gpuipc_ticket_from_text(text, &told.ticket));
    os_mutex_lock(&own.mutex);
    own.known[own.known_next] = told;
    own.known_next = (own.known_next + 1) % KNOWN;
    own.known_count += own.known_count < KNOWN;
    os_mutex_unlock(&own.mutex);
}

static void begin_member(uint32_t number) {
    char text[GPUIPC_TICKET_TEXT_SIZE];
    own.word = (uint32_t)stress_seed() * 1000003u + number;
    own.context = stress_context(directory);
    own.buffer = stress_buffer(own.context, GPUIPC_TRANSPORT_DEFAULT, own.word);
    STRESS_OK(gpuipc_server_create(own.context, NULL, &own.server));
    STRESS_OK(gpuipc_buffer_share(own.server, own.buffer, NULL, &own.ticket));
    STRESS_OK(gpuipc_ticket_to_text(&own.ticket, text));
    helper_say("%s %" PRIu32, text, own.word);
}

/* All others have released what they had of it, or are gone. */
static void end_member(void) {
    stress_now(WORKERS, "gpuipc_buffer_await_returns");
    STRESS_OK(gpuipc_buffer_await_returns(own.buffer, STRESS_SOON_MS));
    stress_now(WORKERS, "gpuipc_server_destroy");
    STRESS_OK(gpuipc_server_destroy(own.server));
    STRESS_OK(gpuipc_buffer_release(own.buffer));
    stress_now(WORKERS, "gpuipc_context_destroy");
    STRESS_OK(gpuipc_context_destroy(own.context));
    stress_now(WORKERS, NULL);
}

/* member DIRECTORY NUMBER SEED SECONDS. Lines: "ticket TEXT WORD"; "stop", answered when nothing is open any more; the end
 * of the input. */
static int run_member(char **arguments) {
    worker workers[WORKERS];
    char line[CHILD_LINE_MAX];
    helper_begin();
    stress_begin_peer("crowd", strtoull(arguments[2], NULL, 10),
                      (unsigned)strtoul(arguments[3], NULL, 10));
    (void)snprintf(directory, sizeof(directory), "%s", arguments[0]);
    const uint32_t number = (uint32_t)strtoul(arguments[1], NULL, 10);
    begin_member(number);
    for (unsigned i = 0; i < WORKERS; i++) {
        workers[i] = (worker){.number = i, .random = stress_state(number * WORKERS + i)};
        STRESS_OK(os_thread_start(work, &workers[i], &workers[i].thread));
    }
    while (helper_hear(line, sizeof(line)) && strcmp(line, "stop") != 0) {
        learn(line);
    }
    atomic_store(&own.is_over, true);
    for (unsigned i = 0; i < WORKERS; i++) {
        os_thread_join(workers[i].thread);
    }
    helper_say("stopped");
    (void)helper_hear(line, sizeof(line)); /* until all have stopped */
    end_member();
    return stress_end("over");
}

/* ---- who starts and kills them --------------------------------------------------------------- */

typedef struct member {
    child_process *process;
    char offered[CHILD_LINE_MAX]; /* its ticket and word, as it said them */
} member;

static member members[MEMBERS];
static uint32_t started;

static void hear(member *of, char line[CHILD_LINE_MAX]) {
    STRESS_OK(child_read_line(of->process, line, CHILD_LINE_MAX, 3 * STRESS_SOON_MS));
}

static void start_member(member *self) {
    char number[16];
    char seed[32];
    char seconds[32];
    const char *const arguments[] = {"member", directory, number, seed, seconds, NULL};
    (void)snprintf(number, sizeof(number), "%" PRIu32, started++);
    (void)snprintf(seed, sizeof(seed), "%" PRIu64, stress_seed());
    (void)snprintf(seconds, sizeof(seconds), "%u", stress_seconds());
    STRESS_OK(child_start("stress_crowd", arguments, NULL, &self->process));
}

/* Those that are told have, with time, tickets of all others and of many that are gone. */
static void tell_of(const member *of, uint32_t count, uint64_t *random) {
    char line[CHILD_LINE_MAX + 8];
    (void)snprintf(line, sizeof(line), "ticket %s", of->offered);
    for (uint32_t i = 0; i < count; i++) {
        STRESS_OK(child_write_line(members[stress_random(random, MEMBERS)].process, line));
    }
}

static void replace(member *self, uint64_t *random) {
    char line[CHILD_LINE_MAX + 8];
    child_end end = {.exited = false};
    child_kill(self->process);
    STRESS_OK(child_wait(self->process, STRESS_SOON_MS, &end));
    if (end.exited && end.code != 0) {
        stress_fail("a member had ended with %d", end.code); /* it has said why */
    }
    child_destroy(self->process);
    start_member(self);
    hear(self, self->offered);
    tell_of(self, TOLD, random);
    for (uint32_t i = 0; i < TOLD; i++) {
        const member *other = &members[stress_random(random, MEMBERS)];
        (void)snprintf(line, sizeof(line), "ticket %s", other->offered);
        STRESS_OK(child_write_line(self->process, line));
    }
}

static void begin_all(uint64_t *random) {
    for (uint32_t i = 0; i < MEMBERS; i++) {
        start_member(&members[i]);
    }
    for (uint32_t i = 0; i < MEMBERS; i++) {
        hear(&members[i], members[i].offered);
    }
    for (uint32_t i = 0; i < MEMBERS; i++) {
        tell_of(&members[i], KNOWN / 2, random);
    }
}

static void end_all(void) {
    char line[CHILD_LINE_MAX];
    stress_now(0, "waiting until all have stopped");
    for (uint32_t i = 0; i < MEMBERS; i++) {
        STRESS_OK(child_write_line(members[i].process, "stop"));
    }
    for (uint32_t i = 0; i < MEMBERS; i++) {
        hear(&members[i], line);
    }
    stress_now(0, "waiting until all have ended");
    for (uint32_t i = 0; i < MEMBERS; i++) {
        child_close_input(members[i].process);
    }
    for (uint32_t i = 0; i < MEMBERS; i++) {
        child_end end = {.exited = false};
        STRESS_OK(child_wait(members[i].process, 3 * STRESS_SOON_MS, &end));
        child_destroy(members[i].process);
        if (!end.exited || end.code != 0) {
            stress_fail("member %" PRIu32 " ended with %d", i, end.code);
        }
    }
}

/* The next server removes what those left that were killed. */
static void check_directory(void) {
    gpuipc_server *server = NULL;
    gpuipc_context *context = stress_context(directory);
    STRESS_OK(gpuipc_server_create(context, NULL, &server));
    STRESS_OK(gpuipc_server_destroy(server));
    STRESS_OK(gpuipc_context_destroy(context));
    const size_t left = runtime_directory_count(directory);
    if (left > 1) { /* the lock of the directory, on Linux */
        stress_fail("%zu files are left in the runtime directory", left);
    }
}

int main(int argc, char **argv) {
    unsigned killed = 0;
    if (argc == 6 && strcmp(argv[1], "member") == 0) {
        return run_member(argv + 2);
    }
    stress_begin("crowd", argc, argv);
    STRESS_EXPECT(runtime_directory_make(directory));
    uint64_t random = stress_state(UINT32_MAX);
    begin_all(&random);
    for (; stress_goes_on(); killed++) {
        stress_now(0, "killing and starting");
        os_sleep_ms(stress_random(&random, 10));
        replace(&members[stress_random(&random, MEMBERS)], &random);
    }
    end_all();
    check_directory();
    runtime_directory_remove(directory);
    return stress_end("%d processes, %u killed", MEMBERS, killed);
}
