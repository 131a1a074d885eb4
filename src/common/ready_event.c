/* SPDX-License-Identifier: MIT */
/** @file See ready_event.h. */
#include "ready_event.h"

#include <stdlib.h>
#include <string.h>

#include "context.h"

/* How many ready_event_collect_some() looks at. */
#define SOME 2u

struct ready_event {
    ready_event *next;
    CUevent event;
    point_page *page; /* a reference */
    size_t count;
    point points[];
};

static gpuipc_status check_driver(const driver *drv) {
    if (!drv->has_legacy) {
        return status_fail(GPUIPC_ERR_NOT_SUPPORTED, "cuIpcGetEventHandle",
                           "the driver has no events that processes share");
    }
    return GPUIPC_OK;
}

static gpuipc_status make(const driver *drv, gpuipc_stream stream, uint8_t *name,
                          CUevent *out_event) {
    CUipcEventHandle handle = {{0}}; /* the driver need not write all of it */
    CUevent event;
    gpuipc_status status = driver_status(
        drv, drv->cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING),
        "cuEventCreate", "making an event that processes share");
    if (status != GPUIPC_OK) {
        return status;
    }
    if ((status = driver_status(drv, drv->cuEventRecord(event, stream), "cuEventRecord",
                                "letting a stream mark a point")) != GPUIPC_OK ||
        (status = driver_status(drv, drv->cuIpcGetEventHandle(&handle, event),
                                "cuIpcGetEventHandle", "naming an event for another process")) !=
            GPUIPC_OK) {
        (void)drv->cuEventDestroy(event);
        return status;
    }
    memcpy(name, &handle, sizeof(handle));
    *out_event = event;
    return GPUIPC_OK;
}

/* The mutex is held. */
static void append(point_context *points, ready_event *self) {
    self->next = NULL;
    if (points->events == NULL) {
        points->events = self;
    } else {
        points->last_event->next = self;
    }
    points->last_event = self;
}

gpuipc_status ready_event_record(point_page *page, const point *points, size_t count,
                                 gpuipc_stream stream, uint8_t *name) {
    context *ctx = point_page_context(page);
    const size_t size = sizeof(ready_event) + count * sizeof(*points);
    gpuipc_status status = check_driver(&ctx->driver);
    if (status != GPUIPC_OK) {
        return status;
    }
    ready_event *self = malloc(size);
    if (self == NULL) {
        return status_out_of_memory("cuEventCreate", size);
    }
    status = make(&ctx->driver, stream, name, &self->event);
    if (status != GPUIPC_OK) {
        free(self);
        return status;
    }
    point_page_reference(page);
    self->page = page;
    self->count = count;
    memcpy(self->points, points, count * sizeof(*points));
    os_mutex_lock(&ctx->points.mutex);
    append(&ctx->points, self);
    os_mutex_unlock(&ctx->points.mutex);
    return GPUIPC_OK;
}

/* The mutex is held. */
static bool is_needed(const ready_event *self) {
    for (size_t i = 0; i < self->count; i++) {
        const point_word returned = point_returned_word(&self->points[i]);
        if (!point_is_reached(self->page, &returned)) {
            return !point_page_peer_is_gone_locked(self->page);
        }
    }
    return false;
}

static void end_list(context *ctx, ready_event *first, bool forked) {
    while (first != NULL) {
        ready_event *event = first;
        first = event->next;
        if (!forked) {
            /* Fails only where its CUDA context is gone, and the event with it. */
            (void)ctx->driver.cuEventDestroy(event->event);
        }
        point_page_unreference(event->page, forked);
        free(event);
    }
}

/* Those that are needed go to the end of the list. */
void ready_event_collect_some(struct context *ctx) {
    unsigned most = SOME;
    point_context *points = &ctx->points;
    ready_event *ended = NULL;
    os_mutex_lock(&points->mutex);
    const ready_event *stop = points->last_event;
    for (bool more = points->events != NULL; more && most > 0; most--) {
        ready_event *event = points->events;
        more = event != stop;
        points->events = event->next;
        if (is_needed(event)) {
            append(points, event);
        } else {
            event->next = ended;
            ended = event;
        }
    }
    os_mutex_unlock(&points->mutex);
    end_list(ctx, ended, false);
}

