/* SPDX-License-Identifier: MIT */
/** @file See doctor.h. */
#include "doctor.h"

#include <stdio.h>
#include <string.h>

#include <gpuipc/gpuipc.h>

#include "watchdog.h"

static void print_finding(const gpuipc_finding *one) {
    printf("%s  %-6s  %s\n", one->id, gpuipc_severity_name(one->severity), one->cause);
    printf("     found:    %s\n", one->evidence);
    printf("     remedy:   %s\n", one->remedy);
    printf("     security: %s\n\n", one->cost);
}

static bool is_found(const gpuipc_finding *findings, size_t count, uint32_t number) {
    for (size_t i = 0; i < count; i++) {
        if (findings[i].number == number) {
            return true;
        }
    }
    return false;
}

static void print_absent(const gpuipc_finding *findings, size_t count) {
    gpuipc_finding one;
    for (uint32_t number = 1; gpuipc_finding_describe(number, &one) == GPUIPC_OK; number++) {
        if (!is_found(findings, count, number)) {
            printf("%s  not so: %s\n", one.id, one.cause);
        }
    }
}

static unsigned count_of(const gpuipc_finding *findings, size_t count, gpuipc_severity severity) {
    unsigned found = 0;
    for (size_t i = 0; i < count; i++) {
        found += findings[i].severity == severity;
    }
    return found;
}

/* The library's "auto" is the installed driver, and so is the tool's "cuda". */
static const char *driver_choice(const options *wanted) {
    return strcmp(wanted->driver, "cuda") == 0 ? "auto" : wanted->driver;
}

int doctor(const options *wanted) {
    static gpuipc_finding findings[GPUIPC_FINDING_COUNT];
    const gpuipc_context_config config = {.struct_size = sizeof(config),
                                          .driver = driver_choice(wanted)};
    size_t count = 0;
    watchdog_expect("looking at the machine, and trying to share memory on it", wanted->timeout_ms);
    if (gpuipc_diagnose(&config, 0, findings, GPUIPC_FINDING_COUNT, &count) != GPUIPC_OK) {
        fprintf(stderr, "gpuipc-selftest: FAIL: %s\n", gpuipc_error_text());
        return EXIT_FAIL;
    }
    watchdog_rest();
    for (size_t i = 0; i < count; i++) {
        print_finding(&findings[i]);
    }
    if (wanted->verbose) {
        print_absent(findings, count);
    }
    const unsigned blocks = count_of(findings, count, GPUIPC_SEVERITY_BLOCKS);
    printf("%d causes looked for: %u block, %u slow, %u to note\n", GPUIPC_FINDING_COUNT, blocks,
           count_of(findings, count, GPUIPC_SEVERITY_SLOWS),
           count_of(findings, count, GPUIPC_SEVERITY_NOTE));
    return blocks == 0 ? EXIT_PASS : EXIT_FAIL;
}
