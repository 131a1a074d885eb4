/* SPDX-License-Identifier: MIT */
/** @file What a row found, as lines for people and as JSON: report.c, report_json.c or report_json_absent.c. */
#ifndef GPUIPC_BENCH_REPORT_H
#define GPUIPC_BENCH_REPORT_H

#include <stdbool.h>

#include "pair.h"
#include "samples.h"

#define RESULT_CHECKS_MAX 4
#define RESULT_EXTRAS_MAX 16
/** A floor whose median moves by more than this while a row runs says nothing. */
#define RESULT_DRIFT_MAX 0.03

/** A figure that is compared with a target. */
typedef struct result_check {
    const char *name;
    double value;
    double target;
    bool is_least; /**< the target is the least that it must be; else the most */
} result_check;

/** A figure beside. */
typedef struct result_extra {
    const char *name;
    double value;
} result_extra;

typedef struct bench_result {
    char name[64];
    const char *unit; /**< of the figures */
    uint64_t bytes;   /**< of the memory; 0: does not matter */
    figure gpuipc;
    figure floor; /**< straightforward, nothing kept alive; of copies: inside one process */
    figure bare;  /**< the driver's calls by hand, with what gpuipc keeps alive */
    result_check checks[RESULT_CHECKS_MAX];
    size_t check_count;
    result_extra extras[RESULT_EXTRAS_MAX];
    size_t extra_count;
    bool is_emulated;
    const char *refused; /**< why nothing was measured; NULL: it was */
} bench_result;

/** @param row part behind a '/', or NULL */
bench_result result_make(const bench_pair *pair, const char *row, const char *part,
                         const char *unit);
void result_check_least(bench_result *self, const char *name, double value, double target);
void result_check_most(bench_result *self, const char *name, double value, double target);
void result_note(bench_result *self, const char *name, double value);

/** "emulated", "void", "reached", "not reached", "no target". */
const char *result_verdict(const bench_result *self);
bool result_is_void(const bench_result *self);

/** Prints it. */
void report(const bench_result *result);
/** Says that a row cannot be measured here. */
void report_refusal(const bench_pair *pair, const char *row, const char *reason);
/** Prints which machine this is. */
void report_machine(const bench_pair *pair);

/* ---- JSON ------------------------------------------------------------------------------------ */

/** Lines of a row's process that start so are JSON for the process that started it. */
#define REPORT_RESULT_MARK  "@result "
#define REPORT_MACHINE_MARK "@machine "

/** Whether this program can write JSON. */
bool report_json_can(void);
void report_json_print_result(const bench_result *result);
/** @param kernel the system  @param date as ISO 8601 has it */
void report_json_print_machine(const bench_pair *pair, const char *kernel, const char *date);

typedef struct report_json report_json;
report_json *report_json_make(void);
/** @param text of a line, behind its mark */
void report_json_add_result(report_json *self, const char *text);
void report_json_add_machine(report_json *self, const char *text);
void report_json_add_failure(report_json *self, const char *row, const char *reason);
/** Writes the file, and reads it again to see that it is well formed. */
void report_json_write(const report_json *self, const char *file);
void report_json_end(report_json *self);

#endif
