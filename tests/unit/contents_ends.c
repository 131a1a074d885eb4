/* SPDX-License-Identifier: MIT */
/** @file See contents_ends.h. */
#include "contents_ends.h"

#include <stdlib.h>

const gpuipc_transport contents_ways[2] = {GPUIPC_TRANSPORT_VMM, GPUIPC_TRANSPORT_HOST};

gpuipc_buffer *contents_buffer(gpuipc_context *context, uint64_t bytes) {
    const gpuipc_buffer_config config = {.struct_size = sizeof(config), .bytes = bytes};
    gpuipc_buffer *made = NULL;
    check_ok(gpuipc_buffer_create(context, &config, &made));
    return made;
}

void contents_ends_open(contents_ends *self, uint64_t bytes) {
    const driver *drv = core_driver();
    self->other = core_context_new();
    core_pair_open(&self->pair, core_context, self->other);
    self->from = contents_buffer(core_context, bytes);
    self->into = contents_buffer(self->other, bytes);
    core_enter_device(0);
    cr_assert_eq(drv->cuStreamCreate(&self->sends, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    cr_assert_eq(drv->cuStreamCreate(&self->receives, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
}

void contents_ends_close(contents_ends *self) {
    cr_assert_eq(core_driver()->cuStreamDestroy(self->sends), CUDA_SUCCESS);
    cr_assert_eq(core_driver()->cuStreamDestroy(self->receives), CUDA_SUCCESS);
    check_ok(gpuipc_buffer_release(self->into));
    check_ok(gpuipc_buffer_release(self->from));
    core_pair_close(&self->pair);
    check_ok(gpuipc_context_destroy(self->other));
}

gpuipc_status contents_send_range(contents_ends *self, uint64_t offset, uint64_t bytes,
                                  gpuipc_transport way) {
    const gpuipc_contents contents = {.struct_size = sizeof(contents),
                                      .buffer = self->from,
                                      .offset = offset,
                                      .bytes = bytes,
                                      .stream = self->sends,
                                      .transport = way};
    return gpuipc_connection_send_contents(self->pair.server, &contents, SOON_MS);
}

gpuipc_status contents_receive_range(contents_ends *self, uint64_t offset, uint64_t bytes,
                                     gpuipc_transport way) {
    const gpuipc_contents contents = {.struct_size = sizeof(contents),
                                      .buffer = self->into,
                                      .offset = offset,
                                      .bytes = bytes,
                                      .stream = self->receives,
                                      .transport = way};
    return gpuipc_connection_receive_contents(self->pair.client, &contents, SOON_MS);
}

void contents_both_pass(const contents_ends *self) {
    cr_assert_eq(core_driver()->cuStreamSynchronize(self->sends), CUDA_SUCCESS);
    cr_assert_eq(core_driver()->cuStreamSynchronize(self->receives), CUDA_SUCCESS);
}

void contents_set_delay(unsigned milliseconds) {
    if (core_is_emulated) {
        core_set_stream_delay(milliseconds);
    }
}

void contents_check_value(gpuipc_buffer *buffer, uint8_t value) {
    const uint64_t bytes = core_info(buffer).bytes;
    uint8_t *room = malloc(bytes);
    cr_assert_not_null(room);
    check_ok(gpuipc_buffer_read(buffer, 0, room, bytes));
    uint64_t wrong = 0;
    while (wrong < bytes && room[wrong] == value) {
        wrong++;
    }
    cr_assert_eq(wrong, bytes, "byte %llu is not %u", (unsigned long long)wrong, value);
    free(room);
}
