/* SPDX-License-Identifier: MIT */
/** @file Buffers given up behind the work of a stream or of a device, which may use them until it is done. The
 *  emulated driver ends a CUDA context whose work loses its memory, as a real one does. */
#include <string.h>

#include "child.h"
#include "drop_ends.h"
#include "memory/buffer.h"
#include "stream_gate.h"

static CUstream held; /* behind the gate */
static gpuipc_buffer *subject;
static CUdeviceptr address;

static void begin_without_context(void) {
    core_start_without_context();
}

static void use(void) {
    stream_gate_make();
    held = stream_gate_stream();
    subject = core_buffer(core_unit, 0);
    address = core_info(subject).address;
}

static void begin(void) {
    core_start();
    use();
}

static void finish(void) {
    stream_gate_open(); /* also after a failure */
    (void)gpuipc_buffer_release(subject);
    if (held != NULL) {
        (void)core_driver()->cuStreamSynchronize(held);
    }
    stream_gate_stream_end(held);
    stream_gate_end();
    core_finish();
}

TestSuite(drop, .init = begin, .fini = finish, .timeout = 60);
TestSuite(drop_machine, .init = begin_without_context, .fini = finish, .timeout = 60);

/* Work that uses the buffer, and waits for the gate. */
static void use_buffer(CUstream stream) {
    stream_gate_close(stream);
    check_ok(gpuipc_buffer_fill_async(subject, 0, core_unit, 0x5a5a5a5a, 4, stream));
    stream_gate_check_waits(stream);
}

static void drop_buffer(void) {
    check_ok(gpuipc_buffer_drop(subject));
    check_status(GPUIPC_ERR_RELEASED, gpuipc_buffer_drop(subject));
    subject = NULL;
}

/* Until the place is marked for which it waits, and asked for. */
static void await_calls(const char *name, uint64_t count) {
    const os_deadline deadline = os_deadline_after(SOON_MS);
    while (core_is_emulated && core_calls(name) < count) {
        cr_assert_not(os_deadline_passed(deadline));
        os_sleep_ms(1);
    }
}

Test(drop, waits_for_the_work_of_the_device) {
    use_buffer(held);
    drop_buffer();
    await_calls("cuCtxRecordEvent", 1);
    await_calls("cuEventQuery", 3);
    cr_assert(drop_exists(address));
    stream_gate_check_waits(held);
    stream_gate_open();
    stream_gate_synchronize(held);
    drop_check_ends(address);
}

Test(drop, ends_at_once_where_nothing_runs) {
    drop_buffer();
    drop_check_ends(address);
    check_ok(gpuipc_buffer_drop(NULL));
    check_ok(gpuipc_buffer_release_async(NULL, NULL));
}

/* What is given later, by this thread or another, does not hold it up. */
Test(drop, work_that_comes_later_is_not_waited_for) {
    gpuipc_buffer *first = subject;
    const CUdeviceptr at = address;
    subject = core_buffer(core_unit, 0);
    check_ok(gpuipc_buffer_drop(first));
    drop_check_ends(at);
    use_buffer(held);
    drop_buffer();
}

/* While one mark is pending, what is dropped waits for the next. */
Test(drop, work_between_two_drops_is_waited_for) {
    gpuipc_buffer *first = core_buffer(core_unit, 0);
    const CUdeviceptr at = core_info(first).address;
    stream_gate_close(held);
    check_ok(gpuipc_buffer_drop(first));
    await_calls("cuCtxRecordEvent", 1);
    check_ok(gpuipc_buffer_fill_async(subject, 0, core_unit, 1, 4, held));
    drop_buffer();
    cr_assert(drop_exists(at));
    cr_assert(drop_exists(address));
    stream_gate_open();
    stream_gate_synchronize(held);
    drop_check_ends(at);
    drop_check_ends(address);
}

