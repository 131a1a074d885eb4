/* SPDX-License-Identifier: MIT */
/** @file What is different on Windows; posix_environment.c is its twin. */
#include <windows.h>

#include "core_fixture.h"

const bool core_names_have_case = false;

/* The system's own environment, which os_environment reads, and not the copies of it that the C
 * libraries in a process keep. */
void core_environment_set(const char *name, const char *value) {
    wchar_t wide_name[128];
    wchar_t wide_value[1024];
    cr_assert_gt(MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, name, -1, wide_name, 128), 0);
    cr_assert(value == NULL ||
              MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, value, -1, wide_value, 1024) > 0);
    if (value == NULL) {
        /* Fails when there is none to remove, which is as good. */
        (void)SetEnvironmentVariableW(wide_name, NULL);
        cr_assert_null(os_environment(name));
    } else {
        cr_assert(SetEnvironmentVariableW(wide_name, wide_value));
    }
}

/* abort() ends with exit code 3, which Criterion takes for an early exit, and in a .fini for nothing. */
void core_crash(void) {
    TerminateProcess(GetCurrentProcess(), STATUS_ASSERTION_FAILURE);
}
