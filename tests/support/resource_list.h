/* SPDX-License-Identifier: MIT */
/** @file What this process has open and mapped, as lines of text; posix_resource_list.c,
 *  win32_resource_list.c. */
#ifndef GPUIPC_TEST_RESOURCE_LIST_H
#define GPUIPC_TEST_RESOURCE_LIST_H

#include <stdbool.h>
#include <stddef.h>

typedef struct resource_list {
    char **lines;
    size_t count;
} resource_list;

/** Every open handle, "descriptor 5: socket:[4711]"; on Windows those of the kinds that a library or a
 *  test owns, "handle 68: Section". False when it cannot be found out. */
bool resource_list_handles(resource_list *out_list);

/** Every mapping of shared memory that has no name: "mapping 7f00-7f10 /memfd:x (deleted)"; on Windows
 *  there is nothing behind the addresses. */
bool resource_list_mappings(resource_list *out_list);

/** Appends a copy. False when there is no memory for it. */
bool resource_list_add(resource_list *list, const char *line);
bool resource_list_contains(const resource_list *list, const char *line);
void resource_list_free(resource_list *list);

#endif
