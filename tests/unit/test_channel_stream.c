/* SPDX-License-Identifier: MIT */
/** @file What the streams of one process leave behind at a channel's words (trail.h): who waits for whom, and until when. */
#include <stdatomic.h>

#include "base/status.h"
#include "channel/channel.h"
#include "channel_case.h"
#include "emulated.h"
#include "stream_gate.h"

/* On any driver. */
static void start(void) {
    core_start();
    check_ok(gpuipc_server_create(core_context, NULL, &channel_case_server));
}

TestSuite(channel_stream, .init = start, .fini = channel_finish, .timeout = 60);

static gpuipc_frame loan(CUstream stream) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    check_ok(gpuipc_channel_loan(channel_case_channel, stream, SOON_MS, &frame));
    return frame;
}

static void publish(const gpuipc_frame *frame, CUstream stream) {
    check_ok(gpuipc_channel_publish(channel_case_channel, frame, stream));
}

static gpuipc_frame take(gpuipc_subscription *reader, CUstream stream) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    check_ok(gpuipc_subscription_take(reader, stream, SOON_MS, &frame));
    return frame;
}

static void pass_on(gpuipc_subscription *reader, CUstream makes, CUstream uses) {
    const gpuipc_frame frame = loan(makes);
    publish(&frame, makes);
    const gpuipc_frame came = take(reader, uses);
    check_ok(gpuipc_subscription_give_back(reader, &came, uses));
}

Test(channel_stream, a_stream_need_not_wait_for_itself) {
    gpuipc_frame other = GPUIPC_FRAME_INIT;
    stream_gate_make();
    channel_case_make(&(gpuipc_channel_config){.slots = 1});
    CUstream makes = stream_gate_stream();
    CUstream another = stream_gate_stream();
    CUstream uses = stream_gate_stream();
    gpuipc_subscription *reader = channel_case_open(NULL);
    stream_gate_close(makes);
    for (int i = 0; i < 3; i++) {
        pass_on(reader, makes, uses);
    }
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_channel_loan(channel_case_channel, another, 0, &other));
    check_status(GPUIPC_ERR_TIMEOUT,
                 gpuipc_channel_loan(channel_case_channel, GPUIPC_NO_STREAM, 0, &other));
    stream_gate_open();
    other = loan(another);
    publish(&other, another);
    check_ok(gpuipc_subscription_close(reader));
    stream_gate_stream_end(makes);
    stream_gate_stream_end(another);
    stream_gate_stream_end(uses);
    stream_gate_end();
}

/* Nobody has seen what is published: the host waits for its stream, and is ahead of it by the slots that there are. */
Test(channel_stream, who_publishes_for_nobody_is_not_ahead_without_end) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    stream_gate_make();
    channel_case_make(&(gpuipc_channel_config){.slots = 2});
    CUstream makes = stream_gate_stream();
    gpuipc_subscription *reader =
        channel_case_open(&(gpuipc_subscription_config){.delivery = GPUIPC_DELIVERY_NEWEST});
    stream_gate_close(makes);
    for (int i = 0; i < 2; i++) {
        frame = loan(makes);
        publish(&frame, makes);
    }
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_channel_loan(channel_case_channel, makes, 0, &frame));
    stream_gate_open();
    stream_gate_synchronize(makes);
    check_ok(gpuipc_subscription_close(reader));
    stream_gate_stream_end(makes);
    stream_gate_end();
}

/* The words are on the stream, and no number is given out twice. */
Test(channel_stream, a_turn_that_cannot_be_marked_leaves_a_word) {
    gpuipc_frame came = GPUIPC_FRAME_INIT;
    core_need_emulated();
    stream_gate_make();
    channel_case_make(&(gpuipc_channel_config){.slots = 1});
    CUstream makes = stream_gate_stream();
    gpuipc_subscription *reader = channel_case_open(NULL);
    gpuipc_frame frame = loan(makes);
    core_set_failures("cuEventRecord:1=999");
    publish(&frame, makes);
    core_set_failures("");
    cr_assert_eq(channel_case_receive(reader), 1);
    frame = loan(makes);
    stream_gate_close(makes);
    publish(&frame, makes);
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_subscription_take(reader, GPUIPC_NO_STREAM, 20, &came));
    stream_gate_open();
    cr_assert_eq(take(reader, GPUIPC_NO_STREAM).sequence, 2);
    check_ok(gpuipc_subscription_close(reader));
    stream_gate_stream_end(makes);
    stream_gate_end();
}

