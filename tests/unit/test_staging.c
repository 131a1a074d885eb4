/* SPDX-License-Identifier: MIT */
/** @file Copies between devices that do not reach each other's memory, and the ways around that. */
#include "buffer_marks.h"
#include "core_fixture.h"

#include <stdio.h>
#include <stdlib.h>

#include "copy/staging.h"
#include "emulated.h"
#include "sync/deferred.h"

TestSuite(staging, .init = core_start, .fini = core_finish, .timeout = 120);

#define MIB (UINT64_C(1) << 20)
/* Of 1 MiB pieces: more than there are slots, and a rest. */
#define MANY (MIB * 6 + 13)
/* Where the same is done again and again: two pieces and a rest. */
#define FEW (MIB * 2 + 13)

static gpuipc_buffer *buffer_of(gpuipc_context *context, uint32_t device, uint64_t bytes) {
    const gpuipc_buffer_config config = {
        .struct_size = sizeof(config), .device = GPUIPC_DEVICE(device), .bytes = bytes};
    gpuipc_buffer *made = NULL;
    check_ok(gpuipc_buffer_create(context, &config, &made));
    return made;
}

static uint64_t calls_of(const char *name) {
    void *symbol = os_library_symbol(core_driver()->library, GPUIPC_EMULATED_CALLS);
    gpuipc_emulated_calls_fn calls;
    cr_assert_not_null(symbol);
    memcpy(&calls, &symbol, sizeof(calls));
    return calls(name);
}

static CUstream stream_of(int ordinal) {
    CUstream stream;
    core_enter_device(ordinal);
    cr_assert_eq(core_driver()->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    return stream;
}

Test(staging, pieces_are_few_and_fit_the_slots) {
    for (uint64_t bytes = 1; bytes < UINT64_C(1) << 62; bytes = bytes * 3 + 1) {
        const uint64_t piece = staging_piece_bytes(bytes);
        cr_assert(piece >= MIB && piece <= STAGING_SLOT_BYTES);
        cr_assert_eq(piece & (piece - 1), 0);
        cr_assert(bytes <= piece * 16 || piece == STAGING_SLOT_BYTES);
    }
    cr_assert_eq(staging_piece_bytes(1), MIB);
    cr_assert_eq(staging_piece_bytes(MIB * 64), MIB * 4);
    cr_assert_eq(staging_piece_bytes(MIB * 256), STAGING_SLOT_BYTES);
}

Test(staging, every_size_arrives_where_it_belongs) {
    static const struct {
        uint64_t bytes;
        uint64_t from;
        uint64_t into;
    } rows[] = {
        {1, 0, 0},        {1, MANY - 1, 3}, {4095, 1, 2},     {MIB, 5, 0},  {MIB + 1, 0, 7},
        {MIB * 4, 0, 13}, {MIB * 5, 1, 1},  {MANY - 2, 1, 2}, {MANY, 0, 0},
    };
    core_need_devices(2);
    gpuipc_buffer *from = buffer_of(core_context, 0, MANY);
    gpuipc_buffer *into = buffer_of(core_context, 1, MANY);
    buffer_marks_write(from, 5);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        check_ok(gpuipc_buffer_fill_async(into, 0, MANY, 0xEE, 1, NULL));
        check_ok(
            gpuipc_buffer_copy_async(into, rows[i].into, from, rows[i].from, rows[i].bytes, NULL));
        buffer_marks_check(into, rows[i].into, rows[i].from, rows[i].bytes, 5, 0xEE);
    }
    check_status(GPUIPC_ERR_OUT_OF_RANGE, gpuipc_buffer_copy_async(into, 1, from, 0, MANY, NULL));
    check_ok(gpuipc_buffer_release(into));
    check_ok(gpuipc_buffer_release(from));
}

