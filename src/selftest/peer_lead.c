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
#include "run.h"
#include "watchdog.h"
#include "wrap.h"

/* A rung waits for the other end a few times. */
#define RUNG_WAITS 5

/* Room for what a line begins with, and for the id of a check. */
#define TITLE_MAX 64

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
    uint32_t
        device; /* of this end's own memory; DEVICE_ANY: not known before the other end's is open */
} arm;

/* Both arms, with memory of one device there and one here. */
typedef struct ladder {
    char name[40]; /* "device 0 -> device 1"; empty: the other end's device is both */
    char id[24];   /* "0-1"; empty likewise */
    uint32_t
        user; /* the device on which this end opens and makes memory; DEVICE_ANY: the other end's */
    bool is_last; /* the other end dies at its top, and else a second program of it */
    bool is_tried;
    arm host;
    arm vmm;
} ladder;

typedef struct leader {
    role role;
    peer_facts here;
    peer_facts there;
    ladder one; /* the device of the other end's memory, with itself */
    ladder two; /* it with another one that both ends see; its name is empty: there is none */
    ladder *on;
    const char *meets; /* where the other end is met */
    char second[PEER_NAME_MAX];
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
        status = gpuipc_connection_open(at->session.context, self->meets,
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
    if (!role_check(at, gpuipc_buffer_get_info(on->buffer, &info), "describing the memory")) {
        return false;
    }
    on->device = self->on->user != DEVICE_ANY                  ? self->on->user
                 : info.device < at->session.info.device_count ? info.device
                                                               : 0;
    return (on->bytes > sizeof(uint32_t) && on->bytes <= info.bytes) ||
           role_fail(at, "the other end named a size that its memory has not");
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
    role *at = &self->role;
    if (!peer_make(at, on->device, on->which, pattern_consumer, &own)) {
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
static bool await_handed(leader *self, child *program) {
    char line[ROLE_LINE_MAX];
    role *at = &self->role;
    const os_deadline deadline = os_deadline_after(RUNG_WAITS * at->options->timeout_ms);
    size_t which;
    gpuipc_status status;
    while ((status = child_next(&program, 1, deadline, &which, line, sizeof(line))) == GPUIPC_OK) {
        if (strcmp(line, PEER_SAYS_HANDED) == 0) {
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
static bool own_death_is_noticed(leader *self, arm *on) {
    char line[ROLE_LINE_MAX];
    arguments words;
    child *program;
    role *at = &self->role;
    arguments_begin(&words, "peer-end", self->meets, at->session.choice, at->options);
    arguments_add_number(&words, "--device", on->device);
    if (at->options->admit != NULL) {
        arguments_add(&words, "--admit");
        arguments_add(&words, at->options->admit);
    }
    if (!role_check(at, child_start(words.list, &program), "starting a program to be killed")) {
        return false;
    }
    const bool is_handed = await_handed(self, program);
    child_destroy(program);
    return is_handed && answers(self, on) && role_say(at, NULL, "outcome") &&
           role_hear(at, "right", line, NULL) != NULL;
}

/* In the place of the other end, which has still to climb: a program that it starts. */
static bool meet_second(leader *self, arm *on) {
    char line[ROLE_LINE_MAX];
    role *at = &self->role;
    const char *name = role_say(at, NULL, "second") ? role_hear(at, "second", line, NULL) : NULL;
    if (name == NULL) {
        return false;
    }
    if (name[0] != ' ' || strlen(name + 1) >= sizeof(self->second)) {
        return role_fail(at, "the other end said \"%.60s\" where a name was expected", line);
    }
    memcpy(self->second, name + 1, strlen(name + 1) + 1);
    hang_up(self, on);
    self->meets = self->second;
    const bool is_met = answers(self, on);
    self->meets = self->there.name;
    return is_met;
}

/* The memory outlives its owner, for who has it open. */
static bool other_death_is_noticed(leader *self, arm *on) {
    char line[ROLE_LINE_MAX];
    role *at = &self->role;
    if ((!self->on->is_last && !meet_second(self, on)) || !opened(self, on) ||
        !role_say(at, NULL, "die")) {
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
    return own_death_is_noticed(self, on) && other_death_is_noticed(self, on);
}

static bool (*const rungs[])(leader *, arm *) = {NULL,       answers,      opened,
                                                 bytes_move, streams_wait, end_is_noticed};

/* "device 0 -> device 1, vmm", or "vmm" where there is one device. */
static const char *title_of(const ladder *on, const char *what, char text[TITLE_MAX]) {
    (void)snprintf(text, TITLE_MAX, "%s%s%.20s", on->name, on->name[0] != '\0' ? ", " : "", what);
    return text;
}

/* "peer/0-1/vmm/bytes", or "peer/vmm/bytes"; "peer/0-1/verdict" without a rung's. */
static const char *id_of(const ladder *on, const char *what, const char *of_rung,
                         char text[TITLE_MAX]) {
    (void)snprintf(text, TITLE_MAX, "peer/%s%s%s%s%s", on->id, on->id[0] != '\0' ? "/" : "", what,
                   of_rung != NULL ? "/" : "", of_rung != NULL ? of_rung : "");
    return text;
}

static void climb_arm(leader *self, arm *on) {
    char id[TITLE_MAX];
    char title[TITLE_MAX];
    char text[ROLE_LINE_MAX];
    role *at = &self->role;
    report *into = at->options->report;
    (void)title_of(self->on, on->transport, title);
    at->failure[0] = '\0';
    for (rung i = RUNG_ANSWERS; i <= on->top && on->failed == 0 && !program_is_interrupted();
         i = (rung)(i + 1)) {
        (void)snprintf(text, sizeof(text), "%s, rung %d, %s", title, (int)i, rung_names[i]);
        watchdog_expect(text, RUNG_WAITS * at->options->timeout_ms);
        report_progress(into, "%s", text);
        const bool is_good = rungs[i](self, on);
        on->failed = is_good ? 0 : i;
        if (!is_good && program_is_interrupted()) {
            break; /* that is no answer to anything */
        }
        (void)id_of(self->on, on->transport, rung_ids[i], id);
        (void)snprintf(text, sizeof(text), "%s, rung %d, %s: %.800s", title, (int)i, rung_names[i],
                       is_good ? "yes" : at->failure);
        report_add_check(into, id, is_good ? REPORT_PASS : REPORT_FAIL, text);
    }
    watchdog_rest();
    hang_up(self, on);
}

static ladder make_ladder(uint32_t user) {
    return (ladder){.user = user,
                    .is_last = true,
                    .host = {.transport = "host",
                             .which = GPUIPC_TRANSPORT_HOST,
                             .top = RUNG_RESIDENT,
                             .device = DEVICE_ANY},
                    .vmm = {.transport = "vmm",
                            .which = GPUIPC_TRANSPORT_VMM,
                            .top = RUNG_END,
                            .device = DEVICE_ANY}};
}

static void get_on(leader *self, ladder *on) {
    self->on = on;
    self->meets = self->there.name;
    self->role.receive_device =
        on->user == DEVICE_ANY ? GPUIPC_DEVICE_OWNER : GPUIPC_DEVICE(on->user);
    on->is_tried = true;
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
static const char *judge(const leader *self, const ladder *on, char *text, size_t capacity) {
    const rung host = on->host.failed;
    const rung vmm = on->vmm.failed;
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

static void tell_arm(const report *into, const ladder *of, const arm *on) {
    char title[TITLE_MAX];
    if (on->failed != 0) {
        report_say(into, "%s: failed at rung %d of %d (%s)\n", title_of(of, on->transport, title),
                   (int)on->failed, (int)on->top, rung_names[on->failed]);
    } else {
        report_say(into, "%s: all %d rungs\n", title_of(of, on->transport, title), (int)on->top);
    }
}

static void tell_ladder(const leader *self, const ladder *on) {
    const report *into = self->role.options->report;
    char verdict[900];
    if (on->is_tried) {
        tell_arm(into, on, &on->host);
        tell_arm(into, on, &on->vmm);
        report_say(into, "%s%s%s\n", on->name, on->name[0] != '\0' ? ": " : "",
                   judge(self, on, verdict, sizeof(verdict)));
    } else if (on->name[0] != '\0') {
        report_say(into, "%s: not tried\n", on->name);
    }
}

/* Nothing of a user, a path or a device but its number is in it. */
static void tell_redacted(const leader *self) {
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
    tell_ladder(self, &self->one);
    tell_ladder(self, &self->two);
    report_say(into, "```\n");
}

/* The other end still waits unless it was the one to die. */
static void pass_on(leader *self, const ladder *on, const char *verdict) {
    char line[ROLE_LINE_MAX];
    arm nothing = on->vmm;
    if (on->vmm.failed != 0 && (on->vmm.failed != RUNG_END || !on->is_last) &&
        on->host.failed != RUNG_ANSWERS && answers(self, &nothing) &&
        role_say(&self->role, NULL, "verdict %s", verdict)) {
        (void)role_hear(&self->role, "end", line, NULL);
    }
}

/* Up both arms, and what came of it. Without a verdict when not all was tried. */
static void climb(leader *self, ladder *on) {
    char verdict[900];
    char text[sizeof(verdict) + TITLE_MAX];
    char title[TITLE_MAX];
    char id[TITLE_MAX];
    get_on(self, on);
    climb_arm(self, &on->host);
    climb_arm(self, &on->vmm);
    if (program_is_interrupted()) {
        return;
    }
    judge(self, on, verdict, sizeof(verdict));
    pass_on(self, on, verdict);
    (void)snprintf(text, sizeof(text), "%.60s: %s", title_of(on, "verdict", title), verdict);
    report_add_check(self->role.options->report, id_of(on, "verdict", NULL, id),
                     on->host.failed == 0 && on->vmm.failed == 0 ? REPORT_PASS : REPORT_FAIL, text);
}

/* ---- the devices ---------------------------------------------------------------------------- */

/* The device of the other end's memory, and the one that is asked for, or another one that both ends see; by their numbers
 * here. */
static bool find_pair(const leader *self, uint32_t *out_owner, uint32_t *out_user) {
    const session *at = &self->role.session;
    uint32_t owner = DEVICE_ANY;
    uint32_t user = DEVICE_ANY;
    for (uint32_t i = 0; i < at->info.device_count; i++) {
        gpuipc_device_info info;
        char uuid[REPORT_UUID_MAX];
        if (session_device(at, i, &info) != GPUIPC_OK ||
            !peer_facts_have_gpu(&self->there, report_uuid(&info, uuid))) {
            continue;
        }
        if (strcmp(uuid, self->there.device) == 0) {
            owner = i;
        } else if (user == DEVICE_ANY && run_is_chosen(self->role.options->device, i)) {
            user = i;
        }
    }
    *out_owner = owner;
    *out_user = user;
    return owner != DEVICE_ANY && user != DEVICE_ANY;
}

/* Each end uses the other's memory, so each device has to reach the other; a line says so where one does not. */
static bool can_climb_two(leader *self) {
    report *into = self->role.options->report;
    const session *at = &self->role.session;
    uint32_t owner;
    uint32_t user;
    bool can = false;
    if (!find_pair(self, &owner, &user)) {
        return false;
    }
    self->two.user = user;
    (void)snprintf(self->two.name, sizeof(self->two.name), "device %u -> device %u", owner, user);
    (void)snprintf(self->two.id, sizeof(self->two.id), "%u-%u", owner, user);
    return run_can_reach(into, "peer", at, owner, user, &can) && can &&
           run_can_reach(into, "peer", at, user, owner, &can) && can;
}

static void climb_two(leader *self) {
    char line[ROLE_LINE_MAX];
    char id[TITLE_MAX];
    if (self->one.vmm.failed == 0) {
        climb(self, &self->two);
        return;
    }
    (void)snprintf(id, sizeof(id), "peer/%s", self->two.id);
    (void)snprintf(line, sizeof(line), "%s: not tried, since one device with itself failed",
                   self->two.name);
    report_add_check(self->role.options->report, id, REPORT_SKIP, line);
}

static int lead(leader *self) {
    const report *into = self->role.options->report;
    peer_facts_find(&self->role.session, &self->here);
    compare(self);
    self->one.is_last = !can_climb_two(self);
    climb(self, &self->one);
    if (!self->one.is_last && !program_is_interrupted()) {
        climb_two(self);
    }
    if (program_is_interrupted()) {
        return EXIT_FAIL; /* not all was tried */
    }
    tell_redacted(self);
    return report_count(into, REPORT_FAIL) == 0 ? EXIT_PASS : EXIT_FAIL;
}

int peer_lead(const options *wanted) {
    static leader self; /* a few tens of KiB, once in this program's life */
    self = (leader){.role = {.options = wanted, .other = "other end"},
                    .one = make_ladder(DEVICE_ANY),
                    .two = make_ladder(DEVICE_ANY)};
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
        code = run_has_device(&self.role.session, "--device", wanted->device) ? lead(&self)
                                                                              : EXIT_USAGE;
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
    self = (leader){.role = {.options = wanted, .other = "other end", .session = *at},
                    .one = make_ladder(user)};
    (void)snprintf(self.there.name, sizeof(self.there.name), "%s", arguments_unique_name(name));
    arguments_begin(&words, "peer-give", self.there.name, at->choice, wanted);
    arguments_add_number(&words, "--device", owner);
    if (child_start(words.list, &giver) != GPUIPC_OK) {
        (void)snprintf(line, sizeof(line), "vmm, rung 1, %s: %s", rung_names[RUNG_ANSWERS],
                       gpuipc_error_get()->sentence);
        report_add_check(wanted->report, "peer/vmm/answers", REPORT_FAIL, line);
        return;
    }
    get_on(&self, &self.one);
    climb_arm(&self, &self.one.vmm);
    child_destroy(giver);
}
