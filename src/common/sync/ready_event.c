/* SPDX-License-Identifier: MIT */
/** @file See ready_event.h. */
#include "sync/ready_event.h"

#include <stdlib.h>
#include <string.h>

#include "cuda/context.h"
#include "cuda/device_event.h"

struct ready_event {
    list_link link; /* of those that are over */
    CUevent event;
    size_t users;
};

static gpuipc_status check_driver(const driver *drv) {
    if (!drv->has_legacy) {
        return status_fail(GPUIPC_ERR_NOT_SUPPORTED,
                           "the driver has no events that processes share");
    }
    return GPUIPC_OK;
}

static gpuipc_status make(context *ctx, gpuipc_stream stream, uint8_t *name, CUevent *out_event) {
    const driver *drv = &ctx->driver;
    CUipcEventHandle handle = {{0}}; /* the driver need not write all of it */
    CUevent event;
    uint32_t index;
    gpuipc_status status =
        device_event_new(ctx, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING, &event, &index);
    if (status != GPUIPC_OK) {
        return status;
    }
    if ((status = device_event_record(ctx, event, index, stream)) != GPUIPC_OK ||
        (status = DRIVER_CALL(drv, cuIpcGetEventHandle, (&handle, event),
                              "naming an event for another process")) != GPUIPC_OK) {
        (void)drv->cuEventDestroy(event);
        return status;
    }
    memcpy(name, &handle, sizeof(handle));
    *out_event = event;
    return GPUIPC_OK;
}

gpuipc_status ready_event_record(struct context *ctx, size_t users, gpuipc_stream stream,
                                 uint8_t *name, ready_event **out_event) {
    gpuipc_status status = check_driver(&ctx->driver);
    if (status != GPUIPC_OK) {
        return status;
    }
    ready_event *self = malloc(sizeof(*self));
    if (self == NULL) {
        return status_out_of_memory(sizeof(*self));
    }
    *self = (ready_event){.users = users};
    status = make(ctx, stream, name, &self->event);
    if (status != GPUIPC_OK) {
        free(self);
        return status;
    }
    *out_event = self;
    return GPUIPC_OK;
}

void ready_event_unreference(struct context *ctx, ready_event *self) {
    if (--self->users == 0) {
        list_append(&ctx->points->ended_events, &self->link);
    }
}

static ready_event *take_ended(struct context *ctx, bool forked) {
    linked_list *ended = &ctx->points->ended_events;
    if (forked) { /* the mutex may be held for ever */
        return LIST_ITEM(list_take(ended), ready_event, link);
    }
    os_mutex_lock(&ctx->points->mutex);
    list_link *first = list_take(ended);
    os_mutex_unlock(&ctx->points->mutex);
    return LIST_ITEM(first, ready_event, link);
}

void ready_event_sweep(struct context *ctx, bool forked) {
    ready_event *event;
    while ((event = take_ended(ctx, forked)) != NULL) {
        if (!forked) {
            /* Fails only where its CUDA context is gone, and the event with it. */
            (void)ctx->driver.cuEventDestroy(event->event);
        }
        free(event);
    }
}

/* ---- on the other side --------------------------------------------------------------------- */

/* A name says where the driver looks, and little of it is checked (measured on an H200, driver 580): as for
 * names of memory, transport_check_trusted(). */
static gpuipc_status check_trusted(const os_peer *peer) {
    if (!peer->same_user) {
        return status_fail(
            GPUIPC_ERR_ACCESS_DENIED,
            "the contents are marked by an event, whose name is bytes that the driver "
            "does not check; they are not taken from another user's process, which can "
            "send with GPUIPC_SEND_ASYNC");
    }
    return GPUIPC_OK;
}

static gpuipc_status open_event(const driver *drv, point_peer *peer, const uint8_t *name,
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
    return point_peer_is_running(peer) == 0
               ? status_fail_cuda(GPUIPC_ERR_LOST, result, "cuIpcOpenEventHandle",
                                  "the sender ended, and with it the event that it had named")
               : status_fail_cuda(GPUIPC_ERR_NOT_SUPPORTED, result, "cuIpcOpenEventHandle",
                                  "the sender's event cannot be opened; that takes another process "
                                  "with the same /dev/shm and PID namespace");
}

/* An event of a process that has ended may read as reached although it never was (measured on an H200,
 * driver 580), so only what a living one has reached counts. */
static gpuipc_status await_event(const driver *drv, CUevent event, point_peer *peer,
                                 const atomic_bool *interrupted, os_deadline deadline) {
    unsigned pause = 0;
    for (;;) {
        CUresult result = drv->cuEventQuery(event);
        if (point_peer_is_running(peer) == 0) {
            return status_fail(GPUIPC_ERR_LOST,
                               "the sender ended; whether its event was reached cannot be told");
        }
        if (result != CUDA_ERROR_NOT_READY) {
            return driver_status(drv, result, "cuEventQuery",
                                 "waiting for another process's event");
        }
        if (atomic_load(interrupted)) {
            return status_fail(GPUIPC_ERR_RELEASED, "the connection was closed");
        }
        if (os_deadline_passed(deadline)) {
            return status_fail(GPUIPC_ERR_TIMEOUT,
                               "the sender's work on the buffer was not done in time");
        }
        os_sleep_ms(os_backoff_next(&pause, deadline));
    }
}

gpuipc_status ready_event_await(struct context *ctx, point_peer *peer, uint32_t index,
                                const uint8_t *name, const atomic_bool *interrupted,
                                os_deadline deadline) {
    device_scope scope;
    CUevent event;
    gpuipc_status status = check_trusted(&peer->process);
    if (status != GPUIPC_OK || (status = device_enter(ctx, index, &scope)) != GPUIPC_OK) {
        return status;
    }
    status = open_event(&ctx->driver, peer, name, &event);
    if (status == GPUIPC_OK) {
        status = await_event(&ctx->driver, event, peer, interrupted, deadline);
        (void)ctx->driver.cuEventDestroy(event);
    }
    device_leave(&scope);
    return status;
}
