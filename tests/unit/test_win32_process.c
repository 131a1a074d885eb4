/* SPDX-License-Identifier: MIT */
/** @file The environment of this process, which is the system's and not the C library's. */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "win32.h"

TestSuite(win32_process, .timeout = 60);

#define NAME      "GPUIPC_TEST_VARIABLE"
#define WIDE_NAME L"GPUIPC_TEST_VARIABLE"

static void variable_set(const wchar_t *value) {
    cr_assert(SetEnvironmentVariableW(WIDE_NAME, value));
}

Test(win32_process, a_variable_is_what_it_was_set_to_last) {
    variable_set(NULL);
    cr_assert_null(os_environment(NAME));
    variable_set(L"one");
    cr_assert_str_eq(os_environment(NAME), "one");
    cr_assert(SetEnvironmentVariableA(NAME, "two"));
    cr_assert_str_eq(os_environment(NAME), "two");
    cr_assert_eq(_putenv_s(NAME, "three"), 0);
    cr_assert_str_eq(os_environment(NAME), "three");
    cr_assert_eq(_putenv_s(NAME, ""), 0); /* takes it away */
    cr_assert_null(os_environment(NAME));
}

Test(win32_process, an_empty_variable_is_no_missing_one) {
    variable_set(L"");
    const char *text = os_environment(NAME);
    cr_assert_not_null(text);
    cr_assert_str_eq(text, "");
}

Test(win32_process, a_text_outlives_its_variable) {
    variable_set(L"first");
    const char *first = os_environment(NAME);
    variable_set(L"second");
    const char *second = os_environment(NAME);
    variable_set(NULL);
    cr_assert_str_eq(first, "first");
    cr_assert_str_eq(second, "second");
}

Test(win32_process, what_is_kept_is_kept_once) {
    variable_set(L"kept");
    const char *text = os_environment(NAME);
    for (int i = 0; i < 100; i++) {
        variable_set(i % 2 == 0 ? L"another" : L"kept");
        const char *now = os_environment(NAME);
        cr_assert_eq(now == text, i % 2 != 0);
    }
}

Test(win32_process, the_text_is_utf8) {
    variable_set(L"C:\\\xE4\\\xD83D\xDC27");
    cr_assert_str_eq(os_environment(NAME), "C:\\\xC3\xA4\\\xF0\x9F\x90\xA7");
    variable_set(L"a\xD83Dz");
    cr_assert_str_eq(os_environment(NAME), "a\xEF\xBF\xBDz");
    /* A name that is no UTF-8 names nothing. */
    cr_assert_null(os_environment("\xFF"));
}

Test(win32_process, every_length_comes_whole) {
    /* learn.microsoft.com, SetEnvironmentVariableW: 32767 at most, with the end. */
    static const size_t lengths[] = {1, 254, 255, 256, 257, 511, 4096, 32000};
    static wchar_t value[32767];
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        for (size_t at = 0; at < lengths[i]; at++) {
            value[at] = (wchar_t)(L'\x4E00' + at % 1000); /* three bytes each */
        }
        value[lengths[i]] = L'\0';
        variable_set(value);
        const char *text = os_environment(NAME);
        cr_assert_not_null(text);
        cr_assert_eq(strlen(text), 3 * lengths[i]);
        static wchar_t back[32767];
        check_ok(win32_wide(text, back, 32767));
        cr_assert_eq(wcscmp(back, value), 0);
    }
}

static void ask_many_times(void *argument) {
    (void)argument;
    for (int i = 0; i < 500; i++) {
        const char *text = os_environment(NAME);
        cr_assert(strcmp(text, "one") == 0 || strcmp(text, "two") == 0, "%s", text);
    }
}

Test(win32_process, threads_may_ask_while_it_changes) {
    os_thread *threads[3];
    variable_set(L"one");
    for (int i = 0; i < 3; i++) {
        check_ok(os_thread_start(ask_many_times, NULL, &threads[i]));
    }
    for (int i = 0; i < 500; i++) {
        variable_set(i % 2 == 0 ? L"two" : L"one");
    }
    for (int i = 0; i < 3; i++) {
        os_thread_join(threads[i]);
    }
}

/** Until it is put back, what a program has in its registry is under @p name, of the user's own. */
static HKEY registry_turn_to(const wchar_t *name, REGSAM rights) {
    HKEY key;
    cr_assert_eq(RegCreateKeyExW(HKEY_CURRENT_USER, name, 0, NULL, REG_OPTION_VOLATILE, rights,
                                 NULL, &key, NULL),
                 ERROR_SUCCESS);
    cr_assert_eq(RegOverridePredefKey(HKEY_CURRENT_USER, key), ERROR_SUCCESS);
    return key;
}

static void registry_put_back(HKEY key, const wchar_t *name) {
    cr_assert_eq(RegOverridePredefKey(HKEY_CURRENT_USER, NULL), ERROR_SUCCESS);
    RegCloseKey(key);
    (void)RegDeleteTreeW(HKEY_CURRENT_USER, name);
}

/** A name that no other test has. */
static void registry_name(wchar_t name[64]) {
    (void)swprintf(name, 64, L"gpuipc-test-%lu", GetCurrentProcessId());
}

Test(win32_process, another_registry_is_another_start_of_the_machine) {
    wchar_t name[64];
    uint8_t ids[4][16];
    registry_name(name);
    os_boot_id(ids[0]);
    HKEY key = registry_turn_to(name, KEY_ALL_ACCESS);
    os_boot_id(ids[1]);
    os_boot_id(ids[2]);
    registry_put_back(key, name);
    os_boot_id(ids[3]);
    cr_assert_neq(memcmp(ids[0], ids[1], 16), 0);
    cr_assert_eq(memcmp(ids[1], ids[2], 16), 0);
    cr_assert_eq(memcmp(ids[0], ids[3], 16), 0);
}

Test(win32_process, what_somebody_else_has_put_there_is_no_start_of_the_machine) {
    static const wchar_t *const classes[] = {NULL, L"", L"0123456789abcdef0123456789abcde",
                                             L"0123456789abcdef0123456789abcdef0",
                                             L"0123456789abcdef0123456789ABCDEF"};
    static const uint8_t none[16];
    wchar_t name[64];
    registry_name(name);
    for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++) {
        uint8_t id[16] = {1};
        HKEY other;
        HKEY key = registry_turn_to(name, KEY_ALL_ACCESS);
        cr_assert_eq(RegCreateKeyExW(key, L"Software\\gpuipc\\boot", 0, (wchar_t *)classes[i],
                                     REG_OPTION_VOLATILE, KEY_ALL_ACCESS, NULL, &other, NULL),
                     ERROR_SUCCESS);
        RegCloseKey(other);
        os_boot_id(id);
        registry_put_back(key, name);
        cr_assert_eq(memcmp(id, none, 16), 0, "%zu", i);
    }
}

Test(win32_process, without_a_registry_nothing_is_known_of_the_start) {
    static const uint8_t none[16];
    wchar_t name[64];
    uint8_t id[16] = {1};
    registry_name(name);
    HKEY key = registry_turn_to(name, KEY_ALL_ACCESS);
    cr_assert_eq(RegDeleteKeyW(key, L""), ERROR_SUCCESS); /* nothing can be made in it any more */
    os_boot_id(id);
    registry_put_back(key, name);
    cr_assert_eq(memcmp(id, none, 16), 0);
}
