/* SPDX-License-Identifier: MIT */
/** @file The end of the process while another thread dismisses a monitor thread. Who has found it and who frees it are two. Told by the
 *  address sanitizer, or by a crash. */
#include <stdatomic.h>
#include <stdlib.h>

#include "sync/monitor.h"

static object base;
static monitored one;
static atomic_bool is_found;
static os_thread *dismissing;

static bool find(object *of) {
    (void)of;
    atomic_store(&is_found, true);
    return true;
}

static void end_nothing(object *of) {
    (void)of;
}

static void dismiss(void *argument) {
    (void)argument;
    monitor_dismiss(MONITOR_FREES);
}

/* Run before that of monitor.c, which was registered earlier. */
static void start_dismissing(void) {
    if (os_thread_start(dismiss, NULL, &dismissing) != GPUIPC_OK) {
        abort();
    }
}

int main(void) {
    object_init(&base, OBJECT_BUFFER, end_nothing);
    if (monitor_begin(&one, MONITOR_FREES, &base, find, NULL) != GPUIPC_OK) {
        return 1;
    }
    while (!atomic_load(&is_found)) {
        os_sleep_ms(1);
    }
    return atexit(start_dismissing);
}
