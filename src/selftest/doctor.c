/* SPDX-License-Identifier: MIT */
/** @file See doctor.h. */
#include "doctor.h"

#include <stdio.h>
#include <string.h>

#include <gpuipc/gpuipc.h>

#include "program.h"
#include "report.h"
#include "watchdog.h"
#include "wrap.h"

/* A column narrower than that is read worse than lines that the terminal breaks. */
#define COLUMNS_LEAST 24

/* Where there is a terminal, broken between words so that it fits, below the first line's text. */
static void print_wrapped(const report *into, const char *head, const char *text) {
    const size_t indent = strlen(head);
    const size_t columns = program_columns();
    const size_t room = columns > indent + COLUMNS_LEAST ? columns - indent : 0;
    report_say(into, "%s", head);
    while (room > 0 && strlen(text) > room) {
        size_t length = room;
        while (length > 0 && text[length] != ' ') {
            length--;
        }
        length = length == 0 ? room : length;
        report_say(into, "%.*s\n%*s", (int)length, text, (int)indent, "");
        text += length + (text[length] == ' ');
    }
    report_say(into, "%s\n", text);
}

static void print_finding(const report *into, const gpuipc_finding *one) {
    char head[32];
    (void)snprintf(head, sizeof(head), "%s  %-6s  ", one->id, gpuipc_severity_name(one->severity));
    print_wrapped(into, head, one->cause);
    print_wrapped(into, "     found:    ", one->evidence);
    print_wrapped(into, "     remedy:   ", one->remedy);
    print_wrapped(into, "     security: ", one->cost);
    report_say(into, "\n");
}

static bool is_found(const gpuipc_finding *findings, size_t count, uint32_t number) {
    for (size_t i = 0; i < count; i++) {
        if (findings[i].number == number) {
            return true;
        }
    }
    return false;
}

static void print_absent(const report *into, const gpuipc_finding *findings, size_t count) {
    gpuipc_finding one;
    for (uint32_t number = 1; gpuipc_finding_describe(number, &one) == GPUIPC_OK; number++) {
        if (!is_found(findings, count, number)) {
            report_say(into, "%s  not so: %s\n", one.id, one.cause);
        }
    }
}

static unsigned count_of(const gpuipc_finding *findings, size_t count, gpuipc_severity severity) {
    unsigned found = 0;
    for (size_t i = 0; i < count; i++) {
        found += findings[i].severity == severity;
    }
    return found;
}

/* The library's "auto" is the installed driver, and so is the tool's "cuda". */
static const char *driver_choice(const char *choice) {
    return strcmp(choice, "cuda") == 0 ? "auto" : choice;
}

void doctor_look(const options *wanted) {
    static gpuipc_finding findings[GPUIPC_FINDING_COUNT];
    const gpuipc_context_config config = {.struct_size = sizeof(config),
                                          .driver = driver_choice(wanted->driver)};
    report *into = wanted->report;
    size_t count = 0;
    const bool is_wanted = wanted->command == COMMAND_MATRIX ||
                           (wanted->command == COMMAND_RUN && wanted->only_count == 0);
    if (!is_wanted || into->has_looked || program_is_interrupted()) {
        return;
    }
    into->has_looked = true;
    watchdog_expect_long("looking at the machine", wanted->timeout_ms);
    const gpuipc_status status =
        gpuipc_diagnose(&config, GPUIPC_DIAGNOSE_LOOK_ONLY, findings, GPUIPC_FINDING_COUNT, &count);
    watchdog_rest();
    if (status != GPUIPC_OK) {
        wrap_complain("the doctor could not look: %s", gpuipc_error_text());
        return;
    }
    for (size_t i = 0; i < count; i++) {
        report_add_finding(into, &findings[i]);
    }
}

void doctor_print_count(const report *from) {
    const size_t count = from->finding_count;
    if (count > 0) {
        report_say(from,
                   "doctor: %zu finding%s by looking alone (%u block, %u slow); what to do: "
                   "gpuipc-selftest doctor\n",
                   count, count == 1 ? "" : "s",
                   count_of(from->findings, count, GPUIPC_SEVERITY_BLOCKS),
                   count_of(from->findings, count, GPUIPC_SEVERITY_SLOWS));
    }
}

int doctor(const options *wanted) {
    static gpuipc_finding findings[GPUIPC_FINDING_COUNT];
    const gpuipc_context_config config = {.struct_size = sizeof(config),
                                          .driver = driver_choice(wanted->driver)};
    size_t count = 0;
    watchdog_expect_long(
        "looking at the machine, and trying to share memory between every two devices of it, which is the "
        "last step",
        wanted->timeout_ms);
    if (gpuipc_diagnose(&config, 0, findings, GPUIPC_FINDING_COUNT, &count) != GPUIPC_OK) {
        wrap_complain("FAIL: %s", gpuipc_error_text());
        (void)snprintf(wanted->report->error, sizeof(wanted->report->error), "%s",
                       gpuipc_error_text());
        return EXIT_FAIL;
    }
    watchdog_rest();
    for (size_t i = 0; i < count; i++) {
        print_finding(wanted->report, &findings[i]);
        report_add_finding(wanted->report, &findings[i]);
    }
    if (wanted->verbose) {
        print_absent(wanted->report, findings, count);
    }
    const unsigned blocks = count_of(findings, count, GPUIPC_SEVERITY_BLOCKS);
    report_say(wanted->report, "%d causes looked for: %u block, %u slow, %u to note\n",
               GPUIPC_FINDING_COUNT, blocks, count_of(findings, count, GPUIPC_SEVERITY_SLOWS),
               count_of(findings, count, GPUIPC_SEVERITY_NOTE));
    return blocks == 0 ? EXIT_PASS : EXIT_FAIL;
}
