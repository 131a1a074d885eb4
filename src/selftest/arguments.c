/* SPDX-License-Identifier: MIT */
/** @file See arguments.h. */
#include "arguments.h"

#include <inttypes.h>
#include <stdio.h>

#include "os.h"

void arguments_add(arguments *self, const char *word) {
    self->list[self->count++] = word;
}

void arguments_add_number(arguments *self, const char *option, uint64_t number) {
    char *word = self->made[self->count];
    (void)snprintf(word, ARGUMENT_LENGTH, "%s=%" PRIu64, option, number);
    arguments_add(self, word);
}

void arguments_add_sizes(arguments *self, const options *wanted) {
    for (size_t i = 0; i < wanted->size_count; i++) {
        arguments_add_number(self, "--size", wanted->sizes[i]);
    }
}

void arguments_begin(arguments *self, const char *role_word, const char *name, const char *choice,
                     const options *wanted) {
    *self = (arguments){0};
    arguments_add(self, role_word);
    arguments_add(self, "--name");
    arguments_add(self, name);
    arguments_add(self, "--driver");
    arguments_add(self, choice);
    arguments_add_number(self, "--timeout", (uint64_t)wanted->timeout_ms / 1000);
    arguments_add_number(self, "--parent", os_process_id());
}

const char *arguments_unique_name(char name[ARGUMENT_LENGTH]) {
    uint64_t random = 0;
    /* Without random bits the name is still this process's own. */
    (void)os_random(&random, sizeof(random));
    (void)snprintf(name, ARGUMENT_LENGTH, ARGUMENTS_NAME_BEGINS "%" PRIu64 "-%016" PRIx64,
                   os_process_id(), random);
    return name;
}
