/* SPDX-License-Identifier: MIT */
/** @file Memory of every transport where a call of the driver fails: told, undone, and the next call works. */
#include "cuda/context.h"
#include "own_kinds.h"
#include "sync/deferred.h"

#define BYTES UINT64_C(100000)

TestSuite(transport_failure, .init = core_start, .fini = core_finish, .timeout = 60);

static gpuipc_status create(gpuipc_transport transport, gpuipc_buffer **out) {
    const gpuipc_buffer_config config = {
        .struct_size = sizeof(config), .transport = transport, .bytes = BYTES};
    return gpuipc_buffer_create(core_context, &config, out);
}

typedef struct failure {
    gpuipc_transport transport;
    const char *fail;
    gpuipc_status expected;
    const char *text;
} failure;

static void end_what_is_deferred(void) {
    context *ctx;
    check_ok(context_acquire(core_context, &ctx));
    (void)deferred_run(ctx->deferred);
    context_unreference(ctx);
}

Test(transport_failure, every_call_of_making_it_may_fail) {
    core_need_emulated();
    static const failure rows[] = {
        {GPUIPC_TRANSPORT_LEGACY, "cuMemAlloc:1=2", GPUIPC_ERR_OUT_OF_DEVICE_MEMORY, ""},
        {GPUIPC_TRANSPORT_LEGACY, "cuCtxPushCurrent:1=999", GPUIPC_ERR_CUDA, ""},
        {GPUIPC_TRANSPORT_LEGACY, "cuIpcGetMemHandle:1=1", GPUIPC_ERR_CUDA, "naming memory"},
        {GPUIPC_TRANSPORT_LEGACY, "cuIpcGetMemHandle:1=801", GPUIPC_ERR_NOT_SUPPORTED, "use vmm"},
        {GPUIPC_TRANSPORT_P2P, "cuMemAlloc:1=2", GPUIPC_ERR_OUT_OF_DEVICE_MEMORY, ""},
        {GPUIPC_TRANSPORT_HOST, "cuDeviceGetAttribute:1=1", GPUIPC_ERR_NOT_SUPPORTED, "reach"},
        {GPUIPC_TRANSPORT_HOST, "cuMemHostRegister:1=2", GPUIPC_ERR_OUT_OF_MEMORY, "pinned"},
        {GPUIPC_TRANSPORT_HOST, "cuMemHostRegister:1=999", GPUIPC_ERR_CUDA, ""},
        {GPUIPC_TRANSPORT_HOST, "cuMemHostGetDevicePointer:1=1", GPUIPC_ERR_CUDA, ""},
        {GPUIPC_TRANSPORT_FABRIC, "cuDeviceGetAttribute:1=1", GPUIPC_ERR_NOT_SUPPORTED, "use vmm"},
        {GPUIPC_TRANSPORT_FABRIC, "cuMemCreate:1=800", GPUIPC_ERR_NOT_SUPPORTED, "IMEX"},
        {GPUIPC_TRANSPORT_FABRIC, "cuMemCreate:1=2", GPUIPC_ERR_OUT_OF_DEVICE_MEMORY, ""},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        gpuipc_buffer *buffer = NULL;
        core_set_failures(rows[i].fail);
        gpuipc_status status = create(rows[i].transport, &buffer);
        core_set_failures("");
        cr_assert_eq(status, rows[i].expected, "%s: %s (%s)", rows[i].fail,
                     gpuipc_status_name(status), gpuipc_error_get()->sentence);
        cr_assert(strstr(gpuipc_error_get()->sentence, rows[i].text) != NULL, "%s: %s",
                  rows[i].fail, gpuipc_error_get()->sentence);
        cr_assert_null(buffer);
        end_what_is_deferred(); /* else there is room to be made by a second try */
    }
}

