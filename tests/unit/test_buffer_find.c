/* SPDX-License-Identifier: MIT */
/** @file Buffers found by an address, and buffers around memory that gpuipc has already. */
#include "core_fixture.h"

#include <stdatomic.h>
#include <string.h>

#include "cuda/context.h"

TestSuite(buffer_find, .init = core_start, .fini = core_finish, .timeout = 120);

static void check_found(uint64_t address, gpuipc_buffer *expected, uint64_t offset) {
    gpuipc_buffer *found = NULL;
    uint64_t where = UINT64_MAX;
    check_ok(gpuipc_buffer_find(core_context, address, &found, &where));
    cr_assert_eq(found, expected);
    cr_assert_eq(where, offset);
    check_ok(gpuipc_buffer_release(found));
}

static void check_not_found(uint64_t address) {
    gpuipc_buffer *found = NULL;
    uint64_t where = 5;
    check_status(GPUIPC_ERR_NOT_FOUND, gpuipc_buffer_find(core_context, address, &found, &where));
    cr_assert(found == NULL && where == 5);
}

Test(buffer_find, an_address_finds_its_buffer) {
    gpuipc_buffer *buffers[3];
    uint64_t addresses[3];
    for (size_t i = 0; i < 3; i++) {
        buffers[i] = core_buffer(core_unit, 0);
        addresses[i] = gpuipc_buffer_address(buffers[i]);
        cr_assert_eq(addresses[i], core_info(buffers[i]).address);
    }
    for (size_t i = 0; i < 3; i++) {
        check_found(addresses[i], buffers[i], 0);
        check_found(addresses[i] + core_unit - 1, buffers[i], core_unit - 1);
    }
    check_not_found(0);
    check_not_found(UINT64_MAX);
    check_ok(gpuipc_buffer_release(buffers[1]));
    check_not_found(addresses[1]);
    check_found(addresses[2], buffers[2], 0);
    check_ok(gpuipc_buffer_release(buffers[0]));
    check_ok(gpuipc_buffer_release(buffers[2]));
}

Test(buffer_find, bad_arguments) {
    gpuipc_buffer *buffer = core_buffer(core_unit, 0);
    const uint64_t address = gpuipc_buffer_address(buffer);
    gpuipc_buffer *found;
    uint64_t where;
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_buffer_find(NULL, address, &found, &where));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_buffer_find(core_context, address, NULL, &where));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_buffer_find(core_context, address, &found, NULL));
    check_ok(gpuipc_buffer_release(buffer));
    cr_assert_eq(gpuipc_buffer_address(buffer), 0);
    cr_assert_eq(gpuipc_error_get()->status, GPUIPC_ERR_RELEASED);
    cr_assert_str_eq(gpuipc_error_get()->operation, "gpuipc_buffer_address");
    cr_assert_eq(gpuipc_buffer_address(NULL), 0);
}

/* What frees by address gives up the hold that the allocation was, and the one that the look-up added. */
Test(buffer_find, a_buffer_is_freed_by_its_address) {
    const uint64_t address = gpuipc_buffer_address(core_buffer(core_unit, 0));
    gpuipc_buffer *found;
    uint64_t where;
    check_ok(gpuipc_buffer_find(core_context, address, &found, &where));
    check_ok(gpuipc_buffer_release(found));
    check_ok(gpuipc_buffer_release(found));
    check_not_found(address);
}

static gpuipc_buffer *hand_over(gpuipc_context *to, gpuipc_buffer *const *sent, size_t count,
                                gpuipc_buffer **opened, uint32_t flags) {
    core_pair pair;
    gpuipc_incoming message = {.struct_size = sizeof(message),
                               .buffers = opened,
                               .buffer_capacity = count,
                               .flags = flags};
    core_pair_open(&pair, to, core_context);
    check_ok(core_send(pair.client, sent, count));
    check_ok(gpuipc_connection_receive(pair.server, &message, SOON_MS));
    core_pair_close(&pair);
    return opened[0];
}

