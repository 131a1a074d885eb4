/* SPDX-License-Identifier: MIT */
/**
 * @file Whether the figures are right: on a real GPU, measurements are compared with a plain loop of the
 * driver's own copies, written out here, and estimates with measurements.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "transport_machine.h"

TestSuite(transport_speed, .init = core_start, .fini = core_finish, .timeout = 100);

#define PLAIN_BYTES ((size_t)256 << 20)
#define PLAIN_COUNT 8
#define PLAIN_TRIES 9
/* gpuipc_transport_measure() against the loop, and the estimate against both. */
#define MEASURED_WITHIN  0.05
#define ESTIMATED_WITHIN 0.25

#define CU(call) cr_assert_eq((call), CUDA_SUCCESS, "%s", #call)

static int compare(const void *first, const void *second) {
    const double a = *(const double *)first;
    const double b = *(const double *)second;
    return (a > b) - (a < b);
}

static double median(double times[PLAIN_TRIES]) {
    qsort(times, PLAIN_TRIES, sizeof(times[0]), compare);
    return times[PLAIN_TRIES / 2];
}

/* Bytes per second of copies on a stream of the current context. */
static double plain_loop(CUdeviceptr to, CUdeviceptr from) {
    const driver *drv = core_driver();
    CUstream stream;
    CUevent start;
    CUevent end;
    double times[PLAIN_TRIES];
    CU(drv->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CU(drv->cuEventCreate(&start, CU_EVENT_DEFAULT));
    CU(drv->cuEventCreate(&end, CU_EVENT_DEFAULT));
    for (int i = 0; i < PLAIN_TRIES; i++) {
        float milliseconds = 0;
        CU(drv->cuMemcpyAsync(to, from, PLAIN_BYTES, stream)); /* warm-up, and covers launching */
        CU(drv->cuEventRecord(start, stream));
        for (int j = 0; j < PLAIN_COUNT; j++) {
            CU(drv->cuMemcpyAsync(to, from, PLAIN_BYTES, stream));
        }
        CU(drv->cuEventRecord(end, stream));
        CU(drv->cuEventSynchronize(end));
        CU(drv->cuEventElapsedTime(&milliseconds, start, end));
        times[i] = (double)milliseconds / 1e3;
    }
    CU(drv->cuEventDestroy(end));
    CU(drv->cuEventDestroy(start));
    CU(drv->cuStreamDestroy(stream));
    return (double)PLAIN_BYTES * PLAIN_COUNT / median(times);
}

/* Memory of another device of this process, copied by the current one, with peer access or without. */
static double plain_devices(int owner, int user, bool enables) {
    const driver *drv = core_driver();
    CUcontext owner_context;
    CUcontext popped;
    CUdeviceptr from;
    CUdeviceptr to;
    CU(drv->cuDevicePrimaryCtxRetain(&owner_context, owner));
    CU(drv->cuCtxPushCurrent(owner_context));
    CU(drv->cuMemAlloc(&from, PLAIN_BYTES));
    CU(drv->cuCtxPopCurrent(&popped));
    core_enter_device(user);
    if (enables && owner != user) {
        CU(drv->cuCtxEnablePeerAccess(owner_context, 0));
    }
    CU(drv->cuMemAlloc(&to, PLAIN_BYTES));
    const double got = plain_loop(to, from);
    CU(drv->cuMemFree(to));
    if (enables && owner != user) {
        CU(drv->cuCtxDisablePeerAccess(owner_context));
    }
    CU(drv->cuCtxPushCurrent(owner_context));
    CU(drv->cuMemFree(from));
    CU(drv->cuCtxPopCurrent(&popped));
    CU(drv->cuDevicePrimaryCtxRelease(owner));
    return got;
}

/* The slower direction between a device and the host's memory. */
static double plain_host(void) {
    const driver *drv = core_driver();
    CUdeviceptr device;
    void *host;
    core_enter_device(0);
    CU(drv->cuMemAlloc(&device, PLAIN_BYTES));
    CU(drv->cuMemHostAlloc(&host, PLAIN_BYTES, CU_MEMHOSTALLOC_PORTABLE));
    const double up = plain_loop(device, (CUdeviceptr)(uintptr_t)host);
    const double down = plain_loop((CUdeviceptr)(uintptr_t)host, device);
    CU(drv->cuMemFreeHost(host));
    CU(drv->cuMemFree(device));
    return up < down ? up : down;
}

static void need_real(void) {
    if (core_is_emulated) {
        cr_skip_test("figures of the emulated driver mean nothing; this needs a GPU");
    }
}

static bool is_within(double got, double wanted, double share) {
    return got > wanted * (1 - share) && got < wanted * (1 + share);
}

/* One with a cache of its own: what the user has measured earlier is not in it. */
static gpuipc_context *context_with_cache(void) {
    gpuipc_context *made = core_context_new();
    machine_keep(made, core_directory);
    return made;
}

/* The estimate, before anything was measured. */
static uint64_t estimate(gpuipc_context *made, gpuipc_transport which, uint32_t owner,
                         uint32_t user) {
    const gpuipc_transport_pair pair = machine_pair(owner, user);
    const gpuipc_transport_info info = machine_ask(made, which, &pair);
    cr_assert_eq(info.available, 1, "%s: %s", gpuipc_transport_name(which), info.sentence);
    cr_assert_eq(info.bandwidth_source, GPUIPC_FIGURE_ESTIMATED);
    fprintf(stderr, "%s %u->%u: estimated %.1f GB/s, %llu ns\n", gpuipc_transport_name(which),
            owner, user, (double)info.bandwidth_bytes_per_second / 1e9,
            (unsigned long long)info.latency_ns);
    return info.bandwidth_bytes_per_second;
}

static gpuipc_measurement measure(gpuipc_context *made, gpuipc_transport which, uint32_t owner,
                                  uint32_t user) {
    const gpuipc_transport_pair pair = machine_pair(owner, user);
    gpuipc_measurement measured = {.struct_size = sizeof(measured)};
    check_ok(gpuipc_transport_measure(made, which, &pair, &measured));
    fprintf(stderr, "%s %u->%u: one way %.1f, both ways %.1f GB/s, %llu ns, %llu bytes\n",
            gpuipc_transport_name(which), owner, user,
            (double)measured.one_way_bytes_per_second / 1e9,
            (double)measured.both_ways_bytes_per_second / 1e9,
            (unsigned long long)measured.latency_ns, (unsigned long long)measured.bytes);
    return measured;
}

static void check_zero_copy(uint32_t owner, uint32_t user) {
    static const gpuipc_transport ways[] = {GPUIPC_TRANSPORT_VMM, GPUIPC_TRANSPORT_POOL,
                                            GPUIPC_TRANSPORT_LEGACY, GPUIPC_TRANSPORT_P2P};
    need_real();
    gpuipc_context *made = context_with_cache();
    const double plain = plain_devices((int)owner, (int)user, true);
    fprintf(stderr, "plain %u->%u: %.1f GB/s\n", owner, user, plain / 1e9);
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        const gpuipc_transport_pair pair = machine_pair(owner, user);
        if (!machine_ask(made, ways[i], &pair).available) {
            continue;
        }
        const double guess = (double)estimate(made, ways[i], owner, user);
        const gpuipc_measurement measured = measure(made, ways[i], owner, user);
        const double got = (double)measured.one_way_bytes_per_second;
        cr_assert(is_within(got, plain, MEASURED_WITHIN), "%s: %.1f GB/s, the loop %.1f",
                  gpuipc_transport_name(ways[i]), got / 1e9, plain / 1e9);
        cr_assert(is_within(guess, got, ESTIMATED_WITHIN), "%s: estimated %.1f, measured %.1f",
                  gpuipc_transport_name(ways[i]), guess / 1e9, got / 1e9);
    }
    gpuipc_context *later = context_with_cache();
    const gpuipc_transport_pair pair = machine_pair(owner, user);
    cr_assert_eq(machine_ask(later, GPUIPC_TRANSPORT_VMM, &pair).bandwidth_source,
                 GPUIPC_FIGURE_MEASURED, "the measurement was not kept");
    check_ok(gpuipc_context_destroy(later));
    check_ok(gpuipc_context_destroy(made));
}