Test(staging, large_pieces_go_round_the_ring) {
    const uint64_t bytes = MIB * 70 + 5; /* nine of 8 MiB */
    core_need_devices(2);
    gpuipc_buffer *from = buffer_of(core_context, 1, bytes);
    gpuipc_buffer *into = buffer_of(core_context, 0, bytes);
    buffer_marks_write(from, 9);
    check_ok(gpuipc_buffer_copy_async(into, 0, from, 0, bytes, NULL));
    buffer_marks_check(into, 0, 0, bytes, 9, 0);
    check_ok(gpuipc_buffer_release(into));
    check_ok(gpuipc_buffer_release(from));
}

static void check_value(gpuipc_buffer *buffer, uint8_t *room, uint8_t value) {
    uint64_t wrong = 0;
    check_ok(gpuipc_buffer_read(buffer, 0, room, MANY));
    while (wrong < MANY && room[wrong] == value) {
        wrong++;
    }
    cr_assert_eq(wrong, MANY, "byte %llu is not %u", (unsigned long long)wrong, value);
}

/* The source changes right before and right after the copy, and so does the destination, all on the
 * stream of one of the two devices. */
static void check_order(int ordinal) {
    core_need_devices(2);
    gpuipc_buffer *from = buffer_of(core_context, 0, MANY);
    gpuipc_buffer *into = buffer_of(core_context, 1, MANY);
    gpuipc_buffer *later = buffer_of(core_context, 1, MANY);
    gpuipc_buffer *of_stream = ordinal == 0 ? from : into;
    CUstream stream = stream_of(ordinal);
    uint8_t *came = malloc(MANY);
    check_ok(gpuipc_buffer_fill_async(from, 0, MANY, 1, 1, NULL));
    check_ok(gpuipc_buffer_fill_async(into, 0, MANY, 2, 1, NULL));
    check_ok(gpuipc_buffer_read(from, 0, came, 1));
    check_ok(gpuipc_buffer_read(into, 0, came, 1));
    if (core_is_emulated) {
        core_set_stream_delay(10);
    }
    check_ok(gpuipc_buffer_fill_async(of_stream, 0, MANY, 3, 1, stream));
    check_ok(gpuipc_buffer_copy_async(into, 0, from, 0, MANY, stream));
    check_ok(gpuipc_buffer_copy_async(later, 0, from, 0, MANY, stream));
    check_ok(gpuipc_buffer_fill_async(of_stream, 0, MANY, 4, 1, stream));
    cr_assert_eq(core_driver()->cuStreamSynchronize(stream), CUDA_SUCCESS);
    if (core_is_emulated) {
        core_set_stream_delay(0);
    }
    check_value(later, came, ordinal == 0 ? 3 : 1);
    check_value(into, came, ordinal == 0 ? 3 : 4);
    free(came);
    cr_assert_eq(core_driver()->cuStreamDestroy(stream), CUDA_SUCCESS);
    check_ok(gpuipc_buffer_release(later));
    check_ok(gpuipc_buffer_release(into));
    check_ok(gpuipc_buffer_release(from));
}

Test(staging, order_is_kept_on_a_stream_of_the_source) {
    check_order(0);
}

Test(staging, order_is_kept_on_a_stream_of_the_destination) {
    check_order(1);
}

/* More streams than there are rings, in both directions, none of which is waited for in between. */
Test(staging, streams_do_not_get_in_each_others_way) {
    enum {
        STREAMS = STAGING_RINGS_MAX + 3,
        ROUNDS = 3
    };
    CUstream streams[STREAMS];
    gpuipc_buffer *from[STREAMS];
    gpuipc_buffer *into[STREAMS];
    core_need_devices(2);
    core_enter_device(0);
    for (uint32_t i = 0; i < STREAMS; i++) {
        cr_assert_eq(core_driver()->cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING),
                     CUDA_SUCCESS);
        from[i] = buffer_of(core_context, i % 2, MANY);
        into[i] = buffer_of(core_context, 1 - i % 2, MANY);
        buffer_marks_write(from[i], i);
    }
    if (core_is_emulated) {
        core_set_stream_delay(1);
    }
    for (uint32_t round = 0; round < ROUNDS; round++) {
        for (uint32_t i = 0; i < STREAMS; i++) {
            check_ok(gpuipc_buffer_copy_async(into[i], 0, from[i], 0, MANY, streams[i]));
        }
    }
    for (uint32_t i = 0; i < STREAMS; i++) {
        cr_assert_eq(core_driver()->cuStreamSynchronize(streams[i]), CUDA_SUCCESS);
        cr_assert_eq(core_driver()->cuStreamDestroy(streams[i]), CUDA_SUCCESS);
    }
    if (core_is_emulated) {
        core_set_stream_delay(0);
    }
    for (uint32_t i = 0; i < STREAMS; i++) {
        buffer_marks_check(into[i], 0, 0, MANY, i, 0);
        check_ok(gpuipc_buffer_release(into[i]));
        check_ok(gpuipc_buffer_release(from[i]));
    }
}

