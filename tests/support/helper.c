/* SPDX-License-Identifier: MIT */
/** @file How a helper program talks to the test that started it. */
#include "helper.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void helper_say(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    putchar('\n');
    fflush(stdout);
}

void helper_say_status(gpuipc_status status) {
    if (status == GPUIPC_OK) {
        helper_say("%s", gpuipc_status_name(status));
    } else {
        helper_say("%s: %s", gpuipc_status_name(status), gpuipc_error_get()->sentence);
    }
}

bool helper_hear(char *line, size_t capacity) {
    if (fgets(line, (int)capacity, stdin) == NULL) {
        return false;
    }
    line[strcspn(line, "\r\n")] = '\0';
    return true;
}

void helper_await(const char *expected) {
    char line[256];
    while (helper_hear(line, sizeof(line))) {
        if (strcmp(line, expected) == 0) {
            return;
        }
    }
    exit(3);
}
