/* SPDX-License-Identifier: MIT */
/** @file See samples.h. */
#include "samples.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench_call.h"

void samples_add(samples *self, double value) {
    if (self->count == self->capacity) {
        const size_t capacity = self->capacity == 0 ? 64 : self->capacity * 2;
        double *values = realloc(self->values, capacity * sizeof(*values));
        if (values == NULL) {
            bench_fail("no memory for %zu samples", capacity);
        }
        self->values = values;
        self->capacity = capacity;
    }
    self->values[self->count++] = value;
}

void samples_clear(samples *self) {
    free(self->values);
    *self = (samples){NULL, 0, 0};
}

static int compare(const void *left, const void *right) {
    const double a = *(const double *)left;
    const double b = *(const double *)right;
    return (a > b) - (a < b);
}

/* A sorted copy. */
static double *sorted(const samples *self, size_t first, size_t count) {
    double *copy = malloc((count + 1) * sizeof(*copy));
    if (copy == NULL) {
        bench_fail("no memory for %zu samples", count);
    }
    memcpy(copy, self->values + first, count * sizeof(*copy));
    qsort(copy, count, sizeof(*copy), compare);
    return copy;
}

static double middle(const double *ordered, size_t count) {
    return (ordered[(count - 1) / 2] + ordered[count / 2]) / 2;
}

double samples_median(const samples *self, size_t first, size_t count) {
    if (count == 0) {
        return 0;
    }
    double *ordered = sorted(self, first, count);
    const double median = middle(ordered, count);
    free(ordered);
    return median;
}

figure samples_figure(const samples *self) {
    figure of = {.rounds = self->count};
    if (self->count == 0) {
        return of;
    }
    double *ordered = sorted(self, 0, self->count);
    of.median = middle(ordered, self->count);
    of.p99 = ordered[(self->count * 99 + 99) / 100 - 1];
    of.p9999 = self->count < 10000 ? 0 : ordered[(self->count * 9999 + 9999) / 10000 - 1];
    free(ordered);
    const size_t third = (self->count + 2) / 3;
    const double begin = samples_median(self, 0, third);
    const double end = samples_median(self, self->count - third, third);
    of.drift = begin > 0 ? fabs(end / begin - 1) : 0;
    return of;
}
