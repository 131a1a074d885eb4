/* SPDX-License-Identifier: MIT */
/** @file What joins devices, from the driver and NVML, or guessed. */
#include <stdio.h>
#include <string.h>

#include "query/estimate.h"
#include "query/nvml_library.h"
#include "transport_machine.h"

TestSuite(topology, .init = core_start, .fini = core_finish, .timeout = 60);
TestSuite(topology_machine, .init = core_start_without_context, .fini = core_finish, .timeout = 60);

static gpuipc_topology look(gpuipc_context *made, uint32_t owner, uint32_t user) {
    gpuipc_topology topology = {.struct_size = sizeof(topology)};
    check_ok(gpuipc_topology_get(made, owner, user, &topology));
    return topology;
}

static void check_link(gpuipc_context *made, gpuipc_link link, uint32_t generation, uint32_t width,
                       int is_from_nvml) {
    const gpuipc_topology topology = look(made, 0, 1);
    cr_assert_eq(topology.link, link, "%d", (int)topology.link);
    cr_assert_eq(topology.link_generation, generation, "%u", topology.link_generation);
    cr_assert_eq(topology.link_width, width, "%u", topology.link_width);
    cr_assert_eq(topology.is_from_nvml, is_from_nvml);
}

Test(topology, a_device_and_itself) {
    const gpuipc_topology topology = look(core_context, 0, 0);
    cr_assert_eq(topology.link, GPUIPC_LINK_SAME);
    cr_assert_eq(topology.peer_access, 1);
    cr_assert_eq(topology.native_atomics, 1);
    cr_assert_eq(topology.performance_rank, 0);
    cr_assert_eq(topology.struct_size, sizeof(topology));
}

Test(topology, it_agrees_with_the_driver) {
    core_need_devices(2);
    const driver *drv = core_driver();
    for (uint32_t owner = 0; owner < core_device_count; owner++) {
        for (uint32_t user = 0; user < core_device_count; user++) {
            int value = -1;
            if (owner == user) {
                continue;
            }
            const gpuipc_topology topology = look(core_context, owner, user);
            cr_assert_eq(drv->cuDeviceGetP2PAttribute(&value,
                                                      CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED,
                                                      (int)user, (int)owner),
                         CUDA_SUCCESS);
            cr_assert_eq(topology.peer_access, value);
            cr_assert_eq(
                drv->cuDeviceGetP2PAttribute(
                    &value, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, (int)user, (int)owner),
                CUDA_SUCCESS);
            cr_assert_eq(topology.native_atomics, value);
            cr_assert(topology.link == GPUIPC_LINK_NVLINK || topology.link == GPUIPC_LINK_PCIE);
            cr_assert_gt(topology.link_generation, 0);
            cr_assert_gt(topology.link_width, 0);
        }
    }
}

Test(topology, wrong_questions_are_refused) {
    gpuipc_topology topology = {.struct_size = sizeof(topology)};
    check_status(GPUIPC_ERR_DEVICE_NOT_FOUND,
                 gpuipc_topology_get(core_context, core_device_count, 0, &topology));
    check_status(GPUIPC_ERR_DEVICE_NOT_FOUND,
                 gpuipc_topology_get(core_context, 0, GPUIPC_DEVICE_NONE, &topology));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_topology_get(NULL, 0, 0, &topology));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_topology_get(core_context, 0, 0, NULL));
    topology.struct_size = 8;
    check_status(GPUIPC_ERR_STRUCT_SIZE, gpuipc_topology_get(core_context, 0, 0, &topology));
    cr_assert_eq(topology.link, 0);
}

Test(topology_machine, with_nvlinks) {
    gpuipc_context *made = machine_context("");
    check_link(made, GPUIPC_LINK_NVLINK, 4, 18, 1);
    cr_assert_eq(look(made, 0, 1).native_atomics, 1);
    check_ok(gpuipc_context_destroy(made));
}

