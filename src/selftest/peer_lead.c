/* SPDX-License-Identifier: MIT */
/** @file See peer.h: the end that was given the line. It compares, climbs, judges and tells. */
#include "peer.h"

#include <stdio.h>
#include <string.h>

#include "admit.h"
#include "arguments.h"
#include "child.h"
#include "pattern.h"
#include "peer_facts.h"
#include "peer_resident.h"
#include "program.h"
#include "quantity.h"
#include "watchdog.h"
#include "wrap.h"

/* A rung waits for the other end a few times. */
#define RUNG_WAITS 5

typedef enum rung {
    RUNG_ANSWERS = 1,
    RUNG_OPENED,
    RUNG_BYTES,
    RUNG_RESIDENT,
    RUNG_END
} rung;

static const char *const rung_names[] = {NULL,
                                         "the other end answers",
                                         "handles pass and the driver grants",
                                         "bytes move both ways",
                                         "streams of both wait for each other",
                                         "the death of either is noticed"};
static const char *const rung_ids[] = {NULL, "answers", "opened", "bytes", "resident", "end"};

/* A transport's way up. */
typedef struct arm {
    const char *transport;
    gpuipc_transport which;
    rung top;    /* the last rung */
    rung failed; /* 0: none */
    gpuipc_buffer *buffer;
    uint64_t bytes;
} arm;

typedef struct leader {
    role role;
    peer_facts here;
    peer_facts there;
    arm host;
    arm vmm;
    uint32_t device; /* of the memory of the other end; DEVICE_ANY: it says which */
} leader;

/* ---- the rungs ------------------------------------------------------------------------------ */

static bool answers(leader *self, arm *on) {
    char line[ROLE_LINE_MAX];
    role *at = &self->role;
    gpuipc_endpoint_config room;
    gpuipc_status status;
    const os_deadline deadline = os_deadline_after(at->options->timeout_ms);
    (void)on;
    do {
        status = gpuipc_connection_open(at->session.context, self->there.name,
                                        admit_config(at->options, &room), role_part_ms(deadline),
                                        &at->connection);
    } while (role_waits_on(status, deadline));
    return role_check(at, status, "connecting") && role_say(at, NULL, "hello") &&
           role_hear(at, "hello", line, NULL) != NULL;
}

static bool opened(leader *self, arm *on) {
    char line[ROLE_LINE_MAX];
    role *at = &self->role;
    const char *answer = role_say(at, NULL, "make %s", on->transport)
                             ? role_hear(at, "memory", line, &on->buffer)
                             : NULL;
    gpuipc_buffer_info info = GPUIPC_BUFFER_INFO_INIT;
    if (answer == NULL) {
        return false;
    }
    if (on->buffer == NULL || !quantity_take_number(&answer, &on->bytes) || answer[0] != '\0') {
        return role_fail(at, "the other end sent no memory, or not its size");
    }
    return role_check(at, gpuipc_buffer_get_info(on->buffer, &info), "describing the memory") &&
           ((on->bytes > sizeof(uint32_t) && on->bytes <= info.bytes) ||
            role_fail(at, "the other end named a size that its memory has not"));
}

static bool bytes_move(leader *self, arm *on) {
    char line[ROLE_LINE_MAX];
    role *at = &self->role;
    return peer_verify(at, on->buffer, on->bytes, false) &&
           role_check(at, pattern_fill(on->buffer, PEER_WORD_AT(on->bytes), pattern_consumer),
                      "writing into the memory") &&
           role_say(at, NULL, "written") && role_hear(at, "right", line, NULL) != NULL;
}

/* All rounds are queued while this end's stream stands still, and the other end's waits for it. */
static bool queue_rounds(leader *self, resident *with, char last[RESIDENT_MARK_MAX]) {
    char line[ROLE_LINE_MAX];
    char text[RESIDENT_MARK_MAX];
    role *at = &self->role;
    for (uint32_t round = 1; round <= RESIDENT_ROUNDS; round++) {
        if (!resident_store(with, round, text) || !role_say(at, NULL, "mark %s", text)) {
            return false;
        }
        const char *mark = role_hear(at, "mark", line, NULL);
        if (mark == NULL || strlen(mark) != RESIDENT_MARK_MAX || /* a blank in place of its end */
            !resident_await(with, round, mark + 1)) {
            return role_fail(at, "the other end said \"%.60s\" where a mark was expected", line);
        }
        memcpy(last, mark + 1, RESIDENT_MARK_MAX);
    }
    return true;
}

