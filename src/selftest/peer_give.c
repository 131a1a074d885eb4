/* SPDX-License-Identifier: MIT */
/** @file See peer.h: the end that prints the line, and what both ends do with the memory. */
#include "peer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "admit.h"
#include "arguments.h"
#include "child.h"
#include "pattern.h"
#include "peer_facts.h"
#include "peer_resident.h"
#include "produce.h"
#include "program.h"
#include "quantity.h"
#include "wrap.h"

/* Somebody carries the line to the other end meanwhile; less than what the watchdog waits for. */
#define CARRY_WAITS 4

/* Of the endpoint at which the end that prints the line is met. */
#define NAME_BEGINS "doctor-"

bool peer_verify(role *self, gpuipc_buffer *buffer, uint64_t bytes, bool of_leader) {
    pattern_result found;
    if (!role_check(self,
                    pattern_verify(buffer, PEER_WORD_AT(bytes),
                                   of_leader ? pattern_consumer : pattern_producer, &found),
                    "reading the memory")) {
        return false;
    }
    return found.wrong == 0 || role_fail(self,
                                         "%" PRIu64 " words are wrong; word %" PRIu64
                                         " is 0x%08" PRIx32 ", not 0x%08" PRIx32,
                                         found.wrong, found.first, found.found, found.expected);
}

uint32_t peer_device(const role *self) {
    return self->options->device == DEVICE_ANY ? 0 : self->options->device;
}

bool peer_make(role *self, uint32_t device, gpuipc_transport transport, pattern of,
               gpuipc_buffer **out_buffer) {
    static const uint32_t none = 0;
    const gpuipc_buffer_config config = {.struct_size = sizeof(config),
                                         .device = GPUIPC_DEVICE(device),
                                         .bytes = PEER_BYTES,
                                         .transport = transport};
    gpuipc_buffer *buffer;
    if (!role_check(self, gpuipc_buffer_create(self->session.context, &config, &buffer),
                    "making the memory")) {
        return false;
    }
    if (!role_check(self, pattern_fill(buffer, PEER_WORD_AT(PEER_BYTES), of),
                    "filling the memory") ||
        !role_check(self,
                    gpuipc_buffer_write(buffer, PEER_WORD_AT(PEER_BYTES), &none, sizeof(none)),
                    "filling the memory")) {
        (void)gpuipc_buffer_release(buffer);
        return false;
    }
    *out_buffer = buffer;
    return true;
}

/* ---- the end that waits --------------------------------------------------------------------- */

typedef struct giver {
    role role;
    gpuipc_listener *listener;
    gpuipc_buffer *buffer;
    bool ended;         /* the verdict was told */
    bool has_outlived;  /* memory of a program that was killed was right afterwards */
    char outlived[800]; /* why not */
    child *second;      /* a program that ends in the place of this one; NULL: none was asked for */
    char second_name[ARGUMENT_LENGTH];
} giver;

static bool make(giver *self, const char *transport) {
    role *at = &self->role;
    role_step(at, "making memory for transport%s", transport);
    (void)gpuipc_buffer_release(self->buffer);
    self->buffer = NULL;
    return peer_make(at, peer_device(at),
                     strcmp(transport, " host") == 0 ? GPUIPC_TRANSPORT_HOST : GPUIPC_TRANSPORT_VMM,
                     pattern_producer, &self->buffer) &&
           role_say(at, self->buffer, "memory %" PRIu64, PEER_BYTES);
}

/* ---- streams that wait for each other ---- */

/* What the leader's stream stores is awaited before this end's stores: so its stream stands still until the leader lets its
 * own go. */
static bool answer_marks(giver *self, resident *with) {
    char line[ROLE_LINE_MAX];
    char text[RESIDENT_MARK_MAX];
    role *at = &self->role;
    for (uint32_t round = 1; round <= RESIDENT_ROUNDS; round++) {
        const char *mark = role_hear(at, "mark", line, NULL);
        if (mark == NULL || mark[0] != ' ' || !resident_await(with, round, mark + 1) ||
            !resident_store(with, round, text) || !role_say(at, NULL, "mark %s", text)) {
            return role_fail(at, "the other end said \"%.60s\" where a mark was expected", line);
        }
    }
    return role_hear(at, "look", line, NULL) != NULL && resident_verify(with, NULL) &&
           role_say(at, NULL, "seen");
}

