/* SPDX-License-Identifier: MIT */
/** @file See allocation.h. */
#include "allocation.h"

#include <stdbool.h>
#include <string.h>

#include "compiler.h"

/* The names are those that ld(1) makes of --wrap=SYMBOL. */
void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
void __real_free(void *memory);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t size);
char *__wrap_strdup(const char *text);
void __wrap_free(void *memory);

static GPUIPC_THREAD_LOCAL bool watching;
static GPUIPC_THREAD_LOCAL uint64_t fails_at;
static GPUIPC_THREAD_LOCAL size_t most_bytes;
static GPUIPC_THREAD_LOCAL uint64_t count;
static GPUIPC_THREAD_LOCAL int64_t live;

void allocation_watch(uint64_t fail_at) {
    watching = true;
    fails_at = fail_at;
    most_bytes = SIZE_MAX;
    count = 0;
    live = 0;
}

void allocation_watch_large(size_t most) {
    allocation_watch(0);
    most_bytes = most;
}

uint64_t allocation_unwatch(int64_t *out_live) {
    watching = false;
    *out_live = live;
    return count;
}

/* Counts one; true when it is the one that fails. */
static bool fails_now(size_t bytes) {
    return watching && (++count == fails_at || bytes > most_bytes);
}

static void *made(void *memory) {
    live += watching && memory != NULL;
    return memory;
}

void *__wrap_malloc(size_t size) {
    return fails_now(size) ? NULL : made(__real_malloc(size));
}

void *__wrap_calloc(size_t elements, size_t size) {
    return fails_now(elements * size) ? NULL : made(__real_calloc(elements, size));
}

void *__wrap_realloc(void *memory, size_t size) {
    if (fails_now(size)) {
        return NULL;
    }
    return memory == NULL ? made(__real_malloc(size)) : __real_realloc(memory, size);
}

/* The C library's own strdup would call its malloc behind our back. */
char *__wrap_strdup(const char *text) {
    size_t size = strlen(text) + 1;
    char *copy = __wrap_malloc(size);
    return copy == NULL ? NULL : memcpy(copy, text, size);
}

void __wrap_free(void *memory) {
    live -= watching && memory != NULL;
    __real_free(memory);
}