static bool streams_wait(leader *self, arm *on) {
    char line[ROLE_LINE_MAX];
    char last[RESIDENT_MARK_MAX];
    resident with;
    gpuipc_buffer *own;
    gpuipc_buffer_info info = GPUIPC_BUFFER_INFO_INIT;
    role *at = &self->role;
    if (!role_check(at, gpuipc_buffer_get_info(on->buffer, &info), "describing the memory")) {
        return false;
    }
    const uint32_t device = info.device < at->session.info.device_count ? info.device : 0;
    if (!peer_make(at, device, on->which, pattern_consumer, &own)) {
        return false;
    }
    const bool is_good =
        resident_begin(&with, at, own, on->buffer, own, PEER_WORD_AT(PEER_BYTES), true) &&
        role_say(at, own, "resident") && role_hear(at, "ready", line, NULL) != NULL &&
        queue_rounds(self, &with, last) && resident_open(&with) && resident_verify(&with, last) &&
        role_say(at, NULL, "look") && role_hear(at, "seen", line, NULL) != NULL;
    if (!is_good && with.stream != NULL && !with.is_idle) {
        on->buffer = NULL; /* a stream that stands still uses it */
    }
    resident_end(&with);
    return is_good;
}

static void hang_up(leader *self, arm *on) {
    (void)gpuipc_buffer_release(on->buffer);
    (void)gpuipc_connection_close(self->role.connection);
    on->buffer = NULL;
    self->role.connection = NULL;
}

/* Until it says that the other end has its memory. */
static bool await_lent(leader *self, child *program) {
    char line[ROLE_LINE_MAX];
    role *at = &self->role;
    const os_deadline deadline = os_deadline_after(RUNG_WAITS * at->options->timeout_ms);
    size_t which;
    gpuipc_status status;
    while ((status = child_next(&program, 1, deadline, &which, line, sizeof(line))) == GPUIPC_OK) {
        if (strcmp(line, PEER_SAYS_LENT) == 0) {
            return true;
        }
        if (strncmp(line, ROLE_STEP, strlen(ROLE_STEP)) != 0) {
            return role_fail(at, "the program that was to be killed said: %s", line);
        }
    }
    return role_fail(at, "the program that was to be killed %s",
                     status == GPUIPC_ERR_PEER_CLOSED ? "ended by itself" : "said nothing in time");
}

/* This end's memory outlives its owner, for the other one. The owner is a program that can be killed. */
static bool own_death_is_noticed(leader *self) {
    char line[ROLE_LINE_MAX];
    arguments words;
    child *program;
    role *at = &self->role;
    arguments_begin(&words, "peer-end", self->there.name, at->session.choice, at->options);
    if (self->device != DEVICE_ANY) {
        arguments_add_number(&words, "--device", self->device);
    }
    if (at->options->admit != NULL) {
        arguments_add(&words, "--admit");
        arguments_add(&words, at->options->admit);
    }
    if (!role_check(at, child_start(words.list, &program), "starting a program to be killed")) {
        return false;
    }
    const bool is_lent = await_lent(self, program);
    child_destroy(program);
    return is_lent && answers(self, &self->vmm) && role_say(at, NULL, "outcome") &&
           role_hear(at, "right", line, NULL) != NULL;
}

/* The memory outlives its owner, for who has it open. */
static bool other_death_is_noticed(leader *self, arm *on) {
    char line[ROLE_LINE_MAX];
    role *at = &self->role;
    if (!opened(self, on) || !role_say(at, NULL, "die")) {
        return false;
    }
    if (role_hear(at, NULL, line, NULL) != NULL) {
        return role_fail(at, "the other end said \"%.60s\" when it was to end", line);
    }
    if (gpuipc_error_get()->status != GPUIPC_ERR_PEER_CLOSED) {
        return false;
    }
    at->failure[0] = '\0'; /* that it is gone is what was wanted */
    return peer_verify(at, on->buffer, on->bytes, false);
}

static bool end_is_noticed(leader *self, arm *on) {
    hang_up(self, on); /* it hears one connection at a time */
    return own_death_is_noticed(self) && other_death_is_noticed(self, on);
}

static bool (*const rungs[])(leader *, arm *) = {NULL,       answers,      opened,
                                                 bytes_move, streams_wait, end_is_noticed};

static void climb(leader *self, arm *on) {
    char id[64];
    char text[ROLE_LINE_MAX];
    role *at = &self->role;
    report *into = at->options->report;
    at->failure[0] = '\0';
    for (rung i = RUNG_ANSWERS; i <= on->top && on->failed == 0 && !program_is_interrupted();
         i = (rung)(i + 1)) {
        (void)snprintf(text, sizeof(text), "%s, rung %d, %s", on->transport, (int)i, rung_names[i]);
        watchdog_expect(text, RUNG_WAITS * at->options->timeout_ms);
        report_progress(into, "%s", text);
        const bool is_good = rungs[i](self, on);
        on->failed = is_good ? 0 : i;
        if (!is_good && program_is_interrupted()) {
            break; /* that is no answer to anything */
        }
        (void)snprintf(id, sizeof(id), "peer/%s/%s", on->transport, rung_ids[i]);
        (void)snprintf(text, sizeof(text), "%s, rung %d, %s: %.800s", on->transport, (int)i,
                       rung_names[i], is_good ? "yes" : at->failure);
        report_add_check(into, id, is_good ? REPORT_PASS : REPORT_FAIL, text);
    }
    watchdog_rest();
    hang_up(self, on);
}

