/* SPDX-License-Identifier: MIT */
/** @file See system.h. */
#include "system.h"

#include <stdio.h>
#include <windows.h>

void system_kernel(char *text, size_t capacity) {
    (void)snprintf(text, capacity, "Windows");
}

void system_raise_limits(void) {
}

uint32_t system_processors(void) {
    return GetActiveProcessorCount(ALL_PROCESSOR_GROUPS);
}

bool system_threads(uint32_t *out_threads, uint64_t *out_switches) {
    (void)out_threads;
    (void)out_switches;
    return false;
}

bool system_descriptors(uint32_t *out_count) {
    (void)out_count;
    return false;
}
