/* SPDX-License-Identifier: MIT */
/**
 * @file The second process of the conformance tests. It takes one-line commands from the test and
 * answers each; it holds one piece of memory, which it made or imported. Commands:
 *   open                     loads the driver; answers the gpuipc_status
 *   context DEVICE           retains its primary context and makes it current; answers the CUresult
 *   create DEVICE BYTES WORD makes exportable memory that begins with the word; answers its handle
 *   import DEVICE BYTES      imports the handle that came along; answers an import_report
 *   read, write WORD         the first word of the memory; answers the CUresult (and the word)
 *   release                  releases the handle and keeps the mapping; answers the CUresult
 *   close                    undoes everything about the memory; answers the first CUresult that failed
 *   garbage CALL             passes a handle value that the driver never gave out; answers only if
 *                            it lives to do so
 * and those of conformance_helper_export.c and conformance_helper_order.c. It ends when the conversation does, and dies with its parent.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conformance_helper.h"

driver drv;
static bool is_open;

/** The memory held. */
static struct {
    CUmemGenericAllocationHandle handle; /**< 0: released */
    CUdeviceptr address;
    size_t bytes; /**< 0: there is none */
} held;

static gpuipc_status open_driver(void) {
    const char *choice = os_environment("GPUIPC_CUDA_DRIVER");
    if (is_open) {
        return GPUIPC_OK;
    }
    const gpuipc_status status = driver_open(choice == NULL ? "auto" : choice, &drv);
    is_open = status == GPUIPC_OK;
    return status;
}

CUresult use_device(int device) {
    CUcontext context;
    if (open_driver() != GPUIPC_OK) {
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    const CUresult result = drv.cuDevicePrimaryCtxRetain(&context, device);
    return result == CUDA_SUCCESS ? drv.cuCtxSetCurrent(context) : result;
}

void answer(const char *line, os_handle handle) {
    if (!link_send(line, handle)) {
        exit(1); /* the test is gone */
    }
}

void answer_result(CUresult result) {
    char line[MESSAGE_BYTES];
    snprintf(line, sizeof line, "%d", (int)result);
    answer(line, OS_HANDLE_NONE);
}

/** Maps held.handle; leaves the results of the two calls that the report names. */
static CUresult map_held(int device, size_t bytes, int *mapped, int *accessed) {
    const CUmemAccessDesc access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, device},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUresult result = drv.cuMemAddressReserve(&held.address, bytes, 0, 0, 0);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = drv.cuMemMap(held.address, bytes, 0, held.handle, 0);
    *mapped = (int)result;
    if (result != CUDA_SUCCESS) {
        return result;
    }
    held.bytes = bytes;
    result = drv.cuMemSetAccess(held.address, bytes, &access, 1);
    *accessed = (int)result;
    return result;
}

CUresult write_word(CUdeviceptr address, uint32_t word) {
    const CUresult result = drv.cuMemcpyHtoD(address, &word, sizeof word);
    return result == CUDA_SUCCESS ? drv.cuCtxSynchronize() : result;
}

static void do_create(int device, size_t bytes, uint32_t word) {
    const void *rights = NULL;
    uint64_t written = 0;
    os_handle shareable = OS_HANDLE_NONE;
    int ignored;
    CUresult result = use_device(device);
    if (result == CUDA_SUCCESS && os_handle_attributes(&rights) != GPUIPC_OK) {
        result = CUDA_ERROR_OPERATING_SYSTEM;
    }
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .requestedHandleTypes =
                                                (CUmemAllocationHandleType)os_shareable_handle_type,
                                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, device},
                                            .win32HandleMetaData = (void *)(uintptr_t)rights};
    if (result == CUDA_SUCCESS) {
        result = drv.cuMemCreate(&held.handle, bytes, &properties, 0);
    }
    if (result == CUDA_SUCCESS) {
        result = map_held(device, bytes, &ignored, &ignored);
    }
    if (result == CUDA_SUCCESS) {
        result = write_word(held.address, word);
    }
    if (result == CUDA_SUCCESS) {
        result = drv.cuMemExportToShareableHandle(
            &written, held.handle, (CUmemAllocationHandleType)os_shareable_handle_type, 0);
    }
    if (result != CUDA_SUCCESS || os_handle_adopt_exported(&written, &shareable) != GPUIPC_OK) {
        answer_result(result);
        return;
    }
    answer("0", shareable);
    os_handle_close(&shareable);
}

