/* SPDX-License-Identifier: MIT */
/** @file See slope.h. */
#include "slope.h"

#include <math.h>

/* Of Student's t, two-sided 99 %, for SLOPE_BLOCKS - 1 = 9 degrees of freedom. */
#define STUDENT 3.250

static double mean_of(const double *of, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        sum += of[i];
    }
    return sum / (double)count;
}

/* Least squares. */
static double of_block(const double *x, const double *y) {
    const double x_mean = mean_of(x, SLOPE_IN_BLOCK);
    const double y_mean = mean_of(y, SLOPE_IN_BLOCK);
    double above = 0;
    double below = 0;
    for (size_t i = 0; i < SLOPE_IN_BLOCK; i++) {
        above += (x[i] - x_mean) * (y[i] - y_mean);
        below += (x[i] - x_mean) * (x[i] - x_mean);
    }
    return above / below;
}

slope slope_of(const double x[SLOPE_SAMPLES], const double y[SLOPE_SAMPLES]) {
    double each[SLOPE_BLOCKS];
    double squares = 0;
    for (size_t i = 0; i < SLOPE_BLOCKS; i++) {
        each[i] = of_block(x + i * SLOPE_IN_BLOCK, y + i * SLOPE_IN_BLOCK);
    }
    const double mean = mean_of(each, SLOPE_BLOCKS);
    for (size_t i = 0; i < SLOPE_BLOCKS; i++) {
        squares += (each[i] - mean) * (each[i] - mean);
    }
    return (slope){mean, STUDENT * sqrt(squares / (SLOPE_BLOCKS * (SLOPE_BLOCKS - 1)))};
}

bool slope_grows(const slope *self) {
    return self->per_x > self->error;
}
