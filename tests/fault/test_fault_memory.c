/* SPDX-License-Identifier: MIT */
/**
 * @file Every allocation of host memory fails once, in turn: in a process that has done it all before,
 * and in one that does it for the first time (fault_helper.c).
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocation.h"
#include "base/object.h"
#include "check.h"
#include "child.h"
#include "cuda/context.h"
#include "leak_gate.h"
#include "os.h"
#include "scenario.h"
#include "sync/deferred.h"

TestSuite(fault_memory, .timeout = 300);

/* Enough for anything that ought to happen at once, on a machine that is busy. */
#define SOON_MS 20000

typedef struct outcome {
    gpuipc_status status;
    uint64_t allocations;
    int64_t live;
} outcome;

static outcome run(const scenario *what, uint64_t fail_at) {
    outcome result;
    scenario_state state;
    check_ok(scenario_begin(what, &state));
    allocation_watch(fail_at);
    result.status = what->run(&state);
    scenario_settle(&state);
    /* Another thread of the library's may be the last that holds an object. */
    for (int i = 0; i < SOON_MS && allocation_live() > 0; i++) {
        os_sleep_ms(1);
    }
    result.allocations = allocation_unwatch(&result.live);
    scenario_end(&state);
    return result;
}

/* What is made once in a process is made, and stays. */
static void run_first(const scenario *what) {
    scenario_state state;
    check_ok(scenario_begin(what, &state));
    check_ok(what->run(&state));
    scenario_settle(&state);
    scenario_end(&state);
}

Test(fault_memory, every_allocation_fails_once) {
    for (size_t i = 0; i < scenario_count; i++) {
        const scenario *what = &scenarios[i];
        run_first(what);
        const outcome clean = run(what, 0);
        check_ok(clean.status);
        cr_assert_eq(clean.live, 0, "%s: %lld allocations left", what->name, (long long)clean.live);
        for (uint64_t number = 1; number <= clean.allocations; number++) {
            leak_gate gate;
            leak_gate_begin(&gate);
            const outcome failed = run(what, number);
            /* A thread that looks after streams ends when there are none, and is begun again: how often is a matter of
             * time. So a run may come to fewer allocations than the one before. */
            if (failed.status == GPUIPC_OK && failed.allocations < number) {
                cr_assert_gt(2 * failed.allocations, clean.allocations, "%s", what->name);
                cr_assert_eq(leak_gate_end(&gate), 0, "%s:\n%s", what->name, gate.text);
                break;
            }
            cr_assert_eq(failed.status, GPUIPC_ERR_OUT_OF_MEMORY, "%s %llu: %s", what->name,
                         (unsigned long long)number, gpuipc_status_name(failed.status));
            cr_assert_eq(gpuipc_error_get()->status, GPUIPC_ERR_OUT_OF_MEMORY);
            cr_assert_neq(gpuipc_error_get()->operation[0], '\0');
            cr_assert_eq(failed.live, 0, "%s %llu: %lld allocations left", what->name,
                         (unsigned long long)number, (long long)failed.live);
            cr_assert_eq(leak_gate_end(&gate), 0, "%s %llu:\n%s", what->name,
                         (unsigned long long)number, gate.text);
        }
        check_ok(run(what, 0).status);
        fprintf(stderr, "fault.memory %s: %llu failures\n", what->name,
                (unsigned long long)clean.allocations);
    }
}

/* ---- the table of objects is full -------------------------------------------------------- */

/* The table's growth is the one allocation of its size in a scenario. */
enum {
    FILLERS = 16384,
    LARGE_BYTES = 600 * 1024
};

static void *fillers[2 * FILLERS];
static size_t filler_count;
static object filler;

static void destroy_nothing(object *self) {
    (void)self;
}

/* Publishes until there is no room without growth. */
static void fill_table(void) {
    gpuipc_status status = GPUIPC_OK;
    while (status == GPUIPC_OK) {
        int64_t live;
        cr_assert_leq(filler_count, 2 * FILLERS);
        object_reference(&filler);
        allocation_watch_large(filler_count < FILLERS ? SIZE_MAX : LARGE_BYTES);
        status = object_publish(&filler, &fillers[filler_count]);
        (void)allocation_unwatch(&live);
        filler_count += status == GPUIPC_OK;
    }
    cr_assert_eq(status, GPUIPC_ERR_OUT_OF_MEMORY);
    object_unreference(&filler);
}

static void free_slots(size_t count) {
    for (size_t i = 0; i < count; i++) {
        object *last = NULL;
        check_ok(object_remove_hold(OBJECT_BUFFER, fillers[--filler_count], &last));
        object_unreference(last);
    }
}

/* In the part under test there is room for so many objects. */
static outcome run_with_slots(const scenario *what, size_t slots) {
    outcome result;
    scenario_state state;
    check_ok(scenario_begin(what, &state));
    fill_table();
    free_slots(slots);
    allocation_watch_large(LARGE_BYTES);
    result.status = what->run(&state);
    result.allocations = allocation_unwatch(&result.live);
    free_slots(16); /* for the objects of the next one's beginning */
    scenario_end(&state);
    return result;
}

