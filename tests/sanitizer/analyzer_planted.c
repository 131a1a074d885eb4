/* SPDX-License-Identifier: MIT */
/** @file The mistakes that ci/analyze must find. Compiled by nothing else. */
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

void freed_twice(const char *text);
gpuipc_status left_behind(size_t size);
gpuipc_status failed_and_used(const char *text);

void freed_twice(const char *text) {
    char *copy = malloc(16);
    if (copy == NULL) {
        return;
    }
    if (text[0] == 'x') {
        free(copy);
    }
    free(copy);
}

gpuipc_status left_behind(size_t size) {
    char *made = malloc(size);
    if (made == NULL) {
        return status_out_of_memory(size);
    }
    if (size > 100) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "too long");
    }
    free(made);
    return GPUIPC_OK;
}

/* The model says that a failure is no success, and no more than that. */
static gpuipc_status find(const char *text, const char **out_found) {
    *out_found = NULL;
    if (text == NULL) {
        return status_fail(GPUIPC_ERR_NOT_FOUND, "nothing");
    }
    *out_found = text;
    return GPUIPC_OK;
}

gpuipc_status failed_and_used(const char *text) {
    const char *found;
    const gpuipc_status status = find(text, &found);
    return status == GPUIPC_OK || found[0] == '\0' ? GPUIPC_OK : status;
}
