/* SPDX-License-Identifier: MIT */
/** @file A receiver whose driver refuses: the message is lost, with the reason, and the next one comes. */
#include "check.h"
#include "driver.h"
#include "marks.h"
#include "partner.h"

TestSuite(transport_refusal, .timeout = 100);

typedef struct refusal {
    gpuipc_transport transport;
    uint32_t device;         /* that the receiver names: as gpuipc_incoming::device */
    const char *environment; /* of the receiver */
    const char *expected;
} refusal;

static process_case at;

/* A context keeps its pool from its first use on: that is made before the gate looks. */
static void begin(void) {
    const gpuipc_buffer_config config = {
        .struct_size = sizeof(config), .transport = GPUIPC_TRANSPORT_POOL, .bytes = MEBIBYTES_2};
    gpuipc_buffer *buffer = NULL;
    process_case_begin(&at, NULL);
    gpuipc_status status = gpuipc_buffer_create(at.context, &config, &buffer);
    cr_assert(status == GPUIPC_OK || status == GPUIPC_ERR_NOT_SUPPORTED);
    check_ok(gpuipc_buffer_release(buffer));
    (void)leak_gate_end(&at.gate);
    leak_gate_begin(&at.gate);
}

/* False where there is no such memory to send. */
static bool make(gpuipc_transport transport, gpuipc_buffer **out_buffer) {
    const gpuipc_buffer_config config = {
        .struct_size = sizeof(config), .transport = transport, .bytes = MEBIBYTES_2};
    gpuipc_status status = gpuipc_buffer_create(at.context, &config, out_buffer);
    if (status == GPUIPC_ERR_NOT_SUPPORTED) {
        return false;
    }
    check_ok(status);
    check_ok(marks_write(*out_buffer, 5, 65536));
    return true;
}

static void check_row(const refusal *row, gpuipc_buffer *buffer) {
    const char *const environment[] = {row->environment, NULL};
    partner other;
    partner_start(&other, &at, NULL, environment);
    partner_do(&other, "GPUIPC_OK", "connect %s %d", at.name, PATIENCE_MS);
    gpuipc_connection *connection = process_case_accept(&at);
    check_ok(process_case_send(connection, &buffer, 1, 0));
    partner_tell(&other, "receive %u 0 0 %d", row->device, PATIENCE_MS);
    partner_hear(&other, "GPUIPC_");
    cr_assert_eq(strncmp(other.answer, row->expected, strlen(row->expected)), 0,
                 "with %s it said \"%s\"", row->environment, other.answer);
    check_ok(process_case_send(connection, &buffer, 1, 0));
    partner_do(&other, "GPUIPC_OK 0 bytes 1 buffers", "receive %u 0 0 %d", row->device,
               PATIENCE_MS);
    partner_do(&other, "GPUIPC_OK", "check 5 65536");
    check_ok(gpuipc_connection_close(connection));
    partner_end(&other);
}

static void check_rows(const refusal *rows, size_t count) {
    begin();
    for (size_t i = 0; i < count; i++) {
        gpuipc_buffer *buffer;
        if (!make(rows[i].transport, &buffer)) {
            const gpuipc_error why = *gpuipc_error_get();
            process_case_end(&at);
            cr_skip_test("%s", why.sentence);
        }
        check_row(&rows[i], buffer);
        check_ok(gpuipc_buffer_release(buffer));
    }
    process_case_end(&at);
}

Test(transport_refusal, legacy) {
    static const refusal rows[] = {
        {GPUIPC_TRANSPORT_LEGACY, 0, "GPUIPC_EMULATED_FAIL=cuIpcOpenMemHandle:1=1",
         "GPUIPC_ERR_NOT_GPU_MEMORY"},
        {GPUIPC_TRANSPORT_LEGACY, 0, "GPUIPC_EMULATED_FAIL=cuIpcOpenMemHandle:1=800",
         "GPUIPC_ERR_NOT_GPU_MEMORY"},
        {GPUIPC_TRANSPORT_LEGACY, 0, "GPUIPC_EMULATED_FAIL=cuIpcOpenMemHandle:1=400",
         "GPUIPC_ERR_LOST"},
        {GPUIPC_TRANSPORT_LEGACY, 0, "GPUIPC_EMULATED_FAIL=cuIpcOpenMemHandle:1=201",
         "GPUIPC_ERR_NOT_SUPPORTED"}, /* its own process's number in another PID namespace */
        {GPUIPC_TRANSPORT_LEGACY, 0, "GPUIPC_EMULATED_FAIL=cuIpcOpenMemHandle:1=801",
         "GPUIPC_ERR_NOT_SUPPORTED"},
        {GPUIPC_TRANSPORT_LEGACY, 0, "GPUIPC_EMULATED_FAIL=cuIpcOpenMemHandle:1=2",
         "GPUIPC_ERR_OUT_OF_DEVICE_MEMORY"},
        {GPUIPC_TRANSPORT_LEGACY, 0, "GPUIPC_EMULATED_FAIL=cuIpcOpenMemHandle:1=217",
         "GPUIPC_ERR_PEER_ACCESS_UNSUPPORTED"},
        {GPUIPC_TRANSPORT_LEGACY, 0, "GPUIPC_EMULATED_FAIL=cuIpcOpenMemHandle:1=999",
         "GPUIPC_ERR_CUDA"},
        {GPUIPC_TRANSPORT_LEGACY, 0, "GPUIPC_EMULATED_FAIL=cuMemGetAddressRange:1=999",
         "GPUIPC_ERR_CUDA"},
        {GPUIPC_TRANSPORT_LEGACY, 0, "GPUIPC_EMULATED_FAIL=cuCtxPushCurrent:1=999",
         "GPUIPC_ERR_CUDA"},
    };
    check_rows(rows, sizeof(rows) / sizeof(rows[0]));
}