Test(drop, a_reference_of_somebody_else_keeps_it) {
    check_ok(gpuipc_buffer_retain(subject));
    use_buffer(held);
    check_ok(gpuipc_buffer_drop(subject));
    check_ok(gpuipc_buffer_drop(subject));
    check_status(GPUIPC_ERR_RELEASED, gpuipc_buffer_drop(subject));
    subject = NULL;
    cr_assert(drop_exists(address));
    stream_gate_open();
    drop_check_ends(address);
    stream_gate_synchronize(held);
}

/* However often it is dropped meanwhile, one reference waits: the others are given up by whoever drops. */
Test(drop, the_same_buffer_waits_once) {
    enum {
        MANY = 100
    };
    buffer *self;
    check_ok(buffer_acquire(subject, &self));
    use_buffer(held);
    for (int i = 0; i < MANY; i++) {
        check_ok(gpuipc_buffer_retain(subject));
        check_ok(gpuipc_buffer_drop(subject));
    }
    cr_assert_eq(atomic_load(&self->handles), 2, "%u", atomic_load(&self->handles));
    drop_buffer();
    cr_assert_eq(atomic_load(&self->handles), 1, "%u", atomic_load(&self->handles));
    buffer_unreference(self);
    await_calls("cuCtxRecordEvent", 1);
    await_calls("cuEventQuery", 3);
    cr_assert(drop_exists(address));
    stream_gate_open();
    stream_gate_synchronize(held);
    drop_check_ends(address);
}

/* One mark stands already; what was given behind it needs another. */
Test(drop, dropped_again_it_waits_for_what_was_given_since) {
    check_ok(gpuipc_buffer_retain(subject));
    stream_gate_close(held);
    check_ok(gpuipc_buffer_drop(subject));
    await_calls("cuCtxRecordEvent", 1);
    check_ok(gpuipc_buffer_fill_async(subject, 0, core_unit, 1, 4, held));
    drop_buffer();
    cr_assert(drop_exists(address));
    stream_gate_open();
    stream_gate_synchronize(held);
    drop_check_ends(address);
    if (core_is_emulated) {
        cr_assert_eq(core_calls("cuCtxRecordEvent"), 2);
    }
}

/* Its last holder has nothing running, but the one that dropped it has. */
Test(drop, a_release_by_another_holder_does_not_unmap_it) {
    check_ok(gpuipc_buffer_retain(subject));
    use_buffer(held);
    check_ok(gpuipc_buffer_drop(subject));
    check_ok(gpuipc_buffer_release(subject));
    subject = NULL;
    cr_assert(drop_exists(address));
    stream_gate_open();
    stream_gate_synchronize(held);
    drop_check_ends(address);
}

Test(drop, makes_no_call_of_the_driver) {
    core_need_emulated();
    check_ok(gpuipc_drops_pause()); /* or the thread would make some */
    core_set_failures("");
    drop_buffer();
    cr_assert_eq(core_calls("cuCtxRecordEvent"), 0);
    cr_assert_eq(core_calls("cuMemUnmap"), 0);
    cr_assert_eq(core_calls("cuCtxPushCurrent"), 0);
    check_ok(gpuipc_drops_resume());
    drop_check_ends(address);
}

static void drop_on_stream(void *data) {
    *(gpuipc_status *)data = gpuipc_buffer_drop(subject);
}

/* In a host function no call of the driver is allowed. */
Test(drop, may_be_called_by_a_host_function) {
    gpuipc_status status = GPUIPC_ERR_TIMEOUT;
    if (!core_driver()->has_hostfunc) {
        cr_skip_test("no host functions");
    }
    cr_assert_eq(core_driver()->cuLaunchHostFunc(held, drop_on_stream, &status), CUDA_SUCCESS);
    stream_gate_synchronize(held);
    check_ok(status);
    subject = NULL;
    drop_check_ends(address);
}

enum {
    THREADS = 4,
    EACH = 500
};

