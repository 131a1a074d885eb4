/* SPDX-License-Identifier: MIT */
/** @file The opener's side of row_manifest.c. */
#include "partner_manifest.h"

#include <stdlib.h>
#include <string.h>

#include "helper.h"
#include "pair.h"
#include "partner.h"
#include "system.h"

/* Every name, and the first word of some tensors. */
static void verify(const gpuipc_range *ranges, size_t count, CUdeviceptr address, uint32_t value,
                   uint32_t device) {
    char name[MANIFEST_NAME_MAX];
    bench_enter((int)device);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t found = ~value;
        manifest_name(name, i);
        if (strcmp(name, ranges[i].name) != 0) {
            bench_fail("tensor %u is called %s", (unsigned)i, ranges[i].name);
        }
        if (i % 61 != 0 && i + 1 != count) {
            continue;
        }
        bench_check_cuda(
            bench_driver.cuMemcpyDtoH(&found, address + ranges[i].offset, sizeof(found)),
            "reading what was opened");
        if (found != value + i) {
            bench_fail("tensor %u has %u in place of %u", (unsigned)i, (unsigned)found,
                       (unsigned)(value + i));
        }
    }
}

/* manifest COUNT DEVICE VALUE: answers when it was read, and how many descriptors more are open */
void partner_manifest(partner *self, const partner_words *words) {
    static uint8_t bytes[GPUIPC_MESSAGE_BYTES_MAX];
    const size_t count = (size_t)partner_number(words, 0);
    const uint32_t device = (uint32_t)partner_number(words, 1);
    uint32_t before = 0;
    uint32_t after = 0;
    size_t came = 0;
    gpuipc_buffer *buffer = NULL;
    gpuipc_incoming message = {.struct_size = sizeof(message),
                               .bytes = bytes,
                               .bytes_capacity = sizeof(bytes),
                               .buffers = &buffer,
                               .buffer_capacity = 1,
                               .device = GPUIPC_DEVICE(device)};
    gpuipc_range *ranges = calloc(count, sizeof(*ranges));
    if (ranges == NULL) {
        bench_fail("no memory for %zu tensors", count);
    }
    (void)system_descriptors(&before);
    helper_say("ready");
    bench_check(gpuipc_connection_receive(self->connection, &message, PATIENCE_MS), "receiving");
    const gpuipc_buffer_info info = pair_info(buffer);
    bench_check(gpuipc_manifest_read(bytes, message.bytes_size, info.bytes, ranges, count, &came),
                "gpuipc_manifest_read");
    const uint64_t end = os_clock_ns();
    (void)system_descriptors(&after);
    if (came != count) {
        bench_fail("%zu tensors in place of %zu", came, count);
    }
    verify(ranges, came, info.address, (uint32_t)partner_number(words, 2), device);
    bench_check(gpuipc_buffer_release(buffer), "releasing");
    free(ranges);
    helper_say("%llu %u", (unsigned long long)end, (unsigned)(after > before ? after - before : 0));
}
