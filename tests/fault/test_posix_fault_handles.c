/* SPDX-License-Identifier: MIT */
/**
 * @file The process reaches its limit of descriptors, at every point of a scenario in turn
 * (RLIMIT_NOFILE, getrlimit(2)): the status says so, and nothing is left behind.
 */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "check.h"
#include "leak_gate.h"
#include "scenario.h"

TestSuite(posix_fault_handles, .timeout = 120);

/* More than any scenario needs at a time. */
enum {
    ROOM_MAX = 64,
    PATIENCE_MS = 20000
};

/* Lets this process open only @p room more descriptors: a new one takes the lowest free number, and
 * numbers from the limit on are refused. */
static void limit_to(unsigned room) {
    struct rlimit limit;
    rlim_t number = 0;
    unsigned free_numbers = 0;
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    while (free_numbers < room || fcntl((int)number, F_GETFD) >= 0) {
        free_numbers += fcntl((int)number, F_GETFD) < 0;
        number++;
    }
    limit.rlim_cur = number;
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static void limit_lift(rlim_t before) {
    struct rlimit limit;
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = before;
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static gpuipc_status run(const scenario *what, unsigned room) {
    scenario_state state;
    struct rlimit before;
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
    check_ok(scenario_begin(what, &state));
    limit_to(room);
    gpuipc_status status = what->run(&state);
    limit_lift(before.rlim_cur);
    scenario_end(&state);
    return status;
}

/* @return how many descriptors the scenario needs */
static unsigned run_out_of_handles(const char *name) {
    const scenario *what = scenario_find(name);
    gpuipc_status status;
    unsigned room = 0;
    cr_assert_not_null(what);
    check_ok(run(what, ROOM_MAX)); /* what is made once in a process is made */
    do {
        leak_gate gate;
        leak_gate_begin(&gate);
        status = run(what, room);
        cr_assert(status == GPUIPC_OK || status == GPUIPC_ERR_TOO_MANY_HANDLES,
                  "%s with %u: %s (%s: %s)", name, room, gpuipc_status_name(status),
                  gpuipc_error_get()->operation, gpuipc_error_get()->sentence);
        /* A socket with what did not fit is closed by a thread (posix_packet_close()). */
        cr_assert_eq(leak_gate_await(&gate, PATIENCE_MS), 0, "%s with %u:\n%s", name, room,
                     gate.text);
        room++;
        cr_assert(room < ROOM_MAX, "%s: %s", name, gpuipc_error_get()->sentence);
    } while (status != GPUIPC_OK);
    check_ok(run(what, ROOM_MAX));
    return room - 1;
}

Test(posix_fault_handles, native) {
    cr_assert_geq(run_out_of_handles("native"), 3); /* one per segment */
}

Test(posix_fault_handles, share) {
    cr_assert_geq(run_out_of_handles("share"), 6); /* the ends, and the handles on both sides */
}

Test(posix_fault_handles, relay) {
    cr_assert_geq(run_out_of_handles("relay"), 9);
}

Test(posix_fault_handles, channel) {
    cr_assert_geq(run_out_of_handles("channel"), 4); /* the server's, and two pages */
}

Test(posix_fault_handles, context) {
    cr_assert_eq(run_out_of_handles("context"), 0);
}
