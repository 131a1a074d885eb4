/* SPDX-License-Identifier: MIT */
/** @file The formats of report.h that are JSON, by cJSON: the document of docs/selftest.md, and the page that shows it. */
#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

#include "options.h"
#include "program.h"
#include "report.h"
#include "report_page.h"
#include "wrap.h"

/* The document's own version: counted up when a field gets another meaning. */
#define SCHEMA 1

#define GIGA 1e9

const bool report_has_json = true;

static void *must(void *made) {
    if (made == NULL) {
        wrap_complain("FAIL: no memory for JSON");
        program_end_now(EXIT_FAIL);
    }
    return made;
}

static void add_text(cJSON *object, const char *name, const char *text) {
    (void)must(cJSON_AddStringToObject(object, name, text));
}

/* An empty text says that there is nothing to say. */
static void add_text_or_null(cJSON *object, const char *name, const char *text) {
    if (text[0] != '\0') {
        add_text(object, name, text);
    } else {
        (void)must(cJSON_AddNullToObject(object, name));
    }
}

static void add_number(cJSON *object, const char *name, double number) {
    (void)must(cJSON_AddNumberToObject(object, name, number));
}

static void add_number_if(cJSON *object, const char *name, bool is_known, double number) {
    if (is_known) {
        add_number(object, name, number);
    } else {
        (void)must(cJSON_AddNullToObject(object, name));
    }
}

static void add_bool(cJSON *object, const char *name, bool is_true) {
    (void)must(cJSON_AddBoolToObject(object, name, is_true));
}

static cJSON *add_item(cJSON *list) {
    cJSON *made = must(cJSON_CreateObject());
    (void)cJSON_AddItemToArray(list, made);
    return made;
}

static void add_platform(cJSON *root, const report *self) {
    cJSON *into = must(cJSON_AddObjectToObject(root, "platform"));
    for (platform_fact i = 0; i < PLATFORM_COUNT; i++) {
        add_text_or_null(into, platform_name(i), self->platform.values[i]);
    }
}

static void add_driver(cJSON *root, const report *self) {
    const gpuipc_context_info *info = &self->driver;
    if (info->device_count == 0) {
        (void)must(cJSON_AddNullToObject(root, "driver"));
        return;
    }
    cJSON *into = must(cJSON_AddObjectToObject(root, "driver"));
    add_bool(into, "is_emulated", info->is_emulated);
    add_text_or_null(into, "why_emulated", self->why_emulated);
    add_number(into, "cuda_version", info->driver_version);
    add_text(into, "path", info->driver_path);
}

static void add_devices(cJSON *root, const report *self) {
    cJSON *list = must(cJSON_AddArrayToObject(root, "devices"));
    for (size_t i = 0; i < self->device_count; i++) {
        char uuid[REPORT_UUID_MAX];
        const gpuipc_device_info *info = &self->devices[i];
        cJSON *into = add_item(list);
        add_number(into, "device", (double)i);
        add_text(into, "name", info->name);
        add_text(into, "uuid", report_uuid(info, uuid));
        add_number(into, "memory_bytes", (double)info->memory_bytes);
        add_bool(into, "can_share", info->can_share);
        add_text_or_null(into, "why_not", info->why_not);
    }
}

static void add_way(cJSON *list, const report_way *way) {
    const gpuipc_transport_info *info = &way->info;
    const gpuipc_measurement *measured = &way->measured;
    cJSON *into = add_item(list);
    add_number(into, "owner", way->owner);
    add_number(into, "user", way->user);
    add_text(into, "transport", gpuipc_transport_name(info->transport));
    add_bool(into, "available", info->available);
    add_text_or_null(into, "reason", info->available ? "" : gpuipc_reason_name(info->reason));
    add_text_or_null(into, "sentence", way->failure[0] != '\0' ? way->failure : info->sentence);
    add_bool(into, "zero_copy", info->is_zero_copy);
    add_text(into, "proof", report_proof_name(info->proof));
    add_number_if(into, "gb_per_s", info->bandwidth_source != GPUIPC_FIGURE_NONE,
                  (double)info->bandwidth_bytes_per_second / GIGA);
    add_text(into, "gb_per_s_source", report_source_name(info->bandwidth_source));
    add_number_if(into, "both_ways_gb_per_s", measured->both_ways_bytes_per_second != 0,
                  (double)measured->both_ways_bytes_per_second / GIGA);
    add_number_if(into, "latency_us", info->latency_source != GPUIPC_FIGURE_NONE,
                  (double)info->latency_ns / 1000.0);
    add_text(into, "latency_us_source", report_source_name(info->latency_source));
    add_number_if(into, "wrong_words", report_was_compared(way), (double)way->measured.wrong_words);
}

