/* SPDX-License-Identifier: MIT */
/** @file See report.h. */
#include "report.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "system.h"

bench_result result_make(const bench_pair *pair, const char *row, const char *part,
                         const char *unit) {
    bench_result self = {.unit = unit, .is_emulated = pair->is_emulated};
    (void)snprintf(self.name, sizeof(self.name), "%s%s%s", row, part == NULL ? "" : "/",
                   part == NULL ? "" : part);
    return self;
}

static void check(bench_result *self, result_check what) {
    if (self->check_count < RESULT_CHECKS_MAX) {
        self->checks[self->check_count++] = what;
    }
}

void result_check_least(bench_result *self, const char *name, double value, double target) {
    check(self, (result_check){name, value, target, true});
}

void result_check_most(bench_result *self, const char *name, double value, double target) {
    check(self, (result_check){name, value, target, false});
}

void result_note(bench_result *self, const char *name, double value) {
    if (self->extra_count < RESULT_EXTRAS_MAX) {
        self->extras[self->extra_count++] = (result_extra){name, value};
    }
}

static bool is_reached(const result_check *of) {
    return of->is_least ? of->value >= of->target : of->value <= of->target;
}

bool result_is_void(const bench_result *self) {
    const figure *floor = self->floor.rounds > 0 ? &self->floor : &self->bare;
    return floor->rounds > 0 && floor->drift > RESULT_DRIFT_MAX;
}

const char *result_verdict(const bench_result *self) {
    if (self->refused != NULL) {
        return "refused";
    }
    if (self->is_emulated) {
        return "emulated";
    }
    if (result_is_void(self)) {
        return "void";
    }
    for (size_t i = 0; i < self->check_count; i++) {
        if (!is_reached(&self->checks[i])) {
            return "not reached";
        }
    }
    return self->check_count > 0 ? "reached" : "no target";
}

static void print_figure(const char *name, const figure *of, const char *unit, bool with_drift) {
    if (of->rounds == 0) {
        return;
    }
    (void)printf("  %s %.6g %s (p99 %.6g", name, of->median, unit, of->p99);
    if (of->p9999 > 0) {
        (void)printf(", p99.99 %.6g", of->p9999);
    }
    if (with_drift) {
        (void)printf(", drift %.1f %%", of->drift * 100);
    }
    (void)printf(")");
}

void report(const bench_result *result) {
    (void)printf("%s: %s;", result->name, result_verdict(result));
    if (result->refused != NULL) {
        (void)printf(" %s", result->refused);
    }
    print_figure("gpuipc", &result->gpuipc, result->unit, false);
    print_figure("floor", &result->floor, result->unit, true);
    print_figure("bare", &result->bare, result->unit, true);
    (void)printf("\n");
    for (size_t i = 0; i < result->check_count; i++) {
        const result_check *of = &result->checks[i];
        (void)printf("    %s %.6g, %s %.6g: %s\n", of->name, of->value,
                     of->is_least ? "at least" : "at most", of->target,
                     result->is_emulated ? "emulated"
                     : is_reached(of)    ? "reached"
                                         : "not reached");
    }
    for (size_t i = 0; i < result->extra_count; i++) {
        (void)printf("    %s %.6g\n", result->extras[i].name, result->extras[i].value);
    }
    report_json_print_result(result);
    (void)fflush(stdout);
}

void report_refusal(const bench_pair *pair, const char *row, const char *reason) {
    bench_result self = result_make(pair, row, NULL, "");
    self.refused = reason;
    report(&self);
}

void report_machine(const bench_pair *pair) {
    char kernel[160];
    char date[32];
    gpuipc_device_info owner = {.struct_size = sizeof(owner)};
    const time_t now = time(NULL);
    system_kernel(kernel, sizeof(kernel));
    (void)strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%SZ", gmtime(&now));
    bench_check(gpuipc_device_get_info(pair->context, pair->owner, &owner), "a device");
    (void)printf("# driver: %s, CUDA %d.%d; device %u to %u; %s; %s\n",
                 pair->is_emulated ? "EMULATED (figures mean nothing)" : "real",
                 bench_driver.version / 1000, bench_driver.version % 1000 / 10,
                 (unsigned)pair->owner, (unsigned)pair->opener, owner.name, kernel);
    report_json_print_machine(pair, kernel, date);
    (void)fflush(stdout);
}
