/* SPDX-License-Identifier: MIT */
/** @file Command lines and environment blocks. */
#include "win32_command.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <windows.h>

#include "win32_words.h"

/** A copy in UTF-16, for free(). */
static wchar_t *text_widen(const char *text) {
    wchar_t *wide = NULL;
    (void)words_widen(text, &wide);
    return wide;
}

static size_t list_length(const char *const *list) {
    size_t count = 0;
    while (list != NULL && list[count] != NULL) {
        count++;
    }
    return count;
}

/* Quoted as gpuipc-selftest quotes for the programs that it starts. */
wchar_t *win32_command_line(const wchar_t *path, const char *const *arguments) {
    static const char *const none[] = {NULL};
    wchar_t *line = NULL;
    (void)words_join(path, arguments != NULL ? arguments : none, &line);
    return line;
}

/** How long the name is. The hidden variables of the drives ("=C:=C:\folder") begin with '='. */
static int name_length(const wchar_t *variable) {
    const wchar_t *end = wcschr(variable + (*variable == L'='), L'=');
    return end != NULL ? (int)(end - variable) : (int)wcslen(variable);
}

/** Orders by name, as CreateProcessW demands: whatever the case, and whatever the locale. */
static int compare_names(const wchar_t *left, const wchar_t *right) {
    return CompareStringOrdinal(left, name_length(left), right, name_length(right), TRUE) -
           CSTR_EQUAL;
}

static int compare_entries(const void *left, const void *right) {
    return compare_names(*(const wchar_t *const *)left, *(const wchar_t *const *)right);
}

/** Variables that belong to somebody else, in an array of our own. */
typedef struct variable_list {
    const wchar_t **entries;
    size_t count;
} variable_list;

/** A change takes the place of what there is under its name; a bare name leaves none. */
static void variable_change(variable_list *list, const wchar_t *change) {
    size_t kept = 0;
    for (size_t i = 0; i < list->count; i++) {
        if (compare_names(list->entries[i], change) != 0) {
            list->entries[kept++] = list->entries[i];
        }
    }
    if (wcschr(change, L'=') != NULL) {
        list->entries[kept++] = change;
    }
    list->count = kept;
}

/** One after the other, each with its end, and an empty one behind them. */
static wchar_t *variables_join(variable_list *list) {
    size_t units = 2;
    for (size_t i = 0; i < list->count; i++) {
        units += wcslen(list->entries[i]) + 1;
    }
    wchar_t *block = calloc(units, sizeof(*block));
    wchar_t *at = block;
    for (size_t i = 0; block != NULL && i < list->count; i++) {
        wcscpy(at, list->entries[i]);
        at += wcslen(at) + 1;
    }
    return block;
}

static wchar_t **texts_widen(const char *const *texts, size_t count) {
    wchar_t **wide = calloc(count + 1, sizeof(*wide));
    for (size_t i = 0; wide != NULL && i < count; i++) {
        wide[i] = text_widen(texts[i]);
    }
    return wide;
}

static void texts_free(wchar_t **wide, size_t count) {
    for (size_t i = 0; wide != NULL && i < count; i++) {
        free(wide[i]);
    }
    free(wide);
}

wchar_t *win32_environment_block(const char *const *changes, const char *last) {
    size_t change_count = list_length(changes);
    wchar_t *present = GetEnvironmentStringsW();
    size_t present_count = 0;
    for (const wchar_t *at = present; at != NULL && *at != L'\0'; at += wcslen(at) + 1) {
        present_count++;
    }
    variable_list list = {calloc(present_count + change_count + 1, sizeof(*list.entries)), 0};
    wchar_t **wide = texts_widen(changes, change_count);
    wchar_t *wide_last = text_widen(last);
    wchar_t *block = NULL;
    bool complete = present != NULL && list.entries != NULL && wide != NULL && wide_last != NULL;
    for (size_t i = 0; complete && i < change_count; i++) {
        complete = wide[i] != NULL;
    }
    if (complete) {
        for (const wchar_t *at = present; *at != L'\0'; at += wcslen(at) + 1) {
            list.entries[list.count++] = at;
        }
        for (size_t i = 0; i < change_count; i++) {
            variable_change(&list, wide[i]);
        }
        variable_change(&list, wide_last);
        qsort(list.entries, list.count, sizeof(*list.entries), compare_entries);
        block = variables_join(&list);
    }
    free(wide_last);
    texts_free(wide, change_count);
    free(list.entries);
    if (present != NULL) {
        FreeEnvironmentStringsW(present);
    }
    return block;
}
