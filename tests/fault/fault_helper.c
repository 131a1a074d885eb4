/* SPDX-License-Identifier: MIT */
/**
 * @file A fresh process in which one allocation of a scenario fails, among them those that a process
 * makes only once. Arguments: scenario, number of the allocation (0: none). Prints what came of
 * it: "ok", with the number of allocations, or the name of the status. Exits 1 when something is
 * left behind or the next try fails.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "allocation.h"
#include "helper.h"
#include "leak_gate.h"
#include "scenario.h"

/* The whole scenario, with what comes before the part under test. */
static gpuipc_status run(const scenario *what, uint64_t fail_at, uint64_t *out_count) {
    scenario_state state;
    int64_t live;
    allocation_watch(fail_at);
    gpuipc_status status = scenario_begin(what, &state);
    if (status == GPUIPC_OK) {
        status = what->run(&state);
    }
    *out_count = allocation_unwatch(&live);
    const gpuipc_error told = *gpuipc_error_get();
    scenario_end(&state);
    return status != GPUIPC_OK && told.status != status ? GPUIPC_OK : status;
}

int main(int argc, char **argv) {
    leak_gate gate;
    uint64_t count = 0;
    helper_begin();
    const scenario *what = argc == 3 ? scenario_find(argv[1]) : NULL;
    if (what == NULL) {
        return 2;
    }
    leak_gate_begin(&gate);
    gpuipc_status status = run(what, strtoull(argv[2], NULL, 10), &count);
    const int leaks = leak_gate_end(&gate);
    const gpuipc_status again = run(what, 0, &(uint64_t){0});
    if (leaks != 0) {
        helper_say("left behind: %s", gate.text);
    } else if (again != GPUIPC_OK) {
        helper_say("the next try: %s", gpuipc_status_name(again));
    } else if (status == GPUIPC_OK) {
        helper_say("ok %" PRIu64, count);
    } else {
        helper_say("%s", gpuipc_status_name(status));
    }
    return leaks != 0 || again != GPUIPC_OK;
}
