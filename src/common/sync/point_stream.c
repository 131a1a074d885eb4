/* SPDX-License-Identifier: MIT */
/** @file What streams do with the words of points: write them, wait for them, tell that they have. */
#include <stdlib.h>
#include <string.h>

#include "cuda/context.h"
#include "cuda/device_event.h"
#include "sync/point.h"

/* ---- registered memory --------------------------------------------------------------------- */

/* In the primary context, which the library holds: a context of the caller's may end before, and with it
 * what was registered there. */
GPUIPC_COLD static gpuipc_status page_register(point_page *self, uint32_t index) {
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
    status = DRIVER_CALL(drv, cuMemHostRegister,
                         ((void *)self->words, POINT_PAGE_BYTES,
                          CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP),
                         "letting devices reach the words of points");
    device_leave(&scope);
    if (status == GPUIPC_OK) {
        self->device = index;
    }
    return status;
}

bool point_page_is_registered(const point_page *self) {
    const gpuipc_error why = status_save();
    context *ctx = self->context;
    device_scope scope;
    CUdeviceptr address;
    bool is_known = false;
    if (self->device != GPUIPC_DEVICE_NONE &&
        device_enter(ctx, self->device, &scope) == GPUIPC_OK) {
        is_known =
            ctx->driver.cuMemHostGetDevicePointer(&address, (void *)self->words, 0) == CUDA_SUCCESS;
        device_leave(&scope);
    }
    status_restore(&why);
    return is_known;
}

void point_page_unregister(point_page *self) {
    context *ctx = self->context;
    device_scope scope;
    uint32_t *index = &self->device;
    if (*index != GPUIPC_DEVICE_NONE && device_enter(ctx, *index, &scope) == GPUIPC_OK) {
        /* Fails only where its CUDA context is gone or dead, and the registration with it. */
        (void)ctx->driver.cuMemHostUnregister((void *)self->words);
        device_leave(&scope);
        *index = GPUIPC_DEVICE_NONE;
    }
}

/* In the CUDA context where a page is registered it is asked for once. */
GPUIPC_COLD static gpuipc_status find_page(point_page *self, CUdeviceptr *out_address) {
    context *ctx = self->context;
    uint32_t index = 0;
    CUdeviceptr address = 0;
    gpuipc_status status = device_current(ctx, &index);
    if (status != GPUIPC_OK) {
        return status;
    }
    os_mutex_lock(&ctx->points->registration);
    status = page_register(self, index);
    if (status == GPUIPC_OK) {
        status =
            DRIVER_CALL(&ctx->driver, cuMemHostGetDevicePointer, (&address, (void *)self->words, 0),
                        "asking where the words of points are");
    }
    if (status == GPUIPC_OK) {
        if (self->device == device_entered(ctx)) {
            atomic_store(&self->address, address);
        }
        *out_address = address;
    }
    os_mutex_unlock(&ctx->points->registration);
    return status;
}

/* Where a page is for the current CUDA context. */
gpuipc_status point_page_address(point_page *self, CUdeviceptr *out_address) {
    const CUdeviceptr known = atomic_load_explicit(&self->address, memory_order_acquire);
    if (known != 0 && self->device == device_entered(self->context)) {
        *out_address = known;
        return GPUIPC_OK;
    }
    return find_page(self, out_address);
}

/* ---- words --------------------------------------------------------------------------------- */

/* What a device can do stays as it is. */
GPUIPC_COLD static bool ask_for_words(const driver *drv, device *of) {
    int can = 0;
    if (!drv->has_word || !drv->has_pinned ||
        drv->cuDeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS,
                                  of->ordinal) == CUDA_SUCCESS) {
        atomic_store_explicit(&of->has_words, can != 0 ? 1 : -1, memory_order_relaxed);
    }
    return can != 0;
}

bool point_has_stream_waits_on(const struct context *ctx, uint32_t index) {
    if (index == GPUIPC_DEVICE_NONE && device_current(ctx, &index) != GPUIPC_OK) {
        return false;
    }
    device *of = &ctx->devices[index];
    const int known = atomic_load_explicit(&of->has_words, memory_order_relaxed);
    return known == 0 ? ask_for_words(&ctx->driver, of) : known > 0;
}

