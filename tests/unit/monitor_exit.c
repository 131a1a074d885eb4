/* SPDX-License-Identifier: MIT */
/** @file The end of the process. Without an argument: another thread dismisses a monitor thread meanwhile. One
 *  thread removes the attendant, the other frees it; the address sanitizer reports a second free. With "watched": the peer monitor
 *  thread goes on while the exit handlers run. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "sync/monitor.h"

static object base;
static monitored one;
static atomic_bool is_found;
static atomic_uint looks;
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

static bool count(object *of) {
    (void)of;
    atomic_fetch_add(&looks, 1u);
    return false;
}

/* Run behind that of monitor.c, which is registered later. */
static void await_looks(void) {
    const os_deadline deadline = os_deadline_after(10000);
    const unsigned before = atomic_load(&looks);
    while (atomic_load(&looks) < before + 2) {
        if (!monitor_is_exiting() || os_deadline_passed(deadline)) {
            abort();
        }
        os_sleep_ms(1);
    }
}

static int exit_while_watched(void) {
    return atexit(await_looks) != 0 ||
           monitor_begin(&one, MONITOR_PEERS, &base, count, NULL) != GPUIPC_OK;
}

int main(int count_of_words, char **words) {
    object_init(&base, OBJECT_BUFFER, end_nothing);
    if (count_of_words == 2 && strcmp(words[1], "watched") == 0) {
        return exit_while_watched();
    }
    if (monitor_begin(&one, MONITOR_FREES, &base, find, NULL) != GPUIPC_OK) {
        return 1;
    }
    while (!atomic_load(&is_found)) {
        os_sleep_ms(1);
    }
    return atexit(start_dismissing);
}
