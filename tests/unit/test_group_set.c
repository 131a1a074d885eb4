/* SPDX-License-Identifier: MIT */
/** @file Which pools' handles a connection has sent. */
#include <criterion/criterion.h>

#include "check.h"
#include "message/group_set.h"

TestSuite(group_set, .timeout = 60);

Test(group_set, has_all_that_were_added_until_they_are_taken_back) {
    enum {
        MANY = 50
    };
    group_set self = {.count = 0};
    for (uint32_t i = 0; i < MANY; i++) {
        cr_assert_not(group_set_has(&self, i * 3));
        check_ok(group_set_add(&self, i * 3));
    }
    for (uint32_t i = 0; i < MANY; i++) {
        cr_assert(group_set_has(&self, i * 3));
        cr_assert_not(group_set_has(&self, i * 3 + 1));
    }
    group_set_truncate(&self, MANY / 2);
    cr_assert(group_set_has(&self, (MANY / 2 - 1) * 3));
    cr_assert_not(group_set_has(&self, MANY / 2 * 3));
    group_set_clear(&self);
    cr_assert_not(group_set_has(&self, 0));
    cr_assert_null(self.groups);
}
