/* SPDX-License-Identifier: MIT */
/** @file See report.h. */
#include "report.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "options.h"
#include "output.h"
#include "program.h"
#include "wrap.h"

/* ECMA-48: what terminals have. */
#define COLOR_PASS "\x1b[32m"
#define COLOR_FAIL "\x1b[1;31m"
#define COLOR_SKIP "\x1b[33m"
#define COLOR_NONE "\x1b[0m"

/* What takes less says nothing of it. */
#define PROGRESS_NS UINT64_C(1000000000)
/* Lines that a brief report has for checks that failed, and for those that were skipped. */
#define BRIEF_FAILED_MAX  6
#define BRIEF_SKIPPED_MAX 2
/* What two digits show. */
#define SECONDS_SHOWN 0.01

const char *report_status_name(report_status status) {
    static const char *const names[] = {"pass", "fail", "skip"};
    return names[status];
}

const char *report_source_name(gpuipc_figure_source source) {
    return source == GPUIPC_FIGURE_MEASURED    ? "measured"
           : source == GPUIPC_FIGURE_ESTIMATED ? "estimated"
                                               : "unknown";
}

const char *report_proof_name(gpuipc_proof proof) {
    return proof == GPUIPC_PROOF_TRIED        ? "tried"
           : proof == GPUIPC_PROOF_ATTRIBUTES ? "by attributes"
                                              : "not tried";
}

const char *report_uuid(const gpuipc_device_info *info, char text[REPORT_UUID_MAX]) {
    size_t used = (size_t)snprintf(text, REPORT_UUID_MAX, "%s", info->is_mig ? "MIG" : "GPU");
    for (size_t i = 0; i < sizeof(info->uuid.bytes); i++) {
        const bool has_dash = i == 0 || i == 4 || i == 6 || i == 8 || i == 10;
        used += (size_t)snprintf(text + used, REPORT_UUID_MAX - used, "%s%02x", has_dash ? "-" : "",
                                 info->uuid.bytes[i]);
    }
    return text;
}

bool report_was_compared(const report_way *way) {
    return way->measured.bytes != 0 || way->measured.wrong_words != 0;
}

/* no-color.org: any text but an empty one. */
static bool wants_colors(void) {
    const char *none = os_environment("NO_COLOR");
    return program_columns() > 0 && (none == NULL || none[0] == '\0');
}

void report_begin(report *self, const char *name, bool is_ascii) {
    char directory[OS_PATH_MAX];
    *self = (report){.command = name, .has_colors = !is_ascii && wants_colors()};
    wrap_begin(program_columns(), is_ascii);
    if (os_directory_resolve(NULL, directory, sizeof(directory)) != GPUIPC_OK) {
        directory[0] = '\0';
    }
    os_facts_find(directory, &self->facts);
    platform_begin(&self->platform, &self->facts);
    self->started_ns = self->begun_ns = self->progress_ns = os_clock_ns();
    self->round = 1;
}

void report_clear(report *self) {
    free(self->devices);
    free(self->ways);
    free(self->checks);
    free(self->findings);
    *self = (report){.command = self->command};
}

void report_say(const report *self, const char *format, ...) {
    va_list arguments;
    if (self->format == REPORT_LINES) {
        va_start(arguments, format);
        wrap_say_list(format, arguments);
        va_end(arguments);
    }
}

/* One more at the end of a list. Without memory the tool has nothing to tell any more. */
static void *grow(void *list, size_t count, size_t size) {
    void *longer = realloc(list, (count + 1) * size);
    if (longer == NULL) {
        wrap_complain("FAIL: no memory for what was found");
        program_end_now(EXIT_FAIL);
    }
    return longer;
}

void report_note_value(report *self, const char *name, double number) {
    if (self->pending_count < REPORT_VALUES_MAX) {
        report_value *value = &self->pending[self->pending_count++];
        (void)snprintf(value->name, sizeof(value->name), "%s", name);
        value->number = number;
    }
}

void report_note_id(report *self, const char *id) {
    (void)snprintf(self->pending_id, sizeof(self->pending_id), "%s", id);
}

void report_take_note(report *self, const char *line) {
    char name[32];
    double number;
    if (strncmp(line, "id ", 3) == 0) {
        report_note_id(self, line + 3);
    } else if (sscanf(line, "value %31s %lf", name, &number) == 2) {
        report_note_value(self, name, number);
    }
}

