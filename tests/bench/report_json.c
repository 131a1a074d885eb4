/* SPDX-License-Identifier: MIT */
/** @file The part of report.h that is JSON, by cJSON. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "report.h"

struct report_json {
    cJSON *root;
    cJSON *rows;
};

bool report_json_can(void) {
    return true;
}

static void *must(void *made) {
    if (made == NULL) {
        bench_fail("no memory for JSON");
    }
    return made;
}

/* ---- a row's process --------------------------------------------------------------------------- */

static void print(const char *mark, cJSON *object) {
    char *text = must(cJSON_PrintUnformatted(object));
    (void)printf("%s%s\n", mark, text);
    cJSON_free(text);
    cJSON_Delete(object);
}

static void add_number(cJSON *object, const char *name, double number) {
    (void)must(cJSON_AddNumberToObject(object, name, number));
}

static void add_text(cJSON *object, const char *name, const char *text) {
    (void)must(cJSON_AddStringToObject(object, name, text));
}

static void add_bool(cJSON *object, const char *name, bool is_true) {
    (void)must(cJSON_AddBoolToObject(object, name, is_true));
}

static void add_figure(cJSON *object, const char *name, const figure *of) {
    if (of->rounds == 0) {
        return;
    }
    cJSON *into = must(cJSON_AddObjectToObject(object, name));
    add_number(into, "rounds", (double)of->rounds);
    add_number(into, "median", of->median);
    add_number(into, "p99", of->p99);
    if (of->p9999 > 0) {
        add_number(into, "p99.99", of->p9999);
    }
    add_number(into, "drift", of->drift);
}

static void add_checks(cJSON *object, const bench_result *result) {
    cJSON *checks = must(cJSON_AddArrayToObject(object, "checks"));
    for (size_t i = 0; i < result->check_count; i++) {
        const result_check *of = &result->checks[i];
        cJSON *check = must(cJSON_CreateObject());
        add_text(check, "name", of->name);
        add_number(check, "value", of->value);
        add_number(check, "target", of->target);
        add_text(check, "bound", of->is_least ? "at least" : "at most");
        (void)cJSON_AddItemToArray(checks, check);
    }
}

void report_json_print_result(const bench_result *result) {
    cJSON *object = must(cJSON_CreateObject());
    add_text(object, "name", result->name);
    add_text(object, "verdict", result_verdict(result));
    add_bool(object, "void", result_is_void(result));
    add_bool(object, "emulated", result->is_emulated);
    if (result->refused != NULL) {
        add_text(object, "refused", result->refused);
    } else {
        add_text(object, "unit", result->unit);
        add_number(object, "bytes", (double)result->bytes);
        add_figure(object, "gpuipc", &result->gpuipc);
        add_figure(object, "floor", &result->floor);
        add_figure(object, "bare", &result->bare);
        add_checks(object, result);
        cJSON *extras = must(cJSON_AddObjectToObject(object, "extras"));
        for (size_t i = 0; i < result->extra_count; i++) {
            add_number(extras, result->extras[i].name, result->extras[i].value);
        }
    }
    print(REPORT_RESULT_MARK, object);
}

void report_json_print_machine(const bench_pair *pair, const char *kernel, const char *date) {
    cJSON *object = must(cJSON_CreateObject());
    uint32_t count = 0;
    bench_check(gpuipc_device_count(pair->context, &count), "devices");
    add_text(object, "date", date);
    add_text(object, "kernel", kernel);
    add_bool(object, "emulated", pair->is_emulated);
    add_number(object, "driver_version", bench_driver.version);
    add_number(object, "owner", pair->owner);
    add_number(object, "opener", pair->opener);
    cJSON *gpus = must(cJSON_AddArrayToObject(object, "gpus"));
    for (uint32_t i = 0; i < count; i++) {
        gpuipc_device_info info = {.struct_size = sizeof(info)};
        bench_check(gpuipc_device_get_info(pair->context, i, &info), "a device");
        (void)cJSON_AddItemToArray(gpus, must(cJSON_CreateString(info.name)));
    }
    print(REPORT_MACHINE_MARK, object);
}

/* ---- the process that collects ------------------------------------------------------------------- */

report_json *report_json_make(void) {
    report_json *self = must(calloc(1, sizeof(*self)));
    self->root = must(cJSON_CreateObject());
    add_text(self->root, "program", "gpuipc-bench");
    self->rows = must(cJSON_AddArrayToObject(self->root, "rows"));
    return self;
}

static cJSON *parse(const char *text) {
    cJSON *object = cJSON_Parse(text);
    if (object == NULL) {
        bench_fail("a row said what is no JSON: %s", text);
    }
    return object;
}

void report_json_add_result(report_json *self, const char *text) {
    (void)cJSON_AddItemToArray(self->rows, parse(text));
}

void report_json_add_machine(report_json *self, const char *text) {
    if (!cJSON_HasObjectItem(self->root, "machine")) {
        (void)cJSON_AddItemToObject(self->root, "machine", parse(text));
    }
}

void report_json_add_failure(report_json *self, const char *row, const char *reason) {
    cJSON *object = must(cJSON_CreateObject());
    add_text(object, "name", row);
    add_text(object, "verdict", "failed");
    add_text(object, "reason", reason);
    (void)cJSON_AddItemToArray(self->rows, object);
}

/* What is in the file must be what was put there. */
static void check_file(const cJSON *root, const char *file) {
    FILE *from = fopen(file, "rb");
    if (from == NULL || fseek(from, 0, SEEK_END) != 0) {
        bench_fail("%s cannot be read again", file);
    }
    const long size = ftell(from);
    rewind(from);
    char *text = must(calloc((size_t)size + 1, 1));
    if (fread(text, 1, (size_t)size, from) != (size_t)size) {
        bench_fail("%s cannot be read again", file);
    }
    (void)fclose(from);
    cJSON *read = parse(text);
    if (!cJSON_Compare(root, read, true)) {
        bench_fail("%s is not what was written", file);
    }
    cJSON_Delete(read);
    free(text);
}

void report_json_write(const report_json *self, const char *file) {
    char *text = must(cJSON_Print(self->root));
    FILE *into = fopen(file, "wb");
    if (into == NULL || fprintf(into, "%s\n", text) < 0 || fclose(into) != 0) {
        bench_fail("%s cannot be written", file);
    }
    cJSON_free(text);
    check_file(self->root, file);
}

void report_json_end(report_json *self) {
    if (self != NULL) {
        cJSON_Delete(self->root);
        free(self);
    }
}
