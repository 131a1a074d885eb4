/* SPDX-License-Identifier: MIT */
/** @file See fault_run.h. */
#include "fault_run.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocation.h"
#include "check.h"
#include "emulated.h"
#include "fault_tolerated.h"
#include "leak_gate.h"
#include "scenario_more.h"

/* Enough for anything that ought to happen at once, on a machine that is busy. */
#define SOON_MS 20000

/* How long it is looked whether a handle is closed yet. */
#define CLOSED_MS 5000

/* ---- which point is under test, for whoever ends the process ------------------------------------ */

static struct {
    char text[256];
    atomic_uint_least64_t ends_ns; /* 0: none */
    atomic_bool over;
    uint64_t most_ms;
    os_thread *watchdog;
} now;

static void watch_the_clock(void *unused) {
    (void)unused;
    while (!atomic_load(&now.over)) {
        const uint64_t ends = atomic_load(&now.ends_ns);
        if (ends != 0 && os_clock_ns() > ends) {
            fprintf(stderr, "fault.calls: hangs: %s\n", now.text);
            fflush(stderr);
            _Exit(FAULT_HANG_EXIT_CODE);
        }
        os_sleep_ms(20);
    }
}

static void say_and_die(int number) {
    fprintf(stderr, "fault.calls: signal %d: %s\n", number, now.text);
    signal(number, SIG_DFL);
    raise(number);
}

void fault_point_begin(const char *text) {
    (void)snprintf(now.text, sizeof(now.text), "%s", text);
    atomic_store(&now.ends_ns, os_clock_ns() + now.most_ms * UINT64_C(1000000));
}

void fault_point_end(void) {
    atomic_store(&now.ends_ns, 0);
}

/* ---- the layers ----------------------------------------------------------------------------------- */

static bool deny_memory(void) {
    static const fault_call memory = {"malloc", FAULT_MEMORY, false, 1, {GPUIPC_ERR_OUT_OF_MEMORY}};
    return fault_ask(&memory) != 0;
}

/* What gives something back, and what that needs: a driver that refuses those keeps the thing, and nobody could help it.
 * Each fails alone in fault.driver. */
static bool is_giving_back(const char *name) {
    static const char *const names[] = {"cuMemRelease",
                                        "cuMemUnmap",
                                        "cuMemAddressFree",
                                        "cuMemFree",
                                        "cuMemFreeHost",
                                        "cuMemHostUnregister",
                                        "cuMemPoolDestroy",
                                        "cuStreamDestroy",
                                        "cuEventDestroy",
                                        "cuIpcCloseMemHandle",
                                        "cuCtxDisablePeerAccess",
                                        "cuDevicePrimaryCtxRelease",
                                        "cuCtxPushCurrent",
                                        "cuCtxPopCurrent",
                                        "cuThreadExchangeStreamCaptureMode",
                                        "cuMemFreeAsync",
                                        "cuStreamSynchronize",
                                        "cuStreamQuery"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(names[i], name) == 0) {
            return true;
        }
    }
    return false;
}

static int judge_driver(const char *name) {
    static const fault_call driver_call = {"driver", FAULT_DRIVER, false, 4, {2, 1, 999, 304}};
    static const fault_call giving_back = {"driver, giving back", FAULT_DRIVER, false, 0, {0}};
    return fault_ask(is_giving_back(name) ? &giving_back : &driver_call);
}

static void set_judge(gpuipc_emulated_judge judge) {
    static gpuipc_emulated_judge_fn set;
    if (set == NULL) {
        driver drv;
        check_ok(driver_open("emulated", &drv));
        void *symbol = os_library_symbol(drv.library, GPUIPC_EMULATED_SET_JUDGE);
        cr_assert_not_null(symbol);
        memcpy(&set, &symbol, sizeof(set));
    }
    set(judge);
}

/* ---- the honest process ---------------------------------------------------------------------------- */

/* What this process serves all along, on a thread of the library's. */
static struct {
    char directory[RUNTIME_DIRECTORY_MAX];
    gpuipc_context *context;
    gpuipc_buffer *buffer;
    gpuipc_server *server;
    gpuipc_ticket ticket;
} served;

static void serve(void) {
    const gpuipc_context_config config = {
        .struct_size = sizeof(config), .driver = "emulated", .runtime_directory = served.directory};
    const gpuipc_buffer_config wanted = {.struct_size = sizeof(wanted), .bytes = 65536};
    cr_assert(runtime_directory_make(served.directory));
    check_ok(gpuipc_context_create(&config, &served.context));
    check_ok(gpuipc_buffer_create(served.context, &wanted, &served.buffer));
    check_ok(gpuipc_server_create(served.context, NULL, &served.server));
    check_ok(gpuipc_buffer_share(served.server, served.buffer, NULL, &served.ticket));
}

/* @return whether the other process could open what this one serves */
bool fault_is_peer_served(void) {
    char line[CHILD_LINE_MAX] = "";
    return scenario_peer_visit(served.directory, &served.ticket) == GPUIPC_OK &&
           scenario_peer_answer(line) == GPUIPC_OK && strcmp(line, "ok") == 0;
}