bool report_progress(report *self, const char *format, ...) {
    const uint64_t now_ns = os_clock_ns();
    va_list arguments;
    if (now_ns - self->progress_ns < PROGRESS_NS) {
        return false;
    }
    self->progress_ns = now_ns;
    va_start(arguments, format);
    wrap_complain_list(format, arguments);
    va_end(arguments);
    return true;
}

/* "ring of 2, member 0 over vmm" becomes "ring-of-2-member-0-over-vmm". */
static void make_id(char *id, size_t capacity, const char *title) {
    size_t used = 0;
    for (; *title != '\0' && used + 1 < capacity; title++) {
        const bool is_plain = isalnum((unsigned char)*title) != 0;
        if (is_plain || (used > 0 && id[used - 1] != '-')) {
            id[used++] = is_plain ? *title : '-';
        }
    }
    used -= used > 0 && id[used - 1] == '-';
    id[used] = '\0';
}

const char *report_word(const report *self, report_status status) {
    static const char *const plain[] = {"pass", "FAIL", "skip"};
    static const char *const colored[] = {
        COLOR_PASS "pass" COLOR_NONE, COLOR_FAIL "FAIL" COLOR_NONE, COLOR_SKIP "skip" COLOR_NONE};
    return self->has_colors ? colored[status] : plain[status];
}

/* What a brief report has no line for is counted. */
static bool has_line(report *self, const report_check *made) {
    static const unsigned most[] = {0, BRIEF_FAILED_MAX, BRIEF_SKIPPED_MAX};
    const bool is_demanded =
        strncmp(made->id, "require/", 8) == 0 || strncmp(made->id, "min-gbps/", 9) == 0;
    if (!self->is_brief || is_demanded) {
        return true;
    }
    return ++self->brief_count[made->status] <= most[made->status];
}

void report_say_rest(const report *self) {
    const unsigned *count = self->brief_count;
    if (self->is_brief && count[REPORT_FAIL] > BRIEF_FAILED_MAX) {
        report_say(self, "%s  %u more\n", report_word(self, REPORT_FAIL),
                   count[REPORT_FAIL] - BRIEF_FAILED_MAX);
    }
    if (self->is_brief && count[REPORT_SKIP] > BRIEF_SKIPPED_MAX) {
        report_say(self, "%s  %u more\n", report_word(self, REPORT_SKIP),
                   count[REPORT_SKIP] - BRIEF_SKIPPED_MAX);
    }
}

static void print_check(report *self, const report_check *made, const char *line) {
    if (!has_line(self, made)) {
        return;
    }
    report_say(self, "%s  %s", report_word(self, made->status), line);
    if (made->status == REPORT_PASS && made->seconds >= SECONDS_SHOWN) {
        report_say(self, "; took %.2f s", made->seconds);
    }
    report_say(self, "\n");
}

/* Up to a colon, or what stands in brackets before it. */
static size_t title_length(const char *line) {
    const size_t colon = strcspn(line, ":");
    const char *bracket = strstr(line, " (");
    return bracket != NULL && bracket < line + colon ? (size_t)(bracket - line) : colon;
}

static report_check *find_check(const report *self, const char *id) {
    for (size_t i = 0; i < self->check_count; i++) {
        if (strcmp(self->checks[i].id, id) == 0) {
            return &self->checks[i];
        }
    }
    return NULL;
}

/* Two of one id would be one to who compares runs: the second of a round is "ID-2", in each round the same.
 *  @return the one of an earlier round; NULL: there is none */
static report_check *make_unique(const report *self, report_check *made) {
    const size_t length = strlen(made->id);
    const size_t end = length < sizeof(made->id) - 8 ? length : sizeof(made->id) - 8;
    report_check *earlier;
    for (unsigned i = 2;
         (earlier = find_check(self, made->id)) != NULL && earlier->round == self->round; i++) {
        (void)snprintf(made->id + end, sizeof(made->id) - end, "-%u", i);
    }
    return earlier;
}

/* It takes the place of the one of an earlier round, unless that failed. */
static void add_again(report_check *earlier, const report_check *again) {
    const unsigned rounds = earlier->rounds + 1;
    if (earlier->status != REPORT_FAIL) {
        *earlier = *again;
    }
    earlier->rounds = rounds;
    earlier->round = again->round;
}