static gpuipc_status drop_many(void *argument) {
    gpuipc_buffer **mine = argument;
    gpuipc_status status = GPUIPC_OK;
    for (int i = 0; i < EACH && status == GPUIPC_OK; i++) {
        status = gpuipc_buffer_drop(mine[i]);
    }
    return status;
}

Test(drop, many_threads_drop_at_once) {
    static gpuipc_buffer *all[THREADS][EACH];
    core_waiter threads[THREADS];
    for (int i = 0; i < THREADS * EACH; i++) {
        check_ok(gpuipc_buffer_wrap(core_context, address, core_unit, &all[i / EACH][i % EACH]));
    }
    use_buffer(held);
    for (int i = 0; i < THREADS; i++) {
        core_waiter_begin(&threads[i], drop_many, all[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        check_ok(core_waiter_end(&threads[i]));
    }
    stream_gate_open();
    stream_gate_synchronize(held);
    drop_buffer();
    drop_check_ends(address);
}

/* All that is dropped between two looks shares a mark. */
Test(drop, a_hundred_thousand_share_few_marks) {
    core_need_emulated();
    for (int i = 0; i < 100000; i++) {
        check_ok(gpuipc_buffer_retain(subject));
    }
    core_set_failures("");
    for (int i = 0; i < 100000; i++) {
        check_ok(gpuipc_buffer_drop(subject));
    }
    drop_buffer();
    drop_check_ends(address);
    cr_assert_lt(core_calls("cuCtxRecordEvent"), 5000);
    core_set_failures("");
    for (int i = 0; i < 2000; i++) {
        gpuipc_buffer *made = core_buffer(core_unit, 0);
        address = core_info(made).address;
        check_ok(gpuipc_buffer_drop(made));
    }
    drop_check_ends(address);
    cr_assert_leq(core_calls("cuEventCreate"), 2);
}

/* ---- captures -------------------------------------------------------------------------------- */

Test(drop, no_mark_is_made_while_it_is_paused) {
    check_ok(gpuipc_drops_pause());
    check_ok(gpuipc_drops_pause());
    if (core_is_emulated) {
        core_set_failures("");
    }
    drop_buffer();
    await_calls("cuDevicePrimaryCtxGetState", 5); /* it looks, */
    check_ok(gpuipc_drops_resume());
    if (core_is_emulated) {
        cr_assert_eq(core_calls("cuCtxRecordEvent"), 0); /* and no more */
    }
    cr_assert(drop_exists(address));
    check_ok(gpuipc_drops_resume());
    drop_check_ends(address);
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_drops_resume());
}

Test(drop, a_capture_of_a_blocking_stream_is_seen_before_it_is_harmed) {
    core_need_emulated();
    core_set_captured(true, NULL);
    core_set_failures("");
    drop_buffer();
    await_calls("cuStreamIsCapturing", 1);
    cr_assert(drop_exists(address));
    core_set_captured(false, NULL);
    drop_check_ends(address);
}

/* Ending the capture fails the test where something made it invalid. */
Test(drop, a_capture_is_left_alone_while_it_is_paused) {
    core_need_emulated();
    check_ok(gpuipc_drops_pause());
    core_set_captured(true, held);
    core_set_failures("");
    drop_buffer();
    await_calls("cuDevicePrimaryCtxGetState", 3);
    core_set_captured(false, NULL);
    cr_assert(drop_exists(address));
    check_ok(gpuipc_drops_resume());
    drop_check_ends(address);
}

/* The release of one buffer asks events and unmaps while another thread's stream is captured. */
Test(drop, a_release_on_a_stream_leaves_a_capture_alone) {
    core_need_emulated();
    CUstream other = stream_gate_stream();
    core_set_captured(true, other);
    check_ok(gpuipc_buffer_release_async(subject, held));
    subject = NULL;
    drop_check_ends(address);
    core_set_captured(false, NULL);
    stream_gate_stream_end(other);
}

Test(drop, a_refused_mark_is_made_again) {
    core_need_emulated();
    core_set_failures("cuCtxRecordEvent:1=900;cuCtxRecordEvent:2=2;cuEventCreate:1=2");
    drop_buffer();
    drop_check_ends(address);
    cr_assert_eq(core_calls("cuCtxRecordEvent"), 3);
}

Test(drop, a_captured_stream_cannot_release) {
    core_need_emulated();
    core_set_captured(true, held);
    check_status(GPUIPC_ERR_CUDA, gpuipc_buffer_release_async(subject, held));
    core_set_captured(false, NULL);
    check_ok(gpuipc_buffer_release_async(subject, held));
    subject = NULL;
    drop_check_ends(address);
}

/* ---- in stream order --------------------------------------------------------------------------- */

Test(drop, a_release_on_a_stream_waits_for_that_stream_alone) {
    gpuipc_buffer *quick = core_buffer(core_unit, 0);
    const CUdeviceptr at = core_info(quick).address;
    CUstream other = stream_gate_stream();
    use_buffer(held);
    check_ok(gpuipc_buffer_fill_async(quick, 0, core_unit, 1, 4, other));
    check_ok(gpuipc_buffer_release_async(quick, other));
    check_ok(gpuipc_buffer_release_async(subject, held));
    check_status(GPUIPC_ERR_RELEASED, gpuipc_buffer_release_async(subject, held));
    subject = NULL;
    drop_check_ends(at);
    cr_assert(drop_exists(address));
    stream_gate_open();
    stream_gate_synchronize(held);
    stream_gate_synchronize(other);
    drop_check_ends(address);
    stream_gate_stream_end(other);
}

Test(drop, a_release_whose_event_is_refused_waits_for_the_device) {
    core_need_emulated();
    use_buffer(held);
    core_set_failures("cuEventCreate:1=2");
    check_status(GPUIPC_ERR_OUT_OF_DEVICE_MEMORY, gpuipc_buffer_release_async(subject, held));
    core_set_failures("cuEventRecord:1=999");
    check_ok(gpuipc_buffer_release_async(subject, held));
    subject = NULL;
    await_calls("cuEventQuery", 2);
    cr_assert(drop_exists(address));
    stream_gate_open();
    stream_gate_synchronize(held);
    drop_check_ends(address);
}

/* ---- what was received --------------------------------------------------------------------------- */

static void take_over(core_pair *pair, gpuipc_buffer **out_far) {
    core_pair_open(pair, core_context, core_context);
    check_ok(core_send(pair->client, &subject, 1));
    check_ok(core_receive(pair->server, out_far, 1));
}

Test(drop, what_was_received_is_returned_when_the_stream_is_there) {
    core_pair pair;
    gpuipc_buffer *far;
    take_over(&pair, &far);
    stream_gate_close(held);
    check_ok(gpuipc_buffer_release_async(far, held));
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_buffer_await_returns(subject, 20));
    stream_gate_open();
    check_ok(gpuipc_buffer_await_returns(subject, SOON_MS));
    core_pair_close(&pair);
}

