/* SPDX-License-Identifier: MIT */
/** @file The program as it is built without cJSON. */
#include "report.h"

bool report_json_can(void) {
    return false;
}

void report_json_print_result(const bench_result *result) {
    (void)result;
}

void report_json_print_machine(const bench_pair *pair, const char *kernel, const char *date) {
    (void)pair;
    (void)kernel;
    (void)date;
}

report_json *report_json_make(void) {
    return NULL;
}

void report_json_add_result(report_json *self, const char *text) {
    (void)self;
    (void)text;
}

void report_json_add_machine(report_json *self, const char *text) {
    (void)self;
    (void)text;
}

void report_json_add_failure(report_json *self, const char *row, const char *reason) {
    (void)self;
    (void)row;
    (void)reason;
}

void report_json_write(const report_json *self, const char *file) {
    (void)self;
    bench_fail("%s cannot be written: this program was built without cJSON", file);
}

void report_json_end(report_json *self) {
    (void)self;
}
