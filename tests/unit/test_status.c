/* SPDX-License-Identifier: MIT */
/** @file The error record, and the names and sentences of the statuses. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include <gpuipc/gpuipc_version.h>

#include "base/status.h"
#include "os.h"

TestSuite(status, .timeout = 30);

static const struct {
    gpuipc_status status;
    const char *name;
} rows[] = {
#define ROW(code, value, sentence) {GPUIPC_##code, "GPUIPC_" #code},
    GPUIPC_STATUS_LIST(ROW)
#undef ROW
};
static const size_t row_count = sizeof(rows) / sizeof(rows[0]);

Test(status, every_status_has_its_name_and_a_sentence_of_its_own) {
    for (size_t i = 0; i < row_count; i++) {
        cr_assert_str_eq(gpuipc_status_name(rows[i].status), rows[i].name);
        const char *message = gpuipc_status_message(rows[i].status);
        cr_assert(strlen(message) > 6, "%s", rows[i].name);
        /* What happened, and behind it what to do. */
        cr_assert(rows[i].status == GPUIPC_OK || strstr(message, "; ") != NULL, "%s", rows[i].name);
        for (size_t j = 0; j < i; j++) {
            cr_assert_neq(rows[i].status, rows[j].status, "%s", rows[i].name);
            cr_assert_str_neq(message, gpuipc_status_message(rows[j].status));
        }
    }
}

Test(status, a_number_that_is_no_status_has_a_name_too) {
    static const int numbers[] = {-1, 13, 59, 86, 99, 112, 1000, 0x7FFFFFFF};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        gpuipc_status status = (gpuipc_status)numbers[i];
        cr_assert_str_eq(gpuipc_status_name(status), "GPUIPC_UNKNOWN_STATUS");
        cr_assert(strlen(gpuipc_status_message(status)) > 6);
    }
}

Test(status, a_failure_fills_the_whole_record) {
    status_enter("first");
    cr_assert_eq(status_fail_os(GPUIPC_ERR_OS, 13, "open", "file %d of %s", 7, "many"),
                 GPUIPC_ERR_OS);
    const gpuipc_error *error = gpuipc_error_get();
    cr_assert_eq(error->status, GPUIPC_ERR_OS);
    cr_assert_eq(error->native_origin, GPUIPC_NATIVE_OS);
    cr_assert_eq(error->native_code, 13);
    cr_assert_str_eq(error->native_call, "open");
    cr_assert_str_eq(error->operation, "first");
    cr_assert_str_eq(error->sentence, "file 7 of many");

    cr_assert_eq(status_fail_cuda(GPUIPC_ERR_CUDA, 999, "cuInit", "no"), GPUIPC_ERR_CUDA);
    cr_assert_eq(error->native_origin, GPUIPC_NATIVE_CUDA);
    cr_assert_eq(error->native_code, 999);

    /* Nothing of the failure before is left. */
    status_enter("second");
    cr_assert_eq(status_fail(GPUIPC_ERR_TIMEOUT, "late"), GPUIPC_ERR_TIMEOUT);
    cr_assert_eq(error->native_origin, GPUIPC_NATIVE_NONE);
    cr_assert_eq(error->native_code, 0);
    cr_assert_str_eq(error->native_call, "");
    cr_assert_str_eq(error->operation, "second");

    cr_assert_eq(status_out_of_memory(4096), GPUIPC_ERR_OUT_OF_MEMORY);
    cr_assert(strstr(error->sentence, "4096") != NULL);
}