Test(transport_refusal, pool) {
    static const refusal rows[] = {
        {GPUIPC_TRANSPORT_POOL, 0, "GPUIPC_EMULATED_FAIL=cuMemPoolImportPointer:1=1",
         "GPUIPC_ERR_NOT_GPU_MEMORY"},
        {GPUIPC_TRANSPORT_POOL, 0, "GPUIPC_EMULATED_FAIL=cuMemPoolImportPointer:1=2",
         "GPUIPC_ERR_OUT_OF_DEVICE_MEMORY"},
        {GPUIPC_TRANSPORT_POOL, 0, "GPUIPC_EMULATED_FAIL=cuPointerGetAttribute:1=999",
         "GPUIPC_ERR_CUDA"},
        {GPUIPC_TRANSPORT_POOL, 0, "GPUIPC_EMULATED_FAIL=cuPointerGetAttribute:2=999",
         "GPUIPC_ERR_CUDA"},
        {GPUIPC_TRANSPORT_POOL, 0, "GPUIPC_EMULATED_FAIL=cuCtxPushCurrent:1=999",
         "GPUIPC_ERR_CUDA"},
        {GPUIPC_TRANSPORT_POOL, GPUIPC_DEVICE(1), "GPUIPC_EMULATED_FAIL=cuMemPoolSetAccess:1=101",
         "GPUIPC_ERR_PEER_ACCESS_UNSUPPORTED"},
        {GPUIPC_TRANSPORT_POOL, GPUIPC_DEVICE(1), "GPUIPC_EMULATED_FAIL=cuMemPoolSetAccess:1=217",
         "GPUIPC_ERR_PEER_ACCESS_UNSUPPORTED"},
        {GPUIPC_TRANSPORT_POOL, GPUIPC_DEVICE(1), "GPUIPC_EMULATED_FAIL=cuMemPoolSetAccess:1=999",
         "GPUIPC_ERR_CUDA"},
    };
    check_rows(rows, sizeof(rows) / sizeof(rows[0]));
}

/* The pool's handle travels once: where it could not be opened, the connection cannot have its memory. */
Test(transport_refusal, a_pool_that_could_not_be_opened) {
    static const char *const environment[] = {
        "GPUIPC_EMULATED_FAIL=cuMemPoolImportFromShareableHandle:1=2", NULL};
    begin();
    gpuipc_buffer *buffer;
    partner other;
    if (!make(GPUIPC_TRANSPORT_POOL, &buffer)) {
        process_case_end(&at);
        cr_skip_test("%s", gpuipc_error_get()->sentence);
    }
    partner_start(&other, &at, NULL, environment);
    partner_do(&other, "GPUIPC_OK", "connect %s %d", at.name, PATIENCE_MS);
    gpuipc_connection *connection = process_case_accept(&at);
    check_ok(process_case_send(connection, &buffer, 1, 0));
    partner_do(&other, "GPUIPC_ERR_OUT_OF_DEVICE_MEMORY", "receive 0 0 0 %d", PATIENCE_MS);
    check_ok(process_case_send(connection, &buffer, 1, 0));
    partner_do(&other, "GPUIPC_ERR_NOT_GPU_MEMORY", "receive 0 0 0 %d", PATIENCE_MS);
    partner_do(&other, "GPUIPC_OK", "disconnect");
    check_ok(gpuipc_connection_close(connection));
    partner_do(&other, "GPUIPC_OK", "connect %s %d", at.name, PATIENCE_MS);
    connection = process_case_accept(&at);
    check_ok(process_case_send(connection, &buffer, 1, 0));
    partner_do(&other, "GPUIPC_OK", "receive 0 0 0 %d", PATIENCE_MS);
    partner_do(&other, "GPUIPC_OK", "check 5 65536");
    check_ok(gpuipc_connection_close(connection));
    partner_end(&other);
    check_ok(gpuipc_buffer_release(buffer));
    process_case_end(&at);
}

