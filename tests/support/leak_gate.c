/* SPDX-License-Identifier: MIT */
/** @file What a piece of a test leaves behind in this process. */
#include "leak_gate.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void gate_report(leak_gate *gate, const char *what) {
    size_t used = strlen(gate->text);
    snprintf(gate->text + used, sizeof(gate->text) - used, "left behind: %s\n", what);
}

/** Loads the emulated driver, or only finds it if the process has it loaded already: the same
 *  library either way, and with nothing live in it when it was not in use. */
static void gate_find_driver(leak_gate *gate) {
    if (os_library_open_own(os_emulated_driver_name, &gate->driver) != GPUIPC_OK) {
        gate->driver = NULL;
        return;
    }
    void *symbol = os_library_symbol(gate->driver, GPUIPC_EMULATED_LIVE);
    if (symbol == NULL) {
        gate_report(gate, "an emulated driver without " GPUIPC_EMULATED_LIVE);
        return;
    }
    memcpy(&gate->get_live, &symbol, sizeof(symbol));
}

void leak_gate_begin(leak_gate *gate) {
    memset(gate, 0, sizeof(*gate));
    gate_find_driver(gate);
    if (gate->get_live != NULL) {
        gate->get_live(&gate->live);
    }
    if (!resource_list_mappings(&gate->mappings)) {
        gate_report(gate, "the list of mappings could not be read");
    }
    if (!resource_list_handles(&gate->handles)) {
        gate_report(gate, "the list of handles could not be read");
    }
    gate->is_broken = gate->text[0] != '\0';
}

void leak_gate_take_handles(leak_gate *gate, size_t most) {
    resource_list now;
    size_t taken = 0;
    if (!resource_list_handles(&now)) {
        gate_report(gate, "the list of handles could not be read");
        gate->is_broken = true;
        return;
    }
    for (size_t i = 0; i < now.count; i++) {
        taken += resource_list_contains(&gate->handles, now.lines[i]) ? 0 : 1;
    }
    resource_list_free(&gate->handles);
    gate->handles = now;
    if (taken > most) {
        gate_report(gate, "more handles were to be taken than may be");
        gate->is_broken = true;
    }
}

static int gate_compare_list(leak_gate *gate, const resource_list *before,
                             bool (*read)(resource_list *), const char *what) {
    resource_list after;
    if (!read(&after)) {
        gate_report(gate, what);
        return 1;
    }
    int leaks = 0;
    for (size_t i = 0; i < after.count; i++) {
        if (!resource_list_contains(before, after.lines[i])) {
            gate_report(gate, after.lines[i]);
            leaks++;
        }
    }
    resource_list_free(&after);
    return leaks;
}

static int gate_compare_count(leak_gate *gate, const char *name, uint64_t before, uint64_t after) {
    if (after <= before) {
        return 0;
    }
    char what[128];
    snprintf(what, sizeof(what), "emulated driver: %" PRIu64 " %s", after - before, name);
    gate_report(gate, what);
    return 1;
}

/** Everything that is live, also what was before; cut where the text is full. */
static void gate_list_driver(leak_gate *gate) {
    gpuipc_emulated_list_live_fn list_live;
    void *symbol = os_library_symbol(gate->driver, GPUIPC_EMULATED_LIST_LIVE);
    if (symbol == NULL) {
        gate_report(gate, "an emulated driver without " GPUIPC_EMULATED_LIST_LIVE);
        return;
    }
    memcpy(&list_live, &symbol, sizeof(symbol));
    size_t used = strlen(gate->text);
    snprintf(gate->text + used, sizeof(gate->text) - used, "live in the emulated driver now:\n");
    used = strlen(gate->text);
    list_live(gate->text + used, sizeof(gate->text) - used);
}

static int gate_compare_driver(leak_gate *gate) {
    gpuipc_emulated_live now;
    const gpuipc_emulated_live *then = &gate->live;
    gate->get_live(&now);
    const int leaks =
        gate_compare_count(gate, "allocations", then->allocations, now.allocations) +
        gate_compare_count(gate, "reservations", then->reservations, now.reservations) +
        gate_compare_count(gate, "mappings", then->mappings, now.mappings) +
        gate_compare_count(gate, "plain allocations", then->plain, now.plain) +
        gate_compare_count(gate, "streams", then->streams, now.streams) +
        gate_compare_count(gate, "events", then->events, now.events) +
        gate_compare_count(gate, "contexts", then->contexts, now.contexts) +
        gate_compare_count(gate, "retains of primary contexts", then->primary, now.primary) +
        gate_compare_count(gate, "pools", then->pools, now.pools) +
        gate_compare_count(gate, "allocations of pools", then->pooled, now.pooled) +
        gate_compare_count(gate, "opened legacy handles", then->ipc, now.ipc) +
        gate_compare_count(gate, "pinned ranges of the host", then->pinned, now.pinned) +
        gate_compare_count(gate, "managed allocations", then->managed, now.managed) +
        gate_compare_count(gate, "graphs", then->graphs, now.graphs) +
        gate_compare_count(gate, "executable graphs", then->graph_execs, now.graph_execs);
    if (leaks > 0) {
        gate_list_driver(gate);
    }
    return leaks;
}

int leak_gate_look(leak_gate *gate) {
    if (gate->is_broken) {
        return 1;
    }
    gate->text[0] = '\0';
    int leaks =
        gate->get_live == NULL ? 0 : gate_compare_driver(gate); /* joins threads that have ended */
    leaks += gate_compare_list(gate, &gate->handles, resource_list_handles,
                               "the list of handles could not be read");
    leaks += gate_compare_list(gate, &gate->mappings, resource_list_mappings,
                               "the list of mappings could not be read");
    return leaks;
}

int leak_gate_await(leak_gate *gate, int timeout_ms) {
    const os_deadline deadline = os_deadline_after(timeout_ms);
    while (leak_gate_look(gate) != 0) {
        if (gate->is_broken || os_deadline_passed(deadline)) {
            return leak_gate_end(gate);
        }
        os_sleep_ms(1);
    }
    (void)leak_gate_end(gate);
    return 0;
}

int leak_gate_end(leak_gate *gate) {
    const int leaks = leak_gate_look(gate);
    resource_list_free(&gate->handles);
    resource_list_free(&gate->mappings);
    if (gate->driver != NULL) {
        os_library_close(gate->driver);
        gate->driver = NULL;
    }
    return leaks;
}