Test(topology_machine, with_few_and_old_nvlinks) {
    gpuipc_context *made = machine_context("links=6;link-version=2;compute=7.0");
    check_link(made, GPUIPC_LINK_NVLINK, 2, 6, 1);
    check_ok(gpuipc_context_destroy(made));
}

Test(topology_machine, whose_nvml_counts_one_generation_too_many) {
    gpuipc_context *made = machine_context("link-version=5;compute=9.0");
    check_link(made, GPUIPC_LINK_NVLINK, 4, 18, 1);
    check_ok(gpuipc_context_destroy(made));
}

Test(topology_machine, of_the_newest_generation) {
    gpuipc_context *made = machine_context("link-version=5;compute=10.0");
    check_link(made, GPUIPC_LINK_NVLINK, 5, 18, 1);
    check_ok(gpuipc_context_destroy(made));
}

Test(topology_machine, with_pcie_only) {
    gpuipc_context *made = machine_context("link=pcie;pcie-gen=4;pcie-width=8");
    check_link(made, GPUIPC_LINK_PCIE, 4, 8, 1);
    cr_assert_eq(look(made, 0, 1).native_atomics, 0);
    cr_assert_eq(look(made, 0, 1).peer_access, 1);
    check_ok(gpuipc_context_destroy(made));
}

Test(topology_machine, without_peer_access) {
    gpuipc_context *made = machine_context("p2p=none");
    check_link(made, GPUIPC_LINK_PCIE, 5, 16, 1);
    cr_assert_eq(look(made, 0, 1).peer_access, 0);
    check_ok(gpuipc_context_destroy(made));
}

Test(topology_machine, without_nvml_is_guessed) {
    gpuipc_context *made = machine_context("nvml=0");
    check_link(made, GPUIPC_LINK_NVLINK, 4, 18, 0);
    check_ok(gpuipc_context_destroy(made));
}

Test(topology_machine, without_nvml_and_nvlinks_is_guessed) {
    gpuipc_context *made = machine_context("nvml=0;link=pcie;compute=8.9");
    check_link(made, GPUIPC_LINK_PCIE, 4, 16, 0);
    check_ok(gpuipc_context_destroy(made));
}

Test(topology_machine, whose_driver_fails) {
    gpuipc_context *made = machine_context("");
    gpuipc_topology topology = {.struct_size = sizeof(topology)};
    for (unsigned number = 1; number <= 4; number++) {
        char failure[64];
        (void)snprintf(failure, sizeof(failure), "cuDeviceGetP2PAttribute:%u=999", number);
        core_set_failures(failure);
        check_status(GPUIPC_ERR_CUDA, gpuipc_topology_get(made, 0, 1, &topology));
        cr_assert_eq(topology.link, 0);
    }
    /* Without places NVML's links still count, because they end in switches or are all alike. */
    core_set_failures("cuDeviceGetAttribute:*=999");
    check_ok(gpuipc_topology_get(made, 0, 1, &topology));
    core_set_failures("");
    cr_assert_eq(topology.link, GPUIPC_LINK_NVLINK);
    check_ok(gpuipc_context_destroy(made));
}

/* ---- figures that come from it ------------------------------------------------------------ */

static void check_estimate(gpuipc_context *made, gpuipc_transport which, uint32_t user,
                           double gigabytes) {
    const gpuipc_transport_pair pair = machine_pair(0, user);
    const gpuipc_transport_info info = machine_ask(made, which, &pair);
    const double got = (double)info.bandwidth_bytes_per_second / 1e9;
    cr_assert_eq(info.bandwidth_source, GPUIPC_FIGURE_ESTIMATED);
    cr_assert(got > gigabytes * 0.97 && got < gigabytes * 1.03, "%s: %f GB/s, not %f",
              gpuipc_transport_name(which), got, gigabytes);
    check_ok(gpuipc_context_destroy(made));
}

