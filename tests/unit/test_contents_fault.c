/* SPDX-License-Identifier: MIT */
/** @file Contents where calls fail, and where streams cannot wait for words. */
#include "contents/contents_pace.h"
#include "contents_ends.h"
#include "stream_gate.h"

#include <stdio.h>
#include <string.h>

TestSuite(contents_fault, .init = core_start, .fini = core_finish, .timeout = 240);

/* Two pieces and a rest: it is done again and again. */
#define FEW (CONTENTS_MIB * 2 + 13)

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* ---- failures ----------------------------------------------------------------------------- */

/* The record has the call of the driver that failed. */
static void check_names(gpuipc_status status, const char *call) {
    if (status != GPUIPC_OK && gpuipc_error_get()->native_origin == GPUIPC_NATIVE_CUDA) {
        cr_assert_str_eq(gpuipc_error_get()->native_call, call);
    }
}

/* Contents between new ends, with the Nth call of a function failing on whichever side makes it. Both
 * streams go on, and what has not come is not taken for what has. @return whether a call failed */
static bool transfer_fails(const char *name, unsigned number, gpuipc_transport way) {
    char failures[64];
    contents_ends two;
    contents_ends_open(&two, FEW);
    buffer_marks_write(two.from, number);
    check_ok(gpuipc_buffer_fill_async(two.into, 0, FEW, 7, 1, two.receives));
    cr_assert_eq(core_driver()->cuStreamSynchronize(two.receives), CUDA_SUCCESS);
    gpuipc_contents contents = {.struct_size = sizeof(contents),
                                .buffer = two.from,
                                .bytes = FEW,
                                .stream = two.sends,
                                .transport = way};
    (void)snprintf(failures, sizeof(failures), "%s:%u=2", name, number);
    core_set_failures(failures);
    const gpuipc_status sent = gpuipc_connection_send_contents(two.pair.server, &contents, 0);
    check_names(sent, name);
    contents.buffer = two.into;
    contents.stream = two.receives;
    const gpuipc_status came = gpuipc_connection_receive_contents(two.pair.client, &contents, 0);
    check_names(came, name);
    core_set_failures("");
    if (came != GPUIPC_OK) { /* the receiver goes, so that the sender need not wait for it */
        check_ok(gpuipc_connection_close(two.pair.client));
        two.pair.client = NULL;
    }
    contents_both_pass(&two);
    if (sent == GPUIPC_OK && came == GPUIPC_OK) {
        buffer_marks_check(two.into, 0, 0, FEW, number, 0);
    } else if (came == GPUIPC_OK && way == GPUIPC_TRANSPORT_HOST) {
        cr_assert_eq(core_info(two.into).is_lost, 1, "%s", failures);
    }
    contents_ends_close(&two);
    return sent != GPUIPC_OK || came != GPUIPC_OK;
}

static void check_failures(gpuipc_transport way) {
    static const char *const names[] = {
        "cuStreamGetCtx",      "cuCtxPushCurrent",    "cuThreadExchangeStreamCaptureMode",
        "cuMemHostRegister",   "cuStreamCreate",      "cuMemHostGetDevicePointer",
        "cuEventCreate",       "cuEventRecord",       "cuEventQuery",
        "cuStreamWaitEvent",   "cuMemcpyAsync",       "cuStreamBatchMemOp",
        "cuStreamWaitValue64", "cuStreamWriteValue64"};
    unsigned failed = 0;
    core_need_emulated();
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        unsigned quiet = 0;
        /* fewer of the later calls, which are alike */
        for (unsigned number = 1; quiet < QUIET_ENOUGH; number += 1 + number / CALLS_ALIKE) {
            /* some failures are made up for, so the last call is where several in a row are */
            const bool fails = transfer_fails(names[i], number, way);
            quiet = fails ? 0 : quiet + 1;
            failed += fails;
        }
    }
    cr_assert(failed > COUNT_OF(names), "only %u calls failed", failed);
}

Test(contents_fault, every_call_may_fail_by_memory) {
    check_failures(GPUIPC_TRANSPORT_VMM);
}

Test(contents_fault, every_call_may_fail_through_the_ring) {
    check_failures(GPUIPC_TRANSPORT_HOST);
}

