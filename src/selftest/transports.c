/* SPDX-License-Identifier: MIT */
/** @file See transports.h. */
#include "transports.h"

#include <string.h>

#include "brief.h"
#include "program.h"
#include "role.h"
#include "run.h"
#include "watchdog.h"

#define GIGA 1e9
/* Of one measurement, which takes about a second. */
#define MEASURE_MS 60000

/* From then on a short run tries no more of them. */
#define LATE_SECONDS 4.0

static const char *link_name(gpuipc_link link) {
    static const char *const names[] = {"unknown link", "same device", "NVLink", "PCIe"};
    return (unsigned)link < sizeof(names) / sizeof(*names) ? names[link] : names[0];
}

static void complain(const options *wanted, uint32_t owner, uint32_t user, const char *what) {
    char line[ROLE_LINE_MAX];
    char id[64];
    (void)snprintf(id, sizeof(id), "transports/%u-%u", owner, user);
    (void)snprintf(line, sizeof(line), "device %u -> device %u: %s: %s", owner, user, what,
                   gpuipc_error_text());
    report_add_check(wanted->report, id, REPORT_FAIL, line);
}

static bool print_topology(const options *wanted, const session *at, uint32_t owner,
                           uint32_t user) {
    gpuipc_topology way = {.struct_size = sizeof(way)};
    if (gpuipc_topology_get(at->context, owner, user, &way) != GPUIPC_OK) {
        complain(wanted, owner, user, "what joins them");
        return false;
    }
    if (wanted->report->is_brief) {
        return true;
    }
    report_say(wanted->report, "memory of device %u used by device %u: %s", owner, user,
               link_name(way.link));
    if (way.link_generation != 0) {
        report_say(wanted->report, " %u x%u%s", way.link_generation, way.link_width,
                   way.is_from_nvml ? "" : " (guessed)");
    }
    report_say(wanted->report, "; peer access %d, rank %d, native atomics %d, arrays %d\n",
               way.peer_access, way.performance_rank, way.native_atomics, way.array_access);
    return true;
}

/* What is measured is found by the next query. */
static gpuipc_status measure(const session *at, const gpuipc_transport_pair *pair,
                             report_way *way) {
    gpuipc_measurement found = {.struct_size = sizeof(found)};
    const gpuipc_transport which = way->info.transport;
    watchdog_expect("measuring a transport", MEASURE_MS);
    if (gpuipc_transport_measure(at->context, which, pair, &found) != GPUIPC_OK) {
        way->measured.wrong_words = found.wrong_words;
        (void)snprintf(way->failure, sizeof(way->failure), "%s", gpuipc_error_text());
        return GPUIPC_OK; /* a finding about this way, no failure of the run */
    }
    way->measured = found;
    return gpuipc_transport_query(at->context, which, pair, &way->info);
}

/* They are of the GPU that the emulated machine stands for, which is not here. */
static void forget_estimates(gpuipc_transport_info *info) {
    if (info->bandwidth_source == GPUIPC_FIGURE_ESTIMATED) {
        info->bandwidth_bytes_per_second = 0;
        info->bandwidth_source = GPUIPC_FIGURE_NONE;
    }
    if (info->latency_source == GPUIPC_FIGURE_ESTIMATED) {
        info->latency_ns = 0;
        info->latency_source = GPUIPC_FIGURE_NONE;
    }
}

gpuipc_status transports_try(const options *wanted, const session *at, report_way *way,
                             bool measures) {
    const gpuipc_transport_pair pair = {
        .struct_size = sizeof(pair), .owner = way->owner, .user = way->user};
    const gpuipc_transport which = way->info.transport;
    way->info.struct_size = sizeof(way->info);
    report_progress(wanted->report, "%s %s, device %u -> device %u (%u of %u)",
                    measures ? "measuring" : "trying", gpuipc_transport_name(which), way->owner,
                    way->user, ++wanted->report->ways_tried,
                    run_pair_count(wanted, at) * GPUIPC_TRANSPORT_COUNT);
    watchdog_expect("trying a transport", wanted->timeout_ms);
    gpuipc_status status = gpuipc_transport_query(at->context, which, &pair, &way->info);
    if (status == GPUIPC_OK && way->info.available && measures) {
        status = measure(at, &pair, way);
    }
    watchdog_rest();
    if (at->info.is_emulated) {
        forget_estimates(&way->info);
    }
    return status;
}

static void print_way(const options *wanted, const session *at, const report_way *way) {
    const gpuipc_transport_info *info = &way->info;
    const char *name = gpuipc_transport_name(info->transport);
    const char *label = at->info.is_emulated ? " (emulated)" : "";
    if (!info->available) {
        report_say(wanted->report, "    %-7s no   %s: %s\n", name, gpuipc_reason_name(info->reason),
                   info->sentence);
        return;
    }
    if (way->measured.both_ways_bytes_per_second != 0) {
        report_say(wanted->report, "                both ways %.1f GB/s%s\n",
                   (double)way->measured.both_ways_bytes_per_second / GIGA, label);
    }
    report_say(wanted->report, "    %-7s yes  %s, %s", name,
               info->is_zero_copy ? "zero-copy" : "staged copies", report_proof_name(info->proof));
    if (info->bandwidth_source != GPUIPC_FIGURE_NONE) {
        report_say(wanted->report, "; %.1f GB/s (%s), %.1f us (%s)%s",
                   (double)info->bandwidth_bytes_per_second / GIGA,
                   report_source_name(info->bandwidth_source), (double)info->latency_ns / 1000.0,
                   report_source_name(info->latency_source), label);
    }
    report_say(wanted->report, "%s%s\n", info->sentence[0] != '\0' ? ": " : "", info->sentence);
}

