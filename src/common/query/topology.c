/* SPDX-License-Identifier: MIT */
/** @file See topology.h. */
#include "query/topology.h"

#include "base/struct_size.h"
#include "query/nvml_library.h"

/* What a device of a compute capability has, as its maker sells it, where NVML does not tell. The
 * board's design may differ: an A6000 (8.6) has 4 NVLinks of the 12 of an A100 (8.0). */
typedef struct guess_row {
    int major;
    int minor; /**< and above, up to the next row */
    uint32_t nvlink_generation;
    uint32_t nvlinks;
    uint32_t pcie_generation;
} guess_row;

static const guess_row guesses[] = {
    {3, 0, 0, 0, 3},   /* Kepler, Maxwell */
    {6, 0, 1, 4, 3},   /* P100 */
    {6, 1, 0, 0, 3},   /* other Pascal */
    {7, 0, 2, 6, 3},   /* V100 */
    {7, 5, 2, 2, 3},   /* Turing: RTX 8000, 2080 Ti */
    {8, 0, 3, 12, 4},  /* A100 */
    {8, 6, 3, 4, 4},   /* A6000 */
    {8, 7, 0, 0, 4},   /* Orin, Ada */
    {9, 0, 4, 18, 5},  /* H100, H200 */
    {10, 0, 5, 18, 5}, /* B200 */
    {11, 0, 0, 0, 5},  /* Thor, RTX Blackwell */
};

static const guess_row *guess(const gpuipc_device_info *of) {
    const guess_row *found = &guesses[0];
    for (size_t i = 0; i < sizeof(guesses) / sizeof(guesses[0]); i++) {
        const guess_row *row = &guesses[i];
        if (of->compute_major > row->major ||
            (of->compute_major == row->major && of->compute_minor >= row->minor)) {
            found = row;
        }
    }
    return found;
}

static uint32_t smaller(uint32_t first, uint32_t second) {
    return first < second ? first : second;
}

topology_pcie topology_find_pcie(const context *ctx, uint32_t index) {
    const gpuipc_device_info *of = &ctx->devices[index].info;
    const nvml *library = nvml_find(&ctx->driver);
    nvmlDevice_t handle;
    topology_pcie pcie = {guess(of)->pcie_generation, 16, false};
    unsigned generation;
    unsigned width;
    if (library != NULL && nvml_device(library, of, &handle) &&
        nvml_pcie(library, handle, &generation, &width)) {
        pcie = (topology_pcie){generation, width, true};
    }
    return pcie;
}

static gpuipc_status attribute(const context *ctx, CUdevice_P2PAttribute which, uint32_t owner,
                               uint32_t user, int32_t *out_value) {
    int value = 0;
    gpuipc_status status =
        DRIVER_CALL(&ctx->driver, cuDeviceGetP2PAttribute,
                    (&value, which, ctx->devices[user].ordinal, ctx->devices[owner].ordinal),
                    "asking what one device can do with another's memory");
    *out_value = value;
    return status;
}

/* The driver has no attributes for a device and itself (CUDA_ERROR_INVALID_DEVICE). */
static gpuipc_topology same_device(void) {
    return (gpuipc_topology){.struct_size = sizeof(gpuipc_topology),
                             .peer_access = 1,
                             .native_atomics = 1,
                             .array_access = 1,
                             .link = GPUIPC_LINK_SAME};
}

static nvml_place place_of(const context *ctx, uint32_t index) {
    const driver *drv = &ctx->driver;
    const CUdevice ordinal = ctx->devices[index].ordinal;
    int domain = 0;
    int bus = 0;
    int slot = 0;
    if (drv->cuDeviceGetAttribute(&domain, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, ordinal) !=
            CUDA_SUCCESS ||
        drv->cuDeviceGetAttribute(&bus, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, ordinal) != CUDA_SUCCESS ||
        drv->cuDeviceGetAttribute(&slot, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, ordinal) !=
            CUDA_SUCCESS) {
        return (nvml_place){UINT32_MAX, UINT32_MAX, UINT32_MAX}; /* nowhere */
    }
    return (nvml_place){(unsigned)domain, (unsigned)bus, (unsigned)slot};
}

/* The NVLinks between two devices, as NVML counts them. Links that end in switches reach every device
 * that has such links; where links end at devices, those that end elsewhere are of no use here. */