/* The call comes back although the other end's stream stands still, and the words stay mapped until it goes on.
 * @param how what fails, at each call that records
 * @param makes the writer's stream, made current */
static void cannot_be_marked(const char *how, CUstream makes) {
    gpuipc_frame other = GPUIPC_FRAME_INIT;
    channel_case_make(&(gpuipc_channel_config){.slots = 1});
    CUstream uses = stream_gate_stream();
    CUstream another = stream_gate_stream();
    gpuipc_subscription *reader = channel_case_open(NULL);
    pass_on(reader, makes, uses);
    stream_gate_synchronize(uses);
    for (int i = 0; i < 3; i++) {
        stream_gate_close(uses);
        pass_on(reader, makes, uses);
        core_set_failures(how);
        const gpuipc_frame waits = loan(makes); /* for the reader's stream */
        core_set_failures("");
        stream_gate_check_waits(makes);
        check_ok(gpuipc_channel_discard(channel_case_channel, &waits));
        other = loan(another); /* behind the former */
        stream_gate_check_waits(another);
        stream_gate_open();
        publish(&other, another);
        cr_assert_eq(channel_case_receive(reader), 2 * (uint64_t)i + 3);
    }
    stream_gate_close(uses);
    pass_on(reader, makes, uses);
    core_set_failures(how);
    (void)loan(makes);
    core_set_failures("");
    check_ok(gpuipc_channel_destroy(channel_case_channel));
    channel_case_channel = NULL;
    check_ok(gpuipc_subscription_close(reader));
    stream_gate_check_waits(makes);
    stream_gate_open();
    stream_gate_synchronize(makes);
    stream_gate_synchronize(another);
    stream_gate_stream_end(uses);
    stream_gate_stream_end(another);
}

Test(channel_stream, a_stream_that_waits_and_cannot_be_marked_is_not_waited_for) {
    core_need_emulated();
    stream_gate_make();
    CUstream makes = stream_gate_stream();
    cannot_be_marked("cuEventRecord:1=999", makes);
    stream_gate_stream_end(makes);
    stream_gate_end();
}

static void find(const char *name, void *out_function) {
    void *symbol = os_library_symbol(core_driver()->library, name);
    cr_assert_not_null(symbol);
    memcpy(out_function, &symbol, sizeof(symbol));
}

/* Of the emulated driver; else 0. */
static uint64_t count_events(void) {
    gpuipc_emulated_live_fn get_live;
    gpuipc_emulated_live live = {0};
    if (core_is_emulated) {
        find(GPUIPC_EMULATED_LIVE, &get_live);
        get_live(&live);
    }
    return live.events;
}

/* Nothing runs in a CUDA context that has ended, and no event of the library's ends with it. */
Test(channel_stream, a_context_of_the_programs_own_may_end) {
    CUresult (*create)(CUcontext *, unsigned, CUdevice);
    CUresult (*destroy)(CUcontext);
    CUcontext own;
    CUstream stream;
    const driver *drv = core_driver();
    find("cuCtxCreate_v2", &create);
    find("cuCtxDestroy_v2", &destroy);
    stream_gate_make();
    channel_case_make(&(gpuipc_channel_config){.slots = 1});
    CUstream makes = stream_gate_stream();
    gpuipc_subscription *reader = channel_case_open(NULL);
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(create(&own, 0, 0), CUDA_SUCCESS);
        cr_assert_eq(drv->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
        pass_on(reader, stream, stream);
        cr_assert_eq(drv->cuStreamSynchronize(stream), CUDA_SUCCESS);
        const uint64_t events = count_events();
        cr_assert_eq(destroy(own), CUDA_SUCCESS);
        cr_assert_eq(count_events(), events);
        if (i > 0) {
            pass_on(reader, makes, makes);
            stream_gate_synchronize(makes);
        }
    }
    channel_case_send();
    cr_assert_eq(channel_case_receive(reader), 6);
    check_ok(gpuipc_subscription_close(reader));
    stream_gate_stream_end(makes);
    stream_gate_end();
}