Test(transport_failure, every_call_of_making_a_pools_may_fail) {
    core_need_emulated();
    static const failure rows[] = {
        {0, "cuDeviceGetAttribute:1=1", GPUIPC_ERR_NOT_SUPPORTED, "use vmm"},
        {0, "cuMemPoolCreate:1=2", GPUIPC_ERR_OUT_OF_DEVICE_MEMORY, ""},
        {0, "cuMemPoolExportToShareableHandle:1=1", GPUIPC_ERR_NOT_SHAREABLE, "handleTypes"},
        {0, "cuMemPoolExportToShareableHandle:1=304", GPUIPC_ERR_CUDA, ""},
        {0, "cuStreamCreate:1=2", GPUIPC_ERR_OUT_OF_DEVICE_MEMORY, ""},
        {0, "cuMemAllocFromPoolAsync:1=2", GPUIPC_ERR_OUT_OF_DEVICE_MEMORY, ""},
        {0, "cuStreamSynchronize:1=999", GPUIPC_ERR_CUDA, ""},
        {0, "cuMemPoolExportPointer:1=1", GPUIPC_ERR_NOT_SHAREABLE, "opened from another"},
        {0, "cuMemPoolExportPointer:1=999", GPUIPC_ERR_CUDA, "naming memory"},
    };
    if (os_shareable_handle_type == CU_MEM_HANDLE_TYPE_WIN32) {
        gpuipc_buffer *none = NULL;
        check_refused(GPUIPC_ERR_NOT_SUPPORTED, "use vmm", create(GPUIPC_TRANSPORT_POOL, &none));
        return;
    }
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        gpuipc_buffer *buffer = NULL;
        core_set_failures(rows[i].fail);
        gpuipc_status status = create(GPUIPC_TRANSPORT_POOL, &buffer);
        core_set_failures("");
        cr_assert_eq(status, rows[i].expected, "%s: %s (%s)", rows[i].fail,
                     gpuipc_status_name(status), gpuipc_error_get()->sentence);
        cr_assert(strstr(gpuipc_error_get()->sentence, rows[i].text) != NULL, "%s: %s",
                  rows[i].fail, gpuipc_error_get()->sentence);
        cr_assert_null(buffer);
    }
}

Test(transport_failure, peer_access_may_fail) {
    core_need_emulated();
    core_need_devices(2);
    static const failure rows[] = {
        {0, "cuDeviceCanAccessPeer:1=999", GPUIPC_ERR_CUDA, ""}, /* a yes is remembered */
        {0, "cuPointerGetAttribute:1=999", GPUIPC_ERR_CUDA, ""},
        {0, "cuCtxEnablePeerAccess:1=217", GPUIPC_ERR_PEER_ACCESS_UNSUPPORTED, ""},
        {0, "cuCtxEnablePeerAccess:1=999", GPUIPC_ERR_CUDA, ""},
    };
    gpuipc_buffer *buffer = NULL;
    check_ok(create(GPUIPC_TRANSPORT_P2P, &buffer));
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        core_set_failures(rows[i].fail);
        check_status(rows[i].expected, gpuipc_buffer_set_access(buffer, 1, GPUIPC_ACCESS_DEFAULT));
    }
    core_set_failures("");
    check_ok(gpuipc_buffer_release(buffer));
}

Test(transport_failure, host_memory_whose_device_cannot_be_entered) {
    core_need_emulated();
    core_need_devices(2);
    gpuipc_buffer *buffer = NULL;
    check_ok(create(GPUIPC_TRANSPORT_HOST, &buffer));
    core_set_failures("cuCtxPushCurrent:1=999");
    check_status(GPUIPC_ERR_CUDA, gpuipc_buffer_set_access(buffer, 1, GPUIPC_ACCESS_DEFAULT));
    core_set_failures("");
    check_ok(gpuipc_buffer_set_access(buffer, 1, GPUIPC_ACCESS_DEFAULT));
    check_ok(gpuipc_buffer_release(buffer));
}

static CUresult say_elsewhere(CUdeviceptr *address, void *host, unsigned int flags) {
    (void)host;
    (void)flags;
    *address = 4096;
    return CUDA_SUCCESS;
}

