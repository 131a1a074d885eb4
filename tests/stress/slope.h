/* SPDX-License-Identifier: MIT */
/**
 * @file Whether something grows: its slope over what was done, and how far that is from chance. The row of samples is cut
 * into blocks, each of which has a slope of its own (least squares); the answer is their mean, with its error. So one step,
 * such as a table that grows once, is seen in one block and not taken for growth, while what each cycle leaves behind is
 * in all of them.
 */
#ifndef GPUIPC_TEST_SLOPE_H
#define GPUIPC_TEST_SLOPE_H

#include <stdbool.h>
#include <stddef.h>

#define SLOPE_BLOCKS   10
#define SLOPE_IN_BLOCK 10
#define SLOPE_SAMPLES  (SLOPE_BLOCKS * SLOPE_IN_BLOCK)

typedef struct slope {
    double per_x;
    double error; /**< half of the interval in which it is with 99 % confidence */
} slope;

/** Of so many samples, in order of x. */
slope slope_of(const double x[SLOPE_SAMPLES], const double y[SLOPE_SAMPLES]);

/** Whether it is above 0 beyond chance. */
bool slope_grows(const slope *self);

#endif