static void add_checks(cJSON *root, const report *self) {
    cJSON *list = must(cJSON_AddArrayToObject(root, "checks"));
    for (size_t i = 0; i < self->check_count; i++) {
        const report_check *one = &self->checks[i];
        cJSON *into = add_item(list);
        add_text(into, "id", one->id);
        add_text(into, "title", one->title);
        add_text(into, "status", report_status_name(one->status));
        add_number(into, "seconds", one->seconds);
        add_number(into, "rounds", one->rounds);
        cJSON *values = must(cJSON_AddObjectToObject(into, "values"));
        for (unsigned j = 0; j < one->value_count; j++) {
            add_number(values, one->values[j].name, one->values[j].number);
        }
        add_text(into, "text", one->text);
    }
}

static void add_findings(cJSON *root, const report *self) {
    cJSON *list = must(cJSON_AddArrayToObject(root, "findings"));
    for (size_t i = 0; i < self->finding_count; i++) {
        const gpuipc_finding *one = &self->findings[i];
        cJSON *into = add_item(list);
        add_text(into, "id", one->id);
        add_text(into, "name", one->name);
        add_text(into, "severity", gpuipc_severity_name(one->severity));
        add_text(into, "cause", one->cause);
        add_text(into, "evidence", one->evidence);
        add_text(into, "remedy", one->remedy);
        add_text(into, "cost", one->cost);
    }
}

static cJSON *document(const report *self, int exit_code) {
    cJSON *root = must(cJSON_CreateObject());
    cJSON *list;
    add_number(root, "schema", SCHEMA);
    add_text(root, "gpuipc", self->platform.values[PLATFORM_GPUIPC]);
    add_text(root, "command", self->command);
    add_number(root, "exit_code", exit_code);
    add_bool(root, "interrupted", self->is_interrupted);
    add_text_or_null(root, "error", self->error);
    add_number(root, "unix_ms", (double)os_time_unix_ms());
    add_platform(root, self);
    add_driver(root, self);
    add_devices(root, self);
    list = must(cJSON_AddArrayToObject(root, "transports"));
    for (size_t i = 0; i < self->way_count; i++) {
        add_way(list, &self->ways[i]);
    }
    add_checks(root, self);
    add_findings(root, self);
    return root;
}

bool report_print_json(const report *self, FILE *into, int exit_code) {
    cJSON *root = document(self, exit_code);
    char *text = must(cJSON_Print(root));
    (void)fprintf(into, "%s\n", text);
    cJSON_free(text);
    cJSON_Delete(root);
    return fflush(into) == 0 && !ferror(into);
}

/* html.spec.whatwg.org, "Restrictions for contents of script elements": nothing there may look like its end. A "<" is
 * only in texts, where JSON has another way to write it. */
static void print_in_script(const char *json, FILE *into) {
    for (; *json != '\0'; json++) {
        if (*json == '<') {
            (void)fputs("\\u003c", into);
        } else {
            (void)fputc(*json, into);
        }
    }
}

bool report_print_page(const report *self, FILE *into, int exit_code) {
    static const char place[] = "@REPORT@";
    const char *page = (const char *)report_page;
    const char *at = strstr(page, place);
    cJSON *root = document(self, exit_code);
    char *text = must(cJSON_PrintUnformatted(root));
    (void)fwrite(page, 1, (size_t)(at - page), into);
    print_in_script(text, into);
    (void)fputs(at + strlen(place), into);
    cJSON_free(text);
    cJSON_Delete(root);
    return fflush(into) == 0 && !ferror(into);
}