Test(topology_machine, of_h200s_has_their_bandwidth) {
    check_estimate(machine_context("compute=9.0"), GPUIPC_TRANSPORT_VMM, 1, 395);
    check_estimate(core_context_new(), GPUIPC_TRANSPORT_HOST, 1, 52);
    check_estimate(core_context_new(), GPUIPC_TRANSPORT_VMM, 0, 2000);
}

Test(topology_machine, with_pcie_has_its_bandwidth) {
    check_estimate(machine_context("link=pcie;pcie-gen=4;pcie-width=16"), GPUIPC_TRANSPORT_P2P, 1,
                   27.7);
    check_estimate(core_context_new(), GPUIPC_TRANSPORT_HOST, 1, 26);
}

Test(topology_machine, with_few_nvlinks_has_their_bandwidth) {
    check_estimate(machine_context("links=6;link-version=2;compute=7.0"), GPUIPC_TRANSPORT_VMM, 1,
                   131.7);
}

Test(topology_machine, of_which_nothing_is_known_has_no_figure) {
    gpuipc_context *made = machine_context("");
    const gpuipc_transport_pair pair = machine_pair(0, 1);
    core_set_failures("cuDeviceGetP2PAttribute:*=999");
    const gpuipc_transport_info info = machine_ask(made, GPUIPC_TRANSPORT_VMM, &pair);
    core_set_failures("");
    cr_assert_eq(info.available, 1);
    cr_assert_eq(info.bandwidth_source, GPUIPC_FIGURE_NONE);
    check_ok(gpuipc_context_destroy(made));
}

/* ---- an NVML that tells something else of each device ------------------------------------------------ */

static nvml told; /* as it was found */
static unsigned asked;
static unsigned unknown_from; /* from so many questions on no device is known */
static unsigned widths[2];
static unsigned generations;

static nvmlReturn_t know_few(const char *uuid, nvmlDevice_t *handle) {
    return asked++ >= unknown_from ? NVML_ERROR_NOT_FOUND
                                   : told.nvmlDeviceGetHandleByUUID(uuid, handle);
}

static nvmlReturn_t say_width(nvmlDevice_t of, unsigned *width) {
    (void)of;
    *width = widths[asked++ % 2];
    return NVML_SUCCESS;
}

static nvmlReturn_t say_generation(nvmlDevice_t of, unsigned *generation) {
    (void)of;
    *generation = generations;
    return NVML_SUCCESS;
}

/* The library of this process, which ends with the test. */
static nvml *change_nvml(gpuipc_context *made) {
    context *ctx;
    check_ok(context_acquire(made, &ctx));
    nvml *library = (nvml *)(uintptr_t)nvml_find(&ctx->driver);
    context_unreference(ctx);
    cr_assert_not_null(library);
    told = *library;
    asked = 0;
    return library;
}

Test(topology_machine, whose_nvml_knows_one_device_alone) {
    gpuipc_context *made = machine_context("");
    change_nvml(made)->nvmlDeviceGetHandleByUUID = know_few;
    for (unknown_from = 0; unknown_from < 2; unknown_from++) {
        asked = 0;
        check_link(made, GPUIPC_LINK_NVLINK, 4, 18, 0); /* guessed */
    }
    check_ok(gpuipc_context_destroy(made));
}

Test(topology_machine, whose_nvml_knows_one_device_alone_of_two_with_pcie) {
    gpuipc_context *made = machine_context("link=pcie");
    change_nvml(made)->nvmlDeviceGetHandleByUUID = know_few;
    for (unknown_from = 2; unknown_from < 4; unknown_from++) {
        asked = 0;
        check_link(made, GPUIPC_LINK_PCIE, 5, 16, 0);
    }
    check_ok(gpuipc_context_destroy(made));
}

Test(topology_machine, whose_nvml_does_not_tell_what_joins_two_devices) {
    gpuipc_context *made = machine_context("");
    change_nvml(made)->nvmlDeviceGetP2PStatus = NULL;
    check_link(made, GPUIPC_LINK_NVLINK, 4, 18, 1);
    check_ok(gpuipc_context_destroy(made));
}

