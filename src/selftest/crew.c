/* SPDX-License-Identifier: MIT */
/** @file See crew.h. */
#include "crew.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program.h"
#include "report.h"
#include "wrap.h"

/* The roles have deadlines of their own; the one that only waits for another should be the first to
 * say so. */
#define GRACE_MS 5000
/* How often it is looked whether this program is to end. */
#define LOOK_MS 200

typedef struct crew {
    const options *options;
    const crew_part *parts;
    size_t part_count;
    size_t part;     /* which of them is being done; part_count: all have been */
    unsigned judged; /* cases of it that have a verdict */
    bool
        is_broken; /* the last verdict was no good one: the programs end then, and the next part is not to blame */
    bool is_told; /* that this case is being done, since it lasts */
    crew_member *members;
    const crew_member *speaker; /* who said a step last; NULL: nobody */
    size_t count;
    child **programs;
    tally seen;
    char why[ROLE_LINE_MAX]; /* of those that ended badly; empty: none did */
} crew;

static void add_failure(crew *self, const char *line) {
    self->seen.failed++;
    report_add_check(self->options->report, NULL, REPORT_FAIL, line);
}

static bool start(crew *self) {
    for (size_t i = 0; i < self->count; i++) {
        if (child_start(self->members[i].words.list, &self->programs[i]) != GPUIPC_OK) {
            char line[ROLE_LINE_MAX];
            (void)snprintf(line, sizeof(line), "%s: the %s could not be started: %s",
                           self->parts[0].title, self->members[i].name,
                           gpuipc_error_get()->sentence);
            add_failure(self, line);
            return false;
        }
    }
    return true;
}

/* Others may speak between a program's notes and its verdict. */
static void keep_note(crew_member *from, const char *line) {
    const size_t used = strlen(from->notes);
    (void)snprintf(from->notes + used, sizeof(from->notes) - used, "%s\n", line);
}

static void take_notes(const crew *self, crew_member *from) {
    char *note = from->notes;
    for (char *end; (end = strchr(note, '\n')) != NULL; note = end + 1) {
        *end = '\0';
        report_take_note(self->options->report, note);
    }
    from->notes[0] = '\0';
}

/* Once in a case: what is being done, and which of how many that is. */
static void tell_progress(crew *self) {
    char case_text[48] = "";
    char step[ROLE_LINE_MAX] = "";
    if (self->is_told || self->part == self->part_count) {
        return;
    }
    const crew_part *part = &self->parts[self->part];
    if (part->cases > 1) {
        (void)snprintf(case_text, sizeof(case_text), ", case %u of %u", self->judged + 1,
                       part->cases);
    }
    if (self->speaker != NULL) {
        (void)snprintf(step, sizeof(step), "; the %s: %.300s", self->speaker->name,
                       self->speaker->step);
    }
    self->is_told = report_progress(
        self->options->report, "sharing, %s (%u of %u)%s%s", part->title,
        part->number != 0 ? part->number : (unsigned)self->part + 1,
        part->number != 0 ? part->all : (unsigned)self->part_count, case_text, step);
}

/* "pass  ", "FAIL  " or "skip  ", and what came of a case. */
static bool take_verdict(crew *self, crew_member *from, const char *line) {
    static const char *const words[] = {ROLE_PASS, ROLE_FAIL, ROLE_SKIP};
    unsigned *const counts[] = {&self->seen.passed, &self->seen.failed, &self->seen.skipped};
    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
        if (strncmp(line, words[i], strlen(words[i])) == 0) {
            take_notes(self, from);
            (*counts[i])++;
            self->is_broken = i == REPORT_FAIL;
            report_add_check(self->options->report, NULL, (report_status)i,
                             line + strlen(words[i]));
            if (self->part < self->part_count && ++self->judged == self->parts[self->part].cases) {
                self->part++;
                self->judged = 0;
            }
            self->is_told = false;
            tell_progress(self);
            return true;
        }
    }
    return false;
}

/* One line of one program: a step, a verdict, or something else it has to say. */
static void take_line(crew *self, crew_member *from, const char *line) {
    if (strncmp(line, ROLE_STEP, strlen(ROLE_STEP)) == 0) {
        (void)snprintf(from->step, sizeof(from->step), "%s", line + strlen(ROLE_STEP));
        self->speaker = from;
        if (self->options->verbose) {
            report_say(self->options->report, "      %s: %s\n", from->name, from->step);
        }
        return;
    }
    if (strncmp(line, ROLE_NOTE, strlen(ROLE_NOTE)) == 0) {
        keep_note(from, line + strlen(ROLE_NOTE));
    } else if (!take_verdict(self, from, line)) {
        report_say(self->options->report, "%s\n", line);
    }
}