void fault_begin_all(uint64_t most_ms) {
    char path[OS_PATH_MAX];
    (void)os_cache_directory(path,
                             sizeof(path)); /* os.h, os_environment(): its text is kept for ever */
    now.most_ms = most_ms;
    signal(SIGABRT, say_and_die);
    signal(SIGSEGV, say_and_die);
    check_ok(scenario_peer_start());
    serve();
    cr_assert(fault_is_peer_served());
    set_judge(judge_driver);
    check_ok(os_thread_start(watch_the_clock, NULL, &now.watchdog));
}

void fault_end_all(void) {
    set_judge(NULL);
    atomic_store(&now.over, true);
    os_thread_join(now.watchdog);
    scenario_peer_end();
    check_ok(gpuipc_server_destroy(served.server));
    check_ok(gpuipc_buffer_release(served.buffer));
    check_ok(gpuipc_context_destroy(served.context));
    runtime_directory_remove(served.directory);
}

/* ---- one point ------------------------------------------------------------------------------------- */

void fault_warm(const scenario *what) {
    scenario_state state;
    check_ok(scenario_begin(what, &state));
    check_ok(what->run(&state));
    scenario_end(&state);
}

/* What may block is closed by a thread of the library's: it is waited for. */
static void wait_for_handles(const leak_gate *gate) {
    const os_deadline deadline = os_deadline_after(CLOSED_MS);
    bool is_more = true;
    while (is_more && !os_deadline_passed(deadline)) {
        resource_list open;
        cr_assert(resource_list_handles(&open));
        is_more = false;
        for (size_t k = 0; k < open.count; k++) {
            is_more = is_more || !resource_list_contains(&gate->handles, open.lines[k]);
        }
        resource_list_free(&open);
        if (is_more) {
            os_sleep_ms(1);
        }
    }
}

void fault_run(const scenario *what, const fault_plan *plan, fault_outcome *out) {
    scenario_state state;
    leak_gate gate;
    leak_gate_begin(&gate);
    check_ok(scenario_begin(what, &state));
    allocation_watch_asked(deny_memory);
    fault_begin(plan);
    out->status = what->run(&state);
    out->row = fault_end();
    out->plan = *plan;
    out->error = *gpuipc_error_get();
    scenario_settle(&state);
    scenario_end(&state); /* what a context remembers goes with it */
    /* Another thread of the library's may be the last that holds an object. */
    const os_deadline deadline = os_deadline_after(SOON_MS);
    while (allocation_live() > 0 && !os_deadline_passed(deadline)) {
        os_sleep_ms(1);
    }
    (void)allocation_unwatch(&out->memory);
    out->left[0] = '\0';
    if (!fault_may_leave_handles(what->name, plan, out->row)) {
        wait_for_handles(&gate);
    }
    if (leak_gate_end(&gate) != 0) {
        (void)snprintf(out->left, sizeof(out->left), "%s", gate.text);
    }
}

/* The first call that failed and whose failure must be told; NULL: there is none. */
static const fault_event *must_be_told(const scenario *what, const fault_row *row) {
    for (size_t i = 0; i < row->count; i++) {
        const fault_event *event = &row->events[i];
        if (event->code != 0 && event->call->layer != FAULT_DRIVER &&
            fault_tolerated(what->name, event) == NULL) {
            return event;
        }
    }
    return NULL;
}

/* The call that was interrupted, where nothing else failed: that is nobody's failure. NULL otherwise. */
static const fault_event *only_interrupted(const fault_row *row) {
    const fault_event *found = NULL;
    for (size_t i = 0; i < row->count; i++) {
        const fault_event *event = &row->events[i];
        if (event->code != 0 && !fault_is_interruption(event)) {
            return NULL;
        }
        found = event->code != 0 ? event : found;
    }
    return found;
}

bool fault_judge(const scenario *what, const fault_outcome *got, char *why, size_t capacity) {
    const fault_event *untold = got->status == GPUIPC_OK ? must_be_told(what, got->row) : NULL;
    const fault_event *interrupted = got->status == GPUIPC_OK ? NULL : only_interrupted(got->row);
    if (interrupted != NULL) {
        (void)snprintf(why, capacity, "%s was interrupted during %s, and is not made again",
                       interrupted->call->name, interrupted->during);
    } else if (untold != NULL) {
        (void)snprintf(why, capacity, "%s failed with %d during %s, and nobody says so",
                       untold->call->name, untold->code, untold->during);
    } else if (got->status != GPUIPC_OK && got->error.status != got->status) {
        (void)snprintf(why, capacity, "answered %s, and the record has %s",
                       gpuipc_status_name(got->status), gpuipc_status_name(got->error.status));
    } else if (got->status != GPUIPC_OK &&
               (got->error.operation[0] == '\0' || got->error.sentence[0] == '\0')) {
        (void)snprintf(why, capacity, "the record of %s does not say what failed",
                       gpuipc_status_name(got->status));
    } else if (got->memory != 0) {
        (void)snprintf(why, capacity, "%lld allocations are left", (long long)got->memory);
    } else if (got->left[0] != '\0' && !fault_may_leave_handles(what->name, &got->plan, got->row)) {
        (void)snprintf(why, capacity, "%s", got->left);
    } else {
        return true;
    }
    return false;
}
