/* SPDX-License-Identifier: MIT */
/** @file Whether a thread is asleep: man 5 proc, /proc/pid/task/tid/stat. */
#include "thread_state.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "os.h"

uint64_t thread_state_own_number(void) {
    return (uint64_t)syscall(SYS_gettid);
}

/** The letter behind the name, which is in parentheses and may hold anything; 0: not known. */
static char state_letter(uint64_t thread_number) {
    char path[64];
    char text[256];
    snprintf(path, sizeof(path), "/proc/self/task/%" PRIu64 "/stat", thread_number);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return 0;
    }
    size_t length = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[length] = '\0';
    const char *end = strrchr(text, ')');
    return end != NULL && end[1] == ' ' ? end[2] : (char)0;
}

bool thread_state_wait_asleep(uint64_t thread_number, int timeout_ms) {
    os_deadline deadline = os_deadline_after(timeout_ms);
    while (state_letter(thread_number) != 'S') {
        if (os_deadline_passed(deadline)) {
            return false;
        }
        os_sleep_ms(1);
    }
    return true;
}