static bool count_nvlinks(const context *ctx, uint32_t owner, uint32_t user,
                          gpuipc_topology *topology) {
    const nvml *library = nvml_find(&ctx->driver);
    const nvml_place owner_place = place_of(ctx, owner);
    const nvml_place user_place = place_of(ctx, user);
    nvmlDevice_t owner_handle;
    nvmlDevice_t user_handle;
    if (library == NULL || !nvml_device(library, &ctx->devices[owner].info, &owner_handle) ||
        !nvml_device(library, &ctx->devices[user].info, &user_handle)) {
        return false;
    }
    const nvml_links from = nvml_count_links(library, user_handle, &owner_place);
    const nvml_links to = nvml_count_links(library, owner_handle, &user_place);
    uint32_t width = smaller(from.direct, to.direct);
    if (width == 0) {
        const int told = nvml_has_nvlink(library, user_handle, owner_handle);
        const bool is_joined = told >= 0 ? told == 1 : topology->native_atomics != 0;
        width = is_joined ? smaller(from.active, to.active) : 0;
    }
    if (width == 0) {
        return false;
    }
    topology->link = GPUIPC_LINK_NVLINK;
    topology->link_width = width;
    topology->link_generation = smaller(from.generation, to.generation);
    /* Some libraries call the links of an H100 (9.0), which are of generation 4, version 5. */
    if (guess(&ctx->devices[user].info)->nvlink_generation == 4 && topology->link_generation == 5) {
        topology->link_generation = 4;
    }
    topology->is_from_nvml = 1;
    return true;
}

/* Where NVML does not tell (there is none, or it says NOT_SUPPORTED, as in some virtual machines): atomic
 * operations across the link are what PCIe has not. */
static bool guess_nvlinks(const context *ctx, uint32_t owner, uint32_t user,
                          gpuipc_topology *topology) {
    const guess_row *from = guess(&ctx->devices[user].info);
    const guess_row *to = guess(&ctx->devices[owner].info);
    if (!topology->native_atomics || from->nvlinks == 0 || to->nvlinks == 0) {
        return false;
    }
    topology->link = GPUIPC_LINK_NVLINK;
    topology->link_width = smaller(from->nvlinks, to->nvlinks);
    topology->link_generation = smaller(from->nvlink_generation, to->nvlink_generation);
    return true;
}

static void join_pcie(const context *ctx, uint32_t owner, uint32_t user,
                      gpuipc_topology *topology) {
    const topology_pcie from = topology_find_pcie(ctx, user);
    const topology_pcie to = topology_find_pcie(ctx, owner);
    topology->link = GPUIPC_LINK_PCIE;
    topology->link_generation = smaller(from.generation, to.generation);
    topology->link_width = smaller(from.width, to.width);
    topology->is_from_nvml = from.is_from_nvml && to.is_from_nvml;
}

gpuipc_status topology_find(const context *ctx, uint32_t owner, uint32_t user,
                            gpuipc_topology *out_topology) {
    gpuipc_topology topology = {.struct_size = sizeof(topology)};
    gpuipc_status status;
    if (owner == user) {
        *out_topology = same_device();
        return GPUIPC_OK;
    }
    if (!ctx->driver.has_p2p) {
        join_pcie(ctx, owner, user, &topology);
        *out_topology = topology;
        return GPUIPC_OK;
    }
    if ((status = attribute(ctx, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, owner, user,
                            &topology.peer_access)) != GPUIPC_OK ||
        (status = attribute(ctx, CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, owner, user,
                            &topology.performance_rank)) != GPUIPC_OK ||
        (status = attribute(ctx, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, owner, user,
                            &topology.native_atomics)) != GPUIPC_OK ||
        (status = attribute(ctx, CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED, owner, user,
                            &topology.array_access)) != GPUIPC_OK) {
        return status;
    }
    if (!topology.peer_access || (!count_nvlinks(ctx, owner, user, &topology) &&
                                  !guess_nvlinks(ctx, owner, user, &topology))) {
        join_pcie(ctx, owner, user, &topology);
    }
    *out_topology = topology;
    return GPUIPC_OK;
}

gpuipc_status gpuipc_topology_get(gpuipc_context *handle, uint32_t owner, uint32_t user,
                                  gpuipc_topology *out_topology) {
    status_enter(__func__);
    context *ctx;
    gpuipc_topology topology;
    gpuipc_status status =
        struct_size_check(out_topology, STRUCT_SIZE_UP_TO(gpuipc_topology, is_from_nvml));
    if (status != GPUIPC_OK || (status = context_acquire(handle, &ctx)) != GPUIPC_OK) {
        return status;
    }
    if ((status = device_check(ctx, owner)) == GPUIPC_OK &&
        (status = device_check(ctx, user)) == GPUIPC_OK &&
        (status = topology_find(ctx, owner, user, &topology)) == GPUIPC_OK) {
        struct_size_write(out_topology, &topology, sizeof(topology));
    }
    context_unreference(ctx);
    return status;
}
