/* SPDX-License-Identifier: MIT */
/** @file The helper process: reached through two pipes, and handles are put into it. */
#include "conformance_process.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <windows.h>

#include "check.h"
#include "child.h"

/** How long a helper may take to answer; starting a GPU takes seconds when many do it at once. */
#define ANSWER_MS 40000

/** What a process exits with that has called abort(): learn.microsoft.com, abort. */
#define CODE_ABORT 3

struct helper {
    child_process *child;
    HANDLE process; /**< to put handles into it */
    bool has_answer;
    char answer[MESSAGE_BYTES + 32]; /**< read, and not looked at yet */
};

helper *helper_start(const char *visible_devices) {
    char visible[1024];
    char own_number[32];
    const char *const arguments[] = {own_number, NULL};
    const char *const environment[] = {visible_devices != NULL ? visible : NULL, NULL};
    helper *process = calloc(1, sizeof *process);
    cr_assert_not_null(process);
    snprintf(own_number, sizeof own_number, "%lu", GetCurrentProcessId());
    if (visible_devices != NULL) {
        snprintf(visible, sizeof visible, "CUDA_VISIBLE_DEVICES=%s", visible_devices);
    }
    check_ok(child_start("conformance_helper", arguments, environment, &process->child));
    process->process =
        OpenProcess(PROCESS_DUP_HANDLE, FALSE, (DWORD)child_process_id(process->child));
    cr_assert_not_null(process->process, "the helper's process: error %lu", GetLastError());
    return process;
}

void helper_tell(helper *process, os_handle handle, const char *format, ...) {
    char text[MESSAGE_BYTES];
    char line[MESSAGE_BYTES + 32];
    HANDLE theirs = NULL;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (os_handle_is_valid(handle)) {
        cr_assert(DuplicateHandle(GetCurrentProcess(), (HANDLE)handle.value, process->process,
                                  &theirs, 0, FALSE, DUPLICATE_SAME_ACCESS),
                  "\"%s\": error %lu", text, GetLastError());
    }
    snprintf(line, sizeof line, "%" PRIuPTR " %s", (uintptr_t)theirs, text);
    check_ok(child_write_line(process->child, line));
}

/** The number before the text is that of a handle, which is in this process already. */
void helper_hear(helper *process, char line[MESSAGE_BYTES], os_handle *out_handle) {
    char *text;
    os_handle handle = OS_HANDLE_NONE;
    helper_await_answer(process);
    process->has_answer = false;
    const unsigned long long value = strtoull(process->answer, &text, 10);
    cr_assert(*text == ' ' && strlen(text + 1) < MESSAGE_BYTES, "the helper answered \"%s\"",
              process->answer);
    memcpy(line, text + 1, strlen(text));
    if (value != 0) {
        check_ok(os_handle_adopt((intptr_t)value, &handle));
    }
    if (out_handle != NULL) {
        *out_handle = handle;
    } else {
        cr_assert_not(os_handle_is_valid(handle), "an unexpected handle came with \"%s\"", line);
    }
}

void helper_await_answer(helper *process) {
    if (!process->has_answer) {
        check_ok(
            child_read_line(process->child, process->answer, sizeof process->answer, ANSWER_MS));
        process->has_answer = true;
    }
}

void helper_kill(helper *process) {
    child_kill(process->child);
    check_ok(child_wait(process->child, ANSWER_MS, NULL));
}

helper_ending helper_await_end(helper *process) {
    child_end end;
    check_ok(child_wait(process->child, ANSWER_MS, &end));
    child_destroy(process->child);
    CloseHandle(process->process);
    free(process);
    const bool crashed = !end.exited || end.code == CODE_ABORT;
    return (helper_ending){.exit_code = crashed ? -1 : end.code, .crash = crashed ? end.code : 0};
}

helper_ending helper_end(helper *process) {
    child_close_input(process->child);
    return helper_await_end(process);
}

/* abort() ends with exit code 3, which Criterion counts for nothing in a .fini. */
void program_crash(void) {
    TerminateProcess(GetCurrentProcess(), STATUS_ASSERTION_FAILURE);
}
