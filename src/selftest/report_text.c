/* SPDX-License-Identifier: MIT */
/** @file The formats of report.h that are plain text: CSV, TAP and Markdown. */
#include <inttypes.h>
#include <string.h>

#include "options.h"
#include "report.h"

#define GIGA 1e9

static double gigabytes(uint64_t bytes_per_second) {
    return (double)bytes_per_second / GIGA;
}

/* ---- CSV (RFC 4180): one table of what the machine is, transports and checks -------------------------------- */

static void csv_text(FILE *into, const char *text) {
    (void)fputc('"', into);
    for (; *text != '\0'; text++) {
        if (*text == '"') {
            (void)fputc('"', into);
        }
        (void)fputc(*text, into);
    }
    (void)fputc('"', into);
}

static void csv_way(FILE *into, const report_way *way) {
    const gpuipc_transport_info *info = &way->info;
    (void)fprintf(into, "transport,%s,%" PRIu32 ",%" PRIu32 ",%s,",
                  gpuipc_transport_name(info->transport), way->owner, way->user,
                  info->available ? "yes" : "no");
    if (info->bandwidth_source != GPUIPC_FIGURE_NONE) {
        (void)fprintf(into, "%.3f", gigabytes(info->bandwidth_bytes_per_second));
    }
    (void)fputc(',', into);
    if (way->measured.both_ways_bytes_per_second != 0) {
        (void)fprintf(into, "%.3f", gigabytes(way->measured.both_ways_bytes_per_second));
    }
    (void)fputc(',', into);
    if (info->latency_source != GPUIPC_FIGURE_NONE) {
        (void)fprintf(into, "%.3f", (double)info->latency_ns / 1000.0);
    }
    (void)fprintf(into, ",%s,,", report_source_name(info->bandwidth_source));
    csv_text(into, way->failure[0] != '\0' ? way->failure : info->sentence);
    (void)fputc(',', into);
    if (report_was_compared(way)) {
        (void)fprintf(into, "%" PRIu64, way->measured.wrong_words);
    }
    (void)fputs("\r\n", into);
}

bool report_print_csv(const report *self, FILE *into) {
    (void)fputs("kind,name,owner,user,status,gb_per_s,both_ways_gb_per_s,latency_us,source,seconds,"
                "text,wrong_words\r\n",
                into);
    for (platform_fact i = 0; i < PLATFORM_COUNT; i++) {
        (void)fprintf(into, "platform,%s,,,,,,,,,", platform_name(i));
        csv_text(into, self->platform.values[i]);
        (void)fputs(",\r\n", into);
    }
    for (size_t i = 0; i < self->way_count; i++) {
        csv_way(into, &self->ways[i]);
    }
    for (size_t i = 0; i < self->check_count; i++) {
        const report_check *one = &self->checks[i];
        (void)fputs("check,", into);
        csv_text(into, one->id);
        (void)fprintf(into, ",,,%s,,,,,%.6f,", report_status_name(one->status), one->seconds);
        csv_text(into, one->text);
        (void)fputs(",\r\n", into);
    }
    for (size_t i = 0; i < self->finding_count; i++) {
        (void)fprintf(into, "finding,%s,,,%s,,,,,,", self->findings[i].id,
                      gpuipc_severity_name(self->findings[i].severity));
        csv_text(into, self->findings[i].evidence);
        (void)fputs(",\r\n", into);
    }
    return fflush(into) == 0 && !ferror(into);
}

/* ---- TAP 13 (testanything.org) ---------------------------------------------------------------- */

/* A number sign would begin a directive. */
static void tap_text(FILE *into, const char *text) {
    for (; *text != '\0'; text++) {
        if (*text == '#') {
            (void)fputc('\\', into);
        }
        (void)fputc(*text, into);
    }
}

static const char *const tap_ok[] = {"ok", "not ok", "ok"};

/* How many there are; of none, whether there was nothing to test. */
static void tap_plan(const report *self, FILE *into, int exit_code) {
    const size_t count =
        self->check_count + (report_judges_findings(self) ? self->finding_count : 0);
    (void)fprintf(into, "TAP version 13\n1..%zu", count);
    if (count == 0 && exit_code == EXIT_NOTHING) {
        (void)fputs(" # SKIP ", into);
        tap_text(into, self->error[0] != '\0' ? self->error : "nothing to test here");
    }
    (void)fputc('\n', into);
}

/* What did not come to its end, or not to a beginning, is no success to who sees no exit code. */
static void tap_end(const report *self, FILE *into, int exit_code) {
    const char *why = self->is_interrupted                                  ? "interrupted"
                      : self->error[0] != '\0' && exit_code != EXIT_NOTHING ? self->error
                      : exit_code == EXIT_USAGE                             ? "wrong usage"
                                                                            : NULL;
    if (why != NULL) {
        (void)fputs("Bail out! ", into);
        tap_text(into, why);
        (void)fputc('\n', into);
    }
}

