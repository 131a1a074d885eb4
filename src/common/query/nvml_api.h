/* SPDX-License-Identifier: MIT */
/**
 * @file The part of NVML (NVIDIA Management Library) that gpuipc uses, declared in our own words so
 * that no CUDA toolkit is needed to build. The names and the layout are those of nvml.h of CUDA
 * 13.0. The library is libnvidia-ml.so.1 or nvml.dll; with the emulated CUDA driver it is
 * libgpuipc-emulated-nvml.so or gpuipc-emulated-nvml.dll beside that. All of it is optional.
 * Never included together with nvml.h.
 */
#ifndef GPUIPC_NVML_API_H
#define GPUIPC_NVML_API_H

typedef struct nvmlDevice_st *nvmlDevice_t;

typedef enum nvmlReturn_enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NO_PERMISSION = 4,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_DRIVER_NOT_LOADED = 9,
    NVML_ERROR_LIBRARY_NOT_FOUND = 12,
    NVML_ERROR_FUNCTION_NOT_FOUND = 13,
    NVML_ERROR_GPU_IS_LOST = 15,
    NVML_ERROR_OPERATING_SYSTEM = 17,
    NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18,
    NVML_ERROR_MEMORY = 20,
    NVML_ERROR_UNKNOWN = 999
} nvmlReturn_t;

typedef enum nvmlEnableState_enum {
    NVML_FEATURE_DISABLED = 0,
    NVML_FEATURE_ENABLED = 1
} nvmlEnableState_t;

/** Links of one GPU: their numbers are 0 to this - 1. */
#define NVML_NVLINK_MAX_LINKS 18

/** What nvmlDeviceGetNvLinkVersion writes. Not the number of the generation. An H200 answers
 *  VERSION_4_0 (measured); an H100 is reported to have answered VERSION_5_0 for links of generation 4, and
 *  the compute capability tells the two apart. */
typedef enum nvmlNvlinkVersion_enum {
    NVML_NVLINK_VERSION_INVALID = 0,
    NVML_NVLINK_VERSION_1_0 = 1,
    NVML_NVLINK_VERSION_2_0 = 2,
    NVML_NVLINK_VERSION_2_2 = 3,
    NVML_NVLINK_VERSION_3_0 = 4,
    NVML_NVLINK_VERSION_3_1 = 5,
    NVML_NVLINK_VERSION_4_0 = 6,
    NVML_NVLINK_VERSION_5_0 = 7
} nvmlNvlinkVersion_t;

#define NVML_DEVICE_PCI_BUS_ID_BUFFER_V2_SIZE 16
#define NVML_DEVICE_PCI_BUS_ID_BUFFER_SIZE    32

typedef struct nvmlPciInfo_st {
    char busIdLegacy[NVML_DEVICE_PCI_BUS_ID_BUFFER_V2_SIZE]; /**< domain:bus:device.function */
    unsigned int domain;
    unsigned int bus;
    unsigned int device;
    unsigned int pciDeviceId;    /**< 16 bits of the device and 16 of the vendor */
    unsigned int pciSubSystemId; /**< likewise */
    char busId[NVML_DEVICE_PCI_BUS_ID_BUFFER_SIZE]; /**< with a domain of eight digits */
} nvmlPciInfo_t;

/** What two GPUs have in common on the way to each other over PCIe, from near to far. */
typedef enum nvmlGpuLevel_enum {
    NVML_TOPOLOGY_INTERNAL = 0,    /**< one board */
    NVML_TOPOLOGY_SINGLE = 10,     /**< one PCIe switch */
    NVML_TOPOLOGY_MULTIPLE = 20,   /**< several switches */
    NVML_TOPOLOGY_HOSTBRIDGE = 30, /**< a host bridge */
    NVML_TOPOLOGY_NODE = 40,       /**< a NUMA node */
    NVML_TOPOLOGY_SYSTEM = 50      /**< the link between NUMA nodes */
} nvmlGpuTopologyLevel_t;