Test(buffer_find, what_was_opened_is_found_and_what_was_wrapped_is_not) {
    gpuipc_context *other = core_context_new();
    gpuipc_buffer *buffer = core_buffer(core_unit, 0);
    gpuipc_buffer *opened = NULL;
    gpuipc_buffer *view = NULL;
    gpuipc_buffer *found = NULL;
    uint64_t where = 0;
    hand_over(other, &buffer, 1, &opened, 0);
    check_ok(gpuipc_buffer_find(other, gpuipc_buffer_address(opened) + 8, &found, &where));
    cr_assert(found == opened && where == 8);
    check_ok(gpuipc_buffer_release(found));
    check_not_found(gpuipc_buffer_address(opened)); /* it is the other context's */
    check_ok(gpuipc_buffer_wrap(core_context, gpuipc_buffer_address(buffer), 16, &view));
    check_found(gpuipc_buffer_address(buffer), buffer, 0);
    check_ok(gpuipc_buffer_release(view));
    check_ok(gpuipc_buffer_release(opened));
    check_ok(gpuipc_buffer_release(buffer));
    check_ok(gpuipc_context_destroy(other));
}

Test(buffer_find, own_memory_that_is_wrapped_is_a_view_and_mapped_once_by_who_opens_it) {
    gpuipc_context *other = core_context_new();
    gpuipc_buffer *sent[2] = {core_buffer(4 * core_unit, core_unit), NULL};
    gpuipc_buffer *opened[2];
    const uint64_t address = gpuipc_buffer_address(sent[0]);
    core_write_pattern(sent[0], 3);
    check_ok(gpuipc_buffer_wrap(core_context, address + 512, core_unit, &sent[1]));
    const gpuipc_buffer_info of = core_info(sent[0]);
    const gpuipc_buffer_info view = core_info(sent[1]);
    cr_assert_eq(view.origin, GPUIPC_BUFFER_WRAPPED);
    cr_assert_eq(view.address, address + 512);
    cr_assert_eq(view.bytes, core_unit);
    cr_assert_eq(view.buffer_id, of.buffer_id);
    cr_assert_eq(view.access, GPUIPC_ACCESS_READ_WRITE);
    if (core_is_emulated) {
        core_set_failures("");
    }
    hand_over(other, sent, 2, opened, 0);
    if (core_is_emulated) {
        cr_assert_eq(core_calls("cuMemAddressReserve"), 1);
    }
    cr_assert_eq(gpuipc_buffer_address(opened[1]), gpuipc_buffer_address(opened[0]) + 512);
    core_check_pattern(opened[0], 3);
    check_ok(gpuipc_buffer_release(opened[0]));
    check_ok(gpuipc_buffer_release(opened[1]));
    check_ok(gpuipc_buffer_release(sent[0])); /* the view keeps the mapping */
    uint32_t word = 0;
    check_ok(gpuipc_buffer_read(sent[1], 0, &word, sizeof(word)));
    check_ok(gpuipc_buffer_release(sent[1]));
    check_ok(gpuipc_context_destroy(other));
}

Test(buffer_find, more_than_the_mapping_is_no_view) {
    gpuipc_buffer *buffer = core_buffer(core_unit, 0);
    gpuipc_buffer *view = NULL;
    check_status(
        GPUIPC_ERR_OUT_OF_RANGE,
        gpuipc_buffer_wrap(core_context, gpuipc_buffer_address(buffer) + 1, core_unit, &view));
    cr_assert_null(view);
    check_ok(gpuipc_buffer_release(buffer));
}

/* Opened memory travels on where its handles were kept, by whatever buffer it is sent. */
Test(buffer_find, opened_memory_that_is_wrapped_goes_on_as_what_it_is_over) {
    gpuipc_context *other = core_context_new();
    gpuipc_buffer *made = NULL;
    const gpuipc_buffer_config config = {.struct_size = sizeof(config), .bytes = core_unit};
    check_ok(gpuipc_buffer_create(other, &config, &made));
    for (uint32_t flags = 0; flags <= GPUIPC_RECEIVE_KEEP_HANDLES; flags++) {
        core_pair pair;
        gpuipc_buffer *opened = NULL;
        gpuipc_buffer *view = NULL;
        gpuipc_buffer *again = NULL;
        gpuipc_incoming message = {.struct_size = sizeof(message),
                                   .buffers = &opened,
                                   .buffer_capacity = 1,
                                   .flags = flags};
        core_pair_open(&pair, core_context, other);
        core_write_pattern(made, flags);
        check_ok(core_send(pair.client, &made, 1));
        check_ok(gpuipc_connection_receive(pair.server, &message, SOON_MS));
        check_ok(gpuipc_buffer_wrap(core_context, gpuipc_buffer_address(opened), core_unit, &view));
        if (flags == 0) {
            check_status(GPUIPC_ERR_NOT_SHAREABLE, core_send(pair.server, &view, 1));
        } else {
            check_ok(core_send(pair.server, &view, 1));
            check_ok(core_receive(pair.client, &again, 1));
            core_check_pattern(again, flags);
            check_ok(gpuipc_buffer_release(again));
        }
        check_ok(gpuipc_buffer_release(opened));
        check_ok(gpuipc_buffer_release(view));
        core_pair_close(&pair);
    }
    check_ok(gpuipc_buffer_release(made));
    check_ok(gpuipc_context_destroy(other));
}

