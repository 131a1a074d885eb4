/* SPDX-License-Identifier: MIT */
/** @file Many tensors in one buffer, by manifest. */
#include <stdio.h>
#include <stdlib.h>

#include "bench_row.h"
#include "partner_manifest.h"
#include "report.h"

#define TENSORS 1000u
#define ROUNDS  100u

typedef struct model {
    gpuipc_range ranges[TENSORS];
    char names[TENSORS][MANIFEST_NAME_MAX];
    uint8_t bytes[GPUIPC_MESSAGE_BYTES_MAX];
} model;

static model *describe(uint32_t count, uint64_t bytes) {
    model *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        bench_fail("no memory for %u tensors", (unsigned)count);
    }
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t each = bytes / count / 256 * 256;
        manifest_name(self->names[i], i);
        self->ranges[i] = (gpuipc_range){.name = self->names[i],
                                         .offset = each * i,
                                         .bytes = each,
                                         .element_type = 1,
                                         .dimensions = 2,
                                         .shape = {16, (int64_t)(each / 64)},
                                         .strides = {(int64_t)(each / 64), 1}};
    }
    return self;
}

static void fill(const bench_pair *pair, gpuipc_buffer *buffer, const model *of, uint32_t count,
                 uint32_t value) {
    const CUdeviceptr address = pair_info(buffer).address;
    bench_enter((int)pair->owner);
    for (uint32_t i = 0; i < count; i++) {
        bench_check_cuda(bench_driver.cuMemsetD32(address + of->ranges[i].offset, value + i,
                                                  of->ranges[i].bytes / sizeof(value)),
                         "filling");
    }
    bench_check_cuda(bench_driver.cuCtxSynchronize(), "filling");
}

/* Nanoseconds from the tensors' list until the other process has it and the memory. */
static uint64_t send(bench_pair *pair, gpuipc_buffer *buffer, model *of, uint32_t count,
                     uint32_t value, uint32_t device, uint64_t *out_descriptors) {
    uint64_t answer[2];
    size_t size = 0;
    pair_tell(pair->partner, "manifest %u %u %u", (unsigned)count, (unsigned)device,
              (unsigned)value);
    pair_hear_ready(pair->partner);
    const uint64_t begin = os_clock_ns();
    bench_check(gpuipc_manifest_write(of->ranges, count, of->bytes, sizeof(of->bytes), &size),
                "gpuipc_manifest_write");
    const gpuipc_outgoing message = {.struct_size = sizeof(message),
                                     .bytes = of->bytes,
                                     .bytes_size = size,
                                     .buffers = &buffer,
                                     .buffer_count = 1,
                                     .flags = GPUIPC_SEND_READY};
    bench_check(gpuipc_connection_send(pair->connection, &message, PATIENCE_MS), "sending");
    pair_hear(pair->partner, answer, 2);
    *out_descriptors = answer[1];
    return answer[0] - begin;
}

void row_manifest(bench_pair *pair, const bench_row *row) {
    samples each = {NULL, 0, 0};
    const uint32_t count = pair->is_quick ? 100 : TENSORS;
    const uint32_t device = pair_device(pair, row->is_peer);
    const uint32_t rounds = pair_rounds(pair, ROUNDS);
    const uint64_t bytes = pair_bytes(pair, row->bytes);
    uint64_t descriptors = 0;
    model *of = describe(count, bytes);
    for (uint32_t i = 0; i < rounds + 1; i++) { /* the first one warms up */
        gpuipc_buffer *buffer = pair_buffer(pair, bytes, device, i);
        fill(pair, buffer, of, count, i * TENSORS);
        const uint64_t took = send(pair, buffer, of, count, i * TENSORS, device, &descriptors);
        bench_check(gpuipc_buffer_release(buffer), "releasing");
        if (i > 0) {
            samples_add(&each, (double)took / 1000 / count);
        }
    }
    bench_result found = result_make(pair, row->name, NULL, "us");
    found.bytes = bytes;
    found.gpuipc = samples_figure(&each);
    result_check_most(&found, "us for each tensor", found.gpuipc.median, row->target);
    result_note(&found, "tensors", count);
    result_note(&found, "descriptors of the opener for all of them", (double)descriptors);
    report(&found);
    samples_clear(&each);
    free(of);
}
