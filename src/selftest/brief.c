/* SPDX-License-Identifier: MIT */
/** @file See brief.h. */
#include "brief.h"

#include <inttypes.h>
#include <string.h>

#include "run.h"

#define GIGA 1e9
/* Lines for devices that differ. */
#define DEVICE_LINES_MAX 4

bool brief_is_wanted(const options *wanted) {
    return wanted->command == COMMAND_RUN && !wanted->verbose && wanted->device == DEVICE_ANY &&
           wanted->peer == DEVICE_ANY && wanted->only_count == 0;
}

static bool are_alike(const gpuipc_device_info *one, const gpuipc_device_info *other) {
    return strcmp(one->name, other->name) == 0 && one->memory_bytes == other->memory_bytes &&
           one->compute_major == other->compute_major && one->compute_minor == other->compute_minor;
}

void brief_devices(const report *from) {
    unsigned lines = 0;
    size_t next;
    for (size_t first = 0; first < from->device_count; first = next) {
        const gpuipc_device_info *one = &from->devices[first];
        for (next = first + 1; next < from->device_count && are_alike(one, &from->devices[next]);
             next++) {
        }
        if (++lines > DEVICE_LINES_MAX) {
            report_say(from, "devices %zu to %zu: others\n", first, from->device_count - 1);
            return;
        }
        if (next == first + 1) {
            report_say(from, "device %zu: ", first);
        } else {
            report_say(from, "devices %zu to %zu: ", first, next - 1);
        }
        report_say(from, "%s; %" PRIu64 " MiB; compute %d.%d\n", one->name, one->memory_bytes >> 20,
                   one->compute_major, one->compute_minor);
    }
}

/* What the checks whose ids begin alike have come to. */
typedef struct group {
    unsigned passed;
    unsigned failed;
    unsigned skipped;
    double least; /* of a value of those that passed */
    double most;
} group;

static double value_of(const report_check *one, const char *name) {
    for (unsigned i = 0; i < one->value_count; i++) {
        if (strcmp(one->values[i].name, name) == 0) {
            return one->values[i].number;
        }
    }
    return 0;
}

static group group_of(const report *from, const char *kind, const char *value) {
    group found = {0};
    const size_t length = strlen(kind);
    for (size_t i = 0; i < from->check_count; i++) {
        const report_check *one = &from->checks[i];
        if (strncmp(one->id, kind, length) != 0) {
            continue;
        }
        found.failed += one->status == REPORT_FAIL;
        found.skipped += one->status == REPORT_SKIP;
        if (one->status == REPORT_PASS) {
            const double number = value_of(one, value);
            found.least = found.passed == 0 || number < found.least ? number : found.least;
            found.most = number > found.most ? number : found.most;
            found.passed++;
        }
    }
    return found;
}

static void print_pass(const report *from, const group *found, const char *title) {
    report_say(from, "%s  %s: %u case%s", report_word(from, REPORT_PASS), title, found->passed,
               found->passed == 1 ? "" : "s");
}

void brief_shared(const report *from) {
    const group shared = group_of(from, "share/", "hand_over_us");
    const group copied = group_of(from, "copy/", "shared_gb_per_s");
    if (shared.passed > 0) {
        print_pass(from, &shared, "memory shared between two programs");
        report_say(from, ", every word right both ways, no copy");
        if (!from->driver.is_emulated) {
            report_say(from, "; hand-over %.1f to %.1f us", shared.least, shared.most);
        }
        report_say(from, "\n");
    }
    if (copied.passed > 0) {
        print_pass(from, &copied, "copies through the shared mapping");
        if (!from->driver.is_emulated) {
            report_say(from, ", %.1f to %.1f GB/s", copied.least, copied.most);
        }
        report_say(from, "\n");
    }
}

void brief_once(const report *from) {
    const group peer = group_of(from, "peer/", "");
    const group refused = group_of(from, "refused/", "");
    if (peer.passed > 0) {
        print_pass(from, &peer, "vmm between two programs");
        report_say(from,
                   ", bytes both ways, streams that wait for each other, the death of either\n");
    }
    if (refused.passed > 0) {
        print_pass(from, &refused, "wrong input");
        report_say(from, ", refused; the right ticket was taken\n");
    }
}

/* What a transport is between the pairs of devices that were looked at. */
typedef struct way_group {
    unsigned pairs;
    unsigned available;
    const report_way *yes; /* one that is available */
    const report_way *no;  /* one that is not */
    double least;
    double most;
    gpuipc_figure_source source; /* NONE: no figures are known */
} way_group;

static way_group ways_of(const report *from, gpuipc_transport which) {
    way_group found = {0};
    for (size_t i = 0; i < from->way_count; i++) {
        const report_way *way = &from->ways[i];
        const double fast = (double)way->info.bandwidth_bytes_per_second / GIGA;
        if (way->info.transport != which) {
            continue;
        }
        found.pairs++;
        if (!way->info.available) {
            found.no = found.no == NULL ? way : found.no;
            continue;
        }
        found.available++;
        found.yes = way;
        if (way->info.bandwidth_source != GPUIPC_FIGURE_NONE) {
            found.least =
                found.source == GPUIPC_FIGURE_NONE || fast < found.least ? fast : found.least;
            found.most = fast > found.most ? fast : found.most;
            found.source = way->info.bandwidth_source;
        }
    }
    return found;
}

static void print_ways(const report *from, gpuipc_transport which) {
    const way_group found = ways_of(from, which);
    if (found.pairs == 0) {
        return;
    }
    report_say(from, "    %-7s %-4s  %u of %u", gpuipc_transport_name(which),
               found.available == found.pairs ? "yes"
               : found.available == 0         ? "no"
                                              : "some",
               found.available, found.pairs);
    if (found.yes != NULL) {
        report_say(from, ", %s", found.yes->info.is_zero_copy ? "zero-copy" : "staged copies");
    }
    if (found.source != GPUIPC_FIGURE_NONE) {
        report_say(from, ", %.1f to %.1f GB/s (%s)", found.least, found.most,
                   report_source_name(found.source));
    }
    if (found.no != NULL) {
        report_say(from, "; device %" PRIu32 " -> device %" PRIu32 ": %s: %s", found.no->owner,
                   found.no->user, gpuipc_reason_name(found.no->info.reason),
                   found.no->info.sentence);
    }
    report_say(from, "\n");
}

void brief_ways(const report *from) {
    if (from->way_count > 0) {
        report_say(from, "transports, and between how many of the pairs of devices:\n");
    }
    for (int which = 1; which <= GPUIPC_TRANSPORT_COUNT; which++) {
        print_ways(from, (gpuipc_transport)which);
    }
}
