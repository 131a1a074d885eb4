/* SPDX-License-Identifier: MIT */
/** @file See pair.h. */
#include "pair.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <gpuipc/gpuipc_status.h>

#include "child.h"
#include "role.h"

/* The roles have deadlines of their own; the one that only waits for the other should be the first
 * to say so. */
#define GRACE_MS        5000
#define ARGUMENTS_MAX   48
#define ARGUMENT_LENGTH 48

enum {
    PRODUCER,
    CONSUMER,
    PROGRAMS
};
static const char *const names[PROGRAMS] = {"producer", "consumer"};
static const char *const commands[PROGRAMS] = {"produce", "consume"};

typedef struct pair {
    const options *options;
    uint32_t owner;
    uint32_t peer;
    child *programs[PROGRAMS];
    bool ended[PROGRAMS];
    char step[PROGRAMS][ROLE_LINE_MAX]; /* what each did last */
    tally seen;
} pair;

/* The words of a command line, with room for those that are made here. */
typedef struct words {
    const char *list[ARGUMENTS_MAX];
    size_t count;
    char made[ARGUMENTS_MAX][ARGUMENT_LENGTH];
} words;

static void add(words *self, const char *word) {
    self->list[self->count++] = word;
}

static void add_number(words *self, const char *option, uint64_t number) {
    char *word = self->made[self->count];
    (void)snprintf(word, ARGUMENT_LENGTH, "%s=%" PRIu64, option, number);
    add(self, word);
}

static void make_words(const pair *self, int program, const char *name, const char *choice,
                       words *out) {
    const options *wanted = self->options;
    *out = (words){0};
    add(out, commands[program]);
    add(out, "--name");
    add(out, name);
    add(out, "--driver");
    add(out, choice);
    add_number(out, "--device", self->owner);
    add_number(out, "--peer", self->peer);
    add_number(out, "--timeout", (uint64_t)wanted->timeout_ms / 1000);
    add_number(out, "--parent", os_process_id());
    if (program == PRODUCER) {
        for (size_t i = 0; i < wanted->size_count; i++) {
            add_number(out, "--size", wanted->sizes[i]);
        }
        if (wanted->bench_copy) {
            add(out, "--bench-copy");
        }
    }
}

static bool start(pair *self, const char *choice) {
    char name[ARGUMENT_LENGTH];
    uint64_t random = 0;
    /* Without random bits the name is still this process's own. */
    (void)os_random(&random, sizeof(random));
    (void)snprintf(name, sizeof(name), "selftest-%" PRIu64 "-%016" PRIx64, os_process_id(), random);
    for (int i = 0; i < PROGRAMS; i++) {
        words arguments;
        make_words(self, i, name, choice, &arguments);
        if (child_start(arguments.list, &self->programs[i]) != GPUIPC_OK) {
            printf(ROLE_FAIL "device %u -> device %u: the %s could not be started: %s\n",
                   self->owner, self->peer, names[i], gpuipc_error_get()->sentence);
            self->seen.failed++;
            return false;
        }
    }
    return true;
}

/* One line of one program: a step, a verdict, or something else it has to say. */
static void take_line(pair *self, size_t program, const char *line) {
    if (strncmp(line, ROLE_STEP, strlen(ROLE_STEP)) == 0) {
        (void)snprintf(self->step[program], sizeof(self->step[program]), "%s",
                       line + strlen(ROLE_STEP));
        if (self->options->verbose) {
            printf("      %s: %s\n", names[program], self->step[program]);
        }
        return;
    }
    self->seen.passed += strncmp(line, ROLE_PASS, strlen(ROLE_PASS)) == 0;
    self->seen.failed += strncmp(line, ROLE_FAIL, strlen(ROLE_FAIL)) == 0;
    self->seen.skipped += strncmp(line, ROLE_SKIP, strlen(ROLE_SKIP)) == 0;
    printf("%s\n", line);
    fflush(stdout);
}

/* Listens until both outputs have ended, or nothing was said for too long. */
static void listen_to_both(pair *self) {
    while (!self->ended[PRODUCER] || !self->ended[CONSUMER]) {
        char line[ROLE_LINE_MAX];
        size_t program;
        bool one_is_gone = self->ended[PRODUCER] || self->ended[CONSUMER];
        int patience_ms = one_is_gone ? GRACE_MS : self->options->timeout_ms + GRACE_MS;
        gpuipc_status status = child_next(self->programs, PROGRAMS, os_deadline_after(patience_ms),
                                          &program, line, sizeof(line));
        if (status == GPUIPC_OK) {
            take_line(self, program, line);
        } else if (status == GPUIPC_ERR_PEER_CLOSED) {
            self->ended[program] = true;
        } else {
            return; /* silence: what is still there is killed, and said to be hanging */
        }
    }
}

/* Waits for a program's end; false when that was no good one. */
static bool finish(pair *self, int program) {
    char text[CHILD_END_MAX];
    bool killed = false;
    os_deadline deadline = os_deadline_after(self->ended[program] ? GRACE_MS : 0);
    child_end end = child_finish(self->programs[program], deadline, &killed);
    if (killed) {
        printf("      the %s hung and was killed; its last step: %s\n", names[program],
               self->step[program][0] != '\0' ? self->step[program] : "none");
    } else if (!end.exited || (end.code != EXIT_PASS && end.code != EXIT_NOTHING)) {
        printf("      the %s %s; its last step: %s\n", names[program], child_end_text(end, text),
               self->step[program]);
    } else {
        return true;
    }
    return false;
}

void pair_run(const options *wanted, const char *choice, uint32_t owner, uint32_t peer,
              unsigned cases, tally *total) {
    pair self = {.options = wanted, .owner = owner, .peer = peer};
    bool good = start(&self, choice);
    if (good) {
        listen_to_both(&self);
        good = finish(&self, PRODUCER);
        good = finish(&self, CONSUMER) && good;
    }
    unsigned seen = self.seen.passed + self.seen.failed + self.seen.skipped;
    if (seen < cases) {
        printf(ROLE_FAIL "device %u -> device %u: %u of %u cases did not run\n", owner, peer,
               cases - seen, cases);
        self.seen.failed += cases - seen;
    } else if (!good && self.seen.failed == 0) {
        printf(ROLE_FAIL "device %u -> device %u: a program ended badly\n", owner, peer);
        self.seen.failed++;
    }
    fflush(stdout);
    for (int i = 0; i < PROGRAMS; i++) {
        child_destroy(self.programs[i]);
    }
    total->passed += self.seen.passed;
    total->failed += self.seen.failed;
    total->skipped += self.seen.skipped;
}
