/* SPDX-License-Identifier: MIT */
/** @file What gpuipc-selftest judges by: one wrong word must be seen, and a copy be called one. */
#include <criterion/criterion.h>

#include "check.h"
#include "copy_check.h"
#include "core_fixture.h"
#include "pattern.h"

TestSuite(selftest_judgement, .init = core_start, .fini = core_finish, .timeout = 60);

Test(selftest_judgement, one_wrong_word_is_seen_wherever_it_is) {
    const uint64_t bytes = core_unit;
    const uint64_t last = bytes / sizeof(uint32_t) - 1;
    const uint64_t places[] = {0, 1, 4711, last};
    gpuipc_buffer *buffer = core_buffer(bytes, 0);
    pattern_result found;
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        uint32_t word;
        check_ok(pattern_fill(buffer, bytes, pattern_producer));
        check_ok(pattern_verify(buffer, bytes, pattern_producer, &found));
        cr_assert_eq(found.wrong, 0);
        check_ok(gpuipc_buffer_read(buffer, places[i] * sizeof(word), &word, sizeof(word)));
        const uint32_t changed = word ^ 1u;
        check_ok(gpuipc_buffer_write(buffer, places[i] * sizeof(word), &changed, sizeof(word)));
        check_ok(pattern_verify(buffer, bytes, pattern_producer, &found));
        cr_assert_eq(found.wrong, 1, "word %zu", (size_t)places[i]);
        cr_assert_eq(found.first, places[i]);
        cr_assert_eq(found.found, changed);
        cr_assert_eq(found.expected, word);
    }
    check_ok(gpuipc_buffer_release(buffer));
}

Test(selftest_judgement, the_known_pattern_is_the_one_that_is_written_down) {
    const uint32_t expected[] = {(0u * 2u + 1337u) ^ 0xDEADBEEFu, (1u * 2u + 1337u) ^ 0xDEADBEEFu,
                                 (2u * 2u + 1337u) ^ 0xDEADBEEFu};
    uint32_t words[3];
    gpuipc_buffer *buffer = core_buffer(core_unit, 0);
    pattern_result found;
    check_ok(pattern_fill(buffer, core_unit, pattern_producer));
    check_ok(gpuipc_buffer_read(buffer, 0, words, sizeof(words)));
    cr_assert_eq(memcmp(words, expected, sizeof(words)), 0);
    check_ok(pattern_verify(buffer, core_unit, pattern_consumer, &found));
    cr_assert_gt(found.wrong, 0, "the two patterns differ");
    check_ok(gpuipc_buffer_release(buffer));
}

Test(selftest_judgement, a_change_of_2_mib_is_a_copy) {
    const int64_t limit = INT64_C(2) << 20;
    cr_assert(!copy_check_is_copy(0));
    cr_assert(!copy_check_is_copy(limit - 1));
    cr_assert(!copy_check_is_copy(1 - limit));
    cr_assert(copy_check_is_copy(limit));
    cr_assert(copy_check_is_copy(-limit));
    cr_assert(copy_check_is_copy(-(INT64_C(1) << 30)));
}
