/* SPDX-License-Identifier: MIT */
/** @file The JSON of gpuipc-selftest, and the page that is made of it, read again by cJSON. */
#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "selftest_run.h"
#include "unique.h"

TestSuite(selftest_json, .timeout = 100);

static const cJSON *get(const cJSON *object, const char *name) {
    const cJSON *found = cJSON_GetObjectItemCaseSensitive(object, name);
    cr_assert_not_null(found, "there is no %s", name);
    return found;
}

static const char *text_of(const cJSON *object, const char *name) {
    const cJSON *found = get(object, name);
    cr_assert(cJSON_IsString(found), "%s", name);
    return found->valuestring;
}

static double number_of(const cJSON *object, const char *name) {
    const cJSON *found = get(object, name);
    cr_assert(cJSON_IsNumber(found), "%s", name);
    return found->valuedouble;
}

static void check_document(const cJSON *root, const char *command) {
    cr_assert_eq(number_of(root, "schema"), 1);
    cr_assert_str_eq(text_of(root, "command"), command);
    cr_assert_gt(number_of(root, "unix_ms"), 1e12);
    cr_assert_gt(strlen(text_of(get(root, "platform"), "system")), 5);
    cr_assert_str_eq(text_of(get(root, "platform"), "gpuipc"), text_of(root, "gpuipc"));
    cr_assert_gt(strlen(text_of(get(root, "platform"), "driver_model")), 2);
    cr_assert(cJSON_IsArray(get(root, "devices")) && cJSON_IsArray(get(root, "transports")) &&
              cJSON_IsArray(get(root, "checks")) && cJSON_IsArray(get(root, "findings")));
}

Test(selftest_json, a_run_has_numbers_and_nulls) {
    const selftest_outcome found = selftest_run(
        (selftest_words){"--driver=emulated", "--quick", "--device=0", "--peer=1", "--json", NULL},
        NULL);
    selftest_expect_code(&found, 0);
    cJSON *root = cJSON_Parse(found.all);
    cr_assert_not_null(root, "%s", found.all);
    check_document(root, "run");
    cr_assert_str_eq(text_of(get(root, "platform"), "driver_version"), "emulated");
    cr_assert_eq(number_of(root, "exit_code"), 0);
    cr_assert(cJSON_IsTrue(get(get(root, "driver"), "is_emulated")));
    cr_assert_eq(cJSON_GetArraySize(get(root, "devices")), 2);
    const cJSON *ways = get(root, "transports");
    cr_assert_eq(cJSON_GetArraySize(ways), 6);
    const cJSON *vmm = cJSON_GetArrayItem(ways, 0);
    const cJSON *fabric = cJSON_GetArrayItem(ways, 5);
    cr_assert_str_eq(text_of(vmm, "transport"), "vmm");
    cr_assert(cJSON_IsTrue(get(vmm, "available")) && cJSON_IsNull(get(vmm, "reason")));
    cr_assert(cJSON_IsNull(get(vmm, "gb_per_s")), "nothing is estimated of the emulated driver");
    cr_assert_str_eq(text_of(vmm, "gb_per_s_source"), "unknown");
    cr_assert(cJSON_IsNull(get(vmm, "both_ways_gb_per_s")), "it was not measured");
    cr_assert(cJSON_IsNull(get(vmm, "wrong_words")));
    cr_assert(cJSON_IsFalse(get(fabric, "available")) && cJSON_IsNull(get(fabric, "gb_per_s")));
    cr_assert_gt(strlen(text_of(fabric, "reason")), 3);
    const cJSON *check = cJSON_GetArrayItem(get(root, "checks"), 0);
    cr_assert_str_eq(text_of(check, "id"), "share/0-1/1048576");
    cr_assert_str_eq(text_of(check, "title"), "device 0 -> device 1, 1 MiB");
    cr_assert_str_eq(text_of(check, "status"), "pass");
    cr_assert_gt(number_of(check, "seconds"), 0);
    cr_assert_eq(number_of(check, "rounds"), 1);
    cr_assert_gt(number_of(get(check, "values"), "hand_over_us"), 0);
    cr_assert_gt(number_of(get(check, "values"), "ticket_us"), 0);
    cJSON_Delete(root);
}

Test(selftest_json, a_program_that_died_is_told_with_its_last_step) {
    const selftest_outcome found = selftest_run(
        (selftest_words){"--driver=emulated", "--quick", "--device=0", "--peer=1", "--json", NULL},
        (selftest_words){"GPUIPC_EMULATED_FAIL=cuMemSetAccess:1=die", NULL});
    selftest_expect_code(&found, 1);
    cJSON *root = cJSON_Parse(found.all);
    cr_assert_not_null(root, "%s", found.all);
    cr_assert_eq(number_of(root, "exit_code"), 1);
    const cJSON *check = cJSON_GetArrayItem(get(root, "checks"), 0);
    cr_assert_str_eq(text_of(check, "status"), "fail");
    cr_assert_not_null(strstr(text_of(check, "text"), "the producer ended"), "%s", found.all);
    cJSON_Delete(root);
}

