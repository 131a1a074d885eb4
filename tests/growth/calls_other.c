/* SPDX-License-Identifier: MIT */
/** @file See growth.h: calls about contexts, devices and transports, and those that know of no object. */
#include <string.h>

#include "growth.h"

/* ---- contexts and devices ----------------------------------------------------------------------------- */

static void create_context(unsigned i) {
    growth_items[i].context = growth_context(0);
}

static void destroy_context(unsigned i) {
    MUST(gpuipc_context_destroy(growth_items[i].context));
}

static void wake(unsigned i) {
    (void)i;
    MUST(gpuipc_context_wake(world.interruptible));
}

static void get_context_info(unsigned i) {
    gpuipc_context_info info = GPUIPC_CONTEXT_INFO_INIT;
    (void)i;
    MUST(gpuipc_context_get_info(world.context, &info));
}

static void device_count(unsigned i) {
    uint32_t count = 0;
    (void)i;
    MUST(gpuipc_device_count(world.context, &count));
}

static gpuipc_device_info device = GPUIPC_DEVICE_INFO_INIT;

static void get_device_info(unsigned i) {
    (void)i;
    MUST(gpuipc_device_get_info(world.context, 0, &device));
}

static void find_device(unsigned i) {
    uint32_t number = 0;
    (void)i;
    MUST(gpuipc_device_find(world.context, &device.uuid, &number));
}

/* ---- transports ----------------------------------------------------------------------------------------- */

static const gpuipc_transport_pair same_device = {.struct_size = sizeof(same_device)};

static void query(unsigned i) {
    gpuipc_transport_info info = GPUIPC_TRANSPORT_INFO_INIT;
    (void)i;
    MUST(gpuipc_transport_query(world.context, GPUIPC_TRANSPORT_VMM, &same_device, &info));
}

static void select_transport(unsigned i) {
    gpuipc_selection selection = GPUIPC_SELECTION_INIT;
    (void)i;
    MUST(gpuipc_transport_select(world.context, &same_device, NULL, GPUIPC_POLICY_ZERO_COPY,
                                 &selection));
}

static void measure(unsigned i) {
    gpuipc_measurement found = GPUIPC_MEASUREMENT_INIT;
    (void)i;
    MUST(gpuipc_transport_measure(world.context, GPUIPC_TRANSPORT_VMM, &same_device, &found));
}

static void get_topology(unsigned i) {
    gpuipc_topology topology = GPUIPC_TOPOLOGY_INIT;
    (void)i;
    MUST(gpuipc_topology_get(world.context, 0, 0, &topology));
}

static void classify(unsigned i) {
    gpuipc_pointer_info info = GPUIPC_POINTER_INFO_INIT;
    (void)i;
    MUST(gpuipc_pointer_classify(world.context, gpuipc_buffer_address(world.idle), 64, &info));
}

static void diagnose(unsigned i) {
    const gpuipc_context_config config = {.struct_size = sizeof(config),
                                          .runtime_directory = world.directory};
    gpuipc_finding findings[GPUIPC_FINDING_COUNT];
    size_t count = 0;
    (void)i;
    MUST(gpuipc_diagnose(&config, 0, findings, GPUIPC_FINDING_COUNT, &count));
}

static void describe_finding(unsigned i) {
    gpuipc_finding finding;
    MUST(gpuipc_finding_describe(1 + i % GPUIPC_FINDING_COUNT, &finding));
}

/* ---- manifests -------------------------------------------------------------------------------------------- */

static char manifest[1024];
static size_t manifest_size;

static void write_manifest(unsigned i) {
    static const gpuipc_range ranges[] = {{.name = "first", .bytes = 64},
                                          {.name = "second", .offset = 64, .bytes = 64}};
    (void)i;
    MUST(gpuipc_manifest_write(ranges, 2, manifest, sizeof(manifest), &manifest_size));
}

static void read_manifest(unsigned i) {
    gpuipc_range ranges[2];
    size_t count = 0;
    (void)i;
    MUST(gpuipc_manifest_read(manifest, manifest_size, GROWTH_BYTES, ranges, 2, &count));
}

static void find_in_manifest(unsigned i) {
    gpuipc_range range;
    (void)i;
    MUST(gpuipc_manifest_find(manifest, manifest_size, GROWTH_BYTES, "second", &range));
}

/* ---- texts and numbers -------------------------------------------------------------------------------------- */

static volatile uint64_t seen; /* so that no call is left out */

/* So that there is a record, and the same one each time. */
static void fail(unsigned i) {
    (void)i;
    if (gpuipc_device_get_info(world.context, 4711, &device) != GPUIPC_ERR_DEVICE_NOT_FOUND) {
        growth_fail("there is a device 4711");
    }
}

static void error_get(unsigned i) {
    (void)i;
    seen = (uint64_t)gpuipc_error_get()->status;
}

static void error_text(unsigned i) {
    (void)i;
    seen = (uint64_t)gpuipc_error_text()[0];
}

