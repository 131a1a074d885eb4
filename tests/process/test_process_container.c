/* SPDX-License-Identifier: MIT */
/** @file Two processes that share no /dev/shm, as two containers do. */
#include <criterion/criterion.h>
#include <string.h>

#include "check.h"
#include "partner.h"

#define PAINTED_BYTES 4096
#define REFUSED       "not possible"

static process_case at;
static partner other;
static gpuipc_connection *connection;

/* The partner has an empty /dev/shm of its own from now on. */
static void begin(void) {
    process_case_begin(&at, NULL);
    partner_start(&other, &at, NULL, NULL);
    partner_tell(&other, "no-shm");
    partner_hear(&other, "");
    if (strncmp(other.answer, REFUSED, strlen(REFUSED)) == 0) {
        partner_kill(
            &other); /* its descriptors may have other names in the namespace that it has now */
        process_case_end(&at);
        cr_skip_test(
            "a /dev/shm of one's own takes CAP_SYS_ADMIN, and a root directory that is a mount point");
    }
    cr_assert_str_eq(other.answer, "GPUIPC_OK");
    partner_do(&other, "GPUIPC_OK", "connect %s %d", at.name, PATIENCE_MS);
    connection = process_case_accept(&at);
}

static void end(void) {
    partner_end(&other);
    check_ok(gpuipc_connection_close(connection));
    process_case_end(&at);
}

TestSuite(container, .timeout = 100);

Test(container, points_need_no_shared_dev_shm) {
    gpuipc_buffer *buffer;
    gpuipc_buffer *own;
    gpuipc_incoming message = {.struct_size = sizeof(message),
                               .buffers = &buffer,
                               .buffer_capacity = 1,
                               .flags = GPUIPC_RECEIVE_ASYNC};
    uint32_t word = 0;
    begin();
    partner_do(&other, "GPUIPC_OK", "create 1 %d 0 0", PAINTED_BYTES);
    partner_do(&other, "GPUIPC_OK", "gate");
    partner_do(&other, "GPUIPC_OK", "paint 5 %d", PAINTED_BYTES);
    partner_do(&other, "GPUIPC_OK", "hand %u %d", GPUIPC_SEND_ASYNC, PATIENCE_MS);
    check_ok(gpuipc_connection_receive(connection, &message, PATIENCE_MS));
    partner_do(&other, "GPUIPC_OK", "open");
    check_ok(gpuipc_buffer_read(buffer, 0, &word, sizeof(word)));
    cr_assert_eq(word, 5);
    check_ok(gpuipc_buffer_return_async(buffer, NULL));
    own = process_case_buffer(&at, 0, MEBIBYTES_2, 0, 1, 0);
    check_ok(gpuipc_buffer_read(own, 0, &word, sizeof(word))); /* the stream has passed it */
    check_ok(gpuipc_buffer_release(own));
    check_ok(gpuipc_buffer_release(buffer));
    partner_do(&other, "GPUIPC_OK", "await %d", PATIENCE_MS);
    end();
}