Test(selftest_json, without_a_driver_the_doctor_still_has_a_document) {
    const selftest_outcome found =
        selftest_run((selftest_words){"doctor", "--driver=emulated", "--json", NULL},
                     (selftest_words){"GPUIPC_EMULATED_FAIL=cuInit:*=999", NULL});
    selftest_expect_code(&found, 1);
    cJSON *root = cJSON_Parse(found.all);
    cr_assert_not_null(root, "%s", found.all);
    check_document(root, "doctor");
    cr_assert(cJSON_IsNull(get(root, "driver")));
    const cJSON *finding = cJSON_GetArrayItem(get(root, "findings"), 0);
    cr_assert_str_eq(text_of(finding, "severity"), "blocks");
    cr_assert_gt(strlen(text_of(finding, "evidence")), 8);
    cr_assert_gt(strlen(text_of(finding, "cost")), 3);
    cJSON_Delete(root);
}

static bool has_finding(const cJSON *root, const char *id) {
    const cJSON *one;
    cJSON_ArrayForEach(one, get(root, "findings")) {
        if (strcmp(text_of(one, "id"), id) == 0) {
            return true;
        }
    }
    return false;
}

/* One document has the ways, the checks and what is in the way. */
Test(selftest_json, a_run_and_the_matrix_have_findings_of_the_doctor) {
    static const char *const rows[][8] = {
        {"--driver=emulated", "--quick", "--json", NULL},
        {"matrix", "--driver=emulated", "--device=0", "--peer=0", "--json", NULL}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const selftest_outcome found =
            selftest_run(rows[i], (selftest_words){"GPUIPC_EMULATED_MACHINE=p2p=none", NULL});
        selftest_expect_code(&found, 0);
        cJSON *root = cJSON_Parse(found.all);
        cr_assert_not_null(root, "%s", found.all);
        cr_assert(has_finding(root, "D10") && has_finding(root, "D18"), "%s", found.all);
        cr_assert_gt(cJSON_GetArraySize(get(root, "transports")), 0);
        cr_assert_gt(cJSON_GetArraySize(get(root, "checks")), 0);
        cJSON_Delete(root);
    }
    const selftest_outcome found = selftest_run(
        (selftest_words){"--driver=emulated", "--quick", "--only=share/0-0", "--json", NULL}, NULL);
    cJSON *root = cJSON_Parse(found.all);
    cr_assert_not_null(root, "%s", found.all);
    cr_assert_eq(cJSON_GetArraySize(get(root, "findings")), 0, "%s", found.all);
    cJSON_Delete(root);
}

Test(selftest_json, why_nothing_could_be_tried) {
    const selftest_outcome found =
        selftest_run((selftest_words){"--driver=emulated", "--json", NULL},
                     (selftest_words){"GPUIPC_EMULATED_FAIL=cuInit:*=999", NULL});
    selftest_expect_code(&found, 1);
    cJSON *root = cJSON_Parse(found.all);
    cr_assert_not_null(root, "%s", found.all);
    cr_assert_not_null(strstr(text_of(root, "error"), "cuInit"), "%s", found.all);
    cJSON_Delete(root);
}

static void check_ids(const char *const *words, const char *a, const char *b) {
    const selftest_outcome found = selftest_run(words, NULL);
    selftest_expect_code(&found, 0);
    cJSON *root = cJSON_Parse(found.all);
    cr_assert_not_null(root, "%s", found.all);
    const cJSON *checks = get(root, "checks");
    const int count = cJSON_GetArraySize(checks);
    unsigned seen = 0;
    for (int i = 0; i < count; i++) {
        const char *id = text_of(cJSON_GetArrayItem(checks, i), "id");
        seen += strcmp(id, a) == 0 || strcmp(id, b) == 0;
        for (int k = 0; k < i; k++) {
            cr_assert_str_neq(id, text_of(cJSON_GetArrayItem(checks, k), "id"));
        }
    }
    cr_assert_eq(seen, 2, "%s", found.all);
    cJSON_Delete(root);
}

Test(selftest_json, every_check_has_an_id_of_its_own) {
    check_ids((selftest_words){"ring", "--driver=emulated", "--members=3", "--json", NULL},
              "ring/vmm/0", "ring/host/2");
    check_ids((selftest_words){"matrix", "--driver=emulated", "--device=0", "--peer=0",
                               "--duration=1", "--json", NULL},
              "measure/vmm/0-0", "measure/host/0-0");
}

