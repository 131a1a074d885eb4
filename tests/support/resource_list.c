/* SPDX-License-Identifier: MIT */
/** @file Lists of lines. */
#include "resource_list.h"

#include <stdlib.h>
#include <string.h>

bool resource_list_add(resource_list *list, const char *line) {
    size_t size = strlen(line) + 1;
    char **lines = realloc(list->lines, (list->count + 1) * sizeof(*lines));
    if (lines == NULL) {
        return false;
    }
    list->lines = lines;
    lines[list->count] = malloc(size);
    if (lines[list->count] == NULL) {
        return false;
    }
    memcpy(lines[list->count], line, size);
    list->count++;
    return true;
}

bool resource_list_contains(const resource_list *list, const char *line) {
    for (size_t i = 0; i < list->count; i++) {
        if (strcmp(list->lines[i], line) == 0) {
            return true;
        }
    }
    return false;
}

void resource_list_free(resource_list *list) {
    for (size_t i = 0; i < list->count; i++) {
        free(list->lines[i]);
    }
    free(list->lines);
    *list = (resource_list){0};
}
