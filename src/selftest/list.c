/* SPDX-License-Identifier: MIT */
/** @file See list.h. */
#include "list.h"

#include "report.h"

/* A and B are devices. */
static const struct {
    const char *command;
    const char *id;
    const char *what;
} rows[] = {
    {"(run)", "share/A-B/BYTES",
     "memory of A is used by a program on B; all words right both ways, no copy"},
    {"(run)", "peer/vmm/RUNG",
     "two programs: bytes both ways, streams that wait for each other, the death of either"},
    {"(run)", "refused/A", "damaged and revoked tickets and unknown names are refused"},
    {"(run)", "copy/A-B/BYTES",
     "copies through the shared mapping beside copies inside one program"},
    {"(run)", "transports", "every transport between every two devices is tried"},
    {"", "require/NAME", "a transport works between every two devices"},
    {"", "min-gbps/NAME", "a transport is as fast as demanded between every two devices"},
    {"matrix", "measure/NAME/A-B", "a transport is measured, and what it delivers verified"},
    {"ring", "ring-...", "programs in a ring write into each other's memory"},
    {"channel", "channel/A-B/BYTES",
     "frames of A reach readers on B in every way, whichever of them is killed"},
    {"ring", "inside/NAME/A-B", "devices write into each other's memory inside one program"},
};

int list(const options *wanted) {
    gpuipc_finding one;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        report_say(wanted->report, "%-10s %-18s %s\n", rows[i].command, rows[i].id, rows[i].what);
    }
    for (uint32_t number = 1; gpuipc_finding_describe(number, &one) == GPUIPC_OK; number++) {
        report_say(wanted->report, "%-10s %-18s %s\n", "doctor", one.id, one.cause);
    }
    return EXIT_PASS;
}
