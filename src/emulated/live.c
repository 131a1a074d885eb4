/* SPDX-License-Identifier: MIT */
/** @file See live.h; and the functions that show it to tests. */
#include "live.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "address_space.h"
#include "base/compiler.h"
#include "event.h"
#include "handle_table.h"
#include "pinned.h"
#include "pool.h"
#include "stream.h"

#define LINE_BYTES 160
/* How long the report waits for a thread that is in the driver. */
#define REPORT_WAIT_MS 1000

/* A text that grows to its whole length even where it no longer fits. */
typedef struct listing {
    char *text;
    size_t capacity;
    size_t length;
} listing;

/* Adds a line; it begins with the kind and the handle or address. */
static void add_line(listing *list, const char *kind, uint64_t value, const char *rest) {
    char line[LINE_BYTES];
    const int printed = snprintf(line, sizeof(line), "%s 0x%" PRIx64 "%s\n", kind, value, rest);
    const size_t length = printed < 0 ? 0 : (size_t)printed;
    if (list->length + 1 < list->capacity) {
        const size_t room = list->capacity - list->length - 1;
        const size_t fitting = length < room ? length : room;
        memcpy(list->text + list->length, line, fitting);
        list->text[list->length + fitting] = '\0';
    }
    list->length += length;
}

static void add_on_device(listing *list, const char *kind, uint64_t value, int ordinal) {
    char rest[LINE_BYTES / 2];
    snprintf(rest, sizeof(rest), " device %d", ordinal);
    add_line(list, kind, value, rest);
}

static void add_allocations(listing *list) {
    char rest[LINE_BYTES / 2];
    void *object;
    uint64_t value = 0;
    while ((value = handle_next(HANDLE_MEMORY, value, &object)) != 0) {
        const allocation *memory = object;
        if (memory->handle_count > 0) { /* else only a mapping keeps it */
            snprintf(rest, sizeof(rest), " size %" PRIu64 " device %d count %" PRIu64, memory->size,
                     memory->device, memory->handle_count);
            add_line(list, "allocation", value, rest);
        }
    }
}

static void add_reservations(listing *list) {
    char rest[LINE_BYTES / 2];
    const reservation *next;
    for (CUdeviceptr at = 0; (next = address_reservation_from(at)) != NULL;
         at = next->at.base + next->at.size) {
        if (!next->is_plain) {
            snprintf(rest, sizeof(rest), " size %" PRIu64, next->at.size);
            add_line(list, "reservation", next->at.base, rest);
        }
    }
}

static void add_mappings(listing *list, mapping_kind kind) {
    static const char *const names[] = {"mapping", "plain", "ipc", "pooled"};
    char rest[LINE_BYTES / 2];
    char count[32];
    const mapping *next;
    for (CUdeviceptr at = 0; (next = address_mapping_from(at)) != NULL;
         at = next->at.base + next->at.size) {
        if (next->kind == kind) {
            snprintf(count, sizeof(count), " count %" PRIu64, next->opens);
            snprintf(rest, sizeof(rest), " size %" PRIu64 " device %d%s", next->at.size,
                     next->memory->device, kind == MAPPING_OPENED ? count : "");
            add_line(list, names[kind], next->at.base, rest);
        }
    }
}

static void add_pinned(listing *list) {
    char rest[LINE_BYTES / 2];
    for (const pinned *next = pinned_next(NULL); next != NULL; next = pinned_next(next)) {
        snprintf(rest, sizeof(rest), " size %" PRIu64 " device %d", next->at.size, next->device);
        add_line(list, next->kind == PINNED_MANAGED ? "managed" : "pinned", next->at.base, rest);
    }
}

static void add_streams(listing *list) {
    void *object;
    uint64_t value = 0;
    while ((value = handle_next(HANDLE_STREAM, value, &object)) != 0) {
        add_on_device(list, "stream", value, ((const stream *)object)->owner->device);
    }
}

static void add_events(listing *list) {
    void *object;
    uint64_t value = 0;
    while ((value = handle_next(HANDLE_EVENT, value, &object)) != 0) {
        add_on_device(list, "event", value, ((const event *)object)->owner->device);
    }
}

static void add_contexts(listing *list) {
    char rest[LINE_BYTES / 2];
    void *object;
    uint64_t value = 0;
    while ((value = handle_next(HANDLE_CONTEXT, value, &object)) != 0) {
        const context *ctx = object;
        if (!ctx->is_primary) {
            add_on_device(list, "context", value, ctx->device);
        } else if (ctx->retains > 0) {
            snprintf(rest, sizeof(rest), " device %d count %u", ctx->device, ctx->retains);
            add_line(list, "primary", value, rest);
        }
    }
}

