/* SPDX-License-Identifier: MIT */
/** @file See system.h. */
#include "system.h"

#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>

void system_kernel(char *text, size_t capacity) {
    struct utsname name;
    if (uname(&name) != 0) {
        text[0] = '\0';
        return;
    }
    (void)snprintf(text, capacity, "%s %s", name.sysname, name.release);
}

void system_raise_limits(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit); /* with less a row says what it lacks */
    }
}

uint32_t system_processors(void) {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof(set), &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 1;
}

/* proc(5): a line "voluntary_ctxt_switches:\t12". */
static bool voluntary_switches(const char *task, uint64_t *out_switches) {
    static const char label[] = "voluntary_ctxt_switches:";
    char path[64];
    char line[256];
    bool is_found = false;
    (void)snprintf(path, sizeof(path), "/proc/self/task/%.20s/status", task);
    FILE *file = fopen(path, "re");
    while (file != NULL && !is_found && fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, label, sizeof(label) - 1) == 0) {
            *out_switches += strtoull(line + sizeof(label) - 1, NULL, 10);
            is_found = true;
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return is_found;
}

bool system_threads(uint32_t *out_threads, uint64_t *out_switches) {
    DIR *tasks = opendir("/proc/self/task");
    if (tasks == NULL) {
        return false;
    }
    *out_threads = 0;
    *out_switches = 0;
    const struct dirent *entry;
    while ((entry = readdir(tasks)) != NULL) {
        if (entry->d_name[0] != '.' && voluntary_switches(entry->d_name, out_switches)) {
            ++*out_threads;
        }
    }
    (void)closedir(tasks);
    return *out_threads > 0;
}

bool system_descriptors(uint32_t *out_count) {
    DIR *open = opendir("/proc/self/fd");
    if (open == NULL) {
        return false;
    }
    uint32_t count = 0;
    const struct dirent *entry;
    while ((entry = readdir(open)) != NULL) {
        count += entry->d_name[0] != '.';
    }
    (void)closedir(open);
    *out_count = count - 1; /* without the one that it was read by */
    return true;
}
