/* SPDX-License-Identifier: MIT */
/** @file What this process has open and mapped, read from /proc/self (man 5 proc). */
#include "resource_list.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool resource_list_handles(resource_list *out_list) {
    resource_list list = {0};
    DIR *directory = opendir("/proc/self/fd");
    if (directory == NULL) {
        return false;
    }
    bool complete = true;
    struct dirent *entry;
    while (complete && (entry = readdir(directory)) != NULL) {
        char target[256];
        char line[320];
        ssize_t length = readlinkat(dirfd(directory), entry->d_name, target, sizeof(target) - 1);
        if (length < 0 || strtol(entry->d_name, NULL, 10) == dirfd(directory)) {
            continue; /* "." and "..", and what this very function has opened */
        }
        target[length] = '\0';
        snprintf(line, sizeof(line), "descriptor %.10s: %s", entry->d_name, target);
        complete = resource_list_add(&list, line);
    }
    closedir(directory);
    if (!complete) {
        resource_list_free(&list);
        return false;
    }
    *out_list = list;
    return true;
}

bool resource_list_mappings(resource_list *out_list) {
    resource_list list = {0};
    FILE *maps = fopen("/proc/self/maps", "re");
    if (maps == NULL) {
        return false;
    }
    bool complete = true;
    char row[512];
    while (complete && fgets(row, sizeof(row), maps) != NULL) {
        const char *name = strstr(row, "/memfd:");
        if (name != NULL) {
            char line[600];
            row[strcspn(row, "\n")] = '\0';
            snprintf(line, sizeof(line), "mapping %.*s %s", (int)strcspn(row, " "), row, name);
            complete = resource_list_add(&list, line);
        }
    }
    fclose(maps);
    if (!complete) {
        resource_list_free(&list);
        return false;
    }
    *out_list = list;
    return true;
}
