/* SPDX-License-Identifier: MIT */
/** @file What streams do with the words of points: write them, wait for them, tell that they have. */
#include <stdlib.h>

#include "context.h"
#include "point_internal.h"

/* ---- passages ------------------------------------------------------------------------------ */

static bool is_free_passage(const point_page *self, uint32_t index) {
    const point_word last = {index * 2, self->slots[index].value};
    return point_is_reached(self, &last);
}

gpuipc_status point_passage_take(point_page *of, point_word *out_passage) {
    context *ctx = of->context;
    point_context *points = &ctx->points;
    uint32_t index = 0;
    gpuipc_status status = GPUIPC_OK;
    os_mutex_lock(&points->mutex);
    if (points->own == NULL) {
        status = point_page_create(ctx, NULL, &points->own);
    }
    if (status == GPUIPC_OK && !point_slot_take(points->own, is_free_passage, &index)) {
        status = status_fail(GPUIPC_ERR_LIMIT, "point_passage_take",
                             "streams have not come to %u words yet", POINT_COUNT);
    }
    if (status == GPUIPC_OK) {
        point_slot *slot = &points->own->slots[index];
        slot->value++;
        slot->of = of;
        *out_passage = (point_word){index * 2, slot->value};
    }
    os_mutex_unlock(&points->mutex);
    return status;
}

void point_passage_cancel(struct context *ctx, const point_word *passage) {
    point_store(ctx->points.own, passage);
}

bool point_has_passed(struct context *ctx, const point_word *passage) {
    return passage->value == 0 || point_is_reached(ctx->points.own, passage);
}

/* ---- registered memory --------------------------------------------------------------------- */

/* The number of the device whose CUDA context is current. */
static gpuipc_status current_device(const context *ctx, uint32_t *out_index) {
    CUdevice ordinal = -1;
    gpuipc_status status = driver_status(&ctx->driver, ctx->driver.cuCtxGetDevice(&ordinal),
                                         "cuCtxGetDevice", "asking which device a stream is of");
    if (status != GPUIPC_OK) {
        return status;
    }
    for (uint32_t i = 0; i < ctx->device_count; i++) {
        if (ctx->devices[i].ordinal == ordinal) {
            *out_index = i;
            return GPUIPC_OK;
        }
    }
    return status_fail(GPUIPC_ERR_DEVICE_NOT_FOUND, "cuCtxGetDevice",
                       "the stream is of device %d, which this process does not see", ordinal);
}

/* In the primary context, which the library holds: a context of the caller's may end before, and with it
 * what was registered there. */
static gpuipc_status page_register(point_page *self, uint32_t index) {
    context *ctx = self->context;
    const driver *drv = &ctx->driver;
    device_scope scope;
    if (self->device != GPUIPC_DEVICE_NONE) {
        return GPUIPC_OK;
    }
    gpuipc_status status = device_enter(ctx, index, &scope);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = driver_status(
        drv,
        drv->cuMemHostRegister((void *)self->words, POINT_PAGE_BYTES,
                               CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP),
        "cuMemHostRegister", "letting devices reach the words of points");
    device_leave(&scope);
    if (status == GPUIPC_OK) {
        self->device = index;
    }
    return status;
}

void point_page_unregister(point_page *self) {
    context *ctx = self->context;
    device_scope scope;
    if (self->device != GPUIPC_DEVICE_NONE &&
        device_enter(ctx, self->device, &scope) == GPUIPC_OK) {
        /* Fails only where its CUDA context is gone or dead, and the registration with it. */
        (void)ctx->driver.cuMemHostUnregister((void *)self->words);
        device_leave(&scope);
        self->device = GPUIPC_DEVICE_NONE;
    }
}

/* Where a page is for the current CUDA context. */
gpuipc_status point_page_address(point_page *self, CUdeviceptr *out_address) {
    context *ctx = self->context;
    uint32_t index = 0;
    gpuipc_status status = current_device(ctx, &index);
    if (status != GPUIPC_OK) {
        return status;
    }
    os_mutex_lock(&ctx->points.mutex);
    status = page_register(self, index);
    os_mutex_unlock(&ctx->points.mutex);
    if (status != GPUIPC_OK) {
        return status;
    }
    return driver_status(&ctx->driver,
                         ctx->driver.cuMemHostGetDevicePointer(out_address, (void *)self->words, 0),
                         "cuMemHostGetDevicePointer", "asking where the words of points are");
}

/* ---- words --------------------------------------------------------------------------------- */

bool point_has_stream_waits(const struct context *ctx) {
    const driver *drv = &ctx->driver;
    CUdevice ordinal = -1;
    int can = 0;
    return drv->has_word && drv->has_pinned && drv->cuCtxGetDevice(&ordinal) == CUDA_SUCCESS &&
           drv->cuDeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS,
                                     ordinal) == CUDA_SUCCESS &&
           can != 0;
}

static gpuipc_status submit_write(const driver *drv, CUdeviceptr page, const point_word *word,
                                  gpuipc_stream stream) {
    return driver_status(drv,
                         drv->cuStreamWriteValue64(stream, page + word->at * UINT64_C(8),
                                                   word->value, CU_STREAM_WRITE_VALUE_DEFAULT),
                         "cuStreamWriteValue64", "letting a stream mark a point");
}

