/* SPDX-License-Identifier: MIT */
/**
 * @file The page table: which device addresses are reserved, and which stand for what memory. An
 * address of it is never one of the host, so host code that follows it faults, as it would with
 * memory of a GPU. The driver's lock is held in every call.
 */
#ifndef GPUIPC_EMULATED_ADDRESS_SPACE_H
#define GPUIPC_EMULATED_ADDRESS_SPACE_H

#include "allocation.h"

/** A range of addresses. */
typedef struct range {
    CUdeviceptr base;
    uint64_t size;
} range;

/** A range that cuMemAddressReserve gave out, or that other memory lies in. */
typedef struct reservation {
    range at;
    bool is_plain;  /**< not of cuMemAddressReserve */
    uint64_t epoch; /**< its own, which no mapping has either */
} reservation;

typedef enum mapping_kind {
    MAPPING_VIRTUAL, /**< of cuMemMap */
    MAPPING_PLAIN,   /**< of cuMemAlloc */
    MAPPING_OPENED,  /**< of cuIpcOpenMemHandle */
    MAPPING_POOLED   /**< of a memory pool */
} mapping_kind;

struct pool_block;

/** A range that stands for memory. */
typedef struct mapping {
    range at;
    mapping_kind kind;
    allocation *memory;                  /**< one reference */
    uint64_t offset;                     /**< where in the memory it starts */
    struct context *owner;               /**< of a MAPPING_PLAIN or MAPPING_OPENED, else NULL */
    uint64_t opens;                      /**< of a MAPPING_OPENED: how often it was opened */
    struct pool_block *block;            /**< of a MAPPING_POOLED */
    bool syncs;                          /**< CU_POINTER_ATTRIBUTE_SYNC_MEMOPS */
    uint8_t access[MACHINE_DEVICES_MAX]; /**< CUmemAccess_flags of each ordinal */
    uint64_t epoch[MACHINE_DEVICES_MAX]; /**< changes with the access; no two mappings share one */
} mapping;

/** Whether this is an address of devices and not of the host. */
bool address_is_device(CUdeviceptr address);

/** Reserves @p size bytes, a multiple of the granule. @param hint taken for ranges of 28 MiB and more when it is free */
CUresult address_reserve(uint64_t size, uint64_t alignment, CUdeviceptr hint, reservation **out);
/** The reservation that contains an address, or NULL. */
reservation *address_reservation(CUdeviceptr address);
/** The reservation that contains an address, or else the next one above it, or NULL. */
reservation *address_reservation_from(CUdeviceptr address);
void address_unreserve(reservation *reserved);

/** Lets a free range inside a reservation stand for memory; takes a reference of its own. */
CUresult address_map(CUdeviceptr base, uint64_t size, allocation *memory, mapping **out);
/** The mapping that contains an address, or NULL. */
mapping *address_mapping(CUdeviceptr address);
/** The mapping that contains an address, or else the next one above it, or NULL. */
mapping *address_mapping_from(CUdeviceptr address);
/** Gives a device access; its epoch stays if that is what it had. */
void address_set_access(mapping *mapped, int ordinal, CUmemAccess_flags flags);
/** Whether any mapping reaches into a range. */
bool address_is_mapped(CUdeviceptr base, uint64_t size);
void address_unmap(mapping *mapped);

/** The first mapping that a context owns, or NULL. */
mapping *address_owned_by(const struct context *owner);

/** Whether a range consists of whole mappings of cuMemMap, without a gap: each starts where the one
 *  before it ends. */
bool address_is_whole_mappings(CUdeviceptr base, uint64_t size);

#endif
