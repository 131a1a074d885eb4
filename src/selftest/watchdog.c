/* SPDX-License-Identifier: MIT */
/** @file See watchdog.h. */
#include "watchdog.h"

#include <stdio.h>
#include <string.h>

#include "options.h"
#include "os.h"
#include "program.h"
#include "wrap.h"

/* One for the program. The thread is never joined: it ends with the process. */
static struct {
    os_mutex mutex;
    os_condition changed;
    os_thread *thread; /* NULL: not started */
    os_deadline deadline;
    os_deadline told; /* when the step is told; never: it was, or is not to be */
    char step[200];
} dog;

static const os_deadline never = {.at_ns = UINT64_MAX};

/* What takes less says nothing of it. */
#define TELL_MS 1000

static void watch(void *unused) {
    (void)unused;
    os_mutex_lock(&dog.mutex);
    for (;;) {
        (void)os_condition_wait(&dog.changed, &dog.mutex,
                                dog.told.at_ns < dog.deadline.at_ns ? dog.told : dog.deadline);
        if (os_deadline_passed(dog.told)) {
            wrap_complain("%s", dog.step);
            dog.told = never;
        }
        if (os_deadline_passed(dog.deadline)) {
            wrap_complain("FAIL: hung; the step was: %s", dog.step);
            program_end_now(EXIT_FAIL);
        }
    }
}

/* Without the thread the program goes on, and says that it is not watched. */
static void start(void) {
    if (os_condition_init(&dog.changed) != GPUIPC_OK ||
        os_thread_start(watch, NULL, &dog.thread) != GPUIPC_OK) {
        wrap_complain("no watchdog could be started: a hanging driver hangs this");
    }
}

static void set(const char *step, os_deadline deadline, os_deadline told) {
    if (dog.thread == NULL) {
        dog.deadline = deadline;
        dog.told = never;
        start();
    }
    if (dog.thread == NULL) {
        return;
    }
    os_mutex_lock(&dog.mutex);
    (void)snprintf(dog.step, sizeof(dog.step), "%s", step);
    dog.deadline = deadline;
    dog.told = told;
    os_condition_signal_all(&dog.changed);
    os_mutex_unlock(&dog.mutex);
}

void watchdog_expect(const char *step, int within_ms) {
    set(step, os_deadline_after(within_ms), never);
}

void watchdog_expect_long(const char *step, int within_ms) {
    set(step, os_deadline_after(within_ms), os_deadline_after(TELL_MS));
}

void watchdog_rest(void) {
    set("", never, never);
}