void ready_event_end(struct context *ctx, bool forked) {
    end_list(ctx, ctx->points.events, forked);
    ctx->points.events = NULL;
}

/* ---- on the other side --------------------------------------------------------------------- */

/* A name says where the driver looks, and little of it is checked (measured on an H200, driver 580): as for
 * names of memory, transport_check_trusted(). */
static gpuipc_status check_trusted(const os_peer *peer) {
    if (!peer->same_user) {
        return status_fail(
            GPUIPC_ERR_ACCESS_DENIED, "gpuipc_connection_receive",
            "the contents are marked by an event, whose name is bytes that the driver "
            "does not check; they are not taken from another user's process, which can "
            "send with GPUIPC_SEND_ASYNC");
    }
    return GPUIPC_OK;
}

static gpuipc_status open_event(const driver *drv, const os_peer *peer, const uint8_t *name,
                                CUevent *out_event) {
    CUipcEventHandle handle;
    gpuipc_status status = check_driver(drv);
    if (status != GPUIPC_OK) {
        return status;
    }
    memcpy(&handle, name, sizeof(handle));
    CUresult result = drv->cuIpcOpenEventHandle(out_event, handle);
    if (result == CUDA_SUCCESS) {
        return GPUIPC_OK;
    }
    return os_peer_is_running(peer) == 0
               ? status_fail_cuda(GPUIPC_ERR_LOST, result, "cuIpcOpenEventHandle",
                                  "the sender ended, and with it the event that it had named")
               : status_fail_cuda(GPUIPC_ERR_NOT_SUPPORTED, result, "cuIpcOpenEventHandle",
                                  "the sender's event cannot be opened; that takes another process "
                                  "with the same /dev/shm and PID namespace");
}

/* An event of a process that has ended may read as reached although it never was (measured on an H200,
 * driver 580), so only what a living one has reached counts. */
static gpuipc_status await_event(const driver *drv, CUevent event, const os_peer *peer,
                                 const atomic_bool *interrupted, os_deadline deadline,
                                 const char *operation) {
    unsigned pause = 0;
    for (;;) {
        CUresult result = drv->cuEventQuery(event);
        if (os_peer_is_running(peer) == 0) {
            return status_fail(GPUIPC_ERR_LOST, operation,
                               "the sender ended; whether its event was reached cannot be told");
        }
        if (result != CUDA_ERROR_NOT_READY) {
            return driver_status(drv, result, "cuEventQuery",
                                 "waiting for another process's event");
        }
        if (atomic_load(interrupted)) {
            return status_fail(GPUIPC_ERR_RELEASED, operation,
                               "the connection was closed meanwhile");
        }
        if (os_deadline_passed(deadline)) {
            return status_fail(GPUIPC_ERR_TIMEOUT, operation,
                               "the sender's work on the buffer was not done in time");
        }
        os_sleep_ms(os_backoff_next(&pause, deadline));
    }
}

gpuipc_status ready_event_await(struct context *ctx, const os_peer *peer, uint32_t index,
                                const uint8_t *name, const atomic_bool *interrupted,
                                os_deadline deadline, const char *operation) {
    device_scope scope;
    CUevent event;
    gpuipc_status status = check_trusted(peer);
    if (status != GPUIPC_OK || (status = device_enter(ctx, index, &scope)) != GPUIPC_OK) {
        return status;
    }
    status = open_event(&ctx->driver, peer, name, &event);
    if (status == GPUIPC_OK) {
        status = await_event(&ctx->driver, event, peer, interrupted, deadline, operation);
        (void)ctx->driver.cuEventDestroy(event);
    }
    device_leave(&scope);
    return status;
}