Test(drop, what_was_received_is_returned_when_the_device_is_there) {
    core_pair pair;
    gpuipc_buffer *far;
    take_over(&pair, &far);
    stream_gate_close(held);
    check_ok(gpuipc_buffer_drop(far));
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_buffer_await_returns(subject, 20));
    stream_gate_open();
    check_ok(gpuipc_buffer_await_returns(subject, SOON_MS));
    core_pair_close(&pair);
}

/* Memory whose end waits for the devices: by a call of the program's, since the thread's would hold up others. */
static void check_ends_by_calls(CUdeviceptr at) {
    const os_deadline deadline = os_deadline_after(SOON_MS);
    while (drop_exists(at)) {
        cr_assert_not(os_deadline_passed(deadline));
        check_ok(gpuipc_buffer_await_returns(subject, 0));
        os_sleep_ms(1);
    }
}

Test(drop, memory_of_every_transport_ends) {
    static const gpuipc_transport each[] = {GPUIPC_TRANSPORT_LEGACY, GPUIPC_TRANSPORT_P2P,
                                            GPUIPC_TRANSPORT_HOST};
    for (size_t i = 0; i < 3; i++) {
        const gpuipc_buffer_config config = {
            .struct_size = sizeof(config), .transport = each[i], .bytes = core_unit};
        gpuipc_buffer *made;
        check_ok(gpuipc_buffer_create(core_context, &config, &made));
        const CUdeviceptr at = core_info(made).address;
        stream_gate_close(held);
        check_ok(gpuipc_buffer_fill_async(made, 0, core_unit, 1, 4, held));
        if (i % 2 == 0) {
            check_ok(gpuipc_buffer_drop(made));
        } else {
            check_ok(gpuipc_buffer_release_async(made, held));
        }
        stream_gate_check_waits(held);
        stream_gate_open();
        stream_gate_synchronize(held);
        if (each[i] != GPUIPC_TRANSPORT_HOST) {
            check_ends_by_calls(at);
        }
    }
}

