/* SPDX-License-Identifier: MIT */
/** @file See pair.h. */
#include "pair.h"

#include <inttypes.h>
#include <stdio.h>

#include "program.h"
#include "quantity.h"

enum {
    PRODUCER,
    CONSUMER,
    PROGRAMS
};

/* Of one pair in the text: two numbers of 32 bits, and what stands between. */
#define PAIR_TEXT_MAX 24

size_t pair_read_all(const char *text, pair out_pairs[PAIRS_MAX]) {
    for (size_t count = 0; count < PAIRS_MAX;) {
        uint64_t owner;
        uint64_t user;
        if (!quantity_take_number(&text, &owner) || *text++ != '-' ||
            !quantity_take_number(&text, &user) || owner >= DEVICE_ANY || user >= DEVICE_ANY) {
            return 0;
        }
        out_pairs[count++] = (pair){.owner = (uint32_t)owner, .user = (uint32_t)user};
        if (*text == '\0') {
            return count;
        }
        if (*text++ != ',') {
            return 0;
        }
    }
    return 0;
}

static void write_all(char *text, size_t capacity, const pair *pairs, size_t count) {
    size_t used = (size_t)snprintf(text, capacity, "--pairs=");
    for (size_t i = 0; i < count; i++) {
        used += (size_t)snprintf(text + used, capacity - used, "%s%" PRIu32 "-%" PRIu32,
                                 i > 0 ? "," : "", pairs[i].owner, pairs[i].user);
    }
}

/* Two programs for these pairs. @return how many of them were done */
static size_t run_some(const options *wanted, const char *choice, const pair *pairs, size_t count,
                       unsigned cases, tally *total) {
    static const char *const commands[PROGRAMS] = {"produce", "consume"};
    crew_member members[PROGRAMS] = {{.name = "producer"}, {.name = "consumer"}};
    crew_part parts[PAIRS_MAX];
    char text[PAIRS_MAX * PAIR_TEXT_MAX];
    char name[ARGUMENT_LENGTH];
    (void)arguments_unique_name(name);
    for (size_t i = 0; i < count; i++) {
        parts[i] = (crew_part){.cases = cases};
        (void)snprintf(parts[i].title, sizeof(parts[i].title), "device %u -> device %u",
                       pairs[i].owner, pairs[i].user);
    }
    for (int i = 0; i < PROGRAMS; i++) {
        arguments_begin(&members[i].words, commands[i], name, choice, wanted);
    }
    arguments *words = &members[PRODUCER].words;
    write_all(text, sizeof(text), pairs, count);
    arguments_add(words, text);
    arguments_add_sizes(words, wanted);
    if (wanted->bench_copy) {
        arguments_add(words, "--bench-copy");
    }
    arguments_add_number(words, "--until", wanted->until_ns);
    return crew_run(wanted, parts, count, members, PROGRAMS, total);
}

void pair_run_all(const options *wanted, const char *choice, const pair *pairs, size_t count,
                  unsigned cases, tally *total) {
    for (size_t done = 0; done < count && !program_is_interrupted();) {
        done += run_some(wanted, choice, pairs + done, count - done, cases, total);
    }
}
