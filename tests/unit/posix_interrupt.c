/* SPDX-License-Identifier: MIT */
/** @file Waits that a signal handler ends. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#include "interrupt_calls.h"

static atomic_int handled;

static void handle(int number) {
    (void)number;
    atomic_fetch_add(&handled, 1);
}

static void begin(void) {
    const struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
    interrupt_begin();
    cr_assert_eq(sigaction(SIGUSR1, &action, NULL), 0);
}

TestSuite(interrupt_signal, .init = begin, .fini = interrupt_finish, .timeout = 60);

static pthread_t waiting;
static atomic_bool is_done;

/* Again and again: one that comes just before the wait begins is not noticed. */
static gpuipc_status keep_signalling(void *unused) {
    (void)unused;
    while (!atomic_load(&is_done)) {
        (void)pthread_kill(waiting, SIGUSR1);
        os_sleep_ms(5);
    }
    return GPUIPC_OK;
}

Test(interrupt_signal, a_handler_ends_each_waiting_call) {
    waiting = pthread_self();
    for (size_t i = 0; i < INTERRUPT_CALLS; i++) {
        core_waiter sender;
        atomic_store(&is_done, false);
        atomic_store(&handled, 0);
        core_waiter_begin(&sender, keep_signalling, NULL);
        const gpuipc_status status = interrupt_calls[i].make(NULL);
        atomic_store(&is_done, true);
        check_ok(core_waiter_end(&sender));
        cr_assert_eq(status, GPUIPC_ERR_INTERRUPTED, "%s: %s", interrupt_calls[i].name,
                     gpuipc_status_name(status));
        cr_assert_gt(atomic_load(&handled), 0);
    }
}

/* Whoever did not ask for it is not disturbed. */
Test(interrupt_signal, other_contexts_wait_on) {
    gpuipc_context *plain = core_context_new();
    gpuipc_listener *listener;
    gpuipc_connection *made;
    char name[UNIQUE_NAME_MAX];
    core_waiter sender;
    unique_name(name);
    waiting = pthread_self();
    check_ok(gpuipc_listener_open(plain, name, NULL, &listener));
    core_waiter_begin(&sender, keep_signalling, NULL);
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_listener_accept(listener, 100, &made));
    atomic_store(&is_done, true);
    check_ok(core_waiter_end(&sender));
    cr_assert_gt(atomic_load(&handled), 0);
    check_ok(gpuipc_listener_close(listener));
    check_ok(gpuipc_context_destroy(plain));
}