static size_t count_ended(const crew *self) {
    size_t ended = 0;
    for (size_t i = 0; i < self->count; i++) {
        ended += self->members[i].ended;
    }
    return ended;
}

/* How long they may be silent. */
static int patience(const crew *self) {
    return count_ended(self) > 0 ? GRACE_MS : self->options->timeout_ms + GRACE_MS;
}

/* Listens until all outputs have ended, nothing was said for too long, or this program is to end. */
static void listen_to_all(crew *self) {
    os_deadline silence = os_deadline_after(patience(self));
    while (count_ended(self) < self->count) {
        char line[ROLE_LINE_MAX];
        size_t which;
        gpuipc_status status = child_next(self->programs, self->count, os_deadline_after(LOOK_MS),
                                          &which, line, sizeof(line));
        tell_progress(self);
        if (status == GPUIPC_OK) {
            take_line(self, &self->members[which], line);
        } else if (status == GPUIPC_ERR_PEER_CLOSED) {
            self->members[which].ended = true;
        } else if (status != GPUIPC_ERR_TIMEOUT || os_deadline_passed(silence) ||
                   program_is_interrupted()) {
            return; /* what is still there is killed, and said to be hanging */
        } else {
            continue;
        }
        silence = os_deadline_after(patience(self));
    }
}

/* Waits for a program's end; false when that was no good one. */
static bool finish(crew *self, size_t index) {
    char text[CHILD_END_MAX];
    const crew_member *one = &self->members[index];
    bool killed = false;
    os_deadline deadline = os_deadline_after(one->ended ? GRACE_MS : 0);
    child_end end = child_finish(self->programs[index], deadline, &killed);
    const size_t used = strlen(self->why);
    char *const why = self->why + used;
    const size_t room = sizeof(self->why) - used;
    if (killed) {
        (void)snprintf(why, room, "; the %s hung and was killed; its last step: %.300s", one->name,
                       one->step[0] != '\0' ? one->step : "none");
    } else if (!end.exited || (end.code != EXIT_PASS && end.code != EXIT_NOTHING)) {
        (void)snprintf(why, room, "; the %s %s; its last step: %.300s", one->name,
                       child_end_text(end, text), one->step);
    } else {
        return true;
    }
    return false;
}

/* The programs ended on account of the part before this one. */
static bool is_untried(const crew *self) {
    return self->is_broken && self->judged == 0;
}

static void judge(crew *self, bool good) {
    const bool is_done = self->part == self->part_count;
    const crew_part *part = &self->parts[is_done ? self->part_count - 1 : self->part];
    char line[ROLE_LINE_MAX];
    if (program_is_interrupted()) {
        (void)snprintf(line, sizeof(line), "%s: interrupted", part->title);
        report_add_check(self->options->report, NULL, REPORT_SKIP, line);
        self->seen.skipped++;
    } else if (!is_done && !is_untried(self)) {
        const unsigned missing = part->cases - self->judged;
        (void)snprintf(line, sizeof(line), "%s: %u of %u cases did not run%.900s", part->title,
                       missing, part->cases, self->why);
        add_failure(self, line);
        self->seen.failed += missing - 1;
    } else if (!good && self->seen.failed == 0) {
        (void)snprintf(line, sizeof(line), "%s: a program ended badly%.900s", part->title,
                       self->why);
        add_failure(self, line);
    } else if (!good) {
        report_say(self->options->report, "     %s\n", self->why + 1);
    }
}

size_t crew_run(const options *wanted, const crew_part *parts, size_t part_count,
                crew_member *members, size_t count, tally *total) {
    crew self = {.options = wanted,
                 .parts = parts,
                 .part_count = part_count,
                 .members = members,
                 .count = count,
                 .programs = calloc(count, sizeof(child *))};
    if (self.programs == NULL) {
        wrap_complain("FAIL: no memory to start %zu programs", count);
        total->failed++;
        return part_count;
    }
    bool good = start(&self);
    if (good) {
        listen_to_all(&self);
        for (size_t i = 0; i < count; i++) {
            good = finish(&self, i) && good;
        }
    }
    judge(&self, good);
    for (size_t i = 0; i < count; i++) {
        child_destroy(self.programs[i]);
    }
    free(self.programs);
    total->passed += self.seen.passed;
    total->failed += self.seen.failed;
    total->skipped += self.seen.skipped;
    return self.part == part_count || is_untried(&self) ? self.part : self.part + 1;
}