bool point_has_stream_waits(const struct context *ctx) {
    return point_has_stream_waits_on(ctx, GPUIPC_DEVICE_NONE);
}

/* How many words go to a stream in one call. The queue of a stream has room for 1,021 calls and then keeps the
 * next one waiting, be it a wait or a write; of such lists 4,096 words found room. A list of 256 is refused
 * (measured on an H200, driver 580). */
#define BATCH 64

/* Where the page of the last word is. */
typedef struct cursor {
    point_page *page;
    CUdeviceptr base;
} cursor;

static gpuipc_status find(cursor *self, const point_word *word, CUdeviceptr *out_address) {
    if (self->page != word->page) {
        gpuipc_status status = point_page_address(word->page, &self->base);
        if (status != GPUIPC_OK) {
            return status;
        }
        self->page = word->page;
    }
    *out_address = self->base + word->at * UINT64_C(8);
    return GPUIPC_OK;
}

/* Where the low half of a word begins, as this machine orders bytes. */
static uint64_t low_half(void) {
    const uint16_t one = 1;
    uint8_t first;
    memcpy(&first, &one, sizeof(first));
    return UINT64_C(4) * (1u - first);
}

/* A word for the driver's list of operations. */
static gpuipc_status describe(cursor *at, const point_word *word, CUstreamBatchMemOpType what,
                              CUstreamBatchMemOpParams *out) {
    CUdeviceptr address;
    gpuipc_status status = find(at, word, &address);
    if (status == GPUIPC_OK) {
        memset(out, 0, sizeof(*out)); /* cuda.h pads it */
        out->word.operation = what;
        out->word.address = address;
        out->word.to.value64 = word->value;
        out->word.flags = what == CU_STREAM_MEM_OP_WAIT_VALUE_64 ? CU_STREAM_WAIT_VALUE_GEQ
                                                                 : CU_STREAM_WRITE_VALUE_DEFAULT;
    }
    if (status == GPUIPC_OK && what == CU_STREAM_MEM_OP_WRITE_VALUE_32) {
        out->word.address += low_half();
        out->word.to.value = (cuuint32_t)word->value;
    }
    return status;
}

static const char submitting[] = "letting a stream write or wait for points";

/* What a stream is to do with words, and the write of a passage behind them, if there is one. */
typedef struct order {
    CUstreamBatchMemOpType what;
    const point_word *words;
    size_t count;
    const point_word *passage;
} order;

static bool has_passage(const order *self) {
    return self->passage->page != NULL;
}

/* What a frame of a channel has, mostly: by the calls that do no more, which need no list. */
static gpuipc_status write_one(const driver *drv, const point_word *word, gpuipc_stream stream) {
    CUdeviceptr page;
    const gpuipc_status status = point_page_address(word->page, &page);
    return status == GPUIPC_OK ? DRIVER_CALL(drv, cuStreamWriteValue64,
                                             (stream, page + word->at * UINT64_C(8), word->value,
                                              CU_STREAM_WRITE_VALUE_DEFAULT),
                                             submitting)
                               : status;
}

static gpuipc_status wait_for_one(const driver *drv, const point_word *word, gpuipc_stream stream) {
    CUdeviceptr page;
    const gpuipc_status status = point_page_address(word->page, &page);
    return status == GPUIPC_OK ? DRIVER_CALL(drv, cuStreamWaitValue64,
                                             (stream, page + word->at * UINT64_C(8), word->value,
                                              CU_STREAM_WAIT_VALUE_GEQ),
                                             submitting)
                               : status;
}

/* BATCH at a time. The passage goes along with the words, since each call takes room in the stream's queue; what can
 * fail of it does so before anything is on the stream.
 * @param out_submitted of the words, also on failure */
