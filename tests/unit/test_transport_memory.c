/* SPDX-License-Identifier: MIT */
/** @file Memory of every transport in one process: made, reached by other devices, sent to itself, sent as
 *  a copy; and refused, wherever a call fails. */
#include "own_kinds.h"

#define BYTES UINT64_C(100000)

TestSuite(transport_memory, .init = core_start, .fini = core_finish, .timeout = 60);

static gpuipc_status create(gpuipc_transport transport, uint32_t device, gpuipc_buffer **out) {
    const gpuipc_buffer_config config = {.struct_size = sizeof(config),
                                         .device = GPUIPC_DEVICE(device),
                                         .transport = transport,
                                         .bytes = BYTES};
    return gpuipc_buffer_create(core_context, &config, out);
}

static gpuipc_buffer *make(gpuipc_transport transport) {
    gpuipc_buffer *buffer = NULL;
    gpuipc_status status = create(transport, 0, &buffer);
    if (status == GPUIPC_ERR_NOT_SUPPORTED) {
        cr_skip_test("%s: %s", gpuipc_transport_name(transport), gpuipc_error_get()->sentence);
    }
    check_ok(status);
    return buffer;
}

/* ---- made, and reached ------------------------------------------------------------------- */

static void check_made(gpuipc_transport transport) {
    gpuipc_buffer *buffer = make(transport);
    const gpuipc_buffer_info info = core_info(buffer);
    cr_assert_eq(info.transport, transport);
    cr_assert_eq(info.bytes, BYTES);
    cr_assert_geq(info.allocated_bytes, BYTES);
    cr_assert_eq(info.segment_count, 1);
    cr_assert_eq(info.device, 0);
    cr_assert_eq(info.access, GPUIPC_ACCESS_READ_WRITE);
    cr_assert_neq(info.address, 0);
    core_write_pattern(buffer, 3);
    core_check_pattern(buffer, 3);
    check_ok(gpuipc_buffer_set_access(buffer, 0, GPUIPC_ACCESS_DEFAULT));
    check_ok(gpuipc_buffer_release(buffer));
}

Test(transport_memory, pool) {
    check_made(GPUIPC_TRANSPORT_POOL);
}

Test(transport_memory, legacy) {
    check_made(GPUIPC_TRANSPORT_LEGACY);
}

Test(transport_memory, p2p) {
    check_made(GPUIPC_TRANSPORT_P2P);
}

Test(transport_memory, host) {
    check_made(GPUIPC_TRANSPORT_HOST);
}

Test(transport_memory, fabric) {
    check_made(GPUIPC_TRANSPORT_FABRIC);
}

Test(transport_memory, no_transport_and_no_device) {
    gpuipc_buffer *buffer = NULL;
    for (int i = GPUIPC_TRANSPORT_VMM; i <= GPUIPC_TRANSPORT_FABRIC; i++) {
        check_status(GPUIPC_ERR_DEVICE_NOT_FOUND, create((gpuipc_transport)i, 1000, &buffer));
    }
    check_refused(GPUIPC_ERR_NOT_SUPPORTED, "no transport 7",
                  create((gpuipc_transport)7, 0, &buffer));
    cr_assert_null(buffer);
}

Test(transport_memory, more_than_there_is) {
    static const gpuipc_transport each[] = {GPUIPC_TRANSPORT_LEGACY, GPUIPC_TRANSPORT_P2P,
                                            GPUIPC_TRANSPORT_POOL};
    const uint64_t sizes[] = {UINT64_MAX, UINT64_C(1) << 62};
    for (size_t i = 0; i < sizeof(each) / sizeof(each[0]); i++) {
        for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {
            const gpuipc_buffer_config config = {
                .struct_size = sizeof(config), .transport = each[i], .bytes = sizes[k]};
            gpuipc_buffer *buffer = NULL;
            gpuipc_status status = gpuipc_buffer_create(core_context, &config, &buffer);
            if (status != GPUIPC_ERR_NOT_SUPPORTED) {
                check_status(GPUIPC_ERR_OUT_OF_DEVICE_MEMORY, status);
            }
            cr_assert_null(buffer);
        }
    }
    const gpuipc_buffer_config config = {
        .struct_size = sizeof(config), .transport = GPUIPC_TRANSPORT_HOST, .bytes = UINT64_MAX};
    gpuipc_buffer *buffer = NULL;
    check_status(GPUIPC_ERR_OUT_OF_MEMORY, gpuipc_buffer_create(core_context, &config, &buffer));
}

