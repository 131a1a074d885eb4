/* SPDX-License-Identifier: MIT */
/** @file See fault_point.h. */
#include "fault_point.h"

#include <stdatomic.h>

#include <gpuipc/gpuipc_status.h>

#include "base/status.h"
#include "os.h"
#include "thread_state.h"

/* Not variables of each thread: allocation.c says why. */
static _Atomic uint64_t watched_thread;
static uint64_t paused_thread;
static fault_plan plan;
static fault_row row;
static const char *entered = "";
static const char *part = "";

static bool is_watched(void) {
    const uint64_t thread = atomic_load(&watched_thread);
    return thread != 0 && thread == thread_state_own_number();
}

/* ld(1), --wrap=status_enter: every public function calls it first. */
void __real_status_enter(const char *call);
void __wrap_status_enter(const char *call);
void __wrap_status_enter(const char *call) {
    if (is_watched()) {
        entered = call;
    }
    __real_status_enter(call);
}

/* Parts of longer calls whose failures have other consequences than those of the rest. */
const char *fault_enter_part(const char *name) {
    const char *before = part;
    part = is_watched() && before[0] == '\0' ? name : before; /* of two the outer one counts */
    return before;
}

void fault_leave_part(const char *before) {
    part = before;
}

void __real_os_directory_sweep(const os_directory *directory, const char *prefix);
void __wrap_os_directory_sweep(const os_directory *directory, const char *prefix);
void __wrap_os_directory_sweep(const os_directory *directory, const char *prefix) {
    const char *before = fault_enter_part("os_directory_sweep");
    __real_os_directory_sweep(directory, prefix);
    fault_leave_part(before);
}

void __real_os_boot_id(uint8_t id[16]);
void __wrap_os_boot_id(uint8_t id[16]);
void __wrap_os_boot_id(uint8_t id[16]) {
    const char *before = fault_enter_part("os_boot_id");
    __real_os_boot_id(id);
    fault_leave_part(before);
}

void fault_begin(const fault_plan *wanted) {
    (void)gpuipc_error_get(); /* allocation.c, watch() */
    plan = *wanted;
    row.count = 0;
    entered = "";
    atomic_store(&watched_thread, thread_state_own_number());
}

void fault_pause(void) {
    paused_thread = atomic_exchange(&watched_thread, 0);
}

void fault_resume(void) {
    atomic_store(&watched_thread, paused_thread);
}

const fault_row *fault_end(void) {
    atomic_store(&watched_thread, 0);
    return &row;
}

/* The error of call number @p number, or 0. */
static int planned(const fault_call *call, uint64_t number) {
    if (plan.first == 0 || number < plan.first || number > plan.last || call->error_count == 0) {
        return 0;
    }
    if (plan.last == UINT64_MAX) {
        return call->is_transient ? 0 : call->errors[0];
    }
    return call->errors[(plan.error + (size_t)(number - plan.first)) % call->error_count];
}

int fault_ask(const fault_call *call) {
    if (!is_watched()) {
        return 0;
    }
    const uint64_t number = row.count + 1;
    const int code = planned(call, number);
    if (row.count < FAULT_EVENTS_MAX) {
        row.events[row.count++] = (fault_event){call, code, entered, part};
    }
    return code;
}