static void status_name(unsigned i) {
    (void)i;
    seen = (uint64_t)gpuipc_status_name(GPUIPC_ERR_TIMEOUT)[0];
}

static void status_message(unsigned i) {
    (void)i;
    seen = (uint64_t)gpuipc_status_message(GPUIPC_ERR_TIMEOUT)[0];
}

static void status_group(unsigned i) {
    (void)i;
    seen = (uint64_t)gpuipc_status_group(GPUIPC_ERR_TIMEOUT);
}

static void severity_name(unsigned i) {
    (void)i;
    seen = (uint64_t)gpuipc_severity_name(GPUIPC_SEVERITY_NOTE)[0];
}

static void reason_name(unsigned i) {
    (void)i;
    seen = (uint64_t)gpuipc_reason_name(GPUIPC_REASON_NONE)[0];
}

static void memory_kind_name(unsigned i) {
    (void)i;
    seen = (uint64_t)gpuipc_memory_kind_name(GPUIPC_MEMORY_VMM)[0];
}

static void transport_name(unsigned i) {
    (void)i;
    seen = (uint64_t)gpuipc_transport_name(GPUIPC_TRANSPORT_VMM)[0];
}

static void transport_count(unsigned i) {
    uint32_t count = 0;
    (void)i;
    MUST(gpuipc_transport_count(&count));
}

static void version(unsigned i) {
    (void)i;
    seen = gpuipc_version();
}

static const growth_call calls[] = {
    {"gpuipc_context_create", NULL, NULL, create_context, destroy_context, 4, NULL},
    {"gpuipc_context_destroy", "of another one", create_context, destroy_context, NULL, 4, NULL},
    {"gpuipc_context_wake", NULL, NULL, wake, NULL, 0, NULL},
    {"gpuipc_context_get_info", NULL, NULL, get_context_info, NULL, 0, NULL},
    {"gpuipc_device_count", NULL, NULL, device_count, NULL, 0, NULL},
    {"gpuipc_device_get_info", NULL, NULL, get_device_info, NULL, 0, NULL},
    {"gpuipc_device_find", NULL, get_device_info, find_device, NULL, 0, NULL},
    {"gpuipc_transport_query", NULL, NULL, query, NULL, 0, NULL},
    {"gpuipc_transport_select", NULL, NULL, select_transport, NULL, 0, NULL},
    {"gpuipc_transport_measure", NULL, NULL, measure, NULL, 1, NULL},
    {"gpuipc_topology_get", NULL, NULL, get_topology, NULL, 0, NULL},
    {"gpuipc_pointer_classify", NULL, NULL, classify, NULL, 0, NULL},
    {"gpuipc_diagnose", NULL, NULL, diagnose, NULL, 1, NULL},
    {"gpuipc_finding_describe", NULL, NULL, describe_finding, NULL, 0, NULL},
    {"gpuipc_manifest_write", NULL, NULL, write_manifest, NULL, 0, NULL},
    {"gpuipc_manifest_read", NULL, write_manifest, read_manifest, NULL, 0, NULL},
    {"gpuipc_manifest_find", NULL, write_manifest, find_in_manifest, NULL, 0, NULL},
    {"gpuipc_error_get", NULL, fail, error_get, NULL, 0, NULL},
    {"gpuipc_error_text", NULL, fail, error_text, NULL, 0, NULL},
    {"gpuipc_status_name", NULL, NULL, status_name, NULL, 0, NULL},
    {"gpuipc_status_message", NULL, NULL, status_message, NULL, 0, NULL},
    {"gpuipc_status_group", NULL, NULL, status_group, NULL, 0, NULL},
    {"gpuipc_severity_name", NULL, NULL, severity_name, NULL, 0, NULL},
    {"gpuipc_reason_name", NULL, NULL, reason_name, NULL, 0, NULL},
    {"gpuipc_memory_kind_name", NULL, NULL, memory_kind_name, NULL, 0, NULL},
    {"gpuipc_transport_name", NULL, NULL, transport_name, NULL, 0, NULL},
    {"gpuipc_transport_count", NULL, NULL, transport_count, NULL, 0, NULL},
    {"gpuipc_version", NULL, NULL, version, NULL, 0, NULL},
};

const growth_calls growth_other_calls = {calls, sizeof(calls) / sizeof(calls[0])};

/* ---- what must be seen -------------------------------------------------------------------------------------- */

/* What a look at one of the population costs, whose memory is in no cache. */
#define LOOK_COSTS 64u

/* Looks through all of the population. */
static void walk(unsigned i) {
    (void)i;
    for (uint32_t at = 0; at < world.count * LOOK_COSTS; at++) {
        seen = at;
    }
}

static const growth_call planted[] = {
    {"planted", "a walk through all of them", NULL, walk, NULL, 0, NULL}};

const growth_calls growth_planted_calls = {planted, sizeof(planted) / sizeof(planted[0])};