static gpuipc_status submit_wait(const driver *drv, CUdeviceptr page, const point_word *word,
                                 gpuipc_stream stream) {
    return driver_status(drv,
                         drv->cuStreamWaitValue64(stream, page + word->at * UINT64_C(8),
                                                  word->value, CU_STREAM_WAIT_VALUE_GEQ),
                         "cuStreamWaitValue64", "letting a stream wait for a point");
}

/* After a failure: when the stream has done what it had been given, nothing touches the page. */
static void settle(context *ctx, gpuipc_stream stream, const point_word *passage) {
    gpuipc_error why = status_save();
    (void)ctx->driver.cuStreamSynchronize(stream);
    point_passage_cancel(ctx, passage);
    status_restore(&why);
}

static gpuipc_status write_by_words(point_page *self, const point_word *words, size_t count,
                                    gpuipc_stream stream, const point_word *passage) {
    context *ctx = self->context;
    CUdeviceptr page = 0;
    CUdeviceptr own = 0;
    gpuipc_status status = point_page_address(self, &page);
    if (status == GPUIPC_OK) {
        status = point_page_address(ctx->points.own, &own);
    }
    for (size_t i = 0; i < count && status == GPUIPC_OK; i++) {
        status = submit_write(&ctx->driver, page, &words[i], stream);
    }
    if (status == GPUIPC_OK) {
        status = submit_write(&ctx->driver, own, passage, stream);
    }
    if (status != GPUIPC_OK) {
        settle(ctx, stream, passage);
    }
    return status;
}

/* What the host function does. It may call neither the driver nor, since its context may be about to end,
 * anything that waits. */
typedef struct late_write {
    point_page *page;
    point_page *own;
    point_word passage;
    size_t count;
    point_word words[];
} late_write;

static void write_late(void *data) {
    late_write *self = data;
    for (size_t i = 0; i < self->count; i++) {
        point_store(self->page, &self->words[i]);
    }
    point_page *own = self->own;
    const point_word passage = self->passage;
    free(self);
    point_store(own, &passage); /* the last: from here on the pages may go */
}

static gpuipc_status write_by_host(point_page *self, const point_word *words, size_t count,
                                   gpuipc_stream stream, const point_word *passage) {
    context *ctx = self->context;
    const size_t size = sizeof(late_write) + count * sizeof(*words);
    late_write *late = malloc(size);
    if (late == NULL) {
        point_passage_cancel(ctx, passage);
        return status_out_of_memory("cuLaunchHostFunc", size);
    }
    *late = (late_write){.page = self, .own = ctx->points.own, .passage = *passage, .count = count};
    for (size_t i = 0; i < count; i++) {
        late->words[i] = words[i];
    }
    gpuipc_status status =
        driver_status(&ctx->driver, ctx->driver.cuLaunchHostFunc(stream, write_late, late),
                      "cuLaunchHostFunc", "letting a stream mark a point");
    if (status != GPUIPC_OK) {
        point_passage_cancel(ctx, passage);
        free(late);
    }
    return status;
}

static gpuipc_status write_by_waiting(point_page *self, const point_word *words, size_t count,
                                      gpuipc_stream stream, point_word *out_passage) {
    const driver *drv = &self->context->driver;
    gpuipc_status status = driver_status(drv, drv->cuStreamSynchronize(stream),
                                         "cuStreamSynchronize", "waiting for a point of a stream");
    if (status == GPUIPC_OK) {
        for (size_t i = 0; i < count; i++) {
            point_store(self, &words[i]);
        }
        *out_passage = POINT_PASSED;
    }
    return status;
}

gpuipc_status point_write_async(point_page *self, const point_word *words, size_t count,
                                gpuipc_stream stream, point_word *out_passage) {
    context *ctx = self->context;
    point_word passage = POINT_PASSED;
    const bool by_words = point_has_stream_waits(ctx);
    if (!by_words && !ctx->driver.has_hostfunc) {
        return write_by_waiting(self, words, count, stream, out_passage);
    }
    gpuipc_status status = point_passage_take(self, &passage);
    if (status == GPUIPC_ERR_LIMIT) {
        return write_by_waiting(self, words, count, stream, out_passage);
    }
    if (status != GPUIPC_OK) {
        return status;
    }
    status = by_words ? write_by_words(self, words, count, stream, &passage)
                      : write_by_host(self, words, count, stream, &passage);
    if (status == GPUIPC_OK) {
        *out_passage = passage;
    }
    return status;
}

gpuipc_status point_wait_async(point_page *self, const point_word *words, size_t count,
                               gpuipc_stream stream, const point_word *passage, bool may_store) {
    context *ctx = self->context;
    CUdeviceptr page = 0;
    CUdeviceptr own = 0;
    size_t submitted = 0;
    gpuipc_status status = point_page_address(self, &page);
    if (status == GPUIPC_OK) {
        status = point_page_address(ctx->points.own, &own);
    }
    while (submitted < count && status == GPUIPC_OK) {
        status = submit_wait(&ctx->driver, page, &words[submitted], stream);
        submitted += status == GPUIPC_OK;
    }
    if (status == GPUIPC_OK) {
        status = submit_write(&ctx->driver, own, passage, stream);
    }
    if (status != GPUIPC_OK) {
        for (size_t i = 0; i < submitted && may_store; i++) {
            point_store(self, &words[i]);
        }
        settle(ctx, stream, passage);
    }
    return status;
}