static void do_import(int device, size_t bytes, os_handle shareable) {
    CUmemAllocationProp properties = {.location = {CU_MEM_LOCATION_TYPE_INVALID, -1}};
    int imported = -1, described = -1, mapped = -1, accessed = -1, copied = -1;
    uint32_t word = 0;
    size_t range = 0;
    char line[MESSAGE_BYTES];
    imported = (int)use_device(device);
    if (imported == CUDA_SUCCESS) {
        imported = (int)drv.cuMemImportFromShareableHandle(
            &held.handle, (void *)shareable.value,
            (CUmemAllocationHandleType)os_shareable_handle_type);
    }
    if (imported == CUDA_SUCCESS) {
        described = (int)drv.cuMemGetAllocationPropertiesFromHandle(&properties, held.handle);
        if (map_held(device, bytes, &mapped, &accessed) == CUDA_SUCCESS) {
            copied = (int)drv.cuMemcpyDtoH(&word, held.address, sizeof word);
            if (drv.cuMemGetAddressRange(NULL, &range, held.address) != CUDA_SUCCESS) {
                range = 0;
            }
        }
    }
    snprintf(line, sizeof line, "%d %d %d %d %d %d %d %d %u %llu", imported, described,
             (int)properties.location.type, properties.location.id,
             (int)properties.requestedHandleTypes, mapped, accessed, copied, word,
             (unsigned long long)range);
    answer(line, OS_HANDLE_NONE);
}

void answer_word(CUdeviceptr address) {
    char line[MESSAGE_BYTES];
    uint32_t word = 0;
    const CUresult result = drv.cuMemcpyDtoH(&word, address, sizeof word);
    snprintf(line, sizeof line, "%d %u", (int)result, word);
    answer(line, OS_HANDLE_NONE);
}

static CUresult release_held(void) {
    const CUresult result = drv.cuMemRelease(held.handle);
    held.handle = 0;
    return result;
}

static CUresult close_held(void) {
    CUresult result = drv.cuMemUnmap(held.address, held.bytes);
    if (result == CUDA_SUCCESS) {
        result = drv.cuMemAddressFree(held.address, held.bytes);
    }
    held.bytes = 0;
    return held.handle != 0 && result == CUDA_SUCCESS ? release_held() : result;
}

/** Dies here, unless the driver survives. */
static void do_garbage(const char *call) {
    const CUmemGenericAllocationHandle garbage = 0x1234;
    CUmemAllocationProp properties;
    uint64_t written = 0;
    CUdeviceptr address = 0;
    CUresult result = use_device(0);
    link_expect_crash();
    if (result == CUDA_SUCCESS && strcmp(call, "cuMemMap") == 0) {
        result = drv.cuMemAddressReserve(&address, (size_t)2 << 20, 0, 0, 0);
        if (result == CUDA_SUCCESS) {
            result = drv.cuMemMap(address, (size_t)2 << 20, 0, garbage, 0);
        }
    } else if (result == CUDA_SUCCESS && strcmp(call, "cuMemExportToShareableHandle") == 0) {
        result = drv.cuMemExportToShareableHandle(
            &written, garbage, (CUmemAllocationHandleType)os_shareable_handle_type, 0);
    } else if (result == CUDA_SUCCESS) {
        result = drv.cuMemGetAllocationPropertiesFromHandle(&properties, garbage);
    }
    answer_result(result);
}

/** One command. @return false when it is not known */
static bool obey(const char *line, os_handle handle) {
    char call[64];
    int device;
    size_t bytes;
    uint32_t word;
    if (strcmp(line, "open") == 0) {
        answer_result((CUresult)open_driver());
    } else if (sscanf(line, "context %d", &device) == 1) {
        answer_result(use_device(device));
    } else if (sscanf(line, "create %d %zu %u", &device, &bytes, &word) == 3) {
        do_create(device, bytes, word);
    } else if (sscanf(line, "import %d %zu", &device, &bytes) == 2) {
        do_import(device, bytes, handle);
    } else if (strcmp(line, "read") == 0) {
        answer_word(held.address);
    } else if (sscanf(line, "write %u", &word) == 1) {
        answer_result(write_word(held.address, word));
    } else if (strcmp(line, "release") == 0) {
        answer_result(release_held());
    } else if (strcmp(line, "close") == 0) {
        answer_result(close_held());
    } else if (sscanf(line, "garbage %63s", call) == 1) {
        do_garbage(call);
    } else {
        return obey_export(line) || obey_order(line, handle);
    }
    return true;
}

int main(int argc, char **argv) {
    char line[MESSAGE_BYTES];
    os_handle handle;
    if (!link_open(argc, argv)) {
        return 1;
    }
    while (link_receive(line, &handle)) {
        const bool known = obey(line, handle);
        os_handle_close(&handle);
        if (!known) {
            fprintf(stderr, "conformance_helper: unknown command \"%s\"\n", line);
            return 2;
        }
    }
    return 0;
}
