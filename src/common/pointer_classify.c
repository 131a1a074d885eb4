/* SPDX-License-Identifier: MIT */
/** @file gpuipc_pointer_classify: what memory is, and what carries it. */
#include <inttypes.h>
#include <stdio.h>

#include "pointer.h"
#include "struct_size.h"

#define OPERATION "gpuipc_pointer_classify"

static void allow(gpuipc_pointer_info *info, gpuipc_transport transport) {
    info->transports |= 1u << transport;
    info->why_not[transport] = GPUIPC_REASON_NONE;
}

static void say(gpuipc_pointer_info *info, const char *sentence) {
    (void)snprintf(info->sentence, sizeof(info->sentence), "%s", sentence);
}

static void judge_vmm(const pointer *first, gpuipc_pointer_info *info) {
    if ((first->handle_types & CU_MEM_HANDLE_TYPE_FABRIC) != 0 && !first->is_host) {
        allow(info, GPUIPC_TRANSPORT_FABRIC);
    }
    if (first->is_host) {
        say(info,
            "memory of cuMemCreate that lies in the host; allocate it on a device to share it");
    } else if ((first->handle_types & os_shareable_handle_type) == 0) {
        info->why_not[GPUIPC_TRANSPORT_VMM] = GPUIPC_REASON_NOT_SHAREABLE_ALLOCATION;
        say(info, "memory of cuMemCreate without this system's handle type, or opened from another "
                  "process, which is sent as a copy; name the type in "
                  "CUmemAllocationProp::requestedHandleTypes, or let its owner send it");
    } else {
        allow(info, GPUIPC_TRANSPORT_VMM);
        say(info, "memory of cuMemCreate that other processes can open");
    }
}

static void judge_plain(const pointer *first, gpuipc_pointer_info *info) {
    allow(info, GPUIPC_TRANSPORT_P2P);
    if (first->is_legacy_capable) {
        allow(info, GPUIPC_TRANSPORT_LEGACY);
        say(info, "memory of cuMemAlloc or cudaMalloc, which travels by legacy IPC");
    } else {
        info->why_not[GPUIPC_TRANSPORT_LEGACY] = GPUIPC_REASON_NOT_SUPPORTED;
        say(info,
            "memory of cuMemAlloc or cudaMalloc, on a machine without legacy IPC; allocate it "
            "with gpuipc_buffer_create to share it without a copy");
    }
}

static void judge_pool(const pointer *first, gpuipc_pointer_info *info) {
    if (os_shareable_handle_type == CU_MEM_HANDLE_TYPE_WIN32) {
        info->why_not[GPUIPC_TRANSPORT_POOL] = GPUIPC_REASON_OPERATING_SYSTEM;
        say(info, "memory of a pool, which Windows shares with no process; allocate it with "
                  "gpuipc_buffer_create to share it without a copy");
    } else if ((first->handle_types & os_shareable_handle_type) == 0) {
        info->why_not[GPUIPC_TRANSPORT_POOL] = GPUIPC_REASON_NOT_SHAREABLE_ALLOCATION;
        say(info, "memory of a pool without this system's handle type (the default pool has none); "
                  "allocate from one made with CUmemPoolProps::handleTypes to share it without a "
                  "copy");
    } else {
        allow(info, GPUIPC_TRANSPORT_POOL);
        say(info, "memory of a pool that other processes can open");
    }
}

