/* SPDX-License-Identifier: MIT */
/** @file What is different on POSIX systems; win32_environment.c is its twin. */
#include <stdlib.h>

#include "core_fixture.h"

const bool core_names_have_case = true;

void core_environment_set(const char *name, const char *value) {
    cr_assert_eq(value == NULL ? unsetenv(name) : setenv(name, value, 1), 0);
}

void core_crash(void) {
    abort();
}
