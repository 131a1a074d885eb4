/* SPDX-License-Identifier: MIT */
/** @file What fault.calls looks for is planted, and must be found: scenarios that make each mistake when their calls fail. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "check.h"
#include "fault_run.h"
#include "os.h"

TestSuite(fault_planted, .timeout = 300);

#define POINT_MAX_MS 60000
#define ENOUGH       64

static gpuipc_status prepare_nothing(scenario_state *state) {
    (void)state;
    return GPUIPC_OK;
}

/* Each makes memory of the system's first, and memory of the allocator's then. */

static gpuipc_status run_rightly(scenario_state *state) {
    os_handle made;
    (void)state;
    gpuipc_status status = os_memory_create("planted", 4096, &made);
    if (status != GPUIPC_OK) {
        return status;
    }
    void *memory = malloc(16);
    status = memory != NULL ? GPUIPC_OK : status_out_of_memory(16);
    free(memory);
    os_handle_close(&made);
    return status;
}

static gpuipc_status run_leaking_memory(scenario_state *state) {
    os_handle made;
    void *volatile memory = malloc(16);
    (void)state;
    if (memory == NULL) {
        return status_out_of_memory(16);
    }
    const gpuipc_status status = os_memory_create("planted", 4096, &made);
    if (status != GPUIPC_OK) {
        return status; /* and the memory is lost */
    }
    os_handle_close(&made);
    free(memory);
    return GPUIPC_OK;
}

static gpuipc_status run_leaking_a_handle(scenario_state *state) {
    os_handle made;
    (void)state;
    const gpuipc_status status = os_memory_create("planted", 4096, &made);
    if (status != GPUIPC_OK) {
        return status;
    }
    void *memory = malloc(16);
    if (memory == NULL) {
        return status_out_of_memory(16); /* and the handle stays open */
    }
    free(memory);
    os_handle_close(&made);
    return GPUIPC_OK;
}

static gpuipc_status run_swallowing(scenario_state *state) {
    os_handle made = OS_HANDLE_NONE;
    (void)state;
    (void)os_memory_create("planted", 4096, &made);
    os_handle_close(&made);
    return GPUIPC_OK;
}

static gpuipc_status run_without_a_record(scenario_state *state) {
    os_handle made = OS_HANDLE_NONE;
    const gpuipc_error before = status_save();
    (void)state;
    const gpuipc_status status = os_memory_create("planted", 4096, &made);
    os_handle_close(&made);
    status_restore(&before);
    return status;
}

static gpuipc_status run_for_ever(scenario_state *state) {
    os_handle made = OS_HANDLE_NONE;
    (void)state;
    while (os_memory_create("planted", 4096, &made) != GPUIPC_OK) {
    }
    os_handle_close(&made);
    return GPUIPC_OK;
}

/* The first complaint, of all points alone and of all that fail from one on; "" when there is none. */
static void first_complaint(gpuipc_status (*run)(scenario_state *state), char *why, size_t size) {
    const scenario what = {"planted", prepare_nothing, run};
    fault_outcome got = {.status = GPUIPC_OK};
    const fault_plan nothing = {.first = 0};
    bool is_right = true;
    why[0] = '\0';
    fault_begin_all(POINT_MAX_MS);
    fault_run(&what, &nothing, &got);
    const uint64_t calls = got.row->count;
    cr_assert(calls > 0 && calls < ENOUGH);
    for (uint64_t number = 1; number <= calls && is_right; number++) {
        const fault_plan alone = {number, number, 0};
        fault_run(&what, &alone, &got);
        is_right = fault_judge(&what, &got, why, size);
    }
    cr_assert(fault_is_peer_served());
    fault_end_all();
}

#define PLANTED(name, run, expected)                                                               \
    Test(fault_planted, name) {                                                                    \
        char why[2400];                                                                            \
        first_complaint(run, why, sizeof(why));                                                    \
        cr_assert_not_null(strstr(why, expected), "\"%s\" is not in \"%s\"", expected, why);       \
    }

PLANTED(a_leak_of_memory_is_found, run_leaking_memory, "allocations are left")
PLANTED(a_handle_left_open_is_found, run_leaking_a_handle, "left behind")
PLANTED(a_failure_swallowed_is_found, run_swallowing, "nobody says so")
PLANTED(a_status_without_its_record_is_found, run_without_a_record, "the record")

Test(fault_planted, nothing_is_found_where_nothing_is) {
    char why[2400];
    first_complaint(run_rightly, why, sizeof(why));
    cr_assert_str_empty(why);
}

Test(fault_planted, a_hang_is_found, .exit_code = FAULT_HANG_EXIT_CODE) {
    const scenario what = {"planted", prepare_nothing, run_for_ever};
    const fault_plan all_later = {1, UINT64_MAX, 0};
    fault_outcome got;
    fault_begin_all(1000);
    fault_point_begin("planted");
    fault_run(&what, &all_later, &got);
    cr_assert_fail("it ended");
}
