/* SPDX-License-Identifier: MIT */
/**
 * @file What a run of the tool found, from which every output is made: lines for a person while it runs, and at its end
 * JSON, CSV, TAP, Markdown and a page. docs/selftest.md has the fields. One thread fills it.
 */
#ifndef GPUIPC_SELFTEST_REPORT_H
#define GPUIPC_SELFTEST_REPORT_H

#include <gpuipc/gpuipc.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/compiler.h"
#include "os.h"
#include "platform.h"

/** How it is told on standard output. */
typedef enum report_format {
    REPORT_LINES, /**< for people, while it runs */
    REPORT_JSON,
    REPORT_CSV,
    REPORT_TAP,
    REPORT_MARKDOWN
} report_format;

typedef enum report_status {
    REPORT_PASS,
    REPORT_FAIL,
    REPORT_SKIP
} report_status;

#define REPORT_VALUES_MAX 8

/** A figure of a check; its name says the unit, such as "hand_over_us". */
typedef struct report_value {
    char name[32];
    double number;
} report_value;

/** Something that was tried. */
typedef struct report_check {
    char id
        [64]; /**< as --only has it: what is tried, the devices and the bytes, "share/0-1/1048576" */
    char title[160]; /**< "device 0 -> device 1, 1 MiB" */
    char text[1024]; /**< what came of it; the reason, where it did not pass */
    report_status status;
    double seconds; /**< it took */
    unsigned
        rounds; /**< it was tried so often; what is told is the first failure, else the last of them */
    unsigned round; /**< the last one in which it was tried */
    report_value values[REPORT_VALUES_MAX];
    unsigned value_count;
} report_check;

/** A transport between two devices. */
typedef struct report_way {
    uint32_t owner; /**< the device that owns the memory */
    uint32_t user;  /**< the device that uses it */
    gpuipc_transport_info info;
    gpuipc_measurement measured; /**< by this run; bytes is 0: it was not */
    char failure[512]; /**< why it could not be measured, though it is available; else empty */
} report_way;

typedef struct report {
    report_format format;
    const char *page;  /**< --html: its path; NULL: none is wanted */
    const char *junit; /**< --junit: its path; NULL: none is wanted */
    bool has_colors;
    bool is_brief;           /**< as in brief.h: a check that passes has no line of its own */
    unsigned brief_count[3]; /**< of each status: checks that were told so */
    bool is_interrupted;     /**< not all was tried */
    bool has_looked;         /**< the findings are those of a look at the machine */
    char error[800];         /**< why nothing could be tried; empty: something was */
    const char *command;     /**< "run", "matrix" */
    os_facts facts;          /**< of the system */
    platform platform;
    gpuipc_context_info driver; /**< all zero: there is none */
    char why_emulated[400];     /**< as in session.h */
    gpuipc_device_info *devices;
    report_way *ways;
    report_check *checks;
    gpuipc_finding *findings;
    size_t device_count;
    size_t way_count;
    size_t check_count;
    size_t finding_count;
    report_value pending[REPORT_VALUES_MAX]; /**< of the check that comes next */
    unsigned pending_count;
    char pending_id[64];
    unsigned round;      /**< of all that is tried, with --duration; the first is 1 */
    unsigned ways_tried; /**< in this round */
    uint64_t started_ns;
    uint64_t progress_ns; /**< when something was said on the error stream last */
    uint64_t begun_ns;    /**< when the check that comes next began */
} report;

/** Begins with what the system is. Nothing is printed.
 *  @param is_ascii lines for people have neither colours nor letters that are not ASCII */
void report_begin(report *self, const char *name, bool is_ascii);
/** Frees what it holds. */
void report_clear(report *self);

/** On the error stream, when the run lasts longer than a second: what is being done.
 *  @return whether it was said: not within a second after the last time */
bool report_progress(report *self, const char *format, ...) GPUIPC_PRINTF(2, 3);

/** What a person reads while it runs; nothing in the other formats. */
void report_say(const report *self, const char *format, ...) GPUIPC_PRINTF(2, 3);

/** A check has ended: its line is printed, and it is kept with the values that were noted for it. In a later round only
 *  what fails is printed, and the check of the same id is kept but once.
 *  @param id NULL: the one noted before, else the title with dashes
 *  @param line the title, a bracket or a colon, and what came of it */
void report_add_check(report *self, const char *id, report_status status, const char *line);
/** In a brief report: how many checks failed or were skipped that have no line. */
void report_say_rest(const report *self);
/** Notes a value, or the id, of the check that comes next. */
void report_note_value(report *self, const char *name, double number);
void report_note_id(report *self, const char *id);
/** A line of a program of the tool's own: "id ID", or "value NAME NUMBER" (role_note()). */
void report_take_note(report *self, const char *line);

void report_add_device(report *self, const gpuipc_device_info *info);
void report_add_way(report *self, const report_way *way);
void report_add_finding(report *self, const gpuipc_finding *finding);

unsigned report_count(const report *self, report_status status);
/** Whether findings count as results, in which one that blocks is a failure: to the doctor alone. Others have tried. */
bool report_judges_findings(const report *self);

/** Prints the formats that are made at the end, and writes the page. False, with a complaint, when that cannot be. */
bool report_end(const report *self, int exit_code);

/* ---- names that every output has ------------------------------------------------------------- */

const char *report_status_name(report_status status); /**< "pass" */
/** How a line for people begins: "pass", "FAIL", "skip"; in colours where there are any. */
const char *report_word(const report *self, report_status status);
const char *report_source_name(gpuipc_figure_source source);
const char *report_proof_name(gpuipc_proof proof);
/** Whether it was measured in this run, so that its wrong words are known. */
bool report_was_compared(const report_way *way);
/** "GPU-..." as nvidia-smi has it. */
#define REPORT_UUID_MAX 48
const char *report_uuid(const gpuipc_device_info *info, char text[REPORT_UUID_MAX]);

/* ---- the formats: report_text.c, report_json.c, report_junit.c ------------------------------------------------ */

bool report_print_csv(const report *self, FILE *into);
bool report_print_tap(const report *self, FILE *into, int exit_code);
bool report_print_markdown(const report *self, FILE *into, int exit_code);
/** Whether this build has cJSON, of which JSON and the page are made. */
extern const bool report_has_json;
bool report_print_json(const report *self, FILE *into, int exit_code);
bool report_print_page(const report *self, FILE *into, int exit_code);
/** Whether this build has Mini-XML, of which JUnit's XML is made. */
extern const bool report_has_junit;
bool report_print_junit(const report *self, FILE *into, int exit_code);

#endif
