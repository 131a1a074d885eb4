/* SPDX-License-Identifier: MIT */
/** @file See allocation.h. */
#include "allocation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/little_endian.h"
#include "handle_table.h"
#include "live.h"

/* The header takes a page, so that the bytes behind it stay aligned to one.
 *   0  magic (8 bytes)   8  version (4)   12  size of the header (4)   16  size of the memory (8)
 *  24  UUID of the owner (16)            40  random id (16)            56  ways (4)
 * Numbers are little-endian. */
#define HEADER_BYTES   4096
#define HEADER_MAGIC   UINT64_C(0x6d656d5563706967) /* "gipcUmem" */
#define HEADER_VERSION 1
#define PAGE_BYTES     4096

/* More than any host has. */
#define HOST_BYTES_MAX (UINT64_C(1) << 39)

typedef struct header {
    uint64_t size;
    uint8_t owner[16];
    uint8_t id[16];
    int ways;
} header;

static void header_encode(const header *from, uint8_t *at) {
    little_endian_put(at, 8, HEADER_MAGIC);
    little_endian_put(at + 8, 4, HEADER_VERSION);
    little_endian_put(at + 12, 4, HEADER_BYTES);
    little_endian_put(at + 16, 8, from->size);
    memcpy(at + 24, from->owner, 16);
    memcpy(at + 40, from->id, 16);
    little_endian_put(at + 56, 4, (uint64_t)from->ways);
}

/* @param total the size of the memory that has the header */
static bool header_decode(const uint8_t *mapped, uint64_t total, header *out) {
    uint8_t copy[64]; /* others can write there meanwhile */
    memcpy(copy, mapped, sizeof(copy));
    if (little_endian_get(copy, 8) != HEADER_MAGIC ||
        little_endian_get(copy + 8, 4) != HEADER_VERSION ||
        little_endian_get(copy + 12, 4) != HEADER_BYTES) {
        return false;
    }
    out->size = little_endian_get(copy + 16, 8);
    memcpy(out->owner, copy + 24, 16);
    memcpy(out->id, copy + 40, 16);
    out->ways = (int)little_endian_get(copy + 56, 4);
    /* A section's size is rounded up to whole pages. */
    return out->size > 0 && out->ways != 0 && out->size <= total - HEADER_BYTES &&
           total - HEADER_BYTES - out->size < PAGE_BYTES;
}

static allocation *allocation_new(uint64_t size) {
    allocation *memory = calloc(1, sizeof(*memory));
    if (memory == NULL) {
        return NULL;
    }
    memory->references = 1;
    memory->memory = OS_HANDLE_NONE;
    memory->size = size;
    return memory;
}

static gpuipc_status map_bytes(allocation *memory, os_handle handle) {
    gpuipc_status status =
        os_memory_map(handle, HEADER_BYTES + memory->size, true, &memory->mapped);
    if (status == GPUIPC_OK) {
        memory->bytes = (uint8_t *)memory->mapped + HEADER_BYTES;
    }
    return status;
}

/* The owner as this process numbers devices, and as the machine does. */
static void set_owner(allocation *memory, const uint8_t owner[16]) {
    memory->device = ALLOCATION_DEVICE_HIDDEN;
    memory->physical = -1;
    for (unsigned i = 0; i < driver.computer.devices; i++) {
        uint8_t uuid[16];
        machine_uuid(&driver.computer, i, false, uuid);
        if (memcmp(uuid, owner, sizeof(uuid)) == 0) {
            memory->physical = (int)i;
        }
    }
    for (unsigned ordinal = 0; ordinal < driver.device_count; ordinal++) {
        if ((int)driver.devices[ordinal].physical == memory->physical) {
            memory->device = (int)ordinal;
        }
    }
}

static CUresult make_shared(allocation *memory, const header *about) {
    os_handle handle;
    gpuipc_status status =
        os_memory_create("gpuipc-emulated-gpu", HEADER_BYTES + memory->size, &handle);
    if (status != GPUIPC_OK) {
        return state_result(status);
    }
    status = map_bytes(memory, handle);
    if (status != GPUIPC_OK) {
        os_handle_close(&handle);
        return state_result(status);
    }
    header_encode(about, memory->mapped);
    if (about->ways == 0) {
        os_handle_close(&handle); /* the mapping keeps it alive */
    }
    memory->memory = handle;
    return CUDA_SUCCESS;
}