Test(topology_machine, whose_nvml_does_not_tell_what_joins_two_devices_with_pcie) {
    gpuipc_context *made = machine_context("link=pcie");
    change_nvml(made)->nvmlDeviceGetP2PStatus = NULL;
    check_link(made, GPUIPC_LINK_PCIE, 5, 16, 1);
    check_ok(gpuipc_context_destroy(made));
}

Test(topology_machine, whose_devices_have_no_nvlinks_for_all_that_is_known) {
    gpuipc_context *made = machine_context("nvml=0;compute=8.9");
    check_link(made, GPUIPC_LINK_PCIE, 4, 16, 0);
    check_ok(gpuipc_context_destroy(made));
}

Test(topology_machine, of_which_one_device_has_no_nvlinks_for_all_that_is_known) {
    gpuipc_context *made = machine_context("nvml=0");
    context *ctx;
    check_link(made, GPUIPC_LINK_NVLINK, 4, 18, 0);
    check_ok(context_acquire(made, &ctx));
    ctx->devices[0].info.compute_major = 8;
    ctx->devices[0].info.compute_minor = 9;
    context_unreference(ctx);
    check_link(made, GPUIPC_LINK_PCIE, 4, 16, 0);
    check_ok(gpuipc_context_destroy(made));
}

static estimate estimate_of(gpuipc_context *made, gpuipc_transport which, uint32_t user) {
    context *ctx;
    check_ok(context_acquire(made, &ctx));
    const estimate found = estimate_make(ctx, which, 0, user);
    context_unreference(ctx);
    return found;
}

/* The narrower end counts, and a generation of which nothing is known counts as the last that is. */
Test(topology_machine, of_pcie_links_that_differ) {
    gpuipc_context *made = machine_context("link=pcie");
    nvml *library = change_nvml(made);
    library->nvmlDeviceGetCurrPcieLinkWidth = say_width;
    library->nvmlDeviceGetMaxPcieLinkGeneration = say_generation;
    generations = 7;
    widths[0] = widths[1] = 8;
    const uint64_t narrow = estimate_of(made, GPUIPC_TRANSPORT_HOST, 1).bandwidth_bytes_per_second;
    cr_assert_gt(narrow, 0);
    for (unsigned wide = 0; wide < 2; wide++) {
        asked = 0;
        widths[wide] = 16;
        widths[1 - wide] = 8;
        cr_assert_eq(estimate_of(made, GPUIPC_TRANSPORT_HOST, 1).bandwidth_bytes_per_second,
                     narrow);
    }
    generations = 8;
    cr_assert_eq(estimate_of(made, GPUIPC_TRANSPORT_HOST, 1).bandwidth_bytes_per_second, narrow);
    check_ok(gpuipc_context_destroy(made));
}

static int kilohertz;
static int bits;

static CUresult say_clock(int *value, CUdevice_attribute attribute, CUdevice of) {
    (void)of;
    *value = attribute == CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE ? kilohertz : bits;
    return CUDA_SUCCESS;
}

Test(topology_machine, whose_memory_has_no_clock_has_no_figure) {
    gpuipc_context *made = machine_context("");
    context *ctx;
    check_ok(context_acquire(made, &ctx));
    ctx->driver.cuDeviceGetAttribute = say_clock;
    kilohertz = 1000000;
    bits = 1024;
    cr_assert_gt(estimate_make(ctx, GPUIPC_TRANSPORT_VMM, 0, 0).bandwidth_bytes_per_second, 0);
    bits = 0;
    cr_assert_eq(estimate_make(ctx, GPUIPC_TRANSPORT_VMM, 0, 0).bandwidth_bytes_per_second, 0);
    bits = 1024;
    kilohertz = 0;
    cr_assert_eq(estimate_make(ctx, GPUIPC_TRANSPORT_VMM, 0, 0).bandwidth_bytes_per_second, 0);
    context_unreference(ctx);
    check_ok(gpuipc_context_destroy(made));
}
