/* SPDX-License-Identifier: MIT */
/** @file Changing this process's environment, on POSIX systems. */
#include <stdlib.h>

#include "core_fixture.h"

void core_environment_set(const char *name, const char *value) {
    cr_assert_eq(value == NULL ? unsetenv(name) : setenv(name, value, 1), 0);
}