/* More can fail there. */
Test(channel_stream, a_stream_of_the_programs_own_context_is_not_waited_for_either) {
    CUresult (*create)(CUcontext *, unsigned, CUdevice);
    CUresult (*destroy)(CUcontext);
    CUcontext own;
    CUstream makes;
    core_need_emulated();
    find("cuCtxCreate_v2", &create);
    find("cuCtxDestroy_v2", &destroy);
    stream_gate_make();
    cr_assert_eq(create(&own, 0, 0), CUDA_SUCCESS);
    cr_assert_eq(core_driver()->cuStreamCreate(&makes, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    cr_assert_eq(core_driver()->cuCtxPopCurrent(&own), CUDA_SUCCESS);
    cannot_be_marked("cuStreamCreate:1=2", makes);
    cr_assert_eq(destroy(own), CUDA_SUCCESS);
    stream_gate_end();
}

/* To ask an event would end a capture of another stream's. */
Test(channel_stream, asking_where_a_stream_is_leaves_captures_alone) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    stream_gate_make();
    channel_case_make(&(gpuipc_channel_config){.slots = 1});
    CUstream makes = stream_gate_stream();
    CUstream captured = stream_gate_stream();
    CUstream uses = stream_gate_stream();
    gpuipc_subscription *reader = channel_case_open(NULL);
    stream_gate_close(makes);
    frame = loan(makes);
    publish(&frame, makes);
    core_set_captured(true, captured);
    const gpuipc_frame came = take(reader, uses); /* the watch looks after it */
    check_status(GPUIPC_ERR_TIMEOUT,
                 gpuipc_channel_loan(channel_case_channel, GPUIPC_NO_STREAM, 20, &frame));
    check_ok(gpuipc_subscription_give_back(reader, &came, uses));
    core_set_captured(false, NULL);
    stream_gate_open();
    stream_gate_synchronize(uses);
    check_ok(gpuipc_subscription_close(reader));
    stream_gate_stream_end(makes);
    stream_gate_stream_end(captured);
    stream_gate_stream_end(uses);
    stream_gate_end();
}

typedef struct waiting {
    gpuipc_subscription *reader; /* NULL: it loans */
    CUstream stream;
    gpuipc_frame frame;
    gpuipc_status status;
} waiting;

static void wait_for_frame(void *argument) {
    waiting *self = argument;
    self->frame = (gpuipc_frame)GPUIPC_FRAME_INIT;
    self->status = self->reader != NULL
                       ? gpuipc_subscription_take(self->reader, self->stream, -1, &self->frame)
                       : gpuipc_channel_loan(channel_case_channel, self->stream, -1, &self->frame);
}

/* It sleeps in the call, so it has asked about its stream. */
static os_thread *start_waiting(waiting *self) {
    const uint32_t sleeps = self->reader != NULL ? CHANNEL_READER_SLEEPS : CHANNEL_WRITER_SLEEPS;
    const os_deadline end = os_deadline_after(SOON_MS);
    os_thread *thread;
    channel *of;
    check_ok(channel_acquire(channel_case_channel, &of));
    check_ok(os_thread_start(wait_for_frame, self, &thread));
    while (channel_read(of->readers[0].page, sleeps) != 1) {
        cr_assert_not(os_deadline_passed(end));
    }
    object_unreference(&of->object);
    return thread;
}

/* What the stream would wait for once it would wait for at each launch. */
Test(channel_stream, a_capture_that_begins_while_a_call_waits_gets_nothing) {
    core_need_emulated();
    stream_gate_make();
    channel_case_make(&(gpuipc_channel_config){.slots = 1});
    CUstream makes = stream_gate_stream();
    CUstream uses = stream_gate_stream();
    gpuipc_subscription *reader = channel_case_open(NULL);
    waiting takes = {.reader = reader, .stream = uses};
    waiting loans = {.reader = NULL, .stream = makes};
    const gpuipc_frame frame = loan(makes);
    os_thread *thread = start_waiting(&takes);
    core_set_captured(true, uses);
    stream_gate_close(makes);
    publish(&frame, makes);
    os_thread_join(thread);
    check_status(GPUIPC_ERR_CUDA, takes.status);
    core_set_captured(false, NULL);
    const gpuipc_frame came = take(reader, uses); /* it is the next call's */
    cr_assert_eq(came.sequence, 1);
    stream_gate_open();
    stream_gate_synchronize(uses);
    thread = start_waiting(&loans);
    core_set_captured(true, makes);
    stream_gate_close(uses);
    check_ok(gpuipc_subscription_give_back(reader, &came, uses));
    os_thread_join(thread);
    check_status(GPUIPC_ERR_CUDA, loans.status);
    core_set_captured(false, NULL);
    stream_gate_open();
    pass_on(reader, makes, uses);
    check_ok(gpuipc_subscription_close(reader));
    stream_gate_stream_end(makes);
    stream_gate_stream_end(uses);
    stream_gate_end();
}

/* Its stream would write the number of the frame before over that of this one. */
Test(channel_stream, what_a_stream_has_not_come_to_is_not_published_without_it) {
    stream_gate_make();
    channel_case_make(&(gpuipc_channel_config){.slots = 1});
    CUstream makes = stream_gate_stream();
    CUstream uses = stream_gate_stream();
    gpuipc_subscription *reader = channel_case_open(NULL);
    stream_gate_close(makes);
    pass_on(reader, makes, uses);
    const gpuipc_frame frame = loan(makes);
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_channel_publish(channel_case_channel, &frame, GPUIPC_NO_STREAM));
    stream_gate_open();
    stream_gate_synchronize(makes);
    publish(&frame, GPUIPC_NO_STREAM);
    check_ok(gpuipc_subscription_close(reader));
    stream_gate_stream_end(makes);
    stream_gate_stream_end(uses);
    stream_gate_end();
}

