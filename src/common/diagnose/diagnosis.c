/* SPDX-License-Identifier: MIT */
/** @file What findings are called and say, and how they are gathered. */
#include "diagnose/diagnosis.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"

#define BETWEEN "; "

/* @param number 0 to GPUIPC_FINDING_COUNT. Its own number is 0 where there is none. */
static const gpuipc_finding *row(uint32_t number) {
    static const char ids[GPUIPC_FINDING_COUNT + 1][4] = {
#define FINDING_ROW(number, name, severity, cause, remedy, cost)                                   \
    [number] = {'D', '0' + (number) / 10, '0' + (number) % 10, '\0'},
        GPUIPC_FINDING_LIST(FINDING_ROW)
#undef FINDING_ROW
    };
    static const gpuipc_finding findings[GPUIPC_FINDING_COUNT + 1] = {
#define FINDING_ROW(number, name, severity, cause, remedy, cost)                                   \
    [number] = {number, GPUIPC_SEVERITY_##severity, ids[number], #name, cause, remedy, cost, ""},
        GPUIPC_FINDING_LIST(FINDING_ROW)
#undef FINDING_ROW
    };
    return &findings[number];
}

static bool is_known(uint32_t number) {
    return number <= GPUIPC_FINDING_COUNT && row(number)->number != 0;
}

gpuipc_status gpuipc_finding_describe(uint32_t number, gpuipc_finding *out_finding) {
    status_enter(__func__);
    if (out_finding == NULL) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "out_finding is NULL");
    }
    if (!is_known(number)) {
        return status_fail(GPUIPC_ERR_NOT_FOUND, "%u is no finding; they are 1 to %d", number,
                           GPUIPC_FINDING_COUNT);
    }
    *out_finding = *row(number);
    return GPUIPC_OK;
}

const char *gpuipc_severity_name(gpuipc_severity severity) {
    switch (severity) {
    case GPUIPC_SEVERITY_NOTE:
        return "note";
    case GPUIPC_SEVERITY_SLOWS:
        return "slows";
    case GPUIPC_SEVERITY_BLOCKS:
        return "blocks";
    }
    return "unknown";
}

bool diagnosis_has(const diagnosis *self, finding_number number) {
    return self->findings[number].number != 0;
}

/* Adds a text as a whole; of one that does not fit, only that there is more. */
static void append(char *evidence, size_t capacity, const char *text) {
    static const char more[] = BETWEEN "...";
    const size_t length = strlen(evidence);
    const char *between = length > 0 ? BETWEEN : "";
    if (length == 0 || length + strlen(between) + strlen(text) + sizeof(more) <= capacity) {
        (void)snprintf(evidence + length, capacity - length, "%s%s", between, text);
    } else if (length < sizeof(more) || strcmp(evidence + length - (sizeof(more) - 1), more) != 0) {
        (void)snprintf(evidence + length, capacity - length, "%s", more);
    }
}

void diagnosis_add(diagnosis *self, finding_number number, gpuipc_severity severity,
                   const char *evidence, ...) {
    gpuipc_finding *finding = &self->findings[number];
    char text[sizeof(finding->evidence)];
    va_list arguments;
    if (finding->number == 0) {
        *finding = *row(number);
        finding->severity = severity;
    } else if (severity > finding->severity) {
        finding->severity = severity;
    }
    va_start(arguments, evidence);
    (void)vsnprintf(text, sizeof(text), evidence, arguments);
    va_end(arguments);
    append(finding->evidence, sizeof(finding->evidence), text);
}

static bool is_digit(char character) {
    return character >= '0' && character <= '9';
}

bool diagnosis_version(const char *text, char *version, size_t capacity) {
    for (const char *at = text; *at != '\0'; at++) {
        const size_t major = strspn(at, "0123456789");
        const size_t length = strspn(at, "0123456789.");
        if (major > 0 && at[major] == '.' && is_digit(at[major + 1])) {
            (void)snprintf(version, capacity, "%.*s", (int)length, at);
            return true;
        }
        at += major > 0 ? major - 1 : 0;
    }
    return false;
}

/* The first line of /proc/driver/nvidia/version: "NVIDIA UNIX Open Kernel Module for x86_64  580.95.05", or "NVIDIA UNIX
 * x86_64 Kernel Module  535.54.03" (github.com/NVIDIA/open-gpu-kernel-modules, nvidia-modprobe). */
const char *diagnosis_driver_model(const os_facts *facts) {
    return facts->is_wsl == OS_YES                                   ? "WSL"
           : strstr(facts->gpu_driver, "Open Kernel Module") != NULL ? "open kernel module"
           : strstr(facts->gpu_driver, "Kernel Module") != NULL      ? "proprietary kernel module"
                                                                     : "unknown";
}
