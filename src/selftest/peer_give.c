/* SPDX-License-Identifier: MIT */
/** @file See peer.h: the end that prints the line, and what both ends do with the memory. */
#include "peer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "pattern.h"
#include "peer_facts.h"
#include "produce.h"
#include "program.h"

#define BYTES (UINT64_C(1) << 20)
/* Somebody carries the line to the other end meanwhile; less than what the watchdog waits for. */
#define CARRY_WAITS 4

bool peer_verify(role *self, gpuipc_buffer *buffer, uint64_t bytes, bool of_leader) {
    pattern_result found;
    if (!role_check(self,
                    pattern_verify(buffer, PEER_LEADER_WORD(bytes),
                                   of_leader ? pattern_consumer : pattern_producer, &found),
                    "reading the memory")) {
        return false;
    }
    return found.wrong == 0 || role_fail(self,
                                         "%" PRIu64 " words are wrong; word %" PRIu64
                                         " is 0x%08" PRIx32 ", not 0x%08" PRIx32,
                                         found.wrong, found.first, found.found, found.expected);
}

static bool await_word(role *self, gpuipc_buffer *buffer, uint64_t offset, uint32_t wanted) {
    const os_deadline deadline = os_deadline_after(self->options->timeout_ms);
    uint32_t word = 0;
    do {
        if (!role_check(self, gpuipc_buffer_read(buffer, offset, &word, sizeof(word)),
                        "looking at a word")) {
            return false;
        }
        if (os_deadline_passed(deadline)) {
            return role_fail(self, "word %" PRIu32 " was not seen within %d seconds", wanted,
                             self->options->timeout_ms / 1000);
        }
    } while (word != wanted);
    return true;
}

bool peer_count(role *self, gpuipc_buffer *buffer, uint64_t bytes, bool leads) {
    const uint64_t own = leads ? PEER_LEADER_WORD(bytes) : PEER_GIVER_WORD(bytes);
    const uint64_t others = leads ? PEER_GIVER_WORD(bytes) : PEER_LEADER_WORD(bytes);
    for (uint32_t i = 1; i <= PEER_ROUNDS; i++) {
        if ((!leads && !await_word(self, buffer, others, i)) ||
            !role_check(self, gpuipc_buffer_write(buffer, own, &i, sizeof(i)), "storing a word") ||
            (leads && !await_word(self, buffer, others, i))) {
            return false;
        }
    }
    return true;
}

/* ---- the end that waits --------------------------------------------------------------------- */

typedef struct giver {
    role role;
    gpuipc_listener *listener;
    gpuipc_buffer *buffer;
    bool ended; /* the verdict was told */
} giver;

static bool make(giver *self, const char *transport) {
    static const uint32_t none[2] = {0, 0};
    const gpuipc_buffer_config config = {.struct_size = sizeof(config),
                                         .bytes = BYTES,
                                         .transport = strcmp(transport, " host") == 0
                                                          ? GPUIPC_TRANSPORT_HOST
                                                          : GPUIPC_TRANSPORT_VMM};
    role_step(&self->role, "making memory for transport%s", transport);
    (void)gpuipc_buffer_release(self->buffer);
    self->buffer = NULL;
    return role_check(&self->role,
                      gpuipc_buffer_create(self->role.session.context, &config, &self->buffer),
                      "making the memory") &&
           role_check(&self->role,
                      pattern_fill(self->buffer, PEER_LEADER_WORD(BYTES), pattern_producer),
                      "filling the memory") &&
           role_check(
               &self->role,
               gpuipc_buffer_write(self->buffer, PEER_LEADER_WORD(BYTES), none, sizeof(none)),
               "filling the memory") &&
           role_say(&self->role, self->buffer, "memory %" PRIu64, BYTES);
}

/* As a process that is killed: nothing is given back, and no destructor runs. Its name is, so that no file stays. */
static void die(giver *self) {
    (void)gpuipc_listener_close(self->listener);
    puts("done: every rung was climbed; this end now ends at once, which is the last one");
    (void)fflush(stdout);
    program_end_now(EXIT_PASS);
}