/* Nor read for a copy that is to leave; with its handles it would leave itself. */
static void check_sent_refused(gpuipc_context *within, gpuipc_buffer *view) {
    core_pair pair;
    const gpuipc_outgoing message = {.struct_size = sizeof(message),
                                     .buffers = &view,
                                     .buffer_count = 1,
                                     .flags = GPUIPC_SEND_STAGED};
    if (core_info(view).transport == GPUIPC_TRANSPORT_HOST) {
        core_pair_open(&pair, within, core_context);
        check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "has been returned",
                      gpuipc_connection_send(pair.server, &message, SOON_MS));
        core_pair_close(&pair);
    }
}

Test(buffer_find, what_is_wrapped_over_a_returned_buffer_is_not_used_either) {
    gpuipc_context *other = core_context_new();
    gpuipc_buffer *sent = core_buffer(core_unit, 0);
    gpuipc_buffer *own = NULL;
    const gpuipc_buffer_config config = {.struct_size = sizeof(config), .bytes = core_unit};
    uint32_t word = 0;
    check_ok(gpuipc_buffer_create(other, &config, &own));
    for (uint32_t flags = 0; flags <= GPUIPC_RECEIVE_KEEP_HANDLES; flags++) {
        gpuipc_buffer *opened = NULL;
        gpuipc_buffer *view = NULL;
        hand_over(other, &sent, 1, &opened, flags);
        check_ok(gpuipc_buffer_wrap(other, gpuipc_buffer_address(opened), 4096, &view));
        check_ok(gpuipc_buffer_read(view, 0, &word, sizeof(word)));
        check_ok(gpuipc_buffer_return_async(opened, NULL));
        check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "has been returned",
                      gpuipc_buffer_read(view, 0, &word, sizeof(word)));
        check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "has been returned",
                      gpuipc_buffer_copy_async(own, 0, view, 0, 4096, NULL));
        check_sent_refused(other, view);
        check_ok(gpuipc_buffer_release(view));
        check_ok(gpuipc_buffer_release(opened));
    }
    check_ok(gpuipc_buffer_release(own));
    check_ok(gpuipc_buffer_release(sent));
    check_ok(gpuipc_context_destroy(other));
}

/* It cannot go on as it is, and as a copy it can. */
Test(buffer_find, opened_memory_without_its_handles_that_is_wrapped_goes_on_as_a_copy) {
    gpuipc_context *other = core_context_new();
    gpuipc_buffer *sent = core_buffer(core_unit, 0);
    gpuipc_buffer *opened = NULL;
    gpuipc_buffer *view = NULL;
    gpuipc_buffer *copy = NULL;
    core_pair pair;
    core_write_pattern(sent, 5);
    hand_over(other, &sent, 1, &opened, 0);
    check_ok(gpuipc_buffer_wrap(other, gpuipc_buffer_address(opened), core_unit, &view));
    check_ok(gpuipc_buffer_release(opened)); /* the view keeps the mapping */
    core_pair_open(&pair, other, core_context);
    const gpuipc_outgoing message = {.struct_size = sizeof(message),
                                     .buffers = &view,
                                     .buffer_count = 1,
                                     .flags = GPUIPC_SEND_STAGED};
    check_ok(gpuipc_connection_send(pair.server, &message, SOON_MS));
    check_ok(core_receive(pair.client, &copy, 1));
    core_check_pattern(copy, 5);
    check_ok(gpuipc_buffer_release(copy));
    check_ok(gpuipc_buffer_release(view));
    core_pair_close(&pair);
    check_ok(gpuipc_buffer_release(sent));
    check_ok(gpuipc_context_destroy(other));
}

Test(buffer_find, memory_of_each_transport_is_wrapped_as_what_it_is) {
    for (int i = GPUIPC_TRANSPORT_VMM; i <= GPUIPC_TRANSPORT_HOST; i++) {
        const gpuipc_buffer_config config = {
            .struct_size = sizeof(config), .transport = (gpuipc_transport)i, .bytes = 65536};
        gpuipc_buffer *buffer = NULL;
        gpuipc_buffer *view = NULL;
        gpuipc_status status = gpuipc_buffer_create(core_context, &config, &buffer);
        if (status == GPUIPC_ERR_NOT_SUPPORTED) {
            continue; /* pools, on Windows */
        }
        check_ok(status);
        check_ok(
            gpuipc_buffer_wrap(core_context, gpuipc_buffer_address(buffer) + 256, 4096, &view));
        cr_assert_eq((int)core_info(view).transport, i);
        core_write_pattern(view, 9);
        check_ok(gpuipc_buffer_release(buffer));
        core_check_pattern(view, 9);
        check_ok(gpuipc_buffer_release(view));
    }
}

