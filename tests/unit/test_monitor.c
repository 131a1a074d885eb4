/* SPDX-License-Identifier: MIT */
/** @file The monitor threads: neither waits for the other, and an object may be begun and ended at any moment. */
#include "core_fixture.h"
#include "sync/monitor.h"

static object base;
static monitored freed;
static monitored watched;
static atomic_bool is_inside;
static atomic_bool may_return;
static atomic_bool has_returned;
static atomic_bool is_settled;
static atomic_uint looks;

static void end_nothing(object *of) {
    (void)of;
}

static void begin(void) {
    core_start();
    object_init(&base, OBJECT_BUFFER, end_nothing);
}

static void finish(void) {
    monitor_end(&freed);
    monitor_end(&watched);
    monitor_settle(&watched);
    monitor_dismiss(MONITOR_FREES);
    monitor_dismiss(MONITOR_PEERS);
    core_finish();
}

TestSuite(monitor, .init = begin, .fini = finish, .timeout = 60);

static void wait_for(const atomic_bool *flag) {
    const os_deadline deadline = os_deadline_after(SOON_MS);
    while (!atomic_load(flag)) {
        cr_assert_not(os_deadline_passed(deadline));
        os_sleep_ms(1);
    }
}

/* As a call of the driver that frees memory, while a stream waits for another process. */
static bool blocks(object *of) {
    const os_deadline deadline = os_deadline_after(SOON_MS);
    (void)of;
    atomic_store(&is_inside, true);
    while (!atomic_load(&may_return) && !os_deadline_passed(deadline)) {
        os_sleep_ms(1);
    }
    atomic_store(&has_returned, true);
    return true;
}

static bool unblocks(object *of) {
    (void)of;
    atomic_store(&may_return, true);
    return true;
}

Test(monitor, streams_are_unblocked_while_memory_is_freed) {
    check_ok(monitor_begin(&freed, MONITOR_FREES, &base, blocks, NULL));
    wait_for(&is_inside);
    check_ok(monitor_begin(&watched, MONITOR_PEERS, &base, unblocks, NULL));
    wait_for(&may_return);
}

static gpuipc_status end_and_settle(void *argument) {
    monitor_end(argument);
    monitor_settle(argument);
    atomic_store(&is_settled, true);
    return GPUIPC_OK;
}

Test(monitor, no_look_is_in_progress_after_the_end) {
    core_waiter other;
    check_ok(monitor_begin(&watched, MONITOR_PEERS, &base, blocks, NULL));
    wait_for(&is_inside);
    core_waiter_start(&other, end_and_settle, &watched);
    cr_assert_not(atomic_load(&is_settled));
    atomic_store(&may_return, true);
    check_ok(core_waiter_end(&other));
    cr_assert_eq(watched.looks, 0);
}

static bool begins_again(object *of) {
    if (atomic_fetch_add(&looks, 1) == 0) {
        check_ok(monitor_begin(&watched, MONITOR_PEERS, of, begins_again, NULL));
    } else {
        atomic_store(&is_inside, true);
    }
    return true;
}

Test(monitor, one_that_is_begun_again_in_its_last_look_is_looked_at_again) {
    check_ok(monitor_begin(&watched, MONITOR_PEERS, &base, begins_again, NULL));
    wait_for(&is_inside);
    check_ok(end_and_settle(&watched));
    cr_assert_eq(atomic_load(&looks), 2);
}

Test(monitor, a_thread_with_objects_is_not_dismissed) {
    check_ok(monitor_begin(&freed, MONITOR_FREES, &base, blocks, NULL));
    wait_for(&is_inside);
    monitor_dismiss(MONITOR_FREES);
    cr_assert_not(atomic_load(&has_returned), "it did not wait for the look");
    atomic_store(&may_return, true);
}

static bool is_over_at_once(object *of) {
    (void)of;
    atomic_fetch_add(&looks, 1);
    return true;
}

/* And the next object starts it again. */
Test(monitor, a_thread_without_objects_ends_by_itself) {
    for (unsigned i = 0; i < 2; i++) {
        const os_deadline deadline = os_deadline_after(SOON_MS);
        check_ok(monitor_begin(&watched, MONITOR_PEERS, &base, is_over_at_once, NULL));
        cr_assert(monitor_runs(MONITOR_PEERS));
        while (monitor_runs(MONITOR_PEERS)) {
            cr_assert_not(os_deadline_passed(deadline));
            os_sleep_ms(1);
        }
        cr_assert_eq(atomic_load(&looks), i + 1);
    }
}