bool report_print_tap(const report *self, FILE *into, int exit_code) {
    size_t number = 0;
    tap_plan(self, into, exit_code);
    for (size_t i = 0; i < self->check_count; i++) {
        const report_check *one = &self->checks[i];
        (void)fprintf(into, "%s %zu - ", tap_ok[one->status], ++number);
        tap_text(into, one->id);
        (void)fputs(one->status == REPORT_SKIP ? " # SKIP " : ": ", into);
        tap_text(into, one->text);
        (void)fputc('\n', into);
    }
    for (size_t i = 0; i < self->finding_count; i++) {
        const gpuipc_finding *one = &self->findings[i];
        if (report_judges_findings(self)) {
            (void)fprintf(into, "%s %zu - ",
                          one->severity == GPUIPC_SEVERITY_BLOCKS ? "not ok" : "ok", ++number);
        } else {
            (void)fputs("# ", into);
        }
        (void)fprintf(into, "%s %s: ", one->id, one->name);
        tap_text(into, one->evidence);
        (void)fputc('\n', into);
    }
    tap_end(self, into, exit_code);
    return fflush(into) == 0 && !ferror(into);
}

/* ---- Markdown, to be pasted into an issue ----------------------------------------------------- */

/* A bar would end the cell; what looks like an element would be taken for one (spec.commonmark.org, 6.6). */
static void markdown_text(FILE *into, const char *text) {
    for (; *text != '\0'; text++) {
        if (strchr("|<*_`[\\", *text) != NULL) {
            (void)fputc('\\', into);
        }
        (void)fputc(*text, into);
    }
}

static void markdown_head(const report *self, FILE *into, int exit_code) {
    char uuid[REPORT_UUID_MAX];
    (void)fprintf(into, "**gpuipc-selftest %s** %s, exit code %d\n\n", self->command,
                  self->platform.values[PLATFORM_GPUIPC], exit_code);
    if (self->error[0] != '\0') {
        (void)fputs("- error: ", into);
        markdown_text(into, self->error);
        (void)fputc('\n', into);
    }
    for (platform_fact i = PLATFORM_GPUIPC + 1; i < PLATFORM_COUNT; i++) {
        (void)fprintf(into, "- %s: ", platform_label(i));
        markdown_text(into, platform_text(&self->platform, i));
        (void)fputc('\n', into);
    }
    if (self->driver.device_count > 0) {
        (void)fprintf(into, "- CUDA: %d.%d, %s\n", self->driver.driver_version / 1000,
                      self->driver.driver_version % 1000 / 10,
                      self->driver.is_emulated ? "emulated, no GPU" : "real");
    }
    for (size_t i = 0; i < self->device_count; i++) {
        (void)fprintf(into, "- device %zu: ", i);
        markdown_text(into, self->devices[i].name);
        (void)fprintf(into, ", %s, %" PRIu64 " MiB\n", report_uuid(&self->devices[i], uuid),
                      self->devices[i].memory_bytes >> 20);
    }
}

static void markdown_ways(const report *self, FILE *into) {
    (void)fputs("\n| owner | user | transport | | GB/s | us | source | wrong words | |\n"
                "|---|---|---|---|---:|---:|---|---:|---|\n",
                into);
    for (size_t i = 0; i < self->way_count; i++) {
        const report_way *way = &self->ways[i];
        (void)fprintf(into, "| %" PRIu32 " | %" PRIu32 " | %s | %s | ", way->owner, way->user,
                      gpuipc_transport_name(way->info.transport),
                      way->info.available ? "yes" : "no");
        if (way->info.bandwidth_source != GPUIPC_FIGURE_NONE) {
            (void)fprintf(into, "%.1f", gigabytes(way->info.bandwidth_bytes_per_second));
        }
        (void)fputs(" | ", into);
        if (way->info.latency_source != GPUIPC_FIGURE_NONE) {
            (void)fprintf(into, "%.1f", (double)way->info.latency_ns / 1000.0);
        }
        (void)fprintf(into, " | %s | ",
                      way->info.available ? report_source_name(way->info.bandwidth_source) : "");
        if (report_was_compared(way)) {
            (void)fprintf(into, "%" PRIu64, way->measured.wrong_words);
        }
        (void)fputs(" | ", into);
        markdown_text(into, way->failure[0] != '\0' ? way->failure : way->info.sentence);
        (void)fputs(" |\n", into);
    }
}

bool report_print_markdown(const report *self, FILE *into, int exit_code) {
    markdown_head(self, into, exit_code);
    if (self->way_count > 0) {
        markdown_ways(self, into);
    }
    if (self->check_count > 0) {
        (void)fputs("\n| check | | s | |\n|---|---|---:|---|\n", into);
    }
    for (size_t i = 0; i < self->check_count; i++) {
        const report_check *one = &self->checks[i];
        (void)fputs("| ", into);
        markdown_text(into, one->id);
        (void)fprintf(into, " | %s | %.3f | ", report_status_name(one->status), one->seconds);
        markdown_text(into, one->text);
        (void)fputs(" |\n", into);
    }
    if (self->finding_count > 0) {
        (void)fputs("\n| finding | | found | remedy |\n|---|---|---|---|\n", into);
    }
    for (size_t i = 0; i < self->finding_count; i++) {
        const gpuipc_finding *one = &self->findings[i];
        (void)fprintf(into, "| %s | %s | ", one->id, gpuipc_severity_name(one->severity));
        markdown_text(into, one->cause);
        (void)fputs(": ", into);
        markdown_text(into, one->evidence);
        (void)fputs(" | ", into);
        markdown_text(into, one->remedy);
        (void)fputs(" |\n", into);
    }
    return fflush(into) == 0 && !ferror(into);
}