typedef struct far_end {
    gpuipc_buffer *from;
    CUstream stream;
} far_end;

static far_end far_end_make(void) {
    const gpuipc_buffer_config config = {
        .struct_size = sizeof(config), .device = GPUIPC_DEVICE(1), .bytes = FEW};
    far_end made = {NULL, NULL};
    CUcontext popped;
    CUcontext primary;
    check_ok(gpuipc_buffer_create(core_context, &config, &made.from));
    cr_assert_eq(core_driver()->cuDevicePrimaryCtxRetain(&primary, 1), CUDA_SUCCESS);
    cr_assert_eq(core_driver()->cuCtxPushCurrent(primary), CUDA_SUCCESS);
    cr_assert_eq(core_driver()->cuStreamCreate(&made.stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    cr_assert_eq(core_driver()->cuCtxPopCurrent(&popped), CUDA_SUCCESS);
    return made;
}

static void far_end_end(const far_end *self) {
    cr_assert_eq(core_driver()->cuStreamSynchronize(self->stream), CUDA_SUCCESS);
    cr_assert_eq(core_driver()->cuStreamDestroy(self->stream), CUDA_SUCCESS);
    cr_assert_eq(core_driver()->cuDevicePrimaryCtxRelease(1), CUDA_SUCCESS);
    check_ok(gpuipc_buffer_release(self->from));
}

/* What another device sends after the first one waits for what that has sent. @return whether that failed */
static bool second_device_fails(unsigned number) {
    contents_ends two;
    char failures[64];
    contents_ends_open(&two, FEW);
    const far_end far = far_end_make();
    const gpuipc_contents contents = {.struct_size = sizeof(contents),
                                      .buffer = far.from,
                                      .bytes = FEW,
                                      .stream = far.stream,
                                      .transport = GPUIPC_TRANSPORT_HOST};
    check_ok(contents_send_range(&two, 0, FEW, GPUIPC_TRANSPORT_HOST));
    (void)snprintf(failures, sizeof(failures), "cuStreamWaitEvent:%u=2", number);
    core_set_failures(failures);
    const gpuipc_status status =
        gpuipc_connection_send_contents(two.pair.server, &contents, SOON_MS);
    core_set_failures("");
    if (status != GPUIPC_OK) {
        cr_assert_str_eq(gpuipc_error_get()->native_call, "cuStreamWaitEvent");
        cr_assert_not_null(strstr(gpuipc_error_get()->sentence, "the connection is broken"));
    }
    check_ok(gpuipc_connection_close(two.pair.client));
    two.pair.client = NULL;
    contents_both_pass(&two);
    far_end_end(&far);
    contents_ends_close(&two);
    return status != GPUIPC_OK;
}

Test(contents_fault, every_wait_of_one_device_for_another_may_fail) {
    unsigned failed = 0;
    core_need_emulated();
    core_need_devices(2);
    while (second_device_fails(failed + 1)) {
        failed++;
    }
    cr_assert_geq(failed, 4, "for its stream, and on the three of the ring: %u", failed);
}

/* ---- without stream memory operations ----------------------------------------------------- */

static void start_without_words(void) {
    core_environment_set("GPUIPC_EMULATED_MACHINE", "stream-words=0");
    core_start();
}

TestSuite(contents_no_words, .init = start_without_words, .fini = core_finish, .timeout = 120);

typedef struct sending {
    contents_ends *of;
    gpuipc_transport way;
} sending;

static gpuipc_status send_in_thread(void *argument) {
    const sending *self = argument;
    return contents_send_range(self->of, 0, CONTENTS_MANY, self->way);
}

/* Calls wait where streams cannot. */
Test(contents_no_words, go_while_both_sides_are_in_their_calls) {
    contents_ends two;
    contents_ends_open(&two, CONTENTS_MANY);
    buffer_marks_write(two.from, 4);
    for (size_t i = 0; i < 4; i++) {
        core_waiter sender;
        sending argument = {&two, contents_ways[i % 2]};
        contents_set_delay(2);
        check_ok(gpuipc_buffer_fill_async(two.into, 0, CONTENTS_MANY, 7, 1, two.receives));
        core_waiter_begin(&sender, send_in_thread, &argument);
        check_ok(contents_receive_range(&two, 0, CONTENTS_MANY, contents_ways[i % 2]));
        check_ok(core_waiter_end(&sender));
        contents_both_pass(&two);
        contents_set_delay(0);
        buffer_marks_check(two.into, 0, 0, CONTENTS_MANY, 4, 0);
    }
    contents_ends_close(&two);
}

Test(contents_no_words, are_not_waited_for_when_the_receiver_goes) {
    for (size_t i = 0; i < 2; i++) {
        contents_ends two;
        core_waiter sender;
        contents_ends_open(&two, CONTENTS_MANY);
        sending argument = {&two, contents_ways[i]};
        core_waiter_begin(&sender, send_in_thread, &argument);
        check_refused(GPUIPC_ERR_OTHER_KIND, "contents", core_receive(two.pair.client, NULL, 0));
        check_ok(gpuipc_connection_close(two.pair.client));
        two.pair.client = NULL;
        check_ok(core_waiter_end(&sender));
        contents_both_pass(&two);
        contents_ends_close(&two);
    }
}

/* ---- a copy that fails ---------------------------------------------------------------------- */

/* The sender's stream does not wait for a receiver that could not copy, and what follows arrives. */
Test(contents_fault, a_copy_that_fails_gives_the_memory_back) {
    core_need_emulated();
    contents_ends two;
    contents_ends_open(&two, FEW);
    buffer_marks_write(two.from, 3);
    check_ok(contents_send_range(&two, 0, FEW, GPUIPC_TRANSPORT_VMM));
    core_set_failures("cuMemcpyAsync:1=2");
    check_status(GPUIPC_ERR_OUT_OF_DEVICE_MEMORY,
                 contents_receive_range(&two, 0, FEW, GPUIPC_TRANSPORT_VMM));
    core_set_failures("");
    contents_both_pass(&two);
    check_ok(contents_send_range(&two, 0, FEW, GPUIPC_TRANSPORT_VMM));
    check_ok(contents_receive_range(&two, 0, FEW, GPUIPC_TRANSPORT_VMM));
    contents_both_pass(&two);
    buffer_marks_check(two.into, 0, 0, FEW, 3, 0);
    contents_ends_close(&two);
}

/* Refused before anything is taken: the contents still come where they may be written. */
Test(contents_fault, a_destination_that_may_only_be_read_is_refused) {
    contents_ends two;
    contents_ends_open(&two, FEW);
    buffer_marks_write(two.from, 5);
    check_ok(contents_send_range(&two, 0, FEW, GPUIPC_TRANSPORT_VMM));
    check_ok(gpuipc_buffer_set_access(two.into, 0, GPUIPC_ACCESS_READ));
    check_status(GPUIPC_ERR_ACCESS_DENIED,
                 contents_receive_range(&two, 0, FEW, GPUIPC_TRANSPORT_VMM));
    check_ok(gpuipc_buffer_set_access(two.into, 0, GPUIPC_ACCESS_READ_WRITE));
    check_ok(contents_receive_range(&two, 0, FEW, GPUIPC_TRANSPORT_VMM));
    contents_both_pass(&two);
    buffer_marks_check(two.into, 0, 0, FEW, 5, 0);
    contents_ends_close(&two);
}

/* What else the buffer was exported for is not waited for. */
Test(contents_no_words, wait_for_their_own_hand_over_alone) {
    contents_ends two;
    gpuipc_buffer *kept;
    contents_ends_open(&two, CONTENTS_MANY);
    buffer_marks_write(two.from, 8);
    check_ok(core_send(two.pair.server, &two.from, 1));
    check_ok(core_receive(two.pair.client, &kept, 1));
    core_waiter sender;
    sending argument = {&two, GPUIPC_TRANSPORT_VMM};
    core_waiter_begin(&sender, send_in_thread, &argument);
    check_ok(contents_receive_range(&two, 0, CONTENTS_MANY, GPUIPC_TRANSPORT_VMM));
    check_ok(core_waiter_end(&sender));
    contents_both_pass(&two);
    buffer_marks_check(two.into, 0, 0, CONTENTS_MANY, 8, 0);
    check_ok(gpuipc_buffer_release(kept));
    contents_ends_close(&two);
}

Test(contents_no_words, end_with_their_own_connection) {
    core_need_emulated(); /* where streams have words the call waits for nothing */
    contents_ends two;
    core_waiter sender;
    contents_ends_open(&two, CONTENTS_MANY);
    sending argument = {&two, GPUIPC_TRANSPORT_VMM};
    core_waiter_start(&sender, send_in_thread, &argument);
    check_ok(gpuipc_connection_close(two.pair.server));
    two.pair.server = NULL;
    check_status(GPUIPC_ERR_RELEASED, core_waiter_end(&sender));
    contents_ends_close(&two);
}

/* Nothing can be asked there, and nothing given back: neither end waits for it. */
Test(contents_fault, a_ring_ends_although_its_device_cannot_be_entered) {
    contents_ends two;
    core_need_emulated();
    contents_ends_open(&two, FEW);
    check_ok(contents_send_range(&two, 0, FEW, GPUIPC_TRANSPORT_HOST));
    check_ok(contents_receive_range(&two, 0, FEW, GPUIPC_TRANSPORT_HOST));
    contents_both_pass(&two);
    core_set_failures("cuCtxPushCurrent:*=999");
    check_ok(gpuipc_connection_close(two.pair.client));
    check_ok(gpuipc_connection_close(two.pair.server));
    two.pair.client = two.pair.server = NULL;
    check_ok(gpuipc_buffer_release(two.into));
    two.into = NULL;
    check_ok(gpuipc_context_destroy(two.other));
    core_set_failures("");
    two.other = NULL;
    contents_ends_close(&two);
    core_is_emulated = false; /* so that nobody looks for what was left behind on purpose */
}

/* The words stay mapped then (contents_flow.c, let_go). So the ends stay open, and nobody looks for what is left behind. */
TestSuite(contents_left_mapped, .init = core_start, .timeout = 60);

/* Nothing that the stream was to write came to it. It takes no room of those that come later. */
Test(contents_left_mapped, takes_no_room) {
    contents_ends two;
    core_need_emulated();
    contents_ends_open(&two, FEW);
    check_ok(contents_send_range(&two, 0, FEW, GPUIPC_TRANSPORT_HOST));
    core_set_failures("cuStreamWriteValue64:*=2");
    check_status(GPUIPC_ERR_OUT_OF_DEVICE_MEMORY,
                 contents_receive_range(&two, 0, FEW, GPUIPC_TRANSPORT_HOST));
    core_set_failures("");
    contents_both_pass(&two);
    stream_gate_make();
    stream_gate_close(two.sends); /* so that all that are sent and received take room */
    for (unsigned i = 0; i < CONTENTS_PACE_MOST; i++) {
        check_ok(contents_send_range(&two, 0, 1, GPUIPC_TRANSPORT_HOST));
        check_ok(contents_receive_range(&two, 0, 1, GPUIPC_TRANSPORT_HOST));
    }
    stream_gate_open();
    contents_both_pass(&two);
    stream_gate_end();
}

/* The receiver has heard of them, and may read what the sender takes for its own again. */
Test(contents_fault, a_stream_that_cannot_wait_for_the_return_breaks_the_connection) {
    contents_ends two;
    core_need_emulated();
    contents_ends_open(&two, FEW);
    core_set_failures("cuStreamBatchMemOp:1=2");
    check_status(GPUIPC_ERR_OUT_OF_DEVICE_MEMORY,
                 contents_send_range(&two, 0, FEW, GPUIPC_TRANSPORT_VMM));
    core_set_failures("");
    cr_assert_not_null(strstr(gpuipc_error_get()->sentence, "the contents have left"));
    check_status(GPUIPC_ERR_CONNECTION_BROKEN,
                 contents_send_range(&two, 0, FEW, GPUIPC_TRANSPORT_VMM));
    check_ok(gpuipc_connection_close(two.pair.client));
    two.pair.client = NULL;
    contents_both_pass(&two);
    contents_ends_close(&two);
}
