/* SPDX-License-Identifier: MIT */
/** @file The words of a command line for this program in another role, with room for those made here. */
#ifndef GPUIPC_SELFTEST_ARGUMENTS_H
#define GPUIPC_SELFTEST_ARGUMENTS_H

#include <stddef.h>
#include <stdint.h>

#include "options.h"

#define ARGUMENTS_MAX   48
#define ARGUMENT_LENGTH 48

typedef struct arguments {
    const char *list[ARGUMENTS_MAX]; /**< ends with NULL */
    size_t count;
    char made[ARGUMENTS_MAX][ARGUMENT_LENGTH];
} arguments;

/** Begins with the role and what every role gets: where to meet, the driver, its parent and how long
 *  a step may take. @p role_word, @p name and @p choice are kept, not copied. */
void arguments_begin(arguments *self, const char *role_word, const char *name, const char *choice,
                     const options *wanted);
/** Adds "OPTION=NUMBER". */
void arguments_add_number(arguments *self, const char *option, uint64_t number);
void arguments_add(arguments *self, const char *word);
/** Adds the sizes that were asked for. */
void arguments_add_sizes(arguments *self, const options *wanted);

/** How the names of arguments_unique_name() begin. */
#define ARGUMENTS_NAME_BEGINS "selftest-"

/** A name to meet at that no other run has. @return name */
const char *arguments_unique_name(char name[ARGUMENT_LENGTH]);

#endif
