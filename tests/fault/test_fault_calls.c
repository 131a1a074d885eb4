/* SPDX-License-Identifier: MIT */
/**
 * @file Row 1 of docs/reliability.md. Each call that a scenario makes of the system, of the allocator and of the driver
 * fails in turn, alone with each error of its manual page, then with the next one or three, then with all later ones.
 * After each: a status with a record, or a reason why there is none; everything given back; an honest process served.
 */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "fault_run.h"
#include "form.h"
#include "scenario_more.h"

TestSuite(fault_calls, .timeout = 10000);

/* One point may take so long: the longest wait of a scenario, several times. */
#define POINT_MAX_MS 60000

/* SPREAD: in the short form one point of so many is taken. A prime: no period of the errors or the calls is met. */

/* ---- all points of a scenario ---------------------------------------------------------------------- */

static bool has_failed(const fault_row *row) {
    bool any = false;
    for (size_t i = 0; i < row->count && !any; i++) {
        any = row->events[i].code != 0;
    }
    return any;
}

typedef struct tally {
    uint64_t seen;    /* points that there are */
    uint64_t points;  /* of them done */
    uint64_t missed;  /* whose call was not reached that time */
    uint64_t refused; /* in which the scenario ended with a status */
    uint64_t wrong;
} tally;

static void describe(const scenario *what, const fault_plan *plan, const fault_event *event,
                     char *text, size_t capacity) {
    const char *then = plan->last == plan->first  ? "alone"
                       : plan->last == UINT64_MAX ? "and all later ones"
                                                  : "and the next";
    (void)snprintf(text, capacity, "%s: call %" PRIu64 ", %s, during %s, error %d, %s", what->name,
                   plan->first, event->call->name, event->during,
                   event->call->error_count > 0 ? event->call->errors[plan->error] : 0, then);
}

static void tell(const char *text, const char *why, const fault_row *row) {
    enum {
        TOLD_MAX = 8
    };
    fprintf(stderr, "fault.calls: %s: %s\n", text, why);
    for (size_t i = 0, told = 0; i < row->count && told < TOLD_MAX; i++) {
        const fault_event *event = &row->events[i];
        if (event->code != 0) {
            fprintf(stderr, "fault.calls:     call %zu, %s, during %s, failed with %d\n", i + 1,
                    event->call->name, event->during, event->code);
            told++;
        }
    }
}

static void try_point(const scenario *what, const fault_plan *plan, const fault_event *event,
                      tally *sum) {
    fault_outcome got;
    char text[256];
    char why[2400];
    if (!form_is_full() && sum->seen++ % SPREAD != 0) {
        return;
    }
    describe(what, plan, event, text, sizeof(text));
    fault_point_begin(text);
    fault_run(what, plan, &got);
    if (!fault_judge(what, &got, why, sizeof(why))) {
        tell(text, why, got.row);
        sum->wrong++;
    }
    cr_assert(fault_is_peer_served(), "%s: an honest process is not served", text);
    fault_point_end();
    sum->points += has_failed(got.row);
    sum->missed += !has_failed(got.row);
    sum->refused += got.status != GPUIPC_OK;
}

/* The calls of a run in which nothing fails. */
static fault_row *rehearse(const scenario *what) {
    static fault_row row;
    const fault_plan nothing = {.first = 0};
    fault_outcome got = {.status = GPUIPC_OK};
    char why[2400];
    fault_point_begin(what->name);
    fault_warm(what);
    fault_run(what, &nothing, &got);
    check_ok(got.status);
    fault_point_end();
    cr_assert(fault_judge(what, &got, why, sizeof(why)), "%s: %s", what->name, why);
    cr_assert_lt(got.row->count, FAULT_EVENTS_MAX);
    memcpy(&row, got.row, sizeof(row));
    return &row;
}

/* The same call for the third time and more: it looks again and again, as often as there is time. */
static bool is_in_a_loop(const fault_event *event, uint64_t number) {
    return number > 2 && event[-1].call == event->call && event[-2].call == event->call &&
           event->call->layer == FAULT_SYSTEM;
}

static void fail_everything(const scenario *what, tally *sum) {
    static const uint64_t more[] = {1, 3};
    const fault_row *row = rehearse(what);
    const tally before = *sum;
    for (uint64_t number = 1; number <= row->count; number++) {
        const fault_event *event = &row->events[number - 1];
        if (is_in_a_loop(event, number)) {
            continue;
        }
        fault_plan plan = {number, number, 0};
        /* Of the driver each call fails alone in fault.driver. */
        const size_t alone = event->call->layer == FAULT_DRIVER ? 0 : event->call->error_count;
        for (plan.error = 0; plan.error < alone; plan.error++) {
            try_point(what, &plan, event, sum);
        }
        plan.error = event->call->error_count > 0 ? number % event->call->error_count : 0;
        for (size_t i = 0; i < sizeof(more) / sizeof(more[0]); i++) {
            plan.last = number + more[i];
            try_point(what, &plan, event, sum);
        }
        plan = (fault_plan){number, UINT64_MAX, 0};
        try_point(what, &plan, event, sum);
    }
    (void)rehearse(what); /* and the next time it works */
    fprintf(stderr,
            "fault.calls %s: %zu calls, %" PRIu64 " points, %" PRIu64 " of them refused, %" PRIu64
            " not reached\n",
            what->name, row->count, sum->points - before.points, sum->refused - before.refused,
            sum->missed - before.missed);
}

static const scenario *find(const char *name) {
    const scenario *found = scenario_find(name);
    for (size_t i = 0; i < more_scenario_count && found == NULL; i++) {
        found = strcmp(more_scenarios[i].name, name) == 0 ? &more_scenarios[i] : NULL;
    }
    cr_assert_not_null(found, "%s", name);
    return found;
}

/* GPUIPC_FAULT_ONLY names one scenario: a part of the full form. */
static void fail_all_of(const char *const *names) {
    const char *const only = os_environment("GPUIPC_FAULT_ONLY");
    tally sum = {0};
    fault_begin_all(POINT_MAX_MS);
    for (; *names != NULL; names++) {
        if (only == NULL || strcmp(*names, only) == 0) {
            fail_everything(find(*names), &sum);
        }
    }
    fault_end_all();
    cr_assert_eq(sum.wrong, 0, "%" PRIu64 " points are not as they must be", sum.wrong);
    cr_assert(only != NULL || (sum.points > 0 && sum.refused > 0));
    fprintf(stderr, "fault.calls: %" PRIu64 " points in all\n", sum.points);
}

Test(fault_calls, memory) {
    static const char *const names[] = {"context", "create", "wrap", "native", "data",   "access",
                                        "p2p",     "legacy", "host", "pool",   "staged", NULL};
    fail_all_of(names);
}

Test(fault_calls, messages) {
    static const char *const names[] = {"share", "relay", "accept", "send", "receive",
                                        "many",  "close", "mark",   "loan", NULL};
    fail_all_of(names);
}

Test(fault_calls, tickets) {
    static const char *const names[] = {"ticket",  "open",    "serve", "revoke",
                                        "destroy", "channel", NULL};
    fail_all_of(names);
}

Test(fault_calls, questions) {
    static const char *const names[] = {"probe", "diagnose", "file", NULL};
    fail_all_of(names);
}