/* ---- the facts ------------------------------------------------------------------------------ */

static void tell_difference(const leader *self, peer_fact which) {
    report *into = self->role.options->report;
    peer_difference found;
    peer_facts_explain(&self->here, &self->there, which, &found);
    if (which == FACT_USER && self->role.options->admit != NULL) {
        found.finding.severity =
            GPUIPC_SEVERITY_NOTE; /* one that is admitted keeps nobody from meeting */
    }
    report_say(into, "differs  %-3s  %-6s  %s: %s\n", found.finding.id,
               gpuipc_severity_name(found.finding.severity), found.finding.cause,
               found.finding.evidence);
    report_say(into, "     matters:  %s\n     remedy:   %s\n     security: %s\n", found.matters,
               found.finding.remedy, found.finding.cost);
    if (found.finding.number != 0) {
        report_add_finding(into, &found.finding);
    }
}

/* The labels of all facts of a kind: "user, PID namespace". */
static const char *labels_of(const leader *self, peer_relation kind, char *text, size_t capacity) {
    size_t used = 0;
    (void)snprintf(text, capacity, "none");
    for (int i = 0; i < FACT_COUNT; i++) {
        if (peer_facts_compare(&self->here, &self->there, (peer_fact)i) == kind &&
            used < capacity) {
            used += (size_t)snprintf(text + used, capacity - used, "%s%s", used > 0 ? ", " : "",
                                     peer_fact_label((peer_fact)i));
        }
    }
    return text;
}

static void compare(const leader *self) {
    char labels[400];
    char text[512];
    for (int i = 0; i < FACT_COUNT; i++) {
        if (peer_facts_compare(&self->here, &self->there, (peer_fact)i) == PEER_DIFFERS) {
            tell_difference(self, (peer_fact)i);
        }
    }
    (void)snprintf(text, sizeof(text), "facts: compared; different: %s",
                   labels_of(self, PEER_DIFFERS, labels, sizeof(labels)));
    report_add_check(self->role.options->report, "peer/facts", REPORT_PASS, text);
}

/* ---- the verdict ---------------------------------------------------------------------------- */

/* What to do about each difference that keeps the two from meeting at all. */
static void add_remedies(const leader *self, char *text, size_t capacity) {
    size_t used = 0;
    for (int i = 0; i < FACT_COUNT; i++) {
        peer_difference found;
        if (peer_facts_compare(&self->here, &self->there, (peer_fact)i) != PEER_DIFFERS) {
            continue;
        }
        peer_facts_explain(&self->here, &self->there, (peer_fact)i, &found);
        if (found.finding.severity == GPUIPC_SEVERITY_BLOCKS && used < capacity) {
            used += (size_t)snprintf(text + used, capacity - used, "; the %s differs: %s",
                                     found.finding.cause, found.finding.remedy);
        }
    }
}

/* Where the control arm falls no later than the GPU's memory, the GPU has not been asked yet. */
static const char *judge(const leader *self, char *text, size_t capacity) {
    const rung host = self->host.failed;
    const rung vmm = self->vmm.failed;
    if (vmm != 0 && host != 0 && host <= vmm) {
        const int used =
            snprintf(text, capacity,
                     "INCONCLUSIVE: host memory fails too, at rung %d (%s): it is the setting and "
                     "not the GPU",
                     (int)host, rung_names[host]);
        add_remedies(self, text + used, capacity - (size_t)used);
    } else if (vmm != 0 || host != 0) {
        (void)snprintf(text, capacity, "FAIL: transport %s fails at rung %d (%s)",
                       vmm != 0 ? "vmm" : "host", (int)(vmm != 0 ? vmm : host),
                       rung_names[vmm != 0 ? vmm : host]);
    } else {
        (void)snprintf(
            text, capacity, "PASS: every rung was climbed%s",
            self->role.session.info.is_emulated ? ", on the emulated driver: no GPU was used" : "");
    }
    return text;
}

static void tell_arm(const report *into, const arm *on) {
    if (on->failed != 0) {
        report_say(into, "%s: failed at rung %d of %d (%s)\n", on->transport, (int)on->failed,
                   (int)on->top, rung_names[on->failed]);
    } else {
        report_say(into, "%s: all %d rungs\n", on->transport, (int)on->top);
    }
}

