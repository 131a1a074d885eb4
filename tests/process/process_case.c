/* SPDX-License-Identifier: MIT */
/** @file See process_case.h. */
#include "process_case.h"

#include <gpuipc/gpuipc_native.h>

#include "check.h"
#include "marks.h"
#include "sync/monitor.h"

static uint8_t bytes_out[GPUIPC_MESSAGE_BYTES_MAX];
static uint8_t bytes_in[GPUIPC_MESSAGE_BYTES_MAX];

/* A context keeps its pool from the first buffer of one on. */
static void warm_up_pool(const process_case *self) {
    const gpuipc_buffer_config config = {
        .struct_size = sizeof(config), .transport = GPUIPC_TRANSPORT_POOL, .bytes = MEBIBYTES_2};
    gpuipc_buffer *made = NULL;
    if (gpuipc_buffer_create(self->context, &config, &made) == GPUIPC_OK) { /* not everywhere */
        check_ok(gpuipc_buffer_release(made));
    }
}

/* Everything once that a driver keeps something of its own open for. */
static void warm_up(const process_case *self) {
    gpuipc_native_segment segment;
    gpuipc_native_layout layout = {.struct_size = sizeof(layout)};
    gpuipc_connection *near_end;
    gpuipc_connection *far_end;
    gpuipc_listener *listener;
    size_t count = 1;
    gpuipc_buffer *opened;
    for (uint32_t i = 0; i < process_case_devices(self); i++) {
        check_ok(gpuipc_buffer_release(process_case_buffer(self, i, MEBIBYTES_2, 0, 1, 0)));
    }
    gpuipc_buffer *buffer = process_case_buffer(self, 0, MEBIBYTES_2, 0, 1, 0);
    check_ok(gpuipc_listener_open(self->context, self->name, NULL, &listener));
    check_ok(gpuipc_connection_open(self->context, self->name, NULL, PATIENCE_MS, &near_end));
    check_ok(gpuipc_listener_accept(listener, PATIENCE_MS, &far_end));
    check_ok(process_case_send(near_end, &buffer, 1, 1));
    check_ok(process_case_receive(far_end, &opened, &count, NULL, PATIENCE_MS));
    check_ok(marks_check(opened, 1, 0));
    /* the context's own page of words, which it keeps */
    check_ok(gpuipc_buffer_return_async(opened, NULL));
    check_ok(gpuipc_buffer_await_returns(buffer, PATIENCE_MS));
    check_ok(gpuipc_native_export(buffer, &segment, 1, &layout, &count));
    os_handle handle = {segment.handle.value};
    check_ok(os_handle_adopt(handle.value, &handle));
    os_handle_close(&handle);
    check_ok(gpuipc_buffer_release(opened));
    check_ok(gpuipc_buffer_release(buffer));
    check_ok(gpuipc_connection_close(near_end));
    check_ok(gpuipc_connection_close(far_end));
    check_ok(gpuipc_listener_close(listener));
    warm_up_pool(self);
}

void process_case_begin(process_case *self, const gpuipc_context_config *config) {
    gpuipc_context_config known = {.struct_size = sizeof(known)};
    *self = (process_case){0};
    cr_assert(runtime_directory_make(self->directory));
    unique_name(self->name);
    if (config != NULL) {
        known = *config;
    }
    known.runtime_directory = self->directory;
    check_ok(gpuipc_context_create(&known, &self->context));
    warm_up(self);
    leak_gate_begin(&self->gate);
    check_ok(gpuipc_listener_open(self->context, self->name, NULL, &self->listener));
}

void process_case_settle(const process_case *self) {
    gpuipc_buffer *buffer = process_case_buffer(self, 0, MEBIBYTES_2, 0, 1, 0);
    check_ok(gpuipc_buffer_await_returns(buffer, 0));
    check_ok(gpuipc_buffer_release(buffer));
}

int process_case_leaks(const process_case *self, leak_gate *gate, int timeout_ms) {
    const os_deadline deadline = os_deadline_after(timeout_ms);
    process_case_settle(self);
    while (leak_gate_look(gate) != 0) {
        if (os_deadline_passed(deadline)) {
            return leak_gate_end(gate);
        }
        monitor_dismiss(
            MONITOR_FREES); /* its thread's handle is there until it is joined (Windows) */
        os_sleep_ms(1);
        process_case_settle(self);
    }
    (void)leak_gate_end(gate);
    return 0;
}

void process_case_end(process_case *self) {
    check_ok(gpuipc_listener_close(self->listener));
    cr_assert_eq(process_case_leaks(self, &self->gate, BACK_MS), 0, "%s", self->gate.text);
    check_ok(gpuipc_context_destroy(self->context));
    runtime_directory_remove(self->directory);
}

uint32_t process_case_devices(const process_case *self) {
    uint32_t count;
    check_ok(gpuipc_device_count(self->context, &count));
    return count;
}

int process_case_is_emulated(const process_case *self) {
    gpuipc_context_info info = {.struct_size = sizeof(info)};
    check_ok(gpuipc_context_get_info(self->context, &info));
    return info.is_emulated;
}

gpuipc_buffer *process_case_buffer(const process_case *self, uint32_t device, uint64_t bytes,
                                   uint64_t segment_bytes, uint32_t seed, uint64_t stride) {
    gpuipc_buffer_config config = {.struct_size = sizeof(config),
                                   .device = GPUIPC_DEVICE(device),
                                   .bytes = bytes,
                                   .segment_bytes = segment_bytes};
    gpuipc_buffer *buffer;
    check_ok(gpuipc_buffer_create(self->context, &config, &buffer));
    check_ok(marks_write(buffer, seed, stride));
    return buffer;
}

gpuipc_connection *process_case_accept(const process_case *self) {
    gpuipc_connection *connection;
    check_ok(gpuipc_listener_accept(self->listener, PATIENCE_MS, &connection));
    return connection;
}

void process_case_connect(const process_case *self, gpuipc_connection **out_near,
                          gpuipc_connection **out_far) {
    check_ok(gpuipc_connection_open(self->context, self->name, NULL, PATIENCE_MS, out_near));
    *out_far = process_case_accept(self);
}

gpuipc_status process_case_send(gpuipc_connection *to, gpuipc_buffer *const *buffers, size_t count,
                                size_t bytes) {
    gpuipc_outgoing message = {.struct_size = sizeof(message),
                               .bytes = bytes_out,
                               .bytes_size = bytes,
                               .buffers = buffers,
                               .buffer_count = count};
    marks_fill_bytes(bytes_out, bytes);
    return gpuipc_connection_send(to, &message, PATIENCE_MS);
}

gpuipc_status process_case_receive(gpuipc_connection *from, gpuipc_buffer **buffers, size_t *count,
                                   size_t *out_bytes, int timeout_ms) {
    gpuipc_incoming message = {.struct_size = sizeof(message),
                               .bytes = bytes_in,
                               .bytes_capacity = sizeof(bytes_in),
                               .buffers = buffers,
                               .buffer_capacity = *count};
    gpuipc_status status = gpuipc_connection_receive(from, &message, timeout_ms);
    if (status == GPUIPC_OK) {
        *count = message.buffer_count;
        if (out_bytes != NULL) {
            *out_bytes = message.bytes_size;
        }
    }
    return status;
}

const uint8_t *process_case_bytes(void) {
    return bytes_in;
}
