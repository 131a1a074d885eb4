/* SPDX-License-Identifier: MIT */
/** @file Buffers given up behind work, where the driver does not say that it is done, or is asked at a bad moment. */
#include <string.h>

#include "cuda/context.h"
#include "drop_ends.h"
#include "emulated.h"
#include "stream_gate.h"
#include "sync/deferred.h"
#include "sync/drop.h"

static CUstream held; /* behind the gate */
static gpuipc_buffer *subject;
static CUdeviceptr address;
static context *inside;

static void use(void) {
    core_need_emulated();
    stream_gate_make();
    held = stream_gate_stream();
    subject = core_buffer(core_unit, 0);
    address = core_info(subject).address;
    check_ok(context_acquire(core_context, &inside));
}

static void begin(void) {
    core_start();
    use();
}

static void finish(void) {
    stream_gate_open(); /* also after a failure */
    if (held != NULL) {
        (void)core_driver()->cuStreamSynchronize(held);
    }
    stream_gate_stream_end(held);
    stream_gate_end();
    if (inside != NULL) {
        context_unreference(inside);
    }
    core_finish();
}

TestSuite(drop_refused, .init = begin, .fini = finish, .timeout = 60);
TestSuite(drop_refused_machine, .init = core_start_without_context, .fini = finish, .timeout = 60);

static void drop_buffer(void) {
    check_ok(gpuipc_buffer_drop(subject));
    subject = NULL;
}

static void await_calls(const char *name, uint64_t count) {
    const os_deadline deadline = os_deadline_after(SOON_MS);
    while (core_calls(name) < count) {
        cr_assert_not(os_deadline_passed(deadline));
        os_sleep_ms(1);
    }
}

/* An event that the driver cannot be asked for is behind nothing that runs: its CUDA context is dead. */
Test(drop_refused, an_event_that_is_lost_holds_nothing_up) {
    stream_gate_close(held);
    core_set_failures("cuEventQuery:*=700");
    drop_buffer();
    drop_check_ends(address);
    core_set_failures("");
}

/* Who says that something is being captured is asked again. */
Test(drop_refused, an_event_that_cannot_be_asked_for_a_capture_is_asked_again) {
    core_set_failures("cuEventQuery:1=900;cuEventQuery:2=900");
    drop_buffer();
    drop_check_ends(address);
    cr_assert_gt(core_calls("cuEventQuery"), 2);
}

Test(drop_refused, a_device_that_cannot_be_marked_for_ever_holds_nothing_up) {
    core_set_failures("cuCtxRecordEvent:*=46");
    drop_buffer();
    drop_check_ends(address);
    core_set_failures("");
}

/* The place in a stream, likewise. */
Test(drop_refused, a_place_that_is_lost_holds_nothing_up) {
    stream_gate_close(held);
    core_set_failures("cuEventQuery:*=700");
    check_ok(gpuipc_buffer_release_async(subject, held));
    subject = NULL;
    drop_check_ends(address);
    core_set_failures("");
}

/* While memory is short, the device is looked at again. */
Test(drop_refused, a_device_that_cannot_be_entered_for_memory_is_tried_again) {
    core_set_failures("cuCtxPushCurrent:1=2;cuCtxPushCurrent:2=2");
    drop_buffer();
    await_calls("cuCtxPushCurrent", 2);
    core_set_failures("");
    drop_check_ends(address);
}

/* It waits for all that may use it, however often it is dropped. */
Test(drop_refused, what_two_devices_may_use_waits_once) {
    core_need_devices(2);
    check_ok(gpuipc_buffer_set_access(subject, 1, GPUIPC_ACCESS_DEFAULT));
    check_ok(gpuipc_buffer_retain(subject));
    stream_gate_close(held);
    check_ok(gpuipc_buffer_drop(subject));
    check_ok(gpuipc_buffer_drop(subject));
    subject = NULL;
    await_calls("cuCtxRecordEvent", 1);
    cr_assert(drop_exists(address));
    stream_gate_open();
    drop_check_ends(address);
}

/* ---- a pause that begins while a mark is being made -------------------------------------------------- */

static core_waiter pausing;
static atomic_bool has_paused;
static atomic_bool is_pausing;

static gpuipc_status pause_drops(void *argument) {
    (void)argument;
    const gpuipc_status status = gpuipc_drops_pause();
    atomic_store(&has_paused, true);
    return status;
}

/* In the thread that makes a mark. The other one sleeps, for as long as that goes on. */
static int begin_pause(const char *name) {
    if (strcmp(name, "cuCtxRecordEvent") == 0 && !atomic_exchange(&is_pausing, true)) {
        core_waiter_start(&pausing, pause_drops, NULL);
        cr_assert_not(atomic_load(&has_paused));
    }
    return 0;
}

static void set_judge(gpuipc_emulated_judge wanted) {
    gpuipc_emulated_judge_fn set;
    void *symbol = os_library_symbol(core_driver()->library, GPUIPC_EMULATED_SET_JUDGE);
    cr_assert_not_null(symbol);
    memcpy(&set, &symbol, sizeof(set));
    set(wanted);
}

Test(drop_refused, a_pause_waits_for_the_mark_that_is_being_made) {
    set_judge(begin_pause);
    drop_buffer();
    await_calls("cuCtxRecordEvent", 1);
    while (!atomic_load(&has_paused)) {
        os_sleep_ms(1);
    }
    set_judge(NULL);
    check_ok(core_waiter_end(&pausing));
    check_ok(gpuipc_drops_resume());
    drop_check_ends(address);
}

/* ---- drivers before CUDA 12.5 -------------------------------------------------------------------------- */

/* The thread waits for the whole device, but not while a stream of the process waits for another process. */
Test(drop_refused_machine, an_older_driver_is_not_waited_for_while_a_stream_waits) {
    core_environment_set("GPUIPC_EMULATED_MACHINE", "version=12040");
    const gpuipc_context_config config = core_context_config();
    core_open_context(&config);
    use();
    deferred_wait_begins();
    core_set_failures("");
    drop_buffer();
    cr_assert_not(drop_run(inside));
    await_calls("cuDevicePrimaryCtxGetState", 2);    /* it is looked at, */
    cr_assert_eq(core_calls("cuCtxSynchronize"), 0); /* and no more */
    cr_assert(drop_exists(address));
    deferred_wait_ends();
    drop_check_ends(address);
}
