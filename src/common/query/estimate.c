/* SPDX-License-Identifier: MIT */
/** @file See estimate.h. */
#include "query/estimate.h"

#include "query/topology.h"
#include "transport/transport.h"

/* Every constant of the estimates, and where it comes from. "Measured": two H200s joined by 18 NVLinks
 * of generation 4, PCIe 5.0 x16, driver 580. */

/* GB/s of one NVLink in one direction, by generation (the maker's data sheets: P100, V100, A100, H100,
 * B200). */
static const double nvlink_gigabytes[] = {0, 20, 25, 25, 25, 50};

/* GB/s of one PCIe lane in one direction, by generation, with the line's coding taken off: 8b/10b for 1
 * and 2, 128b/130b for 3 to 5, flits of 236 in 256 bytes from 6 on (PCI Express Base Specification). */
static const double pcie_lane_gigabytes[] = {0, 0.25, 0.5, 0.985, 1.969, 3.938, 7.375, 14.75};

/* Measured: 395 GB/s through 18 links of 25. */
#define NVLINK_EFFICIENCY 0.878
/* Measured: 55.4 GB/s between host and device through 16 lanes of 3.938. */
#define PCIE_EFFICIENCY 0.879
/* Measured: copies within a device move 2.0 TB/s of payload, of 4.81 TB/s that its memory reads and
 * writes (3201 MHz, twice a cycle, 6016 bits). */
#define MEMORY_EFFICIENCY 0.83
/* Measured: the pipeline reaches 52.3 of 55.4 GB/s. */
#define STAGED_EFFICIENCY 0.94

/* Nanoseconds of one small copy in a chain of them on a stream. Measured: 1.8 to 1.9 us within a device, 2.8
 * to 2.9 through NVLink from virtual or pool memory and 13.3 from memory of cuMemAlloc, for which the
 * driver takes another way; staged 8.2 within a device and 13.4 between two. PCIe was not there: a guess. */
#define LATENCY_SAME_NS        1900
#define LATENCY_NVLINK_NS      2800
#define LATENCY_PCIE_NS        3500
#define LATENCY_PLAIN_PEER_NS  13300
#define LATENCY_STAGED_SAME_NS 8200
#define LATENCY_STAGED_NS      13400

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* Of one link. A generation of which nothing is known counts as the last that is. */
static double gigabytes_of(const double *known, size_t count, uint32_t generation) {
    return known[generation < count ? generation : count - 1];
}

static uint64_t nvlink_bandwidth(uint32_t generation, uint32_t width) {
    const double each = gigabytes_of(nvlink_gigabytes, COUNT_OF(nvlink_gigabytes), generation);
    return (uint64_t)(each * 1e9 * width * NVLINK_EFFICIENCY);
}

static uint64_t pcie_bandwidth(uint32_t generation, uint32_t width) {
    const double each =
        gigabytes_of(pcie_lane_gigabytes, COUNT_OF(pcie_lane_gigabytes), generation);
    return (uint64_t)(each * 1e9 * width * PCIE_EFFICIENCY);
}

/* A copy reads each byte and writes it: half of what the memory can. */
static uint64_t memory_bandwidth(const context *ctx, uint32_t index) {
    const driver *drv = &ctx->driver;
    const CUdevice ordinal = ctx->devices[index].ordinal;
    int kilohertz = 0;
    int bits = 0;
    if (drv->cuDeviceGetAttribute(&kilohertz, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, ordinal) !=
            CUDA_SUCCESS ||
        drv->cuDeviceGetAttribute(&bits, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, ordinal) !=
            CUDA_SUCCESS ||
        kilohertz <= 0 || bits <= 0) {
        return 0;
    }
    return (uint64_t)(kilohertz * 1e3 * 2 * bits / 8 / 2 * MEMORY_EFFICIENCY);
}

static estimate estimate_staged(const context *ctx, uint32_t owner, uint32_t user) {
    const topology_pcie down = topology_find_pcie(ctx, owner);
    const topology_pcie up = topology_find_pcie(ctx, user);
    const uint64_t from = pcie_bandwidth(down.generation, down.width);
    const uint64_t to = pcie_bandwidth(up.generation, up.width);
    return (estimate){(uint64_t)((double)(from < to ? from : to) * STAGED_EFFICIENCY),
                      owner == user ? LATENCY_STAGED_SAME_NS : LATENCY_STAGED_NS};
}

/* Of a small copy to another device. */
static uint64_t peer_latency(const transport *by, uint64_t link_ns) {
    return by->is_plain ? LATENCY_PLAIN_PEER_NS : link_ns;
}

estimate estimate_make(const context *ctx, gpuipc_transport which, uint32_t owner, uint32_t user) {
    const transport *by = transport_find(which);
    gpuipc_topology topology;
    if (!by->is_zero_copy) {
        return estimate_staged(ctx, owner, user);
    }
    if (topology_find(ctx, owner, user, &topology) != GPUIPC_OK) {
        return (estimate){0, 0};
    }
    switch (topology.link) {
    case GPUIPC_LINK_SAME:
        return (estimate){memory_bandwidth(ctx, owner), LATENCY_SAME_NS};
    case GPUIPC_LINK_NVLINK:
        return (estimate){nvlink_bandwidth(topology.link_generation, topology.link_width),
                          peer_latency(by, LATENCY_NVLINK_NS)};
    default: /* PCIe: what joins two devices is known, or guessed */
        return (estimate){pcie_bandwidth(topology.link_generation, topology.link_width),
                          peer_latency(by, LATENCY_PCIE_NS)};
    }
}
