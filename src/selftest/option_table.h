/* SPDX-License-Identifier: MIT */
/** @file Which options and commands there are: what getopt_long is told, what --help prints, and which go together. */
#ifndef GPUIPC_SELFTEST_OPTION_TABLE_H
#define GPUIPC_SELFTEST_OPTION_TABLE_H

#include <getopt.h>

#include "options.h"

/** What getopt_long answers for each: its letter where it has one. */
enum {
    OPTION_DEVICE = 'd',
    OPTION_HELP = 'h',
    OPTION_JSON = 'j',
    OPTION_QUICK = 'q',
    OPTION_SIZE = 's',
    OPTION_TIMEOUT = 't',
    OPTION_VERBOSE = 'v',
    OPTION_VERSION = 'V',
    OPTION_DRIVER = 256,
    OPTION_PEER,
    OPTION_ADMIT,
    OPTION_NAME,
    OPTION_TICKET,
    OPTION_BENCH_COPY,
    OPTION_MEASURE,
    OPTION_MEMBERS,
    OPTION_ONLY,
    OPTION_FULL,
    OPTION_REQUIRE,
    OPTION_MIN_GBPS,
    OPTION_CSV,
    OPTION_TAP,
    OPTION_MARKDOWN,
    OPTION_HTML,
    OPTION_JUNIT,
    OPTION_ASCII,
    OPTION_DURATION,
    OPTION_PARENT,
    OPTION_PAIRS,
    OPTION_UNTIL,
    OPTION_INDEX,
    OPTION_END /**< one more than the last */
};

/** For getopt_long; the last one is all zero. Static. */
const struct option *option_table(void);

/** The letters, likewise; a missing argument is told from an unknown option. Static. */
const char *option_table_letters(void);

/** The command of this word, with how many words may follow it. False: it is none. */
bool option_table_command(const char *word, command *out_command, int *out_words);

/** What a command is called; "" for a run without one. */
const char *option_table_name(command which);

/** Whether an option is one of a command's. If not, a complaint names both. */
bool option_table_check(int option, command which);

/** Prints how a command is used, and its options. */
void option_table_help(command which);

#endif
