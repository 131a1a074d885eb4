/* SPDX-License-Identifier: MIT */
/** @file The entry points that describe devices. */
#include <stdio.h>
#include <string.h>

#include "entry.h"
#include "state.h"

/* CU_DEVICE_ATTRIBUTE_MAX of CUDA 13.0 */
#define ATTRIBUTE_MAX 148

/* What does not depend on the machine. The shape is that of a GPU of compute capability 9.0; an
 * attribute that is not here is 0, as it is on a GPU that lacks the feature. */
static const struct {
    int attribute;
    int value;
} fixed_attributes[] = {
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
    {2, 1024},       /* MAX_BLOCK_DIM_X */
    {3, 1024},       /* MAX_BLOCK_DIM_Y */
    {4, 64},         /* MAX_BLOCK_DIM_Z */
    {5, 2147483647}, /* MAX_GRID_DIM_X */
    {6, 65535},      /* MAX_GRID_DIM_Y */
    {7, 65535},      /* MAX_GRID_DIM_Z */
    {8, 49152},      /* MAX_SHARED_MEMORY_PER_BLOCK */
    {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
    {11, 2147483647}, /* MAX_PITCH */
    {12, 65536},      /* MAX_REGISTERS_PER_BLOCK */
    {13, 1000000},    /* CLOCK_RATE, kHz */
    {14, 512},        /* TEXTURE_ALIGNMENT */
    {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 8},
    {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
    {31, 1}, /* CONCURRENT_KERNELS */
    /* of an H200: kHz and bits */
    {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 3201000},
    {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 6016},
    {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 3},
    {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
    {78, 1}, /* STREAM_PRIORITIES_SUPPORTED */
    {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1},
    {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1},
    {113, 1}, /* READ_ONLY_HOST_REGISTER_SUPPORTED */
};

static bool has_handle_type(int type) {
    return state_has_vmm() && driver.computer.has_shareable_handles &&
           os_shareable_handle_type == type;
}

/* None on Windows; on Linux FABRIC as above. Under WSL the attribute says so as well, although no such pool
 * can be made. */
static int pool_handle_types(void) {
    const bool has_descriptors =
        os_shareable_handle_type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR &&
        (driver.computer.has_shareable_handles || driver.computer.is_wsl);
    return state_has_pools() && has_descriptors
               ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC
               : 0;
}

static int attribute_value(CUdevice_attribute attribute, const device *of) {
    switch ((int)attribute) {
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
        return MACHINE_BUS_FIRST + (int)of->physical;
    case CU_DEVICE_ATTRIBUTE_TCC_DRIVER:
        return driver.computer.model == MACHINE_MODEL_TCC;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE:
        return (int)driver.computer.compute_mode;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        return driver.computer.compute_major;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        return driver.computer.compute_minor;
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
        return driver.computer.has_stream_words;
    case CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED:
        return state_has_dma_buf();
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED:
        return state_has_vmm();
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
        return has_handle_type(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_WIN32_HANDLE_SUPPORTED:
        return has_handle_type(CU_MEM_HANDLE_TYPE_WIN32);
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED:
        /* Measured on an H200: the attribute says 1 where there is no IMEX channel too. */
        return has_handle_type(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) ||
               (state_has_vmm() && driver.computer.has_imex);
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
        return state_has_concurrent_managed();
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
        return state_has_pools();
    case CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES:
        return pool_handle_types();
    case CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED:
        return state_has_ipc();
    default:
        break;
    }
    for (size_t i = 0; i < sizeof(fixed_attributes) / sizeof(fixed_attributes[0]); i++) {
        if (fixed_attributes[i].attribute == (int)attribute) {
            return fixed_attributes[i].value;
        }
    }
    return 0;
}

static CUresult get_count(int *count) {
    if (count == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *count = (int)driver.device_count;
    return CUDA_SUCCESS;
}

static CUresult get(CUdevice *out, int ordinal) {
    device *of;
    if (out == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = state_device(ordinal, &of);
    if (result == CUDA_SUCCESS) {
        *out = ordinal;
    }
    return result;
}

static CUresult get_name(char *name, int size, CUdevice ordinal) {
    device *of;
    CUresult result = state_device(ordinal, &of);
    if (result == CUDA_SUCCESS && (name == NULL || size <= 0)) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS) {
        snprintf(name, (size_t)size, "gpuipc emulated GPU%s",
                 driver.computer.is_mig ? " MIG 1g.18gb" : "");
    }
    return result;
}

static CUresult get_uuid(CUuuid *out, CUdevice ordinal, bool whole_gpu) {
    device *of;
    uint8_t uuid[16];
    CUresult result = state_device(ordinal, &of);
    if (result == CUDA_SUCCESS && out == NULL) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS) {
        machine_uuid(&driver.computer, of->physical, whole_gpu, uuid);
        memcpy(out->bytes, uuid, sizeof(uuid));
    }
    return result;
}

static CUresult total_memory(size_t *bytes, CUdevice ordinal) {
    device *of;
    CUresult result = state_device(ordinal, &of);
    if (result == CUDA_SUCCESS && bytes == NULL) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS) {
        *bytes = (size_t)driver.computer.memory_bytes;
    }
    return result;
}

static CUresult get_attribute(int *value, CUdevice_attribute attribute, CUdevice ordinal) {
    device *of;
    CUresult result = state_device(ordinal, &of);
    if (result == CUDA_SUCCESS &&
        (value == NULL || (int)attribute < 1 || (int)attribute >= ATTRIBUTE_MAX)) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS) {
        *value = attribute_value(attribute, of);
    }
    return result;
}

static CUresult get_capability(int *major, int *minor, CUdevice ordinal) {
    CUresult result = get_attribute(major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, ordinal);
    return result == CUDA_SUCCESS
               ? get_attribute(minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, ordinal)
               : result;
}

static CUresult get_bus_id(char *text, int size, CUdevice ordinal) {
    device *of;
    CUresult result = state_device(ordinal, &of);
    if (result == CUDA_SUCCESS && (text == NULL || size < 13)) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS) {
        snprintf(text, (size_t)size, "0000:%02X:00.0", MACHINE_BUS_FIRST + of->physical);
    }
    return result;
}

/* A hexadecimal number of up to eight digits, without sign or prefix. */
static bool take_hex(const char **text, unsigned *out) {
    static const char digits[] = "0123456789abcdefABCDEF";
    unsigned value = 0;
    unsigned count = 0;
    for (; **text != '\0' && strchr(digits, **text) != NULL && count < 8; (*text)++, count++) {
        const unsigned digit = (unsigned)(strchr(digits, **text) - digits);
        value = value * 16 + (digit < 16 ? digit : digit - 6);
    }
    *out = value;
    return count > 0;
}

static bool take_hex_after(const char **text, char separator, unsigned *out) {
    if (**text != separator) {
        return false;
    }
    (*text)++;
    return take_hex(text, out);
}

typedef struct bus_id {
    unsigned domain;
    unsigned bus;
    unsigned slot;
    unsigned function;
} bus_id;

/* cuda.h: domain:bus:device.function, domain:bus:device or bus:device.function. */
static bool read_bus_id(const char *text, bus_id *out) {
    unsigned first;
    unsigned second;
    *out = (bus_id){0, 0, 0, 0};
    if (!take_hex(&text, &first) || !take_hex_after(&text, ':', &second)) {
        return false;
    }
    if (*text == ':') {
        out->domain = first;
        out->bus = second;
        return take_hex_after(&text, ':', &out->slot) &&
               (*text == '\0' || (take_hex_after(&text, '.', &out->function) && *text == '\0'));
    }
    out->bus = first;
    out->slot = second;
    return take_hex_after(&text, '.', &out->function) && *text == '\0';
}

static CUresult find_bus_id(CUdevice *out, const char *text) {
    bus_id wanted;
    if (out == NULL || text == NULL || !read_bus_id(text, &wanted)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (unsigned ordinal = 0; ordinal < driver.device_count; ordinal++) {
        if (wanted.domain == 0 && wanted.slot == 0 && wanted.function == 0 &&
            wanted.bus == MACHINE_BUS_FIRST + driver.devices[ordinal].physical) {
            *out = (CUdevice)ordinal;
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_INVALID_DEVICE;
}

GPUIPC_EXPORTED CUresult cuDeviceGetCount(int *count) {
    const CUresult refused = ENTER(cuDeviceGetCount);
    return refused != CUDA_SUCCESS ? refused : entry_leave(get_count(count));
}

GPUIPC_EXPORTED CUresult cuDeviceGet(CUdevice *out, int ordinal) {
    const CUresult refused = ENTER(cuDeviceGet);
    return refused != CUDA_SUCCESS ? refused : entry_leave(get(out, ordinal));
}

GPUIPC_EXPORTED CUresult cuDeviceGetName(char *name, int size, CUdevice ordinal) {
    const CUresult refused = ENTER(cuDeviceGetName);
    return refused != CUDA_SUCCESS ? refused : entry_leave(get_name(name, size, ordinal));
}

/* The first version knows no MIG instances: it answers with the GPU that they are part of. */
GPUIPC_EXPORTED CUresult cuDeviceGetUuid(CUuuid *out, CUdevice ordinal) {
    const CUresult refused = ENTER(cuDeviceGetUuid);
    return refused != CUDA_SUCCESS ? refused : entry_leave(get_uuid(out, ordinal, true));
}

GPUIPC_EXPORTED CUresult cuDeviceGetUuid_v2(CUuuid *out, CUdevice ordinal) {
    const CUresult refused = ENTER(cuDeviceGetUuid_v2);
    return refused != CUDA_SUCCESS ? refused : entry_leave(get_uuid(out, ordinal, false));
}

GPUIPC_EXPORTED CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice ordinal) {
    const CUresult refused = ENTER(cuDeviceTotalMem_v2);
    return refused != CUDA_SUCCESS ? refused : entry_leave(total_memory(bytes, ordinal));
}

GPUIPC_EXPORTED CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute,
                                              CUdevice ordinal) {
    const CUresult refused = ENTER(cuDeviceGetAttribute);
    return refused != CUDA_SUCCESS ? refused
                                   : entry_leave(get_attribute(value, attribute, ordinal));
}

GPUIPC_EXPORTED CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice ordinal) {
    const CUresult refused = ENTER(cuDeviceComputeCapability);
    return refused != CUDA_SUCCESS ? refused : entry_leave(get_capability(major, minor, ordinal));
}

GPUIPC_EXPORTED CUresult cuDeviceGetPCIBusId(char *text, int size, CUdevice ordinal) {
    const CUresult refused = ENTER(cuDeviceGetPCIBusId);
    return refused != CUDA_SUCCESS ? refused : entry_leave(get_bus_id(text, size, ordinal));
}

GPUIPC_EXPORTED CUresult cuDeviceGetByPCIBusId(CUdevice *out, const char *text) {
    const CUresult refused = ENTER(cuDeviceGetByPCIBusId);
    return refused != CUDA_SUCCESS ? refused : entry_leave(find_bus_id(out, text));
}
