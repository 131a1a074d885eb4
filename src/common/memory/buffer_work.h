/* SPDX-License-Identifier: MIT */
/**
 * @file The work on a buffer's memory that calls of the library have put on streams: fills, copies and contents. Calls
 * without a stream (gpuipc_buffer_read(), gpuipc_buffer_write()) wait for it, whichever streams it is on. Each stream has one
 * event, recorded behind the latest call. Views share the record of the buffer that they lie over. Any thread.
 * Before CUDA 12.0 a stream that gets the handle of a destroyed one takes that one's event as well. Such a call then does not
 * wait for what the destroyed stream has left to do.
 */
#ifndef GPUIPC_BUFFER_WORK_H
#define GPUIPC_BUFFER_WORK_H

#include <gpuipc/gpuipc.h>

#include "base/list.h"
#include "os.h"

struct buffer;
typedef struct work_place work_place;

/** Of one buffer. All zero is empty. */
typedef struct buffer_work {
    os_mutex mutex;     /**< guards the rest */
    linked_list places; /**< they stay until the buffer ends */
} buffer_work;

/** A call is about to put work on a stream, in that stream's CUDA context. Makes room for its place, so that
 *  buffer_work_end() cannot fail. *out_place is NULL for a stream that is being captured: a graph's launches are the
 *  program's own. */
gpuipc_status buffer_work_begin(struct buffer *of, gpuipc_stream stream, work_place **out_place);
/** The work is on the stream, or nothing is after a failure. In the same CUDA context. @param place NULL does nothing */
void buffer_work_end(struct buffer *of, work_place *place, gpuipc_stream stream);

/** Waits until all of it is done, or where the driver recorded no event, for all work of the device's primary context. In a
 *  CUDA context of the same driver. */
gpuipc_status buffer_work_await(struct buffer *of);

/** At the buffer's end. @param forked in a child, without driver calls */
void buffer_work_clear(struct buffer *self, bool forked);

#endif
