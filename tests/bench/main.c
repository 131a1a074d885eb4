/* SPDX-License-Identifier: MIT */
/**
 * @file gpuipc-bench: how long it takes to hand GPU memory to another process, beside the same by the driver's
 * calls. Each row is a process of its own, so that it finds the driver as a program does that starts.
 */
#include <stdio.h>
#include <string.h>

#include "bench_row.h"
#include "helper.h"
#include "partner.h"
#include "report.h"
#include "selftest/standard_streams.h"

#define LINE_MAX_BYTES  4096
#define ROW_PATIENCE_MS 300000

/* ---- a row's process -------------------------------------------------------------------------- */

static int run_row(const options *given) {
    bench_pair pair;
    const bench_row *row = row_find(given->rows[0]);
    helper_begin();
    pair_begin(&pair, given);
    report_machine(&pair);
    row->run(&pair, row);
    pair_end(&pair);
    return 0;
}

/* ---- the process that starts them -------------------------------------------------------------- */

static bool starts(const char *line, const char *mark) {
    return strncmp(line, mark, strlen(mark)) == 0;
}

/* One line of a row. */
static void pass_on(report_json *json, const char *line) {
    static char machine[LINE_MAX_BYTES]; /* as printed last: said once */
    if (starts(line, REPORT_RESULT_MARK)) {
        report_json_add_result(json, line + strlen(REPORT_RESULT_MARK));
    } else if (starts(line, REPORT_MACHINE_MARK)) {
        report_json_add_machine(json, line + strlen(REPORT_MACHINE_MARK));
    } else if (!starts(line, "# ") || strcmp(line, machine) != 0) {
        (void)printf("%s\n", line);
        (void)fflush(stdout);
        if (starts(line, "# ")) {
            (void)snprintf(machine, sizeof(machine), "%s", line);
        }
    }
}

/* The words for a row's process. */
static child_process *start(const options *given, const char *row) {
    char name[64];
    char rounds[32];
    char devices[48];
    char directory[RUNTIME_DIRECTORY_MAX + 16];
    child_process *child = NULL;
    const char *arguments[8];
    size_t count = 0;
    (void)snprintf(name, sizeof(name), "--row=%s", row);
    (void)snprintf(directory, sizeof(directory), "--directory=%s", given->directory);
    arguments[count++] = "--role=row";
    arguments[count++] = name;
    arguments[count++] = directory;
    if (given->rounds != 0) {
        (void)snprintf(rounds, sizeof(rounds), "--rounds=%u", (unsigned)given->rounds);
        arguments[count++] = rounds;
    }
    if (given->owner != DEVICE_ANY) {
        (void)snprintf(devices, sizeof(devices), "--devices=%u,%u", (unsigned)given->owner,
                       (unsigned)given->opener);
        arguments[count++] = devices;
    }
    if (given->quick) {
        arguments[count++] = "--quick";
    }
    arguments[count] = NULL;
    bench_check(child_start("gpuipc-bench", arguments, NULL, &child), "a row");
    return child;
}

/* False when the row failed. */
static bool run_one(const options *given, const char *row, report_json *json) {
    char line[LINE_MAX_BYTES];
    child_end how = {false, 0};
    child_process *child = start(given, row);
    gpuipc_status status;
    while ((status = child_read_line(child, line, sizeof(line), ROW_PATIENCE_MS)) == GPUIPC_OK) {
        pass_on(json, line);
    }
    const char *reason = "it says nothing";
    if (status == GPUIPC_ERR_PEER_CLOSED) {
        status = child_wait(child, PATIENCE_MS, &how);
        reason = "it ended too early, see standard error";
    }
    child_destroy(child);
    if (status == GPUIPC_OK && how.exited && how.code == 0) {
        return true;
    }
    (void)printf("%s: failed; %s\n", row, reason);
    (void)fflush(stdout);
    report_json_add_failure(json, row, reason);
    return false;
}

/* Likewise. The file is written after each row, so that one that is never reached costs itself alone. */
static bool run_and_write(const options *given, const char *row, report_json *json) {
    const bool is_well = run_one(given, row, json);
    if (given->json != NULL) {
        report_json_write(json, given->json);
    }
    return is_well;
}

static int run(options *given) {
    char directory[RUNTIME_DIRECTORY_MAX];
    bool is_well = true;
    report_json *json = report_json_make();
    if (!runtime_directory_make(directory)) {
        bench_fail("there is no place for sockets");
    }
    given->directory = directory;
    for (size_t i = 0; given->row_count == 0 && row_at(i) != NULL; i++) {
        is_well = run_and_write(given, row_at(i)->name, json) && is_well;
    }
    for (size_t i = 0; i < given->row_count; i++) {
        is_well = run_and_write(given, given->rows[i], json) && is_well;
    }
    report_json_end(json);
    runtime_directory_remove(directory);
    return is_well ? 0 : 1;
}

static int play(options *given) {
    switch (given->role) {
    case ROLE_ROW:
        return run_row(given);
    case ROLE_PARTNER:
    case ROLE_FLOOR_PARTNER:
        return partner_run(given);
    case ROLE_FLOOR:
        return pair_floor_run(given);
    default:
        return run(given);
    }
}

int main(int count, char **arguments) {
    options given;
    int code = 0;
    standard_streams_occupy();
    if (options_read(count, arguments, &given, &code)) {
        code = play(&given);
    }
    /* Figures that nobody could be told are no success. */
    if ((fflush(stdout) != 0 || ferror(stdout)) && code == 0) {
        (void)fputs("gpuipc-bench: FAIL: what was found could not be printed\n", stderr);
        code = 1;
    }
    return code;
}
