/* SPDX-License-Identifier: MIT */
/** @file Which options and commands there are: what getopt_long is told, what --help prints, and which go together. */
#ifndef GPUIPC_SELFTEST_OPTION_TABLE_H
#define GPUIPC_SELFTEST_OPTION_TABLE_H

#include <getopt.h>

#include "options.h"

/** What getopt_long answers for each. */
enum {
    OPTION_DRIVER = 256,
    OPTION_DEVICE,
    OPTION_PEER,
    OPTION_ADMIT,
    OPTION_SIZE,
    OPTION_NAME,
    OPTION_TIMEOUT,
    OPTION_TICKET,
    OPTION_BENCH_COPY,
    OPTION_MEASURE,
    OPTION_MEMBERS,
    OPTION_ONLY,
    OPTION_QUICK,
    OPTION_FULL,
    OPTION_REQUIRE,
    OPTION_MIN_GBPS,
    OPTION_JSON,
    OPTION_CSV,
    OPTION_TAP,
    OPTION_MARKDOWN,
    OPTION_HTML,
    OPTION_JUNIT,
    OPTION_ASCII,
    OPTION_DURATION,
    OPTION_VERSION,
    OPTION_PARENT,
    OPTION_PAIRS,
    OPTION_UNTIL,
    OPTION_INDEX,
    OPTION_END /**< one more than the last */
};

/** For getopt_long; the last one is all zero. Static. */
const struct option *option_table(void);

/** The command of this word, with how many words may follow it. False: it is none. */
bool option_table_command(const char *word, command *out_command, int *out_words);

/** What a command is called; "" for a run without one. */
const char *option_table_name(command which);

/** Whether an option is one of a command's. If not, a complaint names both. */
bool option_table_check(int option, command which);

/** Prints how a command is used, and its options. */
void option_table_help(command which);

#endif
