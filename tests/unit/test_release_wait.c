/* SPDX-License-Identifier: MIT */
/** @file Releases of memory whose freeing waits for the devices, at the very moment in which a stream begins to wait for
 *  another process: whoever is first, the release ends without that process. */
#include <stdatomic.h>

#include "stream_gate.h"

/* How late the driver is at what frees: long enough that another thread does something before it. */
#define FREES_LATE                                                                                 \
    "cuMemFree:*=delay300;cuMemFreeHost:*=delay300;cuMemHostUnregister:*=delay300;"                \
    "cuMemFreeAsync:*=delay300"
/* More than any call needs that waits for no peer. */
#define ENDS_MS 8000

static core_pair pair;
static gpuipc_buffer *exported;
static gpuipc_buffer *opened; /* by the peer, who does not return it */
static CUstream waiting;

static void begin(void) {
    core_start();
    core_need_emulated();
    stream_gate_make();
    waiting = stream_gate_stream();
    core_pair_open(&pair, core_context, core_context);
    exported = core_buffer(core_unit, 0);
    check_ok(core_send(pair.client, &exported, 1));
    check_ok(core_receive(pair.server, &opened, 1));
}

static void finish(void) {
    core_set_failures("");
    (void)gpuipc_buffer_release(opened);
    stream_gate_open();
    (void)gpuipc_buffer_release(exported);
    core_pair_close(&pair);
    stream_gate_stream_end(waiting);
    stream_gate_end();
    core_finish();
}

TestSuite(release_wait, .init = begin, .fini = finish, .timeout = 60);

typedef struct release {
    gpuipc_buffer *of;
    atomic_bool is_over;
} release;

static gpuipc_status give_up(void *argument) {
    release *self = argument;
    const gpuipc_status status = gpuipc_buffer_release(self->of);
    atomic_store(&self->is_over, true);
    return status;
}

static bool is_freeing(void) {
    return core_calls("cuMemFree") + core_calls("cuMemFreeHost") +
               core_calls("cuMemHostUnregister") + core_calls("cuMemFreeAsync") >
           0;
}

static void check_release_ends(gpuipc_transport transport) {
    const gpuipc_buffer_config config = {
        .struct_size = sizeof(config), .transport = transport, .bytes = core_unit};
    release one = {.of = NULL};
    core_waiter thread;
    check_ok(gpuipc_buffer_create(core_context, &config, &one.of));
    core_write_pattern(one.of, 1); /* which registers what is registered on its first use */
    core_set_failures(FREES_LATE);
    core_waiter_begin(&thread, give_up, &one);
    while (!is_freeing() && !atomic_load(&one.is_over)) {
        os_sleep_ms(1);
    }
    check_ok(gpuipc_buffer_await_returns_async(exported,
                                               waiting)); /* while the driver is about to free */
    const os_deadline deadline = os_deadline_after(ENDS_MS);
    while (!atomic_load(&one.is_over)) {
        cr_assert_not(os_deadline_passed(deadline),
                      "the release still waits for the peer after %d ms", ENDS_MS);
        os_sleep_ms(1);
    }
    check_ok(core_waiter_end(&thread));
    stream_gate_check_waits(waiting); /* the peer had no part in it */
    check_ok(gpuipc_buffer_release(opened));
    opened = NULL;
    stream_gate_synchronize(waiting);
}

Test(release_wait, of_legacy_memory_ends_without_the_peer) {
    check_release_ends(GPUIPC_TRANSPORT_LEGACY);
}

Test(release_wait, of_host_memory_ends_without_the_peer) {
    check_release_ends(GPUIPC_TRANSPORT_HOST);
}

Test(release_wait, of_memory_for_peer_access_ends_without_the_peer) {
    check_release_ends(GPUIPC_TRANSPORT_P2P);
}