/* ---- one call that tells all ---------------------------------------------------------------- */

Test(buffer_find, receiving_tells_what_each_buffer_is) {
    gpuipc_context *other = core_context_new();
    gpuipc_buffer *sent[2] = {core_buffer(core_unit, 0), core_buffer(2 * core_unit, core_unit)};
    gpuipc_buffer *opened[2];
    gpuipc_buffer_info infos[2] = {GPUIPC_BUFFER_INFO_INIT};
    core_pair pair;
    gpuipc_incoming message = {
        .struct_size = sizeof(message), .buffers = opened, .buffer_capacity = 2, .infos = infos};
    core_pair_open(&pair, other, core_context);
    check_ok(core_send(pair.client, sent, 2));
    infos[0].struct_size = 8;
    check_refused(GPUIPC_ERR_STRUCT_SIZE, "gpuipc_buffer_info",
                  gpuipc_connection_receive(pair.server, &message, SOON_MS));
    infos[0].struct_size = sizeof(infos[0]);
    check_ok(gpuipc_connection_receive(pair.server, &message, SOON_MS));
    for (size_t i = 0; i < 2; i++) {
        const gpuipc_buffer_info asked = core_info(opened[i]);
        cr_assert_eq(memcmp(&infos[i], &asked, sizeof(asked)), 0);
        check_ok(gpuipc_buffer_release(opened[i]));
        check_ok(gpuipc_buffer_release(sent[i]));
    }
    core_pair_close(&pair);
    check_ok(gpuipc_context_destroy(other));
}

Test(buffer_find, opening_tells_what_the_buffer_is) {
    gpuipc_context *other = core_context_new();
    gpuipc_buffer *buffer = core_buffer(core_unit, 0);
    gpuipc_buffer *opened = NULL;
    gpuipc_server *server = NULL;
    gpuipc_ticket ticket;
    gpuipc_buffer_info info = GPUIPC_BUFFER_INFO_INIT;
    const gpuipc_share_config share = {
        .struct_size = sizeof(share), .attachment = "shape", .attachment_bytes = 6};
    const gpuipc_open_config config = {.struct_size = sizeof(config), .info = &info};
    check_ok(gpuipc_server_create(core_context, NULL, &server));
    check_ok(gpuipc_buffer_share(server, buffer, &share, &ticket));
    for (int i = 0; i < 2; i++) { /* the second one is a look-up */
        gpuipc_buffer_info *const wanted = &info;
        info = (gpuipc_buffer_info)GPUIPC_BUFFER_INFO_INIT;
        check_ok(gpuipc_buffer_open(other, &ticket, &config, &opened));
        const gpuipc_buffer_info asked = core_info(opened);
        cr_assert_eq(memcmp(wanted, &asked, sizeof(asked)), 0);
        cr_assert_eq(info.address, gpuipc_buffer_address(opened));
        cr_assert_eq(info.attachment_bytes, 6);
        cr_assert_str_eq(info.attachment, "shape");
        check_ok(gpuipc_buffer_release(opened));
    }
    info.struct_size = 0;
    opened = NULL;
    check_refused(GPUIPC_ERR_STRUCT_SIZE, "gpuipc_buffer_info",
                  gpuipc_buffer_open(other, &ticket, &config, &opened));
    cr_assert_null(opened);
    check_ok(gpuipc_server_destroy(server));
    check_ok(gpuipc_buffer_release(buffer));
    check_ok(gpuipc_context_destroy(other));
}

/* ---- who may use it ------------------------------------------------------------------------- */

static int access_of(int ordinal, uint64_t address) {
    const CUmemLocation where = {CU_MEM_LOCATION_TYPE_DEVICE, ordinal};
    unsigned long long flags = 0;
    cr_assert_eq(core_driver()->cuMemGetAccess(&flags, &where, address), CUDA_SUCCESS);
    return (int)flags;
}