/* @param owner NULL: the host */
static CUresult create(const device *owner, uint64_t size, int ways, allocation **out) {
    header about = {.size = size, .ways = ways};
    gpuipc_status status = os_random(about.id, sizeof(about.id));
    if (status != GPUIPC_OK) {
        return state_result(status);
    }
    allocation *memory = allocation_new(size);
    if (memory == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (owner != NULL) {
        machine_uuid(&driver.computer, owner->physical, false, about.owner);
    }
    CUresult result = make_shared(memory, &about);
    if (result != CUDA_SUCCESS) {
        free(memory);
        return result;
    }
    memcpy(memory->id, about.id, sizeof(memory->id));
    set_owner(memory, about.owner);
    memory->handle_types = ways & ALLOCATION_HANDLE_TYPES;
    *out = memory;
    return CUDA_SUCCESS;
}

CUresult allocation_create(int ordinal, uint64_t size, int ways, allocation **out) {
    device *owner = &driver.devices[ordinal];
    if (size > driver.computer.memory_bytes - owner->used_bytes) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    const CUresult result = create(owner, size, ways, out);
    if (result == CUDA_SUCCESS) {
        (*out)->accounted = size;
        owner->used_bytes += size;
    }
    return result;
}

CUresult allocation_create_host(uint64_t size, allocation **out) {
    if (size > HOST_BYTES_MAX) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    const CUresult result = create(NULL, size, 0, out);
    if (result == CUDA_SUCCESS) {
        (*out)->is_host = true;
        (*out)->device = ALLOCATION_DEVICE_HOST;
    }
    return result;
}

CUresult allocation_create_room(int ordinal, uint64_t size, int way, allocation **out) {
    return create(&driver.devices[ordinal], size, way, out);
}

/* What the header of a handle says; the handle stays the caller's. */
static CUresult read_header(os_handle handle, int way, header *out) {
    uint64_t total;
    void *mapped;
    if (os_memory_inspect(handle, &total) != GPUIPC_OK || total <= HEADER_BYTES) {
        return CUDA_ERROR_UNKNOWN;
    }
    const gpuipc_status status = os_memory_map(handle, HEADER_BYTES, false, &mapped);
    if (status != GPUIPC_OK) {
        return status == GPUIPC_ERR_OUT_OF_MEMORY ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_UNKNOWN;
    }
    bool is_ours = header_decode(mapped, total, out);
    os_memory_unmap(mapped, HEADER_BYTES);
    if (!is_ours) {
        return CUDA_ERROR_UNKNOWN;
    }
    /* Measured with a pool's descriptor given for memory's, and the other way round. */
    return (out->ways & way) != 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

/* @param id what the header must have, or NULL */
static CUresult import(os_handle handle, int way, const uint8_t *id, allocation **out) {
    header about;
    CUresult result = read_header(handle, way, &about);
    if (result == CUDA_SUCCESS && id != NULL && memcmp(id, about.id, sizeof(about.id)) != 0) {
        result = CUDA_ERROR_UNKNOWN;
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    allocation *memory = allocation_new(about.size);
    if (memory == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    const gpuipc_status status = map_bytes(memory, handle);
    if (status != GPUIPC_OK) {
        free(memory);
        /* A handle may carry less rights than its memory has: then it is not what was exported. */
        return status == GPUIPC_ERR_OUT_OF_MEMORY ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_UNKNOWN;
    }
    memcpy(memory->id, about.id, sizeof(memory->id));
    set_owner(memory, about.owner);
    *out = memory;
    return CUDA_SUCCESS;
}

CUresult allocation_import_as(intptr_t native, int way, allocation **out) {
    const os_handle given = {native}; /* a mapping needs it only while it is made */
    return import(given, way, NULL, out);
}

CUresult allocation_import(intptr_t native, allocation **out) {
    return allocation_import_as(native, os_shareable_handle_type, out);
}

static CUresult open_failed(gpuipc_status status) {
    switch (status) {
    case GPUIPC_ERR_TOO_MANY_HANDLES:
        return CUDA_ERROR_OPERATING_SYSTEM;
    case GPUIPC_ERR_OUT_OF_MEMORY:
        return CUDA_ERROR_OUT_OF_MEMORY;
    case GPUIPC_ERR_PEER_CLOSED:
        return CUDA_ERROR_INVALID_HANDLE;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult allocation_open(const shared_handle *which, int way, allocation **out) {
    os_handle handle;
    const gpuipc_status status = shared_name_open(which->name, &handle);
    if (status != GPUIPC_OK) {
        return open_failed(status);
    }
    const CUresult result = import(handle, way, which->id, out);
    os_handle_close(&handle);
    return result == CUDA_ERROR_UNKNOWN || result == CUDA_ERROR_NOT_SUPPORTED
               ? CUDA_ERROR_INVALID_VALUE
               : result;
}

void allocation_describe(const allocation *memory, shared_handle_kind kind, shared_handle *out) {
    memset(out, 0, sizeof(*out));
    out->kind = kind;
    out->name = shared_name_make(memory->memory);
    out->bytes = memory->size;
    memcpy(out->id, memory->id, sizeof(out->id));
}

void allocation_retain(allocation *memory) {
    memory->references++;
}

void allocation_release(allocation *memory) {
    if (memory == NULL || --memory->references > 0) {
        return;
    }
    if (memory->handle != 0) {
        handle_remove(memory->handle);
    }
    if (memory->accounted > 0) {
        driver.devices[memory->device].used_bytes -= memory->accounted;
    }
    os_memory_unmap(memory->mapped, HEADER_BYTES + memory->size);
    os_handle_close(&memory->memory);
    free(memory);
}

CUresult allocation_handle_retain(allocation *memory) {
    if (memory->handle == 0) {
        memory->handle = handle_add(HANDLE_MEMORY, memory);
        if (memory->handle == 0) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    if (memory->handle_count == 0) {
        allocation_retain(memory);
    }
    memory->handle_count++;
    driver.live.allocations++;
    return CUDA_SUCCESS;
}

void allocation_handle_release(allocation *memory) {
    driver.live.allocations--;
    if (--memory->handle_count == 0) {
        allocation_release(memory);
    }
}

CUresult allocation_find(CUmemGenericAllocationHandle handle, const char *call, allocation **out) {
    allocation *memory = handle_find(HANDLE_MEMORY, handle);
    if (handle != 0 && !handle_was_given(HANDLE_MEMORY, handle)) {
        /* Measured: here the real driver crashes, so a program must not get past it. */
        fprintf(stderr,
                "gpuipc emulated driver: %s got the handle 0x%llx, which no call gave out\n", call,
                handle);
        live_report_cancel();
        abort();
    }
    if (memory == NULL || memory->handle_count == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *out = memory;
    return CUDA_SUCCESS;
}
