/* SPDX-License-Identifier: MIT */
/** @file Samples of one quantity, in the order in which they were taken. */
#ifndef GPUIPC_BENCH_SAMPLES_H
#define GPUIPC_BENCH_SAMPLES_H

#include <stddef.h>

typedef struct samples {
    double *values;
    size_t count;
    size_t capacity;
} samples;

void samples_add(samples *self, double value);
/** Frees; empty again. */
void samples_clear(samples *self);

/** What is told of them. */
typedef struct figure {
    size_t rounds; /**< 0: not measured */
    double median;
    double p99;   /**< 99 of 100 samples are at most this */
    double p9999; /**< 9,999 of 10,000; 0: there are fewer */
    double drift; /**< of the median from the first third of the samples to the last: 0.03 is 3 % */
} figure;

figure samples_figure(const samples *self);

/** Median of a part. */
double samples_median(const samples *self, size_t first, size_t count);

#endif
