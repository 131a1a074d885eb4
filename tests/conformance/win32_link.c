/* SPDX-License-Identifier: MIT */
/** @file The helper's end of two pipes. A handle is put into the test's process, and its number stands
 *  before the text: "0 text" is a line without one. */
#include "conformance_link.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <windows.h>

#include "helper.h"

static HANDLE test;

/** @p argv: the number of the test's process */
bool link_open(int argc, char **argv) {
    helper_begin(); /* crashes open no window from here on */
    if (argc != 2) {
        return false;
    }
    test = OpenProcess(PROCESS_DUP_HANDLE, FALSE, strtoul(argv[1], NULL, 10));
    return test != NULL;
}

bool link_send(const char *line, os_handle handle) {
    HANDLE theirs = NULL;
    if (os_handle_is_valid(handle) &&
        !DuplicateHandle(GetCurrentProcess(), (HANDLE)handle.value, test, &theirs, 0, FALSE,
                         DUPLICATE_SAME_ACCESS)) {
        return false;
    }
    helper_say("%" PRIuPTR " %s", (uintptr_t)theirs, line);
    return true;
}

bool link_receive(char *line, os_handle *out_handle) {
    char all[MESSAGE_BYTES + 32];
    char *text;
    *out_handle = OS_HANDLE_NONE;
    if (!helper_hear(all, sizeof all)) {
        return false;
    }
    const unsigned long long value = strtoull(all, &text, 10);
    if (*text != ' ' || strlen(text + 1) >= MESSAGE_BYTES ||
        (value != 0 && os_handle_adopt((intptr_t)value, out_handle) != GPUIPC_OK)) {
        return false;
    }
    memcpy(line, text + 1, strlen(text));
    return true;
}

void link_expect_crash(void) {
}