typedef struct one_way {
    CUstream stream;
    gpuipc_buffer *from;
    gpuipc_buffer *into;
} one_way;

static void one_way_make(one_way *self, uint32_t seed) {
    core_enter_device(0);
    cr_assert_eq(core_driver()->cuStreamCreate(&self->stream, CU_STREAM_NON_BLOCKING),
                 CUDA_SUCCESS);
    self->from = buffer_of(core_context, 0, FEW);
    self->into = buffer_of(core_context, 1, FEW);
    buffer_marks_write(self->from, seed);
}

static void one_way_copy(const one_way *self) {
    check_ok(gpuipc_buffer_copy_async(self->into, 0, self->from, 0, FEW, self->stream));
}

static void one_way_end(one_way *self, uint32_t seed) {
    cr_assert_eq(core_driver()->cuStreamSynchronize(self->stream), CUDA_SUCCESS);
    cr_assert_eq(core_driver()->cuStreamDestroy(self->stream), CUDA_SUCCESS);
    buffer_marks_check(self->into, 0, 0, FEW, seed, 0);
    check_ok(gpuipc_buffer_release(self->into));
    check_ok(gpuipc_buffer_release(self->from));
}

/* 600 is CUDA_ERROR_NOT_READY: whatever a ring has been given, it is not through with. */
Test(staging, more_streams_than_rings_share_the_oldest) {
    one_way all[STAGING_RINGS_MAX + 2];
    const uint32_t count = sizeof(all) / sizeof(all[0]);
    core_need_emulated();
    core_need_devices(2);
    for (uint32_t i = 0; i < count; i++) {
        one_way_make(&all[i], i);
    }
    core_set_failures("cuEventQuery:*=600");
    for (uint32_t i = 0; i < count; i++) {
        one_way_copy(&all[i]);
    }
    cr_assert_eq(calls_of("cuMemHostAlloc"), STAGING_RINGS_MAX);
    core_set_failures("");
    for (uint32_t i = 0; i < count; i++) {
        one_way_end(&all[i], i);
    }
}

/* Although a newer one is idle, which another stream has afterwards. */
Test(staging, a_stream_keeps_its_ring) {
    one_way first;
    one_way second;
    one_way third;
    core_need_emulated();
    core_need_devices(2);
    one_way_make(&first, 1);
    one_way_make(&second, 2);
    one_way_make(&third, 3);
    one_way_copy(&first);
    core_set_failures("cuEventQuery:*=600");
    one_way_copy(&second);
    cr_assert_eq(calls_of("cuMemHostAlloc"), 1);
    core_set_failures("");
    cr_assert_eq(core_driver()->cuStreamSynchronize(second.stream), CUDA_SUCCESS);
    one_way_copy(&first);
    one_way_copy(&second);
    cr_assert_eq(core_driver()->cuStreamSynchronize(first.stream), CUDA_SUCCESS);
    cr_assert_eq(core_driver()->cuStreamSynchronize(second.stream), CUDA_SUCCESS);
    one_way_copy(&third); /* both are idle: it has one of them */
    cr_assert_eq(calls_of("cuMemHostAlloc"), 0);
    one_way_end(&first, 1);
    one_way_end(&second, 2);
    one_way_end(&third, 3);
}

