/* SPDX-License-Identifier: MIT */
/** @file Calls without a stream wait for what the library has put on streams for the buffer. The emulated driver begins each
 *  piece of work late here; on a GPU there is much of it. */
#include "contents_ends.h"
#include "core_fixture.h"
#include "graphs.h"

#include <string.h>

/* On a GPU: so that a read that does not wait comes first. */
#define MANY_FILLS 200
#define DELAY_MS   20

static gpuipc_buffer *subject;
static CUstream stream;
static uint64_t bytes;

static void use(void) {
    core_enter_device(0);
    bytes = core_is_emulated ? core_unit : UINT64_C(64) << 20;
    cr_assert_eq(core_driver()->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    subject = core_buffer(bytes, 0);
    check_ok(gpuipc_buffer_fill_async(subject, 0, bytes, 1, 4, NULL));
    cr_assert_eq(core_driver()->cuStreamSynchronize(NULL), CUDA_SUCCESS);
    contents_set_delay(DELAY_MS);
}

static void begin(void) {
    core_start();
    use();
}

static void begin_without_context(void) {
    core_start_without_context();
}

static void finish(void) {
    contents_set_delay(0);
    check_ok(gpuipc_buffer_release(subject));
    if (stream != NULL) {
        (void)core_driver()->cuStreamDestroy(stream);
    }
    core_finish();
}

TestSuite(buffer_work, .init = begin, .fini = finish, .timeout = 60);
TestSuite(buffer_work_machine, .init = begin_without_context, .fini = finish, .timeout = 60);

static void fill(gpuipc_buffer *of, uint32_t value, CUstream on) {
    for (int i = 0; i < (core_is_emulated ? 0 : MANY_FILLS); i++) {
        check_ok(gpuipc_buffer_fill_async(of, 0, bytes, value + 1, 4, on));
    }
    check_ok(gpuipc_buffer_fill_async(of, 0, bytes, value, 4, on));
}

static uint32_t read_last(gpuipc_buffer *of) {
    uint32_t word = 0;
    check_ok(gpuipc_buffer_read(of, bytes - sizeof(word), &word, sizeof(word)));
    return word;
}

Test(buffer_work, a_read_waits_for_a_fill) {
    for (uint32_t i = 2; i < 5; i++) {
        fill(subject, i, stream);
        cr_assert_eq(read_last(subject), i);
    }
}

Test(buffer_work, a_write_waits_for_a_fill) {
    const uint32_t word = 9;
    fill(subject, 2, stream);
    check_ok(gpuipc_buffer_write(subject, bytes - sizeof(word), &word, sizeof(word)));
    cr_assert_eq(core_driver()->cuStreamSynchronize(stream), CUDA_SUCCESS);
    cr_assert_eq(read_last(subject), word);
}

Test(buffer_work, a_read_waits_for_a_copy) {
    gpuipc_buffer *other = core_buffer(bytes, 0);
    fill(other, 2, stream);
    check_ok(gpuipc_buffer_copy_async(subject, 0, other, 0, bytes, stream));
    cr_assert_eq(read_last(subject), 2);
    check_ok(gpuipc_buffer_release(other));
}

/* Else the copy takes what is written later. */
Test(buffer_work, a_write_waits_for_a_copy_of_what_was_there) {
    const uint32_t word = 9;
    gpuipc_buffer *other = core_buffer(bytes, 0);
    fill(other, 2, stream);
    check_ok(gpuipc_buffer_copy_async(other, 0, subject, 0, bytes, stream));
    check_ok(gpuipc_buffer_write(subject, bytes - sizeof(word), &word, sizeof(word)));
    cr_assert_eq(read_last(other), 1);
    check_ok(gpuipc_buffer_release(other));
}

Test(buffer_work, a_view_has_the_work_of_what_it_lies_over) {
    gpuipc_buffer *view = NULL;
    check_ok(gpuipc_buffer_wrap(core_context, core_info(subject).address, bytes, &view));
    fill(subject, 2, stream);
    cr_assert_eq(read_last(view), 2);
    fill(view, 3, stream);
    cr_assert_eq(read_last(subject), 3);
    check_ok(gpuipc_buffer_release(view));
}

/* More than have been seen at once before; later ones use the events again. */
Test(buffer_work, work_of_many_streams_is_waited_for) {
    enum {
        STREAMS = 8
    };
    const driver *drv = core_driver();
    const uint64_t part = bytes / STREAMS;
    CUstream streams[STREAMS];
    for (uint32_t round = 1; round <= 3; round++) {
        for (uint32_t i = 0; i < STREAMS; i++) {
            cr_assert_eq(drv->cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
            check_ok(
                gpuipc_buffer_fill_async(subject, i * part, part, round * 100 + i, 4, streams[i]));
        }
        for (uint32_t i = 0; i < STREAMS; i++) {
            uint32_t word = 0;
            check_ok(gpuipc_buffer_read(subject, i * part, &word, sizeof(word)));
            cr_assert_eq(word, round * 100 + i);
            cr_assert_eq(drv->cuStreamDestroy(streams[i]), CUDA_SUCCESS);
        }
    }
}

Test(buffer_work, a_stream_that_was_destroyed_is_waited_for) {
    fill(subject, 2, stream);
    cr_assert_eq(core_driver()->cuStreamDestroy(stream), CUDA_SUCCESS);
    stream = NULL;
    cr_assert_eq(read_last(subject), 2);
}

Test(buffer_work, without_an_event_the_fill_fails_or_the_read_waits_for_the_device) {
    core_need_emulated();
    gpuipc_buffer *fresh = core_buffer(bytes, 0); /* whose streams have no events yet */
    core_set_failures("cuEventCreate:1=2");
    check_status(GPUIPC_ERR_OUT_OF_DEVICE_MEMORY,
                 gpuipc_buffer_fill_async(fresh, 0, bytes, 7, 4, stream));
    core_set_failures("cuEventRecord:1=2");
    check_ok(gpuipc_buffer_fill_async(fresh, 0, bytes, 7, 4, stream));
    core_set_failures("");
    cr_assert_eq(read_last(fresh), 7);
    check_ok(gpuipc_buffer_release(fresh));
}

Test(buffer_work, a_read_waits_for_contents) {
    contents_ends two;
    uint32_t word = 0;
    contents_ends_open(&two, CONTENTS_MANY);
    contents_set_delay(2); /* for each piece several times */
    for (uint32_t i = 0; i < 4; i++) {
        check_ok(
            gpuipc_buffer_fill_async(two.from, 0, CONTENTS_MANY, i * 0x01010101u, 1, two.sends));
        check_ok(contents_send_range(&two, 0, CONTENTS_MANY, contents_ways[i % 2]));
        check_ok(contents_receive_range(&two, 0, CONTENTS_MANY, contents_ways[i % 2]));
        check_ok(gpuipc_buffer_read(two.into, CONTENTS_MANY - 4, &word, sizeof(word)));
        cr_assert_eq(word, i * 0x01010101u);
        contents_both_pass(&two);
    }
    contents_ends_close(&two);
}

static void find(const char *name, void *out_function) {
    void *symbol = os_library_symbol(core_driver()->library, name);
    cr_assert_not_null(symbol);
    memcpy(out_function, &symbol, sizeof(symbol));
}

/* The call itself is what a capture takes: a launch of the graph is the program's own. */
Test(buffer_work, a_capture_goes_on) {
    captured made = {.graph = NULL};
    const driver *drv = core_driver();
    cr_assert(graphs_find(drv));
    cr_assert(graphs_begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    check_ok(gpuipc_buffer_fill_async(subject, 0, bytes, 6, 4, stream));
    cr_assert(graphs_end(stream, &made));
    cr_assert_eq(read_last(subject), 1);
    cr_assert(graphs_launch(&made, stream));
    cr_assert_eq(drv->cuStreamSynchronize(stream), CUDA_SUCCESS);
    cr_assert_eq(read_last(subject), 6);
    cr_assert(graphs_destroy(&made));
}

/* The event is of a primary context, and stands behind the stream all the same. */
Test(buffer_work, a_stream_of_the_programs_own_context_is_waited_for) {
    CUresult (*create)(CUcontext *, unsigned, CUdevice);
    CUresult (*destroy)(CUcontext);
    CUcontext own;
    CUstream other;
    core_need_emulated(); /* the entry points are found in its library */
    find("cuCtxCreate_v2", &create);
    find("cuCtxDestroy_v2", &destroy);
    cr_assert_eq(create(&own, 0, 0), CUDA_SUCCESS);
    cr_assert_eq(core_driver()->cuStreamCreate(&other, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    cr_assert_eq(core_driver()->cuCtxPopCurrent(&own), CUDA_SUCCESS);
    for (uint32_t i = 2; i < 4; i++) {
        check_ok(gpuipc_buffer_fill_async(subject, 0, bytes, i, 4, other));
        cr_assert_eq(read_last(subject), i);
    }
    cr_assert_eq(destroy(own), CUDA_SUCCESS);
}

/* ---- a driver before CUDA 12.0, which gives streams no ids ------------------------------------- */

static void use_older_driver(void) {
    core_environment_set("GPUIPC_EMULATED_MACHINE", "version=11080");
    const gpuipc_context_config config = core_context_config();
    core_open_context(&config);
    core_need_emulated();
    use();
}

/* What was given to the one stream takes longer than what is then given to the other. */
static void check_both(CUstream one, CUstream other) {
    const uint64_t half = bytes / 2;
    uint32_t word = 0;
    for (uint32_t i = 2; i < 6; i++) {
        check_ok(gpuipc_buffer_fill_async(subject, 0, half, i, 4, one));
    }
    check_ok(gpuipc_buffer_fill_async(subject, half, half, 7, 4, other));
    check_ok(gpuipc_buffer_read(subject, 0, &word, sizeof(word)));
    cr_assert_eq(word, 5);
    check_ok(gpuipc_buffer_read(subject, half, &word, sizeof(word)));
    cr_assert_eq(word, 7);
}

Test(buffer_work_machine, two_streams_of_an_older_driver_are_waited_for) {
    CUstream other;
    use_older_driver();
    cr_assert_eq(core_driver()->cuStreamCreate(&other, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    check_both(stream, other);
    check_both(other, NULL);
    check_both(NULL, stream);
    check_both(stream, CU_STREAM_PER_THREAD);
    cr_assert_eq(core_driver()->cuStreamDestroy(other), CUDA_SUCCESS);
}
