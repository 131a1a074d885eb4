/* SPDX-License-Identifier: MIT */
/** @file Programs of the tool that work together, each a process, watched until all have ended. */
#ifndef GPUIPC_SELFTEST_CREW_H
#define GPUIPC_SELFTEST_CREW_H

#include "arguments.h"
#include "child.h"
#include "role.h"

/** What the cases came to. */
typedef struct tally {
    unsigned passed;
    unsigned failed;
    unsigned skipped;
} tally;

typedef struct crew_member {
    char name[32]; /**< "producer" */
    arguments words;
    bool ended;                /**< its output has */
    char step[ROLE_LINE_MAX];  /**< what it did last */
    char notes[ROLE_LINE_MAX]; /**< of the case whose verdict comes next, each with a newline */
} crew_member;

/** What a crew does, in parts that follow each other. */
typedef struct crew_part {
    char title[96]; /**< what every line of it begins with, such as "device 0 -> device 1" */
    unsigned cases; /**< how many lines there must be; those that are missing count as failed */
    unsigned
        number; /**< of all that the tool does in parts like this, from 1 on, as progress has it; 0: its place here */
    unsigned all; /**< how many those are */
} crew_part;

/** Starts them all and prints a line for each case.
 *  @return how many parts were done. Fewer than all when the programs ended after one that failed: the others were not tried */
size_t crew_run(const options *wanted, const crew_part *parts, size_t part_count,
                crew_member *members, size_t count, tally *total);

#endif