static bool end(giver *self, const char *verdict) {
    printf("verdict of the other end:%s\n", verdict);
    self->ended = true;
    return role_say(&self->role, NULL, "end");
}

static bool react(giver *self, const char *line) {
    role *at = &self->role;
    if (strcmp(line, "hello") == 0) {
        return role_say(at, NULL, "hello");
    }
    if (role_begins_with(line, "make")) {
        return make(self, line + strlen("make"));
    }
    if (role_begins_with(line, "verdict")) {
        return end(self, line + strlen("verdict"));
    }
    if (strcmp(line, "die") == 0) {
        die(self);
    }
    if (self->buffer != NULL && strcmp(line, "written") == 0) {
        return peer_verify(at, self->buffer, BYTES, true) && role_say(at, NULL, "right");
    }
    if (self->buffer != NULL && strcmp(line, "store") == 0) {
        return peer_count(at, self->buffer, BYTES, false) && role_say(at, NULL, "seen");
    }
    return role_fail(at, "the other end said \"%.60s\", which is nothing known here", line);
}

/* One arm comes by one connection: what broke the one does not break the next. */
static void converse(giver *self) {
    char line[ROLE_LINE_MAX];
    role *at = &self->role;
    while (!self->ended && role_hear(at, NULL, line, NULL) != NULL) {
        if (!react(self, line)) {
            role_step(at, "failed: %s", at->failure);
            role_say_failed(at);
            break;
        }
    }
    at->failure[0] = '\0'; /* it was told; and that an arm's connection has ended is no failure */
    (void)gpuipc_connection_close(at->connection);
    at->connection = NULL;
    (void)gpuipc_buffer_release(self->buffer);
    self->buffer = NULL;
}

/* Random, so that no two are taken for each other, and what is left of one harms no other. */
static bool listen(giver *self, peer_facts *facts) {
    uint8_t random[8];
    role *at = &self->role;
    if (!role_check(at, os_random(random, sizeof(random)), "making a name")) {
        return false;
    }
    int used = snprintf(facts->name, sizeof(facts->name), "doctor-");
    for (size_t i = 0; i < sizeof(random); i++) {
        used += snprintf(facts->name + used, sizeof(facts->name) - (size_t)used, "%02x", random[i]);
    }
    return role_check(at,
                      gpuipc_listener_open(at->session.context, facts->name, NULL, &self->listener),
                      "opening the endpoint");
}

static int give(giver *self) {
    char line[PEER_LINE_MAX];
    char name[PEER_NAME_MAX];
    peer_facts facts = {.name = ""};
    role *at = &self->role;
    if (!listen(self, &facts)) {
        return EXIT_FAIL;
    }
    memcpy(name, facts.name, sizeof(name));
    peer_facts_find(&at->session, &facts); /* now the runtime directory is there */
    memcpy(facts.name, name, sizeof(name));
    printf("run this where the other end is:\ngpuipc-selftest doctor --peer=%s\n",
           peer_facts_write(&facts, line));
    role_step(at, "waiting for the other end");
    const os_deadline deadline = os_deadline_after(CARRY_WAITS * at->options->timeout_ms);
    while (!self->ended) {
        if (!role_check(at,
                        gpuipc_listener_accept(self->listener, os_deadline_left_ms(deadline),
                                               &at->connection),
                        "waiting for the other end")) {
            return EXIT_FAIL;
        }
        converse(self);
    }
    return EXIT_FAIL; /* a verdict is told only where not every rung was climbed */
}

int peer_give(const options *wanted) {
    giver self = {.listener = NULL};
    uint64_t granularity;
    int code = role_begin(&self.role, wanted, "other end");
    if (code != EXIT_PASS) {
        return code;
    }
    code = produce_check_device(&self.role, 0, &granularity);
    if (code == EXIT_PASS) {
        code = give(&self);
    }
    if (self.role.failure[0] != '\0') {
        fprintf(stderr, "gpuipc-selftest: FAIL: %s\n", self.role.failure);
    }
    (void)gpuipc_listener_close(self.listener);
    role_end(&self.role);
    return code;
}