static gpuipc_status submit_batches(const context *ctx, const order *self, gpuipc_stream stream,
                                    size_t *out_submitted) {
    const driver *drv = &ctx->driver;
    const size_t total = self->count + has_passage(self);
    cursor at = {NULL, 0};
    CUstreamBatchMemOpParams last;
    CUstreamBatchMemOpParams batch[BATCH];
    gpuipc_status status =
        has_passage(self) ? describe(&at, self->passage, CU_STREAM_MEM_OP_WRITE_VALUE_64, &last)
                          : GPUIPC_OK;
    *out_submitted = 0;
    for (size_t done = 0; done < total && status == GPUIPC_OK;) {
        const size_t taken = total - done < BATCH ? total - done : BATCH;
        for (size_t i = 0; i < taken && status == GPUIPC_OK; i++) {
            if (done + i == self->count) {
                batch[i] = last;
            } else {
                status = describe(&at, &self->words[done + i], self->what, &batch[i]);
            }
        }
        if (status == GPUIPC_OK) {
            status = DRIVER_CALL(drv, cuStreamBatchMemOp, (stream, (unsigned int)taken, batch, 0),
                                 submitting);
        }
        done += taken;
        if (status == GPUIPC_OK) {
            *out_submitted = done < self->count ? done : self->count;
        }
    }
    return status;
}

/* Without a passage. */
static gpuipc_status submit_alone(CUstreamBatchMemOpType what, const point_word *words,
                                  size_t count, gpuipc_stream stream) {
    const point_word none = POINT_PASSED;
    const order all = {what, words, count, &none};
    size_t submitted;
    return count == 0 ? GPUIPC_OK
                      : submit_batches(words[0].page->context, &all, stream, &submitted);
}

gpuipc_status point_capture_write(const point_word *word, gpuipc_stream stream) {
    return write_one(&word->page->context->driver, word, stream);
}

gpuipc_status point_capture_waits(const point_word *words, size_t count, gpuipc_stream stream) {
    return count == 1 ? wait_for_one(&words[0].page->context->driver, words, stream)
                      : submit_alone(CU_STREAM_MEM_OP_WAIT_VALUE_64, words, count, stream);
}

gpuipc_status point_write_halves(const point_word *words, size_t count, gpuipc_stream stream) {
    return submit_alone(CU_STREAM_MEM_OP_WRITE_VALUE_32, words, count, stream);
}

/* A capture of another stream may forbid it otherwise (device.h). */
static CUresult synchronize(const context *ctx, gpuipc_stream stream) {
    const driver *drv = &ctx->driver;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUresult result = drv->cuThreadExchangeStreamCaptureMode(&mode);
    if (result == CUDA_SUCCESS) {
        result = drv->cuStreamSynchronize(stream);
        (void)drv->cuThreadExchangeStreamCaptureMode(&mode);
    }
    return result;
}

/* When the stream has done what it had been given, nothing touches the words. */
void point_settle(const struct context *ctx, gpuipc_stream stream) {
    gpuipc_error why = status_save();
    (void)synchronize(ctx, stream);
    status_restore(&why);
}

/* Where none of the calls succeeded nothing is on the stream. */
GPUIPC_COLD static void settle(const context *ctx, size_t submitted, gpuipc_stream stream,
                               const point_word *passage) {
    if (submitted > 0) {
        point_settle(ctx, stream);
    }
    passage_cancel(passage);
}

/* By the call that goes on while another thread frees memory (docs/adr/0023). */
static gpuipc_status write_alone(const context *ctx, const point_word *word, gpuipc_stream stream,
                                 const point_word *passage) {
    const gpuipc_status status = write_one(&ctx->driver, word, stream);
    if (status != GPUIPC_OK) {
        passage_cancel(passage);
    }
    return status;
}

static gpuipc_status write_by_words(const context *ctx, const point_word *words, size_t count,
                                    gpuipc_stream stream, const point_word *passage) {
    if (count + (passage->page != NULL) == 1) {
        return write_alone(ctx, count == 1 ? words : passage, stream, passage);
    }
    const order writes = {CU_STREAM_MEM_OP_WRITE_VALUE_64, words, count, passage};
    size_t submitted;
    gpuipc_status status = submit_batches(ctx, &writes, stream, &submitted);
    if (status != GPUIPC_OK) {
        settle(ctx, submitted, stream, passage);
    }
    return status;
}

/* What the host function does. It may call neither the driver nor, since its context may be about to end,
 * anything that waits. */
typedef struct late_write {
    point_word passage;
    size_t count;
    point_word words[];
} late_write;

static void write_late(void *data) {
    late_write *self = data;
    for (size_t i = 0; i < self->count; i++) {
        point_store(&self->words[i]);
    }
    const point_word passage = self->passage;
    free(self);
    passage_cancel(&passage); /* the last: from here on the pages may go */
}

