/* SPDX-License-Identifier: MIT */
/**
 * @file References that are given up behind the work of GPUs: what a program drops while its kernels run must stay
 * mapped until they are done, or the driver ends their CUDA context. Behind all that a device was given, or behind a
 * place in one stream.
 *
 * Whoever drops makes no driver call: that may hang as long as another thread's does (cuMemFree waits for all streams,
 * and every other call of the process for it: measured on an H100, driver 580). A thread marks the places and gives the
 * references up (monitor.h); calls that may wait help it (deferred_work_off()). Teardown that waits for the devices goes on
 * deferred lists. The thread works these off only while all devices have been idle for a while: on a device at work it could
 * hold up the very call that the work waits for. Before CUDA 12.5 it leaves them to calls.
 */
#ifndef GPUIPC_DROP_H
#define GPUIPC_DROP_H

#include <gpuipc/gpuipc.h>

#include "base/object.h"
#include "os.h"
#include "sync/monitor.h"

struct context;
struct drop_passing;

/** Lies in what can be dropped. All zero is none. */
typedef struct dropped {
    list_link link; /**< in a queue */
    void *what;
    void (*give_up)(void *what); /**< one reference, which stands for all that were dropped */
    bool everywhere;             /**< behind the work of every device, one after the other */
} dropped;

/** When it ends nothing is in it any more: what is dropped holds its context. */
extern const struct context_part drop_part;

/** Gives a reference up when the device has done what it has been given until now. No driver call, no wait. Where one is
 *  in a queue already, that one stays until then, and this one is given up at once.
 *  @param give_up how  @param behind its number; GPUIPC_DEVICE_NONE: all whose primary context is in use */
void drop_add(struct context *ctx, dropped *self, void *what, void (*give_up)(void *what),
              uint32_t behind);

/** Room for a place in a stream, so that drop_pass() cannot fail; in the CUDA context of that stream. */
gpuipc_status drop_passing_new(struct context *ctx, struct drop_passing **out_passing);
void drop_passing_destroy(struct context *ctx, struct drop_passing *self);
/** Gives a reference up when the stream has done what it has been given until now. Takes @p self over, on success only:
 *  where the driver refuses the event, drop_add() is left. @return success */
bool drop_pass(struct context *ctx, struct drop_passing *self, void *what,
               void (*give_up)(void *what), gpuipc_stream stream);

/** Gives up what may be given up now. A reference on the context is held. @return whether there was something */
bool drop_run(struct context *ctx);
bool drop_is_empty(const struct context *ctx);
/** The same until nothing is left or the deadline. */
void drop_settle(struct context *ctx, os_deadline deadline);

#endif