static bool be_resident(giver *self, gpuipc_buffer *theirs) {
    resident with;
    role *at = &self->role;
    role_step(at, "letting a stream wait for one of the other end");
    const bool is_good =
        resident_begin(&with, at, self->buffer, theirs, theirs, PEER_WORD_AT(PEER_BYTES), false) &&
        role_say(at, NULL, "ready") && answer_marks(self, &with);
    if (!is_good && with.stream != NULL && !with.is_idle) {
        self->buffer = NULL; /* a stream that stands still uses it */
    }
    resident_end(&with);
    return is_good;
}

/* ---- the death of either ---- */

/* The other end's second program hands memory over, and is killed: what it has handed over stays, for who has it open. */
static bool outlive(giver *self, gpuipc_buffer *theirs, const char *bytes) {
    char line[ROLE_LINE_MAX];
    uint64_t size = 0;
    role *at = &self->role;
    role_step(at, "waiting for the death of a program of the other end");
    self->has_outlived = false;
    bool is_good = quantity_take_number(&bytes, &size) && size == PEER_BYTES
                       ? peer_verify(at, theirs, PEER_BYTES, true) && role_say(at, NULL, "taken")
                       : role_fail(at, "the other end named a size that its memory has not");
    if (is_good && role_hear(at, NULL, line, NULL) != NULL) {
        is_good = role_fail(at, "the other end said \"%.60s\" when it was to be killed", line);
    } else if (is_good) {
        is_good = gpuipc_error_get()->status == GPUIPC_ERR_PEER_CLOSED;
        at->failure[is_good ? 0 : strlen(at->failure)] = '\0';
        is_good = is_good && peer_verify(at, theirs, PEER_BYTES, true);
    }
    self->has_outlived = is_good;
    (void)snprintf(self->outlived, sizeof(self->outlived), "%s", at->failure);
    (void)gpuipc_buffer_release(theirs);
    return false; /* this connection has ended */
}

static bool tell_outcome(giver *self) {
    return self->has_outlived ? role_say(&self->role, NULL, "right")
                              : role_fail(&self->role, "after the death of its owner: %s",
                                          self->outlived[0] != '\0' ? self->outlived
                                                                    : "no memory was handed over");
}

/* As a process that is killed: nothing is given back, and no destructor runs. Its name is, so that no file stays. */
static void die(giver *self) {
    (void)gpuipc_listener_close(self->listener);
    wrap_say("done: every rung was climbed; this end now ends at once, which is the last one\n");
    program_end_now(EXIT_PASS);
}

/* What is climbed next still needs this end: another program of it is the one to die. */
static bool start_second(giver *self) {
    arguments words;
    role *at = &self->role;
    child_destroy(self->second);
    self->second = NULL;
    arguments_begin(&words, "peer-give", arguments_unique_name(self->second_name),
                    at->session.choice, at->options);
    arguments_add_number(&words, "--device", peer_device(at));
    if (at->options->admit != NULL) {
        arguments_add(&words, "--admit");
        arguments_add(&words, at->options->admit);
    }
    return role_check(at, child_start(words.list, &self->second), "starting a program to end") &&
           role_say(at, NULL, "second %s", self->second_name);
}

static bool end(giver *self, const char *verdict) {
    wrap_say("verdict of the other end:%s\n", verdict);
    self->ended = true;
    return role_say(&self->role, NULL, "end");
}

/* A line that brings memory of the other end's. */
static bool react_to_buffer(giver *self, const char *line, gpuipc_buffer *theirs) {
    if (self->buffer != NULL && strcmp(line, "resident") == 0) {
        return be_resident(self, theirs);
    }
    if (role_begins_with(line, "lend")) {
        return outlive(self, theirs, line + strlen("lend"));
    }
    (void)gpuipc_buffer_release(theirs);
    return role_fail(&self->role, "the other end said \"%.60s\" with memory", line);
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
    if (strcmp(line, "outcome") == 0) {
        return tell_outcome(self);
    }
    if (strcmp(line, "second") == 0) {
        return start_second(self);
    }
    if (strcmp(line, "die") == 0) {
        die(self);
    }
    if (self->buffer != NULL && strcmp(line, "written") == 0) {
        return peer_verify(at, self->buffer, PEER_BYTES, true) && role_say(at, NULL, "right");
    }
    return role_fail(at, "the other end said \"%.60s\", which is nothing known here", line);
}