/* Where a device reaches both, nothing is staged, whichever device's stream it is. */
Test(staging, a_device_that_reaches_both_copies_itself) {
    core_need_emulated();
    core_need_devices(2);
    gpuipc_buffer *from = buffer_of(core_context, 0, MANY);
    gpuipc_buffer *into = buffer_of(core_context, 1, MANY);
    buffer_marks_write(from, 3);
    check_ok(gpuipc_buffer_set_access(into, 0, GPUIPC_ACCESS_READ_WRITE));
    for (int ordinal = 0; ordinal < 2; ordinal++) {
        CUstream stream;
        CUcontext primary;
        CUcontext popped;
        const driver *drv = core_driver();
        cr_assert_eq(drv->cuDevicePrimaryCtxRetain(&primary, ordinal), CUDA_SUCCESS);
        cr_assert_eq(drv->cuCtxPushCurrent(primary), CUDA_SUCCESS);
        cr_assert_eq(drv->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
        check_ok(gpuipc_buffer_fill_async(into, 0, MANY, 0, 1, NULL));
        buffer_marks_check(into, 0, 0, 0, 0, 0);
        core_set_failures("");
        core_set_stream_delay(10);
        check_ok(gpuipc_buffer_copy_async(into, 0, from, 0, MANY, stream));
        cr_assert_eq(drv->cuStreamSynchronize(stream), CUDA_SUCCESS);
        core_set_stream_delay(0);
        cr_assert_eq(calls_of("cuMemcpyAsync"), 1, "on a stream of device %d", ordinal);
        cr_assert_eq(calls_of("cuMemHostAlloc"), 0);
        buffer_marks_check(into, 0, 0, MANY, 3, 0);
        cr_assert_eq(drv->cuStreamDestroy(stream), CUDA_SUCCESS);
        cr_assert_eq(drv->cuCtxPopCurrent(&popped), CUDA_SUCCESS);
        cr_assert_eq(drv->cuDevicePrimaryCtxRelease(ordinal), CUDA_SUCCESS);
    }
    check_ok(gpuipc_buffer_release(into));
    check_ok(gpuipc_buffer_release(from));
}

/* ---- the end ------------------------------------------------------------------------------ */

/* What the end of a context costs after a staged copy, with calls that fail. */
static void copy_and_end(const char *failures) {
    gpuipc_context *context = core_context_new();
    gpuipc_buffer *from = buffer_of(context, 0, FEW);
    gpuipc_buffer *into = buffer_of(context, 1, FEW);
    check_ok(gpuipc_buffer_fill_async(from, 0, FEW, 1, 1, NULL));
    check_ok(gpuipc_buffer_copy_async(into, 0, from, 0, FEW, NULL));
    cr_assert_eq(core_driver()->cuStreamSynchronize(NULL), CUDA_SUCCESS);
    check_ok(gpuipc_buffer_release(into));
    check_ok(gpuipc_buffer_release(from));
    core_set_failures(failures);
    check_ok(gpuipc_context_destroy(context));
}

/* 600 is CUDA_ERROR_NOT_READY: a stream that goes on for ever, behind one that waits for another process. */
Test(staging, a_ring_that_stays_busy_keeps_its_context_from_ending_a_second_at_most) {
    core_need_emulated();
    core_need_devices(2);
    core_enter_device(1);
    copy_and_end("");
    cr_assert_eq(calls_of("cuStreamSynchronize"), 0); /* which knows no deadline */
    cr_assert_eq(calls_of("cuMemFreeHost"), 1);
    const uint64_t start = os_clock_ns();
    copy_and_end("cuStreamQuery:*=600");
    cr_assert_lt(os_clock_ns() - start, UINT64_C(10000000000));
    cr_assert_eq(calls_of("cuMemFreeHost"), 0);
    core_set_failures("");
    core_is_emulated = false; /* so that nobody looks for what was left behind on purpose */
}

/* What it may still use is left where it is. */
Test(staging, a_ring_of_a_device_that_cannot_be_entered_keeps_its_slots) {
    core_need_emulated();
    core_need_devices(2);
    core_enter_device(1);
    copy_and_end("cuCtxPushCurrent:*=999");
    cr_assert_eq(calls_of("cuMemFreeHost"), 0);
    cr_assert_eq(calls_of("cuStreamQuery"), 0);
    core_set_failures("");
    deferred_wait_begins(); /* as while a stream waits for another process: freeing would wait for it */
    copy_and_end("");
    cr_assert_eq(calls_of("cuMemFreeHost"), 0);
    deferred_wait_ends();
    for (unsigned n = 1; n <= 5; n++) { /* two looks, the slots, and the streams of two devices */
        char failure[64];
        (void)snprintf(failure, sizeof(failure), "cuCtxPushCurrent:%u=999", n);
        copy_and_end(failure);
        cr_assert_eq(calls_of("cuMemFreeHost"), n > 3, "%u", n);
        core_set_failures("");
    }
    core_set_failures("");
    core_is_emulated = false;
}

/* ---- failures ----------------------------------------------------------------------------- */

/* Makes a copy in a context of its own, with the Nth call of a function failing. */
static bool copy_fails(const char *name, unsigned number, bool besides) {
    const driver *drv = core_driver();
    gpuipc_context *context = core_context_new();
    gpuipc_buffer *from = buffer_of(context, 0, FEW);
    gpuipc_buffer *into = buffer_of(context, 1, FEW);
    CUstream stream;
    char failures[64];
    buffer_marks_write(from, number);
    check_ok(gpuipc_buffer_fill_async(into, 0, FEW, 0, 1, NULL));
    buffer_marks_check(into, 0, 0, 0, 0, 0);
    if (besides) {
        check_ok(gpuipc_buffer_set_access(into, 0, GPUIPC_ACCESS_READ_WRITE));
    }
    cr_assert_eq(drv->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    (void)snprintf(failures, sizeof(failures), "%s:%u=2", name, number);
    core_set_failures(failures);
    const gpuipc_status status = gpuipc_buffer_copy_async(into, 0, from, 0, FEW, stream);
    core_set_failures("");
    cr_assert_eq(drv->cuStreamSynchronize(stream), CUDA_SUCCESS, "%s", failures);
    /* the stream and the ring, if there is one, are as good as before */
    check_ok(gpuipc_buffer_copy_async(into, 0, from, 0, FEW, stream));
    cr_assert_eq(drv->cuStreamSynchronize(stream), CUDA_SUCCESS, "%s", failures);
    buffer_marks_check(into, 0, 0, FEW, number, 0);
    cr_assert_eq(drv->cuStreamDestroy(stream), CUDA_SUCCESS);
    check_ok(gpuipc_buffer_release(into));
    check_ok(gpuipc_buffer_release(from));
    check_ok(gpuipc_context_destroy(context));
    return status != GPUIPC_OK;
}

static void check_failures(bool besides) {
    static const char *const names[] = {
        "cuStreamGetCtx",        "cuCtxPushCurrent", "cuThreadExchangeStreamCaptureMode",
        "cuPointerGetAttribute", "cuMemHostAlloc",   "cuStreamCreate",
        "cuEventCreate",         "cuEventRecord",    "cuEventQuery",
        "cuStreamWaitEvent",     "cuMemcpyAsync"};
    core_need_emulated();
    core_need_devices(2);
    core_enter_device(1);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        unsigned failed = 0;
        while (copy_fails(names[i], failed + 1, besides)) {
            failed++;
        }
        const bool is_used = !besides || strcmp(names[i], "cuMemHostAlloc") != 0;
        cr_assert_eq(failed > 0, is_used, "%s failed %u times", names[i], failed);
    }
}

Test(staging, every_call_may_fail_in_a_staged_copy, .timeout = 240) {
    check_failures(false);
}

Test(staging, every_call_may_fail_in_a_copy_by_the_other_device, .timeout = 240) {
    check_failures(true);
}
