/* SPDX-License-Identifier: MIT */
/** @file Ready points as legacy IPC events, for those who ask for them: GPUIPC_SEND_EVENT. */
#ifndef GPUIPC_READY_EVENT_H
#define GPUIPC_READY_EVENT_H

#include "point.h"

typedef struct ready_event ready_event;

/** Makes an event that another process can open, and records it on a stream of the current CUDA
 *  context. It stays until all these points have been returned or the peer is gone.
 *  ERR_NOT_SUPPORTED
 *  @param name its CUipcEventHandle: 64 bytes */
gpuipc_status ready_event_record(point_page *page, const point *points, size_t count,
                                 gpuipc_stream stream, uint8_t *name);

/** Ends a few of the events that nobody needs any more, in turn: what it costs does not depend on how many there
 *  are. */
void ready_event_collect_some(struct context *ctx);
/** Ends all of them, with the context. */
void ready_event_end(struct context *ctx, bool forked);

/** Waits on the host for the event with this name; as point_await(), and ERR_NOT_SUPPORTED. Never on a
 *  stream: one that waits for the event of a process that is killed waits for ever, and nothing lets it
 *  go (measured on an H200, driver 580).
 *  @param index of the device in whose primary context */
gpuipc_status ready_event_await(struct context *ctx, const os_peer *peer, uint32_t index,
                                const uint8_t *name, const atomic_bool *interrupted,
                                os_deadline deadline, const char *operation);

#endif