static void try_one(const options *wanted, const session *at, gpuipc_transport which,
                    uint32_t owner, uint32_t user) {
    report_way way = {.owner = owner, .user = user, .info = {.transport = which}};
    if (transports_try(wanted, at, &way, wanted->measure) != GPUIPC_OK) {
        complain(wanted, owner, user, gpuipc_transport_name(which));
        return;
    }
    report_add_way(wanted->report, &way);
    if (!wanted->report->is_brief) {
        print_way(wanted, at, &way);
    }
    if (way.failure[0] != '\0') {
        char line[ROLE_LINE_MAX];
        char id[64];
        (void)snprintf(id, sizeof(id), "measure/%s/%u-%u", gpuipc_transport_name(which), owner,
                       user);
        (void)snprintf(line, sizeof(line), "measuring %s between devices %u and %u: %s",
                       gpuipc_transport_name(which), owner, user, way.failure);
        report_add_check(wanted->report, id, REPORT_FAIL, line);
    }
}

/* The devices are there, and the rest is for who has the time. */
static void leave_out(report *into, uint32_t owner, uint32_t user) {
    char line[ROLE_LINE_MAX];
    char id[64];
    (void)snprintf(id, sizeof(id), "transports/%u-%u", owner, user);
    (void)snprintf(line, sizeof(line),
                   "transports, device %u -> device %u: left out, so that the run is short; "
                   "--full tries them, and gpuipc-selftest transports does",
                   owner, user);
    report_add_check(into, id, REPORT_SKIP, line);
}

void transports_each(const options *wanted, const session *at) {
    for (uint32_t owner = 0; owner < at->info.device_count; owner++) {
        for (uint32_t user = 0; user < at->info.device_count; user++) {
            if (!run_is_chosen(wanted->device, owner) || !run_is_chosen(wanted->peer, user) ||
                program_is_interrupted()) {
                continue;
            }
            if (run_is_late(wanted, LATE_SECONDS)) {
                leave_out(wanted->report, owner, user);
                continue;
            }
            (void)print_topology(wanted, at, owner, user);
            for (int way = 1; way <= GPUIPC_TRANSPORT_COUNT; way++) {
                try_one(wanted, at, (gpuipc_transport)way, owner, user);
            }
        }
    }
    if (wanted->report->is_brief) {
        brief_ways(wanted->report);
    }
    transports_check(wanted);
}

/* Every pair of devices must have the transport, and as fast. */
static void check_demand(report *into, const demand *wanted) {
    char line[ROLE_LINE_MAX] = "";
    char id[64];
    const char *name = gpuipc_transport_name(wanted->transport);
    const char *kind = wanted->gb_per_s > 0 ? "min-gbps" : "require";
    size_t seen = 0;
    for (size_t i = 0; i < into->way_count && line[0] == '\0'; i++) {
        const report_way *way = &into->ways[i];
        const double found = (double)way->info.bandwidth_bytes_per_second / GIGA;
        if (way->info.transport != wanted->transport) {
            continue;
        }
        seen++;
        if (!way->info.available) {
            (void)snprintf(line, sizeof(line), "%s %s: device %u -> device %u: %s", kind, name,
                           way->owner, way->user, way->info.sentence);
        } else if (wanted->gb_per_s > 0 && (way->info.bandwidth_source != GPUIPC_FIGURE_MEASURED ||
                                            found < wanted->gb_per_s)) {
            (void)snprintf(line, sizeof(line),
                           "%s %s: device %u -> device %u: %.1f GB/s (%s), and %.1f are wanted",
                           kind, name, way->owner, way->user, found,
                           report_source_name(way->info.bandwidth_source), wanted->gb_per_s);
        }
    }
    const bool failed = line[0] != '\0' || seen == 0;
    if (line[0] == '\0') {
        (void)snprintf(line, sizeof(line), "%s %s: %zu of %zu pairs of devices", kind, name, seen,
                       seen);
    }
    (void)snprintf(id, sizeof(id), "%s/%s", kind, name);
    report_add_check(into, id, failed ? REPORT_FAIL : REPORT_PASS, line);
}

void transports_check(const options *wanted) {
    for (size_t i = 0; i < wanted->demand_count && !program_is_interrupted(); i++) {
        check_demand(wanted->report, &wanted->demands[i]);
    }
}

int transports(const options *wanted) {
    session at;
    int code = run_begin(wanted, &at);
    if (code != EXIT_PASS) {
        return code;
    }
    transports_each(wanted, &at);
    run_end(wanted, &at);
    return report_count(wanted->report, REPORT_FAIL) == 0 ? EXIT_PASS : EXIT_FAIL;
}