static void add_graphs(listing *list) {
    void *object;
    uint64_t value = 0;
    while ((value = handle_next(HANDLE_GRAPH, value, &object)) != 0) {
        add_line(list, "graph", value, "");
    }
    while ((value = handle_next(HANDLE_GRAPH_EXEC, value, &object)) != 0) {
        add_line(list, "graph-exec", value, "");
    }
}

static void add_pools(listing *list) {
    void *object;
    uint64_t value = 0;
    while ((value = handle_next(HANDLE_POOL, value, &object)) != 0) {
        if (!((const pool *)object)->is_default) {
            add_on_device(list, "pool", value, ((const pool *)object)->device);
        }
    }
}

/* A thread has a handle on Windows until it is joined, which who looks for leaks would count. */
static void free_finished_streams(void) {
    void *object;
    uint64_t value = 0;
    while ((value = handle_next(HANDLE_CONTEXT, value, &object)) != 0) {
        stream_free_finished(object);
    }
}

GPUIPC_EXPORTED void gpuipc_emulated_get_live(gpuipc_emulated_live *out);
GPUIPC_EXPORTED void gpuipc_emulated_get_live(gpuipc_emulated_live *out) {
    memset(out, 0, sizeof(*out));
    if (state_is_usable()) {
        state_lock();
        free_finished_streams();
        *out = driver.live;
        state_unlock();
    }
}

/* The lock is held. */
static size_t list_all(char *text, size_t capacity) {
    listing list = {text, capacity, 0};
    add_allocations(&list);
    add_reservations(&list);
    add_mappings(&list, MAPPING_VIRTUAL);
    add_mappings(&list, MAPPING_PLAIN);
    add_streams(&list);
    add_events(&list);
    add_contexts(&list);
    add_pools(&list);
    add_mappings(&list, MAPPING_POOLED);
    add_mappings(&list, MAPPING_OPENED);
    add_pinned(&list);
    add_graphs(&list);
    return list.length;
}

GPUIPC_EXPORTED size_t gpuipc_emulated_list_live(char *text, size_t capacity);
GPUIPC_EXPORTED size_t gpuipc_emulated_list_live(char *text, size_t capacity) {
    size_t length = 0;
    if (capacity > 0) {
        text[0] = '\0';
    }
    if (state_is_usable()) {
        state_lock();
        length = list_all(text, capacity);
        state_unlock();
    }
    return length;
}

static atomic_bool is_cancelled;

void live_report_cancel(void) {
    atomic_store(&is_cancelled, true);
}

/* For the report: other threads may still run, and then give the lock back. On Windows the handlers of
 * a library run when the system has ended all other threads, wherever they were
 * (learn.microsoft.com, ExitProcess), and what one of them had locked stays so. */
static bool lock_at_exit(void) {
    const os_deadline deadline = os_deadline_after(REPORT_WAIT_MS);
    while (!state_try_lock()) {
        if (os_deadline_passed(deadline)) {
            return false;
        }
        os_sleep_ms(1);
    }
    return true;
}

/* In a forked child too, but there nothing is live. */
static void report(void) {
    if (atomic_load(&is_cancelled) || !state_is_usable()) {
        return;
    }
    if (!lock_at_exit()) {
        fprintf(stderr, "gpuipc emulated driver: still live: not known, since a thread was in the "
                        "driver when the process ended\n");
        return;
    }
    const size_t length = list_all(NULL, 0);
    char *text = length == 0 ? NULL : malloc(length + 1);
    if (text != NULL) {
        list_all(text, length + 1);
    }
    state_unlock();
    if (text == NULL) {
        return;
    }
    char *line = text;
    while (*line != '\0') {
        const size_t size = strcspn(line, "\n");
        fprintf(stderr, "gpuipc emulated driver: still live: %.*s\n", (int)size, line);
        line += line[size] == '\0' ? size : size + 1;
    }
    free(text);
}

CUresult live_report_at_exit(void) {
    static bool is_registered; /* cuInit may have failed after it, and be called again */
    const char *wanted = os_environment("GPUIPC_EMULATED_REPORT");
    if (is_registered || wanted == NULL || wanted[0] == '\0' || strcmp(wanted, "0") == 0) {
        return CUDA_SUCCESS;
    }
    if (strcmp(wanted, "1") != 0) {
        fprintf(stderr, "gpuipc emulated driver: GPUIPC_EMULATED_REPORT is neither 0 nor 1: %s\n",
                wanted);
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (atexit(report) != 0) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    is_registered = true;
    return CUDA_SUCCESS;
}