/* Nothing of a user, a path or a device is in it. */
static void tell_redacted(const leader *self, const char *verdict) {
    const report *into = self->role.options->report;
    char labels[400];
    report_say(into, "\nto paste (no paths, no users, no UUIDs):\n```\n");
    report_say(into, "gpuipc %s doctor --peer; %s; driver model here: %s; CUDA here %s, there %s\n",
               into->platform.values[PLATFORM_GPUIPC], into->platform.values[PLATFORM_SYSTEM],
               platform_text(&into->platform, PLATFORM_DRIVER_MODEL), self->here.values[FACT_CUDA],
               self->there.values[FACT_CUDA][0] != '\0' ? self->there.values[FACT_CUDA]
                                                        : "not known");
    report_say(into, "different: %s\n", labels_of(self, PEER_DIFFERS, labels, sizeof(labels)));
    report_say(into, "not known: %s\n", labels_of(self, PEER_UNKNOWN, labels, sizeof(labels)));
    tell_arm(into, &self->host);
    tell_arm(into, &self->vmm);
    report_say(into, "%s\n```\n", verdict);
}

/* The other end still waits unless it was the one to die. */
static void pass_on(leader *self, const char *verdict) {
    char line[ROLE_LINE_MAX];
    if (self->vmm.failed != 0 && self->vmm.failed != RUNG_END &&
        self->host.failed != RUNG_ANSWERS && answers(self, &self->vmm) &&
        role_say(&self->role, NULL, "verdict %s", verdict)) {
        (void)role_hear(&self->role, "end", line, NULL);
    }
}

static int lead(leader *self) {
    char verdict[900];
    char text[sizeof(verdict) + 16];
    peer_facts_find(&self->role.session, &self->here);
    compare(self);
    climb(self, &self->host);
    climb(self, &self->vmm);
    if (program_is_interrupted()) {
        return EXIT_FAIL; /* not all was tried, so there is no verdict */
    }
    judge(self, verdict, sizeof(verdict));
    pass_on(self, verdict);
    const bool is_good = self->host.failed == 0 && self->vmm.failed == 0;
    (void)snprintf(text, sizeof(text), "verdict: %s", verdict);
    report_add_check(self->role.options->report, "peer/verdict",
                     is_good ? REPORT_PASS : REPORT_FAIL, text);
    tell_redacted(self, verdict);
    return is_good ? EXIT_PASS : EXIT_FAIL;
}

int peer_lead(const options *wanted) {
    static leader self; /* a few tens of KiB, once in this program's life */
    self = (leader){
        .role = {.options = wanted, .other = "other end", .receive_device = GPUIPC_DEVICE_OWNER},
        .device = DEVICE_ANY,
        .host = {.transport = "host", .which = GPUIPC_TRANSPORT_HOST, .top = RUNG_RESIDENT},
        .vmm = {.transport = "vmm", .which = GPUIPC_TRANSPORT_VMM, .top = RUNG_END}};
    if (!peer_facts_read(wanted->line, &self.there)) {
        wrap_complain("--peer=LINE: that is no line of \"gpuipc-selftest doctor --peer\" "
                      "of this version");
        return EXIT_USAGE;
    }
    watchdog_expect("starting the driver", RUNG_WAITS * wanted->timeout_ms);
    int code = session_open(wanted, &self.role.session);
    watchdog_rest();
    if (code == EXIT_PASS) {
        wanted->report->driver = self.role.session.info;
        platform_ask(&wanted->report->platform, &self.role.session, &wanted->report->facts);
        code = lead(&self);
        role_end(&self.role);
    }
    return code;
}

void peer_run(const options *wanted, const session *at, uint32_t owner, uint32_t user) {
    static leader self; /* as in peer_lead() */
    char line[ROLE_LINE_MAX];
    char name[ARGUMENT_LENGTH];
    arguments words;
    child *giver;
    self = (leader){.role = {.options = wanted,
                             .other = "other end",
                             .session = *at,
                             .receive_device = GPUIPC_DEVICE(user)},
                    .vmm = {.transport = "vmm", .which = GPUIPC_TRANSPORT_VMM, .top = RUNG_END},
                    .device = owner};
    (void)snprintf(self.there.name, sizeof(self.there.name), "%s", arguments_unique_name(name));
    arguments_begin(&words, "peer-give", self.there.name, at->choice, wanted);
    arguments_add_number(&words, "--device", owner);
    if (child_start(words.list, &giver) != GPUIPC_OK) {
        (void)snprintf(line, sizeof(line), "vmm, rung 1, %s: %s", rung_names[RUNG_ANSWERS],
                       gpuipc_error_get()->sentence);
        report_add_check(wanted->report, "peer/vmm/answers", REPORT_FAIL, line);
        return;
    }
    climb(&self, &self.vmm);
    child_destroy(giver);
}
