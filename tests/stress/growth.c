/* SPDX-License-Identifier: MIT */
/** @file See growth.h. */
#include "growth.h"

#include <stdio.h>

#include "device_memory.h"
#include "form.h"
#include "process_size.h"
#include "slope.h"
#include "stress.h"

enum {
    HANDLES,
    MAPPINGS,
    ADDRESSES,
    OBJECTS,
    RESIDENT,
    OF_DEVICE,
    MEASURES
};

static const char *const measure_names[MEASURES] = {"handles",
                                                    "mappings",
                                                    "bytes of addresses",
                                                    "objects of the driver",
                                                    "resident bytes",
                                                    "bytes of the device that are not free"};

static struct {
    uint64_t warm;
    uint64_t cycles;
    size_t count; /* samples */
    double x[SLOPE_SAMPLES];
    double y[MEASURES][SLOPE_SAMPLES];
} run;

void growth_begin(uint64_t warm, uint64_t cycles) {
    STRESS_EXPECT(cycles >= warm + 10 * SLOPE_SAMPLES);
    run.warm = warm;
    run.cycles = cycles;
    run.count = 0;
}

void growth_look(uint64_t done) {
    process_size now;
    uint64_t used = 0;
    if (run.count == SLOPE_SAMPLES ||
        done < run.warm + (run.cycles - run.warm) * (run.count + 1) / SLOPE_SAMPLES) {
        return;
    }
    STRESS_EXPECT(process_size_get(&now) && device_memory_get_used(&used));
    run.x[run.count] = (double)done;
    run.y[HANDLES][run.count] = (double)now.handles;
    run.y[MAPPINGS][run.count] = (double)now.mappings;
    run.y[ADDRESSES][run.count] = (double)now.address_bytes;
    run.y[OBJECTS][run.count] = (double)stress_driver_objects();
    run.y[RESIDENT][run.count] = (double)now.resident_bytes;
    run.y[OF_DEVICE][run.count] = (double)used;
    run.count++;
}

/* A sanitizer keeps what was freed for a while: its memory grows until it has enough of it. */
static bool is_judged(int measure) {
    return (measure != RESIDENT && measure != ADDRESSES) || !IS_SANITIZED;
}

/* In the short form a few pages more are as much as this for each cycle; what is left behind is planted above it. */
static double least_seen(int measure) {
    return measure == RESIDENT || measure == ADDRESSES ? (double)form_choose(64, 0) : 0;
}

void growth_judge(const char *who) {
    bool grows = false;
    char line[256];
    STRESS_EXPECT(run.count == SLOPE_SAMPLES);
    for (int i = 0; i < MEASURES; i++) {
        const slope found = slope_of(run.x, run.y[i]);
        (void)snprintf(line, sizeof(line),
                       "%s: %s: %.0f, at the end %.0f; slope %.6f +- %.6f a cycle%s", who,
                       measure_names[i], run.y[i][0], run.y[i][SLOPE_SAMPLES - 1], found.per_x,
                       found.error, is_judged(i) ? "" : " (not judged)");
        (void)fprintf(stderr, "%s\n", line);
        grows = grows || (is_judged(i) && slope_grows(&found) && found.per_x > least_seen(i));
    }
    if (grows) {
        stress_fail("%s grows", who);
    }
}
