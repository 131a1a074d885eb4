/* SPDX-License-Identifier: MIT */
/** @file See transports.h. */
#include "transports.h"

#include <stdio.h>

#include "run.h"
#include "watchdog.h"

#define GIGA 1e9

static const char *source_name(gpuipc_figure_source source) {
    return source == GPUIPC_FIGURE_MEASURED    ? "measured"
           : source == GPUIPC_FIGURE_ESTIMATED ? "estimated"
                                               : "unknown";
}

static const char *proof_name(gpuipc_proof proof) {
    return proof == GPUIPC_PROOF_TRIED        ? "tried"
           : proof == GPUIPC_PROOF_ATTRIBUTES ? "by attributes"
                                              : "not tried";
}

static const char *link_name(gpuipc_link link) {
    static const char *const names[] = {"unknown link", "same device", "NVLink", "PCIe"};
    return (unsigned)link < sizeof(names) / sizeof(*names) ? names[link] : names[0];
}

static bool complain(void) {
    printf("FAIL  %s\n", gpuipc_error_text());
    return false;
}

static bool print_topology(const session *at, uint32_t owner, uint32_t user) {
    gpuipc_topology way = {.struct_size = sizeof(way)};
    if (gpuipc_topology_get(at->context, owner, user, &way) != GPUIPC_OK) {
        return complain();
    }
    printf("memory of device %u used by device %u: %s", owner, user, link_name(way.link));
    if (way.link_generation != 0) {
        printf(" %u x%u%s", way.link_generation, way.link_width,
               way.is_from_nvml ? "" : " (guessed)");
    }
    printf("; peer access %d, rank %d, native atomics %d, arrays %d\n", way.peer_access,
           way.performance_rank, way.native_atomics, way.array_access);
    return true;
}

static bool measure(const session *at, gpuipc_transport transport,
                    const gpuipc_transport_pair *pair) {
    gpuipc_measurement found = {.struct_size = sizeof(found)};
    watchdog_expect("measuring a transport", 60000);
    if (gpuipc_transport_measure(at->context, transport, pair, &found) != GPUIPC_OK) {
        return complain();
    }
    printf("                both ways %.1f GB/s%s\n",
           (double)found.both_ways_bytes_per_second / GIGA,
           at->info.is_emulated ? " (emulated)" : "");
    return true;
}

static bool print_one(const options *wanted, const session *at, gpuipc_transport transport,
                      const gpuipc_transport_pair *pair) {
    gpuipc_transport_info info = {.struct_size = sizeof(info)};
    watchdog_expect("trying a transport", wanted->timeout_ms);
    if (gpuipc_transport_query(at->context, transport, pair, &info) != GPUIPC_OK) {
        return complain();
    }
    if (!info.available) {
        printf("    %-7s no   %s: %s\n", gpuipc_transport_name(transport),
               gpuipc_reason_name(info.reason), info.sentence);
        return true;
    }
    bool good = !wanted->measure || measure(at, transport, pair);
    if (good && wanted->measure &&
        gpuipc_transport_query(at->context, transport, pair, &info) != GPUIPC_OK) {
        good = complain();
    }
    printf("    %-7s yes  %s, %s; %.1f GB/s (%s), %.1f us (%s)%s\n",
           gpuipc_transport_name(transport), info.is_zero_copy ? "zero-copy" : "staged copies",
           proof_name(info.proof), (double)info.bandwidth_bytes_per_second / GIGA,
           source_name(info.bandwidth_source), (double)info.latency_ns / 1000.0,
           source_name(info.latency_source), at->info.is_emulated ? " (emulated)" : "");
    return good;
}

static bool print_pair(const options *wanted, const session *at, uint32_t owner, uint32_t user) {
    gpuipc_transport_pair pair = {.struct_size = sizeof(pair), .owner = owner, .user = user};
    bool good = print_topology(at, owner, user);
    for (int way = 1; way <= GPUIPC_TRANSPORT_COUNT; way++) {
        good = print_one(wanted, at, (gpuipc_transport)way, &pair) && good;
    }
    fflush(stdout);
    return good;
}

int transports(const options *wanted) {
    session at;
    bool good = true;
    int code = run_begin(wanted, &at);
    if (code != EXIT_PASS) {
        return code;
    }
    for (uint32_t owner = 0; owner < at.info.device_count; owner++) {
        for (uint32_t user = 0; user < at.info.device_count; user++) {
            if (run_is_chosen(wanted->device, owner) && run_is_chosen(wanted->peer, user)) {
                good = print_pair(wanted, &at, owner, user) && good;
            }
        }
    }
    run_end(wanted, &at);
    return good ? EXIT_PASS : EXIT_FAIL;
}