Test(status, long_texts_are_cut_and_end) {
    char text[1000];
    memset(text, 'x', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    status_enter(text);
    status_fail_os(GPUIPC_ERR_OS, 1, text, "%s", text);
    const gpuipc_error *error = gpuipc_error_get();
    cr_assert_eq(strlen(error->operation), sizeof(error->operation) - 1);
    cr_assert_eq(strlen(error->native_call), sizeof(error->native_call) - 1);
    cr_assert_eq(strlen(error->sentence), sizeof(error->sentence) - 1);
    cr_assert_eq(strncmp(error->sentence, text, sizeof(error->sentence) - 1), 0);
}

Test(status, a_cut_splits_no_character) {
    static const struct {
        const char *text;
        size_t bytes;
    } characters[] = {{"\xC3\xA9", 2}, {"\xE2\x82\xAC", 3}, {"\xF0\x9F\x98\x80", 4}};
    for (size_t kind = 0; kind < sizeof(characters) / sizeof(characters[0]); kind++) {
        size_t bytes = characters[kind].bytes;
        for (size_t lead = 0; lead < bytes; lead++) {
            char text[600] = "";
            memset(text, 'x', lead);
            while (strlen(text) + bytes < sizeof(text)) {
                strcat(text, characters[kind].text);
            }
            status_fail_os(GPUIPC_ERR_OS, 1, text, "%s", text);
            const gpuipc_error *error = gpuipc_error_get();
            cr_assert_eq((strlen(error->sentence) - lead) % bytes, 0, "%zu %zu", bytes, lead);
            cr_assert_eq((strlen(error->native_call) - lead) % bytes, 0, "%zu %zu", bytes, lead);
            cr_assert(strlen(error->sentence) + bytes >= sizeof(error->sentence));
        }
    }
}

Test(status, of_a_long_path_the_end_is_told) {
    char room[STATUS_PATH_MAX];
    char path[2 * STATUS_PATH_MAX];
    cr_assert_str_eq(status_path("/short", room), "/short");
    memset(path, 'd', sizeof(path));
    memcpy(path + sizeof(path) - sizeof("/end"), "/end", sizeof("/end"));
    const char *shown = status_path(path, room);
    cr_assert_eq(shown, (const char *)room);
    cr_assert_eq(strlen(room), STATUS_PATH_MAX - 1);
    cr_assert_eq(strncmp(room, "...ddd", 6), 0);
    cr_assert_str_eq(room + strlen(room) - 4, "/end");
    /* a letter of two bytes, of which the first one would be cut off */
    path[strlen(path) - (STATUS_PATH_MAX - sizeof("..."))] = (char)0xA9;
    cr_assert_eq(strncmp(status_path(path, room), "...ddd", 6), 0);
    cr_assert_eq(strlen(room), STATUS_PATH_MAX - 2);
}

Test(status, the_record_may_be_told_again) {
    status_fail(GPUIPC_ERR_OS, "the cause");
    status_fail(GPUIPC_ERR_OS, "again: %s", gpuipc_error_get()->sentence);
    cr_assert_str_eq(gpuipc_error_get()->sentence, "again: the cause");
}

Test(status, a_saved_record_comes_back) {
    status_fail_os(GPUIPC_ERR_NOT_FOUND, 2, "open", "the first failure");
    gpuipc_error saved = status_save();
    status_fail(GPUIPC_ERR_OS, "one in the clean-up");
    status_restore(&saved);
    cr_assert_eq(gpuipc_error_get()->status, GPUIPC_ERR_NOT_FOUND);
    cr_assert_eq(gpuipc_error_get()->native_code, 2);
    cr_assert_str_eq(gpuipc_error_get()->sentence, "the first failure");
}

Test(status, a_kept_failure_is_told_as_one_of_a_later_call) {
    status_enter("first");
    status_fail_os(GPUIPC_ERR_NOT_FOUND, 2, "open", "the first failure");
    const gpuipc_error kept = status_save();
    status_enter("second");
    status_fail(GPUIPC_ERR_OS, "another");
    cr_assert_eq(status_again(&kept), GPUIPC_ERR_NOT_FOUND);
    cr_assert_str_eq(gpuipc_error_get()->operation, "second");
    cr_assert_str_eq(gpuipc_error_get()->native_call, "open");
    cr_assert_str_eq(gpuipc_error_get()->sentence, "the first failure");
    status_restore(&kept); /* of the call that it began in */
    cr_assert_str_eq(gpuipc_error_get()->operation, "first");
}

static void fail_in_thread(void *argument) {
    const gpuipc_error **out = argument;
    cr_assert_eq(gpuipc_error_get()->status, GPUIPC_OK);
    status_fail(GPUIPC_ERR_BUSY, "of its own");
    cr_assert_str_eq(gpuipc_error_get()->sentence, "of its own");
    cr_assert_str_eq(gpuipc_error_get()->operation, ""); /* it is in no public call */
    *out = gpuipc_error_get();
}

Test(status, each_thread_has_its_own_record) {
    status_enter("here");
    status_fail(GPUIPC_ERR_TIMEOUT, "of this thread");
    const gpuipc_error *other = NULL;
    os_thread *thread;
    cr_assert_eq(os_thread_start(fail_in_thread, &other, &thread), GPUIPC_OK);
    os_thread_join(thread);
    cr_assert_neq(other, gpuipc_error_get());
    cr_assert_eq(gpuipc_error_get()->status, GPUIPC_ERR_TIMEOUT);
    cr_assert_str_eq(gpuipc_error_get()->sentence, "of this thread");
}

Test(status, a_changed_status_keeps_the_particulars) {
    status_fail_os(GPUIPC_ERR_NOT_FOUND, 2, "dlopen", "there is none");
    cr_assert_eq(status_change(GPUIPC_ERR_NO_DRIVER), GPUIPC_ERR_NO_DRIVER);
    cr_assert_eq(gpuipc_error_get()->status, GPUIPC_ERR_NO_DRIVER);
    cr_assert_eq(gpuipc_error_get()->native_code, 2);
    cr_assert_str_eq(gpuipc_error_get()->native_call, "dlopen");
    cr_assert_str_eq(gpuipc_error_get()->sentence, "there is none");
}

Test(status, a_text_has_call_cause_and_remedy) {
    cr_assert_str_eq(gpuipc_error_text(), "success");
    status_enter("gpuipc_buffer_create");
    status_fail_cuda(GPUIPC_ERR_OUT_OF_DEVICE_MEMORY, 2, "cuMemCreate", "no room for 5 bytes");
    cr_assert_str_eq(gpuipc_error_text(),
                     "gpuipc_buffer_create: no room for 5 bytes (GPUIPC_ERR_OUT_OF_DEVICE_MEMORY, "
                     "cuMemCreate: CUresult 2); "
                     "in general: the GPU has not enough free memory; free some or ask for less");
    status_fail_os(GPUIPC_ERR_OS, 13, "open", "no right");
    cr_assert_not_null(
        strstr(gpuipc_error_text(), "no right (GPUIPC_ERR_OS, open: system error 13)"));
    status_fail(GPUIPC_ERR_TIMEOUT, "%s", gpuipc_status_message(GPUIPC_ERR_TIMEOUT));
    cr_assert_null(strstr(gpuipc_error_text(), "in general")); /* it would say the same twice */
}

Test(status, the_longest_text_is_whole) {
    char longest[400];
    memset(longest, 'x', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    status_enter(longest);
    for (size_t i = 1; i < row_count; i++) {
        status_fail_cuda(rows[i].status, INT64_MIN, longest, "%s", longest);
        const char *text = gpuipc_error_text();
        const char *remedy = gpuipc_status_message(rows[i].status);
        cr_assert_gt(strlen(text), strlen(remedy));
        cr_assert_str_eq(text + strlen(text) - strlen(remedy), remedy, "%s", rows[i].name);
    }
}

Test(status, each_status_has_a_group) {
    static const struct {
        int number;
        gpuipc_group group;
    } groups[] = {{0, GPUIPC_GROUP_OK},        {1, GPUIPC_GROUP_CALL},
                  {29, GPUIPC_GROUP_CALL},     {30, GPUIPC_GROUP_MACHINE},
                  {59, GPUIPC_GROUP_MACHINE},  {60, GPUIPC_GROUP_WAITING},
                  {80, GPUIPC_GROUP_PEER},     {100, GPUIPC_GROUP_TICKET},
                  {119, GPUIPC_GROUP_TICKET},  {-1, GPUIPC_GROUP_UNKNOWN},
                  {120, GPUIPC_GROUP_UNKNOWN}, {0x7FFFFFFF, GPUIPC_GROUP_UNKNOWN}};
    for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++) {
        cr_assert_eq(gpuipc_status_group((gpuipc_status)groups[i].number), groups[i].group, "%d",
                     groups[i].number);
    }
    for (size_t i = 0; i < row_count; i++) {
        cr_assert_neq(gpuipc_status_group(rows[i].status), GPUIPC_GROUP_UNKNOWN, "%s",
                      rows[i].name);
    }
}

Test(status, the_library_has_the_version_of_its_header) {
    cr_assert_eq(gpuipc_version(), GPUIPC_VERSION);
    cr_assert_eq(gpuipc_version(),
                 10000 * GPUIPC_VERSION_MAJOR + 100 * GPUIPC_VERSION_MINOR + GPUIPC_VERSION_PATCH);
}

/* Bytes that are no text are cut as they are. */
Test(status, a_cut_leaves_alone_what_is_no_character) {
    char text[1000];
    memset(text, 0x80, sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    status_fail(GPUIPC_ERR_OS, "%s", text);
    cr_assert_eq(strlen(gpuipc_error_get()->sentence), sizeof(gpuipc_error_get()->sentence) - 1);
}

Test(status, a_sentence_that_is_the_remedy_is_told_once) {
    status_enter("call");
    status_fail(GPUIPC_ERR_TIMEOUT, "%s", gpuipc_status_message(GPUIPC_ERR_TIMEOUT));
    cr_assert_null(strstr(gpuipc_error_text(), "in general"));
}

/* What is added takes the room that is left, and no part of a character. */
Test(status, what_is_added_is_cut_to_the_room_that_is_left) {
    char text[sizeof(gpuipc_error_get()->sentence)];
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    status_fail(GPUIPC_ERR_OS, "%s", text);
    status_add("; and more");
    cr_assert_str_eq(gpuipc_error_get()->sentence, text);
    text[sizeof(text) - 4] = '\0';
    status_fail(GPUIPC_ERR_OS, "%s", text);
    status_add("\xC3\xA9\xC3\xA9");
    cr_assert_str_eq(gpuipc_error_get()->sentence + sizeof(text) - 4, "\xC3\xA9");
    status_fail(GPUIPC_ERR_OS, "%s", text);
    status_add("\x80\x80\x80\x80");
    cr_assert_str_eq(gpuipc_error_get()->sentence + sizeof(text) - 4, "\x80\x80\x80");
}