/* A copy by the second device from memory of the first, which it must reach for that. */
static void check_reached(gpuipc_transport transport) {
    core_need_devices(2);
    gpuipc_buffer *buffer = make(transport);
    gpuipc_status status = gpuipc_buffer_set_access(buffer, 1, GPUIPC_ACCESS_READ_WRITE);
    if (status == GPUIPC_ERR_PEER_ACCESS_UNSUPPORTED) {
        check_ok(gpuipc_buffer_release(buffer));
        cr_skip_test("device 1 does not reach device 0: %s", gpuipc_error_get()->sentence);
    }
    check_ok(status);
    core_enter_device(1);
    cr_assert_eq(core_driver()->cuMemsetD8(core_info(buffer).address, 7, BYTES), CUDA_SUCCESS);
    cr_assert_eq(core_driver()->cuCtxSynchronize(), CUDA_SUCCESS);
    uint8_t last = 0;
    check_ok(gpuipc_buffer_read(buffer, BYTES - 1, &last, 1));
    cr_assert_eq(last, 7);
    check_ok(gpuipc_buffer_set_access(buffer, 1, GPUIPC_ACCESS_DEFAULT)); /* again */
    check_refused(GPUIPC_ERR_NOT_SUPPORTED, "can write",
                  gpuipc_buffer_set_access(buffer, 1, GPUIPC_ACCESS_READ));
    check_status(GPUIPC_ERR_DEVICE_NOT_FOUND,
                 gpuipc_buffer_set_access(buffer, 1000, GPUIPC_ACCESS_DEFAULT));
    check_ok(gpuipc_buffer_release(buffer));
}

Test(transport_memory, pool_from_another_device) {
    check_reached(GPUIPC_TRANSPORT_POOL);
}

Test(transport_memory, legacy_from_another_device) {
    check_reached(GPUIPC_TRANSPORT_LEGACY);
}

Test(transport_memory, p2p_from_another_device) {
    check_reached(GPUIPC_TRANSPORT_P2P);
}

Test(transport_memory, host_from_another_device) {
    check_reached(GPUIPC_TRANSPORT_HOST);
}

/* ---- peer access ------------------------------------------------------------------------- */