/* One arm comes by one connection: what broke the one does not break the next. */
static void converse(giver *self) {
    char line[ROLE_LINE_MAX];
    role *at = &self->role;
    gpuipc_buffer *theirs = NULL;
    bool is_told = false;
    while (!self->ended && role_hear(at, NULL, line, &theirs) != NULL) {
        if (!(theirs != NULL ? react_to_buffer(self, line, theirs) : react(self, line))) {
            role_step(at, "ended: %s", at->failure[0] != '\0' ? at->failure : "as it was to");
            role_say_failed(at);
            is_told = true;
            break;
        }
        theirs = NULL;
    }
    if (!is_told && at->failure[0] != '\0' &&
        gpuipc_error_get()->status != GPUIPC_ERR_PEER_CLOSED) {
        role_say_failed(at); /* such as memory that this end's device does not reach */
    }
    at->failure[0] = '\0'; /* it was told; and that an arm's connection has ended is no failure */
    (void)gpuipc_connection_close(at->connection);
    at->connection = NULL;
    (void)gpuipc_buffer_release(self->buffer);
    self->buffer = NULL;
}

/* Random, so that no two are taken for each other, and what is left of one harms no other. */
static bool listen(giver *self, char name[PEER_NAME_MAX]) {
    uint8_t random[8];
    gpuipc_endpoint_config room;
    role *at = &self->role;
    if (at->options->parent != 0) {
        return role_check(at,
                          gpuipc_listener_open(at->session.context, at->options->name,
                                               admit_config(at->options, &room), &self->listener),
                          "opening the endpoint");
    }
    if (!role_check(at, os_random(random, sizeof(random)), "making a name")) {
        return false;
    }
    os_directory_sweep(&(os_directory){.shared = at->options->admit != NULL}, NAME_BEGINS);
    int used = snprintf(name, PEER_NAME_MAX, NAME_BEGINS);
    for (size_t i = 0; i < sizeof(random); i++) {
        used += snprintf(name + used, PEER_NAME_MAX - (size_t)used, "%02x", random[i]);
    }
    return role_check(at,
                      gpuipc_listener_open(at->session.context, name,
                                           admit_config(at->options, &room), &self->listener),
                      "opening the endpoint");
}

/* The other end has to admit this one as well. */
static bool print_line(giver *self, const char name[PEER_NAME_MAX]) {
    char line[PEER_LINE_MAX];
    peer_facts facts;
    gpuipc_device_info device;
    role *at = &self->role;
    const char *admitted = at->options->admit;
    peer_facts_find(&at->session, &facts); /* now the runtime directory is there */
    memcpy(facts.name, name, PEER_NAME_MAX);
    if (!role_check(at, session_device(&at->session, peer_device(at), &device),
                    "describing a device")) {
        return false;
    }
    (void)report_uuid(&device, facts.device);
    wrap_say("run this where the other end is:\ngpuipc-selftest doctor --peer=%s",
             peer_facts_write(&facts, line));
    if (admitted == NULL) {
        wrap_say("\n");
    } else {
        wrap_say(" --admit=%s\nwhere both need %s\n",
                 strcmp(admitted, ADMIT_GROUP) == 0 ? admitted : facts.values[FACT_USER],
                 ADMIT_RECIPE);
    }
    return wrap_is_written() ||
           role_fail(at, "the line for the other end could not be printed, so nobody would come");
}

static int give(giver *self) {
    char name[PEER_NAME_MAX] = "";
    role *at = &self->role;
    if (!listen(self, name) || (at->options->parent == 0 && !print_line(self, name))) {
        return EXIT_FAIL;
    }
    role_step(at, "waiting for the other end");
    const os_deadline deadline = os_deadline_after(CARRY_WAITS * at->options->timeout_ms);
    while (!self->ended) {
        gpuipc_status status;
        do {
            status =
                gpuipc_listener_accept(self->listener, role_part_ms(deadline), &at->connection);
        } while (role_waits_on(status, deadline));
        if (!role_check(at, status, "waiting for the other end")) {
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
    self.role.receive_device = GPUIPC_DEVICE(peer_device(&self.role));
    code = produce_check_device(&self.role, peer_device(&self.role), &granularity);
    if (code == EXIT_PASS) {
        code = give(&self);
    }
    if (self.role.failure[0] != '\0' && !program_is_interrupted()) {
        wrap_complain("FAIL: %s", self.role.failure);
    }
    (void)gpuipc_listener_close(self.listener);
    child_destroy(self.second);
    role_end(&self.role);
    return code;
}
