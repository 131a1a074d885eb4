/* SPDX-License-Identifier: MIT */
/** @file See pair.h. */
#include "pair.h"

#include <stdio.h>

enum {
    PRODUCER,
    CONSUMER,
    PROGRAMS
};

void pair_run(const options *wanted, const char *choice, uint32_t owner, uint32_t peer,
              unsigned cases, tally *total) {
    static const char *const commands[PROGRAMS] = {"produce", "consume"};
    crew_member members[PROGRAMS] = {{.name = "producer"}, {.name = "consumer"}};
    char title[64];
    char name[ARGUMENT_LENGTH];
    (void)arguments_unique_name(name);
    (void)snprintf(title, sizeof(title), "device %u -> device %u", owner, peer);
    for (int i = 0; i < PROGRAMS; i++) {
        arguments *words = &members[i].words;
        arguments_begin(words, commands[i], name, choice, wanted);
        arguments_add_number(words, "--device", owner);
        arguments_add_number(words, "--peer", peer);
    }
    arguments_add_sizes(&members[PRODUCER].words, wanted);
    if (wanted->bench_copy) {
        arguments_add(&members[PRODUCER].words, "--bench-copy");
    }
    crew_run(wanted, title, members, PROGRAMS, cases, total);
}