/* What the driver answers to enabling it from device 1 to device 0 tells whether it was on. */
static bool is_enabled(void) {
    const driver *drv = core_driver();
    CUcontext reached;
    cr_assert_eq(drv->cuDevicePrimaryCtxRetain(&reached, 0), CUDA_SUCCESS);
    CUresult result = drv->cuCtxEnablePeerAccess(reached, 0);
    if (result == CUDA_SUCCESS) {
        cr_assert_eq(drv->cuCtxDisablePeerAccess(reached), CUDA_SUCCESS);
    }
    cr_assert_eq(drv->cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
    cr_assert(result == CUDA_SUCCESS || result == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    return result == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}

static void need_peers(void) {
    int can = 0;
    core_need_devices(2);
    cr_assert_eq(core_driver()->cuDeviceCanAccessPeer(&can, 1, 0), CUDA_SUCCESS);
    if (can == 0) {
        cr_skip_test("device 1 does not reach device 0");
    }
}

/* An application that wanted it meanwhile was told CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED. */
Test(transport_memory, peer_access_stays_until_the_last_context_that_asked_ends) {
    need_peers();
    const driver *drv = core_driver();
    CUcontext reached;
    gpuipc_context *const contexts[2] = {core_context_new(), core_context_new()};
    const gpuipc_buffer_config config = {
        .struct_size = sizeof(config), .transport = GPUIPC_TRANSPORT_P2P, .bytes = BYTES};
    gpuipc_buffer *first = NULL;
    gpuipc_buffer *second = NULL;
    gpuipc_buffer *third = NULL;
    check_ok(gpuipc_buffer_create(contexts[0], &config, &first));
    check_ok(gpuipc_buffer_create(contexts[0], &config, &second));
    check_ok(gpuipc_buffer_create(contexts[1], &config, &third));
    core_enter_device(1);
    cr_assert_eq(drv->cuDevicePrimaryCtxRetain(&reached, 0), CUDA_SUCCESS); /* it outlives them */
    cr_assert(!is_enabled());
    check_ok(gpuipc_buffer_set_access(first, 1, GPUIPC_ACCESS_DEFAULT));
    check_ok(gpuipc_buffer_set_access(first, 1, GPUIPC_ACCESS_DEFAULT));
    check_ok(gpuipc_buffer_set_access(second, 1, GPUIPC_ACCESS_DEFAULT));
    check_ok(gpuipc_buffer_set_access(third, 1, GPUIPC_ACCESS_DEFAULT));
    check_ok(gpuipc_buffer_release(first));
    cr_assert(is_enabled());
    check_ok(gpuipc_buffer_release(second));
    cr_assert(is_enabled());
    check_ok(gpuipc_buffer_release(third));
    cr_assert(is_enabled(), "it was disabled with the last buffer");
    check_ok(gpuipc_context_destroy(contexts[0]));
    cr_assert(is_enabled());
    check_ok(gpuipc_context_destroy(contexts[1]));
    cr_assert(!is_enabled());
    cr_assert_eq(drv->cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
}

Test(transport_memory, peer_access_of_the_callers_stays) {
    need_peers();
    const driver *drv = core_driver();
    CUcontext reached;
    gpuipc_buffer *buffer = make(GPUIPC_TRANSPORT_P2P);
    core_enter_device(1);
    cr_assert_eq(drv->cuDevicePrimaryCtxRetain(&reached, 0), CUDA_SUCCESS);
    cr_assert_eq(drv->cuCtxEnablePeerAccess(reached, 0), CUDA_SUCCESS);
    check_ok(gpuipc_buffer_set_access(buffer, 1, GPUIPC_ACCESS_DEFAULT));
    check_ok(gpuipc_buffer_release(buffer));
    cr_assert(is_enabled());
    cr_assert_eq(drv->cuCtxDisablePeerAccess(reached), CUDA_SUCCESS);
    cr_assert_eq(drv->cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
}

/* ---- sent to itself ---------------------------------------------------------------------- */

static void check_returns(gpuipc_transport transport, gpuipc_context *receiver) {
    gpuipc_buffer *buffer = make(transport);
    gpuipc_buffer *opened = NULL;
    core_pair pair;
    core_write_pattern(buffer, 5);
    core_pair_open(&pair, receiver, core_context);
    for (int i = 0; i < 2; i++) {
        check_ok(core_send(pair.client, &buffer, 1));
        check_ok(core_receive(pair.server, &opened, 1));
        cr_assert_eq(core_info(opened).transport, transport);
        cr_assert_eq(core_info(opened).origin, GPUIPC_BUFFER_OPENED);
        cr_assert_eq(core_info(opened).buffer_id, core_info(buffer).buffer_id);
        core_check_pattern(opened, 5);
        check_ok(gpuipc_buffer_release(opened));
    }
    check_ok(core_send(pair.client, &buffer, 1));
    check_ok(gpuipc_buffer_release(buffer));
    check_ok(core_receive(pair.server, &opened, 1));
    core_check_pattern(opened, 5);
    check_ok(gpuipc_buffer_release(opened));
    core_pair_close(&pair);
}

Test(transport_memory, each_comes_back_to_its_context) {
    check_returns(GPUIPC_TRANSPORT_LEGACY, core_context);
    check_returns(GPUIPC_TRANSPORT_HOST, core_context);
}

Test(transport_memory, each_comes_to_another_context) {
    gpuipc_context *other = core_context_new();
    check_returns(GPUIPC_TRANSPORT_LEGACY, other);
    check_returns(GPUIPC_TRANSPORT_HOST, other);
    check_ok(gpuipc_context_destroy(other));
}

Test(transport_memory, a_pools_comes_back) {
    gpuipc_context *other = core_context_new();
    check_returns(GPUIPC_TRANSPORT_POOL, core_context);
    check_returns(GPUIPC_TRANSPORT_POOL, other);
    check_ok(gpuipc_context_destroy(other));
}

Test(transport_memory, fabric_comes_back) {
    check_returns(GPUIPC_TRANSPORT_FABRIC, core_context);
}

Test(transport_memory, p2p_stays_in_its_process) {
    gpuipc_buffer *buffer = make(GPUIPC_TRANSPORT_P2P);
    core_pair pair;
    core_pair_open(&pair, core_context, core_context);
    check_refused(GPUIPC_ERR_NOT_SHAREABLE, "stays in its process",
                  core_send(pair.client, &buffer, 1));
    core_pair_close(&pair);
    check_ok(gpuipc_buffer_release(buffer));
}

Test(transport_memory, only_vmm_has_native_handles) {
    static const gpuipc_transport each[] = {GPUIPC_TRANSPORT_LEGACY, GPUIPC_TRANSPORT_HOST};
    for (size_t i = 0; i < sizeof(each) / sizeof(each[0]); i++) {
        gpuipc_buffer *buffer = make(each[i]);
        gpuipc_native_segment segment;
        gpuipc_native_layout layout = {.struct_size = sizeof(layout)};
        size_t count = 0;
        check_refused(GPUIPC_ERR_NOT_SHAREABLE, "no handle of its own",
                      gpuipc_native_export(buffer, &segment, 1, &layout, &count));
        check_ok(gpuipc_buffer_release(buffer));
    }
}

/* ---- wrapped ----------------------------------------------------------------------------- */

/* Sent to this process over a connection of two contexts; @p flags GPUIPC_SEND_* */
static gpuipc_status send_with(const core_pair *pair, gpuipc_buffer *buffer, uint32_t flags) {
    const gpuipc_outgoing message = {
        .struct_size = sizeof(message), .buffers = &buffer, .buffer_count = 1, .flags = flags};
    return gpuipc_connection_send(pair->client, &message, SOON_MS);
}

static void check_wrapped(own_kind kind, gpuipc_transport transport, const char *why_not) {
    core_pair pair;
    gpuipc_buffer *buffer = NULL;
    gpuipc_buffer *opened = NULL;
    core_enter_device(0);
    own_kinds own = own_kinds_make(kind, BYTES);
    core_pair_open(&pair, core_context, core_context);
    check_refused(GPUIPC_ERR_OUT_OF_RANGE, "ends at",
                  gpuipc_buffer_wrap(core_context, own.address + 1, BYTES, &buffer));
    check_ok(gpuipc_buffer_wrap(core_context, own.address + 400, BYTES - 400, &buffer));
    cr_assert_eq(core_info(buffer).address, own.address + 400);
    cr_assert_eq(core_info(buffer).transport, transport);
    cr_assert_eq(core_info(buffer).origin, GPUIPC_BUFFER_WRAPPED);
    core_write_pattern(buffer, 8);
    if (why_not != NULL) {
        check_refused(GPUIPC_ERR_NOT_SHAREABLE, why_not, send_with(&pair, buffer, 0));
    }
    check_ok(send_with(&pair, buffer, GPUIPC_SEND_STAGED));
    check_ok(core_receive(pair.server, &opened, 1));
    core_check_pattern(opened, 8);
    core_write_pattern(opened, 9);
    core_check_pattern(buffer, why_not == NULL ? 9 : 8); /* a copy is another memory */
    check_ok(gpuipc_buffer_release(opened));
    check_ok(gpuipc_buffer_release(buffer));
    core_pair_close(&pair);
    own_kinds_write(&own, 2); /* still the caller's */
    own_kinds_check(&own, 2);
    own_kinds_undo(&own);
}

Test(transport_memory, wrapped_cuMemAlloc) {
    check_wrapped(OWN_PLAIN, GPUIPC_TRANSPORT_LEGACY, NULL);
}

Test(transport_memory, wrapped_pool) {
    check_wrapped(OWN_POOL, GPUIPC_TRANSPORT_POOL, NULL);
}

Test(transport_memory, wrapped_default_pool) {
    check_wrapped(OWN_DEFAULT_POOL, GPUIPC_TRANSPORT_HOST, "without this system's handle type");
}

Test(transport_memory, wrapped_pinned) {
    check_wrapped(OWN_PINNED, GPUIPC_TRANSPORT_HOST, "pinned host memory");
}

Test(transport_memory, wrapped_registered) {
    check_wrapped(OWN_REGISTERED, GPUIPC_TRANSPORT_HOST, "pinned host memory");
}

Test(transport_memory, wrapped_managed) {
    check_wrapped(OWN_MANAGED, GPUIPC_TRANSPORT_HOST, "managed memory");
}

/* ---- the caller's own context -------------------------------------------------------------- */

/* Nothing changes which CUDA context the calling thread has. */
static void check_current(CUcontext expected) {
    CUcontext current = NULL;
    cr_assert_eq(core_driver()->cuCtxGetCurrent(&current), CUDA_SUCCESS);
    cr_assert_eq(current, expected);
}

static void use_all(CUcontext expected) {
    for (int i = GPUIPC_TRANSPORT_VMM; i <= GPUIPC_TRANSPORT_HOST; i++) {
        gpuipc_buffer *buffer = NULL;
        gpuipc_buffer *opened = NULL;
        core_pair pair;
        if (create((gpuipc_transport)i, 0, &buffer) != GPUIPC_OK) {
            continue;
        }
        check_current(expected);
        const gpuipc_status reaches = gpuipc_buffer_set_access(buffer, 1, GPUIPC_ACCESS_DEFAULT);
        cr_assert(reaches == GPUIPC_OK || reaches == GPUIPC_ERR_PEER_ACCESS_UNSUPPORTED, "%s",
                  gpuipc_error_text());
        check_current(expected);
        core_pair_open(&pair, core_context, core_context);
        if (i != GPUIPC_TRANSPORT_P2P) {
            check_ok(core_send(pair.client, &buffer, 1));
            check_current(expected);
            check_ok(core_receive(pair.server, &opened, 1));
            check_current(expected);
            check_ok(gpuipc_buffer_release(opened));
        }
        check_ok(gpuipc_buffer_release(buffer));
        core_pair_close(&pair);
        check_current(expected);
    }
}

Test(transport_memory, the_callers_context_stays) {
    CUcontext own = NULL;
    core_need_devices(2);
    use_all(NULL);
    core_enter_device(0);
    cr_assert_eq(core_driver()->cuCtxGetCurrent(&own), CUDA_SUCCESS);
    use_all(own);
}
