/* SPDX-License-Identifier: MIT */
/** @file See ring.h: the program that starts the others. ring_member.c is one of those, ring_inside.c the
 *  ring of devices in one program. */
#include "ring.h"

#include <stdio.h>
#include <stdlib.h>

#include "crew.h"
#include "ring_inside.h"
#include "run.h"
#include "watchdog.h"
#include "wrap.h"

#define MEMBERS_MIN 2

static void run_programs(const options *wanted, const session *at, tally *total) {
    char name[ARGUMENT_LENGTH];
    crew_part whole = {.number = 1, .all = 1};
    uint32_t devices = at->info.device_count;
    uint32_t count = wanted->members != 0 ? wanted->members : devices;
    count = count < MEMBERS_MIN ? MEMBERS_MIN : count > CHILDREN_MAX ? CHILDREN_MAX : count;
    crew_member *members = calloc(count, sizeof(*members));
    if (members == NULL) {
        wrap_complain("FAIL: no memory for %u programs", count);
        total->failed++;
        return;
    }
    (void)arguments_unique_name(name);
    (void)snprintf(whole.title, sizeof(whole.title), "ring of %u", count);
    /* peer access alone never leaves its process */
    whole.cases = count * (GPUIPC_TRANSPORT_COUNT - 1);
    for (uint32_t i = 0; i < count; i++) {
        arguments *words = &members[i].words;
        (void)snprintf(members[i].name, sizeof(members[i].name), "member %u", i);
        arguments_begin(words, "ring-member", name, at->choice, wanted);
        arguments_add_number(words, "--index", i);
        arguments_add_number(words, "--members", count);
        arguments_add_sizes(words, wanted);
    }
    (void)crew_run(wanted, &whole, 1, members, count, total);
    free(members);
}

int ring(const options *wanted) {
    session at;
    tally total = {0};
    int code = run_begin(wanted, &at);
    if (code != EXIT_PASS) {
        return code;
    }
    do {
        run_programs(wanted, &at, &total);
        ring_inside(wanted, &at, &total);
    } while (run_again(wanted));
    code = run_summarize(wanted, &at, &total);
    run_end(wanted, &at);
    return code;
}
