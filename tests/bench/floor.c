/* SPDX-License-Identifier: MIT */
/** @file See floor.h. */
#include "floor.h"

#include <stdlib.h>

static void *allocate(size_t count, size_t size) {
    void *made = calloc(count, size);
    if (made == NULL) {
        bench_fail("no memory for %zu of %zu bytes", count, size);
    }
    return made;
}

static floor_memory *allocate_memory(const floor_plan *plan) {
    floor_memory *memory = allocate(plan->count, sizeof(*memory));
    for (uint32_t i = 0; i < plan->count; i++) {
        floor_memory *of = &memory[i];
        of->segment_bytes = plan->segment_bytes == 0 ? plan->bytes : plan->segment_bytes;
        of->segment_count = (size_t)((plan->bytes + of->segment_bytes - 1) / of->segment_bytes);
        of->segments = allocate(of->segment_count, sizeof(*of->segments));
    }
    return memory;
}

static CUmemAccessDesc read_write(int device) {
    return (CUmemAccessDesc){.location = {CU_MEM_LOCATION_TYPE_DEVICE, device},
                             .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
}

static void map(floor_memory *memory, int device) {
    const driver *drv = &bench_driver;
    const size_t bytes = memory->segment_bytes * memory->segment_count;
    const CUmemAccessDesc access = read_write(device);
    bench_check_cuda(drv->cuMemAddressReserve(&memory->address, bytes, 0, 0, 0), "reserving");
    for (size_t i = 0; i < memory->segment_count; i++) {
        bench_check_cuda(drv->cuMemMap(memory->address + i * memory->segment_bytes,
                                       memory->segment_bytes, 0, memory->segments[i], 0),
                         "mapping");
    }
    bench_check_cuda(drv->cuMemSetAccess(memory->address, bytes, &access, 1), "access");
}

floor_memory *floor_make(const floor_plan *plan, int device) {
    const void *attributes = NULL;
    bench_check(os_handle_attributes(&attributes), "the rights of handles");
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .requestedHandleTypes =
                                          (CUmemAllocationHandleType)os_shareable_handle_type,
                                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, device},
                                      .win32HandleMetaData = (void *)(uintptr_t)attributes};
    floor_memory *memory = allocate_memory(plan);
    for (uint32_t i = 0; i < plan->count; i++) {
        for (size_t j = 0; j < memory[i].segment_count; j++) {
            bench_check_cuda(
                bench_driver.cuMemCreate(&memory[i].segments[j], memory[i].segment_bytes, &prop, 0),
                "making memory");
        }
        map(&memory[i], device);
    }
    return memory;
}

/* Sends the descriptors and closes them: those that are on their way keep the memory alive. */
static void send_all(courier *by, const int *descriptors, size_t count) {
    courier_send(by, descriptors, count);
    for (size_t i = 0; i < count; i++) {
        courier_close_descriptor(descriptors[i]);
    }
}

floor_times floor_share(courier *by, const floor_memory *memory, uint32_t count) {
    int descriptors[COURIER_HANDLES_MAX];
    size_t waiting = 0;
    floor_times times = {os_clock_ns(), 0, 0};
    for (uint32_t i = 0; i < count; i++) {
        for (size_t j = 0; j < memory[i].segment_count; j++) {
            const uint64_t begin = os_clock_ns();
            bench_check_cuda(bench_driver.cuMemExportToShareableHandle(
                                 &descriptors[waiting], memory[i].segments[j],
                                 (CUmemAllocationHandleType)os_shareable_handle_type, 0),
                             "exporting");
            times.calls_ns += os_clock_ns() - begin;
            if (++waiting == COURIER_HANDLES_MAX) {
                send_all(by, descriptors, waiting);
                waiting = 0;
            }
        }
    }
    if (waiting > 0) {
        send_all(by, descriptors, waiting);
    }
    times.end_ns = os_clock_ns();
    return times;
}

/* Where the next allocation belongs. */
typedef struct place {
    uint32_t memory;
    size_t segment;
} place;

/* Imports one allocation; the last one of a range is followed by the range's mapping. */
static void take(floor_memory *memory, place *at, int descriptor, int device) {
    floor_memory *of = &memory[at->memory];
    bench_check_cuda(bench_driver.cuMemImportFromShareableHandle(
                         &of->segments[at->segment], (void *)(intptr_t)descriptor,
                         (CUmemAllocationHandleType)os_shareable_handle_type),
                     "importing");
    if (++at->segment == of->segment_count) {
        map(of, device);
        at->memory++;
        at->segment = 0;
    }
}

floor_times floor_open(courier *by, const floor_plan *plan, int device, floor_memory **out_memory) {
    floor_memory *memory = allocate_memory(plan);
    const size_t total = plan->count * memory[0].segment_count;
    int *descriptors = allocate(total + COURIER_HANDLES_MAX, sizeof(*descriptors));
    place at = {0, 0};
    size_t done = 0;
    floor_times times = {0, 0, 0};
    while (done < total) {
        const size_t came = courier_receive(by, descriptors + done);
        times.begin_ns = os_clock_ns();
        for (size_t i = 0; i < came && done < total; i++) {
            take(memory, &at, descriptors[done++], device);
        }
        times.end_ns = os_clock_ns();
        times.calls_ns += times.end_ns - times.begin_ns;
    }
    for (size_t i = 0; i < total; i++) {
        courier_close_descriptor(descriptors[i]);
    }
    free(descriptors);
    *out_memory = memory;
    return times;
}

void floor_end(floor_memory *memory, uint32_t count) {
    const driver *drv = &bench_driver;
    for (uint32_t i = 0; i < count; i++) {
        floor_memory *of = &memory[i];
        for (size_t j = 0; j < of->segment_count; j++) {
            bench_check_cuda(
                drv->cuMemUnmap(of->address + j * of->segment_bytes, of->segment_bytes),
                "unmapping");
            bench_check_cuda(drv->cuMemRelease(of->segments[j]), "releasing");
        }
        bench_check_cuda(drv->cuMemAddressFree(of->address, of->segment_bytes * of->segment_count),
                         "freeing");
        free(of->segments);
    }
    free(memory);
}