Test(fault_memory, the_table_of_objects_cannot_grow) {
    static const struct {
        const char *name;
        size_t objects;
    } rows[] = {{"context", 1}, {"create", 1}, {"wrap", 1}, {"native", 1}, {"share", 4}};
    object_init(&filler, OBJECT_BUFFER, destroy_nothing);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const scenario *what = scenario_find(rows[i].name);
        run_first(what);
        for (size_t slots = 0; slots <= rows[i].objects; slots++) {
            leak_gate gate;
            leak_gate_begin(&gate);
            const outcome result = run_with_slots(what, slots);
            cr_assert_eq(result.status,
                         slots < rows[i].objects ? GPUIPC_ERR_OUT_OF_MEMORY : GPUIPC_OK,
                         "%s with %zu: %s", what->name, slots, gpuipc_status_name(result.status));
            cr_assert_eq(result.live, 0, "%s with %zu: %lld allocations left", what->name, slots,
                         (long long)result.live);
            cr_assert_eq(leak_gate_end(&gate), 0, "%s with %zu:\n%s", what->name, slots, gate.text);
        }
    }
    free_slots(filler_count);
}

/* ---- in a process that does it for the first time ---------------------------------------- */

/* The helper's answer for one number: "ok 23" or the name of a status. */
static void ask_helper(const char *what, uint64_t number, char *answer) {
    char text[32];
    child_process *child;
    child_end end;
    (void)snprintf(text, sizeof(text), "%llu", (unsigned long long)number);
    const char *const arguments[] = {what, text, NULL};
    check_ok(child_start("fault_helper", arguments, NULL, &child));
    check_ok(child_read_line(child, answer, CHILD_LINE_MAX, SOON_MS));
    check_ok(child_wait(child, SOON_MS, &end));
    cr_assert(end.exited && end.code == 0, "%s %s: %s %d, %s", what, text,
              end.exited ? "ended with" : "killed by", end.code, answer);
    child_destroy(child);
}

static void fail_first_time(const char *what) {
    char answer[CHILD_LINE_MAX] = "";
    ask_helper(what, 0, answer);
    cr_assert_eq(strncmp(answer, "ok ", 3), 0, "%s: %s", what, answer);
    const uint64_t count = strtoull(answer + 3, NULL, 10);
    cr_assert_gt(count, 0);
    for (uint64_t number = 1; number <= count; number++) {
        ask_helper(what, number, answer);
        cr_assert_str_eq(answer, "GPUIPC_ERR_OUT_OF_MEMORY", "%s %llu: %s", what,
                         (unsigned long long)number, answer);
    }
    fprintf(stderr, "fault.memory %s, first time: %llu failures\n", what,
            (unsigned long long)count);
}

Test(fault_memory, every_allocation_fails_the_first_time_as_well) {
    fail_first_time("life");
    fail_first_time("native");
    fail_first_time("share");
    fail_first_time("channel");
    fail_first_time("kernels");
}

/* ---- giving up --------------------------------------------------------------------------- */

static gpuipc_buffer *make_buffer(const scenario_state *state) {
    const gpuipc_buffer_config config = {.struct_size = sizeof(config), .bytes = 4096};
    gpuipc_buffer *made = NULL;
    check_ok(gpuipc_buffer_create(state->context, &config, &made));
    return made;
}

/* There is nobody to free for whom a destructor runs. The thread cannot be started, and the end of the context does
 * its work. */
Test(fault_memory, a_drop_needs_none) {
    scenario_state state;
    int64_t live;
    leak_gate gate;
    run_first(scenario_find("create"));
    leak_gate_begin(&gate);
    check_ok(scenario_begin(scenario_find("create"), &state));
    gpuipc_buffer *made = make_buffer(&state);
    check_ok(gpuipc_buffer_retain(made));
    allocation_watch_large(0);
    check_ok(gpuipc_buffer_drop(made));
    check_ok(gpuipc_buffer_drop(made));
    cr_assert_eq(allocation_unwatch(&live), 2, "the thread's, for which each tries");
    scenario_end(&state);
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

Test(fault_memory, after_a_release_on_a_stream_that_fails_the_buffer_is_the_callers) {
    scenario_state state;
    int64_t live;
    check_ok(scenario_begin(scenario_find("create"), &state));
    gpuipc_buffer *made = make_buffer(&state);
    allocation_watch(1);
    check_status(GPUIPC_ERR_OUT_OF_MEMORY, gpuipc_buffer_release_async(made, NULL));
    (void)allocation_unwatch(&live);
    cr_assert_eq(live, 0);
    check_ok(gpuipc_buffer_release_async(made, NULL));
    scenario_end(&state);
}

Test(fault_memory, a_wait_handle_is_made_whole_or_not_at_all) {
    scenario_state state;
    gpuipc_status status = GPUIPC_ERR_OUT_OF_MEMORY;
    check_ok(scenario_begin(scenario_find("create"), &state));
    gpuipc_buffer *made = make_buffer(&state);
    for (uint64_t number = 1; status == GPUIPC_ERR_OUT_OF_MEMORY; number++) {
        int64_t live;
        intptr_t native;
        allocation_watch(number);
        status = gpuipc_buffer_get_returns_wait_handle(made, &native);
        (void)allocation_unwatch(&live);
        cr_assert(status == GPUIPC_OK || live == 0);
        cr_assert_lt(number, 20);
    }
    check_ok(status);
    check_ok(gpuipc_buffer_release(made));
    scenario_end(&state);
}