Test(transport_failure, host_memory_that_another_device_has_elsewhere) {
    core_need_emulated();
    core_need_devices(2);
    gpuipc_buffer *buffer = NULL;
    context *ctx;
    check_ok(create(GPUIPC_TRANSPORT_HOST, &buffer));
    check_ok(context_acquire(core_context, &ctx));
    ctx->driver.cuMemHostGetDevicePointer = say_elsewhere;
    check_refused(GPUIPC_ERR_NOT_SUPPORTED, "at another address",
                  gpuipc_buffer_set_access(buffer, 1, GPUIPC_ACCESS_DEFAULT));
    ctx->driver.cuMemHostGetDevicePointer = core_driver()->cuMemHostGetDevicePointer;
    core_set_failures("cuMemHostGetDevicePointer:1=999");
    check_status(GPUIPC_ERR_CUDA, gpuipc_buffer_set_access(buffer, 1, GPUIPC_ACCESS_DEFAULT));
    core_set_failures("");
    context_unreference(ctx);
    check_ok(gpuipc_buffer_release(buffer));
}

static gpuipc_status send_copy(const core_pair *pair, gpuipc_buffer *buffer) {
    const gpuipc_outgoing message = {.struct_size = sizeof(message),
                                     .buffers = &buffer,
                                     .buffer_count = 1,
                                     .flags = GPUIPC_SEND_STAGED};
    return gpuipc_connection_send(pair->client, &message, SOON_MS);
}

Test(transport_failure, sending_a_copy_may_fail) {
    core_need_emulated();
    static const char *const rows[] = {"cuMemcpyDtoHAsync:1=999", "cuStreamSynchronize:1=999"};
    core_pair pair;
    gpuipc_buffer *buffer = NULL;
    gpuipc_buffer *opened = NULL;
    core_enter_device(0);
    own_kinds own = own_kinds_make(OWN_PINNED, BYTES);
    core_pair_open(&pair, core_context, core_context);
    check_ok(gpuipc_buffer_wrap(core_context, own.address, BYTES, &buffer));
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        core_set_failures(rows[i]);
        check_status(GPUIPC_ERR_CUDA, send_copy(&pair, buffer));
    }
    core_set_failures("");
    check_ok(send_copy(&pair, buffer)); /* the connection is as it was */
    check_ok(core_receive(pair.server, &opened, 1));
    check_ok(gpuipc_buffer_release(opened));
    check_ok(gpuipc_buffer_release(buffer));
    core_pair_close(&pair);
    own_kinds_undo(&own);
}

/* Memory that lingers is freed when there is too little. */
Test(transport_failure, what_lingers_makes_room) {
    core_need_emulated();
    gpuipc_device_info of = {.struct_size = sizeof(of)};
    check_ok(gpuipc_device_get_info(core_context, 0, &of));
    const gpuipc_buffer_config config = {.struct_size = sizeof(config),
                                         .transport = GPUIPC_TRANSPORT_LEGACY,
                                         .bytes = of.memory_bytes / 2 + core_unit};
    gpuipc_buffer *first = NULL;
    gpuipc_buffer *second = NULL;
    gpuipc_buffer *opened = NULL;
    core_pair pair;
    uint32_t word = 6;
    check_ok(gpuipc_buffer_create(core_context, &config, &first));
    check_ok(gpuipc_buffer_write(first, 0, &word, sizeof(word)));
    core_pair_open(&pair, core_context, core_context);
    check_ok(core_send(pair.client, &first, 1));
    check_ok(core_receive(pair.server, &opened, 1));
    check_ok(gpuipc_buffer_release(first));
    check_status(GPUIPC_ERR_OUT_OF_DEVICE_MEMORY,
                 gpuipc_buffer_create(core_context, &config, &second));
    check_ok(gpuipc_buffer_read(opened, 0, &word, sizeof(word)));
    cr_assert_eq(word, 6);
    check_ok(gpuipc_buffer_release(opened));
    check_ok(gpuipc_buffer_create(core_context, &config, &second));
    check_ok(gpuipc_buffer_release(second));
    core_pair_close(&pair);
}