/* It was loaned for a stream that waits for a reader's, which still uses the frame before. */
Test(channel_stream, what_a_stream_still_waits_for_is_not_published_without_it) {
    stream_gate_make();
    channel_case_make(&(gpuipc_channel_config){.slots = 1});
    CUstream makes = stream_gate_stream();
    CUstream uses = stream_gate_stream();
    gpuipc_subscription *reader = channel_case_open(NULL);
    channel_case_send();
    const gpuipc_frame came = take(reader, uses);
    stream_gate_close(uses);
    check_ok(gpuipc_subscription_give_back(reader, &came, uses));
    const gpuipc_frame frame = loan(makes);
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_channel_publish(channel_case_channel, &frame, GPUIPC_NO_STREAM));
    stream_gate_open();
    stream_gate_synchronize(makes);
    publish(&frame, GPUIPC_NO_STREAM);
    check_ok(gpuipc_subscription_close(reader));
    stream_gate_stream_end(makes);
    stream_gate_stream_end(uses);
    stream_gate_end();
}

static void hold_stream(void *is_over) {
    while (!atomic_load((atomic_bool *)is_over)) {
        os_sleep_ms(1);
    }
}

/* What a loan that was given up waits for is in nobody's way when it is there. */
Test(channel_stream, a_loan_that_was_given_up_is_not_waited_for) {
    static atomic_bool is_over;
    stream_gate_make();
    channel_case_make(&(gpuipc_channel_config){.slots = 1});
    CUstream makes = stream_gate_stream();
    CUstream uses = stream_gate_stream();
    gpuipc_subscription *reader = channel_case_open(NULL);
    channel_case_send();
    gpuipc_frame came = take(reader, uses);
    cr_assert_eq(core_driver()->cuLaunchHostFunc(uses, hold_stream, &is_over), CUDA_SUCCESS);
    check_ok(gpuipc_subscription_give_back(reader, &came, uses));
    stream_gate_close(makes); /* with other work, for long */
    gpuipc_frame frame = loan(makes);
    check_ok(gpuipc_channel_discard(channel_case_channel, &frame));
    atomic_store(&is_over, true);
    stream_gate_synchronize(uses);
    frame = loan(GPUIPC_NO_STREAM);
    publish(&frame, GPUIPC_NO_STREAM);
    came = take(reader, GPUIPC_NO_STREAM);
    check_ok(gpuipc_subscription_give_back(reader, &came, GPUIPC_NO_STREAM));
    stream_gate_open();
    check_ok(gpuipc_subscription_close(reader));
    stream_gate_stream_end(makes);
    stream_gate_stream_end(uses);
    stream_gate_end();
}