/* The same twice: what a later round finds of the second is told of the second. */
Test(selftest_json, every_round_counts_for_each_check_of_one_id) {
    static const char first[] = "share/0-1/1048576";
    static const char second[] = "share/0-1/1048576-2";
    const selftest_outcome found =
        selftest_run((selftest_words){"--driver=emulated", "--device=0", "--peer=1", "--size=1M",
                                      "--size=1M", "--only=share", "--duration=2", "--json", NULL},
                     NULL);
    selftest_expect_code(&found, 0);
    cJSON *root = cJSON_Parse(found.all);
    cr_assert_not_null(root, "%s", found.all);
    const cJSON *checks = get(root, "checks");
    cr_assert_eq(cJSON_GetArraySize(checks), 2, "%s", found.all);
    const cJSON *a = cJSON_GetArrayItem(checks, 0);
    const cJSON *b = cJSON_GetArrayItem(checks, 1);
    cr_assert_str_eq(text_of(a, "id"), first);
    cr_assert_str_eq(text_of(b, "id"), second);
    cr_assert_eq(get(a, "rounds")->valueint, get(b, "rounds")->valueint, "%s", found.all);
    cJSON_Delete(root);
}

static char *read_whole(const char *path) {
    static char text[200000];
    FILE *file = fopen(path, "rb");
    cr_assert_not_null(file);
    const size_t size = fread(text, 1, sizeof(text) - 1, file);
    (void)fclose(file);
    text[size] = '\0';
    return text;
}

/* On Windows it cannot be replaced then: it is written in place, and what was there may have been longer. */
Test(selftest_json, a_page_that_somebody_has_open_is_written) {
    static char old[150000];
    char directory[RUNTIME_DIRECTORY_MAX];
    char option[RUNTIME_DIRECTORY_MAX + 64];
    memset(old, 'x', sizeof(old) - 1);
    cr_assert(runtime_directory_make(directory));
    (void)snprintf(option, sizeof(option), "--html=%s/page.html", directory);
    FILE *file = fopen(option + strlen("--html="), "wb");
    cr_assert(file != NULL && fputs(old, file) >= 0 && fclose(file) == 0);
    file = fopen(option + strlen("--html="), "rb");
    cr_assert_not_null(file);
    const selftest_outcome found =
        selftest_run((selftest_words){"doctor", "--driver=emulated", option, NULL}, NULL);
    selftest_expect_code(&found, 0);
    cr_assert_eq(fclose(file), 0);
    const char *page = read_whole(option + strlen("--html="));
    cr_assert_eq(strncmp(page, "<!DOCTYPE html>", 15), 0);
    cr_assert_null(strstr(page, "xxxxxxxx"));
    cr_assert_eq(remove(option + strlen("--html=")), 0);
    runtime_directory_remove(directory);
}

/* Nothing is fetched, and the data cannot end the element that they are in. */
Test(selftest_json, the_page_contains_its_data_and_needs_nothing_else) {
    char directory[RUNTIME_DIRECTORY_MAX];
    char option[RUNTIME_DIRECTORY_MAX + 64];
    static const char begin[] = "type=\"application/json\">";
    cr_assert(runtime_directory_make(directory));
    (void)snprintf(option, sizeof(option), "--html=%s/page.html", directory);
    FILE *old = fopen(option + strlen("--html="), "wb");
    cr_assert(old != NULL && fputs("old", old) >= 0 && fclose(old) == 0);
    const selftest_outcome found = selftest_run(
        (selftest_words){"doctor", "--driver=emulated", option, NULL},
        (selftest_words){"GPUIPC_EMULATED_MACHINE=p2p=none",
                         "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True,</script>", NULL});
    selftest_expect_code(&found, 0);
    selftest_expect_text(&found, "D18  slows"); /* and people read the same as without */
    char *page = read_whole(option + strlen("--html="));
    cr_assert(strstr(page, "http://") == NULL && strstr(page, "https://") == NULL);
    cr_assert(strstr(page, "@REPORT@") == NULL);
    char *data = strstr(page, begin);
    cr_assert_not_null(data);
    data += strlen(begin);
    char *end = strstr(data, "</script>");
    cr_assert_not_null(end);
    *end = '\0';
    cJSON *root = cJSON_Parse(data);
    cr_assert_not_null(root, "%s", data);
    check_document(root, "doctor");
    bool is_there = false;
    const cJSON *finding;
    cJSON_ArrayForEach(finding, get(root, "findings")) {
        is_there = is_there || strstr(text_of(finding, "evidence"), ",</script>") != NULL;
    }
    cr_assert(is_there, "what was written in another way reads as it was");
    cJSON_Delete(root);
    cr_assert_eq(remove(option + strlen("--html=")), 0);
    runtime_directory_remove(directory);
}