typedef enum nvmlGpuP2PStatus_enum {
    NVML_P2P_STATUS_OK = 0,
    NVML_P2P_STATUS_CHIPSET_NOT_SUPPORTED = 1,
    NVML_P2P_STATUS_GPU_NOT_SUPPORTED = 2,
    NVML_P2P_STATUS_IOH_TOPOLOGY_NOT_SUPPORTED = 3,
    NVML_P2P_STATUS_DISABLED_BY_REGKEY = 4,
    NVML_P2P_STATUS_NOT_SUPPORTED = 5,
    NVML_P2P_STATUS_UNKNOWN = 6
} nvmlGpuP2PStatus_t;

typedef enum nvmlGpuP2PCapsIndex_enum {
    NVML_P2P_CAPS_INDEX_READ = 0,
    NVML_P2P_CAPS_INDEX_WRITE = 1,
    NVML_P2P_CAPS_INDEX_NVLINK = 2,
    NVML_P2P_CAPS_INDEX_ATOMICS = 3,
    NVML_P2P_CAPS_INDEX_PCI = 4
} nvmlGpuP2PCapsIndex_t;

/** How Windows runs a GPU; nvmlDeviceGetDriverModel of version 2 alone knows the last one. */
typedef enum nvmlDriverModel_enum {
    NVML_DRIVER_WDDM = 0,
    NVML_DRIVER_WDM = 1, /**< what people call TCC */
    NVML_DRIVER_MCDM = 2
} nvmlDriverModel_t;

/** Room for the text of nvmlSystemGetDriverVersion. */
#define NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE 80

/**
 * The entry points: X(name, suffix, result, parameters). The symbol is name and suffix together.
 */
/* clang-format off */
#define NVML_API_LIST(X) \
    X(nvmlInit, _v2, nvmlReturn_t, (void)) \
    X(nvmlShutdown, , nvmlReturn_t, (void)) \
    X(nvmlErrorString, , const char *, (nvmlReturn_t result)) \
    X(nvmlSystemGetDriverVersion, , nvmlReturn_t, (char *version, unsigned int length)) \
    X(nvmlDeviceGetDriverModel, _v2, nvmlReturn_t, (nvmlDevice_t device, nvmlDriverModel_t *current, nvmlDriverModel_t *pending)) \
    X(nvmlDeviceGetCount, _v2, nvmlReturn_t, (unsigned int *count)) \
    X(nvmlDeviceGetHandleByUUID, , nvmlReturn_t, (const char *uuid, nvmlDevice_t *device)) \
    X(nvmlDeviceGetNvLinkState, , nvmlReturn_t, (nvmlDevice_t device, unsigned int link, nvmlEnableState_t *active)) \
    X(nvmlDeviceGetNvLinkVersion, , nvmlReturn_t, (nvmlDevice_t device, unsigned int link, unsigned int *version)) \
    X(nvmlDeviceGetNvLinkRemotePciInfo, _v2, nvmlReturn_t, (nvmlDevice_t device, unsigned int link, nvmlPciInfo_t *pci)) \
    X(nvmlDeviceGetMaxPcieLinkGeneration, , nvmlReturn_t, (nvmlDevice_t device, unsigned int *generation)) \
    X(nvmlDeviceGetMaxPcieLinkWidth, , nvmlReturn_t, (nvmlDevice_t device, unsigned int *width)) \
    X(nvmlDeviceGetCurrPcieLinkGeneration, , nvmlReturn_t, (nvmlDevice_t device, unsigned int *generation)) \
    X(nvmlDeviceGetCurrPcieLinkWidth, , nvmlReturn_t, (nvmlDevice_t device, unsigned int *width)) \
    X(nvmlDeviceGetTopologyCommonAncestor, , nvmlReturn_t, (nvmlDevice_t first, nvmlDevice_t second, nvmlGpuTopologyLevel_t *level)) \
    X(nvmlDeviceGetP2PStatus, , nvmlReturn_t, (nvmlDevice_t first, nvmlDevice_t second, nvmlGpuP2PCapsIndex_t index, nvmlGpuP2PStatus_t *status))
/* clang-format on */

#endif
