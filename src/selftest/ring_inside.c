/* SPDX-License-Identifier: MIT */
/** @file See ring_inside.h. */
#include "ring_inside.h"

#include <inttypes.h>
#include <stdio.h>

#include "pattern.h"
#include "program.h"
#include "report.h"
#include "watchdog.h"

#define BYTES_GPU      (UINT64_C(64) << 20)
#define BYTES_EMULATED (UINT64_C(2) << 20)

uint64_t ring_bytes(const options *wanted, bool is_emulated) {
    return wanted->size_count > 0 ? wanted->sizes[0] : is_emulated ? BYTES_EMULATED : BYTES_GPU;
}

typedef struct step {
    gpuipc_context *context;
    gpuipc_transport transport;
    uint32_t writer;
    uint32_t owner;
    uint64_t bytes;
    gpuipc_buffer *target; /* the owner's memory, which the writer reaches */
    gpuipc_buffer *source; /* the writer's own */
} step;

static gpuipc_status make(step *self) {
    gpuipc_buffer_config config = {.struct_size = sizeof(config),
                                   .device = GPUIPC_DEVICE(self->owner),
                                   .bytes = self->bytes,
                                   .transport = self->transport};
    gpuipc_status status = gpuipc_buffer_create(self->context, &config, &self->target);
    if (status != GPUIPC_OK) {
        return status;
    }
    config.device = GPUIPC_DEVICE(self->writer);
    status = gpuipc_buffer_create(self->context, &config, &self->source);
    return status != GPUIPC_OK
               ? status
               : gpuipc_buffer_set_access(self->target, self->writer, GPUIPC_ACCESS_READ_WRITE);
}

static gpuipc_status write_and_verify(const step *self, pattern_result *out_result) {
    uint32_t word;
    gpuipc_status status = pattern_fill(self->target, self->bytes, pattern_consumer);
    if (status == GPUIPC_OK) {
        status = pattern_fill(self->source, self->bytes, pattern_producer);
    }
    if (status == GPUIPC_OK) {
        status = gpuipc_buffer_copy_async(self->target, 0, self->source, 0, self->bytes, NULL);
    }
    /* reading waits for the copy: both are in the default stream of the target's device */
    if (status == GPUIPC_OK) {
        status = gpuipc_buffer_read(self->target, 0, &word, sizeof(word));
    }
    return status != GPUIPC_OK
               ? status
               : pattern_verify(self->target, self->bytes, pattern_producer, out_result);
}

static void run_step(report *into, step *self, tally *total) {
    char line[ROLE_LINE_MAX];
    char id[64];
    pattern_result result = {0};
    const char *name = gpuipc_transport_name(self->transport);
    gpuipc_transport_pair pair = {
        .struct_size = sizeof(pair), .owner = self->owner, .user = self->writer};
    gpuipc_transport_info info = {.struct_size = sizeof(info)};
    (void)snprintf(id, sizeof(id), "inside/%s/%u-%u", name, self->writer, self->owner);
    gpuipc_status status = gpuipc_transport_query(self->context, self->transport, &pair, &info);
    if (status == GPUIPC_OK && !info.available) {
        (void)snprintf(line, sizeof(line), "inside one program over %s: device %u -> device %u: %s",
                       name, self->writer, self->owner, info.sentence);
        report_add_check(into, id, REPORT_SKIP, line);
        total->skipped++;
        return;
    }
    if (status == GPUIPC_OK && (status = make(self)) == GPUIPC_OK) {
        status = write_and_verify(self, &result);
    }
    if (status == GPUIPC_OK && result.wrong == 0) {
        (void)snprintf(line, sizeof(line),
                       "inside one program over %s: device %u wrote all %" PRIu64
                       " words into memory of device %u",
                       name, self->writer, self->bytes / sizeof(uint32_t), self->owner);
        report_add_check(into, id, REPORT_PASS, line);
        total->passed++;
    } else if (status == GPUIPC_OK) {
        (void)snprintf(line, sizeof(line),
                       "inside one program over %s: device %u -> device %u: %" PRIu64
                       " words are wrong",
                       name, self->writer, self->owner, result.wrong);
        report_add_check(into, id, REPORT_FAIL, line);
        total->failed++;
    } else {
        (void)snprintf(line, sizeof(line), "inside one program over %s: device %u -> device %u: %s",
                       name, self->writer, self->owner, gpuipc_error_text());
        report_add_check(into, id, REPORT_FAIL, line);
        total->failed++;
    }
    (void)gpuipc_buffer_release(self->source);
    (void)gpuipc_buffer_release(self->target);
}

void ring_inside(const options *wanted, const session *at, tally *total) {
    static const gpuipc_transport ways[] = {GPUIPC_TRANSPORT_P2P, GPUIPC_TRANSPORT_VMM};
    uint32_t count = at->info.device_count;
    for (size_t way = 0; way < sizeof(ways) / sizeof(*ways) && count > 1; way++) {
        for (uint32_t i = 0; i < count && !program_is_interrupted(); i++) {
            step one = {.context = at->context,
                        .transport = ways[way],
                        .writer = i,
                        .owner = (i + 1) % count,
                        .bytes = ring_bytes(wanted, at->info.is_emulated)};
            report_progress(
                wanted->report,
                "a ring inside one program over %s, device %u -> device %u (%zu of %zu)",
                gpuipc_transport_name(ways[way]), one.writer, one.owner, way * count + i + 1,
                count * sizeof(ways) / sizeof(*ways));
            watchdog_expect("a ring inside one program", wanted->timeout_ms);
            run_step(wanted->report, &one, total);
        }
    }
    watchdog_rest();
}