static gpuipc_status write_by_host(const context *ctx, const point_word *words, size_t count,
                                   gpuipc_stream stream, const point_word *passage) {
    const size_t size = sizeof(late_write) + count * sizeof(*words);
    late_write *late = malloc(size);
    if (late == NULL) {
        passage_cancel(passage);
        return status_out_of_memory(size);
    }
    *late = (late_write){.passage = *passage, .count = count};
    for (size_t i = 0; i < count; i++) {
        late->words[i] = words[i];
    }
    gpuipc_status status = DRIVER_CALL(&ctx->driver, cuLaunchHostFunc, (stream, write_late, late),
                                       "letting a stream mark a point");
    if (status != GPUIPC_OK) {
        passage_cancel(passage);
        free(late);
    }
    return status;
}

static gpuipc_status write_by_waiting(const context *ctx, const point_word *words, size_t count,
                                      gpuipc_stream stream, const point_word *passage) {
    gpuipc_status status = driver_status(&ctx->driver, synchronize(ctx, stream),
                                         "cuStreamSynchronize", "waiting for a point of a stream");
    for (size_t i = 0; i < count && status == GPUIPC_OK; i++) {
        point_store(&words[i]);
    }
    passage_cancel(passage);
    return status;
}

gpuipc_status point_write_begin(struct context *ctx, const point_word *words, size_t count,
                                point_word *out_passage) {
    point_word passage;
    gpuipc_status status = passage_take(ctx, count > 0 ? words[0].page : NULL, &passage);
    if (status != GPUIPC_OK) {
        return status;
    }
    for (size_t i = 1; i < count && status == GPUIPC_OK; i++) {
        status = passage_take_also(ctx, words[i].page, &passage);
    }
    if (status != GPUIPC_OK) {
        passage_cancel(&passage);
        return status;
    }
    *out_passage = passage;
    return GPUIPC_OK;
}

gpuipc_status point_submit_writes(struct context *ctx, const point_word *words, size_t count,
                                  gpuipc_stream stream, const point_word *passage) {
    if (point_has_stream_waits(ctx)) {
        return write_by_words(ctx, words, count, stream, passage);
    }
    return ctx->driver.has_hostfunc ? write_by_host(ctx, words, count, stream, passage)
                                    : write_by_waiting(ctx, words, count, stream, passage);
}

gpuipc_status point_submit_words(const struct context *ctx, const point_word *words, size_t count,
                                 gpuipc_stream stream) {
    const point_word none = POINT_PASSED;
    return write_by_words(ctx, words, count, stream, &none);
}

gpuipc_status point_write_async(const point_word *words, size_t count, gpuipc_stream stream,
                                point_word *out_passage) {
    context *ctx = words[0].page->context;
    point_word passage;
    gpuipc_status status = point_write_begin(ctx, words, 1, &passage);
    if (status == GPUIPC_OK) {
        status = point_submit_writes(ctx, words, count, stream, &passage);
    }
    if (status == GPUIPC_OK) {
        *out_passage = passage;
    }
    return status;
}

/* Words that this stream alone waits for may be stored, so that it goes on; for others it has to wait. */
GPUIPC_COLD static void give_up(const context *ctx, const point_word *words, size_t submitted,
                                bool may_store, gpuipc_stream stream, const point_word *passage) {
    for (size_t i = 0; i < submitted && may_store; i++) {
        point_raise(&words[i]);
    }
    settle(ctx, submitted, stream, passage);
}

gpuipc_status point_submit_waits(struct context *ctx, const point_word *words, size_t count,
                                 gpuipc_stream stream, const point_word *passage, bool may_store) {
    if (count == 1 && passage->page == NULL) {
        return wait_for_one(&ctx->driver, words, stream);
    }
    const order waits = {CU_STREAM_MEM_OP_WAIT_VALUE_64, words, count, passage};
    size_t submitted = 0;
    gpuipc_status status = submit_batches(ctx, &waits, stream, &submitted);
    if (status != GPUIPC_OK) {
        give_up(ctx, words, submitted, may_store, stream, passage);
    }
    return status;
}