/* The slot is given back by one stream and taken on another, again and again: each waits for the one before. */
Test(channel_stream, streams_take_turns_at_a_slot) {
    stream_gate_make();
    channel_case_make(&(gpuipc_channel_config){.slots = 1});
    CUstream streams[4];
    for (int i = 0; i < 4; i++) {
        streams[i] = stream_gate_stream();
    }
    gpuipc_subscription *reader = channel_case_open(NULL);
    for (int i = 0; i < 200; i++) {
        stream_gate_close(streams[i % 4]);
        const gpuipc_frame frame = loan(streams[i % 4]);
        publish(&frame, streams[i % 4]);
        const gpuipc_frame came = take(reader, streams[(i + 1 + i / 4) % 4]);
        cr_assert_eq(came.sequence, (uint64_t)i + 1);
        check_ok(gpuipc_subscription_give_back(reader, &came, streams[(i + 2 + i / 7) % 4]));
        stream_gate_open();
        stream_gate_synchronize(streams[i % 4]); /* before the gate is closed again */
    }
    for (int i = 0; i < 4; i++) {
        stream_gate_synchronize(streams[i]);
    }
    channel_case_send();
    cr_assert_eq(channel_case_receive(reader), 201);
    check_ok(gpuipc_subscription_close(reader));
    for (int i = 0; i < 4; i++) {
        stream_gate_stream_end(streams[i]);
    }
    stream_gate_end();
}

