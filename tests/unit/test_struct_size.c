/* SPDX-License-Identifier: MIT */
/** @file Structs that grow: older and newer callers, and memory that is no struct. */
#include <criterion/criterion.h>
#include <string.h>

#include <gpuipc/gpuipc.h>

#include "base/struct_size.h"
#include "check.h"

TestSuite(struct_size, .timeout = 30);

/* The struct of a first release, and the same one two releases on. */
typedef struct first {
    size_t struct_size;
    uint64_t number;
} first;

/* Both structs begin with the first one. */
static const struct_first whole = {"first", sizeof(first)};

typedef struct later {
    size_t struct_size;
    uint64_t number;
    uint64_t second;
    uint64_t third;
} later;

Test(struct_size, a_struct_of_the_known_size_is_copied) {
    const later from = {sizeof(from), 1, 2, 3};
    later known;
    check_ok(struct_size_read(&from, whole, &known, sizeof(known)));
    cr_assert_eq(memcmp(&known, &from, sizeof(known)), 0);
}

Test(struct_size, what_an_older_struct_lacks_is_zero) {
    const first from = {sizeof(from), 1};
    later known;
    memset(&known, 0xFF, sizeof(known));
    check_ok(struct_size_read(&from, whole, &known, sizeof(known)));
    cr_assert_eq(known.number, 1);
    cr_assert_eq(known.second, 0);
    cr_assert_eq(known.third, 0);
}

Test(struct_size, the_unknown_tail_of_a_newer_struct_must_be_zero) {
    later from = {sizeof(from), 1, 0, 0};
    first known;
    check_ok(struct_size_read(&from, whole, &known, sizeof(known)));
    cr_assert_eq(known.number, 1);
    for (size_t at = sizeof(first); at < sizeof(later); at++) {
        ((unsigned char *)&from)[at] = 1;
        check_refused(GPUIPC_ERR_STRUCT_SIZE, "of the first is set",
                      struct_size_read(&from, whole, &known, sizeof(known)));
        ((unsigned char *)&from)[at] = 0;
    }
}

Test(struct_size, sizes_that_cannot_be_are_refused) {
    static const size_t sizes[] = {0, 1, sizeof(first) - 1, 4097, SIZE_MAX};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        first from = {sizes[i], 1};
        first known = {77, 78};
        check_refused(GPUIPC_ERR_STRUCT_SIZE, "first::struct_size is",
                      struct_size_read(&from, whole, &known, sizeof(known)));
        cr_assert_eq(known.struct_size, 77); /* nothing was written */
        check_status(GPUIPC_ERR_STRUCT_SIZE, struct_size_check(&from, whole));
    }
}

Test(struct_size, the_largest_size_is_accepted) {
    static union {
        first from;
        unsigned char bytes[4096];
    } room;
    first known;
    room.from = (first){4096, 5};
    check_ok(struct_size_read(&room.from, whole, &known, sizeof(known)));
    cr_assert_eq(known.number, 5);
    room.bytes[4095] = 1;
    check_status(GPUIPC_ERR_STRUCT_SIZE,
                 struct_size_read(&room.from, whole, &known, sizeof(known)));
}

Test(struct_size, null_is_an_invalid_argument) {
    first known;
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, struct_size_read(NULL, whole, &known, sizeof(known)));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, struct_size_check(NULL, whole));
}

Test(struct_size, a_result_reaches_as_far_as_the_callers_struct) {
    const later known = {0, 1, 2, 3};
    struct {
        first into;
        uint64_t behind;
    } old = {{sizeof(first), 99}, 0x5A5A};
    struct_size_write(&old.into, &known, sizeof(known));
    cr_assert_eq(old.into.struct_size, sizeof(first)); /* it stays the caller's */
    cr_assert_eq(old.into.number, 1);
    cr_assert_eq(old.behind, 0x5A5A);

    later same = {sizeof(same), 99, 99, 99};
    struct_size_write(&same, &known, sizeof(known));
    cr_assert_eq(same.struct_size, sizeof(same));
    cr_assert_eq(same.third, 3);

    /* what this library does not know is zero, not what was there before */
    const first mine = {0, 7};
    later new = {sizeof(new), 99, 99, 99};
    struct_size_write(&new, &mine, sizeof(mine));
    cr_assert_eq(new.struct_size, sizeof(new));
    cr_assert_eq(new.number, 7);
    cr_assert_eq(new.second, 0);
    cr_assert_eq(new.third, 0);
}
