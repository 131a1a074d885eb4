/* SPDX-License-Identifier: MIT */
/** @file What a run stands on, in one place for all outputs: versions, system, container, and how the driver runs GPUs. */
#ifndef GPUIPC_SELFTEST_PLATFORM_H
#define GPUIPC_SELFTEST_PLATFORM_H

#include "os.h"
#include "session.h"

typedef enum platform_fact {
    PLATFORM_GPUIPC,
    PLATFORM_DRIVER_VERSION,
    PLATFORM_DRIVER_MODEL,
    PLATFORM_SYSTEM,
    PLATFORM_CONTAINER,
    PLATFORM_PID_NAMESPACE,
    PLATFORM_COUNT
} platform_fact;

typedef struct platform {
    char values[PLATFORM_COUNT][OS_FACT_MAX]; /**< empty: there is none, or it is not known */
    bool has_namespaces;                      /**< an empty PID namespace is the machine's first */
} platform;

/** What is known without a driver. */
void platform_begin(platform *self, const os_facts *facts);

/** What the driver of a session says of itself, in place of the installed one. */
void platform_ask(platform *self, const session *at, const os_facts *facts);

/** Its name for programs, such as "driver_model". */
const char *platform_name(platform_fact which);
/** Its name for people. */
const char *platform_label(platform_fact which);
/** Its value for people: never empty. */
const char *platform_text(const platform *self, platform_fact which);

#endif