Test(buffer_find, further_devices_have_access_from_the_start) {
    const uint32_t devices[] = {GPUIPC_DEVICE(0), GPUIPC_DEVICE(1)};
    gpuipc_buffer_config config = GPUIPC_BUFFER_CONFIG_INIT;
    gpuipc_buffer *buffer = NULL;
    int can = 0;
    core_need_devices(2);
    cr_assert_eq(core_driver()->cuDeviceCanAccessPeer(&can, 1, 0), CUDA_SUCCESS);
    config.bytes = core_unit;
    config.access_devices = devices;
    config.access_device_count = 2;
    check_status(can ? GPUIPC_OK : GPUIPC_ERR_PEER_ACCESS_UNSUPPORTED,
                 gpuipc_buffer_create(core_context, &config, &buffer));
    if (can) {
        cr_assert_eq(access_of(1, gpuipc_buffer_address(buffer)),
                     CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        check_ok(gpuipc_buffer_release(buffer));
    }
}

Test(buffer_find, further_devices_that_are_none_are_refused) {
    const uint32_t plain = 1;
    const uint32_t missing = GPUIPC_DEVICE(core_device_count);
    gpuipc_buffer_config config = GPUIPC_BUFFER_CONFIG_INIT;
    gpuipc_buffer *buffer = NULL;
    config.bytes = core_unit;
    config.access_device_count = 1;
    check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "access_devices",
                  gpuipc_buffer_create(core_context, &config, &buffer));
    config.access_devices = &plain;
    check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "write GPUIPC_DEVICE(1)",
                  gpuipc_buffer_create(core_context, &config, &buffer));
    config.access_devices = &missing;
    check_status(GPUIPC_ERR_DEVICE_NOT_FOUND, gpuipc_buffer_create(core_context, &config, &buffer));
    cr_assert_null(buffer);
}

/* The driver's call, which answers late when it has made memory readable only: as late as it takes the other thread to
 * make it writable, if that can be in between. */
static CUresult (*set_access)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t);
static atomic_bool is_writable;

static CUresult set_access_late(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *desc,
                                size_t count) {
    const CUresult result = set_access(address, bytes, desc, count);
    const uint64_t end_ns = os_clock_ns() + 200000000u;
    while (desc->flags == CU_MEM_ACCESS_FLAGS_PROT_READ && !atomic_load(&is_writable) &&
           os_clock_ns() < end_ns) {
    }
    return result;
}

static gpuipc_status read_only(void *buffer) {
    return gpuipc_buffer_set_access(buffer, 0, GPUIPC_ACCESS_READ);
}

/* Two threads change it at once: whoever is the last, library and driver agree on it. */
Test(buffer_find, library_and_driver_agree_about_access) {
    gpuipc_buffer *buffer = core_buffer(core_unit, 0);
    const uint64_t address = gpuipc_buffer_address(buffer);
    context *inner = NULL;
    core_waiter one;
    check_ok(context_acquire(core_context, &inner));
    set_access = inner->driver.cuMemSetAccess;
    inner->driver.cuMemSetAccess = set_access_late;
    core_waiter_begin(&one, read_only, buffer);
    while (access_of(0, address) != CU_MEM_ACCESS_FLAGS_PROT_READ) {
    }
    check_ok(gpuipc_buffer_set_access(buffer, 0, GPUIPC_ACCESS_READ_WRITE));
    atomic_store(&is_writable, true);
    check_ok(core_waiter_end(&one));
    inner->driver.cuMemSetAccess = set_access;
    context_unreference(inner);
    cr_assert_eq((int)core_info(buffer).access, access_of(0, address));
    check_ok(gpuipc_buffer_release(buffer));
}

/* Whatever the view may do there: it could have had that from the start. */
Test(buffer_find, a_further_device_reaches_what_is_wrapped_over_a_buffer) {
    gpuipc_buffer *view = NULL;
    int can = 0;
    core_need_devices(2);
    cr_assert_eq(core_driver()->cuDeviceCanAccessPeer(&can, 1, 0), CUDA_SUCCESS);
    gpuipc_buffer *buffer = core_buffer(core_unit, 0);
    const uint64_t address = gpuipc_buffer_address(buffer);
    check_ok(gpuipc_buffer_wrap(core_context, address, core_unit, &view));
    cr_assert_eq(access_of(1, address), 0);
    check_status(can ? GPUIPC_OK : GPUIPC_ERR_PEER_ACCESS_UNSUPPORTED,
                 gpuipc_buffer_set_access(view, 1, GPUIPC_ACCESS_READ_WRITE));
    cr_assert_eq(access_of(1, address), can ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : 0);
    check_ok(gpuipc_buffer_release(view));
    check_ok(gpuipc_buffer_release(buffer));
}
