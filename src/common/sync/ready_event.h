/* SPDX-License-Identifier: MIT */
/** @file Ready points as legacy IPC events, for those who ask for them: GPUIPC_SEND_EVENT. */
#ifndef GPUIPC_READY_EVENT_H
#define GPUIPC_READY_EVENT_H

#include "sync/point.h"

typedef struct ready_event ready_event;

/** Makes an event that another process can open, and records it on a stream of the current CUDA
 *  context. It stays until ready_event_unreference() was called so many times.
 *  ERR_NOT_SUPPORTED
 *  @param name its CUipcEventHandle: 64 bytes */
gpuipc_status ready_event_record(struct context *ctx, size_t users, gpuipc_stream stream,
                                 uint8_t *name, ready_event **out_event);

/** One hand-over that it marks is returned, or nobody is there who would. The point mutex is held. */
void ready_event_unreference(struct context *ctx, ready_event *self);

/** Ends those that nobody needs any more. */
void ready_event_sweep(struct context *ctx, bool forked);

/** Waits on the host for the event with this name; as point_await(), and ERR_NOT_SUPPORTED. Never on a
 *  stream: one that waits for the event of a process that is killed waits for ever, and nothing lets it
 *  go (measured on an H200, driver 580).
 *  @param index of the device in whose primary context */
gpuipc_status ready_event_await(struct context *ctx, point_peer *peer, uint32_t index,
                                const uint8_t *name, const atomic_bool *interrupted,
                                os_deadline deadline);

#endif
