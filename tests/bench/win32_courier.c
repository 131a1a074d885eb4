/* SPDX-License-Identifier: MIT */
/** @file See courier.h. */
#include "courier.h"

#include "bench_call.h"

static const char missing[] = "the driver's calls by hand are written for Linux only";

const char *courier_why_not(void) {
    return missing;
}

courier *courier_listen(const char *directory, const char *name) {
    bench_fail("%s (%s, %s)", missing, directory, name);
}

void courier_accept(courier *self) {
    (void)self;
    bench_fail("%s", missing);
}

courier *courier_connect(const char *directory, const char *name) {
    bench_fail("%s (%s, %s)", missing, directory, name);
}

void courier_send(courier *self, const int *descriptors, size_t count) {
    (void)self;
    (void)descriptors;
    (void)count;
    bench_fail("%s", missing);
}

size_t courier_receive(courier *self, int *descriptors) {
    (void)self;
    (void)descriptors;
    bench_fail("%s", missing);
}

void courier_say(courier *self, uint64_t number) {
    (void)self;
    bench_fail("%s (%llu)", missing, (unsigned long long)number);
}

uint64_t courier_hear(courier *self) {
    (void)self;
    bench_fail("%s", missing);
}

void courier_close_descriptor(int descriptor) {
    (void)descriptor;
    bench_fail("%s", missing);
}

void courier_end(courier *self) {
    (void)self;
}
