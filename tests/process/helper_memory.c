/* SPDX-License-Identifier: MIT */
/** @file The helper's commands about its buffers; "all" means every one that it holds. */
#include <inttypes.h>
#include <stdio.h>

#include "helper.h"
#include "helper_commands.h"
#include "marks.h"

gpuipc_status helper_release(helper_state *self) {
    gpuipc_status result = GPUIPC_OK;
    while (self->buffer_count > 0) {
        gpuipc_status status = gpuipc_buffer_release(self->buffers[--self->buffer_count]);
        result = result == GPUIPC_OK ? status : result;
    }
    return result;
}

/* create COUNT BYTES SEGMENT_BYTES DEVICE [TRANSPORT] */
static void create(helper_state *self, const char *arguments) {
    size_t count = 0;
    gpuipc_buffer_config config = {.struct_size = sizeof(config)};
    uint32_t device = 0;
    int transport = GPUIPC_TRANSPORT_DEFAULT;
    (void)sscanf(arguments, " %zu %" SCNu64 " %" SCNu64 " %" SCNu32 " %d", &count, &config.bytes,
                 &config.segment_bytes, &device, &transport);
    config.device = GPUIPC_DEVICE(device);
    config.transport = (gpuipc_transport)transport;
    gpuipc_status status = GPUIPC_OK;
    for (size_t i = 0; i < count && self->buffer_count < HELPER_BUFFERS_MAX; i++) {
        status = gpuipc_buffer_create(self->context, &config, &self->buffers[self->buffer_count]);
        if (status != GPUIPC_OK) {
            break;
        }
        self->buffer_count++;
    }
    helper_say_status(status);
}

/* fill SEED STRIDE: buffer i gets the seed SEED + i */
static void fill(helper_state *self, const char *arguments) {
    uint32_t seed = 0;
    uint64_t stride = 0;
    gpuipc_status status = GPUIPC_OK;
    (void)sscanf(arguments, " %" SCNu32 " %" SCNu64, &seed, &stride);
    for (size_t i = 0; i < self->buffer_count && status == GPUIPC_OK; i++) {
        status = marks_write(self->buffers[i], seed + (uint32_t)i, stride);
    }
    helper_say_status(status);
}

/* check SEED STRIDE */
static void check(helper_state *self, const char *arguments) {
    uint32_t seed = 0;
    uint64_t stride = 0;
    gpuipc_status status = GPUIPC_OK;
    (void)sscanf(arguments, " %" SCNu32 " %" SCNu64, &seed, &stride);
    for (size_t i = 0; i < self->buffer_count && status == GPUIPC_OK; i++) {
        status = marks_check(self->buffers[i], seed + (uint32_t)i, stride);
    }
    helper_say_status(status);
}

/* poke OFFSET WORD: into the first buffer */
static void poke(helper_state *self, const char *arguments) {
    uint64_t offset = 0;
    uint32_t word = 0;
    (void)sscanf(arguments, " %" SCNu64 " %" SCNu32, &offset, &word);
    helper_say_status(gpuipc_buffer_write(self->buffers[0], offset, &word, sizeof(word)));
}

/* set_access DEVICE ACCESS: of the first buffer */
static void set_access(helper_state *self, const char *arguments) {
    uint32_t device = 0;
    unsigned access = 0;
    (void)sscanf(arguments, " %" SCNu32 " %u", &device, &access);
    helper_say_status(gpuipc_buffer_set_access(self->buffers[0], device, (gpuipc_access)access));
}

/* info: of the first buffer */
static void info(helper_state *self, const char *arguments) {
    (void)arguments;
    gpuipc_buffer_info about = {.struct_size = sizeof(about)};
    gpuipc_status status = gpuipc_buffer_get_info(self->buffers[0], &about);
    helper_say("%s device %" PRId32 " access_device %" PRIu32
               " access %d origin %d segments %" PRIu32 " bytes %" PRIu64,
               gpuipc_status_name(status), (int32_t)about.device, about.access_device,
               (int)about.access, (int)about.origin, about.segment_count, about.bytes);
}

/* release [COUNT]: all, or so many of those that came last */
static void release(helper_state *self, const char *arguments) {
    size_t count = 0;
    gpuipc_status status = GPUIPC_OK;
    if (sscanf(arguments, " %zu", &count) != 1) {
        helper_say_status(helper_release(self));
        return;
    }
    for (size_t i = 0; i < count && self->buffer_count > 0 && status == GPUIPC_OK; i++) {
        status = gpuipc_buffer_release(self->buffers[--self->buffer_count]);
    }
    helper_say_status(status);
}

const helper_command helper_memory_commands[] = {
    {"create", create},         {"fill", fill}, {"check", check},     {"poke", poke},
    {"set_access", set_access}, {"info", info}, {"release", release}, {NULL, NULL}};