static void judge(const pointer *first, gpuipc_pointer_info *info) {
    for (uint32_t i = 1; i < GPUIPC_TRANSPORT_ROOM; i++) {
        info->why_not[i] = GPUIPC_REASON_WRONG_MEMORY;
    }
    if (first->kind != GPUIPC_MEMORY_UNKNOWN && first->kind != GPUIPC_MEMORY_IMPORTED &&
        !first->is_host) {
        allow(info, GPUIPC_TRANSPORT_HOST); /* as a copy */
    }
    switch (first->kind) {
    case GPUIPC_MEMORY_VMM:
        judge_vmm(first, info);
        break;
    case GPUIPC_MEMORY_DEVICE:
        judge_plain(first, info);
        break;
    case GPUIPC_MEMORY_POOL:
        judge_pool(first, info);
        break;
    case GPUIPC_MEMORY_MANAGED:
        say(info, "managed memory, which moves between host and devices and is sent as a copy; "
                  "allocate it with gpuipc_buffer_create to share it without one");
        break;
    case GPUIPC_MEMORY_PINNED:
        say(info, "pinned host memory, which is sent as a copy; GPUIPC_TRANSPORT_HOST makes some "
                  "that processes share");
        break;
    case GPUIPC_MEMORY_IMPORTED:
        say(info, "memory opened from another process, which only its owner can share");
        break;
    default:
        say(info, "nothing that CUDA knows of: unmapped, or ordinary host memory");
        break;
    }
}

/* What the range has beyond its first allocation: mappings side by side, of one kind. */
static gpuipc_status walk(context *ctx, uint64_t address, uint64_t bytes, const pointer *first,
                          gpuipc_pointer_info *info) {
    uint64_t end = first->base + first->bytes;
    pointer next;
    info->allocation_count = 1;
    while (end - address < bytes) {
        gpuipc_status status = pointer_look(ctx, end, &next);
        if (status != GPUIPC_OK) {
            return status;
        }
        if (next.kind != first->kind || next.kind != GPUIPC_MEMORY_VMM ||
            next.device != first->device) {
            return status_fail(GPUIPC_ERR_OUT_OF_RANGE, OPERATION,
                               "the %" PRIu64 " bytes from 0x%" PRIx64
                               " on reach beyond their memory, which ends at 0x%" PRIx64,
                               bytes, address, end);
        }
        if ((next.handle_types & os_shareable_handle_type) == 0) {
            info->transports &= ~(1u << GPUIPC_TRANSPORT_VMM);
            info->why_not[GPUIPC_TRANSPORT_VMM] = GPUIPC_REASON_NOT_SHAREABLE_ALLOCATION;
            say(info, "allocations of cuMemCreate, of which one has not this system's handle type");
        }
        if ((next.handle_types & (int)CU_MEM_HANDLE_TYPE_FABRIC) == 0) {
            info->transports &= ~(1u << GPUIPC_TRANSPORT_FABRIC);
            info->why_not[GPUIPC_TRANSPORT_FABRIC] = GPUIPC_REASON_NOT_SHAREABLE_ALLOCATION;
        }
        end = next.base + next.bytes;
        info->allocation_count++;
    }
    info->allocated_bytes = end - first->base;
    return GPUIPC_OK;
}

static gpuipc_status classify(context *ctx, uint64_t address, uint64_t bytes,
                              gpuipc_pointer_info *out_info) {
    pointer first;
    gpuipc_status status = pointer_look(ctx, address, &first);
    if (status != GPUIPC_OK) {
        return status;
    }
    gpuipc_pointer_info info = {.kind = first.kind, .base = first.base, .device = first.device};
    judge(&first, &info);
    if (first.kind != GPUIPC_MEMORY_UNKNOWN) {
        status = walk(ctx, address, bytes, &first, &info);
    }
    if (status == GPUIPC_OK) {
        struct_size_write(out_info, &info, sizeof(info));
    }
    return status;
}

gpuipc_status gpuipc_pointer_classify(gpuipc_context *handle, uint64_t address, uint64_t bytes,
                                      gpuipc_pointer_info *out_info) {
    context *ctx;
    gpuipc_status status =
        struct_size_check(out_info, STRUCT_SIZE_UP_TO(gpuipc_pointer_info, sentence), OPERATION);
    if (status != GPUIPC_OK) {
        return status;
    }
    if (bytes == 0 || bytes > UINT64_MAX - address) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, OPERATION, "%s",
                           bytes == 0 ? "bytes is 0" : "address and bytes reach beyond 64 bits");
    }
    status = context_acquire(handle, OPERATION, &ctx);
    if (status == GPUIPC_OK) {
        status = classify(ctx, address, bytes, out_info);
        context_unreference(ctx);
    }
    return status;
}