void report_add_check(report *self, const char *id, report_status status, const char *line) {
    const uint64_t now_ns = os_clock_ns();
    report_check check;
    report_check *const made = &check;
    const size_t title = title_length(line);
    const char *text = line + title + (line[title] == ':');
    *made = (report_check){.status = status,
                           .rounds = 1,
                           .round = self->round,
                           .seconds = (double)(now_ns - self->begun_ns) / 1e9,
                           .value_count = self->pending_count};
    memcpy(made->values, self->pending, sizeof(made->values));
    (void)snprintf(made->title, sizeof(made->title), "%.*s", (int)title, line);
    (void)snprintf(made->text, sizeof(made->text), "%s", text + (text[0] == ' '));
    (void)snprintf(made->id, sizeof(made->id), "%s", id != NULL ? id : self->pending_id);
    if (made->id[0] == '\0') {
        make_id(made->id, sizeof(made->id), made->title);
    }
    self->pending_count = 0;
    self->pending_id[0] = '\0';
    self->begun_ns = now_ns;
    report_check *const earlier = make_unique(self, made);
    if (earlier != NULL) {
        add_again(earlier, made);
    } else {
        self->checks = grow(self->checks, self->check_count, sizeof(*self->checks));
        self->checks[self->check_count++] = *made;
    }
    if (self->round == 1 || status == REPORT_FAIL) {
        print_check(self, made, line);
    }
}

void report_add_device(report *self, const gpuipc_device_info *info) {
    self->devices = grow(self->devices, self->device_count, sizeof(*self->devices));
    self->devices[self->device_count++] = *info;
}

/* Of a later round: its figures are the newer ones, and what was wrong stays wrong. */
static bool add_way_again(report *self, const report_way *way) {
    for (size_t i = 0; i < self->way_count; i++) {
        report_way *earlier = &self->ways[i];
        if (earlier->owner == way->owner && earlier->user == way->user &&
            earlier->info.transport == way->info.transport) {
            const uint64_t wrong = earlier->measured.wrong_words + way->measured.wrong_words;
            if (earlier->failure[0] == '\0') {
                *earlier = *way;
            }
            earlier->measured.wrong_words = wrong;
            return true;
        }
    }
    return false;
}

void report_add_way(report *self, const report_way *way) {
    if (self->round > 1 && add_way_again(self, way)) {
        return;
    }
    self->ways = grow(self->ways, self->way_count, sizeof(*self->ways));
    self->ways[self->way_count++] = *way;
}

void report_add_finding(report *self, const gpuipc_finding *finding) {
    self->findings = grow(self->findings, self->finding_count, sizeof(*self->findings));
    self->findings[self->finding_count++] = *finding;
}

unsigned report_count(const report *self, report_status status) {
    unsigned count = 0;
    for (size_t i = 0; i < self->check_count; i++) {
        count += self->checks[i].status == status;
    }
    return count;
}

bool report_judges_findings(const report *self) {
    return strcmp(self->command, "doctor") == 0;
}

static bool print(const report *self, int exit_code) {
    switch (self->format) {
    case REPORT_LINES:
        return true;
    case REPORT_JSON:
        return report_print_json(self, stdout, exit_code);
    case REPORT_CSV:
        return report_print_csv(self, stdout);
    case REPORT_TAP:
        return report_print_tap(self, stdout, exit_code);
    case REPORT_MARKDOWN:
        return report_print_markdown(self, stdout, exit_code);
    }
    return false;
}

/* Whole, or not at all. */
static bool write_file(const report *self, const char *path,
                       bool (*write)(const report *self, FILE *into, int exit_code),
                       int exit_code) {
    char why[OUTPUT_WHY_MAX] = "not all of it was written";
    output *to = output_open(path, why);
    if (to == NULL || !output_end(to, write(self, output_file(to), exit_code), why)) {
        wrap_complain("FAIL: %s could not be written: %s", path, why);
        return false;
    }
    return true;
}

bool report_end(const report *self, int exit_code) {
    bool good = print(self, exit_code);
    if (!good) {
        wrap_complain("FAIL: the results could not be written");
    }
    if (self->page != NULL) {
        good = write_file(self, self->page, report_print_page, exit_code) && good;
    }
    if (self->junit != NULL) {
        good = write_file(self, self->junit, report_print_junit, exit_code) && good;
    }
    return good;
}