static CUstream stream_of(int number, CUcontext *out_context) {
    const driver *drv = core_driver();
    CUstream made;
    cr_assert_eq(drv->cuDevicePrimaryCtxRetain(out_context, number), CUDA_SUCCESS);
    cr_assert_eq(drv->cuCtxPushCurrent(*out_context), CUDA_SUCCESS);
    cr_assert_eq(drv->cuStreamCreate(&made, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    return made;
}

static void end_stream_of(int number, CUstream stream) {
    const driver *drv = core_driver();
    CUcontext popped;
    cr_assert_eq(drv->cuStreamSynchronize(stream), CUDA_SUCCESS);
    cr_assert_eq(drv->cuStreamDestroy(stream), CUDA_SUCCESS);
    cr_assert_eq(drv->cuCtxPopCurrent(&popped), CUDA_SUCCESS);
    cr_assert_eq(drv->cuDevicePrimaryCtxRelease(number), CUDA_SUCCESS);
}

/* An event is of one CUDA context: the ones that were used before are used again. */
Test(channel_stream, streams_of_two_devices_take_turns_at_a_slot) {
    CUcontext contexts[2];
    CUstream streams[2];
    core_need_devices(2);
    stream_gate_make();
    channel_case_make(&(gpuipc_channel_config){.slots = 1});
    gpuipc_subscription *reader = channel_case_open(NULL);
    for (int i = 0; i < 2; i++) {
        streams[i] = stream_of(i, &contexts[i]);
    }
    if (core_is_emulated) {
        core_set_failures(""); /* counts from here on */
    }
    for (int i = 0; i < 20; i++) {
        const gpuipc_frame frame = loan(streams[i % 2]);
        publish(&frame, streams[i % 2]);
        const gpuipc_frame came = take(reader, streams[(i + 1) % 2]);
        check_ok(gpuipc_subscription_give_back(reader, &came, streams[(i + 1) % 2]));
    }
    if (core_is_emulated) {
        cr_assert_leq(core_calls("cuEventCreate"), 8); /* two uses at either end, two contexts */
    }
    check_ok(gpuipc_subscription_close(reader));
    for (int i = 1; i >= 0; i--) {
        end_stream_of(i, streams[i]);
    }
    stream_gate_end();
}

/* Enough for a writer that learns of a release too early to be given its wait first, on every machine that was tried. */
#define SHARED_FRAMES 3000

static gpuipc_status write_on_shared(void *stream) {
    gpuipc_status status = GPUIPC_OK;
    for (int i = 0; i < SHARED_FRAMES && status == GPUIPC_OK; i++) {
        gpuipc_frame frame = GPUIPC_FRAME_INIT;
        status = gpuipc_channel_loan(channel_case_channel, stream, SOON_MS, &frame);
        if (status == GPUIPC_OK) {
            status = gpuipc_channel_publish(channel_case_channel, &frame, stream);
        }
    }
    return status;
}

/* Its own thread writes, on the same stream. */
static void read_on_shared(gpuipc_delivery delivery, CUstream stream) {
    core_waiter writer;
    channel_case_make(&(gpuipc_channel_config){.slots = 4});
    gpuipc_subscription *reader =
        channel_case_open(&(gpuipc_subscription_config){.delivery = delivery});
    core_waiter_begin(&writer, write_on_shared, stream);
    for (uint64_t sequence = 0; sequence < SHARED_FRAMES;) {
        const gpuipc_frame came = take(reader, stream);
        cr_assert(came.sequence == sequence + 1 + came.missed);
        sequence = came.sequence;
        check_ok(gpuipc_subscription_give_back(reader, &came, stream));
    }
    check_ok(core_waiter_end(&writer));
    cr_assert_eq(channel_case_reader().state, GPUIPC_READER_ACTIVE);
    stream_gate_synchronize(stream);
    check_ok(gpuipc_subscription_close(reader));
}

Test(channel_stream, a_writer_and_a_reader_may_have_one_stream) {
    stream_gate_make();
    CUstream stream = stream_gate_stream();
    read_on_shared(GPUIPC_DELIVERY_ALL, stream);
    stream_gate_stream_end(stream);
    stream_gate_end();
}

Test(channel_stream, and_the_default_stream) {
    stream_gate_make();
    read_on_shared(GPUIPC_DELIVERY_NEWEST, NULL);
    stream_gate_end();
}

/* Neither end waits for the other's stream, nor does its page go before. */
Test(channel_stream, both_ends_may_go_while_their_streams_wait) {
    stream_gate_make();
    channel_case_make(&(gpuipc_channel_config){.slots = 2});
    CUstream makes = stream_gate_stream();
    CUstream uses = stream_gate_stream();
    gpuipc_subscription *reader = channel_case_open(NULL);
    stream_gate_close(makes);
    gpuipc_frame frame = loan(makes);
    publish(&frame, makes);
    const gpuipc_frame came = take(reader, uses);
    check_ok(gpuipc_subscription_give_back(reader, &came, uses));
    check_ok(gpuipc_subscription_close(reader));
    check_ok(gpuipc_channel_destroy(channel_case_channel));
    channel_case_channel = NULL;
    stream_gate_check_waits(uses);
    stream_gate_open();
    stream_gate_synchronize(makes);
    stream_gate_synchronize(uses);
    stream_gate_stream_end(makes);
    stream_gate_stream_end(uses);
    stream_gate_end();
}