Test(transport_refusal, host) {
    static const refusal rows[] = {
        {GPUIPC_TRANSPORT_HOST, 0, "GPUIPC_EMULATED_FAIL=cuMemHostRegister:1=2",
         "GPUIPC_ERR_OUT_OF_MEMORY"},
        {GPUIPC_TRANSPORT_HOST, 0, "GPUIPC_EMULATED_FAIL=cuMemHostRegister:1=999",
         "GPUIPC_ERR_CUDA"},
        {GPUIPC_TRANSPORT_HOST, 0, "GPUIPC_EMULATED_FAIL=cuMemHostGetDevicePointer:1=999",
         "GPUIPC_ERR_CUDA"},
    };
    check_rows(rows, sizeof(rows) / sizeof(rows[0]));
}

Test(transport_refusal, fabric) {
    static const refusal rows[] = {
        {GPUIPC_TRANSPORT_FABRIC, 0, "GPUIPC_EMULATED_FAIL=cuMemImportFromShareableHandle:1=800",
         "GPUIPC_ERR_NOT_SUPPORTED"},
        {GPUIPC_TRANSPORT_FABRIC, 0, "GPUIPC_EMULATED_FAIL=cuMemImportFromShareableHandle:1=801",
         "GPUIPC_ERR_NOT_SUPPORTED"},
        {GPUIPC_TRANSPORT_FABRIC, 0, "GPUIPC_EMULATED_FAIL=cuMemImportFromShareableHandle:1=1",
         "GPUIPC_ERR_NOT_GPU_MEMORY"},
        {GPUIPC_TRANSPORT_FABRIC, 0, "GPUIPC_EMULATED_FAIL=cuMemImportFromShareableHandle:1=400",
         "GPUIPC_ERR_NOT_GPU_MEMORY"},
        {GPUIPC_TRANSPORT_FABRIC, 0, "GPUIPC_EMULATED_FAIL=cuMemImportFromShareableHandle:1=999",
         "GPUIPC_ERR_NOT_GPU_MEMORY"},
        {GPUIPC_TRANSPORT_FABRIC, 0, "GPUIPC_EMULATED_FAIL=cuMemImportFromShareableHandle:1=4",
         "GPUIPC_ERR_CUDA"},
        {GPUIPC_TRANSPORT_FABRIC, 0, "GPUIPC_EMULATED_FAIL=cuMemImportFromShareableHandle:1=2",
         "GPUIPC_ERR_OUT_OF_DEVICE_MEMORY"},
    };
    check_rows(rows, sizeof(rows) / sizeof(rows[0]));
}

/* Memory that lingers for a receiver is freed when there is too little and the receiver is gone. */
Test(transport_refusal, what_lingers_makes_room) {
    gpuipc_device_info device = {.struct_size = sizeof(device)};
    gpuipc_buffer *first;
    gpuipc_buffer *second = NULL;
    partner other;
    begin();
    check_ok(gpuipc_device_get_info(at.context, 0, &device));
    const gpuipc_buffer_config config = {.struct_size = sizeof(config),
                                         .transport = GPUIPC_TRANSPORT_LEGACY,
                                         .bytes = device.memory_bytes / 2 + MEBIBYTES_2};
    check_ok(gpuipc_buffer_create(at.context, &config, &first));
    partner_start(&other, &at, NULL, NULL);
    partner_do(&other, "GPUIPC_OK", "connect %s %d", at.name, PATIENCE_MS);
    gpuipc_connection *connection = process_case_accept(&at);
    check_ok(process_case_send(connection, &first, 1, 0));
    partner_do(&other, "GPUIPC_OK", "receive 0 0 0 %d", PATIENCE_MS);
    check_ok(gpuipc_buffer_release(first));
    check_status(GPUIPC_ERR_OUT_OF_DEVICE_MEMORY,
                 gpuipc_buffer_create(at.context, &config, &second));
    partner_kill(&other);
    check_ok(gpuipc_buffer_create(at.context, &config, &second));
    check_ok(gpuipc_buffer_release(second));
    check_ok(gpuipc_connection_close(connection));
    process_case_end(&at);
}