Test(transport_speed, within_a_device) {
    check_zero_copy(0, 0);
}

Test(transport_speed, between_two_devices) {
    int can = 0;
    core_need_devices(2);
    CU(core_driver()->cuDeviceCanAccessPeer(&can, 1, 0));
    if (!can) {
        cr_skip_test("the two devices have no peer access");
    }
    check_zero_copy(0, 1);
}

/* What a pipeline is to reach of the slower direction, and of the driver's own copy without peer
 * access. */
#define STAGED_SHARE  0.93
#define STAGED_FACTOR 1.3

Test(transport_speed, through_the_host) {
    need_real();
    gpuipc_context *made = context_with_cache();
    const uint32_t user = core_device_count > 1 ? 1 : 0;
    const double guess = (double)estimate(made, GPUIPC_TRANSPORT_HOST, 0, user);
    const double got =
        (double)measure(made, GPUIPC_TRANSPORT_HOST, 0, user).one_way_bytes_per_second;
    const double plain = plain_host();
    fprintf(stderr, "plain through the host, the slower direction: %.1f GB/s\n", plain / 1e9);
    cr_assert(got > plain * STAGED_SHARE && got < plain * (1 + MEASURED_WITHIN),
              "%.1f GB/s of %.1f", got / 1e9, plain / 1e9);
    cr_assert(is_within(guess, got, ESTIMATED_WITHIN), "estimated %.1f, measured %.1f", guess / 1e9,
              got / 1e9);
    if (user != 0) {
        const double driver_copy = plain_devices(0, (int)user, false);
        fprintf(stderr, "the driver's own copy without peer access: %.1f GB/s\n",
                driver_copy / 1e9);
        cr_assert(got > driver_copy * STAGED_FACTOR, "%.1f GB/s beside %.1f", got / 1e9,
                  driver_copy / 1e9);
    }
    check_ok(gpuipc_context_destroy(made));
}
