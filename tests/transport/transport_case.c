/* SPDX-License-Identifier: MIT */
/** @file See transport_case.h. */
#include "transport_case.h"

#include <inttypes.h>

#include "check.h"
#include "os.h"

#define IS_LINUX (os_shareable_handle_type == 1)

const transport_promise promise = {
    .id = TRANSPORT_UNDER_TEST,
    .everywhere = TRANSPORT_UNDER_TEST == GPUIPC_TRANSPORT_VMM ||
                  TRANSPORT_UNDER_TEST == GPUIPC_TRANSPORT_LEGACY ||
                  TRANSPORT_UNDER_TEST == GPUIPC_TRANSPORT_HOST,
    .passed_on = TRANSPORT_UNDER_TEST == GPUIPC_TRANSPORT_VMM ||
                 TRANSPORT_UNDER_TEST == GPUIPC_TRANSPORT_HOST ||
                 TRANSPORT_UNDER_TEST == GPUIPC_TRANSPORT_FABRIC,
    .survives_owner = TRANSPORT_UNDER_TEST != GPUIPC_TRANSPORT_FABRIC,
    .after_owner = TRANSPORT_UNDER_TEST == GPUIPC_TRANSPORT_LEGACY ? GPUIPC_ERR_LOST : GPUIPC_OK,
};

static gpuipc_status create(const transport_case *self, uint64_t bytes,
                            gpuipc_buffer **out_buffer) {
    const gpuipc_buffer_config config = {
        .struct_size = sizeof(config), .transport = promise.id, .bytes = bytes};
    return gpuipc_buffer_create(self->process.context, &config, out_buffer);
}

/* Skips where there is no such memory; and makes once what a driver keeps from its first use on. */
static void try_it(transport_case *self) {
    gpuipc_buffer *buffer;
    gpuipc_status status = create(self, MEBIBYTES_2, &buffer);
    if (status == GPUIPC_OK) {
        check_ok(gpuipc_buffer_release(buffer));
        (void)leak_gate_end(
            &self->process.gate); /* a context keeps its pool from its first use on */
        leak_gate_begin(&self->process.gate);
        return;
    }
    const gpuipc_error why = *gpuipc_error_get();
    process_case_end(&self->process);
    const bool may_be_absent =
        !promise.everywhere && (promise.id != GPUIPC_TRANSPORT_POOL || !IS_LINUX);
    cr_assert(status == GPUIPC_ERR_NOT_SUPPORTED || status == GPUIPC_ERR_VMM_UNSUPPORTED ||
                  status == GPUIPC_ERR_HANDLE_TYPE_UNSUPPORTED,
              "%s: %s", gpuipc_status_name(status), why.sentence);
    cr_assert(may_be_absent || !self->is_emulated, "the emulated driver has it: %s", why.sentence);
    cr_skip_test("%s: %s", gpuipc_transport_name(promise.id), why.sentence);
}

/* What a real driver opens when memory is first sent or received stays open. */
static void warm_up(transport_case *self) {
    gpuipc_buffer *opened;
    gpuipc_buffer *buffer = transport_case_buffer(self, MEBIBYTES_2, 1);
    transport_case_give(self, buffer);
    partner_do(&self->other, "GPUIPC_OK", "release");
    transport_case_partner_buffer(self, MEBIBYTES_2, 1);
    partner_do(&self->other, "GPUIPC_OK", "send 0 0 %d", PATIENCE_MS);
    check_ok(transport_case_take(self, &opened));
    partner_do(&self->other, "GPUIPC_OK", "release");
    check_ok(gpuipc_buffer_release(opened));
    check_ok(gpuipc_buffer_release(buffer));
    (void)leak_gate_end(&self->process.gate);
    leak_gate_begin(&self->process.gate);
}

void transport_case_begin(transport_case *self) {
    *self = (transport_case){0};
    process_case_begin(&self->process, NULL);
    self->is_emulated = process_case_is_emulated(&self->process) != 0;
    try_it(self);
    partner_start(&self->other, &self->process, NULL, NULL);
    partner_do(&self->other, "GPUIPC_OK", "connect %s %d", self->process.name, PATIENCE_MS);
    self->connection = process_case_accept(&self->process);
    if (!self->is_emulated) {
        warm_up(self);
    }
}

void transport_case_end_alone(transport_case *self) {
    check_ok(gpuipc_connection_close(self->connection));
    /* memory that the partner had until its end goes with the next release */
    check_ok(gpuipc_buffer_release(process_case_buffer(&self->process, 0, MEBIBYTES_2, 0, 1, 0)));
    process_case_end(&self->process);
}

void transport_case_end(transport_case *self) {
    partner_end(&self->other);
    transport_case_end_alone(self);
}

gpuipc_buffer *transport_case_buffer(const transport_case *self, uint64_t bytes, uint32_t seed) {
    gpuipc_buffer_info info = {.struct_size = sizeof(info)};
    gpuipc_buffer *buffer;
    check_ok(create(self, bytes, &buffer));
    check_ok(gpuipc_buffer_get_info(buffer, &info));
    cr_assert_eq(info.transport, promise.id);
    cr_assert_eq(info.bytes, bytes);
    check_ok(marks_write(buffer, seed, 65536));
    return buffer;
}

void transport_case_partner_buffer(transport_case *self, uint64_t bytes, uint32_t seed) {
    partner_do(&self->other, "GPUIPC_OK", "create 1 %" PRIu64 " 0 0 %d", bytes, (int)promise.id);
    partner_do(&self->other, "GPUIPC_OK", "fill %" PRIu32 " 65536", seed);
}

void transport_case_give(transport_case *self, gpuipc_buffer *buffer) {
    check_ok(process_case_send(self->connection, &buffer, 1, 0));
    partner_do(&self->other, "GPUIPC_OK 0 bytes 1 buffers", "receive 0 0 0 %d", PATIENCE_MS);
}

gpuipc_status transport_case_take(transport_case *self, gpuipc_buffer **out_buffer) {
    size_t count = 1;
    gpuipc_status status =
        process_case_receive(self->connection, out_buffer, &count, NULL, PATIENCE_MS);
    if (status == GPUIPC_OK) {
        cr_assert_eq(count, 1);
    }
    return status;
}
