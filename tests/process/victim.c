/* SPDX-License-Identifier: MIT */
/** @file See victim.h. */
#include "victim.h"

#include "check.h"
#include "marks.h"

void victim_case_begin(victim_case *self) {
    gpuipc_context_config config = {.struct_size = sizeof(config),
                                    .max_buffers_per_message = VICTIM_BUFFERS_MAX,
                                    .max_handles_per_message = VICTIM_HANDLES_MAX};
    process_case_begin(&self->at, &config);
    process_case_connect(&self->at, &self->bystander_near, &self->bystander_far);
    self->buffer = process_case_buffer(&self->at, 0, MEBIBYTES_2, 0, 1, 0);
}

void victim_case_end(victim_case *self) {
    gpuipc_buffer *opened;
    size_t count = 1;
    check_ok(process_case_send(self->bystander_near, &self->buffer, 1, 5));
    check_ok(process_case_receive(self->bystander_far, &opened, &count, NULL, PATIENCE_MS));
    check_ok(marks_check(opened, 1, 0));
    check_ok(gpuipc_buffer_release(opened));
    check_ok(gpuipc_buffer_release(self->buffer));
    check_ok(gpuipc_connection_close(self->bystander_near));
    check_ok(gpuipc_connection_close(self->bystander_far));
    process_case_end(&self->at);
}

raw_packet victim_case_packet(const victim_case *self) {
    raw_packet packet;
    cr_assert(raw_packet_make(self->buffer, &packet));
    return packet;
}

victim victim_make(const victim_case *in) {
    victim self = {.raw = raw_connect(in->at.directory, in->at.name)};
    cr_assert_neq(self.raw, NULL);
    self.connection = process_case_accept(&in->at);
    return self;
}

gpuipc_status victim_receive(const victim *self) {
    gpuipc_buffer *opened[VICTIM_BUFFERS_MAX];
    size_t count = VICTIM_BUFFERS_MAX;
    gpuipc_status status =
        process_case_receive(self->connection, opened, &count, NULL, PATIENCE_MS);
    for (size_t i = 0; status == GPUIPC_OK && i < count; i++) {
        check_ok(gpuipc_buffer_release(opened[i]));
    }
    return status;
}

void victim_expect_end(victim *self, gpuipc_status expected, const char *what) {
    gpuipc_status status = victim_receive(self);
    cr_assert_eq(status, expected, "%s: %s, not %s", what, gpuipc_status_name(status),
                 gpuipc_status_name(expected));
    cr_assert_eq(gpuipc_error_get()->status, expected, "%s", what);
    cr_assert_str_not_empty(gpuipc_error_get()->sentence, "%s", what);
    status = victim_receive(self);
    cr_assert_eq(status, GPUIPC_ERR_CONNECTION_BROKEN, "%s, afterwards: %s", what,
                 gpuipc_status_name(status));
    cr_assert(raw_sees_end(self->raw, PATIENCE_MS), "%s", what);
    victim_close(self);
}

void victim_close(victim *self) {
    check_ok(gpuipc_connection_close(self->connection));
    raw_close(self->raw);
}
