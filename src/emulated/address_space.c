/* SPDX-License-Identifier: MIT */
/** @file See address_space.h. */
#include "address_space.h"

#include <stdlib.h>
#include <string.h>

#include "host_room.h"

/* Positive as a signed number, and with bit 47 set but not those above: such an address is not
 * canonical on x86-64 with four-level page tables and is not mapped unless asked for with five, so
 * following it faults (Intel SDM volume 1, 3.3.7.1; Linux Documentation/arch/x86/x86_64/mm.rst). */
#define SPACE_BEGIN UINT64_C(0x0000900000000000)
#define SPACE_END   UINT64_C(0x0000f00000000000)

/* Ranges that do not overlap, in the order of their addresses. Each item is a struct that starts
 * with its range. */
typedef struct range_list {
    range **item;
    size_t count;
    size_t capacity;
} range_list;

static range_list reservations;
static range_list mappings;
/* Where the search for free addresses starts: those given back last are used last, so that a stale
 * pointer faults for as long as possible. */
static CUdeviceptr next_address = SPACE_BEGIN;
static CUdeviceptr freed_address; /* the base of the small range that was freed last */
static uint64_t last_epoch;

static uint64_t end_of(const range *at) {
    return at->base + at->size;
}

/* The first item that ends behind an address. */
static size_t position_of(const range_list *list, CUdeviceptr address) {
    size_t low = 0;
    size_t high = list->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (end_of(list->item[middle]) <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static range *list_find(const range_list *list, CUdeviceptr address) {
    size_t position = position_of(list, address);
    if (position == list->count || list->item[position]->base > address) {
        return NULL;
    }
    return list->item[position];
}

static bool list_overlaps(const range_list *list, CUdeviceptr base, uint64_t size) {
    size_t position = position_of(list, base);
    return position < list->count && list->item[position]->base < base + size;
}

static bool list_insert(range_list *list, range *item) {
    if (list->count == list->capacity) {
        size_t capacity = list->capacity == 0 ? 64 : list->capacity * 2;
        range **grown = realloc(list->item, capacity * sizeof(*grown));
        if (grown == NULL) {
            return false;
        }
        list->item = grown;
        list->capacity = capacity;
    }
    size_t position = position_of(list, item->base);
    memmove(&list->item[position + 1], &list->item[position],
            (list->count - position) * sizeof(*list->item));
    list->item[position] = item;
    list->count++;
    return true;
}

static void list_remove(range_list *list, const range *item) {
    size_t position = position_of(list, item->base);
    list->count--;
    memmove(&list->item[position], &list->item[position + 1],
            (list->count - position) * sizeof(*list->item));
}

static bool is_in_space(CUdeviceptr address) {
    return address >= SPACE_BEGIN && address < SPACE_END;
}

bool address_is_device(CUdeviceptr address) {
    return is_in_space(address) || address_reservation(address) != NULL;
}

/* Measured on an H200 (driver 580): smaller ranges have addresses of their own, where a hint counts only if it is the base of
 * a range that was freed. A larger range lies at the hint, rounded up, if that is free. */
#define HINTED_BYTES                                                                               \
    (UINT64_C(28) << 20) /* 24 MiB are fewer; between the two it was not measured */
#define HINTED_UNIT (UINT64_C(32) << 20)

/* Takes the addresses that a caller would like, also among those of the host, where the host's memory must keep
 * out of them then. */
static bool take_wanted(CUdeviceptr base, uint64_t size) {
    if (is_in_space(base)) {
        return size <= SPACE_END - base && !list_overlaps(&reservations, base, size);
    }
    return size <= SPACE_BEGIN && base < SPACE_BEGIN - size && host_room_take(base, size);
}

/* @return the base of the range that a hint is for and that is free, or 0 */
static CUdeviceptr take_hint(CUdeviceptr hint, uint64_t size, uint64_t alignment) {
    CUdeviceptr base = hint;
    if (size < HINTED_BYTES) {
        base = hint == freed_address && hint % alignment == 0 ? hint : 0;
    } else {
        const uint64_t unit = alignment > HINTED_UNIT ? alignment : HINTED_UNIT;
        base = hint < SPACE_END ? (hint + unit - 1) / unit * unit : 0;
    }
    return base != 0 && take_wanted(base, size) ? base : 0;
}

static void give_back(const range *at) {
    if (!is_in_space(at->base)) {
        host_room_give(at->base, at->size);
    }
}

/* The lowest free range from @p from on, or 0. */
static CUdeviceptr find_free(CUdeviceptr from, uint64_t size, uint64_t alignment) {
    CUdeviceptr base = from;
    for (;;) {
        base = (base + alignment - 1) / alignment * alignment;
        if (base >= SPACE_END || size > SPACE_END - base) {
            return 0;
        }
        size_t position = position_of(&reservations, base);
        if (position == reservations.count || reservations.item[position]->base >= base + size) {
            return base;
        }
        base = end_of(reservations.item[position]);
    }
}

CUresult address_reserve(uint64_t size, uint64_t alignment, CUdeviceptr hint, reservation **out) {
    /* Larger than the space altogether; also keeps the sums above from overflowing. */
    if (size > SPACE_END - SPACE_BEGIN || alignment > SPACE_END) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (alignment < STATE_GRANULE) {
        alignment = STATE_GRANULE;
    }
    CUdeviceptr base = take_hint(hint, size, alignment);
    if (base == 0) {
        base = find_free(next_address, size, alignment);
        if (base == 0) {
            base = find_free(SPACE_BEGIN, size, alignment);
        }
        if (base == 0) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        /* a gap, so that what reaches beyond its end does not find a neighbour there */
        next_address = base + size + STATE_GRANULE;
    }
    reservation *reserved = calloc(1, sizeof(*reserved));
    if (reserved != NULL) {
        reserved->at = (range){base, size};
        reserved->epoch = ++last_epoch;
    }
    if (reserved == NULL || !list_insert(&reservations, &reserved->at)) {
        give_back(&(range){base, size});
        free(reserved);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = reserved;
    return CUDA_SUCCESS;
}

reservation *address_reservation(CUdeviceptr address) {
    return (reservation *)(void *)list_find(&reservations, address);
}

reservation *address_reservation_from(CUdeviceptr address) {
    const size_t position = position_of(&reservations, address);
    return position == reservations.count ? NULL
                                          : (reservation *)(void *)reservations.item[position];
}

void address_unreserve(reservation *reserved) {
    list_remove(&reservations, &reserved->at);
    give_back(&reserved->at);
    freed_address = reserved->at.size < HINTED_BYTES ? reserved->at.base : freed_address;
    free(reserved);
}

CUresult address_map(CUdeviceptr base, uint64_t size, allocation *memory, mapping **out) {
    mapping *mapped = calloc(1, sizeof(*mapped));
    if (mapped == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    mapped->at = (range){base, size};
    mapped->memory = memory;
    last_epoch++;
    for (size_t i = 0; i < MACHINE_DEVICES_MAX; i++) {
        mapped->epoch[i] = last_epoch;
    }
    if (!list_insert(&mappings, &mapped->at)) {
        free(mapped);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    allocation_retain(memory);
    *out = mapped;
    return CUDA_SUCCESS;
}

mapping *address_mapping(CUdeviceptr address) {
    return (mapping *)(void *)list_find(&mappings, address);
}

mapping *address_mapping_from(CUdeviceptr address) {
    const size_t position = position_of(&mappings, address);
    return position == mappings.count ? NULL : (mapping *)(void *)mappings.item[position];
}

void address_set_access(mapping *mapped, int ordinal, CUmemAccess_flags flags) {
    if (mapped->access[ordinal] != (uint8_t)flags) {
        mapped->access[ordinal] = (uint8_t)flags;
        mapped->epoch[ordinal] = ++last_epoch;
    }
}

bool address_is_mapped(CUdeviceptr base, uint64_t size) {
    return list_overlaps(&mappings, base, size);
}

void address_unmap(mapping *mapped) {
    list_remove(&mappings, &mapped->at);
    allocation_release(mapped->memory);
    free(mapped);
}

mapping *address_owned_by(const struct context *owner) {
    for (size_t i = 0; i < mappings.count; i++) {
        mapping *mapped = (mapping *)(void *)mappings.item[i];
        if (mapped->owner == owner) {
            return mapped;
        }
    }
    return NULL;
}

bool address_is_whole_mappings(CUdeviceptr base, uint64_t size) {
    uint64_t done = 0;
    while (done < size) {
        const mapping *next = address_mapping(base + done);
        if (next == NULL || next->kind != MAPPING_VIRTUAL || next->at.base != base + done ||
            next->at.size > size - done) {
            return false;
        }
        done += next->at.size;
    }
    return size > 0;
}
