/* SPDX-License-Identifier: MIT */
/** @file Native error codes: the status and the words for them, the same on both systems. */
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "error_codes.h"

TestSuite(os_error, .timeout = 30);

#define ON_BOTH  true
#define ON_POSIX error_codes_are_posix
#define ON_WIN32 (!error_codes_are_posix)

static size_t codes_of(os_situation situation) {
    size_t count = 0;
    for (size_t i = 0; i < error_code_count; i++) {
        count += error_codes[i].situation == situation;
    }
    return count;
}

Test(os_error, every_situation_has_a_code_on_each_system_that_has_it) {
#define CHECK(name, status, systems)                                                               \
    cr_assert_eq(codes_of(OS_SITUATION_##name) > 0, ON_##systems, "%s", #name);
    OS_SITUATION_LIST(CHECK)
#undef CHECK
}

Test(os_error, no_two_situations_have_one_status) {
    static const gpuipc_status statuses[] = {
#define STATUS(name, status, systems) GPUIPC_##status,
        OS_SITUATION_LIST(STATUS)
#undef STATUS
    };
    for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++) {
        cr_assert_eq(os_situation_status((os_situation)i), statuses[i]);
        for (size_t j = 0; j < i; j++) {
            cr_assert_neq(statuses[i], statuses[j]);
        }
    }
}

Test(os_error, every_code_has_the_status_of_the_table) {
    for (size_t i = 0; i < error_code_count; i++) {
        gpuipc_status expected = os_situation_status(error_codes[i].situation);
        gpuipc_status got = error_code_status(error_codes[i].code);
        cr_assert_eq(got, expected, "%s: %s, not %s", error_codes[i].name, gpuipc_status_name(got),
                     gpuipc_status_name(expected));
    }
}

Test(os_error, a_failure_has_the_code_and_the_systems_words) {
    for (size_t i = 0; i < error_code_count; i++) {
        char words[1024];
        char expected[2048];
        int64_t code = error_codes[i].code;
        error_code_words(code, words, sizeof(words));
        cr_assert(strlen(words) > 0);
        snprintf(expected, sizeof(expected), "opening it: %s", words);
        check_refused(error_code_status(code), expected,
                      error_code_fail(code, "open", "opening it"));
        const gpuipc_error *error = gpuipc_error_get();
        cr_assert_eq(error->native_origin, GPUIPC_NATIVE_OS);
        cr_assert_eq(error->native_code, code);
        cr_assert_str_eq(error->native_call, "open");
        /* One line, which another sentence can go on with. */
        cr_assert_null(strpbrk(error->sentence, "\r\n"), "%s", error->sentence);
        cr_assert_null(strchr(". ", error->sentence[strlen(error->sentence) - 1]), "\"%s\"",
                       error->sentence);
    }
}

Test(os_error, the_caller_may_decide_the_status) {
    for (size_t i = 0; i < error_code_count; i++) {
        char words[1024];
        error_code_words(error_codes[i].code, words, sizeof(words));
        check_refused(GPUIPC_ERR_NOT_FOUND, words,
                      error_code_fail_as(GPUIPC_ERR_NOT_FOUND, error_codes[i].code, "open", "it"));
        cr_assert_eq(gpuipc_error_get()->native_code, error_codes[i].code);
    }
}

Test(os_error, a_sentence_that_fills_the_record_leaves_out_the_words) {
    char sentence[1000];
    memset(sentence, 'x', sizeof(sentence));
    sentence[sizeof(sentence) - 1] = '\0';
    const gpuipc_error *error = gpuipc_error_get();
    check_status(error_code_status(error_codes[0].code),
                 error_code_fail(error_codes[0].code, "open", sentence));
    cr_assert_eq(strlen(error->sentence), sizeof(error->sentence) - 1);
    cr_assert_eq(strspn(error->sentence, "x"), sizeof(error->sentence) - 1);
}
