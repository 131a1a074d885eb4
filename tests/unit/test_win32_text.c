/* SPDX-License-Identifier: MIT */
/** @file Text between UTF-8 and UTF-16: what fits, what does not, and what is no text. */
#include <string.h>

#include "check.h"
#include "win32.h"

TestSuite(win32_text, .timeout = 30);

enum {
    ROOM = 64,
    UNTOUCHED = 0x77
};

static const struct {
    const char *text;
    const wchar_t *wide;
} pairs[] = {
    {"", L""},
    {"a", L"a"},
    {"C:\\gpuipc\\name", L"C:\\gpuipc\\name"},
    {"\x7F", L"\x7F"},
    {"\xC2\x80", L"\x80"},                 /* the first of two bytes */
    {"\xDF\xBF", L"\x7FF"},                /* the last */
    {"\xE0\xA0\x80", L"\x800"},            /* the first of three */
    {"\xED\x9F\xBF", L"\xD7FF"},           /* below the surrogates */
    {"\xEE\x80\x80", L"\xE000"},           /* above them */
    {"\xEF\xBF\xBD", L"\xFFFD"},           /* the replacement itself is a character */
    {"\xEF\xBF\xBF", L"\xFFFF"},           /* the last of three */
    {"\xF0\x90\x80\x80", L"\xD800\xDC00"}, /* the first pair */
    {"\xF0\x9F\x90\xA7", L"\xD83D\xDC27"},
    {"\xF4\x8F\xBF\xBF", L"\xDBFF\xDFFF"}, /* the last there is */
    {"a\xF0\x9F\x90\xA7\xC3\xA4", L"a\xD83D\xDC27\xE4"},
};
static const size_t pair_count = sizeof(pairs) / sizeof(pairs[0]);

/** No byte of this memory was written. */
static bool is_untouched(const void *memory, size_t bytes) {
    const unsigned char *at = memory;
    while (bytes > 0 && *at == UNTOUCHED) {
        at++;
        bytes--;
    }
    return bytes == 0;
}

Test(win32_text, both_ways_the_same) {
    for (size_t i = 0; i < pair_count; i++) {
        wchar_t wide[ROOM];
        char text[ROOM];
        check_ok(win32_wide(pairs[i].text, wide, ROOM));
        cr_assert_eq(wcscmp(wide, pairs[i].wide), 0, "row %u", (unsigned)i);
        cr_assert(win32_narrow(pairs[i].wide, text, ROOM));
        cr_assert_str_eq(text, pairs[i].text);
    }
}

Test(win32_text, room_that_just_suffices_suffices) {
    for (size_t i = 0; i < pair_count; i++) {
        wchar_t wide[ROOM];
        size_t units = wcslen(pairs[i].wide) + 1;
        memset(wide, UNTOUCHED, sizeof(wide));
        check_ok(win32_wide(pairs[i].text, wide, units));
        cr_assert_eq(wcscmp(wide, pairs[i].wide), 0);
        cr_assert(is_untouched(wide + units, sizeof(wide) - units * sizeof(wide[0])));

        char text[ROOM];
        size_t bytes = strlen(pairs[i].text) + 1;
        memset(text, UNTOUCHED, sizeof(text));
        cr_assert(win32_narrow(pairs[i].wide, text, bytes));
        cr_assert_str_eq(text, pairs[i].text);
        cr_assert(is_untouched(text + bytes, sizeof(text) - bytes));
    }
}

Test(win32_text, too_little_room_is_refused_and_not_written_to) {
    for (size_t i = 0; i < pair_count; i++) {
        wchar_t wide[ROOM];
        char text[ROOM];
        memset(wide, UNTOUCHED, sizeof(wide));
        memset(text, UNTOUCHED, sizeof(text));
        for (size_t units = 0; units <= wcslen(pairs[i].wide); units++) {
            check_refused(GPUIPC_ERR_NAME_TOO_LONG, "room", win32_wide(pairs[i].text, wide, units));
        }
        for (size_t bytes = 0; bytes <= strlen(pairs[i].text); bytes++) {
            cr_assert_not(win32_narrow(pairs[i].wide, text, bytes));
        }
        cr_assert(is_untouched(wide, sizeof(wide)));
        cr_assert(is_untouched(text, sizeof(text)));
    }
}

Test(win32_text, what_is_no_utf8_is_refused) {
    static const char *const bad[] = {
        "\x80",                     /* a continuation without a beginning */
        "a\xBFz",                   /* likewise */
        "\xC3",                     /* the end is missing */
        "\xC3z",                    /* likewise */
        "\xE2\x82",                 /* likewise */
        "\xF0\x9F\x90",             /* likewise */
        "\xC0\xAF",                 /* a slash, too long */
        "\xC1\xBF",                 /* too long */
        "\xE0\x9F\xBF",             /* too long */
        "\xF0\x8F\xBF\xBF",         /* too long */
        "\xED\xA0\x80",             /* half a surrogate pair */
        "\xED\xBF\xBF",             /* the other half */
        "\xED\xA0\xBD\xED\xB0\xA7", /* both (CESU-8) */
        "\xF4\x90\x80\x80",         /* beyond U+10FFFF */
        "\xF8\x88\x80\x80\x80",     /* five bytes */
        "\xFE",
        "\xFF",
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        wchar_t wide[ROOM];
        memset(wide, UNTOUCHED, sizeof(wide));
        check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "UTF-8", win32_wide(bad[i], wide, ROOM));
        cr_assert(is_untouched(wide, sizeof(wide)), "row %u", (unsigned)i);
    }
}

Test(win32_text, half_a_surrogate_pair_is_replaced) {
    static const struct {
        const wchar_t *wide;
        const char *text;
    } halves[] = {
        {L"\xD83D", "\xEF\xBF\xBD"},
        {L"\xDC27", "\xEF\xBF\xBD"},
        {L"a\xD83Dz", "a\xEF\xBF\xBDz"},
        {L"a\xDC27z", "a\xEF\xBF\xBDz"},
        {L"\xDC27\xD83D", "\xEF\xBF\xBD\xEF\xBF\xBD"}, /* the wrong way round */
        {L"\xD83D\xD83D\xDC27", "\xEF\xBF\xBD\xF0\x9F\x90\xA7"},
    };
    for (size_t i = 0; i < sizeof(halves) / sizeof(halves[0]); i++) {
        char text[ROOM];
        size_t bytes = strlen(halves[i].text) + 1;
        cr_assert(win32_narrow(halves[i].wide, text, bytes), "row %u", (unsigned)i);
        cr_assert_str_eq(text, halves[i].text, "row %u", (unsigned)i);
        cr_assert_not(win32_narrow(halves[i].wide, text, bytes - 1));
    }
}