/* Work that is pending when it passes would be waited for, and every other call of the driver with it. */
Test(drop, the_thread_does_not_wait_for_the_devices) {
    const gpuipc_buffer_config config = {
        .struct_size = sizeof(config), .transport = GPUIPC_TRANSPORT_LEGACY, .bytes = core_unit};
    gpuipc_buffer *made;
    gpuipc_buffer *behind = core_buffer(core_unit, 0);
    check_ok(gpuipc_buffer_create(core_context, &config, &made));
    const CUdeviceptr at = core_info(behind).address;
    stream_gate_close(held);
    if (core_is_emulated) {
        core_set_failures("");
    }
    check_ok(gpuipc_buffer_release_async(made, NULL));
    await_calls("cuEventDestroy", 1); /* it has passed */
    check_ok(gpuipc_buffer_release_async(behind, NULL));
    drop_check_ends(at); /* it gets through */
    check_ok(gpuipc_buffer_fill_async(subject, 0, core_unit, 1, 4, held));
    stream_gate_check_waits(held);
    stream_gate_open();
    stream_gate_synchronize(held);
}

/* A second device that may use it is waited for, too. */
Test(drop, another_device_that_may_use_it_is_waited_for) {
    const driver *drv = core_driver();
    CUcontext second;
    CUcontext popped;
    CUstream other;
    core_need_devices(2);
    if (gpuipc_buffer_set_access(subject, 1, GPUIPC_ACCESS_READ) != GPUIPC_OK) {
        cr_skip_test("no peer access");
    }
    cr_assert_eq(drv->cuDevicePrimaryCtxRetain(&second, 1), CUDA_SUCCESS);
    cr_assert_eq(drv->cuCtxPushCurrent(second), CUDA_SUCCESS);
    cr_assert_eq(drv->cuStreamCreate(&other, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    stream_gate_close(other);
    drop_buffer();
    await_calls("cuCtxRecordEvent", 2);
    await_calls("cuEventQuery", 4);
    cr_assert(drop_exists(address));
    stream_gate_open();
    stream_gate_synchronize(other);
    drop_check_ends(address);
    stream_gate_stream_end(other);
    cr_assert_eq(drv->cuCtxPopCurrent(&popped), CUDA_SUCCESS);
    cr_assert_eq(drv->cuDevicePrimaryCtxRelease(1), CUDA_SUCCESS);
}

/* ---- ends -------------------------------------------------------------------------------------- */

/* The end of a context waits for what it dropped; not for ever. */
Test(drop, the_end_of_the_context_waits_for_what_it_can) {
    gpuipc_context *made = core_context_new();
    const gpuipc_buffer_config config = {.struct_size = sizeof(config), .bytes = core_unit};
    gpuipc_buffer *own[2];
    CUdeviceptr at[2];
    for (int i = 0; i < 2; i++) {
        check_ok(gpuipc_buffer_create(made, &config, &own[i]));
        at[i] = core_info(own[i]).address;
    }
    check_ok(gpuipc_buffer_drop(own[0]));
    stream_gate_close(held);
    check_ok(gpuipc_buffer_drop(own[1]));
    check_ok(gpuipc_context_destroy(made)); /* which takes a second */
    cr_assert(drop_exists(at[1]));
    stream_gate_open();
    drop_check_ends(at[0]);
    drop_check_ends(
        at[1]); /* by the thread, which ends the context as well: the fixture's gate sees that */
    drop_buffer();
    drop_check_ends(address);
    check_ok(gpuipc_context_destroy(core_context));
    core_context = NULL;
}

Test(drop, the_last_drop_of_a_context_ends_it_on_another_thread) {
    drop_buffer();
    subject = core_buffer(core_unit, 0);
    address = core_info(subject).address;
    check_ok(gpuipc_context_destroy(core_context));
    core_context = NULL;
    cr_assert(drop_exists(address), "the subject keeps its context");
    drop_buffer();
    drop_check_ends(address);
    core_context = core_context_new(); /* whose end waits for the thread */
}

/* The dead context ends, and a living one takes its place. */
static void reset_device(void) {
    void *symbol = os_library_symbol(core_driver()->library, "cuDevicePrimaryCtxReset_v2");
    CUresult (*reset)(CUdevice device);
    cr_assert_not_null(symbol);
    memcpy(&reset, &symbol, sizeof(reset));
    cr_assert_eq(reset(0), CUDA_SUCCESS);
}

/* A context whose work has lost its memory is dead: nothing runs there, and nothing is waited for. */
Test(drop, a_dead_context_holds_nothing_up) {
    core_need_emulated();
    gpuipc_buffer *victim = core_buffer(core_unit, 0);
    stream_gate_close(held);
    check_ok(gpuipc_buffer_fill_async(victim, 0, core_unit, 1, 4, held));
    check_ok(gpuipc_buffer_release(victim)); /* a mistake */
    stream_gate_open();
    cr_assert_eq(core_driver()->cuStreamSynchronize(held), CUDA_ERROR_ILLEGAL_ADDRESS);
    drop_buffer();
    drop_check_ends(address);
    stream_gate_end(); /* its memory ends with the context */
    reset_device();
    held = NULL;
}

Test(drop, a_lost_device_holds_nothing_up) {
    core_need_emulated();
    core_set_failures("cuCtxRecordEvent:*=46;cuCtxPushCurrent:*=46");
    drop_buffer();
    drop_check_ends(address);
    core_set_failures("");
}

/* Before CUDA 12.5 there is no event of a context. */
Test(drop_machine, an_older_driver_waits_for_the_device) {
    core_environment_set("GPUIPC_EMULATED_MACHINE", "version=12040");
    const gpuipc_context_config config = core_context_config();
    core_open_context(&config);
    core_need_emulated();
    use();
    use_buffer(held);
    drop_buffer();
    await_calls("cuCtxSynchronize", 1);
    cr_assert_eq(core_calls("cuCtxRecordEvent"), 0);
    cr_assert(drop_exists(address));
    stream_gate_open();
    stream_gate_synchronize(held);
    drop_check_ends(address);
}

/* What happens in handlers of exit(): drop_helper.c. */
Test(drop, the_end_of_the_process_does_not_wait_for_work) {
    static const char *const roles[] = {"pending", "handler", "idle"};
    for (size_t i = 0; i < sizeof(roles) / sizeof(roles[0]); i++) {
        const char *const arguments[] = {roles[i], core_directory, NULL};
        child_process *helper;
        child_end how;
        check_ok(child_start("drop_helper", arguments, NULL, &helper));
        check_ok(child_wait(helper, SOON_MS, &how));
        cr_assert(how.exited && how.code == 0, "%s ended with %d", roles[i], how.code);
        child_destroy(helper);
    }
}
